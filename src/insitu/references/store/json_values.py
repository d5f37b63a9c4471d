r"""Convert Python and NumPy values to JSON and back without loss of type.

JSON has numbers, but no `float32`. Values that JSON lacks become objects whose keys begin with `$`;
all others stay as they are.

| value | JSON |
|---|---|
| None, bool, int, str, finite float, list, dict | as they are |
| NaN, infinities | `{"$float": "NaN"}` |
| NumPy scalar | `{"$dtype": "<f4", "$value": 1.5}` |
| array | `{"$dtype": "<f4", "$shape": [2], "$base64": …}` |
| a record with texts or sequences | `{"$dtype": [["a", "\|O"]], "$records": [["x"]]}` |
| records | `{"$dtype": …, "$shape": [2], "$records": [["x"], ["y"]]}` |
| bytes, complex | `{"$bytes": base64}`, `{"$complex": [re, im]}` |
| tuple, a dtype | `{"$tuple": […]}`, `{"$type": "<f4"}` |
"""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, UnsupportedError
from insitu.zarr_metadata.dtypes import numpy_dtype
from insitu.zarr_metadata.json_fields import base64_field, integers_field, list_field, required_field, text_field

__all__ = ["dtype_from_json", "dtype_to_json", "pack", "unpack"]

_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def pack(value: Any) -> Any:
    """Return a value as JSON holds it."""
    if value is None or isinstance(value, bool | str) or type(value) is int:
        return value
    if type(value) is float:
        if math.isfinite(value):
            return value
        return {"$float": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, np.ndarray | np.void) and value.dtype.names is not None and value.dtype.hasobject:
        names = value.dtype.names
        records = [[pack(record[name]) for name in names] for record in np.asarray(value).reshape(-1)]
        shape = {"$shape": list(value.shape)} if isinstance(value, np.ndarray) else {}
        return {"$dtype": dtype_to_json(value.dtype), **shape, "$records": records}
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return {"$objects": [pack(item) for item in value.reshape(-1).tolist()], "$shape": list(value.shape)}
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"$dtype": dtype_to_json(value.dtype), "$shape": list(value.shape), "$base64": data}
    if isinstance(value, np.generic):
        if not value.dtype.itemsize:  # an empty text: NumPy gives it width 0, but cannot create that type
            value = np.zeros((), f"{value.dtype.kind}1")
            return {"$dtype": dtype_to_json(value.dtype), "$base64": base64.b64encode(value.tobytes()).decode()}
        plain = value.dtype.kind in "iub" or (
            value.dtype.kind == "f" and value.dtype.itemsize <= 8 and np.isfinite(value)
        )
        if plain:
            return {"$dtype": dtype_to_json(value.dtype), "$value": pack(value.item())}
        return {"$dtype": dtype_to_json(value.dtype), "$base64": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, complex):
        return {"$complex": [pack(value.real), pack(value.imag)]}
    if isinstance(value, np.dtype):
        return {"$type": dtype_to_json(value)}
    if isinstance(value, tuple):
        return {"$tuple": [pack(item) for item in value]}
    if isinstance(value, list):
        return [pack(item) for item in value]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: pack(item) for key, item in value.items()}
        return {"$dict": [[pack(key), pack(item)] for key, item in value.items()]}
    if isinstance(value, int):  # subclasses: enumerations
        return int(value)
    raise UnsupportedError(f"a value of type {type(value).__name__} cannot be saved: {value!r}"[:200])


def unpack(value: Any) -> Any:
    """Return the value that `pack` converted."""
    try:
        return _unpack(value)
    except RecursionError:
        raise FormatError("a value is nested too deeply") from None


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    mark = next(iter(value), "")
    if not mark.startswith("$"):
        return {key: _unpack(item) for key, item in value.items()}
    return _unpack_marked(value)


def _unpack_marked(value: dict[str, Any]) -> Any:
    if "$float" in value:
        name = text_field(value["$float"], "$float")
        if name not in _FLOATS:
            raise FormatError(f"'$float' must be one of {', '.join(_FLOATS)}, not {name[:40]!r}")
        return _FLOATS[name]
    if "$objects" in value:
        return _reshape(_object_array(list_field(value["$objects"], "$objects")), value)
    if "$dtype" in value:
        return _unpack_typed(value, dtype_from_json(value["$dtype"]))
    if "$bytes" in value:
        return base64_field(value["$bytes"], "$bytes")
    if "$complex" in value:
        return _unpack_complex(list_field(value["$complex"], "$complex"))
    if "$type" in value:
        return dtype_from_json(value["$type"])
    if "$tuple" in value:
        return tuple(_unpack(item) for item in list_field(value["$tuple"], "$tuple"))
    if "$dict" in value:
        return dict(_unpack_item(item) for item in list_field(value["$dict"], "$dict"))
    raise FormatError(f"unknown kind of value {next(iter(value))!r}")


def _object_array(items: list[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(items), object)
    for at, item in enumerate(items):
        array[at] = _unpack(item)
    return array


def _unpack_typed(value: Mapping[str, Any], dtype: np.dtype[Any]) -> Any:
    """A NumPy scalar or array: of records, from a number, or from its bytes."""
    if "$records" in value:
        return _unpack_records(value, dtype)
    if "$value" in value:
        return _unpack_number(_unpack(value["$value"]), dtype)
    data = base64_field(required_field(value, "$base64"), "$base64")
    if dtype.hasobject or dtype.subdtype is not None or not dtype.itemsize or len(data) % dtype.itemsize:
        raise FormatError(f"{len(data)} bytes are not values of the type {dtype}")
    array = np.frombuffer(data, dtype)
    if dtype.kind == "U" and (array.view(dtype.byteorder + "u4") > sys.maxunicode).any():
        raise FormatError("a text has characters that do not exist")
    if "$shape" in value:
        return _reshape(array, value).copy()
    if not len(array):
        raise FormatError(f"a value of type {dtype} has no bytes")
    return array[0]


def _unpack_number(number: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind not in "biuf" or not isinstance(number, int if dtype.kind in "biu" else int | float):
        raise FormatError(f"{str(number)[:40]} is not a number of the type {dtype}")
    try:
        return dtype.type(number)
    except OverflowError:
        raise FormatError(f"{str(number)[:40]} is too large for the type {dtype}") from None


def _unpack_records(value: Mapping[str, Any], dtype: np.dtype[Any]) -> Any:
    records = list_field(value["$records"], "$records")
    names = dtype.names or ()
    array = np.zeros(len(records), dtype)
    for at, record in enumerate(records):
        if len(list_field(record, "$records")) != len(names):
            raise FormatError(f"a record of {len(names)} fields has {len(record)} values")
        for name, field in zip(names, record, strict=True):
            item = _unpack(field)
            try:
                array[name][at] = item
            except (TypeError, ValueError, OverflowError) as problem:  # NumPy refuses what is not of the field's type
                raise FormatError(f"field {name!r} of a record cannot hold its value: {problem}") from None
    if "$shape" in value:
        return _reshape(array, value)
    if not len(array):
        raise FormatError("a record has no values")
    return array[0]


def _reshape(array: npt.NDArray[Any], value: Mapping[str, Any]) -> npt.NDArray[Any]:
    shape = integers_field(required_field(value, "$shape"), "$shape")
    if math.prod(shape) != array.size:
        raise FormatError(f"an array of shape {shape} has {array.size} values")
    return array.reshape(shape)


def _unpack_complex(parts: list[Any]) -> complex:
    numbers = [_unpack(part) for part in parts]
    if len(numbers) != 2 or not all(isinstance(number, int | float) for number in numbers):
        raise FormatError("'$complex' must be two numbers")
    try:
        return complex(*numbers)
    except OverflowError:
        raise FormatError("an integer of '$complex' is too large") from None


def _unpack_item(item: Any) -> tuple[Any, Any]:
    """One item of a mapping, as `dict` takes it."""
    pair = list_field(item, "$dict")
    if len(pair) != 2:
        raise FormatError("an item of '$dict' must be a key and a value")
    key = _unpack(pair[0])
    try:
        hash(key)
    except TypeError:
        raise FormatError(f"{str(key)[:40]} cannot be the key of a mapping") from None
    return key, _unpack(pair[1])


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """Return a type as JSON holds it: NumPy's string, or a list of fields."""
    if dtype.names is None and dtype.subdtype is None:
        return dtype.str
    return _to_lists(np.lib.format.dtype_to_descr(dtype))


def _to_lists(value: Any) -> Any:
    return [_to_lists(item) for item in value] if isinstance(value, tuple | list) else value


def dtype_from_json(value: Any) -> np.dtype[Any]:
    """Return the type that `dtype_to_json` converted."""
    if isinstance(value, str):
        return numpy_dtype(value)
    try:
        description = _to_description(value)
    except RecursionError:
        raise FormatError("a type is nested too deeply") from None
    try:
        found: np.dtype[Any] = np.lib.format.descr_to_dtype(description)
    except (TypeError, ValueError) as problem:  # names that occur twice, sizes beyond 2 GiB
        raise FormatError(f"{str(value)[:80]} is not a valid type: {problem}") from None
    return found


def _to_description(value: Any) -> Any:
    """Return lists as NumPy expects them: text, or a list of fields."""
    if isinstance(value, str):
        return numpy_dtype(value).str
    items = list_field(value, "type")
    if not items:
        raise FormatError("a structured type needs fields")
    return [_to_field(list_field(item, "field")) for item in items]


def _to_field(item: list[Any]) -> tuple[Any, ...]:
    """A field: its name, or title and name; its type; perhaps its shape."""
    if len(item) not in (2, 3):
        raise FormatError(f"a field must be a name, a type and perhaps a shape, not {str(item)[:40]}")
    name = item[0]
    if isinstance(name, list):
        if len(name) != 2:
            raise FormatError(f"a field must have a name, or a title and a name, not {str(name)[:40]}")
        name = tuple(text_field(part, "name") for part in name)
    else:
        text_field(name, "name")
    return (name, _to_description(item[1]), *(integers_field(shape, "shape") for shape in item[2:]))
