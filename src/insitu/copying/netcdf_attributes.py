"""Attributes as NetCDF-4 has them: text, numbers of its types, and rows of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from insitu.errors import UnsupportedError

__all__ = ["to_netcdf_attributes"]

RESERVED = (
    "CLASS",
    "NAME",
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "_Netcdf4Dimid",
    "_Netcdf4Coordinates",
    "_NCProperties",
)
"""Names that the library of NetCDF uses itself."""


def to_netcdf_attributes(attributes: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return attributes that NetCDF can hold.

    Raises
    ------
    UnsupportedError
        If it has no type for one: the error names it.
    """
    found = {}
    for name, value in attributes.items():
        if not name or "/" in name or name in RESERVED:
            raise UnsupportedError(
                f"NetCDF cannot have an attribute of the name {name!r}", variable=path or None, hint="Remove it"
            )
        found[name] = _convert(name, value, path)
    return found


def _convert(name: str, value: Any, path: str) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        return list(value)
    values = np.asarray(value)
    if values.dtype.kind == "b":
        return values.astype("i1")[()]
    if values.dtype.kind in "SU":
        return (
            [str(item) for item in np.char.decode(values, "utf-8").tolist()]
            if values.dtype.kind == "S"
            else values.tolist()
        )
    if values.dtype.kind in "iu" or (values.dtype.kind == "f" and values.dtype.itemsize in (4, 8)):
        return values[()]
    if values.dtype == np.float16:
        return values.astype("f4")[()]
    raise UnsupportedError(
        f"NetCDF has no type for the attribute {name!r}, {value!r:.60}", variable=path or None, hint="Remove it"
    )
