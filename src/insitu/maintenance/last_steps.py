"""Keep the last steps of a saved archive along a dimension, and drop what is before them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from insitu.combining.file_ranges import FileLayout, select_range
from insitu.combining.recipe import Recipe
from insitu.errors import SelectionError, UnsupportedError
from insitu.maintenance.carry_pinned import open_for_update
from insitu.maintenance.change_files import combine_anew, drop, find_file
from insitu.maintenance.conflicts import ATTEMPTS, lost_race_error, read_saved_member
from insitu.model import VirtualArray, count_written
from insitu.scanning.forecast_axes import LEAD, MEMBER, ForecastAxes
from insitu.scanning.member import Member
from insitu.scanning.saved_members import tree_from_member
from insitu.scanning.scan_member import make_loader

__all__ = ["keep_last"]


def keep_last(
    target: str, counts: Mapping[str, int], storage_options: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """Keep the steps with the largest labels of a saved archive; return the files that it holds no more.

    Parameters
    ----------
    target
        The saved archive.
    counts
        Dimension: how many steps are kept.
    storage_options
        See `insitu.scan`.

    Raises
    ------
    SelectionError
        If the archive has no such dimension, or if nothing would be kept.
    """
    load = make_loader(storage_options)
    for _ in range(ATTEMPTS):
        opened = open_for_update(target, storage_options)
        recipe = opened.recipe(Recipe)
        if recipe.options.scan.tree and opened.tree.groups:
            raise _only_files_error("steps of a tree are dropped with their files", target)
        saved = shortened = read_saved_member(opened.tree, load, target)
        for dim, count in counts.items():
            shortened = _last_steps(shortened, dim, count, target)
        if shortened.sizes == saved.sizes:
            return ()
        if recipe.placed is not None:
            return drop(
                target, _files_before(saved, shortened, recipe, counts, target), storage_options=storage_options
            )
        axes = ForecastAxes.of(recipe.options.combine)
        if axes is not None:
            shortened = _without_empty_labels(shortened, axes)
        before, tree = FileLayout.of(opened.tree).spans, tree_from_member(shortened, opened.tree.groups)
        after = FileLayout.of(tree).spans
        gone = tuple(url for url in before if url not in after)
        fewer = None
        if recipe.files:
            unused = [*gone, *_shadowed_before(recipe, shortened, list(counts), storage_options)]
            named = {find_file(recipe.files, url) for url in unused}
            files = tuple(url for url in recipe.files if url not in named)
            shadowed = {url: about for url, about in recipe.shadowed.items() if url not in unused}
            fewer = replace(recipe, files=files, shadowed=shadowed).to_document()
        if opened.replace(tree, recipe=fewer):
            return gone
    raise lost_race_error(target)


def _files_before(
    saved: Member, shortened: Member, recipe: Recipe, dims: Collection[str], target: str
) -> tuple[str, ...]:
    """Return the files that have none of the labels that are left, where files may overlap or leave gaps.

    Raises
    ------
    UnsupportedError
        If a file has some of them: what is left would not be what files make.
    """
    assert recipe.placed is not None
    gone: dict[str, None] = {}
    for dim in dims:
        places, whole, rest = recipe.placed.places.get(dim), saved.index(dim), shortened.index(dim)
        if places is None or whole is None or rest is None:
            raise _only_files_error(f"every file has all steps of {dim!r}", target)
        for url, own in zip(recipe.files, places, strict=True):
            is_kept = np.isin(whole[own], rest)
            if is_kept.any() and not is_kept.all():
                raise _only_files_error(f"{url} has steps of {dim!r} before those that are kept, and others", target)
            if len(own) and not is_kept.any():
                gone[url] = None
    return tuple(gone)


def _only_files_error(message: str, target: str) -> UnsupportedError:
    return UnsupportedError(message, url=target, hint=f"Name the files: insitu drop {target} FILE")


def _shadowed_before(
    recipe: Recipe, member: Member, dims: Sequence[str], storage_options: Mapping[str, Any] | None
) -> list[str]:
    """Return the files of which nothing is shown, and which have none of the labels that are left: they would show
    again when files are combined anew.
    """
    found = []
    for url in recipe.shadowed:
        file = find_file(recipe.files, url)
        if file is None:
            continue
        own, _ = combine_anew([file], recipe, storage_options)
        pairs = [(own.index(dim), member.index(dim)) for dim in dims]
        if any(one is not None and rest is not None and not np.isin(one, rest).any() for one, rest in pairs):
            found.append(url)
    return found


def _last_steps(member: Member, dim: str, count: int, target: str) -> Member:
    """Return the last steps of a member; of labels that run back they are the first ones."""
    if dim not in member.sizes:
        raise SelectionError(
            f"the archive has no dimension {dim!r}", url=target, hint=f"There are: {', '.join(member.sizes)}"
        )
    if count < 1:
        raise SelectionError(f"{count} steps of {dim!r} are none", url=target, hint="Delete the archive itself")
    length, labels = member.sizes[dim], member.index(dim)
    runs_back = labels is not None and length > 1 and bool(labels[0] > labels[-1])
    span = (0, min(count, length)) if runs_back else (max(length - count, 0), length)
    return select_range(member, dim, span)


def _without_empty_labels(member: Member, axes: ForecastAxes) -> Member:
    """Return forecasts without lead times and members of which no run is left that has them."""
    from insitu.combining.align import take_steps  # imports pandas

    for dim in (axes.name(LEAD), axes.name(MEMBER)):
        if dim not in member.sizes:
            continue
        used = np.zeros(member.sizes[dim], bool)
        for name in member.data_names():
            variable = member.variables[name]
            if dim in variable.dims and isinstance(variable.data, VirtualArray):
                used |= count_written(variable.data, [variable.dims.index(dim)]) > 0
        if used.any() and not used.all():
            member = take_steps(member, dim, np.flatnonzero(used))
    return member
