"""Wire format of values, columns of integers and selections, between client and server.

Everything becomes maps, lists, numbers, strings and bytes, which CBOR writes as they are. Columns
of integers (the locations of chunks) are sent as deflated differences. Incoming data is checked:
invalid data raises an error of insitu, and no column grows beyond the limit.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from reprlib import Repr
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from insitu.errors import ModelError, SelectionError
from insitu.model import Selection
from insitu.model.selection import Stride

__all__ = [
    "MAX_AXES",
    "MAX_DEPTH",
    "MAX_ELEMENTS",
    "check_integer",
    "check_length",
    "check_plain",
    "check_shape",
    "declared_elements",
    "dtype_from_wire",
    "dtype_to_wire",
    "excerpt",
    "get_field",
    "integers_from_wire",
    "integers_to_wire",
    "selection_from_wire",
    "selection_keys_to_wire",
    "selection_to_wire",
    "values_from_wire",
    "values_to_wire",
]

MAX_ELEMENTS = 1 << 26
"""Largest column that is accepted: 64 million numbers."""
MAX_ITEMSIZE = 16 << 20
"""Largest element that is accepted, in bytes."""
SMALL_COLUMN_BYTES = 64
"""Columns of up to this many bytes are not deflated."""
INTEGER_TYPES = ("|i1", "<i2", "<i4", "<i8")
"""Types of the differences of a column of integers."""
MAX_AXES = 64
"""The limit of NumPy."""
MAX_DEPTH = 32
"""Levels of maps and lists within each other that are accepted."""


def dtype_to_wire(dtype: np.dtype[Any]) -> Any:
    """Return a type as NumPy's file format writes it: a string, or a list for structures."""
    return _descr_to_lists(npy.dtype_to_descr(dtype))


def dtype_from_wire(data: Any) -> np.dtype[Any]:
    """Return the type that `dtype_to_wire` wrote."""
    described = _descr_from_lists(data)
    try:
        found = npy.descr_to_dtype(described)
    except Exception as problem:
        # NumPy's parser of types has no one class of errors: bad text alone may raise a TypeError,
        # ValueError, KeyError, SyntaxError or OverflowError.
        raise ModelError(f"not a NumPy type: {excerpt(described)}") from problem
    if found.subdtype is not None:
        raise ModelError(f"{found} is a type of arrays; only a field of a structure can have it")
    if found.itemsize > MAX_ITEMSIZE:
        raise ModelError(f"elements of {found.itemsize} bytes are larger than the limit of {MAX_ITEMSIZE} bytes")
    return found


def _descr_to_lists(descr: Any) -> Any:
    return [_descr_to_lists(item) for item in descr] if isinstance(descr, (list, tuple)) else descr


def _descr_from_lists(data: Any, depth: int = 0) -> Any:
    """Return a description of a type with tuples for fields, as NumPy expects it."""
    if isinstance(data, str):
        return data
    if not isinstance(data, list) or depth > MAX_DEPTH:
        raise ModelError("a type must be text, or a list of fields")
    fields = []
    for item in data:
        if not isinstance(item, list) or len(item) not in (2, 3):
            raise ModelError("a field of a structure must be a list of name, type and, optionally, shape")
        names = item[0] if isinstance(item[0], list) else [item[0]]
        if not 1 <= len(names) <= 2 or not all(isinstance(name, str) for name in names):
            raise ModelError("the name of a field must be text, or a list of title and name")
        name = tuple(names) if isinstance(item[0], list) else item[0]
        fields.append((name, _descr_from_lists(item[1], depth + 1), *map(check_shape, item[2:])))
    return fields


def values_to_wire(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an array as type, shape and bytes, in C order, little-endian."""
    if values.dtype.hasobject:
        return {"dtype": "|O", "shape": list(values.shape), "items": [_to_python(item) for item in values.reshape(-1)]}
    values = np.ascontiguousarray(values).reshape(values.shape)
    little = values.dtype.newbyteorder("<")
    data = values.astype(little, copy=False)
    return {"dtype": dtype_to_wire(little), "shape": list(values.shape), "data": data.tobytes()}


def _to_python(item: Any) -> Any:
    return item.item() if isinstance(item, np.generic) else item


def values_from_wire(data: Any) -> npt.NDArray[Any]:
    """Return the array that `values_to_wire` wrote; it may be read-only."""
    shape = check_shape(get_field(data, "shape"))
    size = math.prod(shape)
    if "items" in data:
        listed = get_field(data, "items", list)
        if len(listed) != size:
            raise ModelError(f"an array of {size} values must list as many items, not {len(listed)}")
        return np.fromiter(listed, object, size).reshape(shape)
    dtype, raw = dtype_from_wire(get_field(data, "dtype")), get_field(data, "data", bytes)
    if dtype.hasobject or not dtype.itemsize or len(raw) != size * dtype.itemsize:
        raise ModelError(f"{len(raw)} bytes are not an array of {size} values of {dtype}")
    return np.frombuffer(raw, dtype, size).reshape(shape)


def integers_to_wire(column: npt.NDArray[Any]) -> Any:
    """Return a column of integers: one number if all are equal, else deflated differences."""
    flat = np.ascontiguousarray(column, np.int64).reshape(-1)
    if flat.size and (flat == flat[0]).all():
        return {"shape": list(column.shape), "all": int(flat[0])}
    step = np.diff(flat, prepend=0)
    most = max(int(step.max(initial=0)), -int(step.min(initial=0)))
    kind = next(kind for kind in map(np.dtype, INTEGER_TYPES) if most <= np.iinfo(kind).max or kind.itemsize == 8)
    data = step.astype(kind).tobytes()
    packed = {"shape": list(column.shape), "kind": kind.str}
    if len(data) <= SMALL_COLUMN_BYTES:
        return {**packed, "data": data}
    # Bytes of equal significance together: the high bytes of differences are mostly equal.
    planes = np.frombuffer(data, np.uint8).reshape(-1, kind.itemsize).T.tobytes()
    return {**packed, "deflated": zlib.compress(planes, 6)}


def integers_from_wire(data: Any, most: int = MAX_ELEMENTS) -> npt.NDArray[np.int64]:
    """Return the integers that `integers_to_wire` wrote."""
    shape = check_shape(get_field(data, "shape"))
    size = math.prod(shape)
    if size > most:
        raise ModelError(f"a column of {size} numbers is larger than the limit of {most}")
    if "all" in data:
        return np.full(shape, check_integer(data["all"]), np.int64)
    name = get_field(data, "kind", str)
    if name not in INTEGER_TYPES:
        raise ModelError(f"a column of integers must have one of the types {', '.join(INTEGER_TYPES)}, not {name[:20]}")
    kind = np.dtype(name)
    if "data" in data:
        raw = get_field(data, "data", bytes)
    else:
        try:
            # One byte more than needed, to notice a column that is too long.
            raw = zlib.decompressobj().decompress(get_field(data, "deflated", bytes), size * kind.itemsize + 1)
        except zlib.error as problem:
            raise ModelError(f"a column of integers is damaged: {problem}") from problem
    if len(raw) != size * kind.itemsize:
        raise ModelError(f"a column of {size} numbers must not have {len(raw)} bytes")
    if "data" not in data:
        raw = np.frombuffer(raw, np.uint8).reshape(kind.itemsize, size).T.tobytes()
    return np.cumsum(np.frombuffer(raw, kind, size), dtype=np.int64).reshape(shape)


def declared_elements(data: Any) -> int:
    """Return how many numbers the columns in some decoded data have once they are expanded.

    Examples
    --------
    >>> declared_elements([{"take": {"shape": [3, 5], "all": 0}}, [0, 1, 4]])
    15
    """
    total, rest = 0, [data]
    while rest:
        item = rest.pop()
        if isinstance(item, dict):
            shape = item.get("shape")
            if isinstance(shape, list) and len(shape) <= MAX_AXES and ("all" in item or "kind" in item):
                total += math.prod(length for length in shape if isinstance(length, int) and length > 0)
            rest += item.values()
        elif isinstance(item, (list, tuple)):
            rest += (inner for inner in item if isinstance(inner, (dict, list, tuple)))
    return total


def selection_to_wire(selection: Selection) -> list[Any]:
    """Return one entry per axis: an integer, `[start, step, length]`, or a column of indices."""
    return [
        {"take": integers_to_wire(s)}
        if isinstance(s, np.ndarray)
        else int(s)
        if isinstance(s, int)
        else [int(n) for n in s]
        for s in selection.selectors
    ]


def selection_keys_to_wire(selection: Any) -> list[Any] | None:
    """Return a selection of an array of unknown shape: integers, slices, index arrays, an
    Ellipsis.
    """
    if selection is Ellipsis or selection is None:
        return None
    entries: list[Any] = []
    for key in selection if isinstance(selection, tuple) else (selection,):
        if key is Ellipsis:
            entries.append("...")
        elif isinstance(key, slice):
            entries.append({"slice": [None if b is None else int(b) for b in (key.start, key.stop, key.step)]})
        elif isinstance(key, (int, np.integer)):
            entries.append(int(key))
        else:
            index = np.asarray(key)
            entries.append({"take": integers_to_wire(np.flatnonzero(index) if index.dtype == bool else index)})
    return entries


def selection_from_wire(data: Any, shape: Sequence[int]) -> Selection:
    """Return a selection for a shape.

    Entries are those of `selection_to_wire` or, easier to write by hand, `{"index": [0, 5]}`,
    `"..."` and `{"slice": [start, stop, step]}` (null: open). Axes without an entry are selected as
    a whole.
    """
    if data is None:
        return Selection.of(..., shape)
    if not isinstance(data, list) or len(data) - ("..." in data) > len(shape) or data.count("...") > 1:
        raise SelectionError(f"a selection must be a list of at most {len(shape)} entries, one for each axis")
    at = data.index("...") if "..." in data else len(data)
    rest = len(shape) - len(data) + ("..." in data)
    data = [*data[:at], *[{"slice": [None]}] * rest, *data[at + 1 :]]
    keys: list[Any] = []
    for entry, length in zip(data, shape, strict=True):
        if isinstance(entry, dict) and len(entry) == 1:
            how, what = next(iter(entry.items()))
            keys.append(_KEY_PARSERS[how](what) if how in _KEY_PARSERS else _refuse_entry(entry))
        elif isinstance(entry, list) and len(entry) == 3:
            keys.append(_parse_stride(entry, length))
        elif isinstance(entry, int) and not isinstance(entry, bool):
            keys.append(entry)
        else:
            _refuse_entry(entry)
    if any(isinstance(key, int) and not -(1 << 63) <= key < 1 << 63 for key in keys):
        raise SelectionError("an index must fit 64 bits")
    normal = Selection.of(tuple(k if not isinstance(k, Stride) else slice(None) for k in keys), shape)
    exact = tuple(k if isinstance(k, Stride) else s for k, s in zip(keys, normal.selectors, strict=True))
    return Selection(tuple(shape), exact)


def _refuse_entry(entry: Any) -> Any:
    raise SelectionError(
        f"{excerpt(entry)} is not a valid entry of a selection: use an integer, [start, step, length], slice or index"
    )


def _parse_slice(bounds: Any) -> slice:
    if not isinstance(bounds, list) or not 1 <= len(bounds) <= 3:
        _refuse_entry(bounds)
    return slice(*[None if bound is None else check_integer(bound) for bound in bounds])


def _parse_stride(entry: list[Any], length: int) -> Stride:
    start, step, count = (check_integer(number) for number in entry)
    if count < 0 or step == 0:
        _refuse_entry(entry)
    if count <= 1:
        step = 1  # the step has no effect
    if count and not (0 <= start < length and 0 <= start + step * (count - 1) < length):
        raise SelectionError(f"start {start}, step {step}, length {count} lie outside of an axis of length {length}")
    return Stride(start, step, count)


_KEY_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "slice": _parse_slice,
    "index": lambda what: _parse_index_list(_check_list(what)),
    "take": integers_from_wire,
}


def _parse_index_list(numbers: list[Any]) -> npt.NDArray[np.int64]:
    """Return a list of integers as an array; the common case without a loop in Python."""
    if set(map(type, numbers)) == {int}:
        try:
            return np.array(numbers, np.int64)
        except OverflowError:
            pass  # reported below, with the number
    return np.array([check_integer(i) for i in numbers], np.int64)


def _check_list(what: Any) -> list[Any]:
    if not isinstance(what, list):
        raise SelectionError("an index must be a list of integers")
    return what


def get_field(data: Any, name: str, *kinds: type) -> Any:
    """Return an entry of a map that was received; raise an error if it is not there, or is of no
    type of `kinds`.
    """
    if not isinstance(data, dict):
        raise ModelError(f"a map with the entry {name!r} was expected, not {type(data).__name__}")
    if name not in data:
        raise ModelError(f"the entry {name!r} is missing")
    found = data[name]
    if kinds and not isinstance(found, kinds):
        raise ModelError(
            f"the entry {name!r} must be {' or '.join(k.__name__ for k in kinds)}, not {type(found).__name__}"
        )
    return found


def check_plain(value: Any, depth: int = 0) -> Any:
    """Return a value if it consists of maps with text as keys, lists, text, bytes and numbers; else
    raise an error.
    """
    if depth > MAX_DEPTH:
        raise ModelError(f"maps and lists lie within each other more than {MAX_DEPTH} times")
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise ModelError("the keys of a map must be text")
        for item in value.values():
            check_plain(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_plain(item, depth + 1)
    elif isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > 64:
            raise ModelError("an integer must fit 64 bits")
    elif not isinstance(value, (str, bytes, bool, float, type(None))):
        raise ModelError(f"a value of type {type(value).__name__} is not accepted")
    return value


def check_shape(data: Any) -> tuple[int, ...]:
    """Return a shape that was received; raise an error if NumPy has no such arrays."""
    if not isinstance(data, list) or len(data) > MAX_AXES:
        raise ModelError(f"a shape must be a list of at most {MAX_AXES} lengths")
    shape = tuple(check_length(length) for length in data)
    # Of an array without elements, too: NumPy counts the other axes.
    if math.prod(max(length, 1) for length in shape) >= 1 << 59:
        raise ModelError(f"an array of shape {shape} is too large")
    return shape


def check_integer(number: Any) -> int:
    """Return a number if it is an integer of 64 bits; else raise an error."""
    if not isinstance(number, int) or isinstance(number, bool) or not -(1 << 63) <= number < 1 << 63:
        raise ModelError(f"{excerpt(number)} is not an integer of 64 bits")
    return number


def excerpt(value: Any) -> str:
    """Return the beginning of a value that was received, for a message."""
    return repr((value if isinstance(value, str) else _short_repr.repr(value))[:80])


_short_repr = Repr()
"""Looks at the first items only: a request may have a million."""
_short_repr.maxstring = _short_repr.maxother = 80


def check_length(number: Any) -> int:
    """Return a number if it is a non-negative integer of 64 bits; else raise an error."""
    if check_integer(number) < 0:
        raise ModelError(f"a length or position must not be negative: {number}")
    return int(number)
