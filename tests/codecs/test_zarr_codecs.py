"""Chunks that zarr-python writes, format 2 and 3, decode to what zarr reads."""

from __future__ import annotations

import asyncio
import json
import warnings

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

from insitu.codecs import decode
from insitu.errors import CodecError
from insitu.model import Codec, Encoding

V3 = {
    "bytes": {"serializer": BytesCodec(endian="little"), "compressors": None},
    "big-endian": {"serializer": BytesCodec(endian="big"), "compressors": None},
    "gzip": {"compressors": GzipCodec(level=1)},
    "zstd": {"compressors": ZstdCodec(level=1)},
    "zstd-checksum": {"compressors": ZstdCodec(level=1, checksum=True)},
    "blosc": {"compressors": BloscCodec(cname="zstd", shuffle="bitshuffle")},
    "crc32c": {"compressors": [Crc32cCodec()]},
    "blosc-crc32c": {"compressors": [BloscCodec(cname="lz4"), Crc32cCodec()]},
    "transpose": {"filters": [TransposeCodec(order=(1, 2, 0))], "compressors": ZstdCodec()},
    "transpose-big-endian": {
        "filters": [TransposeCodec(order=(2, 0, 1))],
        "serializer": BytesCodec(endian="big"),
        "compressors": GzipCodec(),
    },
}


def first_chunk(store: dict[str, object], key: str) -> bytes:
    return store[key].to_bytes()


@pytest.mark.parametrize("case", V3)
@pytest.mark.parametrize("dtype", ["?", "i1", "<i2", "<u4", "<f4", "<f8", "<c8", "<f2"])
def test_format_3(case, dtype, make):
    array = make(dtype, (4, 5, 6))
    store: dict[str, object] = {}
    written = zarr.create_array(
        zarr.storage.MemoryStore(store), shape=(4, 5, 6), chunks=(4, 5, 6), dtype=dtype, **V3[case]
    )
    written[...] = array
    metadata = json.loads(first_chunk(store, "zarr.json"))
    codecs = tuple(Codec(item["name"], item.get("configuration", {})) for item in metadata["codecs"])
    decoded = decode(first_chunk(store, "c/0/0/0"), Encoding(np.dtype(dtype), codecs), (4, 5, 6))
    assert decoded.dtype == np.dtype(dtype)
    assert decoded.tobytes() == array.tobytes()


def test_format_3_texts():
    texts = np.array([["a", "ßß"], ["", "long" * 30]], object)
    store: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = zarr.create_array(zarr.storage.MemoryStore(store), shape=(2, 2), chunks=(2, 2), dtype=str)
        written[...] = texts
    metadata = json.loads(first_chunk(store, "zarr.json"))
    codecs = tuple(Codec(item["name"], item.get("configuration", {})) for item in metadata["codecs"])
    decoded = decode(first_chunk(store, "c/0/0"), Encoding(np.dtype(object), codecs), (2, 2))
    assert decoded.tolist() == texts.tolist()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<i4", ">f8", "S4", "<U3", "<M8[ns]", ">i2"])
def test_format_2(order, dtype, make):
    array = make(dtype, (4, 6))
    store: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = zarr.create_array(
            zarr.storage.MemoryStore(store),
            shape=(4, 6),
            chunks=(4, 6),
            dtype=np.dtype(dtype),
            zarr_format=2,
            order=order,
        )
        written[...] = array
    metadata = json.loads(first_chunk(store, ".zarray"))
    steps = [*(metadata["filters"] or []), metadata["compressor"]]
    codecs = tuple(Codec(step.pop("id"), step) for step in steps if step)
    encoding = Encoding(np.dtype(dtype), codecs, order=(1, 0) if order == "F" else None)
    decoded = decode(first_chunk(store, "0.0"), encoding, (4, 6))
    assert decoded.shape == (4, 6)
    assert (decoded == array).all()


@pytest.fixture
def foreign_codecs(monkeypatch):
    """Zarr's own classes under names that are not in our table."""

    class Packed(ZstdCodec):
        @classmethod
        def from_dict(cls, data):
            return cls(**data.get("configuration", {}))

    class Turned(TransposeCodec):
        @classmethod
        def from_dict(cls, data):
            return cls(**data["configuration"])

    zarr.registry.register_codec("tests.packed", Packed)
    zarr.registry.register_codec("tests.turned", Turned)


@pytest.mark.usefixtures("foreign_codecs")
@pytest.mark.parametrize("inside_a_loop", [False, True])
def test_a_codec_that_only_zarr_knows(inside_a_loop, make):
    array = make("<i4", (4, 5))
    data = numcodecs.Zstd().encode(np.ascontiguousarray(array.T).tobytes())
    chain = (Codec("tests.turned", {"order": [1, 0]}), Codec("tests.packed", {"level": 1}))
    encoding = Encoding(np.dtype("<i4"), chain)

    async def inside() -> object:
        return decode(data, encoding, (4, 5))

    decoded = asyncio.run(inside()) if inside_a_loop else decode(data, encoding, (4, 5))
    assert (decoded == array).all()


@pytest.mark.usefixtures("foreign_codecs")
def test_damage_inside_a_foreign_codec():
    encoding = Encoding(np.dtype("<i4"), (Codec("tests.packed"),))
    with pytest.raises(CodecError, match=r"tests\.packed"):
        decode(b"not zstd at all", encoding, (4,))
