"""Parser of filter pipeline messages: the codecs of the chunks of a dataset.

Versions 1 and 2: format specification 3.0, IV.A.2.l. Each registered filter becomes a codec of the
registry that all formats share. The meaning of its parameters is documented by the filter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from insitu.errors import FormatError
from insitu.formats.parsing.fields import check_length, take_uint
from insitu.model import Codec

__all__ = ["Filter", "filter_codec", "parse_filters"]

FILTER_LIMIT = 32
_MESSAGE = "filter pipeline message"


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter of a pipeline."""

    number: int
    """As registered with the HDF Group."""
    name: str
    """What the writer called it; may be empty."""
    values: tuple[int, ...]
    """Its client data."""


def parse_filters(body: bytes) -> tuple[Filter, ...]:
    """Parse a filter pipeline message."""
    check_length(body, 2, _MESSAGE)
    version, count = body[0], body[1]
    if version not in (1, 2) or count > FILTER_LIMIT:
        raise FormatError(
            f"the filter pipeline has version {version} and {count} filters, which is impossible",
            structure="filter pipeline",
        )
    at = 8 if version == 1 else 2
    filters = []
    for _ in range(count):
        number = take_uint(body, at, 2, _MESSAGE)
        named = version == 1 or number >= 256
        length = take_uint(body, at + 2, 2, _MESSAGE) if named else 0
        at += 4 if named else 2
        values = take_uint(body, at + 2, 2, _MESSAGE)
        at += 4
        if version == 1:
            length = (length + 7) // 8 * 8
        name = body[at : at + length].split(b"\0")[0].decode("utf-8", "replace")
        at += length
        check_length(body, at + 4 * values, _MESSAGE)
        data = tuple(int.from_bytes(body[at + 4 * i : at + 4 * i + 4], "little") for i in range(values))
        at += 4 * values + (4 if version == 1 and values % 2 else 0)
        filters.append(Filter(number, name, data))
    return tuple(filters)


@lru_cache(maxsize=1024)
def filter_codec(item: Filter, itemsize: int) -> Codec:
    """Return the codec of a filter.

    Parameters
    ----------
    item
        The filter.
    itemsize
        Bytes of an element, for filters that leave it unsaid.
    """
    known = _CODECS.get(item.number)
    if known is None:
        return Codec(f"hdf5_filter_{item.number}", {"cd_values": list(item.values), "name": item.name})
    name, configure = known
    return Codec(name, configure(item.values, itemsize))


_Configure = Callable[[tuple[int, ...], int], dict[str, Any]]


def _no_configuration(values: tuple[int, ...], itemsize: int) -> dict[str, Any]:
    return {}


def _client_values(values: tuple[int, ...], itemsize: int) -> dict[str, Any]:
    return {"cd_values": list(values)}


def _level(values: tuple[int, ...], itemsize: int) -> dict[str, Any]:
    return {"level": values[0]} if values else {}


def _shuffle(values: tuple[int, ...], itemsize: int) -> dict[str, Any]:
    return {"elementsize": values[0] if values and values[0] else itemsize}


def _szip(values: tuple[int, ...], itemsize: int) -> dict[str, Any]:
    names = ("options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline")
    return dict(zip(names, values, strict=False))


def _bitshuffle(values: tuple[int, ...], itemsize: int) -> dict[str, Any]:
    # Filter 32008: version major, minor, element size, block size, compression (2: LZ4, 3:
    # Zstandard).
    values = values + (0,) * (5 - len(values))
    return {
        "elementsize": values[2] or itemsize,
        "blocksize": values[3],
        "cname": {2: "lz4", 3: "zstd"}.get(values[4], "none"),
    }


def _blosc(values: tuple[int, ...], itemsize: int) -> dict[str, Any]:
    # Filter 32001: two versions, type size, chunk size, level, shuffle, compressor.
    values = values + (0,) * (7 - len(values))
    names = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
    return {
        "typesize": values[2] or itemsize,
        "clevel": values[4],
        "shuffle": values[5],
        "cname": names[values[6]] if values[6] < len(names) else "blosclz",
    }


_CODECS: dict[int, tuple[str, _Configure]] = {
    1: ("zlib", _level),
    2: ("shuffle", _shuffle),
    3: ("fletcher32", _no_configuration),
    4: ("szip", _szip),
    5: ("nbit", _client_values),
    6: ("scaleoffset", _client_values),
    307: ("bz2", _level),
    32000: ("lzf", _no_configuration),
    32001: ("blosc", _blosc),
    32004: ("hdf5_lz4", _no_configuration),
    32008: ("bitshuffle", _bitshuffle),
    32013: ("zfp", _client_values),
    32015: ("zstd", _level),
    32026: ("blosc2", _client_values),
}
