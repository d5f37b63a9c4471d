"""Every statistic of every mosaic is what xarray gives for the same values: missing ones, types,
errors and all.

xarray sums floats in their own type; we do in float64. So numbers are compared with xarray's of the
values in the widest type, rounded to the type that it gives for the values as they are; types and
missing answers with xarray's as they are.

Modules: reducing/reduce_chunks.py
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.errors import InsituError, ModelError
from insitu.model import INLINE, UNWRITTEN
from insitu.reading import ReadContext, SourcePool
from insitu.reducing import ReductionQuery, compute_statistics, reduce_chunks
from insitu.reducing.statistics import STATISTICS
from insitu.sources import MemorySource
from mosaics import Case, basic_keys, changed, chunked, mosaics

STREAMED = sorted(STATISTICS.names(lambda statistic: statistic.is_streamed and not statistic.is_sketch))
EVERY = [*STREAMED, "median"]
FLOATS = ["<f2", "<f4", ">f4", "<f8", ">f8", "<c8", "<c16"]
OTHERS = ["|i1", "|u1", "<i2", ">i2", "<u2", "<i4", "<u4", "<i8", "<u8", "|b1"]


def reduced(
    case: Case, methods: list[str], axes: Any = None, key: Any = ..., keepdims: bool = False, **rules: Any
) -> dict[str, np.ndarray]:
    opened = SourcePool(opener=lambda source: MemorySource(case.disk[source.url]))
    query = ReductionQuery.of(methods, axes, key, keepdims=keepdims, **rules)
    return compute_statistics(case.array, query, ReadContext(sources=opened))


@pytest.fixture(params=[0, 100, 1 << 19], autouse=True)
def block_bytes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Chunks measured one by one, a few together, many together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce_chunks, "BLOCK_BYTES", request.param)
        patch.setattr(reduce_chunks, "STACK_BYTES", 2 * request.param)
        yield


def by_xarray(values: np.ndarray, method: str, axes: tuple[int, ...] | None, keepdims: bool, **rules: Any) -> Any:
    variable = xr.Variable([f"d{i}" for i in range(values.ndim)], values)
    wanted = {} if method in ("count", "any", "all") else {"skipna": rules.get("skipna")}
    if method in ("std", "var"):
        wanted["ddof"] = rules.get("ddof", 0)
    if method in ("sum", "prod"):
        wanted["min_count"] = rules.get("min_count")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if method in ("argmin", "argmax"):  # along several dimensions: a position in all of them
            along = tuple(range(values.ndim)) if axes is None else axes
            other_axes = [axis for axis in range(values.ndim) if axis not in along]
            shape = [values.shape[axis] for axis in other_axes]
            flat = values.transpose(*other_axes, *along).reshape(
                *shape, math.prod(values.shape[axis] for axis in along)
            )
            variable = xr.Variable([*(f"d{axis}" for axis in other_axes), "flat"], flat)
            result = getattr(variable, method)("flat", **wanted).values
        else:
            dims = None if axes is None else [f"d{axis}" for axis in axes]
            result = getattr(variable, method)(dims, **wanted).values
    if keepdims:
        gone = range(values.ndim) if axes is None else axes
        result = result.reshape([1 if axis in gone else n for axis, n in enumerate(values.shape)])
    return result


def wide(values: np.ndarray) -> np.ndarray:
    return values.astype({"f": "f8", "c": "c16"}[values.dtype.kind]) if values.dtype.kind in "fc" else values


def overflows(values: np.ndarray) -> bool:
    """Whether a product may become infinite on the way: what a zero then makes of it depends on the
    order, in NumPy too.
    """
    sizes = np.abs(wide(values))
    return bool(np.log2(sizes, where=sizes > 1, out=np.zeros(sizes.shape)).sum() > 1000)


def check(
    found: np.ndarray, values: np.ndarray, method: str, axes: tuple[int, ...] | None, keepdims: bool, **rules: Any
) -> None:
    expected = by_xarray(values, method, axes, keepdims, **rules)
    assert found.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
    assert found.shape == expected.shape
    if values.dtype.kind not in "fc" and method not in ("mean", "std", "var"):
        np.testing.assert_array_equal(found, expected)
        return
    exact = np.asarray(by_xarray(wide(values), method, axes, keepdims, **rules))
    with np.errstate(all="ignore"):
        exact = exact.astype(found.dtype)
        scale = 1 if method == "prod" else np.fmax.reduce(np.abs(wide(values)), axis=None, initial=1)
    if found.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, exact)
        return
    if method == "prod" and overflows(values):
        return
    precision = np.finfo(found.dtype).eps
    power = 2 if method == "var" else 1
    slack = {"sum": values.size, "std": 1e3 if found.dtype.itemsize >= 8 else 4}.get(method, 4)
    np.testing.assert_allclose(found, exact, rtol=8 * precision, atol=slack * precision * float(scale) ** power)


@st.composite
def axes_of(draw: Any, ndim: int) -> tuple[int, ...] | None:
    if draw(st.booleans()):
        return None
    return tuple(draw(st.lists(st.integers(0, max(ndim - 1, 0)), unique=True, max_size=ndim) if ndim else st.just([])))


@st.composite
def rules(draw: Any) -> dict[str, Any]:
    return {
        "skipna": draw(st.sampled_from([None, True, False])),
        "ddof": draw(st.sampled_from([0, 1, 3])),
        "min_count": draw(st.sampled_from([None, 0, 1, 3])),
    }


def compare(
    case: Case, key: Any, values: np.ndarray, methods: list[str], axes: Any, keepdims: bool, given: dict[str, Any]
) -> None:
    """All methods at once if none fails, else each on its own."""
    try:
        found = reduced(case, methods, axes, key, keepdims, **given)
    except (ValueError, NotImplementedError):
        found = {}
    for method in methods:
        if method in found:
            check(found[method], values, method, axes, keepdims, **given)
            continue
        try:
            alone = reduced(case, [method], axes, key, keepdims, **given)[method]
        except InsituError as problem:
            natural = ValueError if isinstance(problem, ValueError) else TypeError
            with pytest.raises(natural):
                by_xarray(values, method, axes, keepdims, **given)
        else:
            check(alone, values, method, axes, keepdims, **given)


def test_a_median_of_nothing_along_several_axes() -> None:
    """Before 2.5 NumPy has no such median, and says so in its own words; then it is nothing."""
    case = chunked(np.zeros((2, 3, 4), "i4"), (1, 3, 4), "nothing")
    if np.lib.NumpyVersion(np.__version__) >= "2.5.0":
        found = reduced(case, ["median"], (0, 2), (slice(None), slice(0)), False)["median"]
        assert (found.shape, found.dtype) == ((0,), np.float64)
        return
    with pytest.raises(ModelError, match="empty selection"):
        reduced(case, ["median"], (0, 2), (slice(None), slice(0)), False)


@given(st.data())
@settings(max_examples=40)
def test_mosaics(data: st.DataObject) -> None:
    case = data.draw(mosaics(4))
    key = data.draw(basic_keys(case.values.shape))
    values = np.asarray(case.values[key])
    methods = data.draw(st.lists(st.sampled_from(EVERY), min_size=1, max_size=5, unique=True))
    axes = data.draw(axes_of(values.ndim))
    compare(case, key, values, methods, axes, data.draw(st.booleans()), data.draw(rules()))


@st.composite
def typed(draw: Any, dtypes: list[str]) -> Case:
    """One file's array of any type, with values missing here and there."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    chunk_shape = tuple(draw(st.integers(1, 4)) for _ in shape)
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    values = random.integers(-9, 9, shape).astype("i8").astype(dtype if dtype.kind in "fci" else f"i{dtype.itemsize}")
    if dtype.kind in "fc":
        values += (random.random(shape) / 8).astype(dtype)
        missing = draw(st.sampled_from(["none", "some", "most", "all", "a row"]))
        if missing == "a row":
            values[draw(st.integers(0, shape[0] - 1))] = np.nan
        values[random.random(shape) < {"none": 0, "some": 0.2, "most": 0.8, "all": 2}.get(missing, 0)] = np.nan
    states = {
        cell: draw(st.sampled_from([0, UNWRITTEN, INLINE]))
        for cell in np.ndindex(*(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True)))
        if draw(st.integers(0, 9)) == 0
    }
    order = draw(st.sampled_from([None, tuple(reversed(range(len(shape))))]))
    return chunked(
        values, chunk_shape, f"typed-{draw(st.integers(0, 9))}", padded=draw(st.booleans()), order=order, states=states
    )


def seen_as(case: Case, dtype: str) -> Case:
    """The same bytes as values of another type of that size: booleans, unsigned integers, times."""
    new = np.dtype(dtype)
    if new.kind == "b":
        return case if case.values.dtype != np.int8 else Case(case.array, case.values, case.disk)
    tiles = tuple(
        replace(tile, encodings=tuple(replace(e, dtype=new) for e in tile.encodings)) for tile in case.array.tiles
    )
    fill = np.array(case.array.fill_value).view(new)[()]
    return Case(replace(case.array, dtype=new, tiles=tiles, fill_value=fill), case.values.view(new), case.disk)


@given(st.data())
@settings(max_examples=40)
def test_floats_with_missing_values(data: st.DataObject) -> None:
    case = data.draw(typed(FLOATS))
    methods = data.draw(st.lists(st.sampled_from(EVERY), min_size=1, max_size=5, unique=True))
    if case.values.dtype.kind == "c":
        methods = [method for method in methods if method != "median"] or ["mean"]
    axes = data.draw(axes_of(case.values.ndim))
    compare(case, ..., case.values, methods, axes, data.draw(st.booleans()), data.draw(rules()))


@given(st.data())
@settings(max_examples=20)
def test_infinities(data: st.DataObject) -> None:
    case = data.draw(typed(["<f4", "<f8"]))
    values = case.values.copy()
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    values[random.random(values.shape) < 0.2] = np.inf
    if data.draw(st.booleans()):
        values[random.random(values.shape) < 0.2] = -np.inf
    case = chunked(values, (2,) * values.ndim, "infinities")
    methods = ["sum", "mean", "min", "max", "std", "var", "prod", "count", "any", "all"]
    axes, given = data.draw(axes_of(values.ndim)), data.draw(rules())
    found = reduced(case, methods, axes, **given)
    for method in methods:
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(
                found[method], by_xarray(values, method, axes, False, **given), rtol=1e-4, atol=1e-4
            )


@given(st.data())
@settings(max_examples=30)
def test_integers_and_booleans(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(OTHERS))
    case = data.draw(typed([dtype if dtype != "|b1" else "|i1"]))
    if dtype == "|b1":
        case = chunked(case.values > 0, (2,) * case.values.ndim, "booleans")
    elif np.dtype(dtype).kind == "u":
        case = seen_as(case, dtype)
    methods = data.draw(st.lists(st.sampled_from(EVERY), min_size=1, max_size=5, unique=True))
    axes = data.draw(axes_of(case.values.ndim))
    compare(case, ..., case.values, methods, axes, data.draw(st.booleans()), data.draw(rules()))


@given(st.data())
@settings(max_examples=40)
def test_orthogonal_selections(data: st.DataObject) -> None:
    case = data.draw(changed(data.draw(typed(["<f4", "<i4"]))))
    key: list[Any] = []
    values = case.values
    for axis, length in enumerate(values.shape):
        if length and data.draw(st.booleans()):
            index = np.array(data.draw(st.lists(st.integers(-length, length - 1), max_size=8)), np.int64)
            key.append(index)
            values = np.take(values, index, axis)
        else:
            key.append(slice(None))
    methods = data.draw(st.lists(st.sampled_from(EVERY), min_size=1, max_size=4, unique=True))
    compare(case, tuple(key), values, methods, data.draw(axes_of(values.ndim)), False, data.draw(rules()))


# NumPy's own median of durations.
@pytest.mark.filterwarnings("ignore:The 'generic' unit:DeprecationWarning:numpy.lib._nanfunctions_impl")
@given(st.data(), st.sampled_from(["<M8[ns]", ">M8[s]", "<m8[us]", "<m8[s]"]))
@settings(max_examples=30)
def test_times(data: st.DataObject, dtype: str) -> None:
    case = data.draw(typed(["<i8"]))
    step = {"ns": 86400 * 10**9, "us": 3600 * 10**6, "s": 86400}[np.datetime_data(np.dtype(dtype))[0]]
    ticks = case.values * step + 10 * 365 * step
    ticks[
        np.random.default_rng(data.draw(st.integers(0, 9))).random(ticks.shape)
        < data.draw(st.sampled_from([0, 0.3, 1]))
    ] = np.iinfo("i8").min
    case = seen_as(chunked(ticks.astype(dtype[0] + "i8"), (2,) * ticks.ndim, "times"), dtype)
    methods = data.draw(st.lists(st.sampled_from(EVERY), min_size=1, max_size=4, unique=True))
    axes = data.draw(axes_of(case.values.ndim))
    given = {"skipna": data.draw(st.sampled_from([None, True, False]))}
    for method in methods:
        try:
            found = reduced(case, [method], axes, **given)[method]
        except NotImplementedError:
            with pytest.raises(TypeError):
                by_xarray(case.values, method, axes, False, **given)
            continue
        expected = by_xarray(case.values, method, axes, False, **given)
        assert found.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
        if method == "mean":  # ours is exact, xarray's is taken in float64 and cut off
            assert (np.isnat(found) == np.isnat(expected)).all()
            apart = np.abs(found.astype("i8") - expected.astype("i8"))
            assert (apart <= 1 + 1e-15 * np.abs(found.astype("f8"))).all()
        else:
            np.testing.assert_array_equal(found, expected)
