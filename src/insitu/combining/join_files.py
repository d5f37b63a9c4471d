"""Joins files by their arrangement: xarray's `combine_by_coords` and `combine_nested`.

A grid of files is joined one dimension after another; grids of files with different variables are
merged. What was joined before, on the workers that scanned it, counts as one file at the place of
its first. A file of a grid that could not be opened is absent: the other files of its row and
column determine how large it is and what its labels are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.align import pandas_index, reindex_member, take_steps
from insitu.combining.arrange import Arrangement, Grid, Merged, is_ordered
from insitu.combining.arrange_boxes import CHOOSE_OVERLAP
from insitu.combining.combine_rules import CombineRules
from insitu.combining.concat import concat
from insitu.combining.equality import is_same_in_all
from insitu.combining.expected_labels import expected_labels
from insitu.combining.label_boxes import Cut, LabelBoxes, Row, ordered_labels, plan_join
from insitu.combining.merge import merge
from insitu.combining.pad import pad_member
from insitu.errors import CombineError
from insitu.model import VirtualArray
from insitu.model.gaps import with_dtype
from insitu.scanning.member import ConcatDim, GridPosition, Member, Variable
from insitu.scanning.promotion import type_with_missing

__all__ = ["join_files"]


def join_files(arrangement: Arrangement, members: Mapping[int, Member], rules: CombineRules) -> Member:
    """Return what files make together.

    Parameters
    ----------
    arrangement
        Where each file goes.
    members
        Files by their numbers; several that were joined before, by the number of the first.
    rules
        How.
    """
    if rules.pad:
        members = {number: pad_member(member, rules.padding) for number, member in members.items()}
    return _join_files(arrangement, members, rules)


def _join_files(arrangement: Arrangement, members: Mapping[int, Member], rules: CombineRules) -> Member:
    if isinstance(arrangement, Merged):
        return merge([_join_files(grid, members, rules) for grid in arrangement.grids], rules)
    if isinstance(arrangement, LabelBoxes):
        if arrangement.names is not None:
            members = {number: _with_data(members[number], arrangement.names) for number in arrangement.numbers}
        return _join_row(plan_join(arrangement), members, rules, is_alone=arrangement.is_alone)
    grid: dict[GridPosition, Member] = {}
    for place, numbers in arrangement.files.items():
        if place in arrangement.within:
            grid[place] = _join_files(arrangement.within[place], members, rules)
        elif numbers[0] in members:
            grid[place] = members[numbers[0]]
    placeholders = {place: _placeholder_member(place, grid, arrangement.dims, rules) for place in arrangement.missing}
    combined = _join_all_levels({**grid, **placeholders}, arrangement.dims, rules)
    if arrangement.by_labels:
        _check_order(combined, arrangement)
    new = {dim[0] for dim in arrangement.dims if isinstance(dim, tuple)}
    for name, spacing in arrangement.spacings.items():
        combined = _with_expected(combined, name, spacing, is_new=name in new)
    return combined


def _join_row(row: Row, members: Mapping[int, Member], rules: CombineRules, *, is_alone: bool = False) -> Member:
    """Return files, or rows of them, one behind the other, and of that the elements that count.

    A file that is alone stays as it is, but for labels that it lacks.
    """
    parts = [
        _join_row(part, members, rules, is_alone=is_alone)
        if isinstance(part, Row)
        else _cut(members[part.number], part)
        for part in row.parts
        if isinstance(part, Row) or part.number in members
    ]
    joined = parts[0] if is_alone and row.dim in parts[0].sizes else concat(parts, row.dim, rules)
    if row.order is None and joined.index(row.dim) is not None:
        return joined
    return _with_labels(joined, row.dim, row.labels, row.order)


def _with_labels(joined: Member, dim: str, labels: npt.NDArray[Any], order: npt.NDArray[np.int64] | None) -> Member:
    """Return these elements of a dimension, -1 for none, with labels; order None: all, as they are."""
    known = joined.variables.get(dim)
    if known is not None and known.dims == (dim,) and known.dtype.kind == labels.dtype.kind:
        labels = labels.astype(known.dtype, copy=False)
    label = Variable((dim,), labels) if known is None else known.with_data(labels, (dim,))
    if order is not None:
        joined = reindex_member(joined, dim, order)
    return joined.with_variables({**joined.variables, dim: label}, joined.coords | {dim})


def _with_expected(whole: Member, dim: str, spacing: Any, *, is_new: bool) -> Member:
    """Return what files make, with all labels from the first to the last; those of names in order."""
    index = whole.index(dim)
    if index is None:
        raise CombineError(f"expect= names {dim!r}, along which the files together have no labels")
    is_falling = not is_new and len(index) > 1 and bool(index[-1] < index[0])
    labels = expected_labels(ordered_labels([index], descending=is_falling), spacing, dim)
    order = pandas_index(index, dim).get_indexer(pandas_index(labels, dim))
    return _with_labels(whole, dim, labels, np.asarray(order, np.int64))


def _with_data(member: Member, names: Collection[str]) -> Member:
    """Return the member with only these of its data variables."""
    chosen = {name: each for name, each in member.variables.items() if name in member.coords or name in names}
    return member.with_variables(chosen)


def _cut(member: Member, cut: Cut) -> Member:
    """Return the part of a file that a row takes."""
    for dim, steps in cut.steps.items():
        member = take_steps(member, dim, steps)
    return member


def _check_order(combined: Member, grid: Grid) -> None:
    for dim in grid.dims:
        labels = combined.index(str(dim))
        if labels is None or not is_ordered(labels):
            raise CombineError(
                f"Resulting object does not have monotonic global indexes along dimension {dim}", hint=CHOOSE_OVERLAP
            )


def _join_all_levels(grid: Mapping[GridPosition, Member], dims: Sequence[ConcatDim], rules: CombineRules) -> Member:
    """Join along one dimension after another, beginning with the first."""
    for dim in dims:
        lines: dict[GridPosition, list[tuple[GridPosition, Member]]] = {}
        for place, member in grid.items():
            lines.setdefault(place[1:], []).append((place, member))
        grid = {
            rest: _join_line([member for _, member in sorted(line, key=_position_of)], dim, rules)
            for rest, line in lines.items()
        }
    (combined,) = grid.values()
    return combined


def _position_of(item: tuple[GridPosition, Member]) -> GridPosition:
    return item[0]


def _join_line(members: Sequence[Member], dim: ConcatDim, rules: CombineRules) -> Member:
    if dim is None:
        return merge(members, rules)
    if isinstance(dim, tuple):
        return concat(members, dim[0], rules, np.asarray(dim[1]))
    return concat(members, dim, rules)


def _placeholder_member(
    place: GridPosition, grid: Mapping[GridPosition, Member], dims: Sequence[ConcatDim], rules: CombineRules
) -> Member:
    """Return a placeholder for a missing file of a grid.

    It has the labels and sizes of its neighbours, and absent values.
    """
    along: dict[str, Member] = {}
    for axis, dim in enumerate(dims):
        name = dim[0] if isinstance(dim, tuple) else dim
        if name is None:
            raise CombineError(
                f"the file at position {place} of the grid could not be opened, and its variables are unknown",
                hint="Leave this row of files out: where files are merged (concat_dim=None), a missing one "
                "has no substitute",
            )
        neighbour = next((member for other, member in grid.items() if other[axis] == place[axis]), None)
        if neighbour is None:
            raise CombineError(
                f"no file at position {place[axis]} along dimension {name!r} could be opened",
                hint="Leave this position out of the lists of files",
            )
        along[name] = neighbour
    members = list(grid.values())
    template = members[0]
    variables: dict[str, Variable] = {}
    for name, variable in template.variables.items():
        present = [dim for dim in variable.dims if dim in along]
        lacking = [dim for dim in along if dim not in present]
        if name in along:
            variables[name] = along[name].variables[name]
        elif len(present) > 1 or any(_is_spread_along(name, dim, members, rules) for dim in lacking):
            sizes = {dim: along[dim].sizes[dim] for dim in present}
            shape = tuple(sizes.get(dim, length) for dim, length in zip(variable.dims, variable.shape, strict=True))
            variables[name] = variable.with_data(_absent_array(variable, shape))
        else:
            variables[name] = along[present[0]].variables[name] if present else variable
    return Member(variables, template.coords, template.attributes, {}, None, template.unindexed)


def _is_spread_along(name: str, dim: str, members: Sequence[Member], rules: CombineRules) -> bool:
    """Return whether a variable without a dimension gets it when files are joined along it.

    Then each file has a value of its own.
    """
    first = members[0]
    if name in rules.padding.varying:
        return True
    if first.index(name) is not None:
        return False
    option = rules.coords if name in first.coords else rules.data_vars
    if option is None:
        option = "minimal" if dim in first.sizes else "all"
    if option == "different":
        variables = [member.variables[name] for member in members if name in member.variables]
        return not is_same_in_all(variables, rules.compat, rules.load)
    return option == "all" if isinstance(option, str) else name in option


def _absent_array(variable: Variable, shape: tuple[int, ...]) -> VirtualArray:
    """Return an array that no file covers."""
    dtype = type_with_missing(variable.dtype)
    none = np.zeros((0, len(shape)), np.int64)
    return with_dtype(VirtualArray(shape, dtype, variable.dims, (), none), dtype)
