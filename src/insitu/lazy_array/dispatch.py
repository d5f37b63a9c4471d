"""Dispatch of NumPy's functions and ufuncs on virtual arrays: registry and fallback.

The modules in `MODULES` register what they implement with `implements`. They are imported for the
first function that is called: to open and read an array takes none of them. An implementation that
cannot do what a call asks for returns NotImplemented. Then, and for every function that is not
registered, NumPy computes on the values: read if they are few, as a Dask array if they are many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from insitu.forking import import_before_fork
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.load_values import refuse_write, values_or_dask

__all__ = ["call_function", "call_ufunc", "compute_in_place", "implements", "own_result", "to_computable"]

Function = Callable[..., Any]
MODULES = ("numpy_operations", "numpy_functions", "numpy_reductions", "einsum")
IMPLEMENTATIONS: dict[Any, Function] = {}
"""NumPy's function or ufunc: what does its work on virtual arrays."""
_ready = False
"""Whether the modules are imported."""
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
    implementation = (IMPLEMENTATIONS if _ready else _import_implementations()).get(func)
    if implementation is not None:
        result = implementation(*args, **kwargs)
        if result is not NotImplemented:
            return result
    if _has_virtual_array(kwargs.get("out")):
        raise refuse_write(f"`out` of {func.__name__} is a virtual array")
    inputs = to_computable(args)
    try:
        result = func(*inputs, **{name: to_computable(value) for name, value in kwargs.items()})
    except ValueError as problem:
        if "read-only" in str(problem):
            raise refuse_write(f"{func.__name__} writes to a virtual array") from None
        raise
    return own_result(result, inputs)


def _import_implementations() -> dict[Any, Function]:
    """Return what is registered, when all modules that register something are imported."""
    global _ready
    for name in MODULES:
        import_before_fork(f"insitu.lazy_array.{name}")
    _ready = True
    return IMPLEMENTATIONS


def own_result(result: Any, inputs: tuple[Any, ...]) -> Any:
    """Return the result of a function of values: a copy if it shows them, for the caller may write to it, but not
    to kept values.
    """
    is_view = isinstance(result, np.ndarray) and not result.flags.writeable and _is_view(result, inputs)
    return result.copy() if is_view else result


def _has_virtual_array(out: Any) -> bool:
    return any(isinstance(one, DeferredValues) for one in (out if isinstance(out, tuple) else (out,)))


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
    if _has_virtual_array(kwargs.get("out")) or (method == "at" and isinstance(inputs[0], DeferredValues)):
        raise refuse_write(f"{ufunc.__name__} writes to a virtual array")
    if method == "reduce" and len(inputs) == 1:
        function = UFUNC_REDUCTIONS.get(ufunc)
        if function is not None and not set(kwargs) - {"axis", "dtype", "keepdims"}:
            return call_function(function, inputs, {"axis": 0, **kwargs})
    values = {name: to_computable(value) for name, value in kwargs.items()}
    return getattr(ufunc, method)(*to_computable(inputs), **values)


def compute_in_place(ufunc: np.ufunc, array: DeferredValues, other: Any) -> Any:
    """Return the result of an operator such as `+=`, in the type of the array; the caller assigns it.

    Encoders do this on their way to write: it stays virtual, so that writing streams.
    """
    shape = (1, 1) if ufunc.signature else (0,)
    example = np.empty(shape, array.dtype)
    beside = np.empty(shape, other.dtype) if hasattr(other, "dtype") and np.ndim(other) else other
    ufunc(example, beside, out=example)  # raises what NumPy raises if the type cannot be kept
    result = ufunc(array, other)
    if result.shape != array.shape:
        raise ValueError(f"the result of {ufunc.__name__} has shape {result.shape}, which is not {array.shape}")
    return result.astype(array.dtype)


def to_computable(value: Any) -> Any:
    """Return an argument with values (or Dask arrays) in place of the virtual arrays in it."""
    if isinstance(value, DeferredValues):
        values = values_or_dask(value)
        if isinstance(values, np.ndarray):
            values = values.view()
            values.flags.writeable = False  # what is written to them would vanish
        return values
    if isinstance(value, (list, tuple)):
        return type(value)(to_computable(part) for part in value)
    return value
