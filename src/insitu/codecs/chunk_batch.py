"""`ChunkBatch`: many encoded chunks in one buffer, without a Python object for each.

The C kernel takes the buffer and the columns as they are: what Python does for a chunk of 4 kB
(a view of its bytes, a tuple for its place) costs as much as a tenth of its decoding, and holds the
GIL, so that threads wait for each other. Everything else takes the batch as a sequence of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import Octets
from insitu.codecs.libraries import find_function

__all__ = ["ChunkBatch", "find_placing_kernel", "take_chunks"]


class ChunkBatch(Sequence[memoryview]):
    """Encoded chunks that lie in one buffer.

    Parameters
    ----------
    block
        The buffer.
    begin, length
        Where each chunk lies in it.
    """

    __slots__ = ("_view", "begin", "block", "length")

    def __init__(self, block: Octets, begin: NDArray[np.int64], length: NDArray[np.int64]) -> None:
        self.block = block
        self.begin = np.ascontiguousarray(begin, np.int64)
        self.length = np.ascontiguousarray(length, np.int64)
        self._view: memoryview = block.data

    def __len__(self) -> int:
        return len(self.begin)

    @overload
    def __getitem__(self, which: int) -> memoryview: ...
    @overload
    def __getitem__(self, which: slice) -> ChunkBatch: ...
    def __getitem__(self, which: int | slice) -> memoryview | ChunkBatch:
        if isinstance(which, slice):
            return ChunkBatch(self.block, self.begin[which], self.length[which])
        begin = int(self.begin[which])
        return self._view[begin : begin + int(self.length[which])]

    def take(self, rows: NDArray[np.int64]) -> ChunkBatch:
        """Return some of the chunks, in the order of `rows`."""
        return ChunkBatch(self.block, self.begin[rows], self.length[rows])

    @property
    def columns(self) -> tuple[Octets, NDArray[np.int64], NDArray[np.int64]]:
        """The batch as the kernel takes it."""
        return self.block, self.begin, self.length


def take_chunks(data: Sequence[memoryview], rows: NDArray[np.int64]) -> Sequence[memoryview]:
    """Return some of many chunks, in the order of `rows`; those of a batch stay one."""
    return data.take(rows) if isinstance(data, ChunkBatch) else [data[row] for row in rows.tolist()]


@cache
def find_placing_kernel() -> Callable[..., Any] | None:
    """Return the kernel that copies boxes of many chunks to their places; None if it is not built."""
    return find_function("insitu.codecs._kernels", "decode_boxes")
