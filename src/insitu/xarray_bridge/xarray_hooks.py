"""Adaptions of xarray, without which it would turn virtual arrays into Dask arrays, or load them.

xarray has no option against it in these places:

- arithmetic of groups (`ds.tas.groupby("time.month") - climatology`) splits the other operand into
  Dask blocks. Here the operand becomes a virtual array that carries its values, so the result stays
  virtual;
- rolling windows are handed to bottleneck or numbagg where these are installed, which load all
  values. Here they are left out for virtual arrays, so the windows are reduced as those of
  `insitu.lazy_array.windows`;
- `apply_ufunc` refuses arrays with `chunks` by default, and with `dask="parallelized"` those that are
  cut along a core dimension. Of virtual arrays the function gets the values, as of xarray's own lazy
  arrays; where these are too many they are Dask arrays, with what xarray makes of them;
- the values in each window are counted, of integers as well, where none are missing, in an array of
  the full size. Here that is one of the windowed dimensions only, shown as often as needed.

A release of xarray that has these methods elsewhere is left alone: then results are Dask arrays, or
loaded, with the same values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import numpy as np
import xarray

from insitu.combining.member import in_memory
from insitu.forking import import_before_fork
from insitu.lazy_array.deferred_values import Access
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.load_values import own_values_or_dask

__all__ = ["install_hooks"]


@cache
def install_hooks() -> None:
    """Adapt xarray, once in a process."""
    _wrap("xarray.core.groupby", "GroupBy", "_binary_op", _keep_group_arithmetic_virtual)
    for module in ("xarray.computation.rolling", "xarray.core.rolling"):  # the second before xarray 2025.2
        if _wrap(module, "DataArrayRolling", "_array_reduce", _reduce_windows_without_libraries):
            _wrap(module, "DataArrayRolling", "_counts", _count_integers_once)
            break
    for module in ("xarray.computation.apply_ufunc", "xarray.core.computation"):  # the second before xarray 2025.2
        if _wrap(module, None, "apply_variable_ufunc", _give_values_to_functions):
            break


def _wrap(module: str, name: str | None, method: str, make: Callable[[Any], Any]) -> bool:
    """Wrap a method of a class, or a function of a module; return whether it was there."""
    try:
        owner: Any = import_before_fork(module)
        owner = owner if name is None else getattr(owner, name)
        original = getattr(owner, method)
    except (ImportError, AttributeError):
        return False
    setattr(owner, method, wraps(original)(make(original)))
    return True


def _keep_group_arithmetic_virtual(original: Callable[..., Any]) -> Callable[..., Any]:
    def compute(self: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        if has_virtual_array(getattr(self, "_original_obj", None)):
            self, other = copy.copy(self), carry_values(other)
            self._original_obj = with_common_chunks(self._original_obj)
        return original(self, other, *args, **kwargs)

    return compute


def _reduce_windows_without_libraries(original: Callable[..., Any]) -> Callable[..., Any]:
    def reduce_windows(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not has_virtual_array(self.obj):
            return original(self, *args, **kwargs)
        options: Any = xarray.set_options
        with options(use_bottleneck=False, use_numbagg=False):
            return original(self, *args, **kwargs)

    return reduce_windows


def _count_integers_once(original: Callable[..., Any]) -> Callable[..., Any]:
    def count(self: Any, *args: Any, **kwargs: Any) -> Any:
        whole = self.obj
        others = {dim: 0 for dim in whole.dims if dim not in self.dim}
        if not has_virtual_array(whole) or whole.dtype.kind not in "biu" or not others or 0 in whole.shape:
            return original(self, *args, **kwargs)
        lengths = dict(zip(self.dim, self.window, strict=True))
        center = dict(zip(self.dim, self.center, strict=True))
        one = whole.isel(others, drop=True).rolling(lengths, min_periods=self.min_periods, center=center)
        counts = original(one, *args, **kwargs)
        shown = carry_values(counts).variable.set_dims(dict(whole.sizes)).transpose(*whole.dims)
        made = whole.copy(deep=False, data=shown.data)
        made.attrs = counts.attrs
        return made

    return count


def _give_values_to_functions(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply(func: Any, *args: Any, dask: Any = "forbidden", dask_gufunc_kwargs: Any = None, **kwargs: Any) -> Any:
        if any(isinstance(getattr(arg, "_data", None), LazyArray) for arg in args):
            if dask == "forbidden":
                args = tuple(map(_with_values, args))
            elif dask == "parallelized":
                dask_gufunc_kwargs = {"allow_rechunk": True, **(dask_gufunc_kwargs or {})}
        return original(func, *args, dask=dask, dask_gufunc_kwargs=dask_gufunc_kwargs, **kwargs)

    return apply


def _with_values(argument: Any) -> Any:
    """Return a variable with its values, or with a Dask array where they exceed `read_limit`."""
    if not isinstance(getattr(argument, "_data", None), LazyArray):
        return argument
    return argument.copy(deep=False, data=own_values_or_dask(argument._data))


def has_virtual_array(data: Any) -> bool:
    """Return whether a dataset or data array holds a virtual array among its data."""
    if isinstance(data, xarray.DataArray):
        return isinstance(data.variable._data, LazyArray)
    return isinstance(data, xarray.Dataset) and any(
        isinstance(variable._data, LazyArray) for variable in data._variables.values()
    )


def carry_values(data: Any) -> Any:
    """Return a dataset or data array with virtual arrays that carry its values; its coordinates stay."""
    if isinstance(data, xarray.DataArray):
        return data.copy(deep=False, data=_carry(data.variable))
    if not isinstance(data, xarray.Dataset):
        return data
    carried = {name: data[name].copy(deep=False, data=_carry(data.variables[name])) for name in data.data_vars}
    return data.assign(carried)


def with_common_chunks(data: Any) -> Any:
    """Return a dataset whose virtual arrays claim to be of one chunk: xarray refuses chunks that differ.

    Nothing else is done with them.
    """
    if not isinstance(data, xarray.Dataset):
        return data
    made = data.copy(deep=False)
    for variable in made._variables.values():
        if isinstance(variable._data, LazyArray):
            variable.data = variable._data.with_chunks(tuple((length,) for length in variable.shape))
    return made


def _carry(variable: xarray.Variable) -> Any:
    """Return the data of a variable as a virtual array if they are in memory, else as they are."""
    if not isinstance(variable._data, np.ndarray):
        return variable._data
    carried = in_memory(variable._data)
    if carried is None:
        return variable._data
    return LazyArray(carried, Access(name=f"values{'×'.join(map(str, variable.shape))}"))
