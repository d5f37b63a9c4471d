"""Merging of members side by side: xarray's `merge`, on tables of chunks.

Often a variable is missing in some files: xarray joins the files with it and those without apart,
and merges the two. Variables of both are then filled in from one another. Where no label along some
dimension is in two parts, that is a join in another order, and nothing is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.align import align_members, pandas_index
from insitu.combining.combine_rules import CombineRules
from insitu.combining.equality import ConflictError, has_equal_values, merge_variable
from insitu.combining.merge_attributes import common_items, merge_attributes
from insitu.errors import CombineError
from insitu.model import VirtualArray
from insitu.model.gaps import with_dtype
from insitu.model.join_similar import join_arrays
from insitu.scanning.member import Member, Variable
from insitu.scanning.promotion import shared_type

__all__ = ["merge"]


def merge(members: Sequence[Member], rules: CombineRules) -> Member:
    """Return the members as one, variable by variable.

    Parameters
    ----------
    members
        In the order in which the first counts.
    rules
        How variables of one name must agree, and which labels the result has.
    """
    coords = frozenset().union(*(member.coords for member in members))
    data = {name for member in members for name in member.data_names()}
    parts = align_members(members, rules.join)
    if both := coords & data:
        raise CombineError(
            f"unable to determine if these variables should be coordinates or not in the merged result: {set(both)!r}"
        )
    names = dict.fromkeys(name for member in parts for name in member.variables)
    before = _LabelMasks(members, parts)
    result: dict[str, Variable] = {}
    for name in names:
        found = [member.variables[name] for member in parts if name in member.variables]
        labels = [member.variables[name] for member in parts if member.index(name) is not None]
        if labels:
            variable = _merge_label(name, labels, rules)
        else:
            fills_in = len(found) > 1 and rules.compat == "no_conflicts" and rules.join != "override"
            try:
                variable = (_join_disjoint_parts(name, before) if fills_in else None) or merge_variable(
                    name, found, rules.compat, rules.load
                )
            except ConflictError:
                if rules.compat != "minimal":
                    raise
                continue  # what conflicts is left out
        attributes = merge_attributes([v.attributes for v in labels or found], rules.combine_attrs)
        encoding = variable.encoding if len(found) == 1 else common_items([v.encoding for v in found])
        result[name] = Variable(variable.dims, variable.data, attributes, encoding)
    sizes: dict[str, int] = {}
    for name, variable in result.items():
        for dim, length in variable.sizes.items():
            if sizes.setdefault(dim, length) != length:
                raise CombineError(
                    f"conflicting sizes for dimension {dim!r}: length {length} on {name!r} and {sizes[dim]} before"
                )
    attributes = merge_attributes([member.attributes for member in members], rules.combine_attrs)
    unindexed = frozenset().union(*(member.unindexed for member in parts))
    coords = frozenset(name for name in result if name in coords or name in sizes)
    return Member(result, coords, attributes, {}, None, unindexed)


def _merge_label(name: str, labels: Sequence[Variable], rules: CombineRules) -> Variable:
    first = labels[0]
    for other in labels[1:]:
        if other.data is not first.data and not has_equal_values(first.values(rules.load), other.values(rules.load)):
            raise CombineError(f"conflicting values/indexes on objects to be combined for coordinate {name!r}")
        if rules.compat == "identical" and dict(other.attributes) != dict(first.attributes):
            raise CombineError(f"conflicting attribute values on combined variable {name!r}")
    return first


Mask = npt.NDArray[np.bool_]
_FILLABLE = "fcmM"
"""Kinds of types that have a missing value: alignment converts numbers with missing elements to
these, all else to objects.
"""


class _LabelMasks:
    """Masks: which of the merged labels each part had before merging."""

    def __init__(self, before: Sequence[Member], after: Sequence[Member]) -> None:
        self.before = before
        self.after = after
        self._known: dict[tuple[str, int], Mask] = {}

    def mask(self, number: int, dim: str, length: int) -> Mask:
        """Return a mask: True where a part had the label, and everywhere if the dimension has none."""
        own, merged = self.before[number].index(dim), self.after[number].index(dim)
        if own is None or merged is None or own is merged:
            return np.ones(length, bool)
        key = (dim, id(own))
        if key not in self._known:
            self._known[key] = pandas_index(own, dim).get_indexer(pandas_index(merged, dim)) >= 0
        return self._known[key]


def _join_disjoint_parts(name: str, labels: _LabelMasks) -> Variable | None:
    """Return the variable that parts with disjoint labels make.

    None if they overlap, or are all in memory.
    """
    numbers = [number for number, member in enumerate(labels.after) if name in member.variables]
    parts = [labels.after[number].variables[name] for number in numbers]
    first = parts[0]
    if any(part.dims != first.dims or part.shape != first.shape for part in parts):
        return None
    if not any(isinstance(part.data, VirtualArray) for part in parts):
        return None
    try:
        dtype = shared_type([part.dtype for part in parts])
    except CombineError as refused:
        raise refused.with_context(variable=name) from refused.__cause__
    virtual = [part.virtual() for part in parts]
    if dtype.kind not in _FILLABLE or any(array is None or array.dtype.kind in "bSUVO" for array in virtual):
        return None
    for axis, dim in enumerate(first.dims):
        masks = np.array([labels.mask(number, dim, first.shape[axis]) for number in numbers])
        if (masks.sum(axis=0) <= 1).all():
            data = _place_parts([array for array in virtual if array is not None], axis, masks)
            return first.with_data(with_dtype(data, dtype))
    return None


def _place_parts(arrays: Sequence[VirtualArray], axis: int, masks: npt.NDArray[Any]) -> VirtualArray:
    """Return each array's own elements of an axis, put where the masks have them."""
    pieces = [array.take(axis, np.flatnonzero(mask)) for array, mask in zip(arrays, masks, strict=True) if mask.any()]
    place = np.full(masks.shape[1], -1, np.int64)
    begin = 0
    for mask in masks:
        own = int(mask.sum())
        place[mask] = np.arange(begin, begin + own)
        begin += own
    if not pieces:
        return arrays[0]
    return join_arrays(pieces, axis).take(axis, place)
