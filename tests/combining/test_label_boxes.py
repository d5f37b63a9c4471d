"""Boxes of labels in one to three dimensions, joined as NumPy arrays, beside painting one box after another."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from insitu.combining.label_boxes import LabelBoxes, Row, iter_rows, ordered_labels, place_boxes, plan_join
from insitu.errors import CombineError

Array = npt.NDArray[Any]


def join(row: Row, arrays: dict[int, Array], dims: tuple[str, ...]) -> Array:
    """Return what a plan makes of arrays; -1 where there is none."""
    parts = []
    for part in row.parts:
        if isinstance(part, Row):
            parts.append(join(part, arrays, dims))
            continue
        array = arrays[part.number]
        for dim, steps in part.steps.items():
            array = array.take(steps, dims.index(dim))
        parts.append(array)
    axis = dims.index(row.dim)
    whole = np.concatenate(parts, axis)
    if row.order is None:
        return whole
    taken = whole.take(np.maximum(row.order, 0), axis)
    np.moveaxis(taken, axis, 0)[row.order < 0] = -1
    return taken


@st.composite
def boxes(draw: st.DrawFn) -> tuple[list[list[Array]], list[int] | None]:
    """Return the labels of some boxes along each dimension, in any order, and their ranks."""
    count, ndim = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    own = st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True).map(np.array)
    labels = [[draw(own) for _ in range(count)] for _ in range(ndim)]
    ranks = st.none() | st.lists(st.integers(0, 3), min_size=count, max_size=count)
    return labels, draw(ranks)


@given(boxes())
def test_random_boxes(made: tuple[list[list[Array]], list[int] | None]) -> None:
    labels, rank = made
    count, dims = len(labels[0]), ("x", "y", "z")[: len(labels)]
    numbers = tuple(range(10, 10 + count))
    grid = [np.arange(8) for _ in dims]
    arrays, expected = {}, np.full([8] * len(dims), -1)
    for box in range(count):
        shape = [len(own[box]) for own in labels]
        arrays[numbers[box]] = 1000 * box + np.arange(np.prod(shape)).reshape(shape)
    order = range(count) if rank is None else sorted(range(count), key=lambda box: rank[box])
    for box in order:
        expected[np.ix_(*(own[box] for own in labels))] = arrays[numbers[box]]
    found = place_boxes(dims, numbers, labels, grid, None if rank is None else np.array(rank))
    assert ((found.owner < 0) == (expected < 0)).all()
    np.testing.assert_array_equal(join(plan_join(found), arrays, dims), expected)
    cells = [set(itertools.product(*(own.tolist() for own in box))) for box in zip(*labels, strict=True)]
    assert found.has_overlaps == (sum(map(len, cells)) > len(set().union(*cells)))
    assert found.sizes().tolist() == [len(own) for own in cells]
    assert found.count_given().sum() == len(set().union(*cells))
    _check_rows(found, numbers)


def _check_rows(found: LabelBoxes, numbers: tuple[int, ...]) -> None:
    """Assert that files that may be joined early are whole, and each is there once."""
    early = [number for _, row in iter_rows(plan_join(found)) for number in row]
    assert len(early) == len(set(early))
    assert set(early) <= set(numbers)


def test_what_follows_each_other_is_not_taken_apart() -> None:
    labels = [np.arange(5 * n, 5 * n + 5) for n in (2, 0, 1)]
    row = plan_join(place_boxes(["t"], [7, 8, 9], [labels], [ordered_labels(labels)]))
    assert row.order is None
    assert list(iter_rows(row)) == [("t", [8, 9, 7])]


def test_labels_that_are_wrong_name_the_file() -> None:
    with pytest.raises(CombineError, match=r"label 3 of 't' is in the file more than once.*b\.nc"):
        place_boxes(["t"], [0, 1], [[np.arange(2), np.array([3, 3])]], [np.arange(4)], urls=["a.nc", "b.nc"])
    with pytest.raises(CombineError, match=r"label 9 of 't' is not among.*a\.nc"):
        place_boxes(["t"], [0], [[np.array([1, 9])]], [np.arange(4)], urls=["a.nc"])
