"""The operations of the protocol on the selected part of a chunk, and the encoding of their
results.

Missing values are left out as in NumPy's masked arrays; NaN is a value like any other. Sums are
taken in 64 bits and returned in the type of the data; a sum that does not fit it is returned in a
wider type, which the response names. Where every value is missing, the count is 0 and an extreme is
infinite, because PyActiveStorage merges the extremes of chunks without looking at their counts.
Integers have no infinity, and PyActiveStorage cannot tell which of them are missing: their extreme
is then a missing value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cbor2
import numpy as np
import numpy.typing as npt

from insitu.reducing.block_facts import ValueBlock, accumulator_dtype
from insitu.server.error_responses import RequestError
from insitu.server.reductionist.request import ChunkRequest

__all__ = ["OPERATIONS", "OperationResult", "encode_result", "operate"]

OPERATIONS = ("count", "max", "min", "select", "sum")
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class OperationResult:
    """Result of an operation."""

    values: Array
    """Flat, in the order in which they are sent."""
    shape: tuple[int, ...]
    count: Array
    """Flat; nested if dimensions are kept."""


def operate(operation: str, request: ChunkRequest, chunk: Array, keep_dims: bool = False) -> OperationResult:
    """Return the result of an operation on a decoded chunk."""
    part = chunk if request.selection is None else chunk[request.selection]
    mask = None if request.missing is None else request.missing.mask(part)
    whole = part.size if mask is None else part.size - int(np.count_nonzero(mask))
    fortran = request.order == "F"
    if operation == "select":
        return OperationResult(part.ravel("F" if fortran else "C"), part.shape, np.array([whole], np.int64))
    axes = tuple(range(part.ndim)) if request.axis is None else request.axis
    if not axes and request.axis is not None:
        return _reduce_no_axes(operation, part, mask, fortran)
    measured = ValueBlock(part, axes, mask is not None)
    measured.__dict__["skipped"] = mask
    count = np.asarray(measured.count)
    if operation == "count":
        values = count
    elif operation == "sum":
        values = _compute_sum(measured)
    else:
        values = _compute_extreme(operation, measured, [part.shape[axis] for axis in axes])
        if part.dtype.kind in "iub" and request.missing is not None and not keep_dims and not count.all():
            values = np.where(count == 0, request.missing.placeholder(values.dtype), values)
    if keep_dims:
        return OperationResult(values.ravel(), values.shape, count)
    shape = tuple(length for axis, length in enumerate(values.shape) if axis not in axes)
    return OperationResult(values.ravel(), shape, count.ravel())


def _reduce_no_axes(operation: str, part: Array, mask: Array | None, fortran: bool) -> OperationResult:
    """Return the result of a reduction along no axis: the values themselves."""
    order: Any = "F" if fortran and operation != "count" else "C"
    count = np.ones(part.shape, np.int64) if mask is None else (~mask).astype(np.int64)
    values = count if operation == "count" else part
    return OperationResult(values.ravel(order), part.shape, count.ravel(order))


def _compute_extreme(operation: str, part: ValueBlock, lengths: Sequence[int]) -> Array:
    if 0 in lengths:
        raise RequestError(f"cannot perform {operation} on empty array or selection")
    ufunc = np.maximum if operation == "max" else np.minimum
    dtype = part.values.dtype
    if part.skipped is None:
        return part.reduce(ufunc)
    worst = _neutral_extreme(operation, dtype.newbyteorder("="))
    return part.reduce(ufunc, np.where(part.skipped, worst, part.values))


def _neutral_extreme(operation: str, dtype: np.dtype[Any]) -> Any:
    """Return the value that changes no extreme."""
    if dtype.kind == "b":
        return dtype.type(operation == "min")
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).min if operation == "max" else np.iinfo(dtype).max)
    edge = -np.inf if operation == "max" else np.inf
    return dtype.type(complex(edge, edge)) if dtype.kind == "c" else dtype.type(edge)


def _compute_sum(part: ValueBlock) -> Array:
    dtype = part.values.dtype.newbyteorder("=")
    with np.errstate(all="ignore"):
        if dtype.kind in "fc":
            wide = part.total
            narrow = wide.astype(dtype)
            overflows = np.isfinite(wide) & ~np.isfinite(narrow)
            return wide if overflows.any() else narrow
        values = part.fill_skipped(0)
        wide = part.reduce(np.add, values, accumulator_dtype(dtype, integers=True))
        if dtype.itemsize == 8 and not _is_within_64_bits(values, part.size):
            exact = _exact_sums(part, values)
            if exact is not None:
                return exact
        if dtype.kind == "b":
            return wide
        info = np.iinfo(dtype)
        fits = not wide.size or (int(wide.min()) >= info.min and int(wide.max()) <= info.max)
        return wide.astype(dtype) if fits else wide


def _is_within_64_bits(values: Array, size: int) -> bool:
    """Return whether the sum of so many 64-bit integers certainly fits 64 bits."""
    if not values.size:
        return True
    largest = max(abs(int(values.min())), abs(int(values.max())))
    return largest * size <= np.iinfo(values.dtype.newbyteorder("=")).max


def _exact_sums(part: ValueBlock, values: Array) -> Array | None:
    """Return the sums as floats if one does not fit 64 bits; else None.

    Sums of 32-bit halves are exact.
    """
    high = part.reduce(np.add, values >> values.dtype.type(32))
    low = part.reduce(np.add, values & values.dtype.type(0xFFFFFFFF))
    info = np.iinfo(values.dtype.newbyteorder("="))
    totals = [(int(top) << 32) + int(rest) for top, rest in zip(high.ravel(), low.ravel(), strict=True)]
    if all(info.min <= total <= info.max for total in totals):
        return None
    return np.array([float(total) for total in totals]).reshape(high.shape)


def encode_result(result: OperationResult, request: ChunkRequest, keep_dims: bool = False) -> bytes:
    """Return a result as CBOR; little-endian on every machine, because clients ignore `byte_order`."""
    values = result.values.astype(result.values.dtype.newbyteorder("<"), copy=False)
    count = result.count.astype("<i8", copy=False)
    return cbor2.dumps(
        {
            "bytes": values.tobytes(),
            "dtype": result.values.dtype.name,
            "shape": [] if request.shape_as_bytes else list(result.shape),
            "shape_as_bytes": np.array(result.shape, "<u8").tobytes() if request.shape_as_bytes else b"",
            "count": [] if request.count_as_bytes else _count_as_list(count, keep_dims),
            "count_as_bytes": count.tobytes() if request.count_as_bytes else b"",
            "byte_order": "little",
        }
    )


def _count_as_list(count: Array, nested: bool) -> Any:
    """Return counts as a list, nested if dimensions are kept.

    A single nested count is a bare number, because PyActiveStorage compares it with 0.
    """
    if nested and count.size == 1:
        return int(count.ravel()[0])
    return count.tolist()
