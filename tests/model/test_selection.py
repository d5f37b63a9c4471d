"""Keys are normalised once; what does not fit is refused with the axis named."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from insitu.errors import SelectionError
from insitu.model import Selection, Stride
from mosaics import basic_keys


@given(st.data())
def test_flat_runs_are_what_the_key_selects(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    key = data.draw(basic_keys(shape))
    values = np.arange(np.prod(shape)).reshape(shape)
    selection = Selection.of(key, shape)
    runs = list(selection.spans(shape))
    flat = np.concatenate([np.arange(first, first + many) for first, many in runs] or [np.zeros(0, int)])
    np.testing.assert_array_equal(flat, values[key].reshape(-1))
    assert selection.result_shape == values[key].shape
    assert all(a[0] + a[1] != b[0] for a, b in itertools.pairwise(runs))  # what touches is one run


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (5, "out of bounds for axis 0"),
        ((0, [7]), "index 7 is out of bounds for axis 1"),
        ((0, 0, 0), "too many indices"),
        ((..., ...), "one Ellipsis"),
        (None, "expand_dims"),
        (True, "boolean"),
        (np.array([True]), "the boolean array has 1 elements, the axis 3"),
        (np.array([[0]]), "one dimension"),
        (np.array([0.5]), "not float64"),
        (slice("a", "b"), "slice of integers"),
        (slice(0, 3, 0), "slice of integers"),
    ],
)
def test_wrong_keys_are_refused(key: Any, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        Selection.of(key, (3, 4))


def test_boxes() -> None:
    assert Selection.box((1, 0), (2, 4), (3, 4)).selectors == (Stride(1, 1, 2), Stride(0, 1, 4))
    with pytest.raises(SelectionError, match="leave axis 1"):
        Selection.box((1, 2), (2, 4), (3, 4))
    with pytest.raises(SelectionError, match="2 numbers"):
        Selection.box((1,), (2,), (3, 4))


def test_a_selection_belongs_to_its_shape() -> None:
    selection = Selection.of(slice(None), (3,))
    assert Selection.of(selection, (3,)) is selection
    with pytest.raises(SelectionError, match="from shape"):
        Selection.of(selection, (4,))
