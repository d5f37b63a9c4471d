"""Fetching of byte ranges of one source: adjacent chunks are merged into one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs.chunk_batch import ChunkBatch
from insitu.codecs.thread_buffers import get_buffer
from insitu.errors import TruncatedError
from insitu.sources import ByteSource, is_local, read_all
from insitu.sources.protocol import ReadsInto, ReadsRanges

__all__ = ["FETCH_SLOT", "fetch_rows", "read_exactly_into"]

BUFFER_BYTES = 8 << 20
"""What is fetched from a local file at a time, up to this size, lies in a buffer of the thread: new memory
is page faults for every chunk, and giving it back holds the GIL.
"""
FETCH_SLOT = 4
"""Slot of that buffer. The decoders use slots 0 to 2, a chunk that is copied from there slot 3."""
BATCH_CHUNK_BYTES = 64 << 10
"""Chunks of a local file up to this size on average are small."""
MERGED_GAP_BYTES = 4 << 10
"""Small chunks of a local file that are closer than this are read as one: copying a page costs what a
system call costs.
"""


def fetch_rows(
    source: ByteSource, offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64], *, keep: bool = False
) -> tuple[Sequence[memoryview], int, int]:
    """Return the bytes of each row, the number of ranges requested, and the number of bytes
    fetched.

    Parameters
    ----------
    source
        The source to read from.
    offset
        Offsets of the rows, ascending.
    length
        Lengths of the rows; -1: up to the end of the object.
    keep
        Whether the bytes stay when this thread fetches others.
    """
    if len(offset) == 1 and length[0] >= 0:  # one chunk: no columns needed
        low, size = int(offset[0]), int(length[0])
        if not keep and 0 < size <= BUFFER_BYTES and isinstance(source, ReadsInto):
            room = get_buffer(FETCH_SLOT, size)
            read_exactly_into(source, low, room)
            return [room.data], 1, size
        return [memoryview(_check_length(source.read(low, size), low, size))], 1, size
    if (length < 0).any():
        if (length < 0).all() and (offset == offset[0]).all() and not is_local(source):
            whole = memoryview(read_all(source, int(offset[0])))
            return [whole] * len(offset), 1, len(whole)
        length = np.where(length < 0, np.maximum(source.size() - offset, 0), length)
    reach = np.maximum.accumulate(offset + length)
    if isinstance(source, ReadsRanges) and (fetched := _fetch_batch(source, offset, length, reach, keep)) is not None:
        return fetched
    begins = np.ones(len(offset), bool)
    # A cache on disk is keyed by range: rows are not merged, so that any selection finds the same
    # chunk again.
    if not getattr(source, "keeps_ranges", False):
        begins[1:] = offset[1:] > reach[:-1]
    starts = np.flatnonzero(begins)
    lows = offset[starts]
    sizes = reach[np.append(starts[1:], len(offset)) - 1] - lows if len(starts) < len(offset) else length
    ranges = list(zip(lows.tolist(), sizes.tolist(), strict=True))
    blocks = source.read_many(ranges) if len(ranges) > 1 else [source.read(*ranges[0])]
    views = [memoryview(_check_length(block, *wanted)) for block, wanted in zip(blocks, ranges, strict=True)]
    if len(starts) == len(offset):  # no rows were merged
        return views, len(ranges), int(sizes.sum())
    which = np.cumsum(begins) - 1
    inner = offset - lows[which]
    ends = inner + length
    data = [views[w][i:e] for w, i, e in zip(which.tolist(), inner.tolist(), ends.tolist(), strict=True)]
    return data, len(ranges), int(sizes.sum())


def _fetch_batch(
    source: ReadsRanges,
    offset: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    reach: npt.NDArray[np.int64],
    keep: bool,
) -> tuple[ChunkBatch, int, int] | None:
    """Return the bytes of many rows in one buffer; None if they are large, or too few came."""
    small = length.mean() <= BATCH_CHUNK_BYTES
    begins = np.ones(len(offset), bool)
    begins[1:] = offset[1:] - reach[:-1] > (MERGED_GAP_BYTES if small else 0)
    starts = np.flatnonzero(begins)
    lows = offset[starts]
    sizes = reach[np.append(starts[1:], len(offset)) - 1] - lows
    total = int(sizes.sum())
    # What a damaged table asks for is not allocated: it may be more than there is.
    if offset[0] < 0 or sizes.min() < 0 or not 0 < total <= source.size():
        return None
    fits = total <= BUFFER_BYTES and not keep
    if not fits and not small:
        return None
    block = get_buffer(FETCH_SLOT, total) if fits else np.empty(total, np.uint8)
    if source.read_ranges_into(lows, sizes, block) != total:
        return None
    inside = np.cumsum(sizes) - sizes - lows
    return ChunkBatch(block, offset + inside[np.cumsum(begins) - 1], length), len(lows), total


def read_exactly_into(source: ReadsInto, offset: int, target: npt.NDArray[Any]) -> None:
    """Fill an array, contiguous or not, with bytes of a source.

    Raise TruncatedError if there are too few.
    """
    # Viewed as bytes along an axis of their own: not every type supports the buffer protocol.
    found = source.read_into(offset, target[..., None].view(np.uint8).data)
    if found != target.nbytes:
        raise _truncated_error(offset, target.nbytes, found)


def _check_length(block: bytes, offset: int, length: int) -> bytes:
    if len(block) != length:
        raise _truncated_error(offset, length, len(block))
    return block


def _truncated_error(offset: int, length: int, found: int) -> TruncatedError:
    return TruncatedError(
        f"the object is truncated: {length} bytes were requested, {found} were received",
        offset=offset,
        length=length,
        hint="The object has changed since it was scanned, or its transfer was incomplete: scan it again",
    )
