"""Casts of decoded values that keep dates and durations where the target holds Python objects.

NumPy turns datetime64[ns] into integers where the target holds objects (and coarser units into
`datetime.datetime`). Files of several calendars make such targets: a date of the standard calendar
next to one of cftime. Here dates and durations become `pandas.Timestamp` and `pandas.Timedelta`, as
in an index of xarray, whatever their unit is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["cast_values", "needs_date_objects", "to_date_objects"]


def needs_date_objects(values: Any, target: np.dtype[Any]) -> bool:
    """Return whether NumPy's own cast to a type would turn dates or durations into integers."""
    return target.kind == "O" and isinstance(values, (np.ndarray, np.generic)) and values.dtype.kind in "mM"


def cast_values(values: Any, target: np.dtype[Any]) -> NDArray[Any]:
    """Return the values in another type; dates and durations stay dates and durations."""
    if needs_date_objects(values, target):
        return to_date_objects(values)
    return np.asarray(values, target)


def to_date_objects(values: Any) -> NDArray[Any]:
    """Return datetime64 or timedelta64 values as an array of `pandas.Timestamp` or
    `pandas.Timedelta`.
    """
    index = import_module("pandas").Index(np.asarray(values).reshape(-1))
    result = np.empty(values.size, object)
    result[:] = list(index)  # one by one: an Index has no objects before it is asked for them
    return result.reshape(values.shape)
