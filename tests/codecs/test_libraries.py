"""What happens where a library is missing: another does the work, or the error says what to
install.

Modules: codecs/compressors/aec.py, codecs/compressors/blosc.py, codecs/compressors/deflate.py,
codecs/compressors/images.py, codecs/compressors/zstandard.py, codecs/filters/bitshuffle.py,
codecs/growing_buffer.py, codecs/linked_libraries.py
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib

import numcodecs
import numpy as np
import pytest

from codecs_encoded import grey_png
from insitu.codecs import decode, libraries, linked_libraries, prepare
from insitu.errors import CodecError, UnknownCodecError, UnsupportedError
from insitu.model import Codec, Encoding

PAYLOAD = np.random.default_rng(0).integers(0, 9, 4000, dtype=np.uint8).tobytes()


@pytest.fixture
def without(monkeypatch):
    """Hide libraries, and forget what was prepared with them."""

    def forget() -> None:
        prepare.cache_clear()
        linked_libraries.linked_libraries.cache_clear()
        linked_libraries.get_decode_boxes.cache_clear()

    def hide(*names: str) -> None:
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)
        forget()

    yield hide
    monkeypatch.undo()
    forget()


FALLBACKS = {
    "zlib": zlib.compress,
    "gzip": gzip.compress,
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "zstd": numcodecs.Zstd().encode,
    "blosc": numcodecs.Blosc().encode,
    "lz4": numcodecs.LZ4().encode,
    "crc32": lambda data: numcodecs.CRC32().encode(np.frombuffer(data, np.uint8)),
    "adler32": lambda data: numcodecs.Adler32().encode(np.frombuffer(data, np.uint8)),
    "fletcher32": lambda data: numcodecs.Fletcher32().encode(np.frombuffer(data, np.uint8)),
}


@pytest.mark.parametrize("name", FALLBACKS)
@pytest.mark.parametrize("stacked", [False, True])
def test_without_imagecodecs_and_kernels(name, stacked, without):
    data = FALLBACKS[name](zlib.compress(PAYLOAD) if stacked else PAYLOAD)
    without("imagecodecs", "insitu.codecs._kernels", "isal.isal_zlib")
    codecs = (Codec("zlib"), Codec(name)) if stacked else (Codec(name),)
    encoding = Encoding(np.dtype("u1"), codecs)
    assert decode(data, encoding, (4000,)).tobytes() == PAYLOAD
    for size in (3999, 4001):
        with pytest.raises(CodecError):
            decode(data, encoding, (size,))
    with pytest.raises(CodecError):
        decode(bytes(data)[: len(data) // 2], encoding, (4000,))


def test_without_kernels_everything_still_decodes(without, make):
    without("insitu.codecs._kernels")
    array = make("<i4", (20, 30))
    data = zlib.compress(array.reshape(-1).view(np.uint8).reshape(-1, 4).T.tobytes())
    encoding = Encoding(array.dtype, (Codec("shuffle", {"elementsize": 4}), Codec("zlib")))
    assert (decode(data, encoding, (20, 30)) == array).all()
    part = np.zeros((3, 4), "<i4")
    prepare(encoding, (20, 30)).place(data, (slice(2, 5), slice(1, 5)), part)
    assert (part == array[2:5, 1:5]).all()


@pytest.mark.parametrize(
    "name", ["szip", "lzf", "hdf5_lz4", "lz4_frame", "bitshuffle", "blosc2", "snappy", "brotli", "zfpy"]
)
def test_the_error_says_what_to_install(name, without):
    without("imagecodecs", "zfpy")
    configuration = {
        "options_mask": 4,
        "pixels_per_block": 8,
        "bits_per_pixel": 8,
        "pixels_per_scanline": 8,
    }
    with pytest.raises(UnknownCodecError, match=re.escape("pip install 'insitu[codecs]'")) as caught:
        prepare(Encoding(np.dtype("u1"), (Codec(name, configuration if name == "szip" else {}),)), (8,))
    assert caught.value.place["codec"] == name
    assert caught.value.kind == "unknown-codec"


def test_pcodec_says_what_to_install(without):
    without("pcodec", "pcodec.standalone")
    with pytest.raises(UnknownCodecError, match=re.escape("pip install 'insitu[codecs]'")):
        prepare(Encoding(np.dtype("<i4"), (Codec("pcodec"),)), (8,))


@pytest.mark.skipif(not linked_libraries.linked_libraries(), reason="the kernels were built without libraries")
@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_one_chunk_by_the_linked_library(codec):
    decompress = linked_libraries.find_decompress(codec)
    assert decompress is not None
    data = bytes(FALLBACKS[codec](PAYLOAD))
    out = np.zeros(4000, np.uint8)
    assert decompress(data, out)
    assert out.tobytes() == PAYLOAD
    assert not decompress(data, np.zeros(3999, np.uint8))
    assert not decompress(data, np.zeros(4001, np.uint8))
    assert not decompress(data[:-9], out)
    assert linked_libraries.find_decompress("blosc") is None


def test_the_linked_library_needs_no_declared_size(without):
    """As GDAL and TensorStore write frames: a minimal installation reads them."""
    if "zstd" not in linked_libraries.linked_libraries():
        pytest.skip("the kernels were built without Zstandard")
    without("imagecodecs")
    frame = bytes(numcodecs.Zstd().encode(PAYLOAD))
    encoding = Encoding(np.dtype("u1"), (Codec("zstd"),))
    assert decode(frame[:4] + b"\0" + b"\x58" + frame[7:], encoding, (4000,)).tobytes() == PAYLOAD


def test_zstd_fallback_needs_the_size(without):
    without("imagecodecs", "insitu.codecs._kernels")
    encoding = Encoding(np.dtype("u1"), (Codec("zstd"),))
    frame = bytes(numcodecs.Zstd().encode(PAYLOAD))
    # The same frame with a descriptor that leaves the size out (window of 2 MiB instead).
    unsized = frame[:4] + b"\0" + b"\x58" + frame[7:]
    with pytest.raises(CodecError, match="does not declare its size"):
        decode(unsized, encoding, (4000,))
    with pytest.raises(CodecError, match="not a Zstandard frame"):
        decode(b"x" * 50, encoding, (4000,))


def test_find():
    assert libraries.find_function("no_such_module", "x") is None
    assert libraries.find_function("zlib", "no_such_function") is None
    assert libraries.find_function("zlib", "crc32") is zlib.crc32


def test_an_image_that_is_wider_than_libpng_reads_is_not_called_damaged():
    pytest.importorskip("imagecodecs")
    encoding = Encoding(np.dtype("u1"), (Codec("imagecodecs_png"),))
    rows = b"\0ab\0cd"
    assert decode(grey_png(2, rows), encoding, (2, 2)).tobytes() == b"abcd"
    with pytest.raises(UnsupportedError, match="libpng reads images of up to 1,000,000"):
        decode(grey_png(1_000_001, bytes(1_000_002)), encoding, (1, 1_000_001))
    with pytest.raises(CodecError, match="imagecodecs_png cannot decode"):
        decode(grey_png(2, rows)[:30], encoding, (2, 2))
