"""When is an outcome the same: values, types, labels, attributes, errors.

What a step may differ by is its rule:

- exact: nothing. Selections, joins, correctly rounded arithmetic, casts, extremes, counts, whole
  numbers.
- elementary: 2 ulp. Transcendental functions, whose code differs by processor and stride.
- reduction: 1 ulp of xarray's result in float64, cast to xarray's type; and the rounding of float64
  itself, which depends on the order of a sum.
- composed: the rounding of the type. Several reductions one after the other, each in its type
  (weighted means, covariances), or a reduction by NumPy of values in memory.
- selected: 1 ulp. Medians and quantiles, which lie between two values that are selected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

__all__ = ["Failure", "difference", "largest", "settle"]


@dataclass(frozen=True)
class Failure:
    """A program that raised."""

    error: BaseException

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {str(self.error)[:300]}"


def settle(value: Any) -> Any:
    """Return a result with its values in memory; a new object."""
    if isinstance(value, xr.DataArray | xr.Dataset | xr.Variable):
        return value.compute()
    if isinstance(value, tuple | list):
        return [settle(part) for part in value]
    if hasattr(value, "__array_function__") and not isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    return value


def largest(values: Any) -> tuple[float, int]:
    """Return the largest finite magnitude among the floats of some values, and how many values there are."""
    if isinstance(values, xr.Dataset):
        each = [largest(variable.variable) for variable in values.data_vars.values()]
        return max((size for size, _ in each), default=0.0), max((count for _, count in each), default=1)
    array = np.asarray(values.values if isinstance(values, xr.DataArray | xr.Variable) else values)
    if array.dtype.kind not in "fciub" or not array.size:
        return 0.0, 1
    sizes = np.abs(array.astype("c16" if array.dtype.kind == "c" else "f8"))
    return float(np.max(sizes, where=np.isfinite(sizes), initial=0.0)), array.size


def difference(found: Any, expected: Any, rule: str = "exact", scale: float = 0.0) -> str:
    """Say how two settled results differ; "" if they do not.

    `scale`: the rounding error that a sum of the values may have.
    """
    if isinstance(expected, Failure) or isinstance(found, Failure):
        return _different_errors(found, expected)
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"{type(found).__name__}, not a list of {len(expected)}"
        return _first(difference(a, b, rule, scale) for a, b in zip(found, expected, strict=True))
    if isinstance(expected, xr.Dataset):
        return _different_datasets(found, expected, rule, scale)
    if isinstance(expected, xr.DataArray):
        if not isinstance(found, xr.DataArray):
            return f"{type(found).__name__}, not DataArray"
        if found.name != expected.name:
            return f"name {found.name!r}, not {expected.name!r}"
        problem = _different_variables(found.variable, expected.variable, rule, scale)
        return problem or _different_labels(found, expected)
    if isinstance(expected, np.ndarray | np.generic):
        if isinstance(expected, np.ndarray) and expected.ndim and not isinstance(found, np.ndarray):
            return f"{type(found).__name__}, not ndarray"
        return _different_values(np.asarray(found), np.asarray(expected), rule, scale)
    if not _is_same_object(found, expected):
        return f"{found!r:.80} ({type(found).__name__}), not {expected!r:.80} ({type(expected).__name__})"
    return ""


def _first(problems: Any) -> str:
    return next((problem for problem in problems if problem), "")


def _different_errors(found: Any, expected: Any) -> str:
    if not isinstance(expected, Failure):
        return f"raises {found}"
    if not isinstance(found, Failure):
        return f"gives a result; xarray or NumPy raises {expected}"
    if isinstance(found.error, type(expected.error)):
        return ""
    return f"raises {found}; not {expected}"


def _different_datasets(found: Any, expected: xr.Dataset, rule: str, scale: float) -> str:
    if not isinstance(found, xr.Dataset):
        return f"{type(found).__name__}, not Dataset"
    if list(found.data_vars) != list(expected.data_vars):
        return f"variables {list(found.data_vars)}, not {list(expected.data_vars)}"
    if dict(found.sizes) != dict(expected.sizes):
        return f"sizes {dict(found.sizes)}, not {dict(expected.sizes)}"
    for name, variable in expected.data_vars.items():
        if problem := _different_variables(found[name].variable, variable.variable, rule, scale):
            return f"{name}: {problem}"
    if problem := _different_attributes(found.attrs, expected.attrs):
        return problem
    return _different_labels(found, expected)


def _different_labels(found: Any, expected: Any) -> str:
    if set(found.coords) != set(expected.coords):
        return f"coordinates {sorted(map(str, found.coords))}, not {sorted(map(str, expected.coords))}"
    if set(found.xindexes) != set(expected.xindexes):
        return f"indexes {sorted(map(str, found.xindexes))}, not {sorted(map(str, expected.xindexes))}"
    for name, variable in expected.coords.items():
        # Labels of groups are means of their own (of bins) or selected: exact.
        if problem := _different_variables(found.coords[name].variable, variable.variable, "exact", 0):
            return f"coordinate {name}: {problem}"
    return ""


def _different_attributes(found: Any, expected: Any) -> str:
    same = found.keys() == expected.keys() and all(
        not difference(np.asarray(found[name]), np.asarray(expected[name])) for name in expected
    )
    return "" if same else f"attributes {found!r:.200}, not {expected!r:.200}"


def _different_variables(found: xr.Variable, expected: xr.Variable, rule: str, scale: float) -> str:
    if found.dims != expected.dims:
        return f"dimensions {found.dims}, not {expected.dims}"
    problem = _different_values(found.values, expected.values, rule, scale)
    return problem or _different_attributes(found.attrs, expected.attrs)


def _different_values(found: Any, expected: Any, rule: str, scale: float) -> str:
    if found.shape != expected.shape:
        return f"shape {found.shape}, not {expected.shape}"
    is_text = not expected.ndim and found.dtype.kind == expected.dtype.kind and expected.dtype.kind in "SU"
    if found.dtype != expected.dtype and not is_text:  # one text of NumPy has its own length
        return f"dtype {found.dtype}, not {expected.dtype}"
    if expected.dtype.kind == "O":
        same = np.array([_is_same_object(a, b) for a, b in zip(found.flat, expected.flat, strict=True)], bool)
    elif expected.dtype.kind in "fc" and rule != "exact":
        same = _is_near(found, expected, rule, scale).reshape(-1)
    elif expected.dtype.kind in "fc":
        same = _has_same_bits(found, expected).reshape(-1)
    elif expected.dtype.kind in "mM":
        same = (found.view("i8") == expected.view("i8")).reshape(-1)
    else:
        same = (found == expected).reshape(-1)
    if same.all():
        return ""
    first = int(np.flatnonzero(~same)[0])
    one, other = found.reshape(-1)[first], expected.reshape(-1)[first]
    return f"{np.count_nonzero(~same)} of {same.size} values, the first at {first}: {one!r}, not {other!r}"


def _is_same_object(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, float) and np.isnan(expected):
        return bool(np.isnan(found))
    return type(found) is type(expected) and bool(found == expected)


def _has_same_bits(found: Any, expected: Any) -> Any:
    """Return where two arrays of floats agree; all NaNs are alike, zeros have signs."""
    if expected.dtype.kind == "c":
        return _has_same_bits(found.real, expected.real) & _has_same_bits(found.imag, expected.imag)
    nan = np.isnan(expected)
    return np.where(nan, np.isnan(found), (found == expected) & (np.signbit(found) == np.signbit(expected)))


def _is_near(found: Any, expected: Any, rule: str, scale: float) -> Any:
    if expected.dtype.kind == "c":
        return _is_near(found.real, expected.real, rule, scale) & _is_near(found.imag, expected.imag, rule, scale)
    with np.errstate(all="ignore"):
        ulps = 2 if rule == "elementary" else 1
        spacing = np.spacing(np.abs(expected.astype(expected.dtype.newbyteorder("=")))).astype("f8")
        off = np.abs(found.astype("f8") - expected.astype("f8"))
        near = off <= ulps * spacing + (scale if rule in ("reduction", "composed") else 0)
    return (found == expected) | (np.isnan(found) & np.isnan(expected)) | near
