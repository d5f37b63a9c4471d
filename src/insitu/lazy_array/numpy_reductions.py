"""NumPy's reductions on virtual arrays, streamed here or run on a server next to the data.

xarray asks for `nanmean`, `nanmax`, ... by name, and for sums and counts through small patterns:
`sum(where(isnan(a), 0, a))` is a sum that skips missing values, `sum(~isnan(a))` a count. They are
recognised here and in `reduction_patterns`; the values never exist as a whole. Every statistic is
computed by `reduce_lazy_array`, which also asks the server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.reduce_array import reduce_array
from insitu.errors import UnsupportedError
from insitu.lazy_array.dispatch import implements
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.evaluate import read_and_keep
from insitu.lazy_array.formula_text import formula, stored_arrays
from insitu.lazy_array.options import options
from insitu.lazy_array.reduce_boxes import NEEDS_ALL_VALUES, engine_of, reduce_by_boxes
from insitu.lazy_array.reduce_on_server import reduce_on_server, server_of
from insitu.lazy_array.reduction_patterns import reduce_masked, reduce_null_test, without_steps
from insitu.lazy_array.steps import FillNull
from insitu.lazy_array.windowing import reduce_windows
from insitu.model import normalise_axes
from insitu.reducing import METHODS as STREAMED
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce import compute_statistics, squeeze_axes
from insitu.reducing.reductions import ReductionRules

__all__ = ["can_stream", "reduce_lazy_array", "report_not_on_server", "values_of_used_array"]

NUMPY_REDUCTIONS: dict[Callable[..., Any], tuple[str, bool]] = {
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
    np.quantile: ("quantile", False),
    np.nanquantile: ("quantile", True),
    np.any: ("any", False),
    np.all: ("all", False),
    np.argmin: ("argmin", False),
    np.nanargmin: ("argmin", True),
    np.argmax: ("argmax", False),
    np.nanargmax: ("argmax", True),
}
"""NumPy's function: the method, and whether missing values are left out."""

REUSED_BYTES = 64 << 20
"""Arrays up to this size are kept when they are reduced for the second time."""

NEUTRAL_ELEMENTS = {"sum": 0, "prod": 1}


def can_stream(dtype: np.dtype[Any], method: str) -> bool:
    """Return whether a statistic of values of this type is taken piece by piece."""
    return dtype.kind in (
        "biuf" if method in NEEDS_ALL_VALUES else STREAMED[method].kinds.replace("S", "").replace("U", "")
    )


def reduce_lazy_array(array: LazyArray, query: ReductionQuery) -> dict[str, npt.NDArray[Any]]:
    """Return several statistics of an array in one pass, computed here or on the server.

    Parameters
    ----------
    array
        What to reduce.
    query
        Statistics of the whole array for which `can_stream` is true.
    """
    if array.steps:
        there = reduce_on_server(array, query)
        if there is not None:
            return there
        along = normalise_axes(query.axes, array.ndim)
        known = values_of_used_array(array)
        engine = engine_of(array) if known is None else None
        found = reduce_by_boxes(array, query.methods, along, query.rules, engine=engine, known=known)
        return found if query.keepdims else {name: squeeze_axes(v, along, array.ndim) for name, v in found.items()}
    known = values_of_used_array(array)
    if known is not None:
        return compute_statistics(array.array, query, array.access.read_context, known)
    return reduce_array(array.array, query, array.access.read_context, array.access.active)


def _reduce(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a reduction; NotImplemented if the call does not stream."""
    if not args or not isinstance(args[0], LazyArray):
        return NotImplemented
    method, skipna = NUMPY_REDUCTIONS[func]
    given = _named_arguments(method, args, kwargs)
    if given is None:
        return NotImplemented
    array: LazyArray = args[0]
    windows = reduce_windows(func, method, skipna, array, given)
    if windows is not None:
        return windows
    found = _stream_reduction(array, method, skipna, given)
    if found is None and array.size:
        report_not_on_server(array, f"this {method} of {array.dtype}")
    return NotImplemented if found is None else found


for _function in NUMPY_REDUCTIONS:
    implements(_function)(partial(_reduce, _function))


def values_of_used_array(array: LazyArray) -> npt.NDArray[Any] | None:
    """Return the values of an array that is reduced again and again; None if it is to be streamed.

    The first reduction of a stored array streams. From the second on, a small one is read and kept. What was computed
    of small arrays is kept at once.
    """
    cache = array.access.values
    if cache is None or server_of(array) is not None:
        return None
    values = cache.find(array)
    if values is None and array.nbytes <= REUSED_BYTES and cache.can_keep(array.nbytes):
        key = cache.key_of(array)
        key.uses += 1
        is_small = bool(array.steps) and array.nbytes <= min(options.block_bytes, _read_limit(array))
        values = read_and_keep(array) if key.uses > 1 or is_small else None
    return values


def _accumulate(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return NotImplemented, after saying that servers do not accumulate.

    NumPy then does it on the values.
    """
    if args and isinstance(args[0], LazyArray):
        report_not_on_server(args[0], func.__name__)
    return NotImplemented


for _function in (np.cumsum, np.nancumsum, np.cumprod, np.nancumprod):
    implements(_function)(partial(_accumulate, _function))


def report_not_on_server(array: LazyArray, what: str) -> None:
    """Warn that an operation does not run on the server, if one was given; raise if it is
    required.
    """
    active = server_of(array)
    if active is not None:
        name = formula(array)
        problem = UnsupportedError(f"servers do not compute {what}", hint="load() first", variable=name)
        active.fall_back(problem, name, *(stored.array for stored in stored_arrays(array)))


def _stream_reduction(array: LazyArray, method: str, skipna: bool, given: dict[str, Any]) -> Any:
    """Return the statistic; None if it does not stream."""
    axes = given["axis"]
    if not array.size or axes == () or isinstance(axes, list) or (axes is not None and not array.ndim):
        return None  # NumPy has rules of its own for these
    if (method.startswith("arg") and isinstance(axes, tuple)) or (method == "mean" and array.dtype.kind == "M"):
        return None
    along = normalise_axes(axes, array.ndim)
    axes = None if axes is None else along
    keepdims = bool(given["keepdims"])
    rules = ReductionRules(skipna, given["ddof"], None, given["q"])

    def take(bare: LazyArray, name: str, how: ReductionRules) -> npt.NDArray[Any]:
        return reduce_lazy_array(bare, ReductionQuery((name,), along, rules=how, keepdims=True))[name]

    if method in NEUTRAL_ELEMENTS and array.steps == (FillNull(NEUTRAL_ELEMENTS[method], array.array.dtype),):
        array, rules = without_steps(array), replace(rules, skipna=True)
    elif array.steps and given["dtype"] is None and array.array.dtype.kind in "fcmM":
        pattern = reduce_null_test(array, method, along, take)
        if pattern is None and array.access.active is not None:
            pattern = reduce_masked(array, method, along, rules, skipna, take)
        if pattern is not None:
            return _scalar(pattern if keepdims else pattern.squeeze(along))
    if _is_wider_float(array.dtype, given["dtype"]):
        array = array.astype(given["dtype"])
    if not can_stream(array.dtype, method) or not _is_same_type(array.dtype, given["dtype"]):
        return None
    if method.startswith("arg") and len(along) != 1 and array.steps and server_of(array) is not None:
        return None
    query = ReductionQuery((method,), axes, rules=rules, keepdims=keepdims)
    return _scalar(reduce_lazy_array(array, query)[method])


def _read_limit(array: LazyArray) -> int:
    return options.read_limit if array.access.read_limit is None else array.access.read_limit


def _scalar(found: Any) -> Any:
    return found[()] if isinstance(found, np.ndarray) and found.ndim == 0 else found


def _named_arguments(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments by name; None if some of them are not supported here."""
    given: dict[str, Any] = {"axis": None, "dtype": None, "out": None, "keepdims": False, "ddof": 0, "q": None}
    if method == "quantile":
        order = ["q", "axis", "out"]
    elif method in ("sum", "mean", "std", "var", "prod"):
        order = ["axis", "dtype", "out"]
    else:
        order = ["axis", "out"]
    if len(args) > 1 + len(order):
        return None
    kwargs = {name: value for name, value in kwargs.items() if value is not np._NoValue}
    if kwargs.get("method") == "linear":  # of quantile, the default
        del kwargs["method"]
    if kwargs.get("overwrite_input") is False:
        del kwargs["overwrite_input"]
    given |= dict(zip(order, args[1:], strict=False)) | kwargs
    known = {"axis", "dtype", "out", "keepdims", "ddof", "q"}
    return None if set(given) - known or given["out"] is not None else given


def _is_wider_float(dtype: np.dtype[Any], asked: Any) -> bool:
    """Return whether values are cast without loss to the floating-point type in which they are to be added."""
    wide = None if asked is None else np.dtype(asked)
    return wide is not None and wide.kind == "f" and dtype.kind in "biuf" and wide != dtype and np.can_cast(dtype, wide)


def _is_same_type(dtype: np.dtype[Any], asked: Any) -> bool:
    """Return whether the requested type is the type of the result anyway."""
    return asked is None or (np.dtype(asked) == dtype and dtype.kind == "f")
