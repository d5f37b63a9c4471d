"""Parser of dataspace messages: the shape of a dataset or an attribute.

Versions 1 and 2: format specification 3.0, IV.A.2.b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from insitu.errors import FormatError
from insitu.formats.parsing.fields import check_length

__all__ = ["Dataspace", "parse_dataspace"]

RANK_LIMIT = 32


@dataclass(frozen=True, slots=True)
class Dataspace:
    """The extent of a dataset or an attribute."""

    shape: tuple[int, ...]
    """Elements along each axis; () for a scalar."""
    limits: tuple[int | None, ...]
    """The lengths that the axes may grow to; None: without limit."""
    null: bool = False
    """There are no elements at all, not even one."""

    @property
    def count(self) -> int:
        """Number of elements."""
        return 0 if self.null else math.prod(self.shape)


def parse_dataspace(body: bytes, length_size: int) -> Dataspace:
    """Parse a dataspace message.

    Parameters
    ----------
    body
        The message.
    length_size
        Bytes of a length in this file.
    """
    check_length(body, 4, "dataspace message")
    version, rank, flags = body[0], body[1], body[2]
    if version == 1:
        at, null = 8, False
    elif version == 2:
        at, null = 4, body[3] == 2
    else:
        raise FormatError(f"the dataspace message has version {version}, only 1 and 2 are known", structure="dataspace")
    if rank > RANK_LIMIT:
        raise FormatError(
            f"the dataspace has {rank} dimensions, at most {RANK_LIMIT} are possible", structure="dataspace"
        )
    shape = _lengths(body, at, rank, length_size)
    limits: tuple[int | None, ...] = shape
    if flags & 1:
        unlimited = (1 << (8 * length_size)) - 1
        found = _lengths(body, at + rank * length_size, rank, length_size)
        limits = tuple(None if limit == unlimited else limit for limit in found)
    if any(length >= 1 << 62 for length in shape) or math.prod(n for n in shape if n) >= 1 << 63:
        raise FormatError(f"the dataspace has an impossible shape: {shape}", structure="dataspace")
    return Dataspace(shape, limits, null)


def _lengths(body: bytes, at: int, rank: int, width: int) -> tuple[int, ...]:
    check_length(body, at + rank * width, "dataspace message")
    return tuple(int.from_bytes(body[at + i * width : at + (i + 1) * width], "little") for i in range(rank))
