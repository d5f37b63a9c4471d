"""What numcodecs encodes is decoded to the same bytes."""

from __future__ import annotations

import warnings

import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from insitu.codecs import decode
from insitu.model import Codec, Encoding

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    COMPRESSORS = [
        numcodecs.Zlib(1),
        numcodecs.GZip(1),
        numcodecs.BZ2(1),
        numcodecs.LZMA(preset=1),
        numcodecs.LZMA(format=2, preset=1),
        numcodecs.LZMA(format=3, filters=[{"id": 0x21, "preset": 1}]),
        numcodecs.Zstd(1),
        numcodecs.Zstd(3, checksum=True),
        numcodecs.LZ4(1),
        *(numcodecs.Blosc(name, 5, shuffle) for name in numcodecs.blosc.list_compressors() for shuffle in (0, 1, 2)),
        numcodecs.CRC32(),
        numcodecs.CRC32(location="end"),
        numcodecs.Adler32(),
        numcodecs.CRC32C(),
        numcodecs.Fletcher32(),
        numcodecs.JenkinsLookup3(),
        numcodecs.JenkinsLookup3(initval=7, prefix=np.arange(3, dtype="u1")),
        numcodecs.Base64(),
    ]


def codec_of(codec: numcodecs.abc.Codec, prefix: str = "") -> Codec:
    configuration = dict(codec.get_config())
    return Codec(prefix + configuration.pop("id"), configuration)


@pytest.mark.parametrize("codec", COMPRESSORS, ids=str)
@pytest.mark.parametrize("prefix", ["", "numcodecs."])
def test_compressors(codec, prefix, any_dtype, make):
    array = make(any_dtype, (13, 17))
    data = codec.encode(np.frombuffer(array.tobytes(), np.uint8))
    encoding = Encoding(any_dtype, (codec_of(codec, prefix),))
    assert decode(data, encoding, (13, 17)).tobytes() == array.tobytes()
    given = np.zeros((13, 17), any_dtype)
    decode(memoryview(bytes(data)), encoding, (13, 17), out=given)
    assert given.tobytes() == array.tobytes()


@given(data=st.binary(min_size=1, max_size=3000), number=st.integers(0, len(COMPRESSORS) - 1))
def test_any_bytes(data, number):
    codec = COMPRESSORS[number]
    encoded = codec.encode(np.frombuffer(data, np.uint8))
    assert decode(encoded, Encoding(np.dtype("u1"), (codec_of(codec),)), (len(data),)).tobytes() == data


@given(data=st.binary(min_size=24, max_size=500), inner=st.integers(0, 8), outer=st.integers(0, len(COMPRESSORS) - 1))
def test_compressors_behind_one_another(data, inner, outer):
    first, second = COMPRESSORS[inner], COMPRESSORS[outer]
    encoded = second.encode(np.frombuffer(first.encode(np.frombuffer(data, np.uint8)), np.uint8))
    encoding = Encoding(np.dtype("u1"), (codec_of(first), codec_of(second)))
    assert decode(encoded, encoding, (len(data),)).tobytes() == data


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 12, 16])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000])
def test_shuffle(size, count):
    data = np.random.default_rng(0).integers(0, 256, size * count, dtype=np.uint8)
    codec = numcodecs.Shuffle(size)
    encoding = Encoding(np.dtype(f"V{size}"), (codec_of(codec), Codec("zlib")))
    encoded = numcodecs.Zlib(1).encode(codec.encode(data))
    assert decode(encoded, encoding, (count,)).tobytes() == data.tobytes()


NUMBERS = {
    "delta": (numcodecs.Delta("<i4"), "<i4"),
    "delta-narrow": (numcodecs.Delta("<i4", "<i2"), "<i4"),
    "delta-big-endian": (numcodecs.Delta(">i8", ">i2"), ">i8"),
    "delta-float": (numcodecs.Delta("<f8"), "<f8"),
    "delta-unsigned": (numcodecs.Delta("<u1"), "<u1"),
    "fixedscaleoffset": (numcodecs.FixedScaleOffset(offset=10, scale=4, dtype="<f8", astype="<i2"), "<f8"),
    "fixedscaleoffset-f4": (numcodecs.FixedScaleOffset(offset=-3.5, scale=0.1, dtype="<f4", astype="u1"), "<f4"),
    "fixedscaleoffset-int": (numcodecs.FixedScaleOffset(offset=2, scale=1, dtype="<i4", astype="<i2"), "<i4"),
    "quantize": (numcodecs.Quantize(digits=1, dtype="<f8", astype="<f4"), "<f8"),
    "quantize-same": (numcodecs.Quantize(digits=2, dtype=">f4"), ">f4"),
    "bitround": (numcodecs.BitRound(keepbits=5), "<f4"),
    "packbits": (numcodecs.PackBits(), "?"),
    "astype": (numcodecs.AsType(encode_dtype="<f4", decode_dtype="<f8"), "<f8"),
    "categorize": (numcodecs.Categorize(labels=["1", "2", "3"], dtype="<U1", astype="u1"), "<U1"),
}


@pytest.mark.parametrize("case", NUMBERS)
@pytest.mark.parametrize("shape", [(40,), (7, 9), (1,)])
@pytest.mark.parametrize("compressed", [False, True])
def test_numeric_codecs(case, shape, compressed, make):
    codec, dtype = NUMBERS[case]
    array = make(dtype, shape)
    encoded = np.ascontiguousarray(codec.encode(array.reshape(-1)))
    expected = np.asarray(codec.decode(encoded)).view(dtype).reshape(shape)
    chain = (codec_of(codec), Codec("zstd")) if compressed else (codec_of(codec),)
    data = numcodecs.Zstd().encode(encoded) if compressed else encoded.tobytes()
    decoded = decode(data, Encoding(np.dtype(dtype), chain), shape)
    assert decoded.dtype == np.dtype(dtype)
    assert decoded.tobytes() == expected.tobytes()


@given(hnp.arrays(np.bool_, st.integers(1, 70)))
def test_packed_booleans(values):
    encoded = np.asarray(numcodecs.PackBits().encode(values)).tobytes()
    assert (decode(encoded, Encoding(np.dtype("?"), (Codec("packbits"),)), values.shape) == values).all()


def test_filters_and_compressor_together(make):
    array = make("<i4", (50, 60))
    chain = [numcodecs.Delta("<i4"), numcodecs.Shuffle(4), numcodecs.Blosc(), numcodecs.CRC32()]
    data = array
    for codec in chain:
        data = codec.encode(data)
    encoding = Encoding(np.dtype("<i4"), tuple(codec_of(codec) for codec in chain))
    assert (decode(data, encoding, (50, 60)) == array).all()


TEXTS = np.array(["", "a", "häßlich", "日本語", "\U0001f30d x", "b" * 300], object)


@pytest.mark.parametrize("compressor", [None, *COMPRESSORS[:9]], ids=str)
def test_texts(compressor):
    codec = numcodecs.VLenUTF8()
    data, chain = codec.encode(TEXTS), (codec_of(codec),)
    if compressor is not None:
        data, chain = compressor.encode(data), (*chain, codec_of(compressor))
    values = decode(data, Encoding(np.dtype(object), chain), (2, 3))
    assert values.shape == (2, 3)
    assert values.reshape(-1).tolist() == TEXTS.tolist()
    given = np.empty((2, 3), object)
    decode(data, Encoding(np.dtype(object), chain), (2, 3), out=given)
    assert given.tolist() == values.tolist()
    turned = decode(data, Encoding(np.dtype(object), chain, order=(1, 0)), (3, 2))
    assert turned.tolist() == values.T.tolist()


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=20))
def test_byte_strings(items):
    array = np.array([*items, None], object)[:-1]
    data = numcodecs.VLenBytes().encode(array)
    assert decode(data, Encoding(np.dtype(object), (Codec("vlen-bytes"),)), (len(items),)).tolist() == items


def test_arrays_of_varying_length():
    array = np.empty(3, object)
    array[:] = [np.arange(3), np.arange(0), np.arange(5)]
    codec = numcodecs.VLenArray("<i4")
    decoded = decode(codec.encode(array), Encoding(np.dtype(object), (codec_of(codec),)), (3,))
    assert [item.tolist() for item in decoded] == [[0, 1, 2], [], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("name", ["JSON", "MsgPack"])
def test_objects_through_registered_classes(name):
    if not hasattr(numcodecs, name):
        pytest.skip("numcodecs was installed without it")
    codec = getattr(numcodecs, name)()
    array = np.array([["a", 1], [None, "long text" * 50]], object)
    encoded = codec.encode(array)
    decoded = decode(encoded, Encoding(np.dtype(object), (codec_of(codec),)), (2, 2))
    assert decoded.tolist() == array.tolist()
