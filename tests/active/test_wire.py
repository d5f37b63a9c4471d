"""What travels arrives as it was; what was tampered with does not arrive at all.

Modules: active/transport.py, active/wire_array.py, active/wire_group.py, reducing/chunk_storage.py
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
from dataclasses import replace
from typing import Any

import cbor2
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import insitu
from insitu.active.transport import ServerClient
from insitu.active.wire import (
    dtype_from_wire,
    dtype_to_wire,
    integers_from_wire,
    integers_to_wire,
    selection_from_wire,
    selection_keys_to_wire,
    selection_to_wire,
    values_from_wire,
    values_to_wire,
)
from insitu.active.wire_array import array_from_wire, array_to_wire
from insitu.active.wire_group import group_from_wire, group_to_wire
from insitu.errors import InsituError, ModelError, SelectionError
from insitu.model import Codec, Encoding, Selection, VirtualArray
from insitu.model.packing import Packing, PackingKind, Packings
from insitu.reading import read_array
from insitu.reducing.chunk_storage import chunk_array, parse_encoding, spans_selection
from insitu.sources.retry_policy import TransientError
from mosaics import evaluate, mosaics


def travelled(data: Any) -> Any:
    return cbor2.loads(cbor2.dumps(data))


@settings(max_examples=30)
@given(mosaics())
def test_mosaics_travel(case: Any) -> None:
    found = array_from_wire(travelled(array_to_wire(case.array)))
    assert (found.shape, found.dtype) == (case.array.shape, case.array.dtype)
    np.testing.assert_array_equal(evaluate(found, case.disk), case.values)


@settings(max_examples=40)
@given(st.lists(st.integers(-(2**62), 2**62), max_size=50), st.booleans())
def test_columns_travel(numbers: list[int], many: bool) -> None:
    column = np.array(numbers * (40 if many else 1), np.int64)
    np.testing.assert_array_equal(integers_from_wire(travelled(integers_to_wire(column))), column)


def test_a_thousand_chunks_are_small() -> None:
    offset = np.cumsum(np.random.default_rng(0).integers(900_000, 1_100_000, 1000))
    assert len(cbor2.dumps(integers_to_wire(offset))) < 4000
    assert len(cbor2.dumps(integers_to_wire(np.full(100_000, 7)))) < 40


@pytest.mark.parametrize(
    "dtype", ["<f4", ">i2", "?", "<M8[ns]", "<U5", "S3", "<c16", [("a", "<i4"), ("b", "<f8", (2,))]]
)
def test_values_travel(dtype: Any) -> None:
    values = np.zeros((2, 3), dtype)
    if values.dtype.kind in "fiu":
        values[...] = np.arange(6).reshape(2, 3)
    assert dtype_from_wire(travelled(dtype_to_wire(values.dtype))) == values.dtype
    found = values_from_wire(travelled(values_to_wire(values)))
    np.testing.assert_array_equal(found, values)
    assert found.dtype.newbyteorder("=") == values.dtype.newbyteorder("=")
    texts = np.array([["a", None], [3, "b"]], object)
    np.testing.assert_array_equal(values_from_wire(travelled(values_to_wire(texts))), texts)


@pytest.mark.parametrize("key", [np.s_[...], np.s_[2, ::-1, 1:4], np.s_[[3, 0, 0], 1], np.s_[::2, [], 5]])
def test_selections_travel(key: Any) -> None:
    values = np.arange(6 * 5 * 7).reshape(6, 5, 7)
    selection = Selection.of(key, values.shape)
    for wire in (selection_to_wire(selection), selection_keys_to_wire(key)):
        found = selection_from_wire(travelled(wire), values.shape)
        assert found.result_shape == selection.result_shape
        for one, other in zip(found.selectors, selection.selectors, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "bad",
    [
        5,
        ["..."] * 2,
        [0, 0, 0, 0],
        [[0, 0, 3]],
        [[0, 1, 99]],
        [[-1, 1, 2]],
        [{"a": 1}],
        [None],
        [True],
        [{"slice": [0, 1, 2, 3]}],
        [1.5],
    ],
)
def test_selections_that_select_nothing(bad: Any) -> None:
    with pytest.raises((SelectionError, ModelError)):
        selection_from_wire(bad, (6, 5, 7))


def test_packings_travel(tmp_path: Any) -> None:
    kind = PackingKind(dtype="<f4", masked="<f4", scaled="<f4", scale_dtype="<f8", offset_dtype="<f8")
    rows = [Packing(0.5, 1.0, (np.int16(-9),), kind), Packing(0.25, 2.0, (np.int16(-8), np.int16(-7)), kind)]
    path = tmp_path / "x"
    path.write_bytes(np.array([2, -9, 4, -8], "<i2").tobytes())
    array = chunk_array(str(path), 0, 8, Encoding(np.dtype("<i2")), None)
    for row in range(2):
        tile = replace(
            array.tiles[0], packings=Packings.of(rows), chunks=replace(array.tiles[0].chunks, packing=np.asarray(row))
        )
        packed = replace(array, dtype=np.dtype("f4"), tiles=(tile,))
        np.testing.assert_array_equal(read_array(array_from_wire(travelled(array_to_wire(packed)))), read_array(packed))


def _packed_array(path: Any) -> VirtualArray:
    kind = PackingKind(dtype="<f4", masked="<f4", scaled="<f4", scale_dtype="<f8", offset_dtype="<f8")
    array = chunk_array(str(path), 0, 48, Encoding(np.dtype("<i2")), (4, 6))
    tile = replace(array.tiles[0], packings=Packings.of([Packing(0.5, 1.0, (np.int16(-9),), kind)]))
    return replace(array, dtype=np.dtype("f4"), tiles=(tile,), fill_value=np.float32(3))


def _mutated(data: Any, rng: random.Random) -> Any:
    """The same map with one thing changed somewhere."""
    data = copy.deepcopy(data)
    node, path = data, []
    while isinstance(node, (dict, list)) and node and (rng.random() < 0.8 or not path):
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        path.append((node, key))
        node = node[key]
    parent, key = path[-1]
    parent[key] = rng.choice([None, -1, 0, 1, 2**40, 2**70, "x", b"\0\1", [], {}, [1], True, 1.5, [[1, 2], [3]]])
    return data


@pytest.mark.filterwarnings("ignore:only the size:insitu.errors.InsituWarning")
def test_tables_that_were_tampered_with(tmp_path: Any) -> None:
    """An error of ours, or another array that can be read or not; never anything else."""
    path = tmp_path / "x"
    path.write_bytes(np.arange(24, dtype="<i4").tobytes())
    array = chunk_array(str(path), 0, 96, Encoding(np.dtype("<i4"), (Codec("zlib", {"level": 1}),)), (4, 6))[:, ::2]
    packed = _packed_array(path)
    good = [travelled(array_to_wire(array)), travelled(array_to_wire(packed))]
    rng = random.Random(3)
    for number in range(3000):
        try:
            found = array_from_wire(_mutated(good[number % 2], rng))
            if found.size < 10_000 and not any(t.chunks.shape and max(t.chunks.shape) > 10_000 for t in found.tiles):
                read_array(found)
        except InsituError:
            pass


def test_groups_that_were_tampered_with(tmp_path: Any) -> None:
    variables = {"t": (("a", "b"), np.arange(12.0).reshape(3, 4), {"u": "K", "v": np.array([1, 2])})}
    xr.Dataset(variables, attrs={"title": "x", "numbers": [1, 2]}).to_netcdf(tmp_path / "x.nc")
    good = travelled(group_to_wire(insitu.scan(tmp_path / "x.nc", decode=False)))
    assert list(group_from_wire(good).arrays) == ["t"]
    rng = random.Random(4)
    for _ in range(1000):
        with contextlib.suppress(InsituError):
            group_from_wire(_mutated(good, rng))


@pytest.mark.parametrize(
    ("extent", "step"), [(5, 1 << 62), (3, 1 << 62), ((1 << 62) + 1, 4), (2, -(1 << 63)), (1 << 62, 0), (2, 6)]
)
def test_cells_that_reach_beyond_their_chunk(extent: int, step: int) -> None:
    """Also where the products of 64 bits come out small."""
    array = chunk_array("x", 0, 24, Encoding(np.dtype("u1")), (4, 6))[:, ::2]
    table = travelled(array_to_wire(array))
    assert array_from_wire(table).shape == (4, 3)
    table["shape"][1] = extent
    axis = table["tiles"][0]["axes"][1]
    axis["extent"]["all"], axis["step"]["all"] = extent, step
    with pytest.raises(ModelError, match=r"that its chunk does not have|2\*\*63 bytes"):
        array_from_wire(table)


def test_an_inline_chunk_beyond_the_inline_bytes() -> None:
    array = chunk_array("x", 0, 24, Encoding(np.dtype("u1")), (4, 6))
    table = travelled(array_to_wire(array))
    tile = table["tiles"][0]
    tile["source"]["all"], tile["offset"]["all"], tile["length"]["all"] = -3, (1 << 63) - 1, 24
    with pytest.raises(ModelError, match="inline"):
        array_from_wire(table)


def test_responses_that_are_cut_or_damaged() -> None:
    """They are asked for again: only a complete response counts."""
    client = ServerClient("http://127.0.0.1:9")
    answer = {"job": 0, "values": {"mean": values_to_wire(np.arange(3.0))}}
    good = cbor2.dumps(answer) + cbor2.dumps({"done": 1, "chunks": 3})
    assert client._decode_complete(good)[0] == answer
    for end in range(len(good)):
        with pytest.raises(TransientError):
            client._decode_complete(good[:end])
    rng = random.Random(5)
    for _ in range(2000):
        data = bytearray(good)
        data[rng.randrange(len(data))] = rng.randrange(256)
        at = rng.randrange(len(data))
        data[at:at] = rng.choice([b"\xc1", b"\xc4", b"\xd8\x1d", b"\xd8\x23", b"\x9f", b"\xff"])
        with contextlib.suppress(TransientError, InsituError):
            client._decode_complete(bytes(data))


def test_chunks_and_spans() -> None:
    encoding = parse_encoding(
        {
            "dtype": "<f4",
            "codecs": [{"id": "shuffle", "elementsize": 4}, {"name": "zlib", "configuration": {"level": 3}}],
        }
    )
    assert [codec.name for codec in encoding.codecs] == ["shuffle", "zlib"]
    assert json.dumps(dict(encoding.codecs[1].configuration)) == '{"level": 3}'
    with pytest.raises(ModelError, match="how many elements"):
        chunk_array("x", 0, 10, encoding, None)
    with pytest.raises(ModelError, match="must not be negative"):
        chunk_array("x", -1, 8, Encoding(np.dtype("i4")), None)
    with pytest.raises(SelectionError, match="outside of a chunk"):
        spans_selection([(3, 9)], 10)
    with pytest.raises(ModelError):
        parse_encoding({"codecs": []})
