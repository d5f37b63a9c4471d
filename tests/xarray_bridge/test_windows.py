"""Windows over virtual arrays (`rolling`, `coarsen`) equal xarray's on loaded data, and nothing is loaded for them.

Modules: lazy_array/windowing.py
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import insitu
from asking import with_numpy_only
from insitu import trace
from insitu.expressions import boxes
from insitu.expressions import evaluate as evaluation
from insitu.lazy_array import LazyArray, windowing
from insitu.process_options import options
from insitu.reducing import expression_values

LENGTHS = {"time": 40, "lat": 6, "lon": 8}
METHODS = ["mean", "sum", "min", "max", "std", "var", "median", "count", "prod", "argmax", "argmin"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(1)
    shape = tuple(LENGTHS.values())
    tas = random.normal(0, 3, shape).astype("f4")
    tas[random.random(shape) < 0.2] = np.nan
    tas[3:20, 2] = np.nan
    ds = xr.Dataset(
        {
            "tas": (tuple(LENGTHS), tas),
            "wind": (tuple(LENGTHS), random.normal(0, 5, shape)),
            "number": (tuple(LENGTHS), random.integers(-9, 9, shape).astype("i2")),
            "flag": (tuple(LENGTHS), random.random(shape) < 0.5),
        },
        coords={"time": np.arange("2001-01-01", "2001-02-10", dtype="M8[D]").astype("M8[ns]"), "lat": np.arange(6.0)},
    )
    path = tmp_path_factory.mktemp("windows") / "x.nc"
    ds.to_netcdf(path, encoding={"tas": {"zlib": True, "chunksizes": (7, 4, 8)}, "wind": {"chunksizes": (1, 6, 8)}})
    return path


@pytest.fixture(autouse=True)
def _numpy_only() -> Iterator[None]:
    """xarray's answers without bottleneck and numbagg, which give other types."""
    with with_numpy_only():
        yield


@pytest.fixture(scope="module")
def loaded(path: Path) -> xr.Dataset:
    return xr.load_dataset(path)


@pytest.fixture(scope="module")
def virtual(path: Path) -> Iterator[xr.Dataset]:
    with insitu.open_dataset(path) as ds:
        yield ds


FORMULAS: dict[str, Any] = {
    "stored": lambda ds: ds.tas,
    "doubles": lambda ds: ds.wind,
    "integers": lambda ds: ds.number,
    "difference": lambda ds: ds.tas - ds.wind,
    "masked": lambda ds: ds.tas.where(ds.wind > 0),
    "transposed": lambda ds: (ds.tas * 2).transpose("lon", "time", "lat"),
    "selected": lambda ds: ds.tas.isel(time=slice(3, 30), lat=2),
}


def assert_same(found: xr.DataArray, expected: xr.DataArray) -> None:
    """Coordinates, types and missing values equal; values to within the rounding of a window's sum.

    NumPy adds in another order where the window lies along the last dimension in memory.
    """
    assert found.dtype == expected.dtype
    tolerance = 2e-5 if expected.dtype == "f4" else 1e-12
    xr.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * 30)
    assert found.attrs == expected.attrs


def _apply(ds: xr.Dataset, formula: str, kind: str, how: dict[str, Any], method: str) -> xr.DataArray:
    windows = getattr(FORMULAS[formula](ds), kind)(**how)
    result: xr.DataArray = getattr(windows, method)()
    return result


@given(data=st.data())
def test_rolling_equals_xarray(virtual: xr.Dataset, loaded: xr.Dataset, data: st.DataObject) -> None:
    formula = data.draw(st.sampled_from(list(FORMULAS)))
    method = data.draw(st.sampled_from(METHODS))
    dims = FORMULAS[formula](loaded).dims
    chosen = data.draw(st.lists(st.sampled_from(dims), min_size=1, max_size=2, unique=True))
    lengths = {dim: data.draw(st.integers(1, 5)) for dim in chosen}
    how: dict[str, Any] = {"dim": lengths, "center": data.draw(st.booleans())}
    how["min_periods"] = data.draw(st.sampled_from([None, 1, 2]))
    if len(chosen) > 1 and method.startswith("arg"):
        method = "max"
    found = _apply(virtual, formula, "rolling", how, method)
    assert isinstance(found.variable._data, LazyArray) or set(chosen) == set(dims)  # then counts are in memory
    expected = _apply(loaded, formula, "rolling", how, method)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "BOX_BYTES", data.draw(st.sampled_from([2000, 1 << 20])))
        keys = {dim: data.draw(_keys(length)) for dim, length in expected.sizes.items()}
        assert_same(found.isel(keys), expected.isel(keys))
        assert_same(found.transpose(), expected.transpose())
        assert_same(found * 2 - FORMULAS[formula](virtual), expected * 2 - FORMULAS[formula](loaded))


@st.composite
def _keys(draw: Any, length: int) -> Any:
    kind = draw(st.sampled_from(["all", "one", "slice", "step", "back", "list"]))
    at = draw(st.integers(0, length - 1))
    return {
        "all": slice(None),
        "one": at,
        "slice": slice(at // 2, at + 1),
        "step": slice(at % 2, None, 3),
        "back": slice(None, None, -1),
        "list": [at, 0, length - 1, at],
    }[kind]


@given(data=st.data())
def test_coarsen_equals_xarray(virtual: xr.Dataset, loaded: xr.Dataset, data: st.DataObject) -> None:
    formula = data.draw(st.sampled_from(list(FORMULAS)))
    method = data.draw(st.sampled_from([name for name in METHODS if not name.startswith("arg")]))
    dims = FORMULAS[formula](loaded).dims
    chosen = data.draw(st.lists(st.sampled_from(dims), min_size=1, max_size=2, unique=True))
    how: dict[str, Any] = {
        "dim": {dim: data.draw(st.integers(1, 5)) for dim in chosen},
        "boundary": data.draw(st.sampled_from(["trim", "pad"])),
        "side": data.draw(st.sampled_from(["left", "right"])),
    }
    found = _apply(virtual, formula, "coarsen", how, method)
    expected = _apply(loaded, formula, "coarsen", how, method)
    assert_same(found, expected)
    keys = {dim: data.draw(_keys(length)) for dim, length in expected.sizes.items()}
    assert_same(found.isel(keys), expected.isel(keys))


@pytest.mark.parametrize("method", ["sum", "max", "min", "mean", "count"])
def test_windows_of_booleans(virtual: xr.Dataset, loaded: xr.Dataset, method: str) -> None:
    assert_same(getattr(virtual.flag.rolling(time=3), method)(), getattr(loaded.flag.rolling(time=3), method)())


@given(data=st.data())
def test_structural_operations_equal_numpy(virtual: xr.Dataset, loaded: xr.Dataset, data: st.DataObject) -> None:
    """Windows that are shown, and their maxima, after random selections, transposes and broadcasts."""
    inner, values = virtual.wind.data[:9], loaded.wind.values[:9]
    lengths = data.draw(st.sampled_from([((3,), (0,)), ((2, 3), (2, 0)), ((4,), (1,))]))
    found = np.lib.stride_tricks.sliding_window_view(inner, *lengths)
    expected = np.lib.stride_tricks.sliding_window_view(values, *lengths)
    if data.draw(st.booleans()):
        axes = tuple(range(-len(lengths[0]), 0))
        found, expected = np.max(found, axis=axes), np.max(expected, axis=axes)
    for _ in range(data.draw(st.integers(1, 5))):
        found, expected = _move(found, expected, data)
        assert isinstance(found, LazyArray)
    np.testing.assert_array_equal(found.read(), expected)
    np.testing.assert_array_equal((found * 2 - found[..., :1]).read(), expected * 2 - expected[..., :1])


def _move(found: Any, expected: Any, data: st.DataObject) -> tuple[Any, Any]:
    kind = data.draw(st.sampled_from(["select", "one", "transpose", "add", "broadcast", "cast"]))
    if kind == "select" and expected.ndim:
        axis = data.draw(st.integers(0, expected.ndim - 1))
        key = data.draw(_keys(expected.shape[axis]).filter(lambda key: not isinstance(key, int)))
        at = (slice(None),) * axis + (np.array(key) if isinstance(key, list) else key,)
        return found[at], expected[at]
    if kind == "one" and expected.ndim > 1:
        axis = data.draw(st.integers(0, expected.ndim - 1))
        at = (slice(None),) * axis + (data.draw(st.integers(0, expected.shape[axis] - 1)),)
        return found[at], expected[at]
    if kind == "transpose":
        order = data.draw(st.permutations(range(expected.ndim)))
        return found.transpose(order), expected.transpose(order)
    if kind == "add" and expected.ndim < 6:
        axis = data.draw(st.integers(0, expected.ndim))
        return np.expand_dims(found, axis), np.expand_dims(expected, axis)
    if kind == "broadcast" and expected.size < 20_000 and expected.ndim < 6:
        shape = (2, *(3 if length == 1 else length for length in expected.shape))
        return np.broadcast_to(found, shape), np.broadcast_to(expected, shape)
    return found + 1, expected + 1


class Watch:
    """The bytes that are read at once, and all that are decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.largest, self.total = 0, 0
        original = evaluation.read_arrays

        def counted(requests: Any, **how: Any) -> Any:
            found = original(requests, **how)
            nbytes = sum(part.nbytes for part in found)
            self.largest, self.total = max(self.largest, nbytes), self.total + nbytes
            return found

        monkeypatch.setattr(evaluation, "read_arrays", counted)


STREAMED: dict[str, Any] = {
    "rolling mean": lambda ds: ds.tas.rolling(time=5).mean(),
    "rolling maximum": lambda ds: ds.tas.rolling(time=5, center=True, min_periods=1).max(),
    "rolling mean of a formula": lambda ds: (ds.tas - ds.wind).rolling(time=4).mean(),
    "rolling in space": lambda ds: ds.wind.rolling(lat=3, lon=3).sum(),
    "rolling twice": lambda ds: ds.wind.rolling(time=3).mean().rolling(time=3).max(),
    "anomaly of a rolling mean": lambda ds: ds.wind - ds.wind.rolling(time=5, center=True).mean(),
    "coarsened": lambda ds: ds.wind.coarsen(time=5, lat=2).mean(),
    "windows": lambda ds: ds.wind.rolling(time=5).construct("window"),
    "integers": lambda ds: ds.number.rolling(time=5).mean(),
    "count of integers": lambda ds: ds.number.rolling(time=5, min_periods=2).count(),
}


@pytest.mark.parametrize("name", STREAMED)
def test_nothing_is_read_before_and_little_at_once(
    path: Path, loaded: xr.Dataset, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The result of 40 time steps is computed in boxes of few."""
    monkeypatch.setattr(evaluation, "BOX_BYTES", 2000)
    with insitu.open_dataset(path, cache=False) as ds:
        with trace() as cost:
            found = STREAMED[name](ds)
            repr(found), found._repr_html_()
        assert cost.bytes == 0
        assert isinstance(found.variable._data, LazyArray)
        watch = Watch(monkeypatch)
        assert_same(found, STREAMED[name](loaded))
        assert watch.largest <= 2 * 4 * 2000 + 1500  # for each of two arrays four times a box; parts of a chunk


def test_what_windows_overlap_is_read_once_for_sum_and_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with insitu.open_dataset(path, cache=False) as ds:
        mean = ds.wind.rolling(time=5).mean()
        watch = Watch(monkeypatch)
        mean.values  # noqa: B018
        assert watch.total <= 1.2 * ds.wind.nbytes


def test_windows_in_the_order_of_a_calendar_are_read_once(
    path: Path, loaded: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows whose dimension is split, where some are missing, as for percentiles of each day of the year."""
    monkeypatch.setattr(evaluation, "BOX_BYTES", 16_000)
    dates = np.delete(np.arange(43), [6, 20, 34])  # months of 14 days, each of which lacks a day
    months = xr.Coordinates.from_pandas_multiindex(
        pd.MultiIndex.from_arrays([dates // 14, dates % 14], names=["month", "day"]), "time"
    )

    def by_day(ds: xr.Dataset) -> xr.DataArray:
        windows = ds.wind.rolling(time=5, center=True, min_periods=1).construct("window")
        return windows.drop_vars("time").assign_coords(months).unstack("time").stack(all=("month", "window"))

    with insitu.open_dataset(path, cache=False) as ds:
        watch = Watch(monkeypatch)
        assert_same(by_day(ds), by_day(loaded))
        assert watch.total <= 1.5 * ds.wind.nbytes


def test_what_fills_gaps_is_read_beside_them(path: Path, loaded: xr.Dataset) -> None:
    longer = np.arange("2001-01-01", "2001-03-01", dtype="M8[D]").astype("M8[ns]")
    with insitu.open_dataset(path, cache=False) as ds:
        with trace() as cost:
            found = (ds.wind * 2).reindex(time=longer).isel(time=slice(38, 50)).load()
        assert cost.bytes == 2 * 6 * 8 * 8  # not the first time step as well
        assert_same(found, (loaded.wind * 2).reindex(time=longer).isel(time=slice(38, 50)))
        assert bool((ds.wind * 2).reindex(time=longer[40:]).isnull().all())


def test_a_reduction_of_a_rolling_mean_streams(path: Path, loaded: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expression_values, "REDUCED_BYTES", 2000)
    monkeypatch.setattr(options, "block_bytes", 2000)
    with insitu.open_dataset(path, cache=False) as ds:
        watch = Watch(monkeypatch)
        found = ds.wind.rolling(time=5).mean().max("time")
        assert isinstance(found.data, np.ndarray)
        assert watch.largest <= 4 * 2000 + 1500
        xr.testing.assert_allclose(found, loaded.wind.rolling(time=5).mean().max("time"))


def test_a_selection_reads_only_its_windows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with insitu.open_dataset(path, cache=False) as ds:
        watch = Watch(monkeypatch)
        ds.wind.rolling(time=5).sum().isel(time=20).values  # noqa: B018
        assert watch.total <= 2 * 5 * 6 * 8 * 8


@pytest.mark.parametrize("method", ["mean", "sum", "max", "std", "count", "median", "prod", "var"])
@pytest.mark.parametrize("formula", ["stored", "doubles", "difference", "integers"])
def test_long_windows_side_by_side_are_streamed_at_once(
    virtual: xr.Dataset, loaded: xr.Dataset, monkeypatch: pytest.MonkeyPatch, method: str, formula: str
) -> None:
    """To hold the chunks of one would take much; one value for each is little."""
    monkeypatch.setattr(windowing, "MOST_BYTES", 1000)
    monkeypatch.setattr(options, "block_bytes", 1000)
    how = {"dim": {"time": 13}, "boundary": "pad"}
    found = _apply(virtual, formula, "coarsen", how, method)
    assert isinstance(found.variable._data, np.ndarray)
    assert_same(found, _apply(loaded, formula, "coarsen", how, method))


def test_one_long_window_is_read_in_parts(path: Path, loaded: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "BOX_BYTES", 2000)
    monkeypatch.setattr(boxes, "MOST_BYTES", 4000)
    with insitu.open_dataset(path, cache=False) as ds:
        watch = Watch(monkeypatch)
        found = ds.wind.rolling(time=30).mean().isel(time=-1)
        assert_same(found, loaded.wind.rolling(time=30).mean().isel(time=-1))
        assert watch.largest <= 4000 < 30 * 6 * 8 * 8


def test_windows_survive_pickling_and_dask(virtual: xr.Dataset, loaded: xr.Dataset) -> None:
    found = virtual.tas.rolling(time=3, center=True).mean()
    expected = loaded.tas.rolling(time=3, center=True).mean()
    assert_same(pickle.loads(pickle.dumps(found)), expected)
    assert_same(found.copy(deep=True), expected)
    pytest.importorskip("dask")
    assert_same(found.chunk(time=10).compute(), expected)


@pytest.fixture
def infinite(tmp_path: Path) -> Path:
    values = np.random.default_rng(2).normal(0, 1, (30, 5)).astype("f4")
    values[3, 1], values[8, 2], values[9, 2], values[12, 3], values[20:26, 4] = np.inf, -np.inf, np.inf, np.nan, np.nan
    hours = np.tile(np.arange(30)[:, None], (1, 5)).astype("M8[h]").astype("M8[ns]")
    path = tmp_path / "infinite.nc"
    xr.Dataset({"x": (("t", "y"), values), "when": (("t", "y"), hours)}).to_netcdf(path)
    return path


@pytest.mark.parametrize("method", METHODS[:9])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_infinite_values(infinite: Path, method: str) -> None:
    with insitu.open_dataset(infinite) as ds, xr.open_dataset(infinite) as expected:
        for length in (2, 5, 8):
            found = getattr(ds.x.rolling(t=length, min_periods=1), method)()
            assert_same(found, getattr(expected.x.load().rolling(t=length, min_periods=1), method)())


def test_warnings_are_as_they_were_asked_for(infinite: Path) -> None:
    with insitu.open_dataset(infinite) as ds:
        with np.errstate(invalid="ignore"):
            quiet = ds.x.rolling(t=2).sum()
        with np.errstate(invalid="raise"):
            loud = ds.x.rolling(t=2).sum()
            assert quiet.values.shape == (30, 5)
        with pytest.raises(FloatingPointError):
            loud.values  # noqa: B018


def test_windows_of_dates(infinite: Path) -> None:
    with insitu.open_dataset(infinite) as ds, xr.open_dataset(infinite) as expected:
        found = ds.when.rolling(t=3).construct("w")
        assert isinstance(found.variable._data, LazyArray)
        xr.testing.assert_identical(found.load(), expected.when.load().rolling(t=3).construct("w"))


def test_weights_of_windows(virtual: xr.Dataset, loaded: xr.Dataset) -> None:
    weights = xr.DataArray([0.25, 0.5, 0.25], dims="window")
    found = virtual.wind.rolling(time=3, center=True).construct("window").dot(weights)
    assert_same(found, loaded.wind.rolling(time=3, center=True).construct("window").dot(weights))
    strided = virtual.wind.rolling(time=4).construct("window", stride=4)
    assert isinstance(strided.variable._data, LazyArray)
    assert_same(strided.mean("window"), loaded.wind.rolling(time=4).construct("window", stride=4).mean("window"))


def test_points_of_windows(virtual: xr.Dataset, loaded: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    at = {"lat": xr.DataArray([0, 5, 2], dims="p"), "time": xr.DataArray([30, 31, -9], dims="p")}
    watch = Watch(monkeypatch)
    found = virtual.wind.rolling(time=3).mean().isel(at)
    assert watch.total < loaded.wind.nbytes / 2
    assert_same(found, loaded.wind.rolling(time=3).mean().isel(at))


def test_libraries_that_load_are_left_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bottleneck and numbagg, where they are installed, would take the values of the whole array."""
    from xarray.computation import rolling

    def load(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the values were asked for")

    monkeypatch.setattr(rolling.DataArrayRolling, "_bottleneck_reduce", load)
    with insitu.open_dataset(path) as ds:
        found = ds.wind.rolling(time=3)._array_reduce(
            array_agg_func=rolling.duck_array_ops.max,
            bottleneck_move_func=load,
            numbagg_move_func=load,
            rolling_agg_func=None,
            keep_attrs=True,
            fillna=-np.inf,
        )
        assert isinstance(found.variable._data, LazyArray)


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric"])
def test_padding_that_repeats_stays_virtual(virtual: xr.Dataset, loaded: xr.Dataset, mode: Any) -> None:
    found = (virtual.tas - 1).pad(lon=(2, 3), time=1, mode=mode)
    assert isinstance(found.variable._data, LazyArray)
    xr.testing.assert_identical(found.load(), (loaded.tas - 1).pad(lon=(2, 3), time=1, mode=mode))


@pytest.mark.parametrize("method", ["sum", "mean", "std", "var", "prod"])
@pytest.mark.parametrize(
    "how", [("rolling", {"time": 9}), ("coarsen", {"time": 8}), ("rolling", {"time": 4, "lon": 3})]
)
def test_sums_of_windows_are_formed_in_float64(path: Path, loaded: xr.Dataset, how: Any, method: str) -> None:
    kind, windows = how
    with xr.set_options(use_bottleneck=False, use_numbagg=False):
        scaled = loaded.tas / 280 if method == "prod" else loaded.tas - 280
        expected = getattr(getattr(scaled.astype("f8"), kind)(**windows, **_trim(kind)), method)().astype("f4")
        opened = insitu.open_dataset(path).tas
        virtual = opened / 280 if method == "prod" else opened - 280
        found = getattr(getattr(virtual, kind)(**windows, **_trim(kind)), method)()
    assert found.dtype == np.float32
    rounding = 1e-14 if method != "prod" else 0
    off = np.abs(found.values.astype("f8") - expected.values)
    assert not (off > np.spacing(np.abs(expected.values)) + rounding).any()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


def _trim(kind: str) -> dict[str, str]:
    return {"boundary": "trim"} if kind == "coarsen" else {}
