"""Locate the steps of a dimension: in which source, at which offset, which element of the chunk.

Two steps with the same place show the same bytes. Appending skips steps whose place is saved
already, and `check` names sources that are shown twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import Source, VirtualArray
from insitu.model.derived_tables import iter_pools
from insitu.references.urls import absolute_url

__all__ = [
    "SourceNumbers",
    "iter_blocks",
    "iter_source_lists",
    "iter_sources",
    "iter_step_places",
    "join_step_places",
    "used_urls",
]

_CELLS_PER_BLOCK = 1 << 18


def iter_sources(arrays: Iterable[VirtualArray]) -> Iterator[Source]:
    """Yield the sources of arrays; lists of sources that tables share are visited once."""
    for sources in iter_source_lists(arrays):
        yield from sources


def iter_source_lists(arrays: Iterable[VirtualArray]) -> Iterator[Sequence[Source]]:
    """Yield the lists of sources that tables of arrays have, each once."""
    seen: dict[int, Sequence[Source]] = {}  # held, so that no other pool gets the same id
    for array in arrays:
        for tile in array.tiles:
            for sources in iter_pools(tile.chunks.sources):
                if id(sources) not in seen:
                    seen[id(sources)] = sources
                    yield sources


def used_urls(array: VirtualArray) -> Iterator[str]:
    """Return the URLs of the sources that cells of an array lie in; its tables may list more."""
    for tile in array.tiles:
        table = tile.chunks
        used: set[int] = set()
        for _, rows in iter_blocks(table):
            used.update(np.unique(np.asarray(rows.source)).tolist())
        yield from (table.sources[number].url for number in sorted(used) if number >= 0)


def _iter_first_cells(table: Any, axis: int) -> Iterator[tuple[list[npt.NDArray[np.intp]], Any]]:
    """Yield the first cell of each slab across an axis, in blocks, with its location."""
    for begin in range(0, table.shape[axis], _CELLS_PER_BLOCK):
        number = np.arange(begin, min(begin + _CELLS_PER_BLOCK, table.shape[axis]))
        cells = [number if at == axis else np.zeros_like(number) for at in range(len(table.shape))]
        yield cells, table.locate(cells)


def iter_blocks(table: Any) -> Iterator[tuple[list[npt.NDArray[np.intp]], Any]]:
    """Yield the cells of a table, in blocks, with their locations."""
    total = int(np.prod(table.shape, dtype=object))
    for begin in range(0, total, _CELLS_PER_BLOCK):
        numbers = np.arange(begin, min(begin + _CELLS_PER_BLOCK, total))
        cells = list(np.unravel_index(numbers, table.shape)) if table.shape else []
        yield cells, table.locate(cells)


StepPlaces = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
SourceNumbers = dict[int, tuple[Sequence[Source], npt.NDArray[np.int64]]]
"""By id of a list of sources: the list, and the number of each of its sources."""


def iter_step_places(
    array: VirtualArray,
    dim: str,
    numbers: Mapping[str, int],
    source_numbers: SourceNumbers,
    *,
    outside: bool = False,
    corner: bool = False,
) -> Iterator[StepPlaces]:
    """Yield the position of each step in each chunk, and a row (source, offset, element of the
    chunk).

    Parameters
    ----------
    array, dim
        The array, and the dimension of the steps.
    numbers
        The number of each source to look for, by absolute URL.
    source_numbers
        Cache of source numbers by list of sources; filled here.
    outside
        Look for all other sources instead; their number is -1.
    corner
        Look only at the first chunk of each step.
    """
    dimension = array.dims.index(dim)
    for tile, origin in zip(array.tiles, array.origins[:, dimension].tolist(), strict=True):
        table, axis, at = tile.chunks, tile.axis_of(dimension), tile.dimensions[dimension]
        sources = table.sources
        if id(sources) not in source_numbers:
            names = np.array([numbers.get(absolute_url(source.url), -1) for source in sources], np.int64)
            source_numbers[id(sources)] = (sources, names)
        names = source_numbers[id(sources)][1]
        for cells, rows in _iter_first_cells(table, at) if corner else iter_blocks(table):
            source = np.asarray(rows.source, np.int64)
            stored = source >= 0
            number = np.full(len(source), -1, np.int64)
            number[stored] = names[source[stored]] if len(names) else -1
            selected = np.flatnonzero(stored & ((number < 0) if outside else (number >= 0)))
            if not len(selected):
                continue
            shown = axis.show(np.asarray(cells[at], np.int64)[selected])
            # A value that is repeated along the dimension has the same place for all its steps.
            selected = selected[~((np.asarray(shown.step) == 0) & (np.asarray(shown.extent) > 1))]
            cell = np.asarray(cells[at], np.int64)[selected]
            shown = axis.show(cell)
            at_row = np.repeat(np.arange(len(selected)), shown.extent)
            step = np.arange(len(at_row)) - np.repeat(np.cumsum(shown.extent) - shown.extent, shown.extent)
            position = origin + axis.begin(cell)[at_row] + step
            element = np.asarray(shown.skip)[at_row] + np.asarray(shown.step)[at_row] * step
            offset = np.asarray(rows.offset, np.int64)[selected][at_row]
            yield position, np.stack([number[selected][at_row], offset, element], axis=1)


def join_step_places(parts: Iterator[StepPlaces]) -> StepPlaces:
    """Return the positions and the rows of all blocks, joined."""
    found = list(parts)
    if not found:
        return np.zeros(0, np.int64), np.zeros((0, 3), np.int64)
    return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])
