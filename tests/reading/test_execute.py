"""Plan and execute against NumPy: any mosaic, any selection, whole chunks and cut-out ones.

Modules: reading/read_statistics.py, reading/task_batches.py, reading/tile_plan.py
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.errors import CodecError, SelectionError, TruncatedError
from insitu.model import (
    Axis,
    Codec,
    Columns,
    Encoding,
    Packing,
    PackingKind,
    Packings,
    Selection,
    Source,
    Tile,
    VirtualArray,
    concatenate,
)
from insitu.reading import SourcePool, plan_read, read_array
from insitu.reading.execute import execute
from insitu.reading.task_batches import BATCH_ROWS
from insitu.sources import MemorySource
from mosaics import ABSENT_VALUE, Case, bases, basic_keys, chunked, mosaics


def on_disk(case: Case) -> SourcePool:
    return SourcePool(opener=lambda source: MemorySource(case.disk[source.url]))


def values_of(case: Case, key: Any = ..., request_bytes: int = 1 << 14) -> np.ndarray:
    selection = Selection.of(key, case.array.shape)
    out = np.full(selection.result_shape, 77, case.array.dtype)
    if out.size:
        execute(plan_read(case.array, selection, request_bytes=request_bytes), out, on_disk(case))
    return out


@given(mosaics(4), st.sampled_from([0, 20, 1 << 20]))
@settings(max_examples=100)
def test_everything_of_a_mosaic(case: Case, request_bytes: int) -> None:
    np.testing.assert_array_equal(values_of(case, ..., request_bytes), case.values)


@given(st.data(), st.sampled_from([0, 20, 1 << 20]))
@settings(max_examples=100)
def test_basic_selections(data: st.DataObject, request_bytes: int) -> None:
    case = data.draw(mosaics(3))
    key = data.draw(basic_keys(case.values.shape))
    np.testing.assert_array_equal(values_of(case, key, request_bytes), case.values[key])


@given(st.data(), st.sampled_from([0, 20, 1 << 20]))
@settings(max_examples=100)
def test_orthogonal_selections(data: st.DataObject, request_bytes: int) -> None:
    case = data.draw(mosaics(2))
    key: list[Any] = []
    expected = case.values
    for axis, length in enumerate(case.values.shape):
        if length and data.draw(st.booleans()):
            index = np.array(data.draw(st.lists(st.integers(-length, length - 1), max_size=8)), np.int64)
            key.append(index)
            expected = np.take(expected, index, axis)
        else:
            key.append(slice(None))
    np.testing.assert_array_equal(values_of(case, tuple(key), request_bytes), expected)


@given(st.data())
def test_reading_a_selection_is_reading_the_selected(data: st.DataObject) -> None:
    case = data.draw(mosaics(2))
    key = data.draw(basic_keys(case.values.shape))
    selected = Case(case.array[key], case.values[key], case.disk)
    np.testing.assert_array_equal(values_of(selected), values_of(case, key))


@given(bases(), st.sampled_from(["f8", "c16", "O"]))
def test_out_of_a_wider_type(case: Case, dtype: str) -> None:
    selection = Selection.of(..., case.array.shape)
    out = np.empty(case.array.shape, dtype)
    execute(plan_read(case.array, selection), out, on_disk(case))
    np.testing.assert_array_equal(out, case.values.astype(dtype))


def compressed(values: np.ndarray, chunk: int, url: str, damage: int | None = None) -> Case:
    """A one-dimensional file of zlib chunks."""
    blocks = [zlib.compress(np.resize(values[i : i + chunk], chunk).tobytes()) for i in range(0, len(values), chunk)]
    if damage is not None:
        blocks[damage] = blocks[damage][:-3] + b"xyz"
    lengths = np.array([len(block) for block in blocks])
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    tile = Tile(
        (Axis.regular(len(values), chunk),),
        (Encoding(values.dtype, (Codec("zlib"),)),),
        Columns((len(blocks),), (Source(url),), np.asarray(0), offsets, lengths),
    )
    return Case(VirtualArray.of(tile, dims=("x",)), values, {url: b"".join(blocks)})


def test_many_batches_on_threads() -> None:
    values = np.arange(4 * BATCH_ROWS * 10 + 3, dtype="<i8")
    case = compressed(values, 10, "many")
    np.testing.assert_array_equal(values_of(case), values)
    np.testing.assert_array_equal(values_of(case, slice(None, None, -7)), values[::-7])


def test_a_damaged_chunk_is_named() -> None:
    values = np.arange(4 * BATCH_ROWS * 10, dtype="<i8")
    case = compressed(values, 10, "damaged", damage=1500)
    with pytest.raises(CodecError) as caught:
        execute(
            plan_read(case.array, Selection.of(..., case.array.shape)),
            np.empty(values.shape, values.dtype),
            on_disk(case),
            name="tas",
        )
    place = caught.value.place
    assert (place["url"], place["variable"], place["chunk"]) == ("damaged", "tas", (1500,))
    assert place["offset"] == int(case.array.tiles[0].chunks[1500].offset)
    assert np.array_equal(values_of(case, slice(0, 15000)), values[:15000])  # the others can still be had


def test_a_shrunk_file_is_an_error() -> None:
    case = compressed(np.arange(100, dtype="<i8"), 10, "short")
    case.disk["short"] = case.disk["short"][:-5]
    with pytest.raises(TruncatedError, match="short") as caught:
        values_of(case)
    assert caught.value.url == "short"


def test_an_uncompressed_chunk_that_is_too_short_is_an_error() -> None:
    case = chunked(np.arange(10, dtype="<i4"), (5,), "f")
    table = case.array.tiles[0].chunks
    wrong = Columns(table.shape, table.sources, table.source, table.offset, np.asarray(19))
    array = VirtualArray.of(Tile(case.array.tiles[0].axes, case.array.tiles[0].encodings, wrong), dims=("a",))
    for key in (..., slice(1, 3)):
        with pytest.raises(CodecError):
            values_of(Case(array, case.values, case.disk), key)


def test_only_the_needed_bytes_of_an_uncompressed_chunk_are_fetched() -> None:
    case = chunked(np.arange(100 * 100, dtype="<f8").reshape(100, 100), (100, 100), "f")
    small = plan_read(case.array, Selection.of(np.s_[3, 10:20], case.array.shape))
    assert small.nbytes == 80
    column = plan_read(case.array, Selection.of(np.s_[:, 5], case.array.shape), request_bytes=0)
    assert column.nbytes == 800
    assert len(column.offset) == 100
    column = plan_read(case.array, Selection.of(np.s_[:, 5], case.array.shape), request_bytes=1 << 20)
    assert len(column.offset) == 1  # where requests are dear, one that covers all


def test_cells_that_share_a_chunk_decode_it_once() -> None:
    case = compressed(np.arange(100, dtype="<i8"), 50, "f")
    taken = case.array.take(0, np.array([3, 90, 4, 91, 5, 92]))
    out = np.empty(6, "<i8")
    tally = execute(plan_read(taken, Selection.of(..., (6,))), out, on_disk(case))
    assert out.tolist() == [3, 90, 4, 91, 5, 92]
    assert tally.bytes_decoded == 2 * 50 * 8


def test_absent_places_read_as_the_fill_value() -> None:
    case = chunked(np.arange(6, dtype="<i4"), (2,), "f")
    taken = Case(case.array.take(0, np.array([5, -1, 0])), np.array([5, ABSENT_VALUE, 0]), case.disk)
    np.testing.assert_array_equal(values_of(taken), taken.values)


@pytest.mark.parametrize("state", ["stored", "inline", "unwritten", "text"])
def test_scalars(state: str) -> None:
    dtype = np.dtype(object) if state == "text" else np.dtype("<i4")
    data = np.array(5, "<i4").tobytes()
    codecs = (Codec("vlen-utf8"),) if state == "text" else ()
    if state == "text":
        data = bytes([1, 0, 0, 0, 2, 0, 0, 0]) + b"hi"
    table = {
        "unwritten": Columns.of_unwritten(()),
        "inline": Columns.of_inline((), data),
        "stored": Columns((), (Source("f"),), np.asarray(0), np.asarray(2), np.asarray(4)),
        "text": Columns.of_inline((), data),
    }[state]
    fill = None if state == "text" else np.array(7, "<i4").tobytes()
    array = VirtualArray.of(Tile((), (Encoding(dtype, codecs, None, fill),), table), dims=())
    case = Case(array, np.array(0), {"f": b"xx" + data})
    expected = {"unwritten": 7, "inline": 5, "stored": 5, "text": "hi"}[state]
    assert values_of(case)[()] == expected
    assert values_of(Case(array.expand_dims(0, "x", 3), case.values, case.disk)).tolist() == [expected] * 3


def test_a_corner_of_an_axis_longer_than_memory() -> None:
    axes = (Axis.regular(2**40, 2**40), Axis.regular(2**20, 2**20))
    table = Columns((1, 1), (Source("f"),), np.asarray(0), np.asarray(0), np.asarray(2**60))
    array = VirtualArray.of(Tile(axes, (Encoding(np.dtype("u1")),), table), dims=("x", "y"))
    corner = plan_read(array, Selection.of(np.s_[5:8, 100:110], array.shape))
    assert corner.offset.tolist() == [5 * 2**20 + 100 + i * 2**20 for i in range(3)]
    assert corner.length.tolist() == [10] * 3


def test_wrong_outputs_are_refused() -> None:
    case = chunked(np.arange(6, dtype="<i4"), (2,), "f")
    with pytest.raises(SelectionError, match="out has shape"):
        read_array(case.array, out=np.empty(5))
    with pytest.raises(SelectionError, match="cannot be put into"):
        read_array(case.array, out=np.empty(6, bool))
    assert read_array(case.array, slice(3, 3)).shape == (0,)


@pytest.mark.parametrize("key", [np.s_[...], np.s_[3:17:2], np.s_[[0, 19, 5]], np.s_[4]])
@pytest.mark.parametrize("codec", [True, False])
def test_packings_are_undone_chunk_by_chunk(key: Any, codec: bool) -> None:
    """Two files with a scale of their own each, joined: each part by its own packing."""
    parts, values, disk = [], [], {}
    for number, scale in enumerate((0.5, 0.25)):
        stored = np.arange(10, dtype="<i2") + number
        case = compressed(stored, 4, f"f{number}") if codec else chunked(stored, (4,), f"f{number}")
        tile = case.array.tiles[0]
        kind = PackingKind(dtype="float32", scale_dtype="float32")
        packings = Packings.of([Packing(scale=scale, missing=(np.int16(3),), kind=kind)])
        tile = Tile(tile.axes, tile.encodings, tile.chunks, packings)
        parts.append(replace(VirtualArray.of(tile, dims=("x",)), dtype=np.dtype("f4")))
        values.append(np.where(stored == 3, np.nan, stored * np.float32(scale)).astype("f4"))
        disk |= case.disk
    joined = concatenate(parts)
    assert len(joined.tiles) == 1
    expected = np.concatenate(values)
    np.testing.assert_array_equal(values_of(Case(joined, expected, disk), key), expected[key])
