"""Where do the compressors' own functions lie?

Imagecodecs' wheels bring libdeflate and Zstandard as shared libraries. For chunks of a few kilobytes the call through Python costs as much as
the decoding, so the kernel calls those libraries itself, for many chunks at once: it is told the addresses that are found here. Where there is no
such library, or it does not do what it should, there is None, and chunks are decoded one by one.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from insitu.codecs.libraries import Function, find, need

__all__ = ["Library", "decode_boxes", "library"]

Library = tuple[int, int, int, int]
"""Which kind it is; the addresses of what makes a state, decompresses, and ends the state."""

_NAMES = {
    "zlib": (
        0,
        "deflate",
        ("libdeflate_alloc_decompressor", "libdeflate_zlib_decompress", "libdeflate_free_decompressor"),
    ),
    "zstd": (1, "zstd", ("ZSTD_createDCtx", "ZSTD_decompressDCtx", "ZSTD_freeDCtx")),
}
_SAMPLE = bytes(range(64))
_SAMPLES = {
    "zlib": zlib.compress(_SAMPLE),
    # One raw block: magic, a single segment of 64 bytes, a last block of 64 bytes as they are.
    "zstd": b"\x28\xb5\x2f\xfd\x20\x40" + (64 << 3 | 1).to_bytes(3, "little") + _SAMPLE,
}

_kept: list[ctypes.CDLL] = []
"""A library that is let go may be unloaded, and its addresses with it."""


def library(codec: str) -> Library | None:
    """The functions that decode `zlib` or `zstd`, if they can be had.

    Parameters
    ----------
    codec
        The codec's name.
    """
    if codec not in _NAMES or find("insitu.codecs._kernels", "decode_boxes") is None:
        return None
    return _found(codec)


@cache
def _found(codec: str) -> Library | None:
    kind, name, functions = _NAMES[codec]
    for path in _places(name):
        try:
            found = ctypes.CDLL(path)
            make, decompress, end = [
                ctypes.cast(getattr(found, function), ctypes.c_void_p).value for function in functions
            ]
        except (OSError, AttributeError):
            continue
        if make is None or decompress is None or end is None or not _works((kind, make, decompress, end), codec):
            continue
        _kept.append(found)
        return kind, make, decompress, end
    return None


def _places(name: str) -> Iterator[str]:
    spec = find_spec("imagecodecs")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        for folder in (package.parent / "imagecodecs.libs", package / ".dylibs"):
            yield from map(str, sorted(folder.glob(f"lib{name}[-.]*")))
    if (system := ctypes.util.find_library(name)) is not None:
        yield system


@cache
def decode_boxes() -> Function:
    """The kernel; to be asked for only if there is a library."""
    return need("zlib", ("insitu.codecs._kernels", "decode_boxes"))


def _works(found: Library, codec: str) -> bool:
    """Whether a sample comes out right, and a cut one does not."""
    decode = decode_boxes()
    out = np.zeros(64, np.uint8)
    settings = 1, False, (64,), (0,), (64,), out, [(0,)]
    right = decode(found, [_SAMPLES[codec]], *settings) == 1 and out.tobytes() == _SAMPLE
    return right and decode(found, [_SAMPLES[codec][:-6]], *settings) == 0
