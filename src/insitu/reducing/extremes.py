"""Fields of a partial that are one of the values (min, max, any, all) or its first position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from insitu.reducing.block_facts import Array, ValueBlock
from insitu.reducing.partial_fields import Partial, PartialField, apply_ufunc

__all__ = ["EXTREMES", "NO_POSITION"]

NO_POSITION = np.iinfo(np.int64).max
"""Position of the extreme of no values: larger than any other."""


def _extreme_field(
    name: str, propagating: np.ufunc, skipping: np.ufunc, worst: Callable[[np.dtype[Any]], Any]
) -> PartialField:
    def measure(part: ValueBlock) -> Array:
        return part.reduce(skipping if part.skipna else propagating)

    def join(one: Partial, other: Partial, skipna: bool, out: Array | None) -> Array:
        return apply_ufunc(skipping if skipna else propagating, one[name], other[name], out)

    def neutral(dtype: np.dtype[Any], skipna: bool) -> Any:
        if skipna and dtype.kind in "fcmM":  # what the skipping ufunc ignores
            return np.array("NaT", dtype)[()] if dtype.kind in "mM" else dtype.type(np.nan)
        return worst(dtype)

    return PartialField(measure, join, neutral)


def _largest(dtype: np.dtype[Any]) -> Any:
    """Return the largest value of a type."""
    if dtype.kind == "b":
        return np.True_
    if dtype.kind == "c":
        return dtype.type(complex(np.inf, np.inf))
    if dtype.kind == "f":
        return dtype.type(np.inf)
    return np.array(np.iinfo(np.int64).max).view(dtype)[()] if dtype.kind in "mM" else dtype.type(np.iinfo(dtype).max)


def _smallest(dtype: np.dtype[Any]) -> Any:
    """Return the smallest value of a type."""
    if dtype.kind == "b":
        return np.False_
    if dtype.kind == "c":
        return dtype.type(complex(-np.inf, -np.inf))
    if dtype.kind == "f":
        return dtype.type(-np.inf)
    # The least integer is NaT.
    return (
        np.array(np.iinfo(np.int64).min + 1).view(dtype)[()] if dtype.kind in "mM" else dtype.type(np.iinfo(dtype).min)
    )


def _not_a_time(dtype: np.dtype[Any]) -> Any:
    return np.array("NaT", dtype)[()]


def _position_fields(
    name: str, find: Callable[..., Any], better: np.ufunc, worst: Callable[[np.dtype[Any]], Any]
) -> dict[str, PartialField]:
    """Return two fields: the extreme value, and its first position.

    Without `skipna`, a missing value is more extreme than any other, as in NumPy; for times always.
    """

    def find_extremes(part: ValueBlock) -> tuple[Array, Array]:
        if part.positions is None:
            raise ValueError(f"{name} needs the positions of the values")
        values = part.rows()
        skipped = None if part.skipped is None or values.dtype.kind in "mM" else part.rows(part.skipped)
        if skipped is None:
            index = find(values, axis=-1)
        else:
            index = find(part.rows(part.fill_skipped(worst(values.dtype))), axis=-1)
            # The extreme equals the placeholder of missing values: take the first that is not
            # missing.
            is_skipped = np.take_along_axis(skipped, index[..., None], -1)[..., 0]
            index = np.where(is_skipped, np.argmin(skipped, axis=-1), index)
        value = np.take_along_axis(values, np.asarray(index)[..., None], -1)[..., 0]
        position = np.zeros(np.shape(index), np.int64)
        lengths = tuple(part.values.shape[axis] for axis in part.axes)
        found = np.unravel_index(index, lengths) if lengths else ()
        for along, places in zip(found, part.positions, strict=True):
            position += places[along]
        return value.reshape(part.shape), position.reshape(part.shape)

    def measure_both(part: ValueBlock) -> tuple[Array, Array]:
        found: dict[str, tuple[Array, Array]] = part.__dict__.setdefault("_where", {})
        if name not in found:
            found[name] = find_extremes(part)
        return found[name]

    def is_better(one: Partial, other: Partial, skipna: bool) -> Array:
        """Return where the extreme is that of the other partial."""
        a, b = one[f"{name}_value"], other[f"{name}_value"]
        earlier = other[name] < one[name]
        with np.errstate(invalid="ignore"):
            beats = better(b, a) | ((b == a) & earlier)
        if a.dtype.kind not in "fcmM":
            return np.asarray(beats)
        first_missing, other_missing = (
            (np.isnat(a), np.isnat(b)) if a.dtype.kind in "mM" else (np.isnan(a), np.isnan(b))
        )
        is_empty = one[name] == NO_POSITION
        if skipna and a.dtype.kind not in "mM":
            return np.asarray(
                np.where(first_missing | other_missing, first_missing & (~other_missing | is_empty), beats)
            )
        return np.asarray(np.where(first_missing | other_missing, other_missing & (~first_missing | earlier), beats))

    def join_value(one: Partial, other: Partial, skipna: bool, out: Array | None) -> Array:
        return np.where(is_better(one, other, skipna), other[f"{name}_value"], one[f"{name}_value"])

    def join_position(one: Partial, other: Partial, skipna: bool, out: Array | None) -> Array:
        return np.where(is_better(one, other, skipna), other[name], one[name])

    def neutral_value(dtype: np.dtype[Any], skipna: bool) -> Any:
        return dtype.type(np.nan) if skipna and dtype.kind in "fc" else worst(dtype)

    return {
        f"{name}_value": PartialField(lambda part: measure_both(part)[0], join_value, neutral_value),
        name: PartialField(
            lambda part: measure_both(part)[1],
            join_position,
            lambda dtype, skipna: np.int64(NO_POSITION),
            is_position=True,
        ),
    }


EXTREMES: Mapping[str, PartialField] = {
    "earliest": _extreme_field("earliest", np.fmin, np.fmin, _not_a_time),
    "latest": _extreme_field("latest", np.fmax, np.fmax, _not_a_time),
    "min": _extreme_field("min", np.minimum, np.fmin, _largest),
    "max": _extreme_field("max", np.maximum, np.fmax, _smallest),
    "any": PartialField(
        lambda part: np.asarray(np.any(part.values, axis=part.axes, keepdims=True)),
        lambda one, other, skipna, out: apply_ufunc(np.logical_or, one["any"], other["any"], out),
        lambda dtype, skipna: np.False_,
    ),
    "all": PartialField(
        lambda part: np.asarray(np.all(part.values, axis=part.axes, keepdims=True)),
        lambda one, other, skipna, out: apply_ufunc(np.logical_and, one["all"], other["all"], out),
        lambda dtype, skipna: np.True_,
    ),
    **_position_fields("argmin", np.argmin, np.less, _largest),
    **_position_fields("argmax", np.argmax, np.greater, _smallest),
}
"""Fields that are one of the values, or its position, by name."""
