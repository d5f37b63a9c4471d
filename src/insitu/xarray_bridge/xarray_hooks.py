"""Adaptions of xarray, which has no other place for what a virtual array needs.

To xarray a `LazyArray` is a duck array like any other. It has no attribute `chunks`, by which xarray
would take it for a Dask array and refuse what it refuses of those. In these places that is not enough:

- `load` keeps duck arrays as they are. Here virtual arrays are read, all of a dataset in one batch;
- `load_async` awaits each variable on its own, also those of the engine. Here they are one batch on one
  thread, which ends with the task that waits for it;
- writing (`to_netcdf`, `to_zarr`) would load an array as a whole. Here it is written piece by piece;
- `chunk` would read each block by itself. Here it gives the Dask arrays of `chunks=`;
- rolling windows are handed to bottleneck or numbagg, groups to flox, where these are installed, which
  load all values. Here these libraries are left out for virtual arrays, so the windows are reduced as
  those of `insitu.expressions.windows`, and groups one by one;
- arithmetic of groups (`ds.tas.groupby("time.month") - climatology`) shows the other operand in the full
  size. Here the operand becomes a virtual array that carries its values, so the result stays virtual;
- functions of `apply_ufunc` get duck arrays as they are. Here they get the values, as of xarray's own
  lazy arrays, unless they say that they take any array (`dask="allowed"`); where the values are too many
  they are Dask arrays, with what xarray makes of them;
- indexers are taken as they are, also by pandas, and by NumPy for arrays in memory. Here virtual ones are
  read before;
- the values in each window are counted, of integers as well, where none are missing, in an array of
  the full size. Here that is one of the windowed dimensions only, shown as often as needed.

No option of xarray is changed. A release of xarray that has these functions elsewhere is left alone:
values stay the same, but more of them are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from typing import Any, NamedTuple

import numpy as np
import xarray

from insitu.expressions.evaluate import read_all
from insitu.forking import import_before_fork
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.load_values import own_values_or_dask, to_dask
from insitu.model.elementwise import UFUNCS
from insitu.reading import ReadContext
from insitu.reading.await_read import await_read
from insitu.scanning.member import in_memory
from insitu.xarray_bridge.backend_array import find_lazy_array

__all__ = ["HOOKS", "Hook", "install_hooks"]


FLOX_KEYWORDS = ("method", "engine", "reindex")
"""Of reductions of groups: in which way flox computes them."""
ROLLING_KEYWORDS = frozenset(
    {
        *("array_agg_func", "bottleneck_move_func", "numbagg_move_func", "rolling_agg_func"),
        *("keep_attrs", "fillna", "sliding_window_view_kwargs", "ddof"),
    }
)
"""Of reductions of windows: what xarray gives, and what a user may give beside."""


def _read_before_loading(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: Any, **kwargs: Any) -> Any:
        virtual = [variable for variable in _variables_of(self) if isinstance(variable._data, LazyArray)]
        waiting = []
        for variable in virtual:
            if variable._data.find_at_hand() is None:
                waiting.append(variable)
            else:
                variable.data = variable._data.read()
        for variable, values in zip(waiting, read_all([variable._data.node for variable in waiting]), strict=True):
            variable.data = values
        return original(self, **kwargs)

    return load


def _read_together_before_awaiting(original: Callable[..., Any]) -> Callable[..., Any]:
    async def load_async(self: Any, **kwargs: Any) -> Any:
        virtual = [(variable, find_lazy_array(variable)) for variable in _variables_of(self)]
        found = [(variable, array.node) for variable, array in virtual if array is not None]
        values = await await_read(read_all, [node for _, node in found])
        for (variable, _), read in zip(found, values, strict=True):
            variable.data = read
        return await original(self, **kwargs)

    return load_async


def _variables_of(data: Any) -> Iterable[Any]:
    """Return the variables of a dataset or tree, or the variable itself."""
    if isinstance(data, xarray.Variable):
        return [data]
    if isinstance(data, xarray.DataTree):
        return [variable for node in data.subtree for variable in node.variables.values()]
    return list(data.variables.values())


def _read_indexers(original: Callable[..., Any]) -> Callable[..., Any]:
    def broadcast_indexes(self: Any, key: Any) -> Any:
        key = self._item_key_to_tuple(key)
        return original(self, tuple(map(_indexer_with_values, key if isinstance(key, tuple) else (key,))))

    return broadcast_indexes


def _read_indexers_of_datasets(original: Callable[..., Any]) -> Callable[..., Any]:
    def validate_indexers(self: Any, *args: Any, **kwargs: Any) -> Any:
        for dim, indexer in original(self, *args, **kwargs):
            yield dim, _indexer_with_values(indexer)

    return validate_indexers


def _indexer_with_values(indexer: Any) -> Any:
    """Return an indexer, or a variable that is one, with its values if it is virtual."""
    if isinstance(indexer, LazyArray):
        return np.asarray(indexer)
    if isinstance(indexer, xarray.Variable) and isinstance(indexer._data, LazyArray):
        return indexer.copy(deep=False, data=np.asarray(indexer._data))
    return indexer


def _write_virtual_arrays_in_pieces(original: Callable[..., Any]) -> Callable[..., Any]:
    def add(self: Any, source: Any, target: Any, region: Any = None) -> None:
        if isinstance(source, LazyArray):
            from insitu.xarray_bridge.write_in_pieces import write_in_pieces  # only writing needs it

            write_in_pieces(source, target, region)
        else:
            original(self, source, target, region)

    return add


def _make_dask_arrays_of_stored_chunks(original: Callable[..., Any]) -> Callable[..., Any]:
    def from_array(self: Any, data: Any, chunks: Any, **kwargs: Any) -> Any:
        virtual = getattr(data, "array", data)  # within xarray's adapter of indexers
        if isinstance(virtual, LazyArray):
            return to_dask(virtual, chunks, inline_array=kwargs.get("inline_array", False))
        return original(self, data, chunks, **kwargs)

    return from_array


def _keep_virtual_arrays_from_flox(original: Callable[..., bool]) -> Callable[..., bool]:
    def contains_only_chunked_or_numpy(data: Any) -> bool:
        return not has_virtual_array(data) and original(data)

    return contains_only_chunked_or_numpy


def _drop_keywords_of_flox(original: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(self: Any, *args: Any, **kwargs: Any) -> Any:
        if has_virtual_array(getattr(self, "_original_obj", None)):
            kwargs = {name: value for name, value in kwargs.items() if name not in FLOX_KEYWORDS}
        return original(self, *args, **kwargs)

    return reduce


def _keep_group_arithmetic_virtual(original: Callable[..., Any]) -> Callable[..., Any]:
    def compute(self: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        if has_virtual_array(getattr(self, "_original_obj", None)):
            other = carry_values(other)
        return original(self, other, *args, **kwargs)

    return compute


def _reduce_windows_without_libraries(original: Callable[..., Any]) -> Callable[..., Any]:
    def reduce_windows(self: Any, *args: Any, **kwargs: Any) -> Any:
        if has_virtual_array(self.obj):
            found = _roll_virtual_array(self, kwargs)
            if found is not None:
                return found
            kwargs |= {name: None for name in ("bottleneck_move_func", "numbagg_move_func") if name in kwargs}
        return original(self, *args, **kwargs)

    return reduce_windows


def _roll_virtual_array(rolling: Any, how: Mapping[str, Any]) -> Any:
    """Return the statistic that xarray's `rolling` is asked for, in one step; None if it is not one of floating-point
    values by the usual rules.
    """
    function = how.get("array_agg_func") or how.get("rolling_agg_func")
    if set(how) - ROLLING_KEYWORDS or function is None:
        return None
    whole, axes = rolling.obj, rolling.obj.get_axis_num(rolling.dim)
    lengths = dict(zip(axes, map(int, rolling.window), strict=True))
    centered = [axis for axis, center in zip(axes, rolling.center, strict=True) if center]
    method, ddof = function.__name__.removeprefix("_"), how.get("ddof", 0)
    from insitu.lazy_array.windowing import roll_windows  # imports all statistics, which opening does not need

    data = roll_windows(whole.variable._data, lengths, centered, method, rolling.min_periods, ddof)
    if data is None:
        return None
    attributes = whole.attrs if how.get("keep_attrs") else {}
    return type(whole)(data, whole.coords, whole.dims, whole.name, attributes)


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
        stays_virtual = dask == "allowed" or (dask == "parallelized" and isinstance(func, np.ufunc) and func in UFUNCS)
        if not stays_virtual and any(isinstance(getattr(arg, "_data", None), LazyArray) for arg in args):
            args = tuple(map(_with_values, args))
            if dask == "parallelized":
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


def _carry(variable: xarray.Variable) -> Any:
    """Return the data of a variable as a virtual array if they are in memory, else as they are."""
    if not isinstance(variable._data, np.ndarray):
        return variable._data
    carried = in_memory(variable._data)
    if carried is None:
        return variable._data
    return LazyArray(carried, ReadContext(name=f"values{'×'.join(map(str, variable.shape))}"))


class Hook(NamedTuple):
    """A function of xarray that is wrapped."""

    places: tuple[str, ...]
    """Modules, or classes as `module:class`; the first that has the function counts: some have moved."""
    function: str
    make: Callable[[Any], Any]
    """Makes the new function from the old one."""

    def find_owner(self) -> Any:
        """Return the module or class that has the function; None if none has."""
        for place in self.places:
            module, _, name = place.partition(":")
            try:
                owner: Any = import_before_fork(module)
            except ImportError:
                continue
            owner = getattr(owner, name, None) if name else owner
            if hasattr(owner, self.function):
                return owner
        return None


ROLLING = ("xarray.computation.rolling:DataArrayRolling", "xarray.core.rolling:DataArrayRolling")
"""The second before xarray 2025.2."""
HOOKS = (
    Hook(("xarray.core.variable:Variable",), "load", _read_before_loading),
    Hook(("xarray.core.variable:Variable",), "_broadcast_indexes", _read_indexers),
    Hook(("xarray.core.dataset:Dataset",), "load", _read_before_loading),
    Hook(("xarray.core.dataset:Dataset",), "load_async", _read_together_before_awaiting),
    Hook(("xarray.core.dataset:Dataset",), "_validate_indexers", _read_indexers_of_datasets),
    Hook(("xarray.core.datatree:DataTree",), "load", _read_before_loading),
    Hook(("xarray.backends.common:ArrayWriter",), "add", _write_virtual_arrays_in_pieces),
    Hook(("xarray.namedarray.daskmanager:DaskManager",), "from_array", _make_dask_arrays_of_stored_chunks),
    Hook(("xarray.core.groupby",), "contains_only_chunked_or_numpy", _keep_virtual_arrays_from_flox),
    Hook(("xarray.core._aggregations",), "contains_only_chunked_or_numpy", _keep_virtual_arrays_from_flox),
    Hook(("xarray.core.groupby:DataArrayGroupByBase",), "reduce", _drop_keywords_of_flox),
    Hook(("xarray.core.groupby:DatasetGroupByBase",), "reduce", _drop_keywords_of_flox),
    Hook(("xarray.core.groupby:GroupBy",), "_binary_op", _keep_group_arithmetic_virtual),
    Hook(ROLLING, "_array_reduce", _reduce_windows_without_libraries),
    Hook(ROLLING, "_counts", _count_integers_once),
    Hook(
        ("xarray.computation.apply_ufunc", "xarray.core.computation"), "apply_variable_ufunc", _give_values_to_functions
    ),
)
"""What each of them is for is held by `tests/xarray_bridge/test_xarray_hooks.py`, which takes it away."""


@cache
def install_hooks() -> None:
    """Adapt xarray, once in a process.

    Rolling windows are adapted when the first is made: xarray imports them then, and with them numbagg and
    numba where these are installed, which takes longer than all else that opening a file imports.
    """
    for hook in HOOKS:
        if hook.places != ROLLING:
            _install(hook)
    for kind in (xarray.Dataset, xarray.DataArray):
        for name in ("rolling", "cumulative"):
            setattr(kind, name, _install_before(kind, name))


def _install_before(kind: type[Any], name: str) -> Callable[..., Any]:
    """Return a method that adapts rolling windows, and then does what the method of that name did."""
    original = getattr(kind, name)

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _install_window_hooks()
        return original(self, *args, **kwargs)

    return method


@cache
def _install_window_hooks() -> None:
    for hook in HOOKS:
        if hook.places == ROLLING:
            _install(hook)


def _install(hook: Hook) -> None:
    owner = hook.find_owner()
    if owner is not None:
        original = getattr(owner, hook.function)
        setattr(owner, hook.function, wraps(original)(hook.make(original)))
