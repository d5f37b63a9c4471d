"""Merging of attributes and encodings by xarray's `combine_attrs` rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from insitu.errors import CombineError
from insitu.model.cf_attributes import PACKING, SCALING
from insitu.model.time_units import UNITS, split_units

__all__ = ["common_items", "is_equivalent", "merge_attributes"]

Attributes = Mapping[str, Any]


def merge_attributes(parts: Sequence[Attributes], how: str | Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Return the merged attributes of several parts, by one of xarray's rules."""
    if not parts:
        return {}
    if callable(how):
        return dict(how([dict(part) for part in parts], context=None))
    if how == "drop":
        return {}
    if how == "override":
        return dict(parts[0])
    if how == "identical":
        for part in parts[1:]:
            if not _is_same(parts[0], part):
                raise CombineError(
                    f"combine_attrs='identical', but attrs differ. First is {dict(parts[0])}, other is {dict(part)}."
                )
        return dict(parts[0])
    result = dict(parts[0])
    dropped: set[str] = set()
    for part in _without_repeats(parts[1:]):
        for key, value in part.items():
            if key in dropped:
                continue
            if key not in result:
                result[key] = value
            elif not is_equivalent(result[key], value):
                if how == "no_conflicts":
                    raise CombineError(
                        f"combine_attrs='no_conflicts', but some values are not the same: {key!r} is {result[key]!r} "
                        f"and {value!r}"
                    )
                del result[key]
                dropped.add(key)
    return result


def common_items(parts: Sequence[Attributes]) -> dict[str, Any]:
    """Return the items that all parts have with the same value.

    An encoding that is wrong for some files must not be used for writing.
    """
    result = dict(parts[0])
    for part in _without_repeats(parts[1:]):
        for key in [key for key, value in result.items() if key not in part or not is_equivalent(value, part[key])]:
            del result[key]
    if any(key not in result for part in parts for key in SCALING if key in part):
        # Packed integers without their scale would be rounded values when somebody writes them: all
        # of a packing, or none.
        for key in (*PACKING, "dtype"):
            result.pop(key, None)
    if "units" not in result and any("units" in part for part in parts):
        # xarray writes times block by block only with both units and type, or with neither; and it
        # gives the units of times to their bounds.
        result.pop("dtype", None)
        result |= _units_for_all(parts)
    return result


def _units_for_all(parts: Sequence[Attributes]) -> dict[str, Any]:
    """Return time units and a type that hold the times of all parts, from the first one's date on.

    None are returned if some part has no units, or ones that are no times.
    """
    texts = list(dict.fromkeys(part.get("units") for part in parts))
    split = [split_units(text) if " since " in text else (text, "") for text in texts if isinstance(text, str)]
    steps = {UNITS.get(word if word.endswith("s") else f"{word}s") for word, _ in split}
    if len(split) < len(texts) or None in steps or len({bool(date) for _, date in split}) > 1:
        return {}
    if any(np.dtype(part.get("dtype", "f8")).kind == "f" for part in parts):
        return {"units": texts[0], "dtype": np.dtype("f8")}
    if not all(_MIDNIGHT.fullmatch(date) for _, date in split):
        steps.add("s")
    word = next(word for word, step in UNITS.items() if step in steps)  # the finest comes first
    return {"units": f"{word} since {split[0][1]}" if split[0][1] else word, "dtype": np.dtype("i8")}


_MIDNIGHT = re.compile(r"(-?\d+-\d+-\d+([ T]0?0:0?0(:0?0(\.0*)?)?)?)?")


def _without_repeats(parts: Sequence[Attributes]) -> list[Attributes]:
    """Return the parts without those that are the same object as the one before.

    Files that are alike share theirs.
    """
    return [part for i, part in enumerate(parts) if not i or part is not parts[i - 1]]


def _is_same(one: Attributes, other: Attributes) -> bool:
    return one is other or (one.keys() == other.keys() and all(is_equivalent(one[key], other[key]) for key in one))


def is_equivalent(one: Any, other: Any) -> bool:
    """Return whether two values are equal, NaN equal to NaN, arrays and lists by element."""
    if one is other:
        return True
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        a, b = np.asarray(one), np.asarray(other)
        if a.shape != b.shape:
            return False
        same = a == b
        if a.dtype.kind in "fc" and b.dtype.kind in "fc":
            same = same | (np.isnan(a) & np.isnan(b))
        return bool(np.all(same))
    if isinstance(one, list) or isinstance(other, list):
        if not (isinstance(one, list) and isinstance(other, list)) or len(one) != len(other):
            return False
        return all(is_equivalent(a, b) for a, b in zip(one, other, strict=True))
    try:
        return bool(one == other or (one != one and other != other))
    # Attributes may be objects of any library: dates of two calendars cannot be compared
    # (TypeError), tables are compared by element (ValueError).
    except (TypeError, ValueError):
        return False
