"""Blosc2 frames that python-blosc2 writes: many chunks, n-dimensional arrays, chunks that are only
described.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from damaged_bytes import count_refused, flip
from insitu.codecs import decode
from insitu.errors import CodecError
from insitu.model import Codec, Encoding

blosc2 = pytest.importorskip("blosc2")


def decoded(frame, dtype, shape):
    return decode(bytes(frame), Encoding(np.dtype(dtype), (Codec("blosc2"),)), shape)


@pytest.mark.parametrize(
    ("shape", "chunks", "blocks"),
    [
        ((100,), (33,), (10,)),
        ((40, 50), (17, 23), (5, 7)),
        ((40, 50), (40, 50), (8, 50)),
        ((7, 8, 9), (3, 5, 4), (2, 2, 3)),
        ((2, 3, 4, 5), (2, 2, 2, 2), (1, 2, 1, 2)),
        ((1, 1), (1, 1), (1, 1)),
    ],
)
@pytest.mark.parametrize("dtype", ["u1", "<i2", "<f4", ">f8", "<c16", "S5"])
def test_arrays(shape, chunks, blocks, dtype, make):
    array = make(dtype, shape)
    stored = blosc2.asarray(array, chunks=chunks, blocks=blocks)
    assert decoded(stored.to_cframe(), dtype, shape).tobytes() == array.tobytes()


@pytest.mark.parametrize("codec", [blosc2.Codec.BLOSCLZ, blosc2.Codec.LZ4, blosc2.Codec.ZLIB, blosc2.Codec.ZSTD])
@pytest.mark.parametrize("filters", [[], [blosc2.Filter.SHUFFLE], [blosc2.Filter.BITSHUFFLE], [blosc2.Filter.DELTA]])
def test_inner_codecs(codec, filters, make):
    array = make("<i4", (3000,))
    frame = blosc2.SChunk(
        chunksize=4096, data=array, contiguous=True, cparams={"codec": codec, "filters": filters, "typesize": 4}
    )
    assert decoded(frame.to_cframe(), "<i4", (3000,)).tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: blosc2.zeros((100, 100), dtype="<f8", chunks=(30, 30)), np.zeros((100, 100))),
        (lambda: blosc2.full((100, 100), np.nan, dtype="<f8", chunks=(30, 30)), np.full((100, 100), np.nan)),
        (lambda: blosc2.nans((100, 100), dtype="<f8", chunks=(30, 30)), np.full((100, 100), np.nan)),
        (lambda: blosc2.full((100, 100), 2.5, dtype="<f8", chunks=(30, 30)), np.full((100, 100), 2.5)),
    ],
)
def test_described_chunks(made, expected):
    array = decoded(made().to_cframe(), "<f8", (100, 100))
    np.testing.assert_array_equal(array, expected)


def test_bare_chunk(make):
    array = make("<i4", (5000,))
    assert decoded(blosc2.compress2(array, typesize=4), "<i4", (5000,)).tobytes() == array.tobytes()


def test_frames_that_lie(make):
    array = make("<i4", (40, 50))
    frame = bytearray(blosc2.asarray(array, chunks=(17, 23), blocks=(5, 7)).to_cframe())
    with pytest.raises(CodecError, match="declares"):
        decoded(frame, "<i4", (40, 49))
    with pytest.raises(CodecError):
        decoded(frame, "<i4", (40, 51))
    for length in (3, 50, 100, len(frame) // 2):
        with pytest.raises(CodecError):
            decoded(frame[:length], "<i4", (40, 50))
    for place, layout, value in (
        (11, ">i", 10),
        (11, ">i", 10**9),
        (16, ">Q", 2**60),
        (39, ">q", -1),
        (39, ">q", 2**40),
        (48, ">i", 0),
    ):
        broken = bytearray(frame)
        struct.pack_into(layout, broken, place, value)
        with pytest.raises(CodecError):
            decoded(broken, "<i4", (40, 50))


def test_flipped_bytes_never_crash(make):
    array = make("<i4", (40, 50))
    frame = bytes(blosc2.asarray(array, chunks=(17, 23), blocks=(5, 7)).to_cframe())
    rng = np.random.default_rng(0)
    # Mostly the head, where the sizes are.
    places = [int(rng.integers(0, 220 if rng.random() < 0.7 else len(frame))) for _ in range(300)]

    def check(data: bytes) -> None:
        assert decoded(data, "<i4", (40, 50)).shape == (40, 50)

    assert count_refused(flip(frame, places, range(1, 256)), check)
