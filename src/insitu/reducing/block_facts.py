"""What is found out about some values before they are thrown away? What several fields ask about is found out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs.libraries import find

__all__ = ["Array", "Part", "accumulator", "is_null", "replaced"]

Array = npt.NDArray[Any]

_SUMMED = (np.dtype(np.float32), np.dtype(np.float64))
"""What the kernel sums, four times as fast as NumPy does in float64."""


def accumulator(dtype: np.dtype[Any], integers: bool = False) -> np.dtype[Any]:
    """In which type values are summed: wide enough that nothing is lost that NumPy would keep.

    Parameters
    ----------
    dtype
        Of the values.
    integers
        Whether the sum itself is wanted, so that integers stay integers; else they are summed as floats, as for a mean.
    """
    if dtype.kind in "biu" and integers:
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return np.result_type(dtype, np.complex128 if dtype.kind == "c" else np.float64)


def is_null(values: Array) -> Array | None:
    """Which values are missing; None if values of this type cannot be, or none is."""
    if values.dtype.kind in "fc":
        mask = np.isnan(values)
    elif values.dtype.kind in "mM":
        mask = np.isnat(values)
    else:
        return None
    return mask if mask.any() else None


def replaced(values: Array, mask: Array, value: Any) -> Array:
    """The values with another one where the mask is set."""
    scalar = np.asarray(value).astype(values.dtype)[()]  # a duration without a unit is on its way out of NumPy
    if values.dtype.kind != "f" or values.dtype.itemsize not in (2, 4, 8):
        return np.where(mask, scalar, values)
    # On the bits, and without a branch: where missing values lie scattered, np.where takes eight times as long.
    bits = np.dtype(f"u{values.dtype.itemsize}")
    filled = np.multiply(values.view(bits), ~mask)
    if value:
        np.add(filled, np.multiply(mask, scalar.view(bits), dtype=bits), out=filled)
    found: Array = filled.view(values.dtype)
    return found


@dataclass(slots=False)
class Part:
    """Some values that are measured: what several fields want to know about them is found out once."""

    values: Array
    axes: tuple[int, ...]
    """The axes to reduce, in the order in which positions count."""
    skipna: bool
    """Whether missing values are left out."""
    positions: Sequence[npt.NDArray[np.int64]] | None = None
    """For each of the axes what its elements add to a position in all of the data; needed for positions only."""
    totalled: bool = False
    """Whether the total is wanted anyway: then it tells whether a value is missing, at no cost."""
    shape: tuple[int, ...] = field(init=False)
    """With a length of 1 for each reduced axis."""
    size: int = field(init=False)
    """Values for each element of that shape."""

    def __post_init__(self) -> None:
        shape = list(self.values.shape)
        self.size = 1
        for axis in self.axes:
            self.size *= shape[axis]
            shape[axis] = 1
        self.shape = tuple(shape)

    def reduce(self, ufunc: np.ufunc, values: Array | None = None, dtype: np.dtype[Any] | None = None) -> Array:
        """The values, or others of their shape, under a ufunc."""
        what = self.values if values is None else values
        return np.asarray(ufunc.reduce(what, axis=self.axes, dtype=dtype, keepdims=True))

    @cached_property
    def plain_total(self) -> Array:
        """The sum of all values, missing ones too."""
        values = self.values
        if len(self.axes) == values.ndim and values.dtype in _SUMMED and values.flags.c_contiguous and values.size:
            kernel = find("insitu.codecs._kernels", "total")
            if kernel is not None:
                return np.full(self.shape, kernel(values))
        with np.errstate(invalid="ignore", over="ignore"):
            return self.reduce(np.add, dtype=accumulator(self.values.dtype))

    @cached_property
    def nulls(self) -> Array | None:
        """Which values are missing; None if none is."""
        if self.totalled and self.values.dtype.kind in "fc" and not np.isnan(self.plain_total).any():
            return None
        return is_null(self.values)

    @cached_property
    def skipped(self) -> Array | None:
        """Which values are left out; None if none is."""
        return self.nulls if self.skipna else None

    @cached_property
    def valid(self) -> Array:
        """How many values are not missing."""
        return self._all_but(self.nulls)

    @cached_property
    def count(self) -> Array:
        """How many values take part."""
        return self._all_but(self.skipped)

    def _all_but(self, mask: Array | None) -> Array:
        if mask is None:
            return np.broadcast_to(np.int64(self.size), self.shape)
        if len(self.axes) == mask.ndim:  # several times faster than a sum along axes
            return np.full(self.shape, self.size - np.count_nonzero(mask), np.int64)
        return self.size - np.add.reduce(mask, axis=self.axes, dtype=np.int64, keepdims=True)

    @cached_property
    def total(self) -> Array:
        """The sum of the values that take part."""
        if self.skipped is None:
            return self.plain_total
        with np.errstate(invalid="ignore", over="ignore"):
            return self.reduce(np.add, self.fill_skipped(0), accumulator(self.values.dtype))

    def fill_skipped(self, value: Any) -> Array:
        """The values with another one in place of those that are left out."""
        return self.values if self.skipped is None else replaced(self.values, self.skipped, value)
