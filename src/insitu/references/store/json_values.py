r"""Convert Python and NumPy values to JSON and back without loss of type.

JSON has numbers, but no `float32`. Values that JSON lacks become objects whose keys begin with `$`;
all others stay as they are.

| value | JSON |
|---|---|
| None, bool, int, str, finite float, list, dict | as they are |
| NaN, infinities | `{"$float": "NaN"}` |
| NumPy scalar, array | `{"$dtype": "<f4", "$value": 1.5}`, `{"$dtype": "<f4", "$shape": [2], "$base64": …}` |
| a record, or records, with texts or sequences in them | `{"$dtype": [["a", "\|O"]], "$records": [["x"]]}`, `{"$dtype": …, "$shape": [2], "$records": [["x"], ["y"]]}` |
| bytes, complex, tuple, a dtype | `{"$bytes": base64}`, `{"$complex": [re, im]}`, `{"$tuple": […]}`, `{"$type": "<f4"}` |
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError

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
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    mark = next(iter(value), "")
    if not mark.startswith("$"):
        return {key: unpack(item) for key, item in value.items()}
    try:
        return _unpack_marked(value)
    except (LookupError, TypeError, ValueError, OverflowError) as problem:
        if isinstance(problem, FormatError):
            raise
        raise FormatError(f"{str(value)[:80]} is not a valid value: {problem!r}") from None


def _unpack_marked(value: dict[str, Any]) -> Any:
    if "$float" in value:
        return _FLOATS[value["$float"]]
    if "$objects" in value:
        items = np.empty(len(value["$objects"]), object)
        items[:] = [unpack(item) for item in value["$objects"]]
        return items.reshape(value["$shape"])
    if "$dtype" in value:
        dtype = dtype_from_json(value["$dtype"])
        if "$records" in value:
            return _unpack_records(value, dtype)
        if "$value" in value:
            return dtype.type(unpack(value["$value"]))
        data = np.frombuffer(base64.b64decode(value["$base64"]), dtype)
        if "$shape" in value:
            return data.reshape(value["$shape"]).copy()
        return data[0]
    if "$bytes" in value:
        return base64.b64decode(value["$bytes"])
    if "$complex" in value:
        real, imaginary = value["$complex"]
        return complex(unpack(real), unpack(imaginary))
    if "$type" in value:
        return dtype_from_json(value["$type"])
    if "$tuple" in value:
        return tuple(unpack(item) for item in value["$tuple"])
    if "$dict" in value:
        return {unpack(key): unpack(item) for key, item in value["$dict"]}
    raise FormatError(f"unknown kind of value {next(iter(value))!r}")


def _unpack_records(value: Mapping[str, Any], dtype: np.dtype[Any]) -> Any:
    made = np.zeros(len(value["$records"]), dtype)
    for at, record in enumerate(value["$records"]):
        for name, field in zip(dtype.names or (), record, strict=True):
            made[name][at] = unpack(field)
    return made.reshape(value["$shape"]) if "$shape" in value else made[0]


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """Return a type as JSON holds it: NumPy's string, or a list of fields."""
    if dtype.names is None and dtype.subdtype is None:
        return dtype.str
    return _to_lists(np.lib.format.dtype_to_descr(dtype))


def _to_lists(value: Any) -> Any:
    return [_to_lists(item) for item in value] if isinstance(value, tuple | list) else value


def dtype_from_json(value: Any) -> np.dtype[Any]:
    """Return the type that `dtype_to_json` converted."""
    try:
        if isinstance(value, str):
            return np.dtype(value)
        found: np.dtype[Any] = np.lib.format.descr_to_dtype(_to_tuples(value))
        return found
    except (TypeError, ValueError, KeyError, IndexError) as problem:
        raise FormatError(f"{str(value)[:80]} is not a valid type: {problem}") from None


def _to_tuples(value: Any) -> Any:
    """Return lists as NumPy expects them: a list of fields, each a tuple."""
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], list):
        return [tuple(_to_tuples(part) for part in item) for item in value]
    if value and isinstance(value[0], str) and len(value) == 2 and isinstance(value[1], list):
        return (value[0], tuple(value[1]))
    return tuple(_to_tuples(item) for item in value)
