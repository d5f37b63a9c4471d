"""Reader of fixed array indexes: chunks of datasets of fixed size.

Format specification 3.0, VII.C. One element per chunk of the maximum shape, in C order. Large
arrays are split into pages, of which only the initialised ones count.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from insitu.formats.hdf5.structures.checksum import verify_checksum
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.parsing.scheduler import ExactRanges, Walk

__all__ = ["Elements", "element_table", "read_fixed_array"]

PAGE_BATCH = 4 << 20

Elements = list[tuple[int, npt.NDArray[np.uint8]]]
"""Runs of elements: the number of the first, and a table (elements, bytes of an element)."""


def read_fixed_array(file: FileContext, address: int, expected: int) -> Walk[Elements]:
    """Return the elements of a fixed array.

    Parameters
    ----------
    file, address
        Where the header lies.
    expected
        How many elements there must be.
    """
    width = file.offset_size
    (head,) = yield [file.range(address, 12 + file.length_size + width, "fixed array")]
    if head[:4] != b"FAHD" or head[4] != 0:
        file.fail("has no signature", address, "fixed array")
    verify_checksum(file, head, address, "fixed array")
    size, page_bits = head[6], head[7]
    count = int.from_bytes(head[8 : 8 + file.length_size], "little")
    block = int.from_bytes(head[8 + file.length_size : 8 + file.length_size + width], "little")
    if count != expected or size < width or count * size > file.size * 64:
        file.fail(f"has {count} elements of {size} bytes, but {expected} chunks are expected", address, "fixed array")
    if block == file.undefined:
        return []
    page = 1 << page_bits
    begin = 6 + width
    if count <= page:
        (data,) = yield ExactRanges([file.range(block, begin + count * size + 4, "fixed array data block")])
        _check_signature(file, data, block)
        verify_checksum(file, data, block, "fixed array data block")
        return [(0, element_table(data, begin, count, size))]
    pages = -(-count // page)
    bitmap = -(-pages // 8)
    (data,) = yield ExactRanges([file.range(block, begin + bitmap + 4, "fixed array data block")])
    _check_signature(file, data, block)
    verify_checksum(file, data, block, "fixed array data block")
    written = np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8, bitmap, begin))[:pages]).tolist()
    first = block + begin + bitmap + 4
    out: Elements = []
    batch = max(1, PAGE_BATCH // (page * size))
    for start in range(0, len(written), batch):
        page_batch = written[start : start + batch]
        counts = [min(page, count - number * page) for number in page_batch]
        places = [first + number * (page * size + 4) for number in page_batch]
        blocks = yield ExactRanges(
            [file.range(p, n * size + 4, "fixed array page") for p, n in zip(places, counts, strict=True)]
        )
        for number, n, place, block_data in zip(page_batch, counts, places, blocks, strict=True):
            verify_checksum(file, block_data, place, "fixed array page")
            out.append((number * page, element_table(block_data, 0, n, size)))
    return out


def _check_signature(file: FileContext, data: bytes, block: int) -> None:
    if data[:4] != b"FADB" or data[4] != 0:
        file.fail("has no signature", block, "fixed array data block")


def element_table(data: bytes, at: int, count: int, size: int) -> npt.NDArray[np.uint8]:
    """Return elements as a table (elements, bytes of an element)."""
    return np.frombuffer(data, np.uint8, count * size, at).reshape(count, size)
