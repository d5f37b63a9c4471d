"""Chunk table of a grid of which only some cells were written, as a sorted list of these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import UNWRITTEN, ChunkLocations, ChunkTable, Columns, Source
from insitu.model.axis import Indices
from insitu.model.chunks import flat_cell_numbers
from insitu.model.derived_tables import ChunkTableBase

__all__ = ["ListedCells", "table_of_cells"]

_DENSE_SHARE = 3
"""A listed cell takes 8 bytes more than one of a full grid: below a third of it, a list is smaller.
"""


@dataclass(frozen=True, slots=True, eq=False)
class ListedCells(ChunkTableBase):
    """Chunk table that lists the written cells of a grid by number."""

    shape: tuple[int, ...]
    sources: Sequence[Source]
    number: Indices
    """In C order of the grid; ascending."""
    source: npt.NDArray[Any]
    offset: npt.NDArray[Any]
    length: npt.NDArray[Any]
    inline: bytes = b""

    def cell_numbers(self) -> Iterator[Indices]:
        """Return the numbers of the cells that were written."""
        yield self.number

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        numbers = flat_cell_numbers(cells, self.shape)
        zero = np.broadcast_to(np.int64(0), numbers.shape)
        if not len(self.number):
            return ChunkLocations(np.full(len(numbers), UNWRITTEN), zero, zero, zero, zero, zero, b"")
        at = np.minimum(np.searchsorted(self.number, numbers), len(self.number) - 1)
        found = self.number[at] == numbers
        offset, length = (np.where(found, column[at], 0) for column in (self.offset, self.length))
        return ChunkLocations(
            np.where(found, self.source[at], UNWRITTEN), offset, length, zero, zero, zero, self.inline
        )


def table_of_cells(
    shape: tuple[int, ...],
    sources: Sequence[Source],
    number: Indices,
    source: npt.NDArray[Any],
    offset: npt.NDArray[Any],
    length: npt.NDArray[Any],
    inline: bytes = b"",
) -> ChunkTable:
    """Return the chunk table of some cells: a full grid if most are given, else a list.

    If a cell is given twice, the last one counts.
    """
    total = 1
    for count in shape:
        total *= count
    if total <= max(_DENSE_SHARE * len(number), 1024):
        full = np.full(total, UNWRITTEN, np.int64)
        full[number] = source
        begins, sizes = np.zeros(total, np.int64), np.zeros(total, np.int64)
        begins[number], sizes[number] = offset, length
        grid = full.reshape(shape), begins.reshape(shape), sizes.reshape(shape)
        return Columns(shape, sources, grid[0], grid[1], grid[2], inline=inline)
    order = np.argsort(number, kind="stable")
    if len(order):
        order = order[np.append(np.diff(number[order]) != 0, True)]
    return ListedCells(shape, sources, number[order], source[order], offset[order], length[order], inline)
