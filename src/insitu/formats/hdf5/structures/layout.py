"""Parser of data layout messages: compact, contiguous, chunked or virtual.

Versions 1 to 5: format specification 3.0 (4.0 for version 5), IV.A.2.i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.parsing.fields import check_length, take_bytes, take_fields, take_uint

__all__ = ["ChunkedLayout", "CompactLayout", "ContiguousLayout", "Layout", "VirtualLayout", "parse_layout"]


@dataclass(frozen=True, slots=True)
class CompactLayout:
    """The data is in the message itself."""

    data: bytes
    at: int = 0
    """Where in the message it begins."""


@dataclass(frozen=True, slots=True)
class ContiguousLayout:
    """One run of bytes."""

    address: int | None
    """None: never allocated."""
    size: int | None
    """None: as many as shape and datatype say (versions 1 and 2)."""


@dataclass(frozen=True, slots=True)
class VirtualLayout:
    """Made of other datasets."""

    address: int
    index: int


@dataclass(frozen=True, slots=True)
class ChunkedLayout:
    """Chunks of one shape, found through an index."""

    chunk: tuple[int, ...]
    """Elements along each axis of a chunk."""
    element: int
    """Bytes of an element, as the layout has it."""
    index: str
    """btree_v1, single, implicit, fixed_array, extensible_array, btree_v2."""
    address: int | None
    """Where the index lies; None: nothing was ever written."""
    unfiltered_edges: bool = False
    """Chunks that reach over the edge of the dataset are stored without filters."""
    single_size: int | None = None
    """Bytes of the single chunk, where filters change it."""
    single_mask: int = 0
    """Filter mask of the single chunk."""

    def at(self, address: int | None) -> ChunkedLayout:
        """Return the same with the index at another address."""
        return ChunkedLayout(
            self.chunk,
            self.element,
            self.index,
            address,
            self.unfiltered_edges,
            self.single_size,
            self.single_mask,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of a chunk before filters."""
        return math.prod(self.chunk) * self.element


Layout = CompactLayout | ContiguousLayout | VirtualLayout | ChunkedLayout

_MESSAGE = "data layout message"
_INDEXES = {1: "single", 2: "implicit", 3: "fixed_array", 4: "extensible_array", 5: "btree_v2"}
# Bytes of creation parameters before the index address: fixed array, extensible array, B-tree
# (IV.A.2.i).
_PARAMETERS = {"single": 0, "implicit": 0, "fixed_array": 1, "extensible_array": 5, "btree_v2": 6}


def parse_layout(body: bytes, offset_size: int, length_size: int) -> Layout:
    """Parse a layout message."""
    check_length(body, 2, _MESSAGE)
    version = body[0]
    if version in (1, 2):
        return _parse_v1(body, offset_size)
    if version not in (3, 4, 5):
        raise FormatError(
            f"the data layout message has version {version}, only 1 to 5 are known", structure="data layout"
        )
    kind = body[1]
    if kind == 0:
        return CompactLayout(take_bytes(body, 4, _uint(body, 2, 2), _MESSAGE), 4)
    if kind == 1:
        address = _address(body, 2, offset_size)
        return ContiguousLayout(address, _uint(body, 2 + offset_size, length_size))
    if kind == 2:
        return _chunked_v3(body, offset_size) if version == 3 else _chunked_v4(body, offset_size, length_size)
    if kind == 3:
        return VirtualLayout(_uint(body, 2, offset_size), _uint(body, 2 + offset_size, 4))
    raise UnsupportedError(f"data layouts of class {kind} are not supported", structure="data layout")


def _parse_v1(body: bytes, offset_size: int) -> Layout:
    """Parse versions 1 and 2.

    The address comes before the dimensions, compact data after them.
    """
    check_length(body, 8, _MESSAGE)
    rank, kind = body[1], body[2]
    at = 8
    address = None
    if kind in (1, 2):
        address = _address(body, at, offset_size)
        at += offset_size
    dims = tuple(_uint(body, at + 4 * i, 4) for i in range(rank))
    at += 4 * rank
    if kind == 0:
        return CompactLayout(take_bytes(body, at + 4, _uint(body, at, 4), _MESSAGE), at + 4)
    if kind == 1:
        return ContiguousLayout(address, None)
    if kind == 2:
        return _chunked_layout(dims, "btree_v1", address)
    raise FormatError(f"the data layout has the unknown class {kind}", structure="data layout")


def _chunked_v3(body: bytes, offset_size: int) -> ChunkedLayout:
    at = 3 + offset_size
    dims = take_fields(_DIMENSIONS[_uint(body, 2, 1)], body, at, _MESSAGE)
    return _chunked_layout(dims, "btree_v1", _address(body, 3, offset_size))


_DIMENSIONS = [f"<{rank}I" for rank in range(256)]


def _chunked_v4(body: bytes, offset_size: int, length_size: int) -> ChunkedLayout:
    check_length(body, 5, _MESSAGE)
    flags, rank, width = body[2], body[3], body[4]
    if not 1 <= width <= 8 or flags & ~3:
        raise FormatError(
            f"the data layout has chunk sizes of {width} bytes and flags {flags:#x}, which is impossible",
            structure="data layout",
        )
    dims = tuple(_uint(body, 5 + width * i, width) for i in range(rank))
    at = 5 + width * rank
    number = _uint(body, at, 1)
    index = _INDEXES.get(number)
    if index is None:
        raise FormatError(f"the chunk index has the unknown type {number}", structure="data layout")
    at += 1
    size, mask = None, 0
    if index == "single" and flags & 2:
        size, mask = _uint(body, at, length_size), _uint(body, at + length_size, 4)
        at += length_size + 4
    at += _PARAMETERS[index]
    most = 1 << 62 if body[0] == 5 else 1 << 32
    return _chunked_layout(dims, index, _address(body, at, offset_size), bool(flags & 1), size, mask, most)


def _chunked_layout(
    dims: tuple[int, ...],
    index: str,
    address: int | None,
    bare_edges: bool = False,
    size: int | None = None,
    mask: int = 0,
    most: int = 1 << 32,
) -> ChunkedLayout:
    """Return the layout; the last dimension is the size of an element.

    Before version 5, chunks have less than 4 GiB.
    """
    if not 2 <= len(dims) <= 33 or 0 in dims:
        raise FormatError(f"the chunks have an impossible shape: {dims}", structure="data layout")
    if math.prod(dims) >= most:
        raise FormatError(f"the chunks have {math.prod(dims)} bytes, more than HDF5 allows", structure="data layout")
    return ChunkedLayout(dims[:-1], dims[-1], index, address, bare_edges, size, mask)


def _uint(body: bytes, at: int, width: int) -> int:
    return take_uint(body, at, width, _MESSAGE)


def _address(body: bytes, at: int, width: int) -> int | None:
    address = _uint(body, at, width)
    return None if address == (1 << (8 * width)) - 1 else address
