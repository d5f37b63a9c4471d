"""Type promotion as in xarray: for values of several types, and for missing elements.

xarray has rules of its own here (integers with missing elements become floats of a width that
depends on theirs, text and numbers become objects) and changes them now and then. So the installed
xarray is asked, once for each combination of types, on arrays of one element. It is imported then:
the values of one file seldom need it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from insitu.errors import CombineError
from insitu.forking import import_before_fork

__all__ = ["shared_type", "type_with_missing"]


@lru_cache(maxsize=4096)
def type_with_missing(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type after a reindex that leaves places empty."""
    xarray = import_before_fork("xarray")
    values = np.empty(1, dtype) if dtype.hasobject else np.zeros(1, dtype)
    probe = xarray.DataArray(values, dims="x", coords={"x": [0]}, name="probe")
    found: np.dtype[Any] = np.dtype(probe.reindex(x=[0, 1]).dtype)
    return found


@lru_cache(maxsize=4096)
def _ask_shared_type(dtypes: tuple[np.dtype[Any], ...]) -> np.dtype[Any]:
    variable = import_before_fork("xarray").Variable
    parts = [variable("x", np.empty(1, dtype) if dtype.hasobject else np.zeros(1, dtype)) for dtype in dtypes]
    try:
        dtype: np.dtype[Any] = variable.concat(parts, "x").dtype
    except TypeError as refused:  # NumPy's DTypePromotionError: dates and numbers, say
        names = ", ".join(map(str, dtypes))
        raise CombineError(
            f"values of these types have no type in common: {names}",
            hint="Give all files one type in `preprocess`, or open them with decode_times=False if times are meant",
        ) from refused
    return dtype


def shared_type(dtypes: list[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the type of arrays of these types after a concatenation."""
    different = tuple(dict.fromkeys(dtypes))
    return different[0] if len(different) == 1 else _ask_shared_type(different)
