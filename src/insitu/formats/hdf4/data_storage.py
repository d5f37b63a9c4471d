"""Find where the data of an HDF4 dataset lies, and how it is compressed.

In one piece; compressed in one piece; in linked blocks; in another file; or in chunks, each of
which may be compressed (HDF4 specification, chapter 10). Each special element begins with its code
and a header of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf4.descriptors import ObjectLocation, ObjectTable
from insitu.formats.hdf4.vsets import TYPES, parse_vdata
from insitu.formats.parsing.fields import check_length, take_fields
from insitu.formats.parsing.scheduler import ExactRanges, Walk
from insitu.model import Codec

__all__ = ["ChunkedData", "DataRanges", "join_pieces", "read_bytes", "read_storage"]

LINKED, EXTERNAL, COMPRESSED, CHUNKED = 1, 2, 3, 5
NULL, DATA, LINK, COMPRESSED_DATA, CHUNK, VDATA_HEADER, VDATA = 1, 702, 20, 40, 61, 1962, 1963
NONE, RLE, NBIT, HUFFMAN, DEFLATE, SZIP = 0, 1, 2, 3, 4, 5
NAMES = {6: "method 6", 7: "JPEG"}
CODER = 18
"""Bytes of a compressed element's header before those of its coder, which are at most 16."""
LARGEST_JOINED = 1 << 24
"""Most bytes of data in several pieces that is read and kept."""
LARGEST_TABLE = 1 << 28
"""Bytes of a table, such as the Vdata of chunks, that is read whole: a damaged length must not become an allocation."""
BLOCKS_LIMIT = 1 << 20
"""Most numbers in one table of linked blocks."""
NESTING_LIMIT = 4
"""Special elements that may refer to each other; more is a cycle."""
HOLE = -1
"""The offset of a linked block that was never written."""


class DataRanges(NamedTuple):
    """Data in one or several ranges, one after the other."""

    ranges: list[tuple[int, int]]
    codec: Codec | None
    joined: bytes | None = None
    """Compressed data that lies in several pieces, put together."""
    other_file: str | None = None
    """Name of the file that holds the ranges, if it is another one."""

    @property
    def size(self) -> int:
        """Bytes of all ranges, holes included."""
        return sum(length for _, length in self.ranges)

    @property
    def has_holes(self) -> bool:
        """Whether blocks in the middle were never written.

        The library reads them as zeros, whatever the fill value.
        """
        return any(offset == HOLE for offset, _ in self.ranges)


class ChunkedData(NamedTuple):
    """Data in chunks."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    cells: npt.NDArray[np.int64]
    """(chunks, axes): the place of each in the grid."""
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    codecs: list[Codec | None]
    """Of each chunk."""
    joined: dict[int, bytes]
    """Chunks in several pieces, put together, by their row."""
    fill: bytes


def read_storage(found: ObjectTable, place: ObjectLocation) -> Walk[DataRanges | ChunkedData]:
    """Return where the data of an object lies."""
    if not place.special:
        return DataRanges([(place.offset, place.length)], None)
    (head,) = yield ExactRanges([(place.offset, place.length)])
    (code,) = take_fields(">H", head, 0, "special element")
    if code == LINKED:
        ranges = yield from _linked_ranges(found, head)
        return DataRanges(ranges, None)
    if code == COMPRESSED:
        ref, codec = _compression(head, place.offset)
        data = found.find(COMPRESSED_DATA, ref)
        if data is None:
            _check_empty(head, found, ref)
            return DataRanges([], codec)
        inner = yield from _uncompressed_ranges(found, data)
        whole = codec is None or (len(inner) < 2 and not DataRanges(inner, None).has_holes)
        joined = None if whole else (yield from join_pieces(found, inner))
        return DataRanges(inner, codec, joined)
    if code == CHUNKED:
        chunks = yield from _read_chunk_table(found, head, place.offset)
        return chunks
    if code == EXTERNAL:
        return _external(head, place.offset)
    raise UnsupportedError(
        f"special elements of code {code} are not supported", offset=place.offset, structure="special element"
    )


def _external(head: bytes, offset: int) -> DataRanges:
    """Return data in another file: its length, offset and the file's name."""
    length, begin, size = take_fields(">iii", head, 2, "external element")
    name = head[14 : 14 + max(size, 0)].split(b"\0", 1)[0].decode("utf-8", "replace")
    if length < 0 or begin < 0 or not name:
        raise FormatError(
            f"the place of external data is not valid: {length} bytes at {begin} of {name!r}",
            offset=offset,
            structure="external element",
        )
    return DataRanges([(begin, length)], None, other_file=name)


def join_pieces(found: ObjectTable, ranges: list[tuple[int, int]]) -> Walk[bytes]:
    """Return data in several pieces as bytes, if it is small: a chunk is one range."""
    total = sum(length for _, length in ranges)
    if total > LARGEST_JOINED:
        raise UnsupportedError(
            f"{total} bytes in {len(ranges)} pieces, compressed or not of whole rows, are too many",
            structure="linked blocks",
        )
    data: bytes = yield from _read_joined(ranges)
    return data


def _read_joined(ranges: list[tuple[int, int]]) -> Walk[bytes]:
    """Read ranges one after the other, zeros where a block was never written."""
    blocks = yield ExactRanges([(offset, length) for offset, length in ranges if offset != HOLE])
    written = iter(blocks)
    return b"".join(bytes(length) if offset == HOLE else next(written) for offset, length in ranges)


def read_bytes(found: ObjectTable, place: ObjectLocation) -> Walk[bytes]:
    """Return the bytes of a small uncompressed object."""
    ranges = yield from _uncompressed_ranges(found, place)
    if sum(length for _, length in ranges) > LARGEST_TABLE:
        raise FormatError("the table is too large", offset=place.offset, structure="Vdata")
    data: bytes = yield from _read_joined(ranges)
    return data


def _uncompressed_ranges(found: ObjectTable, place: ObjectLocation) -> Walk[list[tuple[int, int]]]:
    """Return the ranges of an object that must not be compressed.

    In one piece, in linked blocks, or an element of the kind that can be compressed, but is not.
    """
    for _ in range(NESTING_LIMIT):
        if not place.special:
            return [(place.offset, place.length)]
        (head,) = yield ExactRanges([(place.offset, place.length)])
        (code,) = take_fields(">H", head, 0, "special element")
        if code == LINKED:
            ranges = yield from _linked_ranges(found, head)
            return ranges
        ref, codec = _compression(head, place.offset) if code == COMPRESSED else (0, None)
        if code != COMPRESSED or codec is not None:
            raise UnsupportedError(
                "tables that are compressed, chunked or in another file are not supported",
                offset=place.offset,
                structure="Vdata",
            )
        data = found.find(COMPRESSED_DATA, ref)
        if data is None:
            _check_empty(head, found, ref)
            return []
        place = data
    raise FormatError(
        "special elements refer to each other in a cycle", offset=place.offset, structure="special element"
    )


def _check_empty(head: bytes, found: ObjectTable, ref: int) -> None:
    """Raise `FormatError` if an element says that it has bytes, but its object is missing."""
    (length,) = take_fields(">i", head, 4, "compressed element")
    if length:
        raise FormatError(
            f"the object {COMPRESSED_DATA}/{ref} of a compressed element of {length} bytes is missing",
            structure="compressed element",
        )


def _compression(head: bytes, offset: int) -> tuple[int, Codec | None]:
    """Return the reference number of the compressed bytes, and their codec."""
    _, _, _, ref, _, coder = take_fields(">HHiHHH", head, 0, "compressed element")
    at = 14
    if coder == NONE:
        return ref, None
    if coder == RLE:
        return ref, Codec("hdf4_rle")
    if coder == DEFLATE:
        return ref, Codec("zlib")
    if coder == NBIT:
        kind, sign, ones, start, bits = take_fields(">iHHii", head, at, "compressed element")
        size = np.dtype(TYPES.get(kind & 0xFF, "V0")).itemsize
        configuration = {"size": size, "start": start, "length": bits, "sign": bool(sign), "ones": bool(ones)}
        return ref, Codec("hdf4_nbit", configuration)
    if coder == HUFFMAN:
        (skip,) = take_fields(">i", head, at, "compressed element")
        return ref, Codec("hdf4_huffman", {"skip": skip})
    if coder == SZIP:
        _, line, options, bits, block = take_fields(">IIIBB", head, at, "compressed element")
        configuration = {
            "options_mask": options,
            "pixels_per_block": block,
            "bits_per_pixel": bits,
            "pixels_per_scanline": line,
        }
        return ref, Codec("hdf4_szip", configuration)
    raise UnsupportedError(
        f"compression {NAMES.get(coder, f'method {coder}')} is not supported",
        offset=offset,
        structure="compressed element",
    )


def _linked_ranges(found: ObjectTable, head: bytes) -> Walk[list[tuple[int, int]]]:
    """Return the ranges of linked blocks, listed by chained tables."""
    total, block_length, count, ref = take_fields(">iiiH", head, 2, "linked blocks")
    if not 0 < count <= BLOCKS_LIMIT:
        raise FormatError(f"a block table of {count} blocks is not valid", structure="linked blocks")
    ranges: list[tuple[int, int]] = []
    seen: set[int] = set()
    while ref and total > 0:
        table = found.find(LINK, ref)
        if table is None or ref in seen or table.special:
            raise FormatError("the chain of block tables is broken", structure="linked blocks")
        seen.add(ref)
        (data,) = yield ExactRanges([(table.offset, table.length)])
        check_length(data, 2, "block table")
        ref, *refs = take_fields(f">{1 + min(count, len(data) // 2 - 1)}H", data, 0, "block table")
        for number in refs:
            if total <= 0:
                break
            if not number:
                length = min(max(block_length, 1), total)
                ranges.append((HOLE, length))
                total -= length
                continue
            block = found.find(LINK, number)
            if block is None:
                raise FormatError("a linked block is missing", structure="linked blocks")
            length = min(block.length, total)
            if ranges and ranges[-1][0] != HOLE and sum(ranges[-1]) == block.offset:
                ranges[-1] = (ranges[-1][0], ranges[-1][1] + length)
            else:
                ranges.append((block.offset, length))
            total -= length
    if total > 0:  # what lies behind the last table was never written
        ranges.append((HOLE, total))
    return ranges


def _read_chunk_table(found: ObjectTable, head: bytes, offset: int) -> Walk[ChunkedData]:
    """Read the table of chunks, and the header of each compressed chunk."""
    at = 2 + 4 + 1 + 4 + 4 + 4 + 4
    tag, ref, _, _, ndim = take_fields(">HHHHi", head, at, "chunked element")
    if not 0 < ndim <= 32 or tag != VDATA_HEADER:
        raise FormatError(f"chunks of {ndim} axes are not valid", offset=offset, structure="chunked element")
    at += 12
    axes = [take_fields(">iii", head, at + 12 * number, "chunked element") for number in range(ndim)]
    at += 12 * ndim
    (filled,) = take_fields(">i", head, at, "chunked element")
    fill = head[at + 4 : at + 4 + max(filled, 0)]
    shape, chunk = tuple(axis[1] for axis in axes), tuple(axis[2] for axis in axes)
    if min(chunk) < 1 or min(shape) < 0:
        raise FormatError(
            f"chunks of shape {chunk} do not fit data of shape {shape}", offset=offset, structure="chunked element"
        )
    header, values = found.find(VDATA_HEADER, ref), found.find(VDATA, ref)
    empty = np.zeros(0, np.int64)
    if header is None:
        raise FormatError(
            f"the table of chunks, {VDATA_HEADER}/{ref}, is missing", offset=offset, structure="chunk table"
        )
    table = parse_vdata((yield from read_bytes(found, header)))
    if values is None:
        if table.records:
            raise FormatError(f"the {table.records} rows of the table of chunks are missing", structure="chunk table")
        return ChunkedData(shape, chunk, empty.reshape(0, ndim), empty, empty, [], {}, fill)
    data = yield from read_bytes(found, values)
    row = np.dtype([("origin", ">i4", (ndim,)), ("tag", ">u2"), ("ref", ">u2")])
    if table.size != row.itemsize or table.records * row.itemsize > len(data):
        raise FormatError("the table of chunks is damaged", offset=values.offset, structure="chunk table")
    rows = np.frombuffer(data, row, table.records)
    index = rows["origin"].astype(np.int64).reshape(-1, ndim)
    places = found.find_many(CHUNK, rows["ref"])
    lost = (rows["tag"] != NULL) & ((rows["tag"] != CHUNK) | ~places.exists)
    if lost.any():
        first = int(lost.argmax())
        raise FormatError(
            f"the chunk at {index[first].tolist()}, object {rows['tag'][first]}/{rows['ref'][first]}, is missing",
            offset=values.offset,
            structure="chunk table",
        )
    index, places = index[places.exists], places.present()
    packed = np.flatnonzero(places.special)
    spans = zip(places.offset[packed].tolist(), np.minimum(places.length[packed], CODER + 16).tolist(), strict=True)
    heads = yield ExactRanges(list(spans))
    codecs, refs = _compressions(heads)
    stored = found.find_many(COMPRESSED_DATA, refs)
    begin, length = places.offset.copy(), places.length.copy()
    begin[packed], length[packed] = stored.offset, stored.length
    for number in np.flatnonzero(~stored.exists).tolist():
        _check_empty(heads[number], found, int(refs[number]))
    has_chunk = np.ones(len(index), bool)
    has_chunk[packed] = stored.exists
    of_row: list[Codec | None] = [None] * len(index)
    for at, codec in zip(packed.tolist(), codecs, strict=True):
        of_row[at] = codec
    joined: dict[int, bytes] = {}
    for number in np.flatnonzero(stored.exists & stored.special).tolist():
        at = int(packed[number])
        pieces = yield from _uncompressed_ranges(
            found, ObjectLocation(int(stored.offset[number]), int(stored.length[number]), True)
        )
        begin[at], length[at] = pieces[0] if pieces else (0, 0)
        if len(pieces) != 1 or pieces[0][0] == HOLE:
            joined[at] = yield from join_pieces(found, pieces)
    if not has_chunk.all():
        moved = np.cumsum(has_chunk) - 1
        joined = {int(moved[at]): data for at, data in joined.items()}
        of_row = [codec for codec, keep in zip(of_row, has_chunk.tolist(), strict=True) if keep]
    return ChunkedData(shape, chunk, index[has_chunk], begin[has_chunk], length[has_chunk], of_row, joined, fill)


def _compressions(heads: list[bytes]) -> tuple[list[Codec | None], npt.NDArray[np.int64]]:
    """Return the codec of each chunk, and the reference number of its bytes.

    Most headers differ only in the latter.
    """
    known: dict[bytes, Codec | None] = {}
    codecs: list[Codec | None] = []
    refs = np.zeros(len(heads), np.int64)
    for number, head in enumerate(heads):
        if head[:2] != b"\0\x03":
            raise UnsupportedError("chunks in linked blocks are not supported", structure="chunk")
        parameters = head[10:]
        if parameters not in known:
            known[parameters] = _compression(head, 0)[1]
        codecs.append(known[parameters])
        refs[number] = head[8] << 8 | head[9]
    return codecs, refs
