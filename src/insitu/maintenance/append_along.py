"""Add files to a saved archive whose files follow each other along a dimension: in front, behind or in between.

What is saved is taken as it is: a joined table gives its parts for nothing, so that an append takes as
long as scanning the new files. Where names or attributes of files say where they go, and that is
between others, all files are scanned and combined anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from insitu.combining.file_ranges import FileLayout, Span
from insitu.combining.recipe import Recipe
from insitu.errors import CombineError, ModelError
from insitu.maintenance.append_to_saved import Added
from insitu.maintenance.change_files import change_files, files_of
from insitu.maintenance.conflicts import COMBINE_ANEW, read_saved_member
from insitu.maintenance.rebuild import rebuild
from insitu.model import VirtualGroup
from insitu.model.cf_attributes import PACKING, TIMES
from insitu.scanning.member import Member, Variable
from insitu.scanning.saved_members import tree_from_member
from insitu.scanning.scan_member import make_loader

if TYPE_CHECKING:
    from insitu.references.update_references import ReferencesUpdate

__all__ = ["add_along", "check_compatible", "check_dimension"]


def add_along(
    member: Member,
    opened: ReferencesUpdate,
    recipe: Recipe,
    dim: str,
    files: Sequence[str] = (),
    *,
    whole_files: bool = False,
) -> Added:
    """Return an archive with what further files hold along a dimension.

    Parameters
    ----------
    member
        What the files hold, combined.
    opened, recipe
        The archive.
    dim
        The dimension that grows.
    files
        The new files, as a recipe lists them; by default those that the member has chunks of.
    whole_files
        Whether `member` has all that its files have.
    """
    combine = recipe.options.combine
    if not whole_files:
        return _join(member, opened, recipe, dim, files, whole_files)
    if combine.drops_conflicts and not combine.is_grid:
        return _combine_longer_list(opened, recipe, dim, files or _used_urls(member))
    if recipe.files and recipe.needs_order:
        if list(combine.concat_dim) == [dim] and not combine.places_labels:
            with suppress(CombineError, ModelError):
                return _join(member, opened, recipe, dim, files, whole_files)
        return _combine_longer_list(opened, recipe, dim, files)
    return _join(member, opened, recipe, dim, files, whole_files)


def _join(
    member: Member, opened: ReferencesUpdate, recipe: Recipe, dim: str, files: Sequence[str], whole_files: bool
) -> Added:
    """Return what is saved, and the new files joined to it."""
    target, load = opened.url, make_loader(opened.storage_options)
    check_dimension(member, dim)
    _check_growth(recipe, dim, target)
    saved = read_saved_member(opened.tree, load, target)
    new, skipped = _split_known_steps(member, opened.tree, dim, target, recipe, load)
    if new is None:
        return Added(None, skipped=skipped)
    check_compatible(saved, new, dim, target, recipe)
    added = tuple(source for source in _used_urls(new) if source not in skipped)
    constant = {} if whole_files else _unchanging_variables(saved, new, dim)
    rest = saved.with_variables({name: each for name, each in saved.variables.items() if name not in constant})
    try:
        end = saved.sizes.get(dim, 1)
        whole = rebuild(rest, dim, [(0, end)], [(end, new)], recipe, load)
        whole = whole.with_variables({**whole.variables, **constant}, whole.coords | (saved.coords & constant.keys()))
    except CombineError as problem:
        raise _mismatch_error(problem, target, added) from problem
    longer = replace(recipe, files=tuple(dict.fromkeys((*recipe.files, *(files or added))))) if recipe.files else None
    # Without labels the order of these steps and those of another writer is unknown.
    has_order = saved.index(dim) is not None and new.index(dim) is not None
    whole = _in_grid_order(whole, saved, dim, recipe)
    return Added(whole, longer, new.sizes[dim], added, skipped, has_order=has_order)


def _combine_longer_list(opened: ReferencesUpdate, recipe: Recipe, dim: str, files: Sequence[str]) -> Added:
    """Return an archive with files at the end of its list. Where they go, or which attributes are left, is said by all
    files together: all are combined anew.
    """
    known = files_of(opened.tree, recipe)
    new = tuple(url for url in dict.fromkeys(files) if url not in known)
    skipped = tuple(url for url in dict.fromkeys(files) if url in known)
    if not new:
        return Added(None, skipped=skipped)
    saved = read_saved_member(opened.tree, make_loader(opened.storage_options), opened.url)
    try:
        every = [*known, *new]
        whole, changed = change_files(saved, recipe, every, (), opened.storage_options, opened.url)
    except CombineError as problem:
        raise _mismatch_error(problem, opened.url, new) from problem
    return Added(whole, changed, max(whole.sizes.get(dim, 0) - saved.sizes.get(dim, 0), 0), new, skipped)


def _mismatch_error(problem: CombineError, target: str, files: Sequence[str]) -> CombineError:
    message = f"the new files do not match those of {target}: {problem.message}"
    return CombineError(message, url=problem.url or next(iter(files), None), hint=problem.hint or COMBINE_ANEW)


def check_dimension(member: Member, dim: str) -> None:
    """Raise if new files do not have the dimension that grows."""
    if dim not in member.sizes:
        names = ", ".join(map(str, member.sizes)) or "none"
        raise CombineError(f"the files have no dimension {dim!r}", hint=f"Their dimensions are: {names}")


def _unchanging_variables(saved: Member, new: Member, dim: str) -> dict[str, Variable]:
    """Return the variables, without index labels, that lack the dimension and that `new` does not
    have.
    """
    return {
        name: variable
        for name, variable in saved.variables.items()
        if dim not in variable.dims and name not in new.variables and variable.dims != (name,)
    }


def _split_known_steps(
    member: Member, tree: VirtualGroup, dim: str, target: str, recipe: Recipe, load: Any
) -> tuple[Member | None, tuple[str, ...]]:
    """Return the part of a member that a tree does not hold (None: no such part), and the skipped
    files.

    Chunks are compared, not names: an archive may hold only the first half of a file.
    """
    from insitu.references.plan_append import find_held_steps

    new = tree_from_member(member)
    known = {name: array for name, array in tree.arrays.items() if dim in array.dims}
    added = {name: array for name, array in new.arrays.items() if dim in array.dims}
    existing, missing = find_held_steps(known, added, dim, member.sizes[dim], target)
    if not existing.any():
        return member, ()
    if (existing & missing).any():
        raise CombineError(
            f"step {int(np.argmax(existing & missing))} of {dim!r} comes from several files, "
            f"and {target} holds only some of them",
            hint=COMBINE_ANEW,
        )
    rest = None if existing.all() else rebuild(member, dim, _true_ranges(~existing), (), recipe, load)
    still_used = () if rest is None else _used_urls(rest)
    return rest, tuple(url for url in _used_urls(member) if url not in still_used)


def _check_growth(recipe: Recipe, dim: str, target: str) -> None:
    """Raise if the files of an archive were joined by lists, but not along the dimension."""
    dims = recipe.grid_dims()
    if dims and dim not in dims:
        raise CombineError(
            f"{target} cannot grow along {dim!r}: its files were joined by combine='nested' along "
            f"{' × '.join(map(str, dims))}",
            hint=COMBINE_ANEW,
        )


def check_compatible(saved: Member, new: Member, dim: str, target: str, recipe: Recipe) -> None:
    """Raise if labels repeat, if dimensions differ, or if stored values are packed differently.

    Then the archive would not be what opening all its files by its recipe gives.
    """
    from insitu.references.plan_append import check_new_labels

    every = saved.sizes if recipe.files and recipe.needs_order else ()  # else all files are combined anew
    for across in dict.fromkeys((*recipe.new_dims(), *every)):
        if across != dim and not _has_same_labels(saved, new, across):
            raise CombineError(
                f"the labels of {across!r} in the new files are not those of {target}",
                url=next(iter(_used_urls(new)), None),
                hint=f"Add files that have all of {across!r}, or combine the archive anew",
            )
    old, fresh = saved.index(dim), new.index(dim)
    if old is not None and fresh is not None and len(old) and len(fresh):
        if (old.dtype.kind in "biuf") != (fresh.dtype.kind in "biuf"):
            raise CombineError(
                f"the labels of {dim!r} are {old.dtype} in {target} and {fresh.dtype} in the new files",
                url=next(iter(_used_urls(new)), None),
                hint="Open the new files with the options that the archive was opened with",
            )
        if {old.dtype.kind, fresh.dtype.kind} == {"M", "O"}:
            from insitu.combining.arrange import mixed_dates_error  # imports pandas

            kinds = {type(old[0]), type(fresh[0])}
            raise mixed_dates_error(dim, kinds).with_context(url=next(iter(_used_urls(new)), None))
        with suppress(TypeError):  # dates of different calendars do not compare: combining raises that
            check_new_labels(
                np.asarray(old),
                np.asarray(fresh),
                tree_from_member(new).arrays,
                dim,
                target,
                in_any_order=True,  # of labels, or behind the others as in a longer list
            )
    for name, variable in new.variables.items():
        old_variable = saved.variables.get(name)
        if old_variable is None:
            continue
        if {*old_variable.dims} - {dim} != {*variable.dims} - {dim}:
            raise CombineError(
                f"{name!r} has the dimensions {_format_dims(old_variable)} in {target} and {_format_dims(variable)} "
                "in the new files",
                url=next(iter(_used_urls(new)), None),
                hint=COMBINE_ANEW,
            )
        if dim not in variable.dims:
            continue
        for key in (*PACKING, *TIMES):  # a decoded variable keeps only units of measurement
            one, other = old_variable.attributes.get(key), variable.attributes.get(key)
            counts = key != "units" or " since " in f"{one} {other}"
            if counts and repr(one) != repr(other):
                raise CombineError(
                    f"{key} of {name!r} is {one} in {target} and {other} in the new files: "
                    "one variable of stored values has one",
                    hint="Save the archive from decoded files, as insitu.open_dataset opens them",
                )


def _in_grid_order(whole: Member, saved: Member, dim: str, recipe: Recipe) -> Member:
    """Return the member, with variables that got the dimension just now as a grid of files has them.

    Lists are joined from the outermost dimension on, and each dimension that a variable gets becomes
    its first: an inner one comes before an outer one. Variables that had both dimensions before show
    that order.
    """
    others = [name for name in recipe.new_dims() if name != dim]
    model = max((each.dims for each in saved.variables.values() if dim in each.dims), key=len, default=(dim,))
    inner = [name for name in model[: model.index(dim)] if name in others]
    variables = dict(whole.variables)
    for name, variable in whole.variables.items():
        before = saved.variables.get(name)
        if before is None or dim in before.dims or variable.dims[:1] != (dim,):
            continue
        rest = variable.dims[1:]
        at = next((number for number, other in enumerate(rest) if other not in inner), len(rest))
        dims = (*rest[:at], dim, *rest[at:])
        order = tuple(variable.dims.index(own) for own in dims)
        variables[name] = variable.with_data(variable.data.transpose(*order), dims)
    return whole.with_variables(variables)


def _has_same_labels(saved: Member, new: Member, dim: str) -> bool:
    """Return whether two members have the same labels, or the same length, along a dimension."""
    one, other = saved.index(dim), new.index(dim)
    if one is None or other is None:
        return one is other and saved.sizes.get(dim) == new.sizes.get(dim)
    return bool(np.array_equal(one, other))


def _format_dims(variable: Variable) -> str:
    return f"({', '.join(variable.dims)})"


def _used_urls(member: Member) -> list[str]:
    """Return the files that a member has chunks of. Its tables may list more: they share sources."""
    return list(FileLayout.of(tree_from_member(member)).spans)


def _true_ranges(chosen: npt.NDArray[np.bool_]) -> list[Span]:
    """Return the ranges in which a mask is true.

    Examples
    --------
    >>> _true_ranges(np.array([True, False, True, True]))
    [(0, 1), (2, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype("i1")))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
