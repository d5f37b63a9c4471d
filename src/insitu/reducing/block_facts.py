"""Facts about a block of values that several statistics need: missing values, counts, sums.

Each fact is computed when it is first needed, and once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs.libraries import find_function
from insitu.forking import cached_property

__all__ = ["Array", "ValueBlock", "accumulator_dtype", "find_missing", "reduced_shape", "replace_masked"]

Array = npt.NDArray[Any]

_KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
"""Types that the C kernel sums, four times as fast as NumPy in float64."""


@lru_cache
def accumulator_dtype(dtype: np.dtype[Any], integers: bool = False) -> np.dtype[Any]:
    """Return the type in which values are summed: at least as wide as that of NumPy.

    Parameters
    ----------
    dtype
        Type of the values.
    integers
        Whether integers are summed as integers, for a sum; else as floats, for a mean.
    """
    if dtype.kind in "biu" and integers:
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return np.result_type(dtype, np.complex128 if dtype.kind == "c" else np.float64)


def reduced_shape(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Return a shape with length 1 along reduced axes."""
    return tuple([1 if axis in axes else length for axis, length in enumerate(shape)])


_BITS = {size: np.dtype(f"u{size}") for size in (2, 4, 8)}
"""Integers of as many bytes as floats have."""


def find_missing(values: Array) -> Array | None:
    """Return a mask of the missing values (NaN, NaT); None if there are none."""
    if values.dtype.kind in "fc":
        mask = np.isnan(values)
    elif values.dtype.kind in "mM":
        mask = np.isnat(values)
    else:
        return None
    return mask if np.count_nonzero(mask) else None


def replace_masked(values: Array, mask: Array, value: Any) -> Array:
    """Return the values with another value where the mask is set."""
    bits = _BITS.get(values.dtype.itemsize) if values.dtype.kind == "f" else None
    if bits is None or value:
        scalar = np.asarray(value).astype(values.dtype)[()]  # NumPy deprecates durations without a unit
    if bits is None:
        return np.where(mask, scalar, values)
    # On the bits, without a branch: for scattered missing values np.where takes eight times as
    # long.
    filled = np.multiply(values.view(bits), ~mask)
    if value:
        np.add(filled, np.multiply(mask, scalar.view(bits), dtype=bits), out=filled)
    found: Array = filled.view(values.dtype)
    return found


@dataclass(slots=False)
class ValueBlock:
    """A block of values to reduce, with facts that several fields share."""

    values: Array
    axes: tuple[int, ...]
    """Axes to reduce, in the order in which they count for positions."""
    skipna: bool
    """Whether missing values are left out."""
    positions: Sequence[npt.NDArray[np.int64]] | None = None
    """For each reduced axis, what its elements add to a position in the whole array;
    for argmin and argmax.
    """
    totalled: bool = False
    """Whether the total is needed anyway: then it also shows whether a value is missing."""
    shape: tuple[int, ...] = field(init=False)
    """Shape of the result: reduced axes have length 1."""
    size: int = field(init=False)
    """Number of values for each element of the result."""

    def __post_init__(self) -> None:
        self.size = math.prod([self.values.shape[axis] for axis in self.axes])
        self.shape = reduced_shape(self.values.shape, self.axes)

    def reduce(self, ufunc: np.ufunc, values: Array | None = None, dtype: np.dtype[Any] | None = None) -> Array:
        """Reduce the values, or others of their shape, with a ufunc."""
        what = self.values if values is None else values
        return np.asarray(ufunc.reduce(what, axis=self.axes, dtype=dtype, keepdims=True))

    def rows(self, values: Array | None = None) -> Array:
        """Return the values, or others of their shape, as one row for each element of the result."""
        what = self.values if values is None else values
        kept_axes = [axis for axis in range(what.ndim) if axis not in self.axes]
        return what.transpose(*kept_axes, *self.axes).reshape(math.prod(self.shape), self.size)

    @cached_property
    def plain_total(self) -> Array:
        """Sum of all values, missing ones included."""
        values = self.values
        if (
            len(self.axes) == values.ndim
            and values.dtype in _KERNEL_DTYPES
            and values.flags.c_contiguous
            and values.size
        ):
            kernel = find_function("insitu.codecs._kernels", "total")
            if kernel is not None:
                return np.full(self.shape, kernel(values))
        with np.errstate(invalid="ignore", over="ignore"):
            return self.reduce(np.add, dtype=accumulator_dtype(self.values.dtype))

    @cached_property
    def nulls(self) -> Array | None:
        """Mask of the missing values; None if there are none."""
        if self.totalled and self.values.dtype.kind in "fc" and not np.isnan(self.plain_total).any():
            return None
        return find_missing(self.values)

    @cached_property
    def skipped(self) -> Array | None:
        """Mask of the values that are left out; None if there are none."""
        return self.nulls if self.skipna else None

    @cached_property
    def valid(self) -> Array:
        """Number of values that are not missing."""
        return self._all_but(self.nulls)

    @cached_property
    def count(self) -> Array:
        """Number of values that are not left out."""
        return self._all_but(self.skipped)

    def _all_but(self, mask: Array | None) -> Array:
        if mask is None:
            return np.broadcast_to(np.int64(self.size), self.shape)
        if len(self.axes) == mask.ndim:  # several times faster than a sum along axes
            return np.full(self.shape, self.size - np.count_nonzero(mask), np.int64)
        return self.size - np.add.reduce(mask, axis=self.axes, dtype=np.int64, keepdims=True)

    @cached_property
    def total(self) -> Array:
        """Sum of the values that are not left out."""
        if self.skipped is None:
            return self.plain_total
        with np.errstate(invalid="ignore", over="ignore"):
            return self.reduce(np.add, self.fill_skipped(0), accumulator_dtype(self.values.dtype))

    def fill_skipped(self, value: Any) -> Array:
        """Return the values, with another value in place of those that are left out."""
        return self.values if self.skipped is None else replace_masked(self.values, self.skipped, value)
