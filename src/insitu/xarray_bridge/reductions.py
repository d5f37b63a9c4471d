"""Which of NumPy's reductions stream through a virtual array, chunk by chunk?

xarray asks for `nanmean`, `nanmax`, … by name, and for sums and counts through small patterns: `sum(where(isnan(a), 0, a))` is a sum that
skips missing values, `sum(~isnan(a))` a count. Both are recognised here; the values never exist as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from insitu.reducing import reduce_array
from insitu.xarray_bridge.lazy import LazyArray
from insitu.xarray_bridge.steps import FillNull, IsNull, Not

__all__ = ["reduced"]

METHODS: dict[Callable[..., Any], tuple[str, bool]] = {
    np.sum: ("sum", False),
    np.nansum: ("sum", True),
    np.mean: ("mean", False),
    np.nanmean: ("mean", True),
    np.min: ("min", False),
    np.amin: ("min", False),
    np.nanmin: ("min", True),
    np.max: ("max", False),
    np.amax: ("max", False),
    np.nanmax: ("max", True),
    np.std: ("std", False),
    np.nanstd: ("std", True),
    np.var: ("var", False),
    np.nanvar: ("var", True),
    np.prod: ("prod", False),
    np.nanprod: ("prod", True),
    np.median: ("median", False),
    np.nanmedian: ("median", True),
    np.any: ("any", False),
    np.all: ("all", False),
    np.argmin: ("argmin", False),
    np.nanargmin: ("argmin", True),
    np.argmax: ("argmax", False),
    np.nanargmax: ("argmax", True),
}
"""NumPy's function: the method, and whether missing values are left out."""

NEUTRAL = {"sum": 0, "prod": 1}


def reduced(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The reduction, or NotImplemented if this is not one that streams."""
    if func not in METHODS or not args or not isinstance(args[0], LazyArray):
        return NotImplemented
    method, skipna = METHODS[func]
    given: dict[str, Any] = {"axis": None, "dtype": None, "out": None, "keepdims": False, "ddof": 0}
    order = (
        ("axis", "out")
        if method.startswith("arg") or method in ("min", "max", "any", "all", "median")
        else ("axis", "dtype", "out")
    )
    given.update(zip(order, args[1:], strict=False))
    given.update({name: value for name, value in kwargs.items() if value is not np._NoValue})
    if (
        set(given) - {"axis", "dtype", "out", "keepdims", "ddof"}
        or given["out"] is not None
        or len(args) > 1 + len(order)
    ):
        return NotImplemented
    array: LazyArray = args[0]
    if array.steps:
        if method in NEUTRAL and array.steps == (FillNull(NEUTRAL[method], array.array.dtype),):
            skipna = True
        elif method == "sum" and array.steps == (IsNull(), Not()):
            method, skipna = "count", True
        else:
            return NotImplemented
    virtual = array.array
    if virtual.dtype.kind not in "biuf" or given["dtype"] not in (None, virtual.dtype) or not virtual.size:
        return NotImplemented
    if given["dtype"] is not None and virtual.dtype.kind != "f":
        return NotImplemented
    axes = given["axis"]
    if axes is not None:
        axes = tuple(int(axis) % virtual.ndim for axis in np.atleast_1d(axes))
    if method.startswith("arg") and axes is not None and len(axes) != 1:
        return NotImplemented
    active = array.access.active
    result = (reduce_array if active is None else active.reduce_array)(
        virtual,
        method,
        axes=axes,
        skipna=skipna,
        ddof=int(given["ddof"]),
        name=array.access.name,
        storage_options=array.access.storage_options,
    )
    if given["keepdims"]:
        kept = [1 if axes is None or i in axes else n for i, n in enumerate(virtual.shape)]
        return np.reshape(result, kept)
    return result[()] if isinstance(result, np.ndarray) and result.ndim == 0 else result
