"""NumPy's reductions on virtual arrays, streamed here or run on a server next to the data.

xarray asks for `nanmean`, `nanmax`, ... by name, and for sums and counts through small patterns:
`sum(where(isnan(a), 0, a))` is a sum that skips missing values, `sum(~isnan(a))` a count. They are
recognised here; the values never exist as a whole. Every statistic is
computed by `reduce_lazy_array`, which also asks the server.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.answer import answer
from insitu.active.remote_expression import server_of
from insitu.errors import UnsupportedError
from insitu.expressions.element_operations import find_filled, find_null_tested, find_operand
from insitu.expressions.evaluate import find_values, read_and_keep, root_of
from insitu.expressions.formula_text import formula
from insitu.expressions.nodes import Expression, is_stored, stored_arrays
from insitu.lazy_array.dispatch import implements
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.windowing import reduce_windows
from insitu.model import normalise_axes
from insitu.process_options import options
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reductions import ReductionRules
from insitu.reducing.statistics import STATISTICS

__all__ = ["can_stream", "find_tested", "reduce_lazy_array", "report_not_on_server", "values_of_used_array"]

NUMPY_REDUCTIONS: dict[Callable[..., Any], tuple[str, bool]] = {
    getattr(np, name): (statistic.name, name.startswith("nan"))
    for statistic in STATISTICS.values()
    for name in statistic.numpy
}
"""NumPy's function: the method, and whether missing values are left out."""

REUSED_BYTES = 64 << 20
"""Arrays up to this size are kept when they are reduced for the second time."""
TakeStatistic = Callable[[LazyArray, str, ReductionRules], npt.NDArray[Any]]
"""Takes a statistic of an array, with its reduced axes in place."""


def can_stream(dtype: np.dtype[Any], method: str) -> bool:
    """Return whether a statistic of values of this type is taken piece by piece."""
    statistic = STATISTICS[method]
    return dtype.kind in ("biuf" if statistic.needs_all_values else statistic.kinds.replace("S", "").replace("U", ""))


def reduce_lazy_array(array: LazyArray, query: ReductionQuery) -> dict[str, npt.NDArray[Any]]:
    """Return several statistics of an array in one pass, computed here or on the server.

    Parameters
    ----------
    array
        What to reduce.
    query
        Statistics of the whole array for which `can_stream` is true.
    """
    return answer(array.node, query, values_of_used_array(array))


def _reduce(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a reduction; NotImplemented if the call does not stream."""
    if not args or not isinstance(args[0], LazyArray):
        return NotImplemented
    method, skipna = NUMPY_REDUCTIONS[func]
    given = _named_arguments(func, args, kwargs)
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

    The first reduction of a stored array streams. From the second on, a small one is read and kept, and so are the
    parts of a small one (groups, periods, maps): a group of 500 values is read in 0.1 ms and streamed in 3 ms. What
    was computed of small arrays is kept at once.
    """
    cache = array.context.values
    if cache is None or server_of(array.node) is not None:
        return None
    at_hand = array.find_at_hand()
    values = find_values(array.node) if at_hand is None else at_hand
    if values is None and array.nbytes <= REUSED_BYTES and cache.can_keep(array.nbytes):
        root = root_of(array.node)
        key = (root if root.nbytes <= REUSED_BYTES and root.context.values is not None else array.node).make_key()
        key.uses += 1
        if key.uses == 1 and root is not array.node:
            key.bytes_read += array.nbytes
        is_small = not array.is_stored and array.nbytes <= min(options.block_bytes, array.read_limit)
        values = read_and_keep(array.node) if key.uses > 1 or is_small else None
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
    active = server_of(array.node)
    if active is not None:
        name = formula(array.node)
        problem = UnsupportedError(f"servers do not compute {what}", hint="load() first", variable=name)
        active.fall_back(problem, name, *(stored.array for stored in stored_arrays(array.node)))


def _stream_reduction(array: LazyArray, method: str, skipna: bool, given: dict[str, Any]) -> Any:
    """Return the statistic; None if it does not stream."""
    axes = given["axis"]
    if not array.size or axes == () or isinstance(axes, list) or (axes is not None and not array.ndim):
        return None  # NumPy has rules of its own for these
    statistic = STATISTICS[method]
    if (statistic.is_position and isinstance(axes, tuple)) or (method == "mean" and array.dtype.kind in "mM"):
        return None  # NumPy rounds means of durations in its own way, and has none of dates
    along = normalise_axes(axes, array.ndim)
    axes = None if axes is None else along
    keepdims = bool(given["keepdims"])
    rules = ReductionRules(skipna, given["ddof"], None, given["q"])

    def take(bare: LazyArray, name: str, how: ReductionRules) -> npt.NDArray[Any]:
        return reduce_lazy_array(bare, ReductionQuery((name,), along, rules=how, keepdims=True))[name]

    present = _find_present(array.node, statistic.neutral_element)
    if present is not None:
        array, rules = LazyArray(present), replace(rules, skipna=True)
    elif not array.is_stored and given["dtype"] is None:
        pattern = _reduce_null_test(array, method, along, take)
        if pattern is not None:
            return _scalar(pattern if keepdims else pattern.squeeze(along))
    if _is_wider_float(array.dtype, given["dtype"]):
        array = array.astype(given["dtype"])
    if not can_stream(array.dtype, method) or not _is_same_type(array.dtype, given["dtype"]):
        return None
    if statistic.is_position and len(along) != 1 and not array.is_stored and server_of(array.node) is not None:
        return None
    query = ReductionQuery((method,), axes, rules=rules, keepdims=keepdims)
    return _scalar(reduce_lazy_array(array, query)[method])


def _find_present(expression: Expression, neutral: int | None) -> Expression | None:
    """Return the stored array of which a statistic leaves missing values out by filling them with what does not count;
    None if the expression is nothing of that kind.
    """
    filled = None if neutral is None else find_filled(expression)
    if filled is None or not is_stored(filled[0]) or filled[0].dtype != expression.dtype or filled[1] != neutral:
        return None
    return filled[0]


def find_tested(expression: Expression) -> tuple[Expression | None, bool]:
    """Return the expression of which is told which values are missing or, negated, which are there; and whether it is
    negated.
    """
    negated = find_operand(expression, "logical_not", "invert")
    return (find_null_tested(expression), False) if negated is None else (find_null_tested(negated), True)


def _reduce_null_test(
    array: LazyArray, method: str, axes: tuple[int, ...], take: TakeStatistic
) -> npt.NDArray[Any] | None:
    """Return a statistic of `isnan(a)` or `~isnan(a)` of a stored array; None if it is not one of those."""
    tested, counting = find_tested(array.node)
    if tested is None or not is_stored(tested) or tested.dtype.kind not in "fcmM":
        return None
    size = math.prod(array.shape[axis] for axis in axes)
    count = take(LazyArray(tested), "count", ReductionRules(True))
    many = count if counting else size - count
    if method == "mean":
        return many / size
    return {"sum": many, "any": many > 0, "all": many == size}.get(method)


def _scalar(found: Any) -> Any:
    return found[()] if isinstance(found, np.ndarray) and found.ndim == 0 else found


@cache
def _positional_arguments(func: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments after the array that may be given without a name, up to `out`."""
    names = list(signature(func).parameters)
    return names[1 : names.index("out") + 1]


def _named_arguments(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments by name; None if some of them are not supported here."""
    given: dict[str, Any] = {"axis": None, "dtype": None, "out": None, "keepdims": False, "ddof": 0, "q": None}
    order = _positional_arguments(func)
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


def _is_wider_float(dtype: np.dtype[Any], requested: Any) -> bool:
    """Return whether values are cast without loss to the floating-point type in which they are to be added."""
    wide = None if requested is None else np.dtype(requested)
    return wide is not None and wide.kind == "f" and dtype.kind in "biuf" and wide != dtype and np.can_cast(dtype, wide)


def _is_same_type(dtype: np.dtype[Any], requested: Any) -> bool:
    """Return whether the requested type is the type of the result anyway."""
    return requested is None or (np.dtype(requested) == dtype and dtype.kind == "f")
