"""Compressors for floating-point fields, in the form that numcodecs writes."""

from __future__ import annotations

import imagecodecs
import numpy as np
import pytest

from insitu.codecs import decode
from insitu.errors import CodecError
from insitu.model import Codec, Encoding


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<i4", "<i8"])
@pytest.mark.parametrize("shape", [(40,), (9, 11), (5, 6, 7)])
@pytest.mark.parametrize("mode", [{"mode": "reversible"}, {"mode": "precision", "level": 12}])
def test_zfpy(dtype, shape, mode, make):
    array = make(dtype, shape)
    data = imagecodecs.zfp_encode(array, header=True, **mode)
    decoded = decode(data, Encoding(np.dtype(dtype), (Codec("zfpy", {"mode": 4}),)), shape)
    assert decoded.tobytes() == imagecodecs.zfp_decode(data).tobytes()
    if mode["mode"] == "reversible":
        assert decoded.tobytes() == array.tobytes()


def test_zfpy_of_another_type(make):
    data = imagecodecs.zfp_encode(make("<f4", (40,)), header=True)
    with pytest.raises(CodecError, match="holds float32"):
        decode(data, Encoding(np.dtype("<f8"), (Codec("zfpy"),)), (20,))


def test_zfpy_that_declares_more_than_the_chunk(make):
    data = bytearray(imagecodecs.zfp_encode(make("<f4", (40,)), header=True))
    data[4:10] = b"\xf2\xff\xff\xff\xff\xff"
    with pytest.raises(CodecError, match="declares"):
        decode(bytes(data), Encoding(np.dtype("<f4"), (Codec("zfpy"),)), (40,))
    with pytest.raises(CodecError, match="not a zfp stream"):
        decode(b"abc", Encoding(np.dtype("<f4"), (Codec("zfpy"),)), (40,))


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", "<i2", "<u4", "<i8"])
def test_pcodec(dtype, make):
    pytest.importorskip("pcodec")
    from numcodecs.pcodec import PCodec

    array = make(dtype, (30, 40))
    configuration = dict(PCodec().get_config())
    encoding = Encoding(np.dtype(dtype), (Codec(configuration.pop("id"), configuration),))
    data = PCodec().encode(array)
    assert decode(data, encoding, (30, 40)).tobytes() == array.tobytes()
    with pytest.raises(CodecError):
        decode(data, encoding, (30, 41))
    with pytest.raises(CodecError):
        decode(data[:50], encoding, (30, 40))
