"""Counting cells by state, and listing where their bytes lie, for every kind of table.

Modules: formats/zarr/keyed.py, model/derived_tables.py
"""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from insitu.formats.zarr.keyed import KeyedChunks
from insitu.model import (
    Absent,
    Axis,
    Columns,
    Encoding,
    Inline,
    Source,
    SparseTable,
    Stored,
    Tile,
    Unwritten,
    VirtualArray,
    byte_ranges,
    count_cells,
    count_written,
    scatter,
)
from insitu.model.cell_counts import CellCounts, count_table
from insitu.model.derived_tables import ExpandedTable, InterleavedSources, JoinedTable, SelectedTable
from insitu.zarr_metadata.keys import ChunkKeys
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
    sources: dict[Source, int] = {}
    parts = list(byte_ranges(case.array, sources))
    used = list(sources)
    assert set(used) == {source for source, _, _ in ranges}
    listed = [(used[s], o, n) for part in parts for s, o, n in zip(*(c.tolist() for c in part), strict=True)]
    assert Counter(listed) == Counter(ranges)


@given(mosaics(3), st.randoms())
def test_written_chunks_of_each_element(case: Case, random: Random) -> None:
    array = case.array
    dimensions = random.sample(range(array.ndim), random.randint(0, array.ndim))
    expected = np.zeros([array.shape[dimension] for dimension in dimensions], int)
    for tile, origin in zip(array.tiles, array.origins.tolist(), strict=True):
        for cell in np.ndindex(*tile.chunks.shape):
            if isinstance(tile.chunks[tuple(map(int, cell))], (Stored, Inline)):
                own = [
                    origin[dimension] + np.flatnonzero(axis.find(np.arange(axis.length)) == cell[number])
                    for dimension in dimensions
                    for number, axis in [(tile.dimensions[dimension], tile.axis_of(dimension))]
                ]
                expected[np.ix_(*own)] += 1
    np.testing.assert_array_equal(count_written(array, dimensions), expected)


def test_a_vast_grid_is_counted_at_once() -> None:
    def array(table) -> VirtualArray:
        axes = tuple(Axis.regular(n, 1) for n in table.shape)
        return VirtualArray.of(Tile(axes, (Encoding(np.dtype("i1")),), table), dims=("x", "y"))

    assert count_cells(array(Columns.of_unwritten((10**9, 10**9)))).unwritten == 10**18
    sparse = scatter((10**9, 10**6), (Source("f"),), np.array([[5, 6], [7, 8]]), np.array([1, 2]), np.array([10, 20]))
    assert count_cells(array(sparse)).nbytes == 30
    assert [part[1].tolist() for part in byte_ranges(array(sparse))] == [[1, 2]]


def test_sources_of_tables_side_by_side() -> None:
    """Their numbers are not their places: the shorter pool leaves some free."""
    pools = [(Source("a"),), (Source("b"), Source("c"))]
    tables = [
        Columns((len(pool),), pool, np.arange(len(pool)), np.zeros(1, np.int64), np.array([number]))
        for number, pool in enumerate(pools, 1)
    ]
    same = (np.zeros(1, np.int64),) * 2
    joined = JoinedTable(tuple(tables), 0, np.array([0, 1, 3]), InterleavedSources(pools), None, same, same)
    array = VirtualArray.of(Tile((Axis.regular(3, 1),), (Encoding(np.dtype("i1")),), joined), dims=("x",))
    sources: dict[Source, int] = {}
    ((number, _, _),) = byte_ranges(array, sources)
    assert [list(sources)[at].url for at in number.tolist()] == ["a", "b", "c"]


class Looked:
    """A table that counts how many of its cells are looked up."""

    def __init__(self, table) -> None:
        self.table, self.many = table, 0
        self.shape, self.sources = table.shape, table.sources

    def locate(self, cells):
        rows = self.table.locate(cells)
        self.many += len(np.asarray(rows.source))
        return rows


def test_declared_counts_are_computed() -> None:
    """However many cells Zarr metadata declares: no loop over them."""
    keyed = KeyedChunks("file:///x", ChunkKeys("/", "c"), (1 << 50, 3))
    for table, stored, absent in (
        (keyed, 3 << 50, 0),
        (ExpandedTable(keyed), 3 << 50, 0),
        (keyed.take(1, np.array([0, -1, 2, 2])), 3 << 50, 1 << 50),
        (SelectedTable.of(keyed.take(1, np.array([1])), 0, np.array([5, -1])), 1, 1),
    ):
        assert count_table(table) == CellCounts(stored + absent, stored, absent=absent)
    numbers = np.array([5, 7 << 40])
    listed = SparseTable(
        (1 << 50,), (Source("f"),), numbers, np.zeros(2, int), np.array([0, 9]), np.array([4, 5]), np.zeros(1, int)
    )
    assert count_table(listed) == CellCounts(1 << 50, 2, unwritten=(1 << 50) - 2, nbytes=9)


def test_an_even_sample_of_what_cannot_be_computed() -> None:
    source = np.where(np.arange(100_000) % 10 == 3, -2, 0)
    table = Looked(Columns((100_000,), (Source("f"),), source, np.asarray(0), np.full(100_000, 7)))
    exact = count_table(table)
    assert (exact.unwritten, exact.nbytes, table.many) == (10_000, 90_000 * 7, 100_000)
    table.many = 0
    assert count_table(table, 100_000) == exact
    table.many = 0
    about = count_table(table, 4001)
    assert table.many == 4001
    assert about.cells == 100_000
    assert abs(about.unwritten - 10_000) < 5_000
    assert abs(about.nbytes - exact.nbytes) < 0.1 * exact.nbytes
