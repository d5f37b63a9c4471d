"""Dispatch of NumPy's functions and ufuncs on virtual arrays: registry and fallback.

`numpy_functions`, `reductions` and `einsum` register what they implement with `implements`; the
package imports them. An implementation that cannot do what a call asks for returns NotImplemented.
Then, and for every function that is not registered, NumPy computes on the values: read if they are
few, as a Dask array if they are many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.load_values import values_or_dask
from insitu.lazy_array.steps import CombineWithNumber

__all__ = ["call_function", "call_ufunc", "implements", "to_computable"]

Function = Callable[..., Any]
IMPLEMENTATIONS: dict[Any, Function] = {}
"""NumPy's function or ufunc: what does its work on virtual arrays."""
UFUNC_REDUCTIONS: dict[Any, Function] = {np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min}
"""Which function does what `ufunc.reduce` does."""


def implements(*functions: Function) -> Callable[[Function], Function]:
    """Register the decorated function as the implementation of these functions of NumPy."""

    def register(implementation: Function) -> Function:
        IMPLEMENTATIONS.update(dict.fromkeys(functions, implementation))
        return implementation

    return register


def call_function(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call one of NumPy's functions."""
    implementation = IMPLEMENTATIONS.get(func)
    if implementation is not None:
        result = implementation(*args, **kwargs)
        if result is not NotImplemented:
            return result
    inputs = to_computable(args)
    result = func(*inputs, **{name: to_computable(value) for name, value in kwargs.items()})
    if isinstance(result, np.ndarray) and not result.flags.writeable and _is_view(result, inputs):
        return result.copy()  # the caller may write to it, but not to kept values
    return result


def _is_view(result: np.ndarray[Any, Any], inputs: tuple[Any, ...]) -> bool:
    """Return whether a result shows memory of an input. Windows over one, which show it many times,
    are left alone: copied they would not fit into memory.
    """
    return any(
        isinstance(given, np.ndarray) and result.nbytes <= given.nbytes and np.may_share_memory(result, given)
        for given in inputs
    )


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of one of NumPy's element-wise functions."""
    if method == "__call__" and not kwargs:
        return call_function(ufunc, inputs, kwargs)
    if method == "__call__" and set(kwargs) == {"out"} and len(inputs) == 2:
        # In place: an encoder on its way to write. Kept as a step, so that writing streams; the
        # caller assigns the result.
        (array, number), (target,) = inputs, kwargs["out"]
        if target is array and np.ndim(number) == 0 and array.dtype.kind in "fc":
            return array.then(CombineWithNumber(ufunc, number))
        if isinstance(target, DeferredValues):
            return _compute_in_place(ufunc, inputs, target)  # the caller assigns the result
    if method == "reduce" and len(inputs) == 1:
        function = UFUNC_REDUCTIONS.get(ufunc)
        if function is not None and not set(kwargs) - {"axis", "dtype", "keepdims"}:
            return call_function(function, inputs, {"axis": 0, **kwargs})
    values = {name: to_computable(value) for name, value in kwargs.items()}
    return getattr(ufunc, method)(*to_computable(inputs), **values)


def _compute_in_place(ufunc: np.ufunc, inputs: tuple[Any, ...], target: Any) -> Any:
    """Return the result of an operation in the type of the array that it would be written to."""
    result = call_function(ufunc, inputs, {})
    if result.shape != target.shape:
        raise ValueError(f"the result of {ufunc.__name__} has shape {result.shape}, which is not {target.shape}")
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise TypeError(f"the result of {ufunc.__name__} is {result.dtype}, which cannot be cast to {target.dtype}")
    return result.astype(target.dtype)


def to_computable(value: Any) -> Any:
    """Return an argument with values (or Dask arrays) in place of the virtual arrays in it."""
    if isinstance(value, DeferredValues):
        return values_or_dask(value)
    if isinstance(value, (list, tuple)):
        return type(value)(to_computable(part) for part in value)
    return value
