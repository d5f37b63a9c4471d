"""What if a variable lies in several parts of a merge, but never twice at the same label?

The classic mess: a variable is missing in some files, so xarray joins the files with it and those without apart, and merges the two. What both
have is then filled in from one another. Where along some dimension no label is in two parts, that is a join in another order: nothing is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.align import pandas_index, with_dtype
from insitu.combining.joining import joined
from insitu.combining.member import CombineError, Member, Variable
from insitu.combining.promotion import shared_type
from insitu.model import VirtualArray

__all__ = ["Labels", "interlocked"]

Mask = npt.NDArray[np.bool_]
_FILLABLE = "fcmM"
"""Kinds of types that have a value for what is missing: the alignment makes numbers with holes such ones, all else objects."""


class Labels:
    """Which of the merged labels each part had by itself."""

    def __init__(self, before: Sequence[Member], after: Sequence[Member]) -> None:
        self.before = before
        self.after = after
        self._known: dict[tuple[str, int], Mask] = {}

    def mask(self, number: int, dim: str, length: int) -> Mask:
        """True where a part had the label; everywhere, if the dimension has none."""
        own, merged = self.before[number].index(dim), self.after[number].index(dim)
        if own is None or merged is None or own is merged:
            return np.ones(length, bool)
        key = (dim, id(own))
        if key not in self._known:
            self._known[key] = pandas_index(own, dim).get_indexer(pandas_index(merged, dim)) >= 0
        return self._known[key]


def interlocked(name: str, labels: Labels) -> Variable | None:
    """The variable that its parts make where one begins when another ends; None if they overlap, or are in memory anyway."""
    numbers = [number for number, member in enumerate(labels.after) if name in member.variables]
    parts = [labels.after[number].variables[name] for number in numbers]
    first = parts[0]
    if any(part.dims != first.dims or part.shape != first.shape for part in parts):
        return None
    if not any(isinstance(part.data, VirtualArray) for part in parts):
        return None
    try:
        dtype = shared_type([part.dtype for part in parts])
    except CombineError as refused:
        raise refused.located(variable=name) from refused.__cause__
    virtual = [part.virtual() for part in parts]
    if dtype.kind not in _FILLABLE or any(array is None or array.dtype.kind in "bSUVO" for array in virtual):
        return None
    for axis, dim in enumerate(first.dims):
        masks = np.array([labels.mask(number, dim, first.shape[axis]) for number in numbers])
        if (masks.sum(axis=0) <= 1).all():
            data = _side_by_side([array for array in virtual if array is not None], axis, masks)
            return first.with_data(with_dtype(data, dtype))
    return None


def _side_by_side(arrays: Sequence[VirtualArray], axis: int, masks: npt.NDArray[Any]) -> VirtualArray:
    """Each array's own elements of an axis, put where the masks have them."""
    pieces = [array.take(axis, np.flatnonzero(mask)) for array, mask in zip(arrays, masks, strict=True) if mask.any()]
    place = np.full(masks.shape[1], -1, np.int64)
    begin = 0
    for mask in masks:
        own = int(mask.sum())
        place[mask] = np.arange(begin, begin + own)
        begin += own
    if not pieces:
        return arrays[0]
    return joined(pieces, axis).take(axis, place)
