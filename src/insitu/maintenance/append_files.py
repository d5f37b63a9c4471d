"""Append files to a saved archive along a dimension; files that it holds already are skipped."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from insitu.combining.file_ranges import FileLayout, Span
from insitu.combining.recipe import Recipe
from insitu.errors import CombineError, SelectionError, SourceError, UnsupportedError
from insitu.maintenance.carry_pinned import open_for_update
from insitu.maintenance.change_files import INDEXES
from insitu.maintenance.checking import open_saved_tree
from insitu.maintenance.conflicts import ATTEMPTS, COMBINE_ANEW, lost_race_error, read_saved_member
from insitu.maintenance.rebuild import rebuild
from insitu.model import Comparison, VirtualArray, VirtualGroup
from insitu.model.cf_attributes import PACKING, TIMES
from insitu.model.group import nest_groups
from insitu.open_options import DecodeOptions
from insitu.scanning.member import Member, Variable
from insitu.scanning.saved_members import member_from_tree, tree_from_member
from insitu.scanning.scan_member import make_loader
from insitu.scanning.stored_view import zarr_tree
from insitu.sources import open_source
from insitu.sources.threads import gather

if TYPE_CHECKING:
    from insitu.references import AppendReport

__all__ = [
    "append_member",
    "append_to_icechunk",
    "append_tree",
    "check_compatible",
    "empty_append_report",
    "known_files",
]


def append_member(
    member: Member,
    target: str,
    dim: str,
    *,
    files: Sequence[str] = (),
    relative: bool = False,
    whole_files: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> AppendReport:
    """Add what files hold to a saved archive, along a dimension.

    The result is what combining all files anew gives. Files that the archive holds already,
    unchanged, are skipped: a command that runs twice does nothing the second time.

    Parameters
    ----------
    member
        What the files hold.
    target
        The saved archive: an insitu store or an Icechunk repository.
    dim
        The dimension that grows.
    files
        The new files, as a recipe lists them; by default those that the member has chunks of.
    relative
        Whether URLs are written relative to the archive.
    whole_files
        Whether `member` has all variables of its files. If not, variables of the archive that do
        not have the dimension stay as they are.
    storage_options
        See `insitu.scan`.

    Raises
    ------
    StaleSourceError
        If a file of the archive changed since it was saved.
    CombineError
        If the archive has labels of the dimension already, or if variables do not match.
    SourceError
        If another writer is faster and there are no labels to order the steps by. Nothing changes.
    """
    from insitu import references
    from insitu.references import AppendReport

    kind = references.detect_format(target)
    if kind not in ("insitu", "icechunk"):
        raise UnsupportedError(
            "cannot append: only an insitu store or an Icechunk repository can grow",
            url=target,
            hint="Convert it first: insitu convert REFS TARGET.insitu",
        )
    if dim not in member.sizes:
        names = ", ".join(map(str, member.sizes)) or "none"
        raise CombineError(f"the files have no dimension {dim!r}", hint=f"Their dimensions are: {names}")
    load = make_loader(storage_options)
    if kind == "icechunk":
        return append_to_icechunk(member, target, dim, storage_options)
    for _ in range(ATTEMPTS):
        opened = open_for_update(target, storage_options)
        saved = read_saved_member(opened.tree, load, target)
        recipe = opened.recipe(Recipe)
        _check_growth(recipe, dim, target)
        new, skipped = _split_known_steps(member, opened.tree, dim, target, recipe, load)
        if new is None:
            return AppendReport(target, dim, 0, (), skipped)
        check_compatible(saved, new, dim, target, recipe)
        added = tuple(source for source in _used_urls(new) if source not in skipped)
        constant = {} if whole_files else _unchanging_variables(saved, new, dim)
        rest = saved.with_variables({name: each for name, each in saved.variables.items() if name not in constant})
        try:
            end = saved.sizes.get(dim, 1)
            whole = rebuild(rest, dim, [(0, end)], [(end, new)], recipe, load)
            whole = whole.with_variables(
                {**whole.variables, **constant}, whole.coords | (saved.coords & constant.keys())
            )
        except CombineError as problem:
            message = f"the new files do not match those of {target}: {problem.message}"
            raise CombineError(message, url=next(iter(added), None), hint=problem.hint or COMBINE_ANEW) from problem
        whole = _in_grid_order(whole, saved, dim, recipe)
        tree = tree_from_member(whole, opened.tree.groups)
        listed = dict.fromkeys((*recipe.files, *(files or added)))
        longer = replace(recipe, files=tuple(listed)).to_document() if recipe.files else None
        if opened.replace(tree, relative=relative, recipe=longer):
            return AppendReport(target, dim, new.sizes[dim], added, skipped)
        if saved.index(dim) is None or new.index(dim) is None:
            # Without labels the order of these steps and those of the other writer is unknown.
            raise SourceError(
                "another writer changed the archive at the same time; nothing was appended",
                url=target,
                hint="Try again",
            )
    raise lost_race_error(target)


def append_tree(
    tree: VirtualGroup,
    target: str | os.PathLike[str],
    dim: str,
    *,
    relative: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> AppendReport:
    """Append a tree of arrays to saved references along a dimension: see `append_member`."""
    from insitu.references import detect_format

    url, load = os.fspath(target), make_loader(storage_options)
    if detect_format(url) == "icechunk":
        return _append_arrays_to_icechunk(tree, url, dim, storage_options)
    member = member_from_tree(tree, DecodeOptions(), load)
    return append_member(member, url, dim, relative=relative, storage_options=storage_options)


def known_files(
    target: str, urls: Sequence[Any], dim: str, storage_options: Mapping[str, Any] | None = None
) -> tuple[list[Any], list[str]]:
    """Return the files that an archive does not hold yet, and those that it holds unchanged.

    Files that it holds need not be scanned. An Icechunk repository does not record which files it
    holds as a whole: all of them count as new, and are compared step by step when they are
    appended.

    Raises
    ------
    SelectionError
        If the archive does not have the dimension.
    StaleSourceError
        If a file of the archive changed since it was saved.
    """
    from insitu import references
    from insitu.references.chunk_places import iter_sources
    from insitu.references.plan_append import changed_source_error

    if references.detect_format(target) == "icechunk":
        _check_dim(open_saved_tree(target, True, storage_options), dim, target)
        return list(urls), []
    opened = open_for_update(target, storage_options)
    tree = opened.tree
    _check_dim(tree, dim, target)
    arrays = (array for _, array in tree.all_arrays())
    given = {str(url) for url in urls if not str(url).endswith(INDEXES)}
    named = given.intersection(source.url for source in iter_sources(arrays)) if given else set()
    # A store also lists files that were dropped, and one saved from a selection holds parts of
    # files.
    groups = [group for _, group in tree.walk()] if named and opened.recipe_document is not None else []
    known = {url: source for group in groups for url, source in FileLayout.of(group).sources.items()}
    present = [str(url) for url in urls if str(url) in known]

    def compare(url: str, stop: threading.Event) -> Comparison:
        with open_source(url, storage_options) as source:
            return known[url].compare(source.describe())

    for url, found in zip(present, gather(compare, present), strict=True):
        if found.same is False:
            raise changed_source_error(target, url, found.reason)
    return [url for url in urls if str(url) not in known], present


def empty_append_report(target: str, dim: str, skipped: Sequence[str]) -> AppendReport:
    """Return the report of an append that found nothing new."""
    from insitu.references import AppendReport

    return AppendReport(target, dim, 0, (), tuple(skipped))


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


def _check_dim(tree: VirtualGroup, dim: str, target: str) -> None:
    """Raise `SelectionError` if an archive has arrays but not this dimension."""
    dims = {name: None for _, array in tree.all_arrays() for name in array.dims}
    if dims and dim not in dims:
        raise SelectionError(f"the archive has no dimension {dim!r}", url=target, hint=f"There are: {', '.join(dims)}")


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


def append_to_icechunk(
    member: Member, target: str, dim: str, storage_options: Mapping[str, Any] | None
) -> AppendReport:
    """Append a member, of a tree with all groups below it, to an Icechunk repository."""
    from insitu.references.icechunk import open_icechunk

    known = dict(open_icechunk(target, storage_options=storage_options).walk())
    groups = {path: _encode_times(own, known[path]) if path in known else own for path, own in member.walk()}
    tree = nest_groups({path: tree_from_member(own) for path, own in groups.items()})
    return _append_arrays_to_icechunk(zarr_tree(tree, make_loader(storage_options)), target, dim, storage_options)


def _encode_times(member: Member, target: VirtualGroup) -> Member:
    """Return a member whose times are to be encoded with the units of a repository, which holds stored values."""
    variables = {}
    for name, variable in member.variables.items():
        target_array = target.arrays.get(name)
        counted = target_array is not None and "units" in target_array.attributes and variable.dtype.kind in "mMO"
        if target_array is not None and counted and not isinstance(variable.data, VirtualArray):
            times = {
                key: target_array.attributes[key] for key in ("units", "calendar") if key in target_array.attributes
            }
            variable = replace(variable, encoding={**times, "dtype": target_array.dtype})
        variables[name] = variable
    return member.with_variables(variables)


def _append_arrays_to_icechunk(
    tree: VirtualGroup, target: str, dim: str, storage_options: Mapping[str, Any] | None
) -> AppendReport:
    from insitu.references.icechunk import append_icechunk
    from insitu.references.list_objects import list_written_cells

    load = make_loader(storage_options)
    return append_icechunk(
        list_written_cells(tree, storage_options),
        target,
        dim,
        read=lambda array: load([array])[0],
        storage_options=storage_options,
    )
