"""Which libraries are here to do the work?

They are looked for when a codec is first met, never at import. Imagecodecs comes first: its decoders release the GIL and write into a
given buffer. What it lacks on some platform, others do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from insitu.codecs.buffer_spec import Data, Octets
from insitu.errors import CodecError, UnknownCodecError
from insitu.forking import delay_forks, import_before_fork

__all__ = ["find", "grow", "need"]

Function = Callable[..., Any]


def find(module: str, name: str) -> Function | None:
    """Return a function of an optional library, or None.

    Parameters
    ----------
    module
        What to import.
    name
        The function. Imagecodecs lists functions that its build lacks: those count as missing.
    """
    try:
        with delay_forks():  # imagecodecs imports a codec when it is first named, under a lock of its own
            library: Any = import_before_fork(module)
            if module == "imagecodecs" and not getattr(library, name.split("_")[0].upper()).available:
                return None
            function: Function = getattr(library, name)
    except (ImportError, AttributeError):
        return None
    return function


def need(codec: str, *candidates: tuple[str, str], install: str = "imagecodecs") -> Function:
    """Return the first function that is there.

    Raises
    ------
    UnknownCodecError
        If none is; it says what to install.
    """
    for module, name in candidates:
        if (function := find(module, name)) is not None:
            return function
    raise UnknownCodecError(
        f"codec {codec!r} needs a library that is not installed",
        codec=codec,
        hint=f"Try `pip install {install}`",
    )


def grow(decode: Callable[[Octets], Data], first: int, limit: int) -> Data:
    """Decode into ever larger buffers until the output fits.

    Parameters
    ----------
    decode
        Writes into the buffer and returns the part of it that was filled; raises if the buffer is too small.
    first
        The size to begin with.
    limit
        The size not to go beyond.

    Raises
    ------
    CodecError
        If the data is damaged, or holds more than `limit` bytes.
    """
    size = min(max(first, 1), limit)
    while True:
        try:
            return decode(np.empty(size, np.uint8))
        except Exception as error:
            # Libraries raise what they like when room is short, and the same when the data is damaged.
            if size >= limit:
                raise CodecError(f"the data is damaged or holds more than {limit} bytes ({error})") from error
        size = min(size * 4, limit)
