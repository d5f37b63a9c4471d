"""Element-wise arithmetic on virtual arrays: the operations of `elementwise`, registered with `dispatch`.

An operation reads nothing. It becomes a step of its largest array (`Apply`), and the other arrays
are arguments of the step: virtual ones as they are, those in memory as copies, broadcast ones
without their repetitions. Only what NumPy would refuse raises at once. What does not fit (objects,
large arrays in memory, arrays of other libraries, trees of very many operations) is computed on the
values, as for any other function.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from insitu.lazy_array.dispatch import IMPLEMENTATIONS, implements
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.steps import ITSELF, Apply, Errors, IsNull, Not, current_errors
from insitu.lazy_array.structural_moves import Broadcast
from insitu.lazy_array.windows import TakeWindows, each_part, operands_of
from insitu.model.elementwise import UFUNCS, Members, result_type

__all__ = ["combine"]

CONSTANT_BYTES = 64 << 20
"""Bytes of an array in memory that an expression takes along."""
MAX_OPERATIONS = 200
"""Operations of an expression: with more, the values are computed."""
MAX_NESTING = 24
"""Operands within operands: each level takes some ten calls within each other, and Python allows 1000."""
KINDS = "biufcmM"


def combine(name: str, *inputs: Any, errors: Errors | None = None) -> Any:
    """Return an operation of virtual arrays and others as a virtual array; NotImplemented if that is
    not possible.

    Parameters
    ----------
    name
        Of the operation.
    inputs
        Its arguments: virtual arrays, arrays in memory, numbers; at least one is virtual.
    errors
        How NumPy is to treat floating-point errors; by default as it does now.
    """
    prepared = [_prepare(given) for given in inputs]
    if any(given is NotImplemented for given in prepared):
        return NotImplemented
    virtual = [given for given in prepared if isinstance(given, LazyArray)]
    # Of arrays of one size the one with most steps goes on: a long sum stays a list of steps.
    main = max(virtual, key=lambda array: (array.size, len(array.steps)))
    if _count_operations(virtual) >= MAX_OPERATIONS:
        return NotImplemented
    levels: dict[int, int] = {}
    if max((_count_levels(array, levels) for array in virtual if array is not main), default=0) >= MAX_NESTING:
        return NotImplemented
    types = [given.dtype if isinstance(given, (LazyArray, np.ndarray)) else given for given in prepared]
    dtype = result_type(name, types)
    if dtype.kind not in KINDS:
        return NotImplemented
    shape = np.broadcast_shapes(*(given.shape for given in inputs if isinstance(given, (LazyArray, np.ndarray))))
    fit = Broadcast(shape)
    arguments = tuple(ITSELF if given is main else fit.argument(given) for given in prepared)
    return main.broadcast_to(shape).then(Apply(name, arguments, dtype, current_errors() if errors is None else errors))


def _prepare(given: Any) -> Any:
    """Return an argument as it is kept; NotImplemented if it does not fit into an expression."""
    if isinstance(given, LazyArray):
        return given if given.dtype.kind in KINDS else NotImplemented
    if given is None or isinstance(given, (bool, int, float, complex, Members)):
        return given
    if isinstance(given, np.generic):
        return given if given.dtype.kind in KINDS else NotImplemented
    if type(given) is not np.ndarray or given.dtype.kind not in KINDS:
        return NotImplemented
    shown = given[tuple(slice(None) if stride else slice(0, 1) for stride in given.strides)]
    return NotImplemented if shown.nbytes > CONSTANT_BYTES else shown.copy()


def _count_operations(arrays: list[LazyArray]) -> int:
    """Return how many operations some expressions have together; one that is used several times counts once."""
    parts = (part for array in arrays for part in each_part(array))
    return len({id(step) for part in parts for step in part.steps if isinstance(step, (Apply, TakeWindows))})


def _count_levels(array: Any, known: dict[int, int]) -> int:
    """Return how many operands of an expression lie within each other; `known`: of those seen before."""
    for step in array.steps:
        if id(step) not in known:
            known[id(step)] = max((_count_levels(operand, known) for operand in operands_of(step)), default=0)
    return 1 + max((known[id(step)] for step in array.steps), default=0)


@implements(np.isnan)
def _is_nan(array: LazyArray) -> Any:
    return array.then(IsNull()) if array.dtype.kind in "fcmM" else NotImplemented


@implements(np.isnat)
def _is_nat(array: LazyArray) -> Any:
    return array.then(IsNull()) if array.dtype.kind in "mM" else NotImplemented


@implements(np.logical_not, np.invert)
def _not(array: LazyArray) -> Any:
    return array.then(Not()) if array.dtype == bool else NotImplemented


def _combine_or_special(ufunc: np.ufunc, *inputs: Any) -> Any:
    """Return what a more special implementation makes of a ufunc, or an expression."""
    special = _SPECIAL.get(ufunc)
    found = NotImplemented if special is None else special(*inputs)
    return combine(UFUNCS[ufunc], *inputs) if found is NotImplemented else found


_SPECIAL = {ufunc: IMPLEMENTATIONS[ufunc] for ufunc in UFUNCS if ufunc in IMPLEMENTATIONS}
"""Null tests and their negation, which reductions recognise."""
for _ufunc in UFUNCS:
    implements(_ufunc)(partial(_combine_or_special, _ufunc))


@implements(np.clip)
def _clip(a: Any, a_min: Any = np._NoValue, a_max: Any = np._NoValue, out: Any = None, **kwargs: Any) -> Any:
    low = kwargs.pop("min", None if a_min is np._NoValue else a_min)
    high = kwargs.pop("max", None if a_max is np._NoValue else a_max)
    if out is not None or kwargs or not isinstance(a, LazyArray):
        return NotImplemented
    return combine("clip", a, low, high)


@implements(np.real)
def _real(val: LazyArray) -> Any:
    return _as_view(combine("real", val)) if val.dtype.kind == "c" else val


@implements(np.imag)
def _imag(val: LazyArray) -> Any:
    if val.dtype.kind != "c":
        return np.broadcast_to(np.zeros((), val.dtype), val.shape)
    return _as_view(combine("imag", val))


def _as_view(part: Any) -> Any:
    """Return a part of complex numbers, which is a view in NumPy."""
    if isinstance(part, LazyArray):
        part.is_view = True
    return part


@implements(np.isin)
def _isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, **kwargs: Any) -> Any:
    if not isinstance(element, LazyArray) or isinstance(test_elements, LazyArray) or kwargs:
        return NotImplemented
    members = np.array(test_elements)
    if members.nbytes > CONSTANT_BYTES or members.dtype.kind not in KINDS:
        return NotImplemented
    kinds = {element.dtype.kind, members.dtype.kind}
    if len(kinds) > 1 and kinds & set("mM"):  # dates among numbers: NumPy compares few members, refuses many
        return NotImplemented
    found = combine("is_in", element, Members(members))
    return ~found if invert and found is not NotImplemented else found
