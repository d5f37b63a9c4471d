"""When are two values the same, read by two libraries?

Bit for bit, NaN included. What is not a difference: the byte order that an array is *returned* in,
`str` beside UTF-8 `bytes`, a scalar beside an array of one element, an enumeration beside its
integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

__all__ = ["different_attributes", "different_values", "flattened", "overlapping", "same_dtype"]


def _text(value: Any) -> Any:
    """A string as `str`, whatever it was; anything else as it is."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str(value) if isinstance(value, str) else value


def _replaced(value: Any) -> Any:
    """The text as netCDF4 shows it when it is not UTF-8."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if isinstance(value, str) else value


def _plain(values: Any) -> np.ndarray[Any, Any]:
    """An array of one of three kinds: numbers in native order, `object` of str, `object` of arrays."""
    array = np.asarray(values)
    if array.dtype.kind in "SUT":
        array = array.astype(object)
    if array.dtype.kind == "O":
        out = np.empty(array.shape, object)
        flat = out.reshape(-1)
        for index, value in enumerate(array.reshape(-1)):
            flat[index] = _text("" if value is None else value)
        return flat.reshape(array.shape)
    if array.dtype.names is None and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def different_values(actual: Any, expected: Any) -> str:
    """Say how two arrays differ; "" if they do not."""
    left, right = _plain(actual), _plain(expected)
    if left.dtype.kind == "O" and not left.shape and right.shape and isinstance(left.item(), np.ndarray):
        left = _plain(left.item())  # of a scalar, h5py gives the sequence itself
    if left.shape != right.shape:
        return f"shape {left.shape}, not {right.shape}"
    if left.dtype.names is not None or right.dtype.names is not None:
        if left.dtype.names != right.dtype.names:
            return f"fields {left.dtype.names}, not {right.dtype.names}"
        for name in left.dtype.names or ():
            if problem := different_values(left[name], right[name]):
                return f"field {name}: {problem}"
        return ""
    if left.dtype.kind == "O" or right.dtype.kind == "O":
        for index, (a, b) in enumerate(zip(left.reshape(-1), right.reshape(-1), strict=True)):
            if isinstance(a, str) or isinstance(b, str):
                if a != b and a != _replaced(b):
                    return f"element {index} is {a!r:.60}, not {b!r:.60}"
            elif any(np.ndim(one) == 0 and np.asarray(one).dtype.kind == "O" for one in (a, b)):
                continue  # a reference: an address, which has no value beyond the library that gave it
            elif problem := different_values(a, b):
                return f"element {index}: {problem}"
        return ""
    if left.dtype.kind == "b" or right.dtype.kind == "b":
        left, right = left.astype(bool), right.astype(bool)
    if left.dtype.itemsize != right.dtype.itemsize or (
        left.dtype.kind != right.dtype.kind and "V" not in (left.dtype.kind, right.dtype.kind)
    ):
        return f"dtype {left.dtype}, not {right.dtype}"
    if not left.dtype.itemsize:
        return ""
    a, b = _bytes(left), _bytes(right)
    if np.array_equal(a, b):
        return ""
    bad = np.flatnonzero((a != b).any(axis=1))
    if left.dtype.kind == "f":
        # The library makes quiet NaNs of signalling ones on its way.
        bad = bad[~(np.isnan(left.reshape(-1)[bad]) & np.isnan(right.reshape(-1)[bad]))]
        if not bad.size:
            return ""
    first = int(bad[0])
    found, wanted = left.reshape(-1)[first], right.reshape(-1)[first]
    return f"{len(bad)} of {len(a)} elements, first {first}: {found!r:.40}, not {wanted!r:.40}"


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes of each element, one row each."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if not flat.size:
        return np.empty((0, 1), "u1")
    part = np.dtype(np.longdouble)
    if flat.dtype in (part, np.dtype(np.clongdouble)) and np.finfo(part).nmant == 63:
        # Of the 16 bytes of an x87 number 10 are its own, what is in the others nobody says.
        return (
            np.frombuffer(flat.tobytes(), "u1").reshape(flat.size, -1, part.itemsize)[:, :, :10].reshape(flat.size, -1)
        )
    return np.frombuffer(flat.tobytes(), "u1").reshape(flat.size, flat.dtype.itemsize)


def same_dtype(actual: Any, expected: Any) -> bool:
    """Whether two dtypes are the same to NumPy; padding and metadata (an enumeration's names)
    aside.
    """
    (left, inside), (right, other) = flattened(np.dtype(actual)), flattened(np.dtype(expected))
    if inside != other:
        return False
    if left.kind == "V" and "ref" in (right.metadata or {}):
        return True  # a reference is an address: any form of it will do
    if left.names is not None and right.names is not None:
        return left.names == right.names and all(same_dtype(left[name], right[name]) for name in left.names)
    return left == right or {left.str, right.str} in ({"|b1", "|i1"}, {"|b1", "|u1"})


def flattened(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The elements of an array type and its axes; of arrays of arrays, those of all of them."""
    shape: tuple[int, ...] = ()
    while dtype.subdtype is not None:
        shape += dtype.shape
        dtype = dtype.base
    return dtype, shape


def overlapping(dtype: np.dtype[Any]) -> bool:
    """Whether members lie over each other: h5py (3.16) takes their places from the file, but wider
    numbers than there.
    """
    dtype, _ = flattened(dtype)
    if "vlen" in (dtype.metadata or {}) and isinstance(dtype.metadata["vlen"], np.dtype):
        return overlapping(dtype.metadata["vlen"])
    if dtype.fields is None:
        return False
    places = sorted((offset, offset + part.itemsize) for part, offset, *_ in dtype.fields.values())
    return any(end > begin for (_, end), (begin, _) in pairwise(places)) or any(
        overlapping(part) for part, *_ in dtype.fields.values()
    )


def different_attributes(actual: Mapping[str, Any], expected: Mapping[str, Any], *, strict: bool) -> str:
    """Say how two sets of attributes differ; "" if they do not. `strict`: dtype and form (scalar,
    array) count too.
    """
    if missing := [name for name in expected if name not in actual]:
        return f"attributes missing: {missing[:5]}"
    if extra := [name for name in actual if name not in expected]:
        return f"attributes too many: {extra[:5]}"

    for name, value in expected.items():
        if problem := _different(actual[name], value, strict):
            return f"attribute {name}: {problem}"
    return ""


def _different(actual: Any, expected: Any, strict: bool) -> str:
    if strict and isinstance(expected, str | list) and type(actual) is not type(expected):
        return f"{actual!r:.60} ({type(actual).__name__}), not {expected!r:.60} ({type(expected).__name__})"
    left, right = _plain(actual), _plain(expected)
    if not strict:
        if (
            right.dtype.kind == "O"
            and right.size == 1
            and isinstance(right.item(), np.ndarray)
            and left.dtype.kind != "O"
        ):
            right = _plain(right.item())  # of one sequence, netCDF shows the sequence
        if left.size == 0 or right.size == 0 or expected is None:
            return (
                ""
                if left.size == right.size or (_empty(actual) and _empty(expected))
                else f"{actual!r:.60}, not {expected!r:.60}"
            )
        left, right = left.reshape(-1), right.reshape(-1)
    return different_values(left, right)


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | bytes) and not value) or np.size(value) == 0
