"""Chunk tables: states are types, sparse grids stay small, odd input is refused.

Modules: model/encoding.py, model/group.py, model/packing.py, model/sparse_chunks.py
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from insitu.errors import ModelError, SelectionError
from insitu.model import (
    Absent,
    Axis,
    Codec,
    Columns,
    Encoding,
    Inline,
    Packing,
    Packings,
    Source,
    SparseTable,
    Stored,
    Tile,
    Unwritten,
    VirtualArray,
    VirtualGroup,
    concatenate,
    scatter,
)

SOURCE = Source("file.h5", 1000)


def test_item_access_gives_states() -> None:
    table = Columns(
        (4,), (SOURCE,), np.array([0, -1, -2, -3]), np.array([10, 0, 0, 1]), np.array([5, 0, 0, 2]), inline=b"abc"
    )
    assert table[0] == Stored(SOURCE, 10, 5, 0, 0, 0)
    assert table[1] == Absent()
    assert table[2] == Unwritten()
    assert table[-1] == Inline(b"bc")
    with pytest.raises(SelectionError, match="outside a grid"):
        table[4]
    with pytest.raises(SelectionError, match="2 indices"):
        table[0, 0]


def test_a_table_without_axes_has_one_cell() -> None:
    assert Columns.of_inline((), b"xyz")[()] == Inline(b"xyz")
    assert Columns.of_inline((), b"xyz").with_new_axis()[0] == Inline(b"xyz")


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ModelError, match="does not fit a grid"):
        Columns((4,), (SOURCE,), np.zeros(3, int), np.zeros(4, int), np.zeros(4, int))
    with pytest.raises(ModelError, match="refers to source 1"):
        Columns((4,), (SOURCE,), np.ones(4, int), np.zeros(4, int), np.zeros(4, int))
    with pytest.raises(ModelError, match="the chunk table"):
        Tile((Axis.regular(10, 5),), (Encoding(np.dtype("f4")),), Columns.of_unwritten((3,)))


@pytest.mark.parametrize("grid", [(4, 5), (1000, 1000)])
def test_scatter_keeps_what_was_written(grid: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    numbers = random.choice(np.prod(grid), 15, replace=False)
    index = np.stack(np.unravel_index(numbers, grid), 1)
    offset = random.integers(0, 10**12, 15)
    table = scatter(grid, (SOURCE,), index, offset, 7, np.arange(15))
    assert isinstance(table, SparseTable if grid[0] > 4 else Columns)
    for row in range(15):
        assert table[tuple(index[row].tolist())] == Stored(SOURCE, int(offset[row]), 7, row, 0, 0)
    written = set(map(tuple, index.tolist()))
    empty = next(cell for cell in np.ndindex(*grid) if cell not in written)
    assert table[empty] == Unwritten()
    some = table.take(0, np.array([-1, int(index[3, 0])]))
    assert some[0, 0] == Absent()
    assert some[1, int(index[3, 1])] == Stored(SOURCE, int(offset[3]), 7, 3, 0, 0)
    again = pickle.loads(pickle.dumps(some))
    assert again[1, int(index[3, 1])] == some[1, int(index[3, 1])]


def test_scatter_of_a_vast_grid_is_small_and_exact() -> None:
    grid = (2**31, 2**31)
    table = scatter(grid, (SOURCE,), np.array([[2**31 - 1, 5], [0, 0]]), np.array([1, 2]), np.array([3, 4]))
    assert table.nbytes < 200
    assert table[2**31 - 1, 5] == Stored(SOURCE, 1, 3, 0, 0, 0)
    with pytest.raises(ModelError, match="64 bits"):
        scatter((2**40, 2**40), (SOURCE,), np.zeros((1, 2), int), 0, 0)
    with pytest.raises(ModelError, match="outside the grid"):
        scatter((2, 2), (SOURCE,), np.array([[2, 0]]), 0, 0)


def test_of_a_cell_written_twice_the_last_counts() -> None:
    for grid in ((3,), (10**6,)):
        table = scatter(grid, (SOURCE,), np.array([[1], [1]]), np.array([5, 6]), 1)
        assert table[1] == Stored(SOURCE, 6, 1, 0, 0, 0)


def test_sparse_tables_join_with_dense_ones() -> None:
    def array(table) -> VirtualArray:
        return VirtualArray.of(
            Tile((Axis.regular(table.shape[0], 1),), (Encoding(np.dtype("f4")),), table), dims=("x",)
        )

    sparse = scatter((10**6,), (SOURCE,), np.array([[7]]), 99, 4)
    dense = scatter((3,), (Source("other"),), np.array([[0], [1], [2]]), np.array([0, 4, 8]), 4)
    joined = concatenate([array(dense), array(sparse), array(dense)])
    assert len(joined.tiles) == 1
    chunks = joined.tiles[0].chunks
    assert chunks[3 + 7] == Stored(SOURCE, 99, 4, 0, 0, 0)
    assert chunks[3] == Unwritten()
    assert chunks[-1] == Stored(Source("other"), 8, 4, 0, 0, 0)


def test_codecs_compare_and_hash_by_content() -> None:
    one, other = Codec("zlib", {"level": 1}), Codec("zlib", {"level": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one != Codec("zlib", {"level": 2})
    assert pickle.loads(pickle.dumps(one)) == one
    assert Encoding(np.dtype("f4"), (one,)) == Encoding(np.dtype("f4"), (other,))


def test_encodings_check_themselves() -> None:
    assert Encoding(np.dtype(">i2"), fill=b"\x00\x05").fill_value() == 5
    assert Encoding(np.dtype("f4")).fill_value() == 0
    assert Encoding(np.dtype("f4"), order=(0, 1)).order is None
    with pytest.raises(ModelError, match="permutation"):
        Encoding(np.dtype("f4"), order=(0, 2))
    with pytest.raises(ModelError, match="fill value has 2 bytes"):
        Encoding(np.dtype("f4"), fill=b"ab")


def test_packings_pool_by_content() -> None:
    rows = [Packing(scale=0.1, missing=(np.int16(-1), np.int16(-2))), Packing(), Packing(missing=(np.float32("nan"),))]
    one, two = Packings.of(rows[:2]), Packings.of([rows[2], rows[0]])
    pooled, (map_one, map_two) = Packings.pool([one, two])
    assert len(pooled) == 3
    assert pooled[map_one[0]] == pooled[map_two[1]] == rows[0]
    assert pooled[map_one[1]] == rows[1]
    assert np.isnan(pooled[map_two[0]].missing[0])
    assert pooled[map_two[0]].missing[0].dtype == np.float32
    assert rows[1].identity
    assert not rows[0].identity


def test_what_differs_across_the_join_stays_apart() -> None:
    def array(lat_chunk: int) -> VirtualArray:
        axes = (Axis.regular(4, 2), Axis.regular(180, lat_chunk))
        table = Columns.of_unwritten(tuple(axis.count for axis in axes))
        return VirtualArray.of(Tile(axes, (Encoding(np.dtype("f4")),), table), dims=("time", "lat"))

    joined = concatenate([array(90), array(90), array(45), array(90)], "time")
    assert [tile.shape for tile in joined.tiles] == [(8, 180), (4, 180), (4, 180)]
    assert joined.origins.tolist() == [[0, 0], [8, 0], [12, 0]]


def test_joins_that_make_no_sense_are_refused() -> None:
    def array(*shape: int) -> VirtualArray:
        axes = tuple(Axis.regular(n, n) for n in shape)
        return VirtualArray.of(
            Tile(axes, (Encoding(np.dtype("f4")),), Columns.of_unwritten((1,) * len(shape))),
            dims=tuple("xyz"[: len(shape)]),
        )

    with pytest.raises(ModelError, match="does not continue"):
        concatenate([array(3, 4), array(3, 5)], "x")
    with pytest.raises(ModelError, match="no dimension"):
        concatenate([array(3)], "time")
    with pytest.raises(ModelError, match="nothing"):
        concatenate([])
    with pytest.raises(ModelError, match="broadcast"):
        array(3).broadcast_to((4,))
    with pytest.raises(ModelError, match="absent"):
        VirtualArray.of(Tile((), (Encoding(np.dtype("i4")),), Columns.of_unwritten(())), dims=()).absent_value()


def test_a_group_finds_its_arrays_by_path() -> None:
    array = VirtualArray.of(Tile((), (Encoding(np.dtype("i4")),), Columns.of_unwritten(())), dims=())
    tree = VirtualGroup({"a": array}, {"g": VirtualGroup({"b": array})}, problems={"g/c": "external file"})
    assert tree["a"] is array
    assert tree.array("/g/b") is array
    assert [path for path, _ in tree.all_arrays()] == ["a", "g/b"]
    with pytest.raises(KeyError, match="There are: a, g/b"):
        tree.array("nothing")
    with pytest.raises(KeyError, match="external file"):
        tree.array("g/c")
    with pytest.raises(KeyError, match="is a group"):
        tree.array("g")


def test_one_element_beside_the_only_tile() -> None:
    """A place that no file covers, in an array of one tile: there is nothing, and that is no error."""
    chunks = Columns((2,), (Source("a.nc"),), np.asarray(0), np.array([0, 4]), np.asarray(4))
    tile = Tile((Axis.regular(4, 2),), (Encoding(np.dtype("<i2")),), chunks)
    array = VirtualArray((10,), np.dtype("<i2"), ("x",), (tile,), np.array([[2]]))
    assert array[0].tiles == array[8:].tiles == ()
    assert array[3].tiles[0].shape == ()
    assert array[0:0].tiles[0].shape == (0,)


@pytest.mark.parametrize(
    "values", [np.arange(6.0).reshape(2, 3).T, np.zeros((0, 3), "i2"), np.array(b"ab"), np.array(7)]
)
def test_values_in_memory_as_an_array(values: np.ndarray) -> None:
    array = VirtualArray.from_values(values, attributes={"units": "m"})
    assert (array.shape, array.dtype, array.attributes) == (values.shape, values.dtype, {"units": "m"})
    assert array.dims == tuple(f"dim_{number}" for number in range(values.ndim))
    if values.size:
        assert array.tiles[0].chunks[(0,) * values.ndim] == Inline(values.tobytes())


@pytest.mark.parametrize("values", [np.array(["a", None], object), np.zeros(2, "V0")])
def test_values_without_a_fixed_size_are_refused(values: np.ndarray) -> None:
    with pytest.raises(ModelError, match="cannot be stored inline"):
        VirtualArray.from_values(values)
