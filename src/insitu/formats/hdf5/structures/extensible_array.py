"""Reader of extensible array indexes: chunks of datasets with one unlimited axis.

Format specification 3.0, VII.D. The first elements lie in the index block. Then come data blocks
that double in size; the index block names the first ones, super blocks the others. Large data
blocks are split into pages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from insitu.formats.hdf5.structures.checksum import verify_checksum
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.fixed_array import Elements, element_table
from insitu.formats.parsing.scheduler import ExactRanges, Walk

__all__ = ["read_extensible_array"]

BATCH = 4 << 20
"""Bytes of data blocks that are fetched and checked at once: all of them would double the memory of a large index."""


@dataclass(frozen=True, slots=True)
class _Header:
    size: int
    """Bytes of an element."""
    bits: int
    """log2 of the most elements there can be."""
    direct: int
    """Elements in the index block."""
    least: int
    """Elements of the smallest data block."""
    pointers: int
    """Data blocks of the smallest super block that is a block of its own."""
    page: int
    """Elements of a page."""
    count: int
    """One more than the highest element that was ever set."""
    index_block: int

    @property
    def offset_bytes(self) -> int:
        return (self.bits + 7) // 8


@dataclass(frozen=True, slots=True)
class _DataBlock:
    address: int
    first: int
    """The number of its first element."""
    count: int
    pages: npt.NDArray[np.uint8] | None
    """For each page whether it was written; None: not cut into pages."""


def read_extensible_array(file: FileContext, address: int) -> Walk[Elements]:
    """Return the elements of an extensible array.

    Parameters
    ----------
    file, address
        Where the header lies.
    """
    width = file.offset_size
    (head,) = yield [file.range(address, 16 + 6 * file.length_size + width, "extensible array")]
    header = _header(file, head, address)
    if header.index_block == file.undefined:
        return []
    # Super blocks 0, 1, ... hold 1, 1, 2, 2, 4, 4, ... data blocks of 1, 2, 2, 4, 4, ... times the
    # least elements.
    total = 1 + header.bits - (header.least.bit_length() - 1)
    inner = 2 * (header.pointers.bit_length() - 1)
    supers = max(0, total - inner)
    begin = 6 + width
    size = begin + header.direct * header.size + (2 * (header.pointers - 1) + supers) * width + 4
    (data,) = yield ExactRanges([file.range(header.index_block, size, "extensible array index block")])
    if data[:4] != b"EAIB":
        file.fail("has no signature", header.index_block, "extensible array index block")
    verify_checksum(file, data, header.index_block, "extensible array index block")
    out: Elements = [(0, element_table(data, begin, header.direct, header.size))] if header.direct else []
    at = begin + header.direct * header.size
    blocks: list[_DataBlock] = []
    outer: list[tuple[int, int, int]] = []
    first = header.direct
    for number in range(total):
        count, room = 1 << number // 2, header.least << (number + 1) // 2
        if first >= header.count:
            break  # a header may allow 2 ** 64 elements; blocks are only looked for up to the highest that was set
        if number < inner:
            for i in range(count):
                place = int.from_bytes(data[at : at + width], "little")
                at += width
                if place != file.undefined:
                    blocks.append(_DataBlock(place, first + i * room, room, None))
        else:
            place = int.from_bytes(data[at : at + width], "little")
            at += width
            if place != file.undefined:
                outer.append((number, place, first))
        first += count * room
    blocks += yield from _super_blocks(file, header, outer)
    yield from _data_blocks(file, header, blocks, out)
    return out


def _header(file: FileContext, head: bytes, address: int) -> _Header:
    if head[:4] != b"EAHD" or head[4] != 0:
        file.fail("has no signature", address, "extensible array")
    verify_checksum(file, head, address, "extensible array")
    length, width = file.length_size, file.offset_size
    size, bits, direct, least, pointers, page_bits = head[6:12]
    highest = int.from_bytes(head[12 + 4 * length : 12 + 5 * length], "little")
    block = int.from_bytes(head[12 + 6 * length : 12 + 6 * length + width], "little")
    powers = all(n and not n & (n - 1) for n in (least, pointers))
    if size < width or not 1 <= bits <= 64 or page_bits > 63 or not powers or pointers < 2 or 1 << bits < least:
        file.fail("has impossible parameters", address, "extensible array")
    return _Header(size, bits, direct, least, pointers, 1 << page_bits, highest, block)


def _super_blocks(file: FileContext, header: _Header, outer: list[tuple[int, int, int]]) -> Walk[list[_DataBlock]]:
    """The data blocks that super blocks name."""
    width = file.offset_size
    begin = 6 + width + header.offset_bytes
    shapes, ranges = [], []
    for number, place, _ in outer:
        count, room = 1 << number // 2, header.least << (number + 1) // 2
        bitmap = -(-(room // header.page) // 8) if room > header.page else 0
        shapes.append((count, room, bitmap))
        size = begin + count * (bitmap + width) + 4
        ranges.append(file.range(place, size, "extensible array super block"))
    blocks = []
    found = yield ExactRanges(ranges)
    for (_, place, first), (count, room, bitmap), data in zip(outer, shapes, found, strict=True):
        if data[:4] != b"EASB":
            file.fail("has no signature", place, "extensible array super block")
        verify_checksum(file, data, place, "extensible array super block")
        # One bit a page, those of all data blocks without a gap, though there is room for whole
        # bytes for each.
        bits = np.unpackbits(np.frombuffer(data, np.uint8, count * bitmap, begin))
        pages = room // header.page
        addresses = np.frombuffer(data, f"<u{width}", count, begin + count * bitmap).tolist()
        for i, address in enumerate(addresses):
            if address != file.undefined and first + i * room < header.count:
                written = bits[i * pages : (i + 1) * pages] if bitmap else None
                blocks.append(_DataBlock(address, first + i * room, room, written))
    return blocks


def _data_blocks(file: FileContext, header: _Header, blocks: list[_DataBlock], out: Elements) -> Walk[None]:
    """Add the elements of all data blocks: whole, or page by page."""
    prefix = 6 + file.offset_size + header.offset_bytes
    # (first element, elements, address, where in it the elements begin)
    runs: list[tuple[int, int, int, int]] = []
    for block in blocks:
        if block.pages is None:
            runs.append((block.first, block.count, block.address, prefix))
            continue
        for number in np.flatnonzero(block.pages).tolist():
            place = block.address + prefix + 4 + number * (header.page * header.size + 4)
            runs.append((block.first + number * header.page, header.page, place, 0))
    if len({run[2] for run in runs}) != len(runs):
        file.fail("refers to one data block twice", header.index_block, "extensible array")
    start = 0
    while start < len(runs):
        end, total = start, 0
        while end < len(runs) and (total < BATCH or end == start):
            total += runs[end][1] * header.size
            end += 1
        run_batch = runs[start:end]
        ranges = [file.range(p, b + n * header.size + 4, "extensible array data block") for _, n, p, b in run_batch]
        found = yield ExactRanges(ranges)
        for (first, count, place, begin), data in zip(run_batch, found, strict=True):
            if begin and data[:4] != b"EADB":
                file.fail("has no signature", place, "extensible array data block")
            verify_checksum(file, data, place, "extensible array data block")
            out.append((first, element_table(data, begin, count, header.size)))
        start = end
