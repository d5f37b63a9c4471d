"""Keep the NumPy types of `scale_factor` and `add_offset` in JSON attributes.

A float32 `scale_factor` decodes to another type than a float64 one, but JSON has one type for all
numbers. An extra attribute records the types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["type_hints", "with_types", "without_hints"]

TYPES_ATTRIBUTE = "_insitu_types"


def type_hints(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extra attribute that records types; empty if JSON keeps them anyway."""
    types = {}
    for key in ("scale_factor", "add_offset"):
        value = attributes.get(key)
        if isinstance(value, (np.generic, np.ndarray)) and value.dtype not in (np.dtype("f8"), np.dtype("i8")):
            types[key] = value.dtype.str
    return {TYPES_ATTRIBUTE: types} if types else {}


def with_types(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes with the recorded types restored."""
    types = attributes.get(TYPES_ATTRIBUTE)
    if not isinstance(types, Mapping):
        return attributes
    untyped = {key: value for key, value in attributes.items() if key != TYPES_ATTRIBUTE}
    for key, dtype in types.items():
        if key in untyped:
            untyped[key] = np.asarray(untyped[key], np.dtype(dtype))[()]
    return untyped


def without_hints(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes without the extra one that records types."""
    return {key: value for key, value in attributes.items() if key != TYPES_ATTRIBUTE}
