"""Combination of many members into one: xarray's `combine_by_coords`, `combine_nested`.

By coordinates: files with the same variables are put in the order of their labels and joined, then
files with different variables are merged. Nested: the caller's lists give the order. Either way the
grid of files is joined one dimension after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from insitu.combining.combine_rules import CombineRules
from insitu.combining.concat import concat
from insitu.combining.file_order import check_grid, is_monotonic, order_by_labels
from insitu.combining.merge import merge
from insitu.errors import CombineError
from insitu.scanning.member import ConcatDim, GridPosition, Member

__all__ = ["combine_by_coords", "combine_nested"]


def combine_by_coords(members: Sequence[Member], rules: CombineRules) -> Member:
    """Combine by the labels of the dimensions."""
    groups: dict[tuple[str, ...], list[Member]] = {}
    for member in members:
        groups.setdefault(tuple(sorted(member.data_names())), []).append(member)
    joined = [_combine_hypercube(group, rules) for group in groups.values()]
    return merge(joined, rules)


def _combine_hypercube(members: Sequence[Member], rules: CombineRules) -> Member:
    places, dims = order_by_labels(members)
    grid = dict(zip(places, members, strict=True))
    combined = _combine_all_levels(grid, list(dims), rules)
    for dim in dims:
        labels = combined.index(dim)
        if labels is None or not (is_monotonic(labels, 1) or is_monotonic(labels, -1)):
            raise CombineError(f"Resulting object does not have monotonic global indexes along dimension {dim}")
    return combined


def combine_nested(grid: Mapping[GridPosition, Member], dims: Sequence[ConcatDim], rules: CombineRules) -> Member:
    """Combine a grid of members along one dimension for each level of nesting."""
    check_grid(list(grid))
    depth = len(next(iter(grid)))
    if len(dims) != depth:
        raise CombineError(
            f"concat_dims has length {len(dims)} but the datasets passed are nested in a {depth}-dimensional structure"
        )
    return _combine_all_levels(grid, dims, rules)


def _combine_all_levels(grid: Mapping[GridPosition, Member], dims: Sequence[ConcatDim], rules: CombineRules) -> Member:
    """Combine along one dimension after another, beginning with the first."""
    for dim in dims:
        lines: dict[GridPosition, list[tuple[GridPosition, Member]]] = {}
        for place, member in grid.items():
            lines.setdefault(place[1:], []).append((place, member))
        grid = {
            rest: _combine_along([m for _, m in sorted(line, key=_position_of)], dim, rules)
            for rest, line in lines.items()
        }
    (combined,) = grid.values()
    return combined


def _position_of(item: tuple[GridPosition, Member]) -> GridPosition:
    return item[0]


def _combine_along(members: Sequence[Member], dim: ConcatDim, rules: CombineRules) -> Member:
    if dim is None:
        return merge(members, rules)
    if isinstance(dim, tuple):
        return concat(members, dim[0], rules, np.asarray(dim[1]))
    return concat(members, dim, rules)
