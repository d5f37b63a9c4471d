"""Round trips of types, fill values, keys and codec chains through Zarr documents.

Modules: zarr_metadata/array_document.py, zarr_metadata/codec_documents.py, zarr_metadata/dtypes.py,
zarr_metadata/fill.py, zarr_metadata/json_fields.py, zarr_metadata/keys.py, zarr_metadata/naming.py,
zarr_metadata/to_documents.py, zarr_metadata/to_zarr.py, zarr_metadata/typed_attributes.py
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from insitu.errors import FormatError, UnsupportedError
from insitu.model import Axis, Codec, Columns, Encoding, Source, Tile, VirtualArray
from insitu.zarr_metadata import ChunkKeys, dtypes, fill, to_documents
from insitu.zarr_metadata import array_document as documents
from insitu.zarr_metadata.to_zarr import to_zarr_spec

DTYPES = [
    "?", "i1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16", "S5", "<U3", ">U3", "V6",
    "<M8[ns]", ">m8[10us]", [("a", "<i4"), ("b", "S3"), ("c", "<f8")],
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_types(dtype: Any) -> None:
    dtype = np.dtype(dtype)
    assert dtypes.from_v2(json.loads(json.dumps(dtypes.to_v2(dtype)))) == dtype
    little = dtype.newbyteorder("<")
    assert dtypes.from_v3(json.loads(json.dumps(dtypes.to_v3(dtype)))) == little


@given(data=st.data(), zarr_format=st.sampled_from([2, 3]))
def test_fill_values(data: st.DataObject, zarr_format: int) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    if dtype.kind in "fc":
        value = data.draw(arrays.arrays(dtype, 1, elements={"allow_subnormal": True}))
        value[np.isnan(value)] = np.nan
    else:
        value = np.frombuffer(data.draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize)), dtype)
        if dtype.kind in "bSUV" or dtype.names:  # not every run of bytes is a value of these
            value = np.frombuffer(
                np.array([1 if dtype.kind == "b" else 0]).astype("u1").tobytes() * dtype.itemsize, dtype
            )
    raw = value.tobytes()
    written = json.loads(json.dumps(fill.to_json(raw, dtype, zarr_format=zarr_format)))
    assert fill.from_json(written, dtype) == raw
    assert fill.from_json(None, dtype) is None


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("x", "<i4"),
        (1.5, "<i4"),
        (300, "i1"),
        ([1], "<c8"),
        ("%%", "S3"),
        ([1, 2, 3], "V2"),
        (2, "?"),
        ({}, "<f4"),
        ("0xzz", "<f4"),
        ("0x1ffffffff", "<f4"),
        (10**400, "<f4"),
        (10**30, "<M8[s]"),
        ([300], "S3"),
        ({}, "O"),
        ([1, 2, 3], "<c8"),
    ],
)
def test_values_that_are_none(value: Any, dtype: str) -> None:
    with pytest.raises(FormatError, match="fill_value"):
        fill.from_json(value, np.dtype(dtype))


@pytest.mark.parametrize("text", [",", "01", "4)", "é", "\ud800", [["a", ","]], [["a", "<f4", 3]]])
def test_types_that_are_none(text: Any) -> None:
    with pytest.raises(FormatError):
        dtypes.from_v2(text)


@pytest.mark.parametrize("unit", ["x", "s],<f4", "\ud800", ""])
def test_units_that_are_none(unit: str) -> None:
    with pytest.raises(FormatError, match="unit of time"):
        dtypes.from_v3({"name": "numpy.datetime64", "configuration": {"unit": unit}})


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=20),
    st.sampled_from([ChunkKeys("."), ChunkKeys("/"), ChunkKeys("/", "c"), ChunkKeys(".", "c")]),
)
def test_keys(cells: list[tuple[int, int]], keys: ChunkKeys) -> None:
    names = [keys.key(cell) for cell in cells]
    assert [keys.cell(name, 2) for name in names] == cells
    found = keys.cells(names, 2)
    assert found is not None
    assert [tuple(row) for row in found.tolist()] == cells


@pytest.mark.parametrize(
    "key", ["", "a", "0", "0.0.0", "0.-1", "0.1e3", "0. 1", "c/0/0", "0.٣", "0.0\n", "0." + "9" * 30]
)
def test_keys_that_are_none(key: str) -> None:
    assert ChunkKeys(".").cell(key, 2) is None
    assert ChunkKeys(".").cells(["0.0", key], 2) is None


CHAINS = [
    (), (Codec("zlib", {"level": 4}),), (Codec("shuffle", {"elementsize": 4}), Codec("zlib", {"level": 1})),
    (Codec("blosc", {"cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0}),),
    (Codec("zstd", {"level": 3}), Codec("fletcher32", {})),
    (Codec("delta", {"dtype": "<i4"}), Codec("gzip", {"level": 1})),
    (Codec("bz2", {"level": 1}),), (Codec("lzma", {}),), (Codec("crc32c", {}),),
]  # fmt: skip


@pytest.mark.parametrize("order", [None, (1, 0)])
@pytest.mark.parametrize("codecs", CHAINS)
def test_chains(codecs: tuple[Codec, ...], order: tuple[int, int] | None) -> None:
    encoding = Encoding(np.dtype("<i4"), codecs, order, b"\1\0\0\0")
    table = Columns((2, 2), (Source("/x"),), np.asarray(0), np.arange(4).reshape(2, 2) * 10, np.asarray(10))
    tile = Tile((Axis.regular(7, 4), Axis.regular(4, 2)), (encoding,), table)
    known = to_zarr_spec(
        VirtualArray.of(tile, dims=("y", "x"), attributes={"_FillValue": np.int32(1), "k": np.float32(2)})
    )
    list(known.blocks())
    second = to_documents.array_documents(known, 2)
    back = documents.from_v2(second[".zarray"], second[".zattrs"])
    third = documents.from_v3(json.loads(json.dumps(to_documents.array_documents(known, 3)["zarr.json"])))
    for found in (back, third):
        assert found.encoding.dtype == encoding.dtype
        assert found.encoding.order == order
        assert found.encoding.fill == encoding.fill
        assert [codec.name.removeprefix("numcodecs.") for codec in found.encoding.codecs] == [
            codec.name for codec in codecs
        ]
        assert found.dims == ("y", "x")
        assert found.attributes["k"] == 2
        assert [axis.size for axis in found.axes] == [4, 2]


@pytest.mark.parametrize(
    ("codecs", "message"),
    [
        ((Codec("szip"),), "szip"),
        ((Codec("fletcher32"), Codec("shuffle", {"elementsize": 8}), Codec("zlib")), "with a checksum behind them"),
    ],
    ids=["szip", "a checksum shuffled"],
)
def test_codecs_that_nobody_else_has(codecs: tuple[Codec, ...], message: str) -> None:
    tile = Tile((Axis.regular(4, 4),), (Encoding(np.dtype("<f8"), codecs),), Columns.of_inline((1,), b""))
    known = to_zarr_spec(VirtualArray.of(tile, dims=("x",)))
    for zarr_format in (2, 3):
        with pytest.raises(UnsupportedError, match=message):
            to_documents.array_documents(known, zarr_format)


def test_attributes_of_long_doubles() -> None:
    from insitu.zarr_metadata.to_documents import to_json_attributes

    wide = {"one": np.longdouble(1.5), "many": np.array([1.5, 2], np.longdouble), "complex": np.clongdouble(1 + 2j)}
    assert to_json_attributes(wide) == {"one": 1.5, "many": [1.5, 2.0], "complex": [1.0, 2.0]}
