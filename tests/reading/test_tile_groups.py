"""Tiles of a few kinds, planned by kind: the values are those of tiles planned one by one.

Modules: reading/request_cost.py, reading/scatter.py, reading/select_cells.py, reading/trim_ranges.py
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from insitu.model import Axis, Columns, Encoding, Packing, Packings, Selection, Tile, VirtualArray, concatenate
from insitu.model.packing import PackingKind
from insitu.reading import plan_read, read_array, select_cells


def _part(values: np.ndarray[Any, Any], chunks: tuple[int, int], scale: float) -> VirtualArray:
    """Values that carry themselves, cut into chunks, each times a scale of its own."""
    axes = tuple(Axis.regular(n, size) for n, size in zip(values.shape, chunks, strict=True))
    grid = tuple(axis.count for axis in axes)
    padded = np.zeros(tuple(axis.count * axis.size for axis in axes), values.dtype)
    padded[tuple(slice(0, n) for n in values.shape)] = values
    cells = padded.reshape(grid[0], chunks[0], grid[1], chunks[1]).swapaxes(1, 2)
    length = chunks[0] * chunks[1] * values.dtype.itemsize
    offset = np.arange(grid[0] * grid[1]).reshape(grid) * length
    table = Columns(grid, (), np.asarray(-3), offset, np.asarray(length), inline=cells.tobytes())
    kind = PackingKind(dtype="float64", scaled="float64", scale_dtype="float64")
    tile = Tile(axes, (Encoding(values.dtype),), table, Packings.of([Packing(scale=scale, kind=kind)]))
    return VirtualArray((*values.shape,), np.dtype("f8"), ("t", "y"), (tile,), np.zeros((1, 2), np.int64))


CUTS = ((2, 3), (3, 5), (1, 1), (4, 6))
KEYS = [
    (slice(None), slice(None)),
    (slice(None, None, -1), slice(1, 5)),
    (slice(3, None, 7), slice(None, None, 2)),
    (slice(80, 5, -3), slice(None, None, -2)),
    (17, slice(None)),
    (slice(None), 2),
    (slice(10, 60), np.array([0, 3, 3])),
    (np.array([5, 90, 6, 5]), slice(None)),
]


@given(
    lengths=st.lists(st.integers(1, 5), min_size=25, max_size=45),
    kinds=st.lists(st.integers(0, 3), min_size=45, max_size=45),
)
def test_values_are_the_same(lengths: list[int], kinds: list[int]) -> None:
    lengths = lengths + [5] * max(0, (100 - sum(lengths)) // 5 + 1)
    kinds = (kinds * 3)[: len(lengths)]
    total = sum(lengths)
    stored = np.arange(total * 6, dtype="i4").reshape(total, 6)
    begins = np.cumsum([0, *lengths])
    parts, expected = [], stored.astype("f8")
    for number, (begin, end) in enumerate(itertools.pairwise(begins)):
        parts.append(_part(stored[begin:end], CUTS[kinds[number]], 1 + number))
        expected[begin:end] *= 1 + number
    whole = concatenate(parts, 0)
    for key in KEYS:
        found = read_array(whole, key)
        wanted = (
            expected[np.ix_(*(np.arange(n)[k] for n, k in zip(whole.shape, key, strict=True)))]
            if any(isinstance(k, np.ndarray) for k in key)
            else expected[key]
        )
        np.testing.assert_array_equal(found, wanted)


def test_tiles_of_a_kind_are_one_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = np.arange(180, dtype="i4").reshape(30, 6)
    parts = [_part(stored[i : i + 1], CUTS[i % 3], 1.0) for i in range(30)]
    whole = concatenate(parts, 0)
    selection = Selection.of((slice(None), slice(None)), whole.shape)
    assert len(whole.tiles) == 30
    assert len(plan_read(whole, selection).tiles) == 3
    monkeypatch.setattr(select_cells, "MIN_GROUP_SIZE", 1000)
    assert len(plan_read(whole, selection).tiles) == 30
