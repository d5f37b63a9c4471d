"""Statistics of chunks by a C kernel, without decoding them into an array.

For floating-point chunks of which a contiguous run is reduced to one number. The kernel assembles
elements from their byte planes, some thousand at a time, and measures them while they are in the
first-level cache. For a global mean this saves a pass over memory, and NumPy's temporary arrays. If
the kernel cannot do something, the result is None, and `insitu.reducing.block_facts` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.unpack import get_unpacker
from insitu.codecs.buffer_spec import Data
from insitu.codecs.chain import Decoder
from insitu.codecs.libraries import find_function
from insitu.codecs.thread_buffers import get_buffer
from insitu.model import Packing
from insitu.reducing.partial_fields import Partial
from insitu.reducing.reductions import Reduction

__all__ = ["ChunkKernel", "Span", "contiguous_span"]

KERNEL_FIELDS = frozenset({"count", "valid", "total", "min", "max", "squares"})
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
EXTREMES, SQUARES = 1, 2
"""Flags of the kernel for results in addition to sum and count."""
MAX_MISSING = 2

Span = tuple[int, int]
"""First element of a chunk, in the order of storage, and number of elements."""
Measured = tuple[float, int, float, float, float]
"""Sum, number of valid elements, least, most, squared deviations from the mean."""
Kernel = Callable[..., Measured]


def contiguous_span(start: Sequence[int], extent: Sequence[int], shape: Sequence[int]) -> Span | None:
    """Return a box of a chunk as one contiguous run of its elements in C order;
    None if it is not contiguous.
    """
    first, count, cut = 0, 1, False
    for begin, length, whole in zip(start, extent, shape, strict=True):
        if cut and (begin or length != whole):
            return None
        first, count = first * whole + begin, count * length
        cut = cut or length > 1  # axes of length 1 before may start anywhere
    return first, count


class ChunkKernel:
    """Computes statistics of contiguous runs of chunks with the kernel; made by `of`."""

    def __init__(self, reduction: Reduction, kernel: Kernel) -> None:
        self.fields = reduction.fields
        self.dtype = reduction.dtype
        self.skips = reduction.skips
        self.kernel = kernel
        self.wanted = EXTREMES * bool({"min", "max"} & set(self.fields)) + SQUARES * ("squares" in self.fields)

    @classmethod
    def of(cls, reduction: Reduction) -> ChunkKernel | None:
        """Return the kernel for a reduction; None if it does not support it, or is not
        installed.
        """
        if reduction.dtype not in FLOATS or not KERNEL_FIELDS.issuperset(reduction.fields):
            return None
        found = load_kernel()
        return None if found is None else cls(reduction, found)

    def supports(self, decoder: Decoder, packing: Packing | None) -> bool:
        """Return whether the kernel can compute the partials of chunks of this kind."""
        is_plain = decoder.dtype == self.dtype and decoder.records is None and bool(decoder.nbytes)
        return is_plain and self.missing(packing) is not None

    def chunks(
        self, decoder: Decoder, data: Sequence[Data], span: Span, packing: Packing | None, ndim: int
    ) -> Iterator[Partial]:
        """Yield the partials of the same run of chunks that the kernel supports, in their order.

        Parameters
        ----------
        decoder, data
            The chunks. They are decompressed and measured in one call where a library for that was
            linked.
        span
            The elements of each, in the order of storage.
        packing
            How to unpack the values; only missing values are supported.
        ndim
            Number of axes of the result, all of length 1.
        """
        missing = self.missing(packing) or ()
        found = decoder.measure(data, span, missing, self.wanted)
        for measured in found:
            yield self.to_partial(measured, span[1], ndim)
        for chunk in data[len(found) :]:  # chains that the kernels do not decode, and errors
            yield self.one_chunk(decoder, chunk, span, missing, ndim)

    def one_chunk(self, decoder: Decoder, data: Data, span: Span, missing: tuple[float, ...], ndim: int) -> Partial:
        """Return the partial of a run of a chunk, which is decoded by its chain of codecs."""
        planes = decoder.planes(data)
        if planes is not None:
            return self.run(planes, True, span, missing, ndim)
        if not decoder.steps and decoder.back is None:  # nothing to decode, but to measure
            return self.run(decoder(data), False, span, missing, ndim)
        room = get_buffer(CHUNK_BUFFER, decoder.nbytes)
        decoder.fill(data, room)
        return self.run(room, False, span, missing, ndim)

    def values(self, decoder: Decoder, values: npt.NDArray[Any], ndim: int) -> Partial:
        """Return the partial of the values of a run of a chunk that the kernel supports, which are known already."""
        return self.run(decoder.to_stored_bytes(values), False, (0, values.size), (), ndim)

    def missing(self, packing: Packing | None) -> tuple[float, ...] | None:
        """Return the stored numbers that mean missing; None if the packing does more than that."""
        if packing is None:
            return ()
        unpacker = get_unpacker(packing, self.dtype)
        if not unpacker.plain or unpacker.scaled is not None or unpacker.dtype != self.dtype:
            return None
        values = [float(value) for value in unpacker.missing if value == value]  # NaN is missing anyway
        return tuple(values) if len(values) <= MAX_MISSING else None

    def run(self, data: Any, shuffled: bool, span: Span, missing: tuple[float, ...], ndim: int) -> Partial:
        """Return the partial of elements in plain order or, if `shuffled`, in byte planes."""
        found = self.kernel(data, self.dtype.itemsize, shuffled, *span, missing, self.wanted)
        return self.to_partial(found, span[1], ndim)

    def to_partial(self, measured: Measured, count: int, ndim: int) -> Partial:
        """Return what the kernel measured in `count` elements as a partial."""
        total, valid, least, most, squares = measured
        is_missing = not self.skips and valid < count  # a missing value makes the result missing
        found = {
            "count": np.int64(valid if self.skips else count),
            "valid": np.int64(valid),
            "total": np.float64(np.nan if is_missing else total),
            "min": self.dtype.type(np.nan if is_missing else least),
            "max": self.dtype.type(np.nan if is_missing else most),
            "squares": np.float64(np.nan if is_missing else squares),
        }
        return {name: np.asarray(found[name]).reshape((1,) * ndim) for name in self.fields}


CHUNK_BUFFER = 3
"""Number of the thread's buffer for values to reduce; decoders use 0 to 2."""


@cache
def load_kernel() -> Kernel | None:
    """Return the kernel, if it is installed and agrees with NumPy on a sample; else None."""
    found: Kernel | None = find_function("insitu.codecs._kernels", "measure")
    return found if found is not None and _matches_numpy(found) else None


def _matches_numpy(kernel: Kernel) -> bool:
    for dtype in FLOATS:
        sample = np.arange(37, dtype=dtype) % 11
        sample[[3, 20]], sample[[5, 30]] = np.nan, 7
        planes = np.ascontiguousarray(sample.view(np.uint8).reshape(-1, dtype.itemsize).T)
        there = sample[2:35][~np.isnan(sample[2:35]) & (sample[2:35] != 7)].astype(np.float64)
        expected = (there.sum(), len(there), there.min(), there.max(), ((there - there.mean()) ** 2).sum())
        for data, shuffled in ((sample, False), (planes, True)):
            found = kernel(data, dtype.itemsize, shuffled, 2, 33, (7.0,), EXTREMES + SQUARES)
            if not np.allclose(found, expected, rtol=1e-12, atol=0):
                return False
    return True
