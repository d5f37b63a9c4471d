"""Which chunks are measured without ever becoming an array?

Those of floating values of which a whole run is reduced to one number. A kernel puts elements together from their byte planes some
thousand at a time and measures them while they are in the core's first cache: for a global mean that saves a pass over memory, and all that NumPy
makes on the way (masks, casts, slices). Whatever it cannot do is None, and is done by `Part`, the kernel's twin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from insitu.cf.packing import prepare
from insitu.codecs import Decoder
from insitu.codecs.buffer_spec import Data
from insitu.codecs.libraries import find
from insitu.codecs.thread_buffers import borrow
from insitu.model import Packing
from insitu.reducing.field import Partial
from insitu.reducing.reductions import Reduction

__all__ = ["Fused", "Span", "span_of"]

FIELDS = frozenset({"count", "valid", "total", "min", "max", "squares"})
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
EXTREMES, SQUARES = 1, 2
"""What the kernel is asked for beside sum and number."""
MOST_MISSING = 2

Span = tuple[int, int]
"""The first element of a chunk, in the order of storage, and how many."""
Kernel = Callable[..., tuple[float, int, float, float, float]]


def span_of(start: Sequence[int], extent: Sequence[int], shape: Sequence[int]) -> Span | None:
    """A box of a chunk as one run of its elements in C order; None if it is not one."""
    first, count, cut = 0, 1, False
    for begin, length, whole in zip(start, extent, shape, strict=True):
        if cut and (begin or length != whole):
            return None
        first, count = first * whole + begin, count * length
        cut = cut or length > 1  # before the first axis that is longer than 1 there may be any choice
    return first, count


class Fused:
    """Measures chunks of which a run is reduced to one number; made by `of`."""

    def __init__(self, reduction: Reduction, kernel: Kernel) -> None:
        self.fields = reduction.fields
        self.dtype = reduction.dtype
        self.skips = reduction.skips
        self.kernel = kernel
        self.wanted = EXTREMES * bool({"min", "max"} & set(self.fields)) + SQUARES * ("squares" in self.fields)

    @classmethod
    def of(cls, reduction: Reduction) -> Fused | None:
        """None where the kernel does not know the statistics or the type, or is not there."""
        if reduction.dtype not in FLOATS or not FIELDS.issuperset(reduction.fields):
            return None
        found = kernel()
        return None if found is None else cls(reduction, found)

    def chunk(self, decoder: Decoder, data: Data, span: Span, packing: Packing | None, ndim: int) -> Partial | None:
        """The partial of a run of a chunk, each field with `ndim` axes of length 1; None if it cannot be had so.

        Parameters
        ----------
        decoder, data
            The chunk.
        span
            Which of its elements, in the order of storage.
        packing
            What its values mean; only missing values are known here.
        ndim
            Axes of the answer.
        """
        if decoder.dtype != self.dtype or decoder.records is not None or not decoder.nbytes:
            return None
        missing = self.missing(packing)
        if missing is None:
            return None
        planes = decoder.planes(data)
        if planes is not None:
            return self.run(planes, True, span, missing, ndim)
        if not decoder.steps and decoder.back is None:  # nothing to decode, but to measure
            return self.run(decoder(data), False, span, missing, ndim)
        room = borrow(CHUNK_BUFFER, decoder.nbytes)
        decoder.fill(data, room)
        return self.run(room, False, span, missing, ndim)

    def missing(self, packing: Packing | None) -> tuple[float, ...] | None:
        """The stored numbers that stand for missing; None if the packing does more than that."""
        if packing is None:
            return ()
        unpacker = prepare(packing, self.dtype)
        if not unpacker.plain or unpacker.scaled is not None or unpacker.dtype != self.dtype:
            return None
        values = [float(value) for value in unpacker.missing if value == value]  # NaN is missing anyway
        return tuple(values) if len(values) <= MOST_MISSING else None

    def run(self, data: Any, shuffled: bool, span: Span, missing: tuple[float, ...], ndim: int) -> Partial:
        """The partial of some elements, or of those that byte planes hold."""
        total, valid, least, most, squares = self.kernel(
            data, self.dtype.itemsize, shuffled, *span, missing, self.wanted
        )
        lost = not self.skips and valid < span[1]  # then a missing value makes all of it missing
        found = {
            "count": np.int64(valid if self.skips else span[1]),
            "valid": np.int64(valid),
            "total": np.float64(np.nan if lost else total),
            "min": self.dtype.type(np.nan if lost else least),
            "max": self.dtype.type(np.nan if lost else most),
            "squares": np.float64(np.nan if lost else squares),
        }
        return {name: np.asarray(found[name]).reshape((1,) * ndim) for name in self.fields}


CHUNK_BUFFER = 3
"""The thread's buffer for what is measured; 0 to 2 are the decoders'."""


@cache
def kernel() -> Kernel | None:
    """The kernel, if it is there and measures a sample as NumPy does."""
    found: Kernel | None = find("insitu.codecs._kernels", "measure")
    return found if found is not None and _works(found) else None


def _works(kernel: Kernel) -> bool:
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
