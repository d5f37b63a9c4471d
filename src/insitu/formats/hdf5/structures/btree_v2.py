"""Reader of version 2 B-trees.

Format specification 3.0, III.A.2. Unlike in version 1, inner nodes hold records too, and store how
many records each child has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from insitu.formats.hdf5.structures.checksum import verify_checksum
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.message_cache import parse_once
from insitu.formats.parsing.scheduler import ExactRanges, Walk

__all__ = ["cached_records", "read_records", "read_tree"]

T = TypeVar("T")
RecordTable = npt.NDArray[np.uint8]

LEAF_BATCH = 1 << 20
"""Bytes of leaf nodes decoded at once, as for version 1. Inner nodes, of which there are few, are decoded a level at a
time.
"""
_OVERHEAD = 10  # signature, version, type, checksum
_LEAST_RECORD = {5: 11, 8: 17}
"""Bytes of a record of links and attributes by name (III.A.2, types 5 and 8)."""


class _Header(NamedTuple):
    kind: int
    node_size: int
    record_size: int
    depth: int
    root: int
    root_records: int
    records: int
    """In the whole tree."""


def read_records(file: FileContext, address: int, kinds: tuple[int, ...]) -> Walk[tuple[bytes, ...]]:
    """Return all records as bytes: for the small trees that name links and attributes.

    Parameters
    ----------
    file, address
        Where the header lies.
    kinds
        The record types (III.A.2) that are expected.
    """
    cached = cached_records(file, address, kinds)
    if cached is not None:
        return cached
    parts = yield from read_tree(file, address, kinds, _to_row_bytes, exact=False)
    return parts[0] if len(parts) == 1 else tuple(row for part in parts for row in part)


def cached_records(file: FileContext, address: int, kinds: tuple[int, ...]) -> tuple[bytes, ...] | None:
    """Return the records of a tree of one leaf if it is in memory, else None.

    The trees of a few attributes usually are.
    """
    data = file.peek(*file.range(address, 22 + file.offset_size + file.length_size, "B-tree header"))
    if data is None:
        return None
    header = _header(file, data, address, kinds)
    if header.depth or header.root == file.undefined or not 0 < header.root_records == header.records:
        return None
    place = file.range(header.root, header.node_size, "B-tree node")
    block = file.peek(*place)
    if block is None:
        return None
    end = 6 + header.root_records * header.record_size
    if end + 4 > header.node_size:
        return None  # the caller reports what is wrong
    if block[:4] != b"BTLF" or block[5] != header.kind:
        file.fail("is not a node of its tree", header.root, "B-tree node")
    verify_checksum(file, block[: end + 4], header.root, "B-tree node")
    return parse_once(_split_rows, block[6:end], header.record_size)


def _to_row_bytes(table: RecordTable, kind: int) -> tuple[bytes, ...]:
    # Names and places in a heap, but no addresses: often the same in file after file.
    return parse_once(_split_rows, table.tobytes(), table.shape[1])


def _split_rows(data: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(data[at : at + size] for at in range(0, len(data), size))


def read_tree(
    file: FileContext,
    address: int,
    kinds: tuple[int, ...],
    decode: Callable[[RecordTable, int], T],
    *,
    exact: bool,
) -> Walk[list[T]]:
    """Return what `decode` returns for all records, batch by batch.

    Parameters
    ----------
    file, address
        Where the header lies.
    kinds
        The record types that are expected.
    decode
        Is given a table (records, bytes of a record) and the record type.
    exact
        Whether nodes lie scattered (see `ExactRanges`).
    """
    length = 22 + file.offset_size + file.length_size
    span = file.range(address, length, "B-tree header")
    data = file.peek(*span)
    if data is None:
        (data,) = yield [span]
    header = _header(file, data, address, kinds)
    out: list[T] = []
    if header.root == file.undefined or not header.root_records:
        return _check_total(file, header, address, out, 0)
    count_widths, subtotal_widths = _count_widths(file, header)
    level = header.depth
    nodes = [(header.root, header.root_records)]
    seen = found = 0
    while True:
        seen += len(nodes)
        if seen * header.node_size > file.size + header.node_size or len({a for a, _ in nodes}) != len(nodes):
            file.fail("has children that overlap, or refers to one twice", address, "B-tree")
        batch = max(1, LEAF_BATCH // header.node_size) if level == 0 else len(nodes)
        children: list[tuple[int, int]] = []
        for start in range(0, len(nodes), batch):
            node_batch = nodes[start : start + batch]
            # The root's size may reach over the end of a damaged file only: nodes are always
            # allocated in full.
            ranges = [file.range(place, header.node_size, "B-tree node") for place, _ in node_batch]
            blocks = yield ExactRanges(ranges) if exact else ranges
            table = _node_records(file, header, node_batch, blocks, level)
            found += len(table)
            if len(table):
                out.append(decode(table, header.kind))
            if level:
                for (place, count), block in zip(node_batch, blocks, strict=True):
                    widths = count_widths[level - 1], subtotal_widths[level - 1]
                    children += _children(file, header, block, place, count, level, widths)
        if level == 0 or not children:
            return _check_total(file, header, address, out, found)
        nodes, level = children, level - 1


def _check_total(file: FileContext, header: _Header, address: int, out: list[T], found: int) -> list[T]:
    """What was found, if it is as much as the header says: the library would stop there."""
    if found != header.records:
        file.fail(f"has {found} records, but its header announces {header.records}", address, "B-tree")
    return out


@lru_cache(maxsize=4)
def _header_struct(width: int) -> struct.Struct:
    return struct.Struct(f"<BIHHBB{ {2: 'H', 4: 'I', 8: 'Q'}[width] }H")


def _header(file: FileContext, data: bytes, address: int, kinds: tuple[int, ...]) -> _Header:
    if data[:4] != b"BTHD" or data[4] != 0:
        file.fail("has no signature", address, "B-tree header")
    verify_checksum(file, data, address, "B-tree header")
    # Type, node size, record size, depth, when to split and to merge, root, its records.
    kind, node_size, record_size, depth, _, _, root, count = _header_struct(file.offset_size).unpack_from(data, 5)
    total = int.from_bytes(data[18 + file.offset_size : -4], "little")
    header = _Header(kind, node_size, record_size, depth, root, count, total)
    if header.kind not in kinds:
        file.fail(f"has record type {header.kind}, expected {kinds}", address, "B-tree header")
    if header.record_size < _LEAST_RECORD.get(header.kind, 1):
        file.fail(f"has records of {header.record_size} bytes", address, "B-tree header")
    if not header.record_size or header.node_size < _OVERHEAD + header.record_size or header.depth > 64:
        file.fail(
            f"has nodes of {header.node_size} bytes and a depth of {header.depth}, which is impossible",
            address,
            "B-tree header",
        )
    return header


def _count_widths(file: FileContext, header: _Header) -> tuple[list[int], list[int]]:
    """Return the bytes of record counts and of subtree totals, for the children of each level.

    Level 0 are leaves. Both are just wide enough for the greatest number that can occur (III.A.2,
    "Number of Records").
    """
    room = (header.node_size - _OVERHEAD) // header.record_size
    count_width = _width_of(room)
    counts, subtotals = [count_width], [0]
    total = room
    for _ in range(1, header.depth):
        pointer = file.offset_size + count_width + subtotals[-1]
        room = (header.node_size - _OVERHEAD - pointer) // (header.record_size + pointer)
        total = (room + 1) * total + room
        counts.append(count_width)
        subtotals.append(_width_of(total))
    return counts, subtotals


def _width_of(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _node_records(
    file: FileContext, header: _Header, nodes: list[tuple[int, int]], blocks: list[bytes], level: int
) -> RecordTable:
    """The records of some nodes of one level, checked."""
    signature, size = b"BTIN" if level else b"BTLF", header.record_size
    most = max(count for _, count in nodes)
    if 6 + most * size + 4 > header.node_size:
        file.fail(f"has {most} records, more than fit into it", nodes[0][0], "B-tree node")
    for (place, count), block in zip(nodes, blocks, strict=True):
        if block[:4] != signature or block[5] != header.kind:
            file.fail("is not a node of its tree", place, "B-tree node")
        if not level:  # inner nodes are checked where their children are known
            verify_checksum(file, block[: 6 + count * size + 4], place, "B-tree node")
    if len(nodes) == 1:
        return np.frombuffer(blocks[0], np.uint8, most * size, 6).reshape(most, size)
    # As opaque records, which numpy copies whole; as bytes it would copy them one by one.
    table: Any = np.ndarray((len(nodes), most), f"V{size}", b"".join(blocks), 6, (header.node_size, size))
    counts = np.array([count for _, count in nodes])
    used_records = table[np.arange(most) < counts[:, None]]
    records: RecordTable = used_records.view(np.uint8).reshape(-1, size)
    return records


def _children(
    file: FileContext, header: _Header, block: bytes, place: int, count: int, level: int, widths: tuple[int, int]
) -> list[tuple[int, int]]:
    """Return the children of an inner node: address and number of records."""
    width = file.offset_size
    at = 6 + count * header.record_size
    step = width + widths[0] + widths[1]
    end = at + (count + 1) * step + 4
    if end > len(block):
        file.fail(f"has {count} records, more than fit into it", place, "B-tree node")
    verify_checksum(file, block[:end], place, "B-tree node")
    children = []
    for _ in range(count + 1):
        child = int.from_bytes(block[at : at + width], "little")
        children.append((child, int.from_bytes(block[at + width : at + width + widths[0]], "little")))
        at += step
    return [(child, records) for child, records in children if records]
