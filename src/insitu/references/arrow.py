"""Convert columns between NumPy and Arrow through their buffers.

`pyarrow.array` imports pandas, and casts import all compute functions: together most of the time in
which a million references are opened. References have few kinds of columns, and these are built
from buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = [
    "binary_array",
    "boolean_array",
    "number_array",
    "offsets_and_bytes",
    "text_array",
    "to_integers",
    "to_number_rows",
    "to_numbers",
    "valid_mask",
]

_TYPES = {
    np.dtype(np.int32): pa.int32(),
    np.dtype(np.int64): pa.int64(),
    np.dtype(np.uint64): pa.uint64(),
    np.dtype(np.float64): pa.float64(),
}


def number_array(
    values: npt.NDArray[Any], dtype: type[Any] | None = None, mask: npt.NDArray[np.bool_] | None = None
) -> Any:
    """Return an Arrow array of numbers; null where the mask is set."""
    array = np.ascontiguousarray(values, dtype)
    bitmap = None if mask is None or not mask.any() else _to_bitmap(~mask)
    return pa.Array.from_buffers(_TYPES[array.dtype], len(array), [bitmap, pa.py_buffer(array)])


def boolean_array(values: Sequence[bool]) -> Any:
    """Return an Arrow array of booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _to_bitmap(np.asarray(values, bool))])


def binary_array(values: Sequence[bytes | None], kind: Any) -> Any:
    """Return an Arrow array of bytes or UTF-8 texts, with nulls; `kind` is an Arrow type."""
    large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum([0 if value is None else len(value) for value in values], out=ends[1:])
    data = b"".join([value for value in values if value])
    is_valid = np.array([value is not None for value in values], bool)
    bitmap = None if is_valid.all() else _to_bitmap(is_valid)
    offsets = ends if large else ends.astype(np.int32)
    return pa.Array.from_buffers(kind, len(values), [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def text_array(values: Sequence[str | None]) -> Any:
    """Return an Arrow array of texts, with nulls."""
    return binary_array(
        [None if value is None else value.encode("utf-8", "surrogateescape") for value in values], pa.string()
    )


def _to_bitmap(is_valid: npt.NDArray[np.bool_]) -> Any:
    return pa.py_buffer(np.packbits(is_valid, bitorder="little"))


def valid_mask(array: Any) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that are not null."""
    bitmap = array.buffers()[0]
    if array.null_count == 0 or bitmap is None:
        return np.full(len(array), array.null_count == 0)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(bool)


def to_integers(array: Any) -> npt.NDArray[np.int64]:
    """Return a column of integers as a NumPy array; 0 where it is null.

    Raises
    ------
    TypeError
        If it does not hold integers.
    """
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.int64)
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise TypeError(f"a column of type {array.type} does not hold integers")
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())[array.offset : array.offset + len(array)]
    is_valid = valid_mask(array)
    if pa.types.is_floating(array.type):
        # What fastparquet makes of a column that may be null.
        is_valid = is_valid & ~np.isnan(values)
        whole = np.where(is_valid, values, 0)
        if (whole != np.trunc(whole)).any() or (np.abs(whole) >= 2.0**63).any():
            raise TypeError("some numbers have fractions")
        values = whole
    elif pa.types.is_unsigned_integer(array.type) and len(values) and int(values.max()) >= 2**63:
        raise TypeError("a number does not fit into 64 bits")
    return np.where(is_valid, values, 0).astype(np.int64) if not is_valid.all() else values.astype(np.int64)


def to_numbers(array: Any, dtype: type[Any]) -> npt.NDArray[Any]:
    """Return a column of numbers of one type as a NumPy array.

    Raises
    ------
    TypeError
        If it holds something else, or nulls.
    """
    if array.type != _TYPES[np.dtype(dtype)] or array.null_count:
        raise TypeError(f"expected {_TYPES[np.dtype(dtype)]}, found {array.type} with {array.null_count} nulls")
    if not len(array):
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def to_number_rows(array: Any, width: int, dtype: type[Any]) -> npt.NDArray[Any]:
    """Return a column of lists of `width` numbers as a NumPy array of two dimensions.

    Raises
    ------
    TypeError
        If it holds something else, or nulls.
    """
    if not pa.types.is_fixed_size_list(array.type) or array.type.list_size != width or array.null_count:
        raise TypeError(f"expected lists of {width} numbers, found {array.type} with {array.null_count} nulls")
    return to_numbers(array.flatten(), dtype).reshape(len(array), width)


def offsets_and_bytes(array: Any) -> tuple[npt.NDArray[np.int64], bytes]:
    """Return the offsets and the joined bytes of a column of texts or bytes.

    Raises
    ------
    TypeError
        If the column holds something else.
    """
    kind = array.type
    large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not (large or pa.types.is_binary(kind) or pa.types.is_string(kind)):
        raise TypeError(f"a column of type {kind} holds neither text nor bytes")
    if not len(array):
        return np.zeros(1, np.int64), b""
    raw = np.frombuffer(array.buffers()[1], np.int64 if large else np.int32)
    ends = raw[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = array.buffers()[2]
    inline = b"" if data is None else data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    return ends - ends[0], inline
