"""Comparison and merging of variables of one name.

Most often they are equal to the byte (coordinates repeated in every file), which is found without
xarray. The rest is decided by xarray's own `Variable.equals`, `broadcast_equals`, `identical`,
`no_conflicts` on the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import xarray

from insitu.cf.casting import cast_values
from insitu.combining.merge_attributes import is_equivalent
from insitu.errors import CombineError
from insitu.model import VirtualArray
from insitu.scanning.member import Load, Member, Variable
from insitu.scanning.promotion import shared_type

__all__ = [
    "ConflictError",
    "has_equal_values",
    "has_same_attributes",
    "is_same_in_all",
    "is_same_variable",
    "merge_variable",
    "read_together",
]


NUMBERS = frozenset("biufc")
"""Kinds of types whose values NumPy compares as xarray does, whichever two they are."""


class ConflictError(CombineError):
    """Variables of one name have different values."""


def has_equal_values(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Return whether values are equal, NaN equal to NaN, whatever their types."""
    if one is other:
        return True
    if one.shape != other.shape:
        return False
    if one.dtype == other.dtype and not one.dtype.hasobject and one.tobytes() == other.tobytes():
        return True
    if {one.dtype.kind, other.dtype.kind} <= NUMBERS or (one.dtype == other.dtype and one.dtype.kind in "mM"):
        # Not by xarray, whose first Variable imports dask.array, and that numba, where they are installed: 0.8 s.
        return bool(np.array_equal(one, other, equal_nan=True))
    dims = [f"d{i}" for i in range(one.ndim)]
    left: Any = xarray.Variable(dims, one)
    return bool(left.equals(xarray.Variable(dims, other)))


def is_same_variable(one: Variable, other: Variable, compat: str, load: Load) -> bool:
    """Return whether two variables are the same in the sense of `compat`."""
    if one is other:
        return True
    has_same_shape = one.dims == other.dims and one.shape == other.shape
    if not has_same_shape and (compat in ("equals", "identical") or not _is_broadcastable(one, other)):
        return False
    if compat == "identical" and not has_same_attributes(one, other):
        return False
    if one.data is other.data:
        return True
    if has_same_shape and _has_same_bytes(one, other, load):
        return True
    return bool(getattr(_to_xarray(one, load), compat)(_to_xarray(other, load)))


def _is_broadcastable(one: Variable, other: Variable) -> bool:
    sizes = one.sizes
    return all(sizes.get(dim, length) == length for dim, length in other.sizes.items())


def has_same_attributes(one: Variable | Member, other: Variable | Member) -> bool:
    """Return whether two variables, or two files, have equal attributes."""
    a, b = one.attributes, other.attributes
    return a is b or (a.keys() == b.keys() and all(is_equivalent(a[key], b[key]) for key in a))


def _has_same_bytes(one: Variable, other: Variable, load: Load) -> bool:
    a, b = one.values(load), other.values(load)
    return a.dtype == b.dtype and not a.dtype.hasobject and a.tobytes() == b.tobytes()


def _to_xarray(variable: Variable, load: Load) -> Any:
    return xarray.Variable(variable.dims, variable.values(load), dict(variable.attributes))


def read_together(variables: Sequence[Variable], load: Load) -> None:
    """Read the values of all that have none yet, in one batch."""
    unread = [variable for variable in variables if isinstance(variable.data, VirtualArray)]
    arrays = [variable.data for variable in unread if isinstance(variable.data, VirtualArray)]
    for variable, values in zip(unread, load(arrays) if arrays else [], strict=True):
        variable.data = values


def is_same_in_all(variables: Sequence[Variable], compat: str, load: Load) -> bool:
    """Return whether all are the same as the first."""
    first = variables[0]
    if len(variables) > 1 and not all(v.data is first.data for v in variables):
        read_together(variables, load)
    return all(is_same_variable(first, other, compat, load) for other in variables[1:])


def merge_variable(
    name: str, variables: Sequence[Variable], compat: str, load: Load, equal: bool | None = None
) -> Variable:
    """Return the one variable that several of the same name make where they are not concatenated."""
    first = variables[0]
    if len(variables) == 1 or compat == "override":
        return first
    if compat == "minimal":
        compat = "broadcast_equals"
    if compat == "broadcast_equals":
        sizes: dict[str, int] = {}
        for variable in variables:
            for dim, length in variable.sizes.items():
                if sizes.setdefault(dim, length) != length:
                    raise CombineError(f"index {dim!r} not aligned")
    if equal is None:
        equal = is_same_in_all(variables, compat, load)
    if not equal:
        raise ConflictError(
            f"conflicting values for variable {name!r} on objects to be combined. "
            "You can skip this check by specifying compat='override'."
        )
    if compat == "broadcast_equals" and any(v.dims != first.dims for v in variables):
        wide = _to_xarray(first, load).set_dims(sizes)
        return Variable(tuple(map(str, wide.dims)), wide.values, first.attributes, first.encoding)
    if compat == "no_conflicts":
        return _fill_missing(variables, load)
    return first


def _fill_missing(variables: Sequence[Variable], load: Load) -> Variable:
    """Return the first variable, its missing values taken from the others."""
    first = variables[0]
    if all(v.data is first.data for v in variables):
        return first
    values = first.values(load)
    complete = values.dtype.kind in "biuSU" or (
        values.dtype.kind in "fcmM" and not xarray.Variable(first.dims, values).isnull().any()
    )
    if complete and all(set(v.dims) <= set(first.dims) and v.dtype == first.dtype for v in variables):
        return first
    read_together(variables, load)
    if shared_type([v.dtype for v in variables]).kind == "O":
        return _fill_missing_objects(variables, load)
    filled = _to_xarray(first, load)
    for other in variables[1:]:
        filled = filled.fillna(_to_xarray(other, load))
    return Variable(tuple(map(str, filled.dims)), filled.values, first.attributes, first.encoding)


def _fill_missing_objects(variables: Sequence[Variable], load: Load) -> Variable:
    """Return the first variable of objects, its missing values taken from the others.

    xarray's `fillna` makes integers of dates that meet ones of another calendar.
    """
    first = variables[0]
    dims = dict.fromkeys(dim for variable in variables for dim in variable.dims)
    sizes = {dim: length for variable in variables for dim, length in variable.sizes.items()}
    filled: Any = None
    for variable in variables:
        values = _to_xarray(variable, load).set_dims(sizes).transpose(*dims).values
        values = cast_values(values, np.dtype(object))
        filled = values if filled is None else np.where(pandas.isnull(filled), values, filled)
    return Variable(tuple(dims), filled, first.attributes, first.encoding)
