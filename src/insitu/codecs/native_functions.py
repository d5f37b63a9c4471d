"""Addresses of libdeflate's and Zstandard's functions, for the C kernel that decodes batches.

Imagecodecs' wheels bring both as shared libraries. For chunks of a few kilobytes the call through
Python costs as much as the decoding, so the kernel calls those libraries itself, with the addresses
that are found here. If there is no such library, or it fails on a sample, the result is None and
chunks are decoded one by one.
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

from insitu.codecs.libraries import Function, find_function, require_function

__all__ = ["NativeLibrary", "find_native_library", "get_decode_boxes"]

NativeLibrary = tuple[int, int, int, int]
"""Kind of the library, and the addresses of its functions: create a state, decompress, free the
state.
"""

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

_loaded: list[ctypes.CDLL] = []
"""Keeps the libraries loaded: without a reference a library may be unloaded, and its addresses
become invalid.
"""


def find_native_library(codec: str) -> NativeLibrary | None:
    """Return the native functions that decode `zlib` or `zstd`; None if they are not there.

    Parameters
    ----------
    codec
        The codec's name.
    """
    if codec not in _NAMES or find_function("insitu.codecs._kernels", "decode_boxes") is None:
        return None
    return _load_library(codec)


@cache
def _load_library(codec: str) -> NativeLibrary | None:
    kind, name, functions = _NAMES[codec]
    for path in _library_paths(name):
        try:
            found = ctypes.CDLL(path)
            make, decompress, end = [
                ctypes.cast(getattr(found, function), ctypes.c_void_p).value for function in functions
            ]
        except (OSError, AttributeError):
            continue
        if make is None or decompress is None or end is None or not _is_working((kind, make, decompress, end), codec):
            continue
        _loaded.append(found)
        return kind, make, decompress, end
    return None


def _library_paths(name: str) -> Iterator[str]:
    spec = find_spec("imagecodecs")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        for folder in (package.parent / "imagecodecs.libs", package / ".dylibs"):
            yield from map(str, sorted(folder.glob(f"lib{name}[-.]*")))
    if (system := ctypes.util.find_library(name)) is not None:
        yield system


@cache
def get_decode_boxes() -> Function:
    """Return the kernel that decodes many chunks; call it only if there is a library."""
    return require_function("zlib", ("insitu.codecs._kernels", "decode_boxes"))


def _is_working(found: NativeLibrary, codec: str) -> bool:
    """Return whether a sample is decoded correctly, and a truncated one is refused."""
    decode = get_decode_boxes()
    out = np.zeros(64, np.uint8)
    settings = 1, False, (64,), (0,), (64,), out, [(0,)]
    right = decode(found, [_SAMPLES[codec]], *settings) == 1 and out.tobytes() == _SAMPLE
    return right and decode(found, [_SAMPLES[codec][:-6]], *settings) == 0
