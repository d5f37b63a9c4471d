"""Decompressors that were linked into the C kernels when insitu was built: libdeflate and Zstandard.

The kernels call them without Python and without the GIL, for many chunks at a time: for chunks of a
few kilobytes the call through Python costs as much as the decoding. A build without them (no
compiler, or no sources, see `setup.py`) decodes chunks one by one through imagecodecs: the same
values, slower.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from insitu.codecs.libraries import Function, find_function, require_function

if TYPE_CHECKING:
    from insitu.codecs.buffer_spec import Data, Octets  # which import NumPy: `insitu --version` does without

__all__ = [
    "can_decompress_texts",
    "decompress_texts",
    "find_decompress",
    "get_decode_boxes",
    "get_measure_chunks",
    "linked_libraries",
]


@cache
def linked_libraries() -> dict[str, str]:
    """Return name and version of the linked library for each codec that has one.

    Examples
    --------
    >>> linked_libraries()  # doctest: +SKIP
    {'zlib': 'libdeflate 1.26', 'zstd': 'zstd 1.5.7'}
    """
    find = find_function("insitu.codecs._kernels", "linked_libraries")
    found: dict[str, str] = {} if find is None else find()
    return found


@cache
def get_decode_boxes() -> Function:
    """Return the kernel that decodes many chunks; call it only for a codec with a linked library."""
    return require_function("zlib", ("insitu.codecs._kernels", "decode_boxes"))


@cache
def get_measure_chunks() -> Function:
    """Return the kernel that measures many chunks; call it only for a codec with a linked library."""
    return require_function("zlib", ("insitu.codecs._kernels", "measure_chunks"))


def can_decompress_texts() -> bool:
    """Return whether texts that are compressed with a Zstandard dictionary can be decompressed."""
    return "zstd" in linked_libraries() and find_function("insitu.codecs._kernels", "decompress_texts") is not None


def decompress_texts(dictionary: bytes, texts: list[bytes], longest: int) -> list[bytes]:
    """Return short texts that were compressed one by one with a Zstandard dictionary.

    Icechunk 2 compresses the URLs in manifests so: 200,000 of 62 bytes take 6.6 MB, not 12.4. Neither pyarrow nor
    numcodecs takes a dictionary, and Zstandard is linked in already: these take 0.07 s of processor, and 0.12 s
    with the package `zstandard`, which would be one more to install.

    Parameters
    ----------
    dictionary
        The dictionary.
    texts
        The compressed texts.
    longest
        Bytes that a text may have.

    Raises
    ------
    ValueError
        If a text or the dictionary is damaged, or a text is longer.
    """
    decompress = require_function("zstd", ("insitu.codecs._kernels", "decompress_texts"))
    found: list[bytes] = decompress(dictionary, texts, longest)
    return found


def find_decompress(codec: str) -> Callable[[Data, Octets], bool] | None:
    """Return a function that decompresses one chunk into a buffer of exactly its size; None if no
    library for the codec is linked.

    The function returns False if the data is damaged, or holds more or less than that; then the
    content of the buffer is undefined.
    """
    if codec not in linked_libraries():
        return None
    decode_boxes = get_decode_boxes()

    def decompress(data: Data, out: Octets) -> bool:
        whole, origin = (out.size,), (0,)
        # A whole chunk that is not shuffled is written straight to its place: the room is not used.
        return bool(decode_boxes(codec, [data], 1, False, whole, origin, whole, out, [origin], out))

    return decompress
