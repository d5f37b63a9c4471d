"""Lazy arithmetic: random expressions over random mosaics equal NumPy's on the loaded values."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import insitu
from insitu import trace
from insitu.expressions import evaluate as evaluation
from insitu.expressions.boxes import BoxMemory, iterate_boxes
from insitu.lazy_array import LazyArray
from insitu.model.elementwise import OPERATIONS, UFUNCS
from insitu.reading import ReadContext
from insitu.reducing import ReductionQuery
from insitu.reducing.reduce_expression import reduce_expression
from mosaics import Case, bases, basic_keys

SHAPE = (4, 3, 5)
UNARY = ["negative", "absolute", "sqrt", "square", "floor", "isfinite", "sign", "exp", "invert"]
BINARY = [
    *("add", "subtract", "multiply", "true_divide", "floor_divide", "remainder", "maximum", "minimum", "power"),
    *("greater", "less_equal", "equal", "not_equal", "logical_and", "hypot", "arctan2", "bitwise_or"),
]
NOT_ROUNDED_CORRECTLY = {"exp", "hypot", "arctan2", "power"}
EXACT_UNARY = [name for name in UNARY if name not in NOT_ROUNDED_CORRECTLY]
EXACT_BINARY = [name for name in BINARY if name not in NOT_ROUNDED_CORRECTLY]


@pytest.fixture(autouse=True, scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The sources of random arrays are paths relative to the working directory."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("mosaics"))
    yield
    os.chdir(before)


def _lazy(case: Case, access: ReadContext) -> LazyArray:
    for url, data in case.disk.items():
        Path(url).write_bytes(data)
    return LazyArray(case.array, access)


PLAIN = ReadContext(name="x")


@st.composite
def operands(draw: Any, access: ReadContext = PLAIN) -> tuple[Any, Any]:
    """A virtual array, an array in memory, or a number; beside it what it stands for."""
    kind = draw(st.sampled_from(["virtual", "virtual", "array", "number", "scalar"]))
    if kind == "number":
        number = draw(st.sampled_from([2, -3, 0, 0.5, 1e300, True]))
        return number, number
    if kind == "scalar":
        scalar = draw(st.sampled_from([np.float32(1.5), np.int16(7), np.uint8(200), np.float64(-2)]))
        return scalar, scalar
    lengths = [length if draw(st.booleans()) else 1 for length in SHAPE]
    shape = tuple(lengths[draw(st.integers(0, 2)) :])
    if kind == "array":
        values = np.arange(int(np.prod(shape))).reshape(shape).astype(draw(st.sampled_from(["f4", "f8", "i2", "?"])))
        return values, values.copy()
    case = draw(bases(shape))
    return _lazy(case, access), case.values


@st.composite
def expressions(draw: Any, depth: int = 3, access: ReadContext = PLAIN, exact: bool = False) -> tuple[Any, Any]:
    """A tree, lazy and computed by NumPy; if `exact`, of operations that are rounded correctly."""
    unary, binary = (EXACT_UNARY, EXACT_BINARY) if exact else (UNARY, BINARY)
    if not depth or draw(st.integers(0, 3)) == 0:
        return draw(operands(access))
    kind = draw(st.sampled_from(["unary", "binary", "binary", "where", "clip", "cast", "same"]))
    one = draw(expressions(depth - 1, access, exact))
    if kind == "unary":
        return _apply(draw(st.sampled_from(unary)), [one])
    if kind == "same":  # a shared subtree
        return _apply(draw(st.sampled_from(binary)), [one, _apply("negative", [one])])
    other = draw(expressions(depth - 1, access, exact))
    if kind == "where":
        return _apply("where", [_apply("greater", [one, (10, 10)]), other, draw(operands(access))])
    if kind == "clip":
        return _apply("clip", [one, (2, 2), (1000, 1000)])
    if kind == "cast" and hasattr(one[0], "astype"):
        to = draw(st.sampled_from(["f4", "f8", "i4"]))
        with np.errstate(all="ignore"):
            return one[0].astype(to), one[1].astype(to)
    return _apply(draw(st.sampled_from(binary)), [one, other])


def _apply(name: str, pairs: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """The operation on both sides; where NumPy refuses, so do we, and the first argument stays."""
    function = getattr(np, name)
    with np.errstate(all="ignore"):
        try:
            expected = function(*(pair[1] for pair in pairs))
        except ValueError:  # a negative power of integers: it depends on the values
            return pairs[0]
        except (TypeError, OverflowError) as problem:
            with pytest.raises(type(problem)):
                function(*(pair[0] for pair in pairs))
            return pairs[0]
        return function(*(pair[0] for pair in pairs)), expected


def assert_same(found: Any, expected: Any) -> None:
    """Types equal, values within what transcendental functions may differ by (2 ulp)."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype.kind in "fc":
        np.testing.assert_array_max_ulp(found, expected, 2)
    else:
        np.testing.assert_array_equal(found, expected)


@given(tree=expressions(), data=st.data())
def test_equal_to_numpy(tree: tuple[Any, Any], data: st.DataObject) -> None:
    lazy, expected = tree
    if not isinstance(lazy, LazyArray):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # np.errstate was taken when the tree was built
        assert_same(lazy.read(), expected)
        key = data.draw(basic_keys(expected.shape))
        part, wanted = lazy[key], np.asarray(expected[key], expected.dtype)  # a scalar forgets its byte order
        assert isinstance(part, LazyArray)
        assert_same(part.read(), wanted)
        order = data.draw(st.permutations(range(expected.ndim)))
        assert_same(lazy.transpose(order).read(), expected.transpose(order))
        assert_same(pickle.loads(pickle.dumps(lazy)).read(), expected)


@given(tree=expressions(exact=True))
def test_what_is_rounded_correctly_is_equal_to_the_bit(tree: tuple[Any, Any]) -> None:
    lazy, expected = tree
    if not isinstance(lazy, LazyArray):
        return
    found = lazy.read()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)  # NaN equals NaN
    if expected.dtype.kind == "f":
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))


@given(tree=expressions(), data=st.data())
def test_boxes_equal_the_whole(tree: tuple[Any, Any], data: st.DataObject) -> None:
    lazy, expected = tree
    if not isinstance(lazy, LazyArray) or not expected.ndim:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "BOX_BYTES", data.draw(st.sampled_from([8, 64, 200])))
        assert_same(lazy.read(), expected)
        if expected.dtype.kind == "f" and np.isfinite(expected).all():
            axis = data.draw(st.integers(0, expected.ndim - 1))
            assert_same(np.max(lazy, axis=axis), np.max(expected, axis=axis))


@given(tree=expressions(2))
def test_joined_halves_are_the_whole(tree: tuple[Any, Any]) -> None:
    lazy, expected = tree
    if not isinstance(lazy, LazyArray) or not expected.ndim or expected.shape[0] < 2:
        return
    joined = np.concatenate([lazy[:1], lazy[1:]])
    assert isinstance(joined, LazyArray)
    assert_same(joined.read(), np.concatenate([expected[:1], expected[1:]]))


def test_the_table_is_what_it_says() -> None:
    assert all(OPERATIONS[name] is ufunc for ufunc, name in UFUNCS.items())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two variables of different chunking, and a mask."""
    random = np.random.default_rng(0)
    time = np.arange("2000-01-01", "2002-01-01", dtype="M8[D]").astype("M8[ns]")
    shape = len(time), 6, 8
    ds = xr.Dataset(
        {
            "tas": (("time", "lat", "lon"), random.normal(280, 12, shape).astype("f4")),
            "pr": (("time", "lat", "lon"), random.gamma(0.1, 2e-3, shape).astype("f4")),
            "u": (("time", "lat", "lon"), random.normal(0, 5, shape).astype("f4")),
            "lsm": (("lat", "lon"), random.random((6, 8))),
        },
        coords={"time": time, "lat": np.linspace(-50, 50, 6), "lon": np.arange(8.0)},
    )
    ds.tas[5:9, 2] = np.nan
    path = tmp_path_factory.mktemp("expressions") / "x.nc"
    chunks = {"tas": (100, 6, 8), "pr": (365, 3, 4), "u": (1, 6, 8)}
    ds.to_netcdf(path, encoding={name: {"zlib": True, "chunksizes": sizes} for name, sizes in chunks.items()})
    return path


EVERYDAY: dict[str, Any] = {
    "heavy rain days": lambda ds: (ds.pr * 86400 > 20).sum("time"),
    "frost days": lambda ds: (ds.tas < 273.15).resample(time="YS").sum(),
    "degree days": lambda ds: (ds.tas - 278.15).clip(min=0).sum("time"),
    "anomaly": lambda ds: ds.tas - ds.tas.mean("time"),
    "monthly anomaly": lambda ds: ds.tas.groupby("time.month") - ds.tas.groupby("time.month").mean(),
    "wind speed": lambda ds: np.hypot(ds.u, ds.tas - 280),
    "potential temperature": lambda ds: ds.tas * (1000 / (ds.u + 900)) ** 0.286,
    "land mean": lambda ds: ds.tas.where(ds.lsm > 0.5).weighted(np.cos(np.deg2rad(ds.lat))).mean(("lat", "lon")),
    "root mean square": lambda ds: ((ds.tas - ds.u) ** 2).mean("time") ** 0.5,
    "detrended": lambda ds: ds.tas - (0.001 * (ds.time - ds.time[0]).dt.days + 280),
    "filled": lambda ds: ds.tas.fillna(0) + 1,
    "among": lambda ds: ds.tas.round().isin([280, 281]),
    "units": lambda ds: (ds.tas.astype("f8") - 273.15).round(1),
    "correlation": lambda ds: xr.corr(ds.tas, ds.u, "time"),
    "quantiles": lambda ds: (ds.tas - 273.15).quantile([0.1, 0.9], "time"),
    "where the largest is": lambda ds: (ds.tas - ds.u).fillna(-9e9).argmax("time"),
    "shifted": lambda ds: (ds.tas - 273.15).shift(time=3),
}


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_formulas(path: Path, name: str) -> None:
    formula = EVERYDAY[name]
    with insitu.open_dataset(path) as actual, xr.open_dataset(path) as reference:
        found, expected = formula(actual), formula(reference.load())
        xr.testing.assert_allclose(found, expected, rtol=2e-5, atol=5e-4)  # means: ours are of float64
        assert found.dtype == expected.dtype


def test_two_archives_of_different_chunks_and_types(path: Path, tmp_path: Path) -> None:
    """The root mean square of the difference of a model and an observation."""
    with xr.open_dataset(path) as ds:
        other = (ds[["tas"]].load() + 0.5).astype("f8")
    for number, part in enumerate((other.isel(time=slice(0, 300)), other.isel(time=slice(300, None)))):
        part.to_netcdf(tmp_path / f"{number}.nc", encoding={"tas": {"zlib": True, "chunksizes": (7, 2, 3)}})
    with insitu.open_dataset(path) as model, insitu.open_mfdataset(sorted(tmp_path.glob("*.nc"))) as observed:
        difference = model.tas - observed.tas
        assert difference.insitu.virtual
        assert len(difference.insitu.sources) == 3
        found = (difference**2).mean("time") ** 0.5
        at = difference.isel(time=[299, 300])
    with xr.open_dataset(path) as reference:
        loaded = reference.tas.load() - other.tas
        xr.testing.assert_allclose(found, (loaded**2).mean("time") ** 0.5, rtol=1e-12)
        xr.testing.assert_identical(at.load(), loaded.isel(time=[299, 300]))


def test_nothing_is_read_before_values_are_needed(path: Path) -> None:
    with insitu.open_dataset(path, cache=False) as ds:
        with trace() as cost:
            formula = np.sqrt((ds.tas - ds.u) ** 2 + 1).where(ds.pr > 0, -1).transpose("lon", ...)
            repr(formula)
            part = formula.isel(time=3)
        assert cost.bytes == 0
        assert isinstance(part.data, LazyArray)
        with trace() as cost:
            part.values  # noqa: B018
        whole = (ds.tas.nbytes + ds.u.nbytes + ds.pr.nbytes) // 4
        assert 0 < cost.bytes < whole


def test_shared_parts_are_read_and_computed_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    original = evaluation.read_arrays

    def counted(requests: Any, **how: Any) -> Any:
        read.append(len(requests))
        return original(requests, **how)

    monkeypatch.setattr(evaluation, "read_arrays", counted)
    with insitu.open_dataset(path, cache=False) as ds:
        difference = ds.tas - ds.u
        found = (difference**2 + difference).isel(time=slice(5)).values
    assert read == [2]
    with xr.open_dataset(path) as reference:
        difference = reference.tas.load() - reference.u
        np.testing.assert_array_equal(found, (difference**2 + difference).isel(time=slice(5)).values)


def test_arrays_in_memory_are_snapshots(path: Path) -> None:
    with insitu.open_dataset(path) as ds:
        climate = np.ones(8)
        lazy = ds.lsm * climate
        climate[:] = 5
        np.testing.assert_array_equal(lazy.values, ds.lsm.values)


def test_warnings_are_those_of_numpy(path: Path) -> None:
    with insitu.open_dataset(path) as ds:
        array = ds.lsm.variable._data
        with np.errstate(divide="ignore"):
            quiet = array / 0
        with np.errstate(divide="raise"):
            loud = array / 0
        with np.errstate(divide="raise"):
            assert np.isinf(np.asarray(quiet)).all()
        with pytest.raises(FloatingPointError):
            np.asarray(loud)


def test_long_sums_stay_flat(path: Path) -> None:
    """Operands within operands would exceed Python's limit of calls within each other."""
    with insitu.open_dataset(path) as ds:
        array = ds.lsm.variable._data
        total: Any = array
        for _ in range(150):
            total = np.add(array, total)
        assert isinstance(total, LazyArray)
        np.testing.assert_allclose(total[:2].read(), 151 * ds.lsm.values[:2])


def test_operations_are_counted_once_however_often_they_are_used(path: Path) -> None:
    with insitu.open_dataset(path) as ds:
        array: Any = ds.lsm.variable._data
        for _ in range(199):
            array = array + array
        assert isinstance(array, LazyArray)
        assert len(repr(array)) < 2000
        np.testing.assert_array_equal(np.asarray(array), ds.lsm.values * 2.0**199)
        assert not isinstance(array + array + 1, LazyArray)


def test_a_formula_that_uses_its_parts_very_often(path: Path) -> None:
    """Its parts are used 2^22 times, and visited once each."""
    with insitu.open_dataset(path) as ds:
        array: Any = ds.lsm.variable._data
        values = ds.lsm.values
        for _ in range(22):
            array = array * 0.5 + np.floor(array)
            values = values * 0.5 + np.floor(values)
        assert isinstance(array, LazyArray)
        assert len(repr(array)) + len(array._repr_html_()) < 10_000
        np.testing.assert_array_equal(array[1:, 2].read(), values[1:, 2])
        np.testing.assert_array_equal(np.asarray(array), values)
        again = pickle.loads(pickle.dumps(array))
        np.testing.assert_array_equal(reduce_expression(again.node, ReductionQuery.of("max", 0))["max"], values.max(0))


def test_boxes_are_bounded_whatever_the_chunks(tmp_path: Path) -> None:
    """Chunks that are long along different dimensions: a box of whole chunks of both would be all of it."""
    values = np.random.default_rng(0).random((600, 700)).astype("f4")
    ds = xr.Dataset({"a": (("x", "y"), values), "b": (("x", "y"), values[::-1].copy())})
    chunks = {"a": (600, 7), "b": (6, 700)}
    ds.to_netcdf(tmp_path / "x.nc", encoding={n: {"zlib": True, "chunksizes": c} for n, c in chunks.items()})
    with insitu.open_dataset(tmp_path / "x.nc") as actual:
        product = (actual.a * actual.b).variable._data
        memory = BoxMemory(40_000)
        boxes = list(iterate_boxes(product.node, memory))
        assert max(np.prod([part.stop - part.start for part in box]) for box in boxes) * 4 <= 4 * memory.box
        assert sum(np.prod([part.stop - part.start for part in box]) for box in boxes) == values.size
        found = reduce_expression(product.node, ReductionQuery.of("max", 0), memory=memory)["max"]
        np.testing.assert_array_equal(found, (values * values[::-1]).max(0))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_boxes_that_are_put_together_of_parts(tmp_path: Path, axes: tuple[int, ...]) -> None:
    """As a server with little memory does it: the last bits of sums depend on boxes, not on their parts."""
    values = np.random.default_rng(0).random((300, 350))
    ds = xr.Dataset({"a": (("x", "y"), values), "b": (("x", "y"), values[::-1].copy())})
    chunks = {"a": (300, 7), "b": (6, 350)}
    ds.to_netcdf(tmp_path / "x.nc", encoding={n: {"zlib": True, "chunksizes": c} for n, c in chunks.items()})
    with insitu.open_dataset(tmp_path / "x.nc") as actual:
        product = (actual.a * actual.b).variable._data
        answers = [
            reduce_expression(product.node, ReductionQuery.of(["sum", "std"], axes, keepdims=True), memory=memory)
            for memory in (BoxMemory(400_000), BoxMemory(400_000, part=10_000), BoxMemory(400_000, part=999, at_once=1))
        ]
    for method, found in answers[0].items():
        np.testing.assert_allclose(found, getattr(np, method)(values * values[::-1], axis=axes, keepdims=True))
        assert all(np.array_equal(found, other[method]) for other in answers[1:])


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not say which cores a process has")
def test_threads_are_as_many_as_the_cores_of_the_process() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert evaluation.threads_at_once() == 2
    finally:
        os.sched_setaffinity(0, before)
