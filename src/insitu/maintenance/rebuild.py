"""A combined archive made of parts of what is saved and of other files: append, drop and refresh."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from insitu.combining.failures import drop_failures
from insitu.combining.file_ranges import FileLayout, Span, select_range
from insitu.combining.recipe import Recipe
from insitu.combining.scan_many import scan_many
from insitu.errors import CombineError
from insitu.open_options import RunOptions
from insitu.scanning.file_labels import label_rules
from insitu.scanning.forecast_axes import ForecastAxes
from insitu.scanning.member import Load, Member, Variable
from insitu.scanning.saved_members import tree_from_member
from insitu.scanning.scan_member import Job

if TYPE_CHECKING:
    from insitu.combining.combine_rules import CombineRules

__all__ = ["combine_again", "is_representative", "join_in_order", "rebuild", "with_same_dims"]


def combine_again(urls: Sequence[str], recipe: Recipe, job: Job) -> tuple[Member, Recipe]:
    """Return what files make together by the recipe, all of them scanned again, and the recipe of that."""
    from insitu.combining.combine import combine  # imports xarray and pandas

    rules, recipe = recipe.options.combine, replace(recipe, shadowed={}, groups={})
    job = replace(job, labels=label_rules(rules), forecasts=ForecastAxes.of(rules))
    if len(urls) == 1 and not (recipe.new_dims() or job.forecasts or job.scan.tree):
        return drop_failures(scan_many(urls, job), job.scan.errors)[0], recipe
    combined = combine(urls, [(number,) for number in range(len(urls))], job, recipe, RunOptions())
    return combined.member, recipe if combined.placed is None else combined.placed


def is_representative(saved: Member, first: Member, dims: Collection[str], rules: CombineRules) -> bool:
    """Return whether all that an archive has of other files is what it would have if it were made of any part of
    them and this one: no variable, type or length, and no dimension of a variable, follows from a single one.

    Parameters
    ----------
    saved
        The archive.
    first
        One of its files, as it is.
    dims
        The dimensions that files are joined along.
    rules
        How they are joined.
    """
    if saved.variables.keys() - set(dims) != first.variables.keys() - set(dims) or saved.coords != first.coords | (
        saved.coords & set(dims)
    ):
        return False
    for name, variable in saved.variables.items():
        own = first.variables.get(name)
        if name in dims:
            if own is not None and own.dtype.kind != variable.dtype.kind:
                return False
            continue
        assert own is not None
        lacking = [dim for dim in variable.dims if dim in dims and dim not in own.dims]
        how = rules.coords if name in saved.coords else rules.data_vars
        if lacking and how != "all" and not (isinstance(how, (list, tuple)) and name in how):
            return False
        if own.dtype != variable.dtype or set(own.dims) != set(variable.dims) - set(lacking):
            return False
        if any(own.sizes[dim] != length for dim, length in variable.sizes.items() if dim not in dims):
            return False
    return True


def rebuild(
    saved: Member,
    dim: str,
    remaining: Sequence[Span],
    added: Sequence[tuple[int, Member]],
    recipe: Recipe,
    load: Load,
) -> Member:
    """Return an archive without some of its parts, and with others.

    What is saved is cut, not scanned again: a joined table gives its parts for nothing.

    Parameters
    ----------
    saved
        The archive.
    dim
        The dimension along which parts are taken away and added.
    remaining
        The ranges along it that stay.
    added
        What other files hold, and at which step of the saved archive.
    recipe, load
        How parts are joined; reads values where they must be compared.

    Raises
    ------
    CombineError
        If parts share a label, or do not match.
    """
    whole = (0, saved.sizes.get(dim, 1))
    pieces = [(span[0], saved if span == whole else select_range(saved, dim, span)) for span in remaining]
    pieces = sorted([*added, *pieces], key=lambda piece: piece[0])
    members = [member for _, member in pieces]
    if added:  # an archive that has a label twice from the beginning may still lose files
        _check_disjoint(members, dim)
        if recipe.sorts_by_labels(dim):
            members = _interleave(members, dim)
    return join_in_order(members, dim, recipe, load)


def _interleave(members: Sequence[Member], dim: str) -> list[Member]:
    """Return members cut where labels of others lie between theirs.

    Raises
    ------
    CombineError
        If they lie between labels of one file: files that are opened anew would not be cut.
    """
    indexes = [member.index(dim) for member in members]
    labels = [index for index in indexes if index is not None and len(index)]
    if len(labels) < len(members) or len({index.dtype.kind for index in labels}) > 1:
        return list(members)
    rising = all(bool((index[1:] >= index[:-1]).all()) for index in labels)
    if not rising and not all(bool((index[1:] <= index[:-1]).all()) for index in labels):
        return list(members)
    order = np.argsort(np.concatenate(labels), kind="stable")
    order = order if rising else order[::-1]
    ends = np.cumsum([len(index) for index in labels])
    holder = np.searchsorted(ends, order, side="right")
    if (np.diff(holder) != 0).sum() < len(members):
        return list(members)
    begins = np.concatenate([[0], ends[:-1]])
    starts = np.flatnonzero(np.diff(holder, prepend=-1))
    parts = []
    layouts: dict[int, FileLayout] = {}
    for start, stop in pairwise([*starts.tolist(), len(order)]):
        number = int(holder[start])
        first = int(order[start] - begins[number])
        span = (first, first + stop - start)
        if span != (0, len(labels[number])) and number not in layouts:
            layouts[number] = FileLayout.of(tree_from_member(members[number]))
        for url, spans in layouts[number].spans.items() if number in layouts else ():
            low, high = spans.get(dim, span)
            if any(low < at < high for at in span):
                raise CombineError(
                    f"labels of {dim!r} lie between those of {url}",
                    hint='Files may interleave where a rule says which one counts: append them with overlap="last", or '
                    '"first", "newest"',
                )
        parts.append(members[number] if span == (0, len(labels[number])) else select_range(members[number], dim, span))
    return parts


def join_in_order(members: Sequence[Member], dim: str, recipe: Recipe, load: Load) -> Member:
    """Return members joined along a dimension, ordered by their labels if the recipe says so."""
    if len(members) == 1:
        return members[0]
    from insitu.combining.combine import combine_by_coords, combine_nested  # imports xarray and pandas

    rules = recipe.rules(load)
    members = with_same_dims(members, dim)
    if recipe.sorts_by_labels(dim) and all(member.index(dim) is not None for member in members):
        return combine_by_coords(members, rules)
    return combine_nested({(number,): member for number, member in enumerate(members)}, [dim], rules)


def with_same_dims(members: Sequence[Member], dim: str) -> list[Member]:
    """Return members whose variables have the dimension in all of them or in none.

    What does not vary along it gets it when files are combined (bounds of latitudes, say); in a
    single file it has it not yet. A file that has the dimension not at all is one step of it.
    """
    from insitu.combining.concat import with_dims  # imports xarray and pandas

    joined = {
        name: variable.dims
        for member in reversed(members)
        for name, variable in member.variables.items()
        if dim in variable.dims
    }

    def widen(name: str, variable: Variable, length: int) -> Variable:
        order = joined.get(name, ())
        lacks = dim not in variable.dims and tuple(own for own in order if own != dim) == variable.dims
        return with_dims(variable, order, {dim: length}) if order and lacks else variable

    return [
        member.with_variables(
            {name: widen(name, each, member.sizes.get(dim, 1)) for name, each in member.variables.items()}
        )
        for member in members
    ]


def _check_disjoint(members: Sequence[Member], dim: str) -> None:
    """Raise `CombineError` if two members share a label along a dimension."""
    seen: set[Any] = set()
    for member in members:
        index = member.index(dim)
        labels = set() if index is None else set(index.tolist())
        if labels & seen:
            raise CombineError(f"two files have the label {min(labels & seen, key=str)} along {dim!r}")
        seen |= labels
