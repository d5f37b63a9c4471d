"""Checksums are verified, in every form that the libraries accept."""

from __future__ import annotations

import h5py
import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from insitu.codecs import decode, libraries
from insitu.codecs.filters.checksums import fletcher32_numpy
from insitu.errors import ChecksumError, CodecError
from insitu.model import Codec, Encoding

CODECS = [
    numcodecs.Fletcher32(),
    numcodecs.CRC32(),
    numcodecs.CRC32(location="end"),
    numcodecs.CRC32C(),
    numcodecs.CRC32C(location="start"),
    numcodecs.Adler32(),
    numcodecs.Adler32(location="end"),
    numcodecs.JenkinsLookup3(),
]


@pytest.mark.parametrize("codec", CODECS, ids=str)
@given(data=st.binary(min_size=1, max_size=200), place=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_flipped_byte_raises(codec, data, place, flip):
    configuration = dict(codec.get_config())
    encoding = Encoding(np.dtype("u1"), (Codec(configuration.pop("id"), configuration),))
    stored = bytearray(codec.encode(np.frombuffer(data, np.uint8)))
    assert decode(bytes(stored), encoding, (len(data),)).tobytes() == data
    stored[place % len(stored)] ^= flip
    if codec.codec_id == "fletcher32" and flip == 255:
        return  # 0x0000 and 0xFFFF are the same number to a sum that folds its carries
    with pytest.raises(ChecksumError):
        decode(bytes(stored), encoding, (len(data),))


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_too_short_for_a_checksum(codec):
    configuration = dict(codec.get_config())
    encoding = Encoding(np.dtype("u1"), (Codec(configuration.pop("id"), configuration),))
    with pytest.raises(CodecError):
        decode(b"abc", encoding, (1,))


@pytest.mark.parametrize("name", ["insitu.codecs._kernels:fletcher32", "imagecodecs:h5checksum_fletcher32", ""])
@given(
    data=st.one_of(st.binary(max_size=3000), st.integers(0, 3000).map(bytes), st.integers(0, 3000).map(b"\xff".__mul__))
)
def test_fletcher32_everywhere_the_same(name, data):
    way = libraries.find_function(*name.split(":")) if name else fletcher32_numpy
    if way is None:
        pytest.skip("not installed")
    array = np.frombuffer(data, np.uint8)
    assert way(array) == (_by_the_book(data))


def _by_the_book(data: bytes) -> int:
    """Fletcher's sums as HDF5 defines them, word by word."""
    low = high = 0
    if len(data) % 2:
        data += b"\0"
    for word in np.frombuffer(data, ">u2").tolist():
        low += word
        high += low
    return (high and (high - 1) % 65535 + 1) << 16 | (low and (low - 1) % 65535 + 1)


def test_the_old_byte_order_that_hdf5_accepts(tmp_path):
    """Sums of files from before HDF5 1.6.3 are swapped; the library reads them, and so do we."""
    data = np.arange(10, dtype="<i4").tobytes()
    stored = bytes(numcodecs.Fletcher32().encode(np.frombuffer(data, np.uint8)))
    a, b, c, d = stored[-4:]
    swapped = stored[:-4] + bytes([b, a, d, c])
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (10,), "<i4", chunks=(10,), fletcher32=True)
        dataset.id.write_direct_chunk((0,), swapped)
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["x"][...].tolist() == list(range(10))
    assert decode(swapped, Encoding(np.dtype("<i4"), (Codec("fletcher32"),)), (10,)).tolist() == list(range(10))


def test_the_error_says_what_is_wrong():
    with pytest.raises(ChecksumError, match="fletcher32 checksum is") as caught:
        decode(bytes(16) + b"abcd", Encoding(np.dtype("<i4"), (Codec("fletcher32"),)), (4,))
    assert caught.value.kind == "checksum"
    assert caught.value.place["codec"] == "fletcher32"
