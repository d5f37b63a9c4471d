"""Outline of a GRIB index: the run, and where the messages lie; all other words make its kind.

Indexes of one kind say the same but for the run and the offsets, so one of them is scanned, with a
look at its GRIB file, and counts for all. Of the other GRIB files the header of the last message is
read: it ends where the file ends, or the index belongs to another file, and it is of the run that the
index says, or the file is scanned by itself. Each message is held beside
the grid and the parameter that are expected when its values are read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from insitu.errors import FormatError, NotFoundError
from insitu.formats.file_outline import FileOutline
from insitu.formats.grib.index_file import LARGEST, data_file_names, parse_mars_lines, parse_moment
from insitu.formats.grib.message_search import PADDING, message_length
from insitu.formats.parsing.sibling_files import sibling_urls
from insitu.sources import open_source
from insitu.sources.protocol import ByteSource

__all__ = ["check_last_message", "outline_grib_index"]

_LINE = re.compile(rb"^[0-9.]+:([0-9]+):d=([0-9]{8,12}):(.*)$", re.MULTILINE)
HEAD = 35
"""Bytes in which a message says how long it is, and in GRIB2 when its run began: sections 0 and 1."""
_RUN = struct.Struct(">H5B")
_DATE = slice(28, 35)
"""Year to second in section 1 of GRIB2, octets 13 to 19."""
AT_ONCE = 1 << 16
"""Bytes of a file that are read before it is known to be an index."""
GRIB2 = 2
_Parsed = tuple[Any, int, list[int], list[int] | None]
"""Kind, run, offsets, and lengths where the index has them."""


def outline_grib_index(url: str, storage_options: Mapping[str, Any] | None) -> FileOutline | None:
    """Return the outline of an index and its GRIB file; None if files like it must be scanned one by one.

    Raises
    ------
    FormatError
        If the index belongs to another file.
    NotFoundError
        If the GRIB file is missing.
    """
    if "::" in url:
        return None
    with open_source(url, storage_options) as index:
        size = index.size()
        data = index.read(0, min(size, AT_ONCE))
        is_wgrib2 = data[:1].isdigit()
        if not is_wgrib2 and data[:1] != b"{":
            return None
        if AT_ONCE < size <= LARGEST:
            data += index.read(AT_ONCE, size - AT_ONCE)
    if len(data) < size:
        return None
    parsed = _parse_wgrib2(data) if is_wgrib2 else _parse_mars(data)
    if parsed is None:
        return None
    kind, run, offsets, lengths = parsed
    with _open_data_file(url, storage_options) as file:
        size = file.size()
        if lengths is None:
            lengths = [end - begin for begin, end in zip(offsets, [*offsets[1:], size], strict=True)]
        head = check_last_message(file.read, offsets[-1], lengths[-1], size, url)
        if head[7] != GRIB2 or _run_of_message(head[_DATE]) != run:  # of another run: by its own keys
            return None
        return FileOutline((kind, GRIB2), run, offsets, lengths, file.describe())


def check_last_message(read: Callable[[int, int], bytes], offset: int, length: int, size: int, index: str) -> bytes:
    """Return the first bytes of the last message of a file.

    Parameters
    ----------
    read
        Reads bytes of the file.
    offset, length
        Where it lies by the index.
    size, index
        Bytes of the file; the index, for messages.

    Raises
    ------
    FormatError
        If the message is not where the index says, or not as long.
    """
    head = read(offset, HEAD) if 0 <= offset <= size - HEAD else b""
    own = message_length(head) if head[:4] == b"GRIB" else -1
    fits = length - PADDING < own <= length and offset + own <= size
    if fits and (own == length or b"GRIB" not in read(offset + own, length - own)):  # padding, but no further message
        return head
    if own > 0 and offset + own > size:
        why = f"its last message, at {offset}, has {own:,} bytes, and the file ends after {size - offset:,}"
    elif own > 0:
        why = f"its last message, at {offset}, has {own:,} bytes by its header and {length:,} by the index"
    else:
        why = f"no message begins at {offset}, where the last one lies by the index, in a file of {size:,} bytes"
    raise FormatError(
        f"the index does not match the GRIB file: {why}",
        url=index,
        structure="GRIB index",
        hint="The file may still be written, or was replaced: make its index anew, or scan the GRIB file itself",
    )


def _open_data_file(url: str, storage_options: Mapping[str, Any] | None) -> ByteSource:
    names = data_file_names(url)
    for name in names:
        for place in sibling_urls(url, name)[:1]:
            try:
                return open_source(place, storage_options)
            except NotFoundError:
                continue
    raise NotFoundError(f"the GRIB file of the index is missing: {' or '.join(names) or 'it has no name'}", url=url)


def _parse_wgrib2(data: bytes) -> _Parsed | None:
    rows = _LINE.findall(data)
    if not rows or len(rows) != sum(bool(line.strip()) for line in data.splitlines()):
        return None
    texts, dates, words = zip(*rows, strict=True)
    offsets = list(map(int, texts))
    if len(set(dates)) > 1 or not _is_increasing(offsets):  # several runs; fields that share a message
        return None
    return _intern(words), _run_of(dates[0]), offsets, None


def _parse_mars(data: bytes) -> _Parsed | None:
    try:
        lines = parse_mars_lines([line for line in data.decode("utf-8").splitlines() if line.strip()])
    except (FormatError, UnicodeDecodeError):
        return None
    runs, offsets = {line.time for line in lines}, [line.offset for line in lines]
    (run,) = runs if len(runs) == 1 else (None,)
    if run is None or not _is_increasing(offsets):
        return None
    return _intern(tuple(line.mars_words for line in lines)), run, offsets, [line.length for line in lines]


def _is_increasing(offsets: Sequence[int]) -> bool:
    return all(one < other for one, other in pairwise(offsets))


@lru_cache(maxsize=1024)
def _intern(words: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return equal words as one object, so that ten thousand files hold them once."""
    return words


@lru_cache(maxsize=65536)
def _run_of_message(date: bytes) -> int | None:
    """Return the reference time of a message, as that of an index; None if it is no date."""
    year, month, day, hour, minute, _ = _RUN.unpack(date)
    try:
        return parse_moment(f"{year:04}{month:02}{day:02}", f"{hour:02}{minute:02}")
    except FormatError:
        return None


@lru_cache(maxsize=65536)
def _run_of(date: bytes) -> int:
    digits = date.decode().ljust(12, "0")
    return parse_moment(digits[:8], digits[8:12])
