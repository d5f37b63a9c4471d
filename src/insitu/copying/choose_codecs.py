"""The codecs of a target: a compressor and its level as text, with what sorts the bytes of its type best.

Zarr's own codec for sorted bytes is Blosc, whose frame holds Zstandard, zlib or LZ4; HDF5 has a filter of its own.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from insitu.errors import UnsupportedError
from insitu.model import Codec

__all__ = ["CODEC_HINT", "choose_codecs"]

CODEC_HINT = "Write zstd:3, zlib:4, blosc:lz4 or none; the number is the level"
_LEVELS = {"zstd": (1, 22, 3), "zlib": (1, 9, 4), "blosc": (1, 9, 5)}
"""Lowest level, highest, and the usual one."""
_IN_BLOSC = ("lz4", "lz4hc", "zlib", "zstd", "blosclz")
SHUFFLE, BITSHUFFLE = 1, 2


def choose_codecs(text: str, dtype: np.dtype[Any], target: str) -> tuple[Codec, ...]:
    """Return the codecs that a text means for a type.

    Parameters
    ----------
    text
        `zstd:3`, `zlib:4`, `blosc:lz4`, `blosc:lz4:5`, `none`.
    dtype
        Of the stored values.
    target
        `zarr2`, `zarr3` or `netcdf`.

    Raises
    ------
    UnsupportedError
        If there is no such codec, or the target or the type cannot have it.

    Examples
    --------
    >>> [codec.name for codec in choose_codecs("zlib:4", np.dtype("f4"), "netcdf")]
    ['shuffle', 'zlib']
    >>> choose_codecs("zstd:3", np.dtype("u1"), "zarr3")[0].configuration["level"]
    3
    """
    name, rest = _parse(text)
    words = (Codec("vlen-utf8"),) if dtype.hasobject else ()
    if name == "none":
        return words
    level = _parse_level(text, name, rest)
    if target == "netcdf":
        return _of_hdf5(text, name, level, dtype)
    inner = rest[0] if name == "blosc" else name
    sorts = not dtype.hasobject and dtype.itemsize > 1 and dtype.kind in "iufcmM"
    if sorts or name == "blosc":
        shuffle = 0 if not sorts else BITSHUFFLE if dtype.kind in "iu" else SHUFFLE
        clevel = min((level + 1) // 2, 9) if name == "zstd" else level  # Blosc's levels of Zstandard are 1, 3, 5, …
        itemsize = max(dtype.itemsize, 1)
        return (
            *words,
            Codec(
                "blosc", {"cname": inner, "clevel": clevel, "shuffle": shuffle, "typesize": itemsize, "blocksize": 0}
            ),
        )
    if name == "zstd":
        return (*words, Codec("zstd", {"level": level, "checksum": False} if target == "zarr3" else {"level": level}))
    return (*words, Codec("gzip" if target == "zarr3" else "zlib", {"level": level}))


def _parse(text: str) -> tuple[str, list[str]]:
    name, *rest = text.strip().lower().split(":")
    if name == "none" and not rest:
        return name, rest
    if name == "blosc":
        inner = rest[0] if rest else "lz4"
        if inner in _IN_BLOSC and len(rest) <= 2:
            return name, [inner, *rest[1:]]
    elif name in _LEVELS and len(rest) <= 1:
        return name, rest
    raise UnsupportedError(f"there is no codec {text!r}", hint=CODEC_HINT)


def _parse_level(text: str, name: str, rest: list[str]) -> int:
    lowest, highest, usual = _LEVELS[name]
    given = rest[1:] if name == "blosc" else rest
    if not given:
        return usual
    if not re.fullmatch(r"\d{1,3}", given[0]) or not lowest <= int(given[0]) <= highest:
        raise UnsupportedError(f"codec {text!r}: levels of {name} are {lowest} to {highest}", hint=CODEC_HINT)
    return int(given[0])


def _of_hdf5(text: str, name: str, level: int, dtype: np.dtype[Any]) -> tuple[Codec, ...]:
    if name == "blosc":
        raise UnsupportedError(
            f"codec {text!r}: other readers of NetCDF-4 have no Blosc", hint="Take zlib:4, zstd:3 or none"
        )
    if dtype.hasobject:
        return (Codec("vlen-utf8"),)  # until they are written: HDF5 keeps them in a heap, which no filter sees
    shuffle = (Codec("shuffle", {"elementsize": dtype.itemsize}),) if dtype.itemsize > 1 else ()
    return (*shuffle, Codec(name, {"level": level}))
