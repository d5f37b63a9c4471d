"""Medians, quantiles and texts: block by block of the answer, and what xarray and NumPy say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.errors import ModelError, UnsupportedError
from insitu.reading import ReadContext, ReadStatistics, SourcePool
from insitu.reducing import ReductionQuery, compute_statistics, whole_blocks
from insitu.sources import MemorySource
from mosaics import Case, chunked


def reduce_case(
    case: Case, method: str, axes: Any = None, keepdims: bool = False, tally: ReadStatistics | None = None, **rules: Any
) -> np.ndarray:
    opened = SourcePool(opener=lambda source: MemorySource(case.disk[source.url]))
    query = ReductionQuery.of(method, axes, keepdims=keepdims, **rules)
    return compute_statistics(case.array, query, ReadContext(sources=opened, tally=tally))[method]


@pytest.fixture
def case() -> Case:
    random = np.random.default_rng(1)
    values = random.random((10, 12, 14)).astype("f4")
    values[random.random(values.shape) < 0.1] = np.nan
    return chunked(values, (10, 4, 5), "blocks")


@pytest.mark.parametrize("limit", [1 << 28, 9000, 3000])
@pytest.mark.parametrize("axes", [(0,), (0, 2), (1,)])
def test_medians_and_quantiles(case: Case, limit: int, axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_blocks, "BLOCK_BYTES", limit)
    variable = xr.Variable(["a", "b", "c"], case.values)
    dims = ["abc"[axis] for axis in axes]
    for skipna in (None, False):
        found = reduce_case(case, "median", axes, skipna=skipna)
        expected = variable.median(dims, skipna=skipna)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
        for q in (0.3, [0.1, 0.9, 0.5]):
            found = reduce_case(case, "quantile", axes, q=q, skipna=skipna)
            expected = variable.quantile(q, dims, skipna=skipna)
            np.testing.assert_allclose(found, expected, rtol=1e-6)
            assert found.shape == expected.shape
    assert reduce_case(case, "quantile", axes, keepdims=True, q=[0.5]).shape == (
        1,
        *(1 if i in axes else n for i, n in enumerate(case.values.shape)),
    )


def test_every_chunk_is_read_once_where_it_can_be(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_blocks, "BLOCK_BYTES", 10 * 4 * 5 * 4)
    tally = ReadStatistics()
    reduce_case(case, "median", 0, tally=tally)
    assert tally.chunks == 9


def test_advice_where_chunks_lie_across(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_blocks, "BLOCK_BYTES", 10 * 4 * 2)
    with pytest.warns(UserWarning, match="reads every chunk 12 times"):
        found = reduce_case(case, "median", 0)
    np.testing.assert_array_equal(found, np.nanmedian(case.values, 0))
    with pytest.raises(UnsupportedError, match="needs"):
        reduce_case(case, "median")
    with pytest.raises(ModelError, match="needs q"):
        reduce_case(case, "quantile", 0)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 60)), min_size=1, max_size=3), st.integers(1, 5000))
@settings(max_examples=40)
def test_blocks_fit(axes: list[tuple[int, int]], allowed: int) -> None:
    lengths, cells = zip(*axes, strict=True)
    sizes, passes = whole_blocks.block_shape(lengths, cells, allowed)
    assert np.prod(sizes) <= max(allowed, 1)
    assert all(1 <= size <= length for size, length in zip(sizes, lengths, strict=True))
    if np.prod([min(cell, length) for length, cell in axes]) <= allowed:
        assert passes == 1
        assert all(size == length or size % cell == 0 for size, length, cell in zip(sizes, lengths, cells, strict=True))


@pytest.mark.parametrize("dtype", ["S3", "U2"])
def test_texts(dtype: str) -> None:
    values = np.array([["b", "a", "cc"], ["d", "aa", "c"]], dtype)
    case = _text_case(values)
    variable = xr.Variable(["a", "b"], values)
    for method in ("min", "max", "count", "argmin"):
        for axis, dim in ((0, "a"), (1, "b")):
            found = reduce_case(case, method, axis)
            expected = getattr(variable, method)(dim).values
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == expected.dtype
    with pytest.raises(UnsupportedError, match="cannot compute mean"):
        reduce_case(case, "mean")


def _text_case(values: np.ndarray) -> Case:
    from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray

    data = values.tobytes()
    tile = Tile(
        tuple(Axis.regular(n, n) for n in values.shape),
        (Encoding(values.dtype),),
        Columns((1,) * values.ndim, (Source("texts"),), np.asarray(0), np.asarray(0), np.asarray(len(data))),
    )
    return Case(VirtualArray.of(tile, dims=("a", "b")), values, {"texts": data})
