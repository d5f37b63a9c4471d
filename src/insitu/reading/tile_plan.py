"""A tile's part of a read plan, in columns, and groups of rows that can be decoded together.

A row of the plan is a combination of one row for each axis. Chunks are often many and small, so
whatever is the same for many rows is computed at once: rows that want the same box of equal chunks
form a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.forking import cached_property
from insitu.model import ChunkLocations, Packing
from insitu.reading.select_cells import AxisSelection, Slices, TileSelection

__all__ = ["ChunkGroup", "Position", "TilePlan"]

GROUPED_BYTES = 128 << 10
"""Packed chunks up to this size are unpacked together: the fixed cost of unpacking (10 to 500 µs)
is paid once for many. Larger ones are unpacked one by one, straight to their place.
"""

MAX_KINDS = 1 << 31
"""Combinations of kinds along the axes up to which they are numbered without a look at the rows."""

Position = tuple[int, ...]
"""For each axis, the row of its columns that a row of the plan combines."""


@dataclass(frozen=True, eq=False)
class ChunkGroup:
    """Rows that want the same box of chunks of one encoding, packing, shape and filter mask."""

    rows: npt.NDArray[np.int64]
    """Positions of the group's rows in the rows that were given."""
    numbers: npt.NDArray[np.int64]
    """Their numbers among all rows of the tile."""
    encoding: int
    packing: Packing | None
    mask: int
    shape: tuple[int, ...]
    """Shape of the chunks."""
    start: tuple[int, ...]
    """Corner of the box in each chunk."""
    extent: tuple[int, ...]
    """Shape of the box."""
    places: npt.NDArray[np.int64]
    """Place in the output of each chunk's box: a row for each chunk."""

    @cached_property
    def at(self) -> list[tuple[int, ...]]:
        """The places as tuples."""
        return list(map(tuple, self.places.tolist()))


class _AxisKinds:
    """The rows of one axis by kind: equal chunk size, equal box."""

    __slots__ = ("begin", "kind", "kinds")

    def __init__(self, part: AxisSelection) -> None:
        assert isinstance(part.inside, Slices)
        assert isinstance(part.outside, Slices)
        self.begin = part.outside.start
        if len(self.begin) == 1:  # a small part of one chunk
            self.kinds = [(int(part.stored[0]), int(part.inside.start[0]), int(part.count_places()[0]))]
            self.kind = np.zeros(1, np.int64)
            return
        columns = np.stack([part.stored, part.inside.start, part.count_places()])
        if (columns == columns[:, :1]).all():  # as nearly always
            self.kinds, self.kind = [tuple(columns[:, 0].tolist())], np.zeros(len(self.begin), np.int64)
            return
        kinds, number = np.unique(columns, axis=1, return_inverse=True)
        self.kinds, self.kind = list(zip(*kinds.tolist(), strict=True)), number.reshape(-1)


def _is_plain(part: AxisSelection) -> bool:
    """Return whether an axis takes consecutive elements of every chunk, each once."""
    inside = part.inside
    return (
        part.exists
        and isinstance(inside, Slices)
        and isinstance(part.outside, Slices)
        and bool((inside.step == 1).all())
        and bool((inside.stop - inside.start == part.count_places()).all())
    )


def _has_indices(pickers: Sequence[Any]) -> bool:
    return any(isinstance(picker, np.ndarray) for picker in pickers)


class TilePlan:
    """The part of a read plan that concerns one tile."""

    def __init__(self, touched: TileSelection, located: ChunkLocations) -> None:
        parts = touched.parts
        self.locations = located
        self.touched = touched
        self.encodings = touched.encodings
        self.outside = [part.outside for part in parts]
        self.inside = [part.inside for part in parts]
        self.sizes = [part.stored.tolist() for part in parts]
        self.whole = [part.whole.tolist() for part in parts]
        self.exists = [part.exists for part in parts]
        self.all_exist = all(self.exists)
        self.plain = all(isinstance(part.outside, Slices) or not _has_indices(part.outside) for part in parts)
        used = [0] if len(touched.packings) == 1 else np.unique(located.packing).tolist()
        rows = {row: touched.packings[row] for row in used}
        self.packings: dict[int, Packing | None] = {n: None if row.identity else row for n, row in rows.items()}
        self.packed = any(packing is not None for packing in self.packings.values())
        can_group = parts and not (self.packed and self.stored_bytes > GROUPED_BYTES) and all(map(_is_plain, parts))
        self.axes = [_AxisKinds(part) for part in parts] if can_group else None
        """For `group_similar_rows`; None where rows cannot be grouped."""

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of the largest chunk of stored values."""
        itemsize = max(encoding.dtype.itemsize for encoding in self.encodings)
        return itemsize * self.touched.largest_chunk()

    @cached_property
    def needs_parts_only(self) -> bool:
        """Whether every chunk is needed in part, and has to be decoded whole for it."""
        return any(not any(whole) for whole in self.whole) and not any(
            encoding.raw or encoding.dtype.hasobject for encoding in self.encodings
        )

    def at(self, columns: Sequence[Sequence[Any]], position: Position) -> tuple[Any, ...]:
        """Return one row of each axis' column."""
        return tuple([column[i] for column, i in zip(columns, position, strict=True)])

    def chunk_shape(self, position: Position) -> tuple[int, ...]:
        """Return the shape that the bytes of a row decode to."""
        sizes = self.at(self.sizes, position)
        return sizes if self.all_exist else tuple(n for n, exists in zip(sizes, self.exists, strict=True) if exists)

    def spread(self, position: Position, chunk: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a decoded chunk with one axis for each axis of the tile: of length 1 where the
        chunk has none.
        """
        if self.all_exist:
            return chunk
        sizes = self.at(self.sizes, position)
        return chunk.reshape([n if exists else 1 for n, exists in zip(sizes, self.exists, strict=True)])

    def positions(self, rows: npt.NDArray[np.int64]) -> list[Position]:
        """Return the positions of rows: for each axis the row of its columns."""
        if not self.sizes:
            return [()] * len(rows)
        return list(zip(*(index.tolist() for index in self.touched.rows_of_axes(rows)), strict=True))

    def group_similar_rows(self, rows: npt.NDArray[np.int64]) -> Iterator[ChunkGroup]:
        """Yield groups of rows that take the same box of equal chunks."""
        assert self.axes is not None
        if len(rows) == 1:
            yield self._group_of_one(int(rows[0]))
            return
        index = self.touched.rows_of_axes(rows)
        group, many = np.zeros(len(rows), np.int64), 1
        for axis, i in zip(self.axes, index, strict=True):
            many *= len(axis.kinds)
            if many > MAX_KINDS:  # of listed rows each may be of a kind of its own
                group, many = np.unique(group, return_inverse=True)[1].reshape(-1), len(rows) * len(axis.kinds)
            group = group * len(axis.kinds) + axis.kind[i]
        for column in (self.locations.encoding, self.locations.filter_mask, self.locations.packing):
            if column.strides != (0,):  # a column of one value says nothing
                values, number = np.unique(column[rows], return_inverse=True)
                group = group * len(values) + number.reshape(-1)
        begins = [axis.begin[i] for axis, i in zip(self.axes, index, strict=True)]
        for which in np.unique(group) if (group != group[0]).any() else group[:1]:
            mine = np.flatnonzero(group == which)
            first = int(mine[0])
            kinds = [axis.kinds[axis.kind[i[first]]] for axis, i in zip(self.axes, index, strict=True)]
            shape, start, extent = (tuple(values) for values in zip(*kinds, strict=True))
            yield ChunkGroup(
                rows=mine,
                numbers=rows[mine],
                encoding=int(self.locations.encoding[rows[first]]),
                packing=self.packings[int(self.locations.packing[rows[first]])],
                mask=int(self.locations.filter_mask[rows[first]]),
                shape=shape,
                start=start,
                extent=extent,
                places=np.stack([begin[mine] for begin in begins], axis=1),
            )

    def _group_of_one(self, row: int) -> ChunkGroup:
        """Return the group of a large chunk, which is a batch of its own."""
        assert self.axes is not None
        index = [int(i[0]) for i in self.touched.rows_of_axes(np.array([row]))]
        kinds = [axis.kinds[axis.kind[i]] for axis, i in zip(self.axes, index, strict=True)]
        shape, start, extent = (tuple(values) for values in zip(*kinds, strict=True))
        return ChunkGroup(
            rows=np.zeros(1, np.int64),
            numbers=np.array([row]),
            encoding=int(self.locations.encoding[row]),
            packing=self.packings[int(self.locations.packing[row])],
            mask=int(self.locations.filter_mask[row]),
            shape=shape,
            start=start,
            extent=extent,
            places=np.array([[axis.begin[i] for axis, i in zip(self.axes, index, strict=True)]], np.int64),
        )
