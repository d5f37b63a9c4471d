"""Answers of the explorer's API: JSON, binary arrays behind a JSON header, and files to download."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ApiAnswer", "binary_answer", "json_answer", "without_nan"]

ALIGNMENT = 8
"""Data begin at a multiple of this, and so does each array: a browser views them without copying."""


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """The body of an answer."""

    body: bytes
    media_type: str = "application/json"
    file_name: str | None = None
    """Name under which a browser saves it; None: it is not a file."""


def json_answer(data: Any) -> ApiAnswer:
    """Return data as JSON; numbers that JSON does not have are null."""
    return ApiAnswer(_to_json(data))


def binary_answer(header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> ApiAnswer:
    """Return arrays behind a header: its length (uint32), the header, the data, all little-endian.

    The header gets the entry `arrays`: name, type, shape and offset of each.

    Examples
    --------
    >>> answer = binary_answer({"a": 1}, {"values": np.zeros(2, "f4")})
    >>> answer.body[4:11], len(answer.body) % 8
    (b'{"a":1,', 0)
    """
    listed, pieces, offset = [], [], 0
    for name, values in arrays.items():
        data = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        listed.append({"name": name, "dtype": _dtype_text(values.dtype), "shape": list(values.shape), "offset": offset})
        pieces += [data, bytes(-len(data) % ALIGNMENT)]
        offset += len(data) + -len(data) % ALIGNMENT
    text = _to_json({**header, "arrays": listed})
    text += b" " * (-(4 + len(text)) % ALIGNMENT)
    return ApiAnswer(b"".join([len(text).to_bytes(4, "little"), text, *pieces]), "application/octet-stream")


def without_nan(value: Any) -> Any:
    """Return data with null in place of the numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.generic):
        return without_nan(value.item())
    if isinstance(value, Mapping):
        return {str(key): without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return value


def _to_json(data: Any) -> bytes:
    # A lone surrogate, which a damaged name may hold, is no UTF-8.
    text = json.dumps(without_nan(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _dtype_text(dtype: np.dtype[Any]) -> str:
    return dtype.newbyteorder("<").str
