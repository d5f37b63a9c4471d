"""What is one array of a partial? Four small functions.

`measure` it in some values, `join` it with that of other values, what it is of `nothing`, and what it becomes when the same values
are there `again` several times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.reducing.block_facts import Array, Part

__all__ = ["Field", "Partial", "joined", "summed"]

Partial = dict[str, Array]
"""The fields of some part of the data, by name."""
Join = Callable[[Partial, Partial, bool, "Array | None"], Array]


@dataclass(frozen=True, slots=True)
class Field:
    """One array of a partial."""

    measure: Callable[[Part], Array]
    join: Join
    """Of two partials; whether missing values are left out; an array that may be used for the result."""
    nothing: Callable[[np.dtype[Any], bool], Any]
    """The value for no data at all, which changes nothing that it is joined with; of which type."""
    repeat: Callable[[Array, Any], Array] = lambda found, times: found
    """The value when every value is there so many times."""


def joined(ufunc: np.ufunc, one: Array, other: Array, out: Array | None) -> Array:
    """Two arrays under a ufunc, into one of them where it can be."""
    if one.size > 1 and not any(one.strides) and not any(other.strides) and one.shape == other.shape:
        # The same number everywhere, as a count is while nothing is missing: it stays one number.
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


def summed(name: str, measure: Callable[[Part], Array], nothing: Callable[[np.dtype[Any], bool], Any]) -> Field:
    """A field that is a sum: of two parts the sum of both, of values that repeat so many times as much."""

    def join(one: Partial, other: Partial, skipna: bool, out: Array | None) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            return joined(np.add, one[name], other[name], out)

    def again(found: Array, times: Any) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(found * times, found.dtype)

    return Field(measure, join, nothing, again)
