"""Parse long lists of chunks in a DMR++ document as columns of numbers, without an object for each
chunk.

Nearly all lists repeat one element, with the same attributes in the same order and other numbers.
Without its digits, such a list is its first element, over and over; the digits alone are the table.
Such lists are cut out of the document before it is parsed as XML. Any other list is parsed as XML.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ChunkRun", "cut_out_runs"]

_LIST = re.compile(rb"""<((?:[\w.-]+:)?)chunks(?:\s+[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s*(/?)>""")
_DIGITS = b"0123456789"
_NUMBERS_ONLY = bytes(byte if byte in _DIGITS else 0x20 for byte in range(256))
LARGEST = 1 << 62


class ChunkRun(NamedTuple):
    """The chunks of one list."""

    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    """(chunks, axes): position of each chunk in the array."""


def cut_out_runs(data: bytes) -> tuple[bytes, list[ChunkRun | None]]:
    """Return the document without its uniform lists of chunks.

    Also return, for each list in order, what was cut out (None: nothing).

    Parameters
    ----------
    data
        The document. One with comments or unparsed sections is returned as it is: there, a bracket
        may not begin a tag.
    """
    if b"<!" in data:
        return data, []
    parts: list[bytes] = []
    found: list[ChunkRun | None] = []
    done = 0
    for match in _LIST.finditer(data):
        end = match.end() if match[2] else data.find(b"</" + match[1] + b"chunks", match.end())
        if end < 0:
            return data, []
        begin = data.find(b"<" + match[1] + b"chunk ", match.end(), end)
        run = None if begin < 0 else _parse_run(data[begin:end], match[1])
        found.append(run)
        if run is not None:
            parts.append(data[done:begin])
            done = end
    return b"".join([*parts, data[done:]]), found


def _parse_run(text: bytes, prefix: bytes) -> ChunkRun | None:
    """Return the numbers of a list; None if its elements differ in anything else."""
    close = text.find(b"/>")
    after = text.find(b"<", close)
    one = text[: after if after > 0 else len(text)]
    template = one.translate(None, _DIGITS)
    element = template.rstrip()
    pattern = rb'<%schunk\s+offset=""\s+nBytes=""\s+chunkPositionInArray="\[(,*)\]"\s*/>' % re.escape(prefix)
    shaped = re.fullmatch(pattern, element)
    count = text.count(b"<")
    if shaped is None or count * (3 + len(shaped[1])) > len(text):
        return None
    if text.translate(None, _DIGITS).rstrip() != (template * count).rstrip():
        return None
    columns = 3 + len(shaped[1])  # offset, length, and a position along each axis
    numbers = np.fromstring(text.translate(_NUMBERS_ONLY).decode("ascii"), np.int64, sep=" ")
    if numbers.size != count * columns or numbers.max(initial=0) > LARGEST:
        return None  # an empty number somewhere, or one that 64 bits do not hold
    table = numbers.reshape(count, columns)
    return ChunkRun(table[:, 0], table[:, 1], table[:, 2:])
