"""Counting cells by state, and listing where their bytes lie, for every kind of table."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given

from insitu.model import (
    Absent,
    Axis,
    Columns,
    Encoding,
    Inline,
    Source,
    Stored,
    Tile,
    Unwritten,
    VirtualArray,
    byte_ranges,
    count_cells,
    scatter,
)
from mosaics import Case, mosaics


@given(mosaics(3))
def test_counted_one_by_one(case: Case) -> None:
    states: Counter[type] = Counter()
    nbytes, ranges = 0, []
    for tile in case.array.tiles:
        for cell in np.ndindex(*tile.chunks.shape):
            state = tile.chunks[tuple(int(i) for i in cell)]
            states[type(state)] += 1
            if isinstance(state, Stored):
                nbytes += state.length
                ranges.append((state.source, state.offset, state.length))
            elif isinstance(state, Inline):
                nbytes += len(state.data)
    counted = count_cells(case.array)
    assert (counted.stored, counted.inline, counted.unwritten, counted.absent) == tuple(
        states[kind] for kind in (Stored, Inline, Unwritten, Absent)
    )
    assert counted.cells == states.total()
    assert counted.nbytes == nbytes
    sources = case.array.sources
    listed = [
        (sources[s], o, n)
        for part in byte_ranges(case.array)
        for s, o, n in zip(*(c.tolist() for c in part), strict=True)
    ]
    assert Counter(listed) == Counter(ranges)


def test_a_vast_grid_is_counted_at_once() -> None:
    def array(table) -> VirtualArray:
        axes = tuple(Axis.regular(n, 1) for n in table.shape)
        return VirtualArray.of(Tile(axes, (Encoding(np.dtype("i1")),), table), dims=("x", "y"))

    assert count_cells(array(Columns.of_unwritten((10**9, 10**9)))).unwritten == 10**18
    sparse = scatter((10**9, 10**6), (Source("f"),), np.array([[5, 6], [7, 8]]), np.array([1, 2]), np.array([10, 20]))
    assert count_cells(array(sparse)).nbytes == 30
    assert [part[1].tolist() for part in byte_ranges(array(sparse))] == [[1, 2]]
