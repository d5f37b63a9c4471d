"""Chunk tables: where the bytes of each cell of a grid lie, and in which state each cell is.

A table answers `locate(cells)` with columns: a source by number, an offset, a length, a filter
mask, an encoding and a packing by number. `Columns` holds them in memory, each only as large as it
must be: a column that is constant along an axis has one element there, and the narrowest type that
fits, so a million chunks of a thousand files take about 14 bytes each. A cell becomes an object
only when it is looked up by item access; the type of that object is its state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError, SelectionError
from insitu.model.axis import Indices
from insitu.model.source import Source

__all__ = [
    "ABSENT",
    "INLINE",
    "UNWRITTEN",
    "WHOLE",
    "Absent",
    "ChunkLocations",
    "ChunkState",
    "ChunkTable",
    "Columns",
    "Inline",
    "JointlyLocated",
    "Stored",
    "Unwritten",
]

ABSENT, UNWRITTEN, INLINE = -1, -2, -3
"""Values of a `source` column: no file covers the cell.

The file never wrote it; its bytes are in the table itself.
"""
WHOLE = -1
"""Value of a `length` column: from the offset to the end of the object."""


@dataclass(frozen=True, slots=True)
class Stored:
    """State of a cell whose chunk lies in an archive object."""

    source: Source
    offset: int
    length: int
    """Bytes; -1: up to the object's end."""
    filter_mask: int
    """Bit i set: codec i was skipped. Above the bits of all codecs: what the header of the chunk must
    say, for codecs that check it (`codecs.registry.CHECKS_MARK`).
    """
    encoding: int
    """Position in the tile's encodings."""
    packing: int
    """Position in the tile's packings."""


@dataclass(frozen=True, slots=True)
class Inline:
    """State of a cell whose chunk is small and kept in the table itself."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Unwritten:
    """State of a cell that its file never wrote: it reads as the file's own fill value."""


@dataclass(frozen=True, slots=True)
class Absent:
    """State of a cell that no file covers: it reads as NaN, NaT, or the array's fill value."""


ChunkState = Stored | Inline | Unwritten | Absent


class ChunkLocations(NamedTuple):
    """Places of some cells: columns of equal length."""

    source: npt.NDArray[Any]
    offset: npt.NDArray[Any]
    length: npt.NDArray[Any]
    filter_mask: npt.NDArray[Any]
    encoding: npt.NDArray[Any]
    packing: npt.NDArray[Any]
    inline: bytes
    """The bytes that offset and length of an INLINE row refer to."""


class LocationsBuilder:
    """Places of cells that several tables give, part by part.

    Parameters
    ----------
    count
        How many cells there are.
    state
        The state of those that no table gives.
    """

    def __init__(self, count: int, state: int = UNWRITTEN) -> None:
        self._columns = {name: np.zeros(count, np.int64) for name in COLUMN_NAMES}
        self._columns["source"][:] = state
        self._inline = bytearray()

    def put(self, here: Any, rows: ChunkLocations) -> None:
        """Take the places of the cells `here`, an index into all of them."""
        for name, column in self._columns.items():
            column[here] = getattr(rows, name)
        if rows.inline and (is_inline := np.asarray(rows.source) == INLINE).any():
            self._columns["offset"][here] += np.where(is_inline, len(self._inline), 0)
            self._inline += rows.inline

    def build(self) -> ChunkLocations:
        """Return the places of all cells."""
        return ChunkLocations(**self._columns, inline=bytes(self._inline))


@runtime_checkable
class ChunkTable(Protocol):
    """Protocol of chunk tables: where each cell of a grid lies."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis of the tile."""

    @property
    def sources(self) -> Sequence[Source]:
        """The objects that the `source` column refers to by number."""

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return the places of cells, given by index arrays that broadcast against each other.

        Rows in C order of that shape.
        """

    def take(self, axis: int, cells: Indices | slice) -> ChunkTable:
        """Return the table of these cells along one axis; -1: Absent."""

    def with_new_axis(self) -> ChunkTable:
        """Return the same table with one more axis, of one cell, at the end."""

    def __getitem__(self, cell: int | tuple[int, ...]) -> ChunkState:
        """Return the state of one cell."""


@runtime_checkable
class JointlyLocated(Protocol):
    """Protocol of chunk tables of which many can be asked at once."""

    def locate_together(
        self, tables: Sequence[ChunkTable], cells: Sequence[Indices], starts: Indices
    ) -> ChunkLocations | None:
        """Return the places of cells of several tables; None if these tables must be asked one by one.

        Parameters
        ----------
        tables
            The tables, this one among them.
        cells
            For each axis, the indices of all cells, table after table.
        starts
            The first cell of each table, and the end.
        """


def get_chunk_state(table: ChunkTable, cell: int | tuple[int, ...]) -> ChunkState:
    """Return the state of one cell of any table."""
    cell = cell if isinstance(cell, tuple) else (cell,)
    if len(cell) != len(table.shape):
        raise SelectionError(f"{len(cell)} indices were given for a grid of {len(table.shape)} axes")
    index = []
    for number, count in zip(cell, table.shape, strict=True):
        if not -count <= number < count:
            raise SelectionError(f"cell {cell} is outside a grid of {table.shape}")
        index.append(np.array([number % count]))
    row = table.locate(index if index else [np.zeros(1, np.int64)][:0])
    source = int(row.source[0])
    if source == ABSENT:
        return Absent()
    if source == UNWRITTEN:
        return Unwritten()
    offset, length = int(row.offset[0]), int(row.length[0])
    if source == INLINE:
        return Inline(row.inline[offset : offset + length])
    mask, encoding, packing = int(row.filter_mask[0]), int(row.encoding[0]), int(row.packing[0])
    return Stored(table.sources[source], offset, length, mask, encoding, packing)


def flat_cell_numbers(cells: Sequence[Indices], shape: tuple[int, ...]) -> Indices:
    """Return the numbers of cells in C order of the grid."""
    if not cells:
        return np.zeros(1, np.int64)
    return np.asarray(np.ravel_multi_index(tuple(np.broadcast_arrays(*cells)), shape)).reshape(-1)


_INTEGER_TYPES = tuple(
    (kind, int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in (np.int8, np.int16, np.int32, np.int64)
)


def _narrowest_type(low: int, high: int) -> type[np.signedinteger[Any]]:
    """Return the narrowest signed type for values from `low` to `high`."""
    for kind, least, most in _INTEGER_TYPES:
        if least <= low and high <= most:
            return kind
    raise ModelError(f"a column with values from {low} to {high} does not fit 64 bits")


@lru_cache(maxsize=4096)
def _constant_column(value: int, ndim: int) -> npt.NDArray[Any]:
    """Return a read-only column of one value.

    Files have many columns and few different values, so they are shared.
    """
    column = np.full((1,) * ndim, value, _narrowest_type(value, value))
    column.flags.writeable = False
    return column


@lru_cache(maxsize=1)
def _multiples(step: int, count: int) -> npt.NDArray[np.int64]:
    """Return the first multiples of a number: the same for all variables of a file."""
    return np.arange(count, dtype=np.int64) * step


def _extremes(column: npt.NDArray[Any]) -> tuple[int, int]:
    if column.size > 64:
        return int(column.min()), int(column.max())
    values = column.reshape(-1).tolist()  # of few elements, faster than NumPy
    return min(values), max(values)


def narrow_column(column: npt.ArrayLike, ndim: int) -> npt.NDArray[Any]:
    """Return an integer column in the narrowest signed type, with one element if all are equal."""
    if isinstance(column, int):
        return _constant_column(column, ndim)
    array = np.asarray(column)
    if array.size == 1:
        return _constant_column(int(array.flat[0]), ndim)
    if array.size == 0:
        return np.zeros(array.shape, np.int8)
    low, high = _extremes(array)
    if low == high:
        return _constant_column(low, ndim)
    return np.ascontiguousarray(array, _narrowest_type(low, high))


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Chunk table in memory. Each column broadcasts to the grid's shape."""

    shape: tuple[int, ...]
    sources: Sequence[Source]
    source: npt.NDArray[Any]
    offset: npt.NDArray[Any]
    length: npt.NDArray[Any]
    filter_mask: npt.NDArray[Any] = 0  # type: ignore[assignment]  # made an array below
    encoding: npt.NDArray[Any] = 0  # type: ignore[assignment]
    packing: npt.NDArray[Any] = 0  # type: ignore[assignment]
    inline: bytes = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(count) for count in self.shape))
        ndim = len(self.shape)
        for name in COLUMN_NAMES:
            column = getattr(self, name)
            if not isinstance(column, int):
                column = np.asarray(column)
                have = column.shape
                if (
                    column.ndim
                    and have != self.shape
                    and (column.ndim != ndim or any(map(_is_misfit, have, self.shape)))
                ):
                    raise ModelError(f"column {name} of shape {have} does not fit a grid of {self.shape}")
            object.__setattr__(self, name, narrow_column(column, ndim))
        if self.source.size and int(self.source.max()) >= len(self.sources):
            raise ModelError(
                f"the source column refers to source {int(self.source.max())}, but there are {len(self.sources)} "
                "sources"
            )

    @classmethod
    def of_stored(
        cls,
        shape: tuple[int, ...],
        source: Source,
        offset: npt.NDArray[Any] | int,
        length: npt.NDArray[Any] | int,
        filter_mask: npt.NDArray[Any] | int = 0,
        *,
        narrow: bool = False,
    ) -> Columns:
        """Return the table of a grid all of whose cells lie in one source.

        Columns of its shape, or one number for all. `narrow`: offsets and lengths are as narrow as they can be, and
        not all alike.
        """
        ndim = len(shape)
        zero = _constant_column(0, ndim)
        columns = {
            "source": zero,
            "offset": offset if narrow and not isinstance(offset, int) else narrow_column(offset, ndim),
            "length": length if narrow and not isinstance(length, int) else narrow_column(length, ndim),
            "filter_mask": zero
            if isinstance(filter_mask, int) and not filter_mask
            else narrow_column(filter_mask, ndim),
            "encoding": zero,
            "packing": zero,
        }
        return _assemble_columns(shape, (source,), columns, b"")

    @classmethod
    def of_steps(cls, shape: tuple[int, ...], source: Source, first: int, step: int, length: int) -> Columns:
        """Return the table of a grid whose cells lie in equal steps of one source, along the first axis."""
        ndim, count = len(shape), shape[0]
        column = (_multiples(step, count) + first).astype(_narrowest_type(first, first + (count - 1) * step))
        columns = {
            "offset": column.reshape(-1, *(1,) * (ndim - 1)) if count > 1 else _constant_column(first, ndim),
            "length": _constant_column(length, ndim),
            **dict.fromkeys(("source", "filter_mask", "encoding", "packing"), _constant_column(0, ndim)),
        }
        return _assemble_columns(shape, (source,), columns, b"")

    @classmethod
    def of_unwritten(cls, shape: Sequence[int]) -> Columns:
        """Return the table of a grid of any size of which no cell was written."""
        return cls(tuple(shape), (), np.asarray(UNWRITTEN), np.asarray(0), np.asarray(0))

    @classmethod
    def of_absent(cls, shape: Sequence[int]) -> Columns:
        """Return the table of a grid of any size that no file covers."""
        return cls(tuple(shape), (), np.asarray(ABSENT), np.asarray(0), np.asarray(0))

    @classmethod
    def of_inline(cls, shape: Sequence[int], data: bytes) -> Columns:
        """Return the table of a grid of one cell, with its bytes."""
        if math.prod(shape) != 1:
            raise ModelError(f"inline data needs a grid of one cell, not one of shape {tuple(shape)}")
        ndim = len(shape)
        columns = dict.fromkeys(COLUMN_NAMES, _constant_column(0, ndim))
        columns |= {"source": _constant_column(INLINE, ndim), "length": _constant_column(len(data), ndim)}
        return _assemble_columns(tuple(shape), (), columns, bytes(data))

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return the places of cells."""
        size = math.prod(np.broadcast_shapes(*[np.shape(c) for c in cells])) if cells else 1
        rows = {name: self._rows(getattr(self, name), cells, size) for name in COLUMN_NAMES}
        return ChunkLocations(**rows, inline=self.inline)

    def _rows(self, column: npt.NDArray[Any], cells: Sequence[Indices], size: int) -> npt.NDArray[Any]:
        if column.size == 1:
            value = column.reshape(-1)
            return value if size == 1 else np.broadcast_to(value, (size,))
        index = tuple(
            np.zeros_like(c) if have == 1 and want != 1 else c
            for c, have, want in zip(cells, column.shape, self.shape, strict=True)
        )
        return column[index].reshape(-1)

    def take(self, axis: int, cells: Indices | slice) -> Columns:
        """Return the table of these cells along one axis; -1: Absent."""
        if isinstance(cells, slice):
            count = len(range(*cells.indices(self.shape[axis])))
        else:
            count = len(cells)
        shape = (*self.shape[:axis], count, *self.shape[axis + 1 :])
        index: Any = cells
        absent = None
        if not isinstance(cells, slice) and (cells < 0).any():
            absent = cells < 0
            index = np.where(absent, 0, cells)
        new = {}
        for name in COLUMN_NAMES:
            column = getattr(self, name)
            if column.shape[axis] != 1:  # else it is constant along the axis, and stays so
                column = column[(slice(None),) * axis + (index,)]
            if name == "source" and absent is not None:
                wide = np.broadcast_to(column, (*column.shape[:axis], count, *column.shape[axis + 1 :])).copy()
                wide[(slice(None),) * axis + (absent,)] = ABSENT
                column = wide
            new[name] = column
        return _assemble_columns(shape, self.sources, new, self.inline)

    def with_new_axis(self) -> Columns:
        """Return the same table with one more axis, of one cell, at the end."""
        columns = {name: getattr(self, name)[..., None] for name in COLUMN_NAMES}
        return _assemble_columns((*self.shape, 1), self.sources, columns, self.inline)

    def __getitem__(self, cell: int | tuple[int, ...]) -> ChunkState:
        return get_chunk_state(self, cell)

    @property
    def nbytes(self) -> int:
        """Memory of the columns and the inline bytes."""
        return sum(int(getattr(self, name).nbytes) for name in COLUMN_NAMES) + len(self.inline)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Columns):
            return NotImplemented
        return (self.shape, self.sources, self.inline) == (other.shape, other.sources, other.inline) and all(
            np.array_equal(
                np.broadcast_to(getattr(self, n), self.shape), np.broadcast_to(getattr(other, n), self.shape)
            )
            for n in COLUMN_NAMES
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Views of larger columns are pickled without the rest of those columns.
        columns = {
            name: np.ascontiguousarray(getattr(self, name)).reshape(getattr(self, name).shape) for name in COLUMN_NAMES
        }
        return _assemble_columns, (self.shape, self.sources, columns, self.inline)


def _is_misfit(have: int, want: int) -> bool:
    return have not in (1, want)


COLUMN_NAMES = ("source", "offset", "length", "filter_mask", "encoding", "packing")


def _assemble_columns(
    shape: tuple[int, ...], sources: Sequence[Source], columns: dict[str, npt.NDArray[Any]], inline: bytes
) -> Columns:
    """Make a table of columns that are known to fit, without the checks that look at every element."""
    table = object.__new__(Columns)
    put = object.__setattr__
    put(table, "shape", shape)
    put(table, "sources", sources)
    put(table, "inline", inline)
    for name, value in columns.items():
        put(table, name, value)
    return table
