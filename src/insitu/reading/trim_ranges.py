"""Trimming of byte ranges: fetches only the needed bytes of uncompressed chunks.

Pure. The bytes of a C-ordered chunk lie row by row, so a sub-slab is some number of runs. Fetching
each run alone costs a request each; fetching from the first to the last costs the gaps. There are
three kinds of axes, from slowest to fastest: *alone* (each wanted element is a piece of its own),
one *range* (from the first to the last wanted element), and *full*. How many axes are alone is
chosen by cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from insitu.model.axis import Indices
from insitu.reading.select_cells import AxisSelection, Picker, Slices, TileSelection, count_places

__all__ = ["trim_to_wanted_bytes"]


def trim_to_wanted_bytes(touched: TileSelection, request_bytes: int) -> TileSelection:
    """Return a selection of a tile that fetches only the needed bytes, if the tile is uncompressed.

    Parameters
    ----------
    touched
        The selection.
    request_bytes
        Bytes that could be fetched in the time that one more request costs.
    """
    encodings = touched.encodings
    if not all(encoding.raw for encoding in encodings):
        return touched
    parts = touched.parts
    axes = [i for i, part in enumerate(parts) if part.exists and part.stored.max(initial=1) > 1]
    if not axes or all(bool(parts[i].whole.all()) for i in axes):
        return touched
    itemsize = max(encoding.dtype.itemsize for encoding in encodings)
    best = min(range(len(axes)), key=lambda depth: _cost(parts, axes, depth, itemsize, request_bytes))
    new = list(parts)
    for i in axes[:best]:
        new[i] = _split_elements(parts[i])
    new[axes[best]] = _trim_to_range(parts[axes[best]])
    return replace(touched, parts=tuple(new))


def _cost(parts: Sequence[AxisSelection], axes: Sequence[int], depth: int, itemsize: int, request_bytes: int) -> float:
    """Return the cost if `depth` axes are alone: bytes fetched, plus the requests expressed in
    bytes.
    """
    requests, size = 1.0, float(itemsize)  # of a hostile shape, more than 64 bits count
    for position, i in enumerate(axes):
        part = parts[i]
        if position < depth:
            requests *= float(part.wanted.sum())
        elif position == depth:
            requests *= len(part.cell)
            low, high = _bounds(part)
            size *= float(np.mean(high - low + 1))
        else:
            requests *= len(part.cell)
            size *= float(part.stored.mean())
    return requests * (size + request_bytes)


def _bounds(part: AxisSelection) -> tuple[Indices, Indices]:
    """Return the lowest and the highest wanted element of each chunk."""
    if isinstance(part.inside, Slices):
        return part.inside.bounds()
    ends = [_first_and_last(picker) for picker in part.inside]
    return np.array([first for first, _ in ends], np.int64), np.array([last for _, last in ends], np.int64)


def _first_and_last(picker: Picker) -> tuple[int, int]:
    """Return the first and the last wanted element of a chunk."""
    if isinstance(picker, np.ndarray):
        return int(picker.min()), int(picker.max())
    step = picker.step or 1
    if step > 0:
        return picker.start, picker.start + (picker.stop - 1 - picker.start) // step * step
    stop = -1 if picker.stop is None else picker.stop
    return picker.start + (stop + 1 - picker.start) // step * step, picker.start


def _trim_to_range(part: AxisSelection) -> AxisSelection:
    """Return the axis selection that fetches from the first to the last wanted element."""
    low, high = _bounds(part)
    stored = high - low + 1
    inside: Sequence[Picker]
    if isinstance(part.inside, Slices):
        start, step = part.inside.start - low, part.inside.step
        # A backward slice that stopped just before the range now stops before the beginning.
        inside = Slices(start, np.maximum(part.inside.stop - low, -1), step)
        whole = (step == 1) & (start == 0) & (inside.stop == stored) & (part.count_places() == stored)
    else:
        inside = tuple(_shift_picker(picker, first) for picker, first in zip(part.inside, low.tolist(), strict=True))
        in_order = [
            _is_in_order(inner, int(many)) and count_places(outer) == many  # one element may stand for many
            for inner, outer, many in zip(inside, part.outside, stored, strict=True)
        ]
        whole = np.array(in_order, bool)
    return replace(part, inside=inside, stored=stored, first=part.first + low, whole=whole)


def _shift_picker(picker: Picker, by: int) -> Picker:
    if isinstance(picker, np.ndarray):
        return picker - by
    stop = picker.stop if picker.stop is None else picker.stop - by
    # A backward slice that stopped just before the range now stops before the beginning.
    return slice(picker.start - by, None if stop is not None and stop < 0 else stop, picker.step)


def _is_in_order(picker: Picker, length: int) -> bool:
    return isinstance(picker, slice) and (picker.step or 1) == 1 and picker.start == 0 and picker.stop == length


def _split_elements(part: AxisSelection) -> AxisSelection:
    """Return the axis selection that fetches each wanted element on its own."""
    if isinstance(part.inside, Slices) and isinstance(part.outside, Slices):
        return _split_slices(part, part.inside, part.outside)
    row: list[int] = []
    inner: list[int] = []
    outer: list[Picker] = []
    for number, (inside, outside) in enumerate(zip(part.inside, part.outside, strict=True)):
        # A range, not an array: a stored axis may be longer than memory.
        elements = (
            inside.tolist() if isinstance(inside, np.ndarray) else range(max(int(part.stored[number]), 1))[inside]
        )
        if isinstance(outside, np.ndarray):
            places = [slice(int(o), int(o) + 1) for o in outside]
        elif len(elements) == 1:
            places = [outside]  # one element, for as many as the output has there
        else:
            places = [slice(o, o + 1) for o in range(outside.start, outside.stop)]
        row += [number] * len(elements)
        inner += elements
        outer += places
    rows = np.array(row, np.int64)
    ones = np.ones(len(rows), np.int64)
    return AxisSelection(
        cell=part.cell[rows],
        inside=(slice(0, 1),) * len(rows),
        outside=tuple(outer),
        stored=ones,
        exists=part.exists,
        whole=np.array([count_places(picker) == 1 for picker in outer], bool),
        wanted=ones,
        first=part.first[rows] + np.array(inner, np.int64),
    )


def _split_slices(part: AxisSelection, inside: Slices, outside: Slices) -> AxisSelection:
    """Return the same for slices, in columns."""
    many = inside.count_elements()
    rows = np.repeat(np.arange(len(many)), many)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(many) - many, many)
    begin = outside.start[rows] + number
    # One element stands for as many as the output has there.
    end = np.where(many[rows] == 1, outside.stop[rows], begin + 1)
    ones = np.ones(len(rows), np.int64)
    return AxisSelection(
        cell=part.cell[rows],
        inside=Slices(np.zeros_like(rows), ones, ones),
        outside=Slices(begin, end, ones),
        stored=ones,
        exists=part.exists,
        whole=end - begin == 1,
        wanted=ones,
        first=part.first[rows] + inside.start[rows] + number * inside.step[rows],
    )
