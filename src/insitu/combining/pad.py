"""Padding of files that are not equally long (`pad=True`): profiles of their own depths side by side, swaths of
several widths one after another.

Along dimensions that files are not joined along, shorter ones get missing values at their end, up to the longest.
No values are read: the elements are absent. Labels that differ between files cannot index such a dimension; they
are coordinates of each file then, which get the joined dimension. What is padded is decided by the facts of all
files (`FilesTable`), so that workers pad theirs before they join them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from insitu.combining.align import Indexer, take_elements
from insitu.combining.arrange import Arrangement, Merged
from insitu.combining.equality import has_equal_values
from insitu.combining.files_table import FilesTable
from insitu.combining.label_boxes import LabelBoxes
from insitu.scanning.member import Member

__all__ = ["Padding", "joined_dims", "pad_member", "plan_padding"]


@dataclass(frozen=True, slots=True)
class Padding:
    """What files are padded to. Without any, nothing changes."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    """Dimensions that are not equally long in all files: the longest."""
    unlabelled: frozenset[str] = frozenset()
    """Dimensions whose labels differ between files: they have no index."""
    varying: frozenset[str] = frozenset()
    """Variables that differ between files by that: they get the joined dimension, whatever `coords` and
    `data_vars` say.
    """


def joined_dims(arrangement: Arrangement) -> set[str]:
    """Return the dimensions that files are joined along."""
    if isinstance(arrangement, Merged):
        return {dim for grid in arrangement.grids for dim in joined_dims(grid)}
    if isinstance(arrangement, LabelBoxes):
        return set(arrangement.dims)
    own = {dim[0] if isinstance(dim, tuple) else dim for dim in arrangement.dims if dim is not None}
    return own.union(*(joined_dims(inner) for inner in arrangement.within.values()))


def plan_padding(files: FilesTable, joined: Collection[str]) -> Padding:
    """Return how some files are padded that are joined along these dimensions."""
    longest: dict[str, int] = {}
    uneven: set[str] = set()
    for kind in files.kinds:
        for dim, length in kind.sizes.items():
            if dim not in joined:
                if longest.setdefault(dim, length) != length:
                    uneven.add(dim)
                longest[dim] = max(longest[dim], length)
    unlabelled = {dim for dim in longest if dim in uneven or not _has_same_labels(files, dim)}
    varying = {
        name
        for kind in files.kinds
        for name, variable in kind.named
        if name in unlabelled or not uneven.isdisjoint(variable.dims)
    }
    return Padding({dim: longest[dim] for dim in uneven}, frozenset(unlabelled), frozenset(varying - set(joined)))


def _has_same_labels(files: FilesTable, dim: str) -> bool:
    """Return whether no file has labels of its own along a dimension; a file without labels agrees with all."""
    if any(dim in kind.variables and kind.variables[dim].dims != (dim,) for kind in files.kinds):
        return False  # labels of several files together, padded before
    known = [labels for labels in files.labels.get(dim, ()) if labels is not None]
    return all(labels is known[0] or has_equal_values(known[0], labels) for labels in known[1:])


def pad_member(member: Member, padding: Padding) -> Member:
    """Return a file as long as the longest, with missing values at the end. What is long enough stays."""
    if not (padding.sizes or padding.unlabelled):
        return member
    variables = {}
    for name, variable in member.variables.items():
        for axis, (dim, length) in enumerate(variable.sizes.items()):
            wanted = padding.sizes.get(dim, length)
            if wanted > length:
                variable = take_elements(variable, axis, _indexer(length, wanted))
        variables[name] = variable
    labels = {dim for dim in padding.unlabelled if member.index(dim) is not None}
    return replace(member.with_variables(variables), unindexed=member.unindexed | labels)


@lru_cache(maxsize=256)
def _indexer(length: int, wanted: int) -> Indexer:
    """Return the indices of all elements of an axis, and -1 for those that it lacks."""
    indices = np.arange(wanted)
    indices[length:] = -1
    indices.flags.writeable = False
    return indices
