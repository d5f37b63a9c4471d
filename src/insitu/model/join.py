"""Concatenates and stacks virtual arrays without reading anything.

Tiles that meet along the joined dimension and are cut alike along all others fuse into one: their
cells are appended, their pools renumbered, all in one pass over the parts. Tiles that are cut
differently across the join stay side by side. So ten thousand files with partial last chunks and a
packing of their own each are one tile.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError
from insitu.model.array import VirtualArray, shared_dtype
from insitu.model.axis import Axis
from insitu.model.chunks import COLUMN_NAMES, INLINE, ChunkTable, Columns
from insitu.model.derived_tables import InterleavedSources, JoinedTable
from insitu.model.packing import Packings
from insitu.model.tile import Tile

__all__ = ["concatenate", "fuse", "merge_pools", "stack"]

T = TypeVar("T", bound=Hashable)


def concatenate(arrays: Sequence[VirtualArray], dimension: int | str = 0) -> VirtualArray:
    """Concatenate arrays along a dimension. Reads nothing.

    Names and attributes are the first array's; what to do with differing ones is decided in
    `combining`.
    """
    if not arrays:
        raise ModelError("there is nothing to concatenate: the list of arrays is empty")
    first = arrays[0]
    if isinstance(dimension, str):
        if dimension not in first.dims:
            raise ModelError(f"no dimension {dimension!r} among {first.dims}")
        dimension = first.dims.index(dimension)
    other = _drop_item(first.shape, dimension)
    for number, array in enumerate(arrays):
        if array.ndim != first.ndim or _drop_item(array.shape, dimension) != other:
            raise ModelError(
                f"array {number} of shape {array.shape} does not continue one of {first.shape} along "
                f"dimension {dimension}"
            )
    lengths = [array.shape[dimension] for array in arrays]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tiles = [tile for array in arrays for tile in array.tiles]
    origins = np.concatenate([array.origins for array in arrays])
    origins[:, dimension] += np.repeat(starts[:-1], [len(array.tiles) for array in arrays])
    tiles, origins = fuse_neighbours(tiles, origins, dimension)
    dtypes = dict.fromkeys(array.dtype for array in arrays)
    fills = [array.fill_value for array in arrays if array.fill_value is not None]
    return replace(
        first,
        shape=(*first.shape[:dimension], int(starts[-1]), *first.shape[dimension + 1 :]),
        dtype=first.dtype if len(dtypes) == 1 else shared_dtype([*dtypes]),
        tiles=tuple(tiles),
        origins=origins,
        fill_value=fills[0] if fills else None,
    )


def stack(arrays: Sequence[VirtualArray], name: str, dimension: int = 0) -> VirtualArray:
    """Stack arrays along a new dimension. Reads nothing."""
    return concatenate([array.expand_dims(dimension, name) for array in arrays], dimension)


def fuse_neighbours(
    tiles: Sequence[Tile], origins: npt.NDArray[np.int64], dimension: int
) -> tuple[list[Tile], npt.NDArray[np.int64]]:
    """Fuse tiles that are neighbours along a dimension and cut alike across it.

    Return tiles and origins.
    """
    if len(tiles) <= 1:
        return list(tiles), origins
    lengths = np.array([tile.shape[dimension] for tile in tiles], np.int64)
    across = np.delete(origins, dimension, axis=1)
    # Sorted by the position across the join first, so that candidates for fusing are neighbours.
    order = np.lexsort((origins[:, dimension], *across.T[::-1])) if across.shape[1] else np.argsort(origins[:, 0])
    # A file without steps would lie between its neighbours and keep them from fusing. If all are empty one stays,
    # for its type and encoding.
    order = order[lengths[order] > 0] if (lengths > 0).any() else order[:1]
    groups: list[list[int]] = []
    for i in order:
        if groups:
            last = groups[-1][-1]
            if (
                origins[last, dimension] + lengths[last] == origins[i, dimension]
                and (across[last] == across[i]).all()
                and _can_fuse(tiles[last], tiles[i], dimension)
            ):
                groups[-1].append(i)
                continue
        groups.append([i])
    return [fuse([tiles[i] for i in group], dimension) for group in groups], origins[[group[0] for group in groups]]


def _can_fuse(one: Tile, other: Tile, dimension: int) -> bool:
    """Return whether two tiles are cut alike along all axes but the joined one."""
    if one.layout != other.layout or len(one.axes) != len(other.axes):
        return False
    joined = one.dimensions[dimension]
    if (one.axes[joined].length and other.axes[joined].length) and _has_stored_axis(
        one.axes[joined]
    ) != _has_stored_axis(other.axes[joined]):
        return False
    return all(a.has_same_cuts(b) for i, (a, b) in enumerate(zip(one.axes, other.axes, strict=True)) if i != joined)


def _has_stored_axis(axis: Axis) -> bool:
    """Return whether the chunks have this axis; within a tile either all chunks have it or none."""
    return bool(axis.show(np.zeros(1, np.int64)).stored[0])


def fuse(tiles: Sequence[Tile], dimension: int) -> Tile:
    """Return one tile for tiles that are cut alike across the join."""
    first = tiles[0]
    if len(tiles) == 1:
        return first
    number = first.dimensions[dimension]
    axis = Axis.join([tile.axes[number] for tile in tiles])
    encodings, encoding_maps = merge_pools([tile.encodings for tile in tiles])
    packings, packing_maps = Packings.pool([tile.packings for tile in tiles])
    tables = [tile.chunks for tile in tiles]
    pools = [table.sources for table in tables]
    listed = [pool for pool in pools if isinstance(pool, tuple)]
    columns = [table for table in tables if isinstance(table, Columns)]
    # Tables of a store, which load their rows when these are needed, are put side by side: to append to them as
    # columns would load all.
    if len(listed) == len(columns) == len(tables):
        sources, source_maps = merge_pools(listed)
        chunks: ChunkTable = _append_tables(columns, number, sources, source_maps, encoding_maps, packing_maps)
    else:
        starts = np.concatenate([[0], np.cumsum([table.shape[number] for table in tables])]).astype(np.int64)
        joined, maps = merge_pools(listed) if len(listed) == len(pools) else (InterleavedSources(pools), None)
        chunks = JoinedTable(
            tuple(tables), number, starts, joined, maps if maps is None else tuple(maps),
            tuple(encoding_maps), tuple(packing_maps),
        )  # fmt: skip
    axes = (*first.axes[:number], axis, *first.axes[number + 1 :])
    return Tile(axes, encodings, chunks, packings, first.layout)


Maps = list[npt.NDArray[np.int64]]


def merge_pools(pools: Sequence[tuple[T, ...]]) -> tuple[tuple[T, ...], Maps]:
    """Return one pool for all, and for each pool the new positions of its items."""
    numbers: dict[T, int] = {}
    maps: Maps = []
    for i, pool in enumerate(pools):
        if i and pool is pools[i - 1]:  # shared: 166,440 sources of forecasts are not hashed again for each table
            maps.append(maps[-1])
        else:
            maps.append(np.array([numbers.setdefault(item, len(numbers)) for item in pool], np.int64))
    return tuple(numbers), maps


def _append_tables(
    tables: Sequence[Columns],
    axis: int,
    sources: tuple[Any, ...],
    source_maps: Maps,
    encoding_maps: Maps,
    packing_maps: Maps,
) -> Columns:
    """Append tables in memory along an axis."""
    counts = [table.shape[axis] for table in tables]
    inline_starts = np.concatenate([[0], np.cumsum([len(table.inline) for table in tables])])
    maps = {"source": source_maps, "encoding": encoding_maps, "packing": packing_maps}
    new = {}
    for name in COLUMN_NAMES:
        columns = [getattr(table, name) for table in tables]
        if name in maps:
            columns = [_renumber_column(column, table) for column, table in zip(columns, maps[name], strict=True)]
        if name == "offset" and inline_starts[-1]:  # each table counts from the beginning of its own bytes
            columns = [
                np.where(table.source == INLINE, column.astype(np.int64) + start, column) if start else column
                for column, table, start in zip(columns, tables, inline_starts.tolist(), strict=False)
            ]
        new[name] = _append_columns(columns, axis, counts)
    shape = (*tables[0].shape[:axis], sum(counts), *tables[0].shape[axis + 1 :])
    return Columns(shape, sources, **new, inline=b"".join(table.inline for table in tables))


def _renumber_column(column: npt.NDArray[Any], numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return a column with the new positions in the pool that it refers to.

    States (negative) stay.
    """
    if not len(numbers) or (len(numbers) == 1 and numbers[0] == 0):
        return column
    if column.size == 1:
        old = column.flat[0]
        return column if old < 0 else np.full(column.shape, numbers[old])
    return np.where(column < 0, column, numbers[np.maximum(column, 0)])


def _append_columns(columns: Sequence[npt.NDArray[Any]], axis: int, counts: Sequence[int]) -> npt.NDArray[Any]:
    """Append columns along an axis; constant ones stay one element."""
    wide = tuple(max(lengths) for lengths in zip(*(column.shape for column in columns), strict=True))
    if all(column.size == 1 for column in columns):
        values = np.array([column.flat[0] for column in columns])
        if (values == values[0]).all():
            return columns[0]
        return np.repeat(values, counts).reshape([-1 if i == axis else 1 for i in range(columns[0].ndim)])
    parts = []
    for column, count in zip(columns, counts, strict=True):
        shape = (*wide[:axis], count, *wide[axis + 1 :])
        parts.append(column if column.shape == shape else np.broadcast_to(column, shape))
    return np.concatenate(parts, axis)


def _drop_item(items: tuple[Any, ...], position: int) -> tuple[Any, ...]:
    return items[:position] + items[position + 1 :]
