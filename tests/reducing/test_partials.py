"""Partials: any way to cut the data and to put the pieces together again gives the same answer;
they travel as plain arrays.

Modules: reducing/block_facts.py, reducing/extremes.py, reducing/partial_fields.py, reducing/reductions.py,
reducing/sums.py
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.errors import UnsupportedError
from insitu.reducing import STATISTICS, Partial, Reduction
from insitu.reducing.reductions import ReductionRules

EVERY = tuple(sorted(STATISTICS.names(lambda statistic: statistic.is_streamed and not statistic.is_sketch)))


def values_of(draw: Any, length: int) -> np.ndarray:
    dtype = draw(st.sampled_from(["f4", "f8", "i2", "u1", "c8"]))
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(1, 5, (length, 3)).astype(dtype)
    if values.dtype.kind in "fc" and draw(st.booleans()):
        values[:: draw(st.integers(1, 4))] = np.nan
    return values


def steps(reduction: Reduction, values: np.ndarray, borders: list[int]) -> list[Partial]:
    return [
        reduction.step(values[first:last], (0,), [np.arange(first, last)])
        for first, last in zip([0, *borders], [*borders, len(values)], strict=True)
        if last > first
    ]


@given(st.data())
@settings(max_examples=30)
def test_any_cut_in_any_order(data: st.DataObject) -> None:
    values = values_of(data.draw, 12)
    reduction = Reduction(EVERY, values.dtype, ReductionRules(skipna=data.draw(st.sampled_from([None, False])), ddof=1))
    if reduction.skips and np.isnan(values).all(axis=0).any():
        reduction = Reduction(tuple(m for m in EVERY if not m.startswith("arg")), values.dtype, reduction.rules)
    pieces = data.draw(
        st.permutations(steps(reduction, values, sorted(data.draw(st.lists(st.integers(0, 12), max_size=4)))))
    )
    total = reduction.empty_partial((1, 3))
    for piece in pieces:
        total = reduction.merge(total, piece, reuse=True)
    whole = reduction.finalise(steps(reduction, values, [])[0], 12)
    for method, found in reduction.finalise(total, 12).items():
        np.testing.assert_allclose(found, whole[method], rtol=1e-6, atol=1e-7, err_msg=method)


@given(st.integers(1, 9))
@settings(max_examples=9)
def test_collapsing_is_merging(count: int) -> None:
    values = np.random.default_rng(count).random((count, 4, 3))
    reduction = Reduction(EVERY, values.dtype)
    positions = [np.arange(4)]
    stacked = reduction.shift_positions(reduction.step(values, (1,), positions), np.arange(count).reshape(-1, 1, 1) * 4)
    collapsed = reduction.finalise(reduction.collapse(stacked), 4 * count)
    flat = values.reshape(1, -1, 3)
    whole = reduction.finalise(reduction.step(flat[0], (0,), [np.arange(4 * count)]), 4 * count)
    for method in EVERY:
        np.testing.assert_allclose(collapsed[method], whole[method])


@pytest.mark.parametrize("times", [1, 2, 5])
def test_the_same_values_again(times: int) -> None:
    values = np.array([[1.5, np.nan], [2.5, 4.0]])
    methods = tuple(method for method in EVERY if not method.startswith("arg"))
    reduction = Reduction(methods, values.dtype)
    again = reduction.finalise(reduction.repeat(reduction.step(values, (0,)), times), 2 * times)
    whole = reduction.finalise(reduction.step(np.tile(values, (times, 1)), (0,)), 2 * times)
    for method in methods:
        np.testing.assert_allclose(again[method], whole[method], err_msg=method)


def test_partials_travel_as_arrays() -> None:
    values = np.array([[1, np.nan, 3], [4, 5, 6]], "f4")
    reduction = Reduction(EVERY, values.dtype)
    partial = reduction.step(values, (0, 1), [np.array([0, 3]), np.arange(3)])
    wire = io.BytesIO()
    np.savez(wire, **partial)
    wire.seek(0)
    with np.load(wire) as file:
        arrived = dict(file)
    assert set(arrived) == set(reduction.fields)
    for method, found in reduction.finalise(arrived, 6).items():
        np.testing.assert_array_equal(found, reduction.finalise(partial, 6)[method])


def test_statistics_share_what_they_need() -> None:
    assert set(Reduction(("mean", "sum", "std", "var", "count"), np.dtype("f4")).fields) == {
        "count",
        "total",
        "squares",
    }
    assert Reduction(("min", "max"), np.dtype("i4")).fields == ("min", "max")


def test_float32_is_summed_in_float64() -> None:
    values = np.full(20_000_001, 0.1, "f4")
    values[0] = 1e9
    reduction = Reduction(("sum", "mean"), values.dtype)
    found = reduction.finalise(reduction.step(values, (0,)), values.size)
    exact = values.sum(dtype="f8")
    assert found["sum"].dtype == np.float32
    assert found["sum"].item() == np.float32(exact)
    assert found["mean"].item() == np.float32(exact / values.size)


def test_what_there_is_not() -> None:
    with pytest.raises(UnsupportedError, match="'mode' is not a known reduction"):
        Reduction(("mode",), np.dtype("f4"))
    with pytest.raises(UnsupportedError, match="cannot compute sum of datetime64"):
        Reduction(("sum",), np.dtype("M8[s]"))
