"""Append files to a saved archive that was combined with all its groups.

New files are scanned and joined to what is saved, group by group. Where what is saved does not say
which part of each group came from which file, all files are scanned and combined anew: an archive is
always what opening its files by its recipe gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from insitu.combining.recipe import Recipe
from insitu.errors import CombineError
from insitu.maintenance.append_along import check_compatible
from insitu.maintenance.append_to_saved import Added
from insitu.maintenance.change_files import combine_anew, tree_from_root
from insitu.maintenance.conflicts import COMBINE_ANEW, read_saved_member
from insitu.maintenance.rebuild import join_in_order
from insitu.model import VirtualGroup
from insitu.scanning.member import Load, Member
from insitu.scanning.scan_member import make_loader

if TYPE_CHECKING:
    from insitu.combining.portion import ScannedFiles
    from insitu.references.update_references import ReferencesUpdate

__all__ = ["add_groups"]


class _UnknownPlaceError(Exception):
    """What is saved cannot be joined with new files as a whole: they belong between parts of it, or
    some lack groups.
    """


def add_groups(root: Member, opened: ReferencesUpdate, recipe: Recipe, dim: str, files: Sequence[str] = ()) -> Added:
    """Return a tree with what further files hold in all their groups.

    Parameters
    ----------
    root
        The root of the tree that the new files make.
    opened, recipe
        The saved tree.
    dim
        The dimension that grows. Groups that are joined along another dimension grow along that.
    files
        The new files; those that the tree names if not given.
    """
    added = tuple(files) or tuple(source.url for source in tree_from_root(root).sources)
    target, load = opened.url, make_loader(opened.storage_options)
    saved = _saved_root(opened.tree, load, target)
    known = recipe.files or tuple(source.url for source in opened.tree.sources)
    if added and set(known).issuperset(added):
        return Added(None, skipped=added)
    try:
        whole = _join_groups(saved, root, dim, target, recipe, load)
    except _UnknownPlaceError:
        if not recipe.files:
            raise CombineError("the new files belong between parts of the archive", hint=COMBINE_ANEW) from None
        whole, recipe = combine_anew([*recipe.files, *added], recipe, opened.storage_options)
    except CombineError as problem:
        raise CombineError(
            f"the new files do not match those of {target}: {problem.message}",
            hint=problem.hint or COMBINE_ANEW,
            **{"url": next(iter(added), None), **problem.place},
        ) from problem
    longer = replace(recipe, files=(*recipe.files, *added)) if recipe.files else None
    return Added(whole, longer, _growth(saved, whole, dim), added)


def _saved_root(tree: VirtualGroup, load: Load, url: str) -> Member:
    """Return the root of a saved tree."""
    groups = {path: read_saved_member(group, load, url) for path, group in tree.walk()}
    root = groups.pop("")
    return replace(root, below=groups, groups=())


def _join_groups(saved: Member, new: Member, dim: str, target: str, recipe: Recipe, load: Load) -> Member:
    """Return a saved tree and one of new files joined."""
    from insitu.combining.combine_groups import combine_groups  # imports xarray and pandas

    def combine_one(path: str, found: ScannedFiles, own: Recipe) -> Member:
        members = [item for item in found if isinstance(item, Member)]
        along = _growing_dim(members, dim, own)
        if len(members) == 1:
            if along is not None and own.grid_dims() and members[0].index(along) is None:
                raise _UnknownPlaceError
            return members[0]
        combine = own.options.combine
        if (
            combine.places_labels
            or combine.pad
            or combine.drops_conflicts
            or _is_between(members[0], members[1], along, own)
        ):
            raise _UnknownPlaceError
        if along is None:
            return own.combine_found(found, [(0,), (1,)], [target, "new files"], load, "skip")
        check_compatible(members[0], members[1], along, target, own)
        return join_in_order(members, along, own, load)

    root, _ = combine_groups([saved, new], recipe, combine_one, "raise")
    return root


def _is_between(saved: Member, new: Member, dim: str | None, recipe: Recipe) -> bool:
    """Return whether labels of new files lie between those of an archive that is ordered by labels."""
    one, other = (None, None) if dim is None or recipe.new_dims() else (saved.index(dim), new.index(dim))
    if one is None or other is None or one.dtype != other.dtype or not len(one) or not len(other):
        return False
    if np.isin(other, one).any():
        return False  # an error
    return not bool(other.min() > one.max() or other.max() < one.min())


def _growing_dim(members: Sequence[Member], dim: str, recipe: Recipe) -> str | None:
    """Return the dimension along which a group grows; None if it is merged."""
    if names := recipe.new_dims():
        return dim if dim in names else names[0]
    if recipe.grid_dims():
        return None
    if len(members) == 1 or dim in members[1].sizes:
        return dim
    one, other = members
    differing = [
        name
        for name in other.sizes
        if (labels := one.index(name)) is not None
        and (own := other.index(name)) is not None
        and labels.tolist() != own.tolist()
    ]
    return differing[0] if differing else None


def _growth(saved: Member, whole: Member, dim: str) -> int:
    """Return how many steps of a dimension were added, in the group that got most."""
    before = dict(saved.walk())
    return max(
        (
            member.sizes[dim] - (before[path].sizes.get(dim, 0) if path in before else 0)
            for path, member in whole.walk()
            if dim in member.sizes
        ),
        default=0,
    )
