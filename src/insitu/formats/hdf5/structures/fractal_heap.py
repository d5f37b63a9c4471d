"""Reader of fractal heaps, which hold links and attributes once there are many of them.

Format specification 3.0, III.F: an address space of blocks that double in size. Small objects lie
in direct blocks, which indirect blocks point to.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from insitu.errors import FormatError
from insitu.formats.hdf5.structures.btree_v2 import read_records
from insitu.formats.hdf5.structures.checksum import verify_checksum
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.message_cache import parse_once
from insitu.formats.hdf5.structures.pipeline import Filter, parse_filters
from insitu.formats.parsing.fields import check_length
from insitu.formats.parsing.scheduler import Walk

__all__ = ["cached_heap_objects", "read_heap_objects"]

ROWS_LIMIT = 128
"""Each row doubles the size of its blocks, and addresses in a heap have at most 64 bits."""
INFLATED_LIMIT = 1 << 40
"""Bytes that a block may declare to inflate to. The decoder's own limit is the declared size; this is for sizes that no
heap has.
"""

_WantedObjects = tuple[tuple[int, int, int], ...]
"""Objects in blocks: where in the heap's address space they begin, their length, and which of the
ids asked for it is."""


class _Heap(NamedTuple):
    address: int
    id_length: int
    filters: tuple[Filter, ...]
    checked: bool
    """Direct blocks have a checksum."""
    huge_tree: int
    width: int
    """Blocks in a row of the doubling table."""
    first: int
    """Bytes of a block in the first two rows."""
    largest: int
    """Bytes of the largest direct block."""
    offset_bytes: int
    """Bytes of an offset in the heap's address space."""
    length_bytes: int
    """Bytes of an object's length in its id."""
    root: int
    root_rows: int
    """Rows of the root indirect block; 0: the root is a direct block."""
    root_size: int
    """Bytes of the root direct block where filters changed it."""
    root_mask: int

    def row_size(self, row: int) -> int:
        return self.first << max(0, row - 1)

    @property
    def direct_rows(self) -> int:
        return self.largest.bit_length() - self.first.bit_length() + 2


class _Block(NamedTuple):
    """A block that has to be read: where it lies in the file and in the heap's address space."""

    address: int
    start: int
    size: int
    rows: int
    """Rows, if it is an indirect block; else 0."""
    stored: int
    """Bytes in the file."""
    mask: int


def read_heap_objects(file: FileContext, address: int, ids: tuple[bytes, ...]) -> Walk[list[bytes]]:
    """Return the objects with these ids.

    Parameters
    ----------
    file, address
        Where the heap's header lies.
    ids
        Heap ids (III.F, "Fractal Heap ID").
    """
    if not ids:
        return []
    place = file.range_up_to(address, 256, 26 + 12 * file.length_size + 3 * file.offset_size, "fractal heap")
    data = file.peek(*place)
    if data is None:
        (data,) = yield [place]
    heap = _header(file, data, address)
    managed, huge, tiny = _split_ids(ids, heap.id_length, heap.offset_bytes, heap.length_bytes)
    out: list[bytes] = [b""] * len(ids)
    for number, value in tiny:
        out[number] = value
    if managed:
        yield from _read_managed(file, heap, managed, out)
    if huge:
        yield from _read_huge(file, heap, [(number, ids[number]) for number in huge], out)
    return out


def cached_heap_objects(file: FileContext, address: int, ids: tuple[bytes, ...]) -> list[bytes] | None:
    """Return the objects with these ids if the heap is one block in memory, else None.

    The heap of a few attributes usually is.
    """
    if not ids:
        return []
    place = file.range_up_to(address, 256, 26 + 12 * file.length_size + 3 * file.offset_size, "fractal heap")
    data = file.peek(*place)
    if data is None:
        return None
    heap = _header(file, data, address)
    if heap.root_rows or heap.filters or heap.root == file.undefined:
        return None
    managed, huge, tiny = _split_ids(ids, heap.id_length, heap.offset_bytes, heap.length_bytes)
    if huge or tiny:
        return None
    data = file.peek(*file.range(heap.root, heap.first, "fractal heap block"))
    if data is None:
        return None
    out: list[bytes] = [b""] * len(ids)
    _extract_objects(file, heap, _Block(heap.root, 0, heap.first, 0, heap.first, 0), data, managed, out)
    return out


@lru_cache(maxsize=1024)
def _split_ids(
    ids: tuple[bytes, ...], id_length: int, offset_bytes: int, length_bytes: int
) -> tuple[_WantedObjects, tuple[int, ...], tuple[tuple[int, bytes], ...]]:
    """Split ids into those of objects in blocks, of huge objects, and of tiny ones.

    A tiny object is stored in its id.
    """
    managed: list[tuple[int, int, int]] = []
    huge: list[int] = []
    tiny: list[tuple[int, bytes]] = []
    for number, key in enumerate(ids):
        check_length(key, 2, "fractal heap id")
        kind = key[0] >> 4
        if kind == 0:
            at = 1 + offset_bytes
            start = int.from_bytes(key[1:at], "little")
            managed.append((start, int.from_bytes(key[at : at + length_bytes], "little"), number))
        elif kind == 1:
            huge.append(number)
        elif kind == 2:
            short = id_length <= 17
            tiny.append((number, key[1 : 2 + (key[0] & 15)] if short else key[2 : 3 + ((key[0] & 15) << 8 | key[1])]))
        else:
            raise FormatError(f"a heap id has the unknown kind {key[0]:#x}", structure="fractal heap")
    return tuple(managed), tuple(huge), tuple(tiny)


@lru_cache(maxsize=8)
def _header_struct(width: int, length: int) -> struct.Struct:
    """Return the layout of the heap header.

    Signature, version, id length, filter length, flags, largest managed; next huge id, huge tree,
    free space and its manager, eight statistics; width of the table, first and largest block, bits,
    rows of the root to begin with, root, its rows.
    """
    address, size = _LETTERS[width], _LETTERS[length]
    return struct.Struct(f"<4sBHHBI {size}{address}{size}{address}8{size} H{size}{size}HH{address}H")


_LETTERS = {2: "H", 4: "I", 8: "Q"}


def _header(file: FileContext, data: bytes, address: int) -> _Heap:
    """III.F, "Fractal Heap Header"."""
    if data[:4] != b"FRHP" or data[4] != 0:
        file.fail("has no signature", address, "fractal heap")
    length = file.length_size
    form = _header_struct(file.offset_size, length)
    _, _, id_length, filter_length, flags, most, _, huge_tree, *_, width, first, largest, bits, _, root, rows = (
        form.unpack_from(data)
    )
    end = form.size
    filters: tuple[Filter, ...] = ()
    root_size = root_mask = 0
    if filter_length:
        root_size = int.from_bytes(data[end : end + length], "little")
        root_mask = int.from_bytes(data[end + length : end + length + 4], "little")
        end += length + 4
        if end + filter_length + 4 > len(data):
            file.fail("has a filter pipeline that is longer than its header", address, "fractal heap")
        filters = parse_once(parse_filters, data[end : end + filter_length])
        end += filter_length
    verify_checksum(file, data[: end + 4], address, "fractal heap")
    if not first or first & (first - 1) or largest & (largest - 1) or largest < first or not width:
        file.fail(f"has blocks of {first} to {largest} bytes", address, "fractal heap")
    if rows > ROWS_LIMIT:
        file.fail(f"has a root block of {rows} rows, at most {ROWS_LIMIT} are possible", address, "fractal heap")
    if not 1 <= bits <= 64 or largest >= 1 << 48:
        file.fail(f"has an address space of {bits} bits, blocks up to {largest} bytes", address, "fractal heap")
    return _Heap(
        address=address,
        id_length=id_length,
        filters=filters,
        checked=bool(flags & 2),
        huge_tree=huge_tree,
        width=width,
        first=first,
        largest=largest,
        offset_bytes=(bits + 7) // 8,
        length_bytes=min((largest.bit_length() + 7) // 8, (most.bit_length() + 7) // 8),
        root=root,
        root_rows=rows,
        root_size=root_size,
        root_mask=root_mask,
    )


def _read_managed(file: FileContext, heap: _Heap, objects: _WantedObjects, out: list[bytes]) -> Walk[None]:
    """Objects in direct blocks: down from the root, all blocks of a level at once.

    Only blocks that hold one of the objects are fetched. Object by object would fetch a block for each name in it, one
    round trip after the other.
    """
    if heap.root == file.undefined:
        file.fail("has no blocks, but objects are looked up in it", heap.address, "fractal heap")
    if heap.root_rows:
        blocks = {_Block(heap.root, 0, 0, heap.root_rows, _indirect_size(file, heap, heap.root_rows), 0): objects}
    else:
        stored = heap.root_size if heap.filters else heap.first
        blocks = {_Block(heap.root, 0, heap.first, 0, stored, heap.root_mask): objects}
    for _ in range(65):  # each step halves the size of the blocks
        todo = list(blocks.items())
        if not todo:
            return
        fetched = yield [file.range(block.address, block.stored, "fractal heap block") for block, _ in todo]
        blocks = {}
        for (block, block_objects), data in zip(todo, fetched, strict=True):
            if block.rows:
                blocks |= _children(file, heap, block, data, block_objects)
            else:
                _extract_objects(file, heap, block, data, block_objects, out)
    file.fail("has indirect blocks that are nested too deep", heap.address, "fractal heap")


def _indirect_size(file: FileContext, heap: _Heap, rows: int) -> int:
    direct = min(rows, heap.direct_rows) * heap.width
    entry = file.offset_size + (file.length_size + 4 if heap.filters else 0)
    rest = max(0, rows - heap.direct_rows) * heap.width
    return 5 + file.offset_size + heap.offset_bytes + direct * entry + rest * file.offset_size + 4


def _children(
    file: FileContext, heap: _Heap, block: _Block, data: bytes, objects: _WantedObjects
) -> dict[_Block, _WantedObjects]:
    """Return the blocks below an indirect block that hold wanted objects.

    III.F, "Fractal Heap Indirect Block".
    """
    if data[:4] != b"FHIB":
        file.fail("has no signature", block.address, "fractal heap indirect block")
    verify_checksum(file, data, block.address, "fractal heap indirect block")
    by_child = _assign_to_children(heap.first, heap.width, block.rows, block.start, objects)
    rows = _row_starts(heap.first, heap.width, block.rows)
    return {_child(file, heap, block, data, number, rows): items for number, items in by_child}


@lru_cache(maxsize=1024)
def _assign_to_children(
    first: int, width: int, rows: int, begin: int, objects: _WantedObjects
) -> tuple[tuple[int, _WantedObjects], ...]:
    """The objects in each child of an indirect block, by the child's number."""
    starts = _row_starts(first, width, rows)
    by_child: dict[int, list[tuple[int, int, int]]] = {}
    for item in objects:
        relative = item[0] - begin
        row = bisect_right(starts, relative) - 1
        if not 0 <= row < rows:
            raise FormatError("a heap id points outside of its heap", structure="fractal heap indirect block")
        number = row * width + (relative - starts[row]) // (first << max(0, row - 1))
        by_child.setdefault(number, []).append(item)
    return tuple((number, tuple(items)) for number, items in by_child.items())


@lru_cache(maxsize=64)
def _row_starts(first: int, width: int, rows: int) -> tuple[int, ...]:
    """Where each row of the doubling table begins, and the end."""
    return tuple(accumulate((width * (first << max(0, row - 1)) for row in range(rows)), initial=0))


def _child(file: FileContext, heap: _Heap, block: _Block, data: bytes, number: int, rows: tuple[int, ...]) -> _Block:
    """One block below an indirect block, by its number."""
    row, column = divmod(number, heap.width)
    size, width = heap.row_size(row), file.offset_size
    place = block.start + rows[row] + column * size
    entry = width + (file.length_size + 4 if heap.filters else 0)
    direct = heap.direct_rows * heap.width
    at = 5 + width + heap.offset_bytes
    at += number * entry if number < direct else direct * entry + (number - direct) * width
    address = int.from_bytes(data[at : at + width], "little")
    if number >= direct:
        rows_below = (size // heap.width).bit_length() - heap.first.bit_length() + 1
        if rows_below < 1:
            file.fail("has indirect blocks smaller than direct ones", block.address, "fractal heap indirect block")
        return _Block(address, place, size, rows_below, _indirect_size(file, heap, rows_below), 0)
    if not heap.filters:
        return _Block(address, place, size, 0, size, 0)
    at += width
    stored = int.from_bytes(data[at : at + file.length_size], "little")
    mask = int.from_bytes(data[at + file.length_size : at + file.length_size + 4], "little")
    return _Block(address, place, size, 0, stored, mask)


def _extract_objects(
    file: FileContext, heap: _Heap, block: _Block, data: bytes, objects: _WantedObjects, out: list[bytes]
) -> None:
    """Cut objects out of a direct block (III.F, "Fractal Heap Direct Block")."""
    if heap.filters:
        data = _undo_filters(file, heap, data, block.mask, block.size)
    if data[:4] != b"FHDB":
        file.fail("has no signature", block.address, "fractal heap direct block")
    if heap.checked:
        # The checksum lies in the block's header and counts as zero in its own sum.
        at = 5 + file.offset_size + heap.offset_bytes
        verify_checksum(
            file, data[:at] + bytes(4) + data[at + 4 :] + data[at : at + 4], block.address, "fractal heap direct block"
        )
    for start, length, number in objects:
        at = start - block.start
        if at < 0 or at + length > len(data):
            file.fail("does not hold an object that should be there", block.address, "fractal heap direct block")
        out[number] = data[at : at + length]


def _read_huge(file: FileContext, heap: _Heap, objects: list[tuple[int, bytes]], out: list[bytes]) -> Walk[None]:
    """Read objects that are too large for a block.

    The id holds the address, or the key to a B-tree that does.
    """
    width, length = file.offset_size, file.length_size
    more = 4 + length if heap.filters else 0  # filter mask, size before filters
    direct = heap.id_length - 1 >= width + length + more
    places: list[tuple[int, int, int, int, int]] = []
    if direct:
        for number, key in objects:
            address, size = int.from_bytes(key[1 : 1 + width], "little"), key[1 + width : 1 + width + length]
            at = 1 + width + length
            mask = int.from_bytes(key[at : at + 4], "little") if more else 0
            full = int.from_bytes(key[at + 4 : at + 4 + length], "little") if more else 0
            places.append((number, address, int.from_bytes(size, "little"), mask, full))
    else:
        records = yield from read_records(file, heap.huge_tree, (1, 2))
        by_key = {record[width + length + more :]: record for record in records}
        for number, key in objects:
            found = by_key.get(key[1 : 1 + length].ljust(length, b"\0"))
            if found is None:
                file.fail("has no huge object of that id", heap.address, "fractal heap")
            at = width + length
            mask = int.from_bytes(found[at : at + 4], "little") if more else 0
            full = int.from_bytes(found[at + 4 : at + 4 + length], "little") if more else 0
            places.append(
                (number, int.from_bytes(found[:width], "little"), int.from_bytes(found[width:at], "little"), mask, full)
            )
    blocks = yield [file.range(address, size, "huge heap object") for _, address, size, _, _ in places]
    for (number, _, _, mask, full), data in zip(places, blocks, strict=True):
        out[number] = _undo_filters(file, heap, data, mask, full) if heap.filters else data


def _undo_filters(file: FileContext, heap: _Heap, data: bytes, mask: int, size: int) -> bytes:
    """Undo the filters of a heap. Only deflate is ever used on metadata."""
    for position, item in reversed(list(enumerate(heap.filters))):
        if mask >> position & 1:
            continue
        if item.number != 1:
            file.refuse(f"metadata heaps compressed by filter {item.number} ({item.name}) are not supported")
        if not 0 < size < INFLATED_LIMIT:
            file.fail(f"is said to inflate to {size} bytes", heap.address, "fractal heap block")
        try:
            data = zlib.decompressobj().decompress(data, size)
        except zlib.error as problem:
            file.fail(f"cannot be inflated: {problem}", heap.address, "fractal heap block")
    if len(data) != size:
        file.fail(f"inflates to {len(data)} bytes instead of {size}", heap.address, "fractal heap block")
    return data
