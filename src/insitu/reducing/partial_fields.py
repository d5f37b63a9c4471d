"""A field, one of the named arrays of a partial, as four small functions.

A *partial* is what must be known about some values so that it can be merged with that of other
values: a mapping of named arrays, its fields. Each has the shape of the values with length 1 for
the reduced axes. A partial can be passed between threads, sent over a network, or saved.

A field can be measured (`measure`), merged with that of other values (`join`), it has a value for
no data (`neutral`), and a value for data that occurs several times (`repeat`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.reducing.block_facts import Array, ValueBlock

__all__ = ["Partial", "PartialField", "apply_ufunc", "merge_into", "sum_field"]

Partial = dict[str, Array]
"""The fields of some values, by name."""
JoinFunction = Callable[[Partial, Partial, bool, "Array | None"], Array]


@dataclass(frozen=True, slots=True)
class PartialField:
    """One named array of a partial."""

    measure: Callable[[ValueBlock], Array]
    join: JoinFunction
    """Arguments: two partials, whether missing values are left out,
    an array that may be overwritten.
    """
    neutral: Callable[[np.dtype[Any], bool], Any]
    """Return the neutral value, that of no data,
    for a type and for whether missing values are left out.
    """
    repeat: Callable[[Array, Any], Array] = lambda found, times: found
    """Return the value for data of which each value occurs so many times."""
    is_position: bool = False
    """Whether it holds positions in the array."""
    is_joined_first: bool = False
    """Whether `join` needs other fields, before joining overwrites them."""


def merge_into(
    total: Partial, place: tuple[Any, ...], partial: Partial, merge: Callable[[Partial, Partial], Partial]
) -> None:
    """Merge a partial into a place of a larger one."""
    before = {name: found[place] for name, found in total.items()}
    for name, merged in merge(before, partial).items():
        total[name][place] = merged


def apply_ufunc(ufunc: np.ufunc, one: Array, other: Array, out: Array | None) -> Array:
    """Apply a ufunc to two arrays, into `out` if possible."""
    if one.size > 1 and not any(one.strides) and not any(other.strides) and one.shape == other.shape:
        # The same number everywhere, as for counts without missing values: keep it one number.
        first = (0,) * one.ndim
        return np.broadcast_to(ufunc(one[first], other[first]), one.shape)
    fits = (
        out is not None
        and out.flags.writeable
        and all(out.strides)
        and other.shape == out.shape
        and other.dtype == out.dtype
    )
    return np.asarray(ufunc(one, other, out=out if fits else None))


def sum_field(
    name: str, measure: Callable[[ValueBlock], Array], neutral: Callable[[np.dtype[Any], bool], Any]
) -> PartialField:
    """Return a field that is a sum: joined by adding, repeated by multiplying."""

    def join(one: Partial, other: Partial, skipna: bool, out: Array | None) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            return apply_ufunc(np.add, one[name], other[name], out)

    def again(found: Array, times: Any) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(found * times, found.dtype)

    return PartialField(measure, join, neutral, again)
