"""Statistics of windows over values in memory, without copies of the windows.

The elements at the same place in each window are one slice of the values, and a statistic goes
through these slices. Where windows overlap, sums and extremes of 1, 2, 4, … elements are made of each
other, so that a window of 365 takes 14 passes. Sums of floats are formed in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.forking import cached_property

__all__ = ["METHODS", "Slices", "Window", "reduce_slices"]

Values = npt.NDArray[Any]
MEDIAN_BYTES = 32 << 20
"""Windows that are copied at a time to find medians."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The windows along one dimension of an array: where they start, and which elements they have."""

    starts: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]

    @property
    def reach(self) -> tuple[int, int]:
        """The first element of a window, and the one after the last."""
        if not self.starts.size or not self.offsets.size:
            return 0, 0
        first = int(self.starts.min() + self.offsets.min())
        return first, int(self.starts.max() + self.offsets.max()) + 1

    @property
    def overlap(self) -> int:
        """Elements that a window has beyond those of its own."""
        return int(self.offsets.max() - self.offsets.min()) if self.offsets.size else 0

    @property
    def is_dense(self) -> bool:
        """Whether each starts one element after the other, and has all elements up to its end."""
        return _is_consecutive(self.starts) and self.has_all_elements

    @property
    def has_all_elements(self) -> bool:
        """Whether a window has all elements from its first to its last."""
        return _is_consecutive(self.offsets)

    def shift(self, by: int) -> Window:
        """Return the windows of an array that starts elsewhere."""
        return Window(self.starts + by, self.offsets)


def _is_consecutive(index: npt.NDArray[np.int64]) -> bool:
    return bool((np.diff(index) == 1).all())


class Slices:
    """The elements at the same place in each window, one place after another."""

    def __init__(self, values: Values, along: Mapping[int, Window]) -> None:
        self.values = values
        self.along = along
        self.count = math.prod(len(window.offsets) for window in along.values())

    def cast(self, dtype: np.dtype[Any]) -> Slices:
        """Return the same elements in a floating-point type."""
        if dtype == self.values.dtype:
            return self
        wide = Slices(self.values.astype(dtype), self.along)
        wide.missing, wide.valid = self.missing, self.valid
        return wide

    @cached_property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Which values are missing."""
        return np.isnan(self.values)

    @cached_property
    def valid(self) -> npt.NDArray[np.int64]:
        """How many values of each window are not missing."""
        return self.sum(~self.missing)

    @property
    def filled(self) -> Values:
        """The values, with 0 in place of missing ones."""
        return np.where(self.missing, self.values.dtype.type(0), self.values)

    def __iter__(self) -> Iterator[Values]:
        return self.of(self.values)

    def of(self, values: Values) -> Iterator[Values]:
        """Iterate over the slices of other values at the same places."""
        along = self.along
        for offsets in itertools.product(*(window.offsets.tolist() for window in along.values())):
            key: list[Any] = [slice(None)] * values.ndim
            for (axis, window), offset in zip(along.items(), offsets, strict=True):
                key[axis] = _as_slice(window.starts + offset)
            part = values
            for axis in along:
                part = part[(slice(None),) * axis + (key[axis],)]
            yield part

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one slice."""
        along = self.along
        return tuple(len(along[axis].starts) if axis in along else n for axis, n in enumerate(self.values.shape))

    def reduce_with(self, function: np.ufunc, values: Values, dtype: np.dtype[Any]) -> Values:
        """Return the windows of some values reduced by an associative function, one dimension after another."""
        for axis, window in self.along.items():
            values = _reduce_axis(function, values, axis, window, dtype)
        return values

    def sum(self, values: Values) -> Values:
        """Return the sum of each window, in the type that NumPy gives sums of such values."""
        if values.dtype == bool and self.count < 1 << 31:
            return self.reduce_with(np.add, values, np.dtype(np.int32)).astype(np.int64)
        return self.reduce_with(np.add, values, np.sum(np.empty(0, values.dtype)).dtype)


def _reduce_axis(function: np.ufunc, values: Values, axis: int, window: Window, dtype: np.dtype[Any]) -> Values:
    """Return the windows along one dimension reduced by an associative function."""
    before = (slice(None),) * axis
    count, length = len(window.starts), len(window.offsets)
    if length > 3 and count and not window.is_dense and _is_consecutive(window.offsets):
        return _reduce_by_halves(function, values, before, window, dtype)
    if length > 3 and count and window.is_dense:
        first = int(window.starts[0] + window.offsets[0])
        part = values[(*before, slice(first, first + count + length - 1))].astype(dtype, copy=False)
        return _reduce_by_doubling(function, part, before, count, length)
    result: Values | None = None
    for offset in window.offsets.tolist():
        part = values[(*before, _as_slice(window.starts + offset))]
        result = np.array(part, dtype) if result is None else function(result, part, out=result, casting="unsafe")
    assert result is not None, "a window has elements"
    return result


def _reduce_by_doubling(
    function: np.ufunc, block: Values, before: tuple[slice, ...], count: int, length: int
) -> Values:
    """Return all windows of a length reduced, of blocks whose lengths are the powers of 2 in it."""
    result: Values | None = None
    at, size = 0, 1  # where the next block starts in each window; how many elements a block has
    while True:
        if length & size:
            part = block[(*before, slice(at, at + count))]
            result = part.copy() if result is None else function(result, part, out=result)
            at += size
        if at == length:
            assert result is not None
            return result
        block = function(block[(*before, slice(None, -size))], block[(*before, slice(size, None))])
        size *= 2


def _reduce_by_halves(
    function: np.ufunc, values: Values, before: tuple[slice, ...], window: Window, dtype: np.dtype[Any]
) -> Values:
    """Return windows that do not begin side by side, reduced in the order of `_reduce_by_doubling`: what is selected of
    windows has the bits of all of them.
    """
    length = len(window.offsets)
    first = values[(*before, _as_slice(window.starts + window.offsets[0]))]
    rooms = [np.empty(first.shape, dtype) for _ in range(length.bit_length())]

    def reduce_block(at: int, bits: int, room: Values) -> Values:
        """Return a block of 2^bits elements reduced, in `room` unless it is one element."""
        if not bits:
            return values[(*before, _as_slice(window.starts + window.offsets[at]))].astype(dtype, copy=False)
        one = reduce_block(at, bits - 1, room)
        other = reduce_block(at + (1 << bits - 1), bits - 1, rooms[bits - 1])
        return np.asarray(function(one, other, out=room))

    result: Values | None = None
    at = 0
    for bits in (bit for bit in range(length.bit_length()) if length >> bit & 1):
        if result is None:
            result = reduce_block(at, bits, np.empty(first.shape, dtype))
            result = result if bits else result.copy()
        else:
            function(result, reduce_block(at, bits, rooms[-1]), out=result)
        at += 1 << bits
    assert result is not None
    return result


def _as_slice(index: npt.NDArray[np.int64]) -> Any:
    """Return indices that have the same distance as a slice, which copies nothing."""
    if not len(index):
        return slice(0, 0)
    step = int(index[1] - index[0]) if len(index) > 1 else 1
    if step > 0 and (len(index) < 3 or bool((np.diff(index) == step).all())):
        return slice(int(index[0]), int(index[-1]) + 1, step)
    return index


# Statistics. Each is what NumPy's function of that name gives, without the copies that it makes of windows.


def _sum(slices: Slices, ddof: int) -> Values:
    return slices.sum(slices.values)


def _prod(slices: Slices, ddof: int) -> Values:
    return slices.reduce_with(np.multiply, slices.values, np.prod(np.empty(0, slices.values.dtype)).dtype)


def _fold_with(function: np.ufunc) -> Callable[[Slices, int], Values]:
    return lambda slices, ddof: slices.reduce_with(function, slices.values, slices.values.dtype)


def _truth(function: np.ufunc) -> Callable[[Slices, int], Values]:
    return lambda slices, ddof: slices.reduce_with(function, slices.values.astype(bool), np.dtype(bool))


def _mean_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.mean(np.zeros(1, dtype)).dtype


def _mean(slices: Slices, ddof: int) -> Values:
    return slices.sum(slices.values.astype(_mean_type(slices.values.dtype), copy=False)) / slices.count


def _nan_sum(slices: Slices, ddof: int) -> Values:
    return slices.sum(slices.filled)


def _nan_prod(slices: Slices, ddof: int) -> Values:
    return slices.reduce_with(np.multiply, np.where(slices.missing, 1, slices.values), slices.values.dtype)


def _nan_mean(slices: Slices, ddof: int) -> Values:
    if slices.values.dtype.kind not in "fc":
        return _mean(slices, ddof)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (slices.sum(slices.filled) / slices.valid).astype(slices.values.dtype)


def _nan_var(slices: Slices, ddof: int) -> Values:
    slices = slices.cast(_mean_type(slices.values.dtype))
    values = slices.values
    mean, count = _nan_mean(slices, 0), slices.valid
    total, distance = np.zeros(slices.shape, values.dtype), np.empty(slices.shape, values.dtype)
    with np.errstate(invalid="ignore", divide="ignore"):
        for part in slices:
            np.subtract(part, mean, out=distance)
            np.multiply(distance, distance, out=distance)
            np.add(total, np.fmax(distance, 0, out=distance), out=total)  # what is missing adds 0
        some = (count > ddof) & np.isfinite(mean)  # the variance of infinite values is none
        return np.where(some, total / (count - ddof), np.nan).astype(values.dtype)


def _var(slices: Slices, ddof: int) -> Values:
    values = slices.values.astype(_mean_type(slices.values.dtype), copy=False)
    slices = Slices(values, slices.along)
    mean = _mean(slices, 0)
    total = np.zeros(slices.shape, values.dtype)
    for part in slices:
        distance = part - mean
        total += distance * distance
    with np.errstate(invalid="ignore", divide="ignore"):
        return (total / max(slices.count - ddof, 0)).astype(values.dtype)


def _root_of(variance: Callable[[Slices, int], Values]) -> Callable[[Slices, int], Values]:
    return lambda slices, ddof: np.sqrt(variance(slices, ddof))


def _position(better: np.ufunc) -> Callable[[Slices, int], Values]:
    """Return the statistic that finds the first window element that is better than all before it."""

    def find(slices: Slices, ddof: int) -> Values:
        parts = iter(slices)
        best = np.array(next(parts))
        found = np.zeros(slices.shape, np.intp)
        for number, part in enumerate(parts, 1):
            wins = better(part, best)
            if best.dtype.kind in "fc":  # the first missing value is the answer, as NumPy has it
                wins = (wins | np.isnan(part)) & ~np.isnan(best)
            np.copyto(best, part, where=wins)
            found[wins] = number
        return found

    return find


def _nan_median(slices: Slices, ddof: int) -> Values:
    return _median_by_parts(slices, True)


def _median(slices: Slices, ddof: int) -> Values:
    return _median_by_parts(slices, False)


def _median_by_parts(slices: Slices, skipna: bool) -> Values:
    """Return medians: the windows of as many elements as fit are copied and sorted at a time."""
    dtype = _mean_type(slices.values.dtype)
    result = np.empty(slices.shape, dtype)
    flat = result.reshape(-1)
    columns = [part.reshape(-1) for part in slices] if slices.count * result.nbytes <= MEDIAN_BYTES else None
    room = max(MEDIAN_BYTES // max(slices.count * dtype.itemsize, 1), 1)
    for start in range(0, flat.size, room):
        stop = min(start + room, flat.size)
        if columns is None:
            at = np.unravel_index(np.arange(start, stop), slices.shape)
            block = np.stack([np.asarray(part[at]) for part in slices])
        else:
            block = np.stack([column[start:stop] for column in columns])
        flat[start:stop] = _median_of_columns(block.astype(dtype, copy=False), skipna)
    return result


def _median_of_columns(block: Values, skipna: bool) -> Values:
    block.sort(axis=0)  # missing values come last
    missing = np.isnan(block)
    count = len(block) - missing.sum(axis=0)
    if not skipna:
        count = np.where(missing.any(axis=0), 0, count)
    low, high = np.maximum(count - 1, 0) // 2, np.maximum(count // 2, 0)
    every = np.arange(block.shape[1])
    middle = np.where(low == high, block[low, every], np.mean([block[low, every], block[high, every]], axis=0))
    return np.where(count > 0, middle, np.nan).astype(block.dtype)


def _in_float64(statistic: Callable[[Slices, int], Values]) -> Callable[[Slices, int], Values]:
    """Return a statistic that sums floats in float64 and rounds once, as every other reduction does."""

    def reduce(slices: Slices, ddof: int) -> Values:
        dtype = slices.values.dtype.newbyteorder("=")
        wide = np.result_type(dtype, np.float64) if dtype.kind in "fc" else dtype
        if wide == dtype:
            return statistic(slices, ddof)
        with np.errstate(over="ignore"):
            return statistic(slices.cast(wide), ddof).astype(dtype)

    return reduce


def reduce_slices(method: str, slices: Slices, ddof: int = 0, least: int = 0) -> Values:
    """Return a statistic of windows, one of `METHODS`; it is missing where fewer than `least` values are not."""
    found = METHODS[method](slices, ddof)
    return np.where(slices.valid >= least, found, found.dtype.type(np.nan)) if least else found


METHODS: dict[str, Callable[[Slices, int], Values]] = {
    "sum": _in_float64(_sum),
    "prod": _in_float64(_prod),
    "nansum": _in_float64(_nan_sum),
    "nanprod": _in_float64(_nan_prod),
    "mean": _in_float64(_mean),
    "nanmean": _in_float64(_nan_mean),
    "min": _fold_with(np.minimum),
    "nanmin": _fold_with(np.fmin),
    "max": _fold_with(np.maximum),
    "nanmax": _fold_with(np.fmax),
    "any": _truth(np.logical_or),
    "all": _truth(np.logical_and),
    "var": _in_float64(_var),
    "nanvar": _in_float64(_nan_var),
    "std": _in_float64(_root_of(_var)),
    "nanstd": _in_float64(_root_of(_nan_var)),
    "argmin": _position(np.less),
    "argmax": _position(np.greater),
    "median": _median,
    "nanmedian": _nan_median,
}
"""Statistics of windows: by the name of NumPy's function, with `nan` where missing values are left out."""
