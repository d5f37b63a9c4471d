"""Missing values of a chunk, by the five ways in which the protocol describes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline

__all__ = ["Missing", "parse_missing"]

MISSING_KINDS = ("missing_value", "missing_values", "valid_min", "valid_max", "valid_range")


@dataclass(frozen=True, slots=True)
class Missing:
    """One of the five descriptions of missing values, with its values in the type of the data."""

    way: str
    values: tuple[Any, ...]

    def mask(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_] | None:
        """Return where values are missing; None if none is. NaN lies outside of every valid range."""
        mask = _MASKS[self.way](values, self.values)
        return mask if mask.any() else None

    def placeholder(self, dtype: np.dtype[Any]) -> Any:
        """Return a missing value, as the extreme of integers that are all missing."""
        if self.way in ("missing_value", "missing_values") and self.values:
            return self.values[0]
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            if self.way in ("valid_min", "valid_range") and int(self.values[0]) > info.min:
                return dtype.type(int(self.values[0]) - 1)
            if self.way in ("valid_max", "valid_range") and int(self.values[-1]) < info.max:
                return dtype.type(int(self.values[-1]) + 1)
        return dtype.type(0)


def _equals_any(values: npt.NDArray[Any], to: tuple[Any, ...]) -> npt.NDArray[np.bool_]:
    mask = np.zeros(values.shape, bool)
    for value in to:
        check_deadline()
        mask |= np.isnan(values) if value != value else values == value
    return mask


_MASKS: dict[str, Callable[[npt.NDArray[Any], tuple[Any, ...]], npt.NDArray[np.bool_]]] = {
    "missing_value": _equals_any,
    "missing_values": _equals_any,
    "valid_min": lambda values, limits: ~(values >= limits[0]),
    "valid_max": lambda values, limits: ~(values <= limits[0]),
    "valid_range": lambda values, limits: ~((values >= limits[0]) & (values <= limits[1])),
}


def parse_missing(data: Any, dtype: np.dtype[Any]) -> Missing:
    """Return the missing values that a request describes; ValueError if they do not fit the type."""
    if not isinstance(data, dict):
        raise ValueError("expected an object")
    given = {name: value for name, value in data.items() if value is not None or name not in MISSING_KINDS}
    if len(given) != 1 or next(iter(given)) not in MISSING_KINDS:
        raise ValueError(f"expected exactly one of {', '.join(f'`{way}`' for way in MISSING_KINDS)}")
    way, value = next(iter(given.items()))
    native = dtype.newbyteorder("=")
    if way == "missing_values":
        if not isinstance(value, list):
            raise ValueError("missing_values: expected a list")
        return Missing(way, tuple(_to_dtype(item, native) for item in value))
    if way == "valid_range":
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError("valid_range: expected a list of two numbers")
        low, high = (_to_dtype(item, native) for item in value)
        if not low < high:
            raise ValueError(f"valid_range: the minimum must be less than the maximum, [{value[0]}, {value[1]}]")
        return Missing(way, (low, high))
    return Missing(way, (_to_dtype(value, native),))


def _to_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number in the type of the data; ValueError if it does not fit."""
    if dtype.kind == "b" and isinstance(value, bool):
        return dtype.type(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"Incompatible value {str(value)[:60]} for missing")
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if not isinstance(value, int) or not info.min <= value <= info.max:
            raise ValueError(f"Incompatible value {str(value)[:60]} for missing of type {dtype}")
        return dtype.type(value)
    if dtype.kind == "b":
        raise ValueError(f"Incompatible value {str(value)[:60]} for missing of type {dtype}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"Incompatible value {str(value)[:60]} for missing of type {dtype}") from None
    with np.errstate(over="ignore"):
        found = dtype.type(number)
    if math.isfinite(number) and not np.isfinite(found):
        raise ValueError(f"Incompatible value {value} for missing of type {dtype}")
    return found
