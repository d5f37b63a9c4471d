"""Every structural operation, alone and after others, against NumPy.

Modules: model/tile.py
"""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mosaics import Case, bases, basic_keys, changed, evaluate, mosaics


def assert_same(case: Case) -> None:
    got = evaluate(case.array, case.disk)
    assert case.array.shape == case.values.shape
    assert got.dtype == case.array.dtype
    np.testing.assert_array_equal(got, case.values)


@given(bases())
def test_a_file_is_what_it_holds(case: Case) -> None:
    assert_same(case)


@given(st.data())
@settings(max_examples=100)
def test_basic_selections(data: st.DataObject) -> None:
    case = data.draw(bases())
    key = data.draw(basic_keys(case.values.shape))
    case.array, case.values = case.array[key], case.values[key]
    assert_same(case)


@given(st.data())
@settings(max_examples=100)
def test_orthogonal_selections(data: st.DataObject) -> None:
    case = data.draw(bases())
    key, index = [], []
    for length in case.values.shape:
        chosen = data.draw(st.lists(st.integers(-length, length - 1), min_size=1, max_size=8))
        mask = data.draw(st.lists(st.booleans(), min_size=length, max_size=length))
        key.append(np.array(data.draw(st.sampled_from([chosen, mask]))))
        index.append(np.flatnonzero(key[-1]) if key[-1].dtype == bool else key[-1])
    case.array, case.values = case.array[tuple(key)], case.values[np.ix_(*index)]
    assert_same(case)


@given(st.data())
@settings(max_examples=100)
def test_one_operation(data: st.DataObject) -> None:
    assert_same(data.draw(changed(data.draw(bases()))))


@given(mosaics())
@settings(max_examples=200)
def test_many_operations(case: Case) -> None:
    assert_same(case)


@given(mosaics(3))
def test_pickled(case: Case) -> None:
    case.array = pickle.loads(pickle.dumps(case.array))
    assert_same(case)
