"""Which bytes come in one request? Rows of one source, sorted by offset, in as few ranges as they lie together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import TruncatedError
from insitu.sources import ByteSource, Cached, is_local, read_all
from insitu.sources.protocol import ReadsInto

__all__ = ["fetch", "filled"]


def fetch(
    source: ByteSource, offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
) -> tuple[list[memoryview], int, int]:
    """The bytes of each row; how many ranges and bytes it took.

    Parameters
    ----------
    source
        Where from.
    offset
        Ascending.
    length
        -1: up to the end of the object.
    """
    if len(offset) == 1 and length[0] >= 0:  # one chunk: no columns needed
        low, size = int(offset[0]), int(length[0])
        return [memoryview(_whole(source.read(low, size), low, size))], 1, size
    if (length < 0).any():
        if (length < 0).all() and (offset == offset[0]).all() and not is_local(source):
            whole = memoryview(read_all(source, int(offset[0])))
            return [whole] * len(offset), 1, len(whole)
        length = np.where(length < 0, np.maximum(source.size() - offset, 0), length)
    reach = np.maximum.accumulate(offset + length)
    begins = np.ones(len(offset), bool)
    # The keys of a cache are ranges: a chunk must be found again by whatever selection wants it.
    if not isinstance(source, Cached):
        begins[1:] = offset[1:] > reach[:-1]
    starts = np.flatnonzero(begins)
    lows = offset[starts]
    sizes = reach[np.append(starts[1:], len(offset)) - 1] - lows if len(starts) < len(offset) else length
    ranges = list(zip(lows.tolist(), sizes.tolist(), strict=True))
    blocks = source.read_many(ranges) if len(ranges) > 1 else [source.read(*ranges[0])]
    views = [memoryview(_whole(block, *wanted)) for block, wanted in zip(blocks, ranges, strict=True)]
    if len(starts) == len(offset):  # nothing lay together
        return views, len(ranges), int(sizes.sum())
    which = np.cumsum(begins) - 1
    inner = offset - lows[which]
    ends = inner + length
    data = [views[w][i:e] for w, i, e in zip(which.tolist(), inner.tolist(), ends.tolist(), strict=True)]
    return data, len(ranges), int(sizes.sum())


def filled(source: ReadsInto, offset: int, target: npt.NDArray[Any]) -> None:
    """Fill an array, contiguous or not, all of it."""
    # As bytes, along an axis of their own: not every type can be handed over as a buffer.
    found = source.read_into(offset, target[..., None].view(np.uint8).data)
    if found != target.nbytes:
        raise _short(offset, target.nbytes, found)


def _whole(block: bytes, offset: int, length: int) -> bytes:
    if len(block) != length:
        raise _short(offset, length, len(block))
    return block


def _short(offset: int, length: int, found: int) -> TruncatedError:
    return TruncatedError(
        f"{length} bytes were asked for and {found} came: the object ends there",
        offset=offset,
        length=length,
        hint="It is shorter than when it was scanned, or was not fully transferred",
    )
