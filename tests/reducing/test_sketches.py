"""Histograms are NumPy's, whatever the parts; quantiles of t-digests keep their bound however the
values come.

Modules: reducing/empty_cells.py, reducing/result_layout.py,
reducing/slabs.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.active.wire import values_from_wire, values_to_wire
from insitu.errors import InsituError, ModelError, UnsupportedError
from insitu.reading import ReadContext, SourcePool
from insitu.reducing import Reduction, ReductionQuery, compute_statistics
from insitu.reducing.reductions import ReductionRules
from insitu.reducing.sketches import CENTROIDS, RANK_ERROR_BOUND, check_edges
from insitu.sources import MemorySource
from mosaics import chunked

RANDOM = np.random.default_rng(8)
DISTRIBUTIONS: dict[str, Any] = {
    "normal": RANDOM.normal(280, 10, 60_000),
    "uniform": RANDOM.random(60_000),
    "heavy": RANDOM.standard_cauchy(60_000),
    "skewed": RANDOM.lognormal(0, 3, 60_000),
    "few": RANDOM.integers(0, 5, 60_000).astype("f8"),
    "rain": np.where(RANDOM.random(60_000) < 0.8, 0, RANDOM.exponential(5, 60_000)),
    "two hills": np.concatenate([RANDOM.normal(-5, 1, 30_000), RANDOM.normal(5, 1, 30_000)]),
    "constant": np.full(60_000, 3.5),
    "with a hole": np.append(RANDOM.normal(0, 1, 59_999), 1e36),
}
QUANTILES = np.array([0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1])


def merged(reduction: Reduction, parts: list[np.ndarray]) -> Any:
    total = reduction.empty_partial((1,))
    for part in parts:
        total = reduction.merge(total, reduction.step(part, (0,)))
    return total


def rank_error(values: np.ndarray, q: float, found: float) -> float:
    """How far the rank of a value is from the one that was asked for: equal values have a range of
    ranks.
    """
    ordered = np.sort(values)
    low, high = np.searchsorted(ordered, found, "left"), np.searchsorted(ordered, found, "right")
    wanted = q * (len(ordered) - 1)
    return max(low - 1 - wanted, wanted - high, 0) / len(ordered)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("order", ["as they come", "sorted", "one long, many short", "backwards"])
def test_quantiles_keep_their_bound(name: str, order: str) -> None:
    values = DISTRIBUTIONS[name]
    ordered = {"sorted": np.sort(values), "backwards": np.sort(values)[::-1]}.get(order, values)
    borders = [50_000, *range(50_100, 60_000, 300)] if order == "one long, many short" else range(1000, 60_000, 1000)
    reduction = Reduction(("tdigest",), np.dtype("f8"), ReductionRules(q=QUANTILES))
    found = reduction.finalise(merged(reduction, np.split(ordered, borders)), len(values))["tdigest"][:, 0]
    for q, value in zip(QUANTILES, found, strict=True):
        assert rank_error(values, q, value) <= RANK_ERROR_BOUND * np.sqrt(q * (1 - q)) / CENTROIDS + 1 / len(values), q
    assert (found[0], found[-1]) == (values.min(), values.max())
    assert (np.diff(found) >= 0).all()


def alternating(values: np.ndarray) -> np.ndarray:
    """The smallest, the largest, the second smallest, …: every part widens the digest at both
    ends.
    """
    ordered = np.sort(values)
    turned = np.empty_like(ordered)
    turned[::2], turned[1::2] = ordered[: (len(ordered) + 1) // 2], ordered[::-1][: len(ordered) // 2]
    return turned


HARD: dict[str, Any] = {
    "growing by a power": np.cumprod(np.full(60_000, 1.002)) * np.where(np.arange(60_000) % 2, 1, -1),
    "no mean": RANDOM.pareto(0.3, 60_000),
    "six orders": RANDOM.lognormal(0, 6, 60_000),
    "steps and a tail": np.where(
        RANDOM.random(60_000) < 0.9, RANDOM.integers(0, 3, 60_000), RANDOM.pareto(1, 60_000) * 100
    ),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("turn", [np.sort, alternating, lambda v: alternating(v)[::-1], lambda v: v])
def test_hard_data_keep_the_bound_however_they_are_merged(name: str, turn: Any) -> None:
    values = HARD[name]
    reduction = Reduction(("tdigest",), np.dtype("f8"), ReductionRules(q=QUANTILES))
    parts = np.array_split(turn(values), 300)
    steps = [reduction.step(part, (0,)) for part in parts]
    one_by_one = reduction.empty_partial((1,))
    for step in steps:
        one_by_one = reduction.merge(one_by_one, step)
    by_halves = reduction.collapse({"tdigest": np.stack([step["tdigest"] for step in steps])})
    error = RANK_ERROR_BOUND * np.sqrt(QUANTILES * (1 - QUANTILES)) / CENTROIDS + 1 / len(values)
    low = np.quantile(values, np.clip(QUANTILES - error, 0, 1), method="inverted_cdf")
    high = np.quantile(values, np.clip(QUANTILES + error, 0, 1), method="higher")
    for partial in (one_by_one, by_halves):
        found = reduction.finalise(partial, len(values))["tdigest"][:, 0]
        assert ((low <= found) & (found <= high)).all()


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_few_values_are_exact(count: int) -> None:
    values = RANDOM.normal(0, 1, count)
    for q in (0.0, 0.3, 0.5, 1.0):
        reduction = Reduction(("tdigest",), np.dtype("f8"), ReductionRules(q=q))
        found = reduction.finalise(merged(reduction, np.array_split(values, 3)), count)["tdigest"]
        np.testing.assert_allclose(found, [np.quantile(values, q)], rtol=1e-12)


def test_missing_values_and_none_at_all() -> None:
    values = np.array([[1.0, np.nan, 3.0, 2.0], [np.nan] * 4, [4.0, 5.0, 6.0, 7.0]])
    for skipna, expected in ((True, [2.0, np.nan, 5.5]), (False, [np.nan, np.nan, 5.5])):
        reduction = Reduction(("tdigest",), np.dtype("f8"), ReductionRules(skipna, q=0.5))
        total = reduction.merge(reduction.empty_partial((3, 1)), reduction.step(values[:, :2], (1,)))
        total = reduction.merge(total, reduction.step(values[:, 2:], (1,)))
        np.testing.assert_array_equal(reduction.finalise(total, 4)["tdigest"][:, 0], expected)
    empty = reduction.finalise(reduction.empty_partial((2,)), 0)["tdigest"]
    assert np.isnan(empty).all()


def test_values_that_repeat() -> None:
    both = Reduction(("tdigest", "histogram"), np.dtype("f4"), ReductionRules(q=0.5, edges=(0.0, 2.0, 4.0)))
    once = both.step(np.array([1, 1, 3], "f4"), (0,))
    found = both.finalise(both.repeat(once, np.array([5])), 15)
    assert found["tdigest"] == 1
    assert found["histogram"].tolist() == [[10], [5]]
    nothing = both.repeat(once, np.array([0]))
    assert both.finalise(nothing, 0)["histogram"].sum() == 0
    assert np.isnan(both.finalise(nothing, 0)["tdigest"])


def test_a_digest_travels() -> None:
    reduction = Reduction(("tdigest", "histogram"), np.dtype("f4"), ReductionRules(q=0.5, edges=(0.0, 2.0, 4.0)))
    partial = reduction.step(np.arange(6, dtype="f4").reshape(2, 3), (1,))
    there = {name: values_from_wire(values_to_wire(found)) for name, found in partial.items()}
    for name, found in partial.items():
        assert there[name].dtype == found.dtype
        assert there[name].tobytes() == found.tobytes()


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(["i1", "i4", "i8", "f4", "f8", ">f4", ">i2"]),
    edges=st.lists(st.integers(-6, 12), min_size=2, max_size=8).map(sorted),
    axes=st.sampled_from([None, (0,), (1, 2), (2,), (0, 1)]),
    steps=st.sampled_from([1, 2, -1]),
)
def test_histograms_are_numpys(seed: int, dtype: str, edges: list[int], axes: Any, steps: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-5 if np.dtype(dtype).kind in "if" else 0, 11, (5, 6, 7)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        values[rng.random(values.shape) < 0.1], values[rng.random(values.shape) < 0.05] = np.nan, np.inf
    case = chunked(values, (2, 4, 3), "file")
    opened = SourcePool(opener=lambda source: MemorySource(case.disk[source.url]))
    query = ReductionQuery.of("histogram", axes, np.s_[::steps], edges=edges)
    found = compute_statistics(case.array, query, ReadContext(sources=opened))["histogram"]
    chosen = values[::steps]
    gone = (0, 1, 2) if axes is None else axes
    other_axes = [axis for axis in range(3) if axis not in gone]
    rows = chosen.transpose(*other_axes, *gone).reshape(*(chosen.shape[axis] for axis in other_axes), -1)
    expected = np.apply_along_axis(lambda row: np.histogram(row[~np.isnan(row)], edges)[0], -1, rows.astype("f8"))
    np.testing.assert_array_equal(np.moveaxis(found, 0, -1), expected)


@pytest.mark.parametrize("edges", [[1], [2, 1], [0, np.nan], [[0, 1]], "x", [0, "x"], range(70_000), []])
def test_edges_that_are_none(edges: Any) -> None:
    with pytest.raises(ModelError):
        check_edges(edges)


def test_what_is_missing_to_ask() -> None:
    with pytest.raises(ModelError, match="edges"):
        Reduction(("histogram",), np.dtype("f4"))
    with pytest.raises(ModelError, match="needs q"):
        Reduction(("tdigest",), np.dtype("f4"))
    for q in (1.5, -0.1, [[0.5]]):
        reduction = Reduction(("tdigest",), np.dtype("f4"), ReductionRules(q=q))
        with pytest.raises(InsituError):
            reduction.finalise(reduction.empty_partial(()), 0)
    with pytest.raises(UnsupportedError):
        Reduction(("tdigest",), np.dtype("M8[s]"), ReductionRules(q=0.5))
