"""Types of numbers in attributes, kept where JSON has one type for all numbers.

`scale_factor` as float32 decodes to another type than as float64. kerchunk's formats hold JSON, so an attribute beside says what the types were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["type_hints", "with_types"]

NAME = "_insitu_types"


def type_hints(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an attribute that says the types of others, where the plain numbers would be taken for another type; else nothing."""
    types = {}
    for key in ("scale_factor", "add_offset"):
        value = attributes.get(key)
        if isinstance(value, (np.generic, np.ndarray)) and value.dtype not in (np.dtype("f8"), np.dtype("i8")):
            types[key] = value.dtype.str
    return {NAME: types} if types else {}


def with_types(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes with numbers of the types that they had."""
    types = attributes.get(NAME)
    if not isinstance(types, Mapping):
        return attributes
    given = {key: value for key, value in attributes.items() if key != NAME}
    for key, dtype in types.items():
        if key in given:
            given[key] = np.asarray(given[key], np.dtype(dtype))[()]
    return given
