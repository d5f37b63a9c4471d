"""Are points of virtual arrays those of NumPy, and few tiles where they share an index?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from insitu.errors import SelectionError
from insitu.expressions.point_selection import index_pointwise, select_points
from mosaics import Case, bases, chunked, evaluate, mosaics


@given(case=st.one_of(bases(), mosaics()), data=st.data())
def test_points_are_those_of_numpy(case: Case, data: st.DataObject) -> None:
    shape = case.array.shape
    if not shape or not all(shape):
        return
    chosen = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    count = data.draw(st.integers(1, 12))
    keys = tuple(
        np.array(data.draw(st.lists(st.integers(-length, length - 1), min_size=count, max_size=count)))
        if axis in chosen
        else slice(None)
        for axis, length in enumerate(shape)
    )
    found = select_points(case.array, keys, 64)
    assert found is not None
    np.testing.assert_array_equal(evaluate(found, case.disk), index_pointwise(case.values, keys))


def test_points_that_share_an_index_are_one_tile() -> None:
    values = np.arange(40 * 5 * 6, dtype="<i4").reshape(40, 5, 6)
    case = chunked(values, (1, 1, 6), "memory:a")
    rows, columns = np.arange(40), np.arange(40) % 5
    found = select_points(case.array, (rows, columns, slice(1, 3)), limit=10)
    assert found is not None
    assert len(found.tiles) == 1
    np.testing.assert_array_equal(evaluate(found, case.disk), values[rows, columns, 1:3])


def test_too_many_points_in_chunks_of_several_are_read() -> None:
    values = np.arange(40 * 5, dtype="<i4").reshape(40, 5)
    array = chunked(values, (1, 5), "memory:a").array
    assert select_points(array, (np.arange(40), np.arange(40) % 5), limit=10) is None


def test_points_out_of_bounds() -> None:
    array = chunked(np.zeros((4, 5), "<i4"), (1, 5), "memory:a").array
    with pytest.raises(SelectionError, match="out of bounds for axis 1 with size 5"):
        select_points(array, (np.arange(3), np.array([0, 1, 5])), 64)
