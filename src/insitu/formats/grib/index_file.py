"""Read the index beside a GRIB file: offsets and lengths of messages, and words about their fields.

NCEP's `.idx` (wgrib2) has a line for each field: number, offset, date, parameter, level, forecast.
ECMWF's `.index` has a JSON object in each line, with offset and length. The words are interpreted
by `inventory` and `mars`.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any, NamedTuple

from insitu.errors import FormatError, error_context
from insitu.formats.parsing.read_cache import ReadCache
from insitu.sources.address import file_name

__all__ = [
    "IndexLine",
    "data_file_names",
    "index_file_names",
    "is_grib_index",
    "parse_mars_lines",
    "parse_moment",
    "read_index",
]

_IDX = re.compile(rb"\d+(\.\d+)?:\d+:d=\d{8}")
_DIGITS = re.compile(r"[0-9]{1,18}")
_EPOCH = datetime.datetime(1970, 1, 1)
LARGEST = 64 << 20
"""Most bytes of an index; that of 100,000 messages has some ten million."""


class IndexLine(NamedTuple):
    """One field of an index."""

    offset: int
    length: int
    """Of the message."""
    number: int
    """Of the field in it."""
    time: int | None
    """Time of the run, in seconds since 1970; None if it is not given."""
    words: tuple[str, str, str, str] | None
    """`.idx`: parameter, level, forecast, and what follows."""
    mars_words: tuple[tuple[str, str], ...] | None
    """`.index`: all other keys of the object."""


def is_grib_index(window: ReadCache) -> bool:
    """Return whether a file is an index of GRIB messages."""
    head = window.head[:4096].lstrip()
    if _IDX.match(head):
        return True
    first = head.split(b"\n", 1)[0]
    return first.startswith(b"{") and b'"_offset"' in first and b'"_length"' in first


def data_file_names(url: str) -> list[str]:
    """Return the names that the GRIB file of an index may have.

    Examples
    --------
    >>> data_file_names("s3://noaa/gfs.t00z.pgrb2.idx"), data_file_names("/data/oper-fc.index")
    (['gfs.t00z.pgrb2'], ['oper-fc.grib2', 'oper-fc.grib', 'oper-fc.grb2', 'oper-fc'])
    >>> data_file_names("https://host/a%20b.grib.idx?v=1")  # decoded: whoever opens it quotes it again
    ['a b.grib']
    """
    name = file_name(url)
    stem, dot, suffix = name.rpartition(".")
    if not dot:
        return []
    return [stem] if suffix == "idx" else [f"{stem}.grib2", f"{stem}.grib", f"{stem}.grb2", stem]


def index_file_names(url: str) -> list[str]:
    """Return the names that the index of a GRIB file may have."""
    name = file_name(url)
    stem = name.rpartition(".")[0]
    return [f"{name}.idx", *([f"{stem}.index"] if stem else [])]


def read_index(window: ReadCache, size: int) -> list[IndexLine]:
    """Return all lines, in their order.

    Parameters
    ----------
    window
        The index.
    size
        Bytes of the GRIB file: what the last message of an `.idx` reaches to.

    Raises
    ------
    FormatError
        If it is no index, or not of a file of that size.
    """
    if window.size > LARGEST:
        raise FormatError(f"a GRIB index of {window.size} bytes is too large", offset=0, structure="GRIB index")
    head = window.head
    data = head + window.source.read(len(head), window.size - len(head)) if window.size > len(head) else head
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise FormatError(f"the index is not text: {problem}", structure="GRIB index") from None
    lines = [line for line in text.splitlines() if line.strip()]
    with error_context(offset=0, structure="GRIB index"):
        found = parse_mars_lines(lines) if text.lstrip().startswith("{") else _parse_wgrib2_lines(lines, size)
    for line in found:
        if line.offset < 0 or line.length < 16 or line.offset + line.length > size:
            raise FormatError(
                f"the index has a message at {line.offset} of {line.length} bytes, in a file of {size}",
                offset=0,
                structure="GRIB index",
                hint="The index belongs to another file. Scan the GRIB file itself",
            )
    return found


def _parse_wgrib2_lines(lines: list[str], size: int) -> list[IndexLine]:
    """Parse lines of wgrib2: `1:0:d=2024010100:HGT:500 mb:6 hour fcst:`."""
    parts = [line.split(":", 5) for line in lines]
    if any(len(part) != 6 for part in parts):
        raise FormatError("a line of the GRIB index has too few fields")
    offsets = [_parse_integer(part[1]) for part in parts]
    _check_numbers([part[0] for part in parts], offsets)
    ends = dict(zip(dict.fromkeys(offsets), [*list(dict.fromkeys(offsets))[1:], size], strict=True))
    found, before, number = [], -1, 0
    for (_, _, date, name, level, rest), offset in zip(parts, offsets, strict=True):
        number = number + 1 if offset == before else 0
        before = offset
        digits = date.removeprefix("d=").ljust(12, "0")
        forecast, _, rest = rest.partition(":")
        words = (name, level, forecast, rest)
        found.append(
            IndexLine(offset, ends[offset] - offset, number, parse_moment(digits[:8], digits[8:12]), words, None)
        )
    return found


def _check_numbers(numbers: list[str], offsets: list[int]) -> None:
    """Raise if messages are missing: wgrib2 numbers those of a file from 1 on, `2.1` and `2.2` are fields of one."""
    before, at = 0, -1
    for text, offset in zip(numbers, offsets, strict=True):
        number = _parse_integer(text.partition(".")[0])
        if number != before + (offset != at):
            raise FormatError(
                f"the GRIB index has message {number} after {before or 'its beginning'}: it does not list all messages "
                "of its file",
                hint="Make it anew (wgrib2 -s FILE), or scan the GRIB file itself; variables= opens some of them",
            )
        before, at = number, offset


def parse_mars_lines(lines: list[str]) -> list[IndexLine]:
    """Return the lines of an index of ECMWF.

    `{"date": "20240101", "time": "0000", "step": "6", "param": "2t", "_offset": 0, "_length": 5}`.
    """
    found: list[IndexLine] = []
    seen: dict[int, int] = {}
    for line in lines:
        keys = _parse_object(line)
        offset, length = (_parse_integer(keys.pop(name, None)) for name in ("_offset", "_length"))
        date, time = (str(keys.pop(name, "")) for name in ("date", "time"))
        number = seen[offset] = seen.get(offset, -1) + 1
        moment = parse_moment(date, time.zfill(4)) if date else None
        words = tuple(sorted((key, str(value)) for key, value in keys.items()))
        found.append(IndexLine(offset, length, number, moment, None, words))
    return found


def _parse_object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise FormatError(f"a line of the GRIB index is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise FormatError("a line of the GRIB index is not a JSON object")
    return found


def _parse_integer(value: Any) -> int:
    text = str(value).strip()
    if not _DIGITS.fullmatch(text):
        raise FormatError(f"the GRIB index has {text[:40]!r} for an offset or a length")
    return int(text)


def parse_moment(date: str, time: str) -> int:
    """Return a date and a time of day as seconds since 1970."""
    if not _DIGITS.fullmatch(date + time) or len(date) < 8 or len(time) < 4:
        raise FormatError(f"{date[:40]!r} and {time[:40]!r} in the GRIB index are not a date and a time")
    try:
        moment = datetime.datetime(int(date[:4]), int(date[4:6]), int(date[6:8]), int(time[:2]), int(time[2:4]))
    except ValueError as problem:
        raise FormatError(f"a date of the GRIB index is not valid: {problem}") from None
    return int((moment - _EPOCH).total_seconds())
