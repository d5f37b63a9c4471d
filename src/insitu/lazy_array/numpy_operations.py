"""Element-wise arithmetic on virtual arrays: the operations of `elementwise`, registered with `dispatch`.

An operation reads nothing: see `insitu.expressions.element_operations`. What does not fit into an expression is
computed on the values, as for any other function.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from insitu.expressions import element_operations
from insitu.expressions.element_operations import CONSTANT_BYTES, KINDS
from insitu.lazy_array.at_once import call_at_once
from insitu.lazy_array.dispatch import implements
from insitu.lazy_array.duck_array import LazyArray
from insitu.model.elementwise import OPERATIONS, UFUNCS, Members

__all__ = ["combine"]


def combine(name: str, *inputs: Any) -> Any:
    """Return an operation of virtual arrays and others as a virtual array; NotImplemented if that is
    not possible.

    Parameters
    ----------
    name
        Of the operation.
    inputs
        Its arguments: virtual arrays, arrays in memory, numbers; at least one is virtual.
    """
    found = call_at_once(OPERATIONS[name], partial(_combine_nodes, name), inputs)
    return _combine_nodes(name, *inputs) if found is None else found


def _combine_nodes(name: str, *inputs: Any) -> Any:
    nodes = (given.node if isinstance(given, LazyArray) else given for given in inputs)
    made = element_operations.combine(name, *nodes)
    return NotImplemented if made is None else LazyArray(made)


for _ufunc in UFUNCS:
    implements(_ufunc)(partial(combine, UFUNCS[_ufunc]))


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
