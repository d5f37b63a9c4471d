"""What xarray and NumPy do to virtual arrays stays virtual, or streams in bounded memory, and equals loaded data.

Modules: lazy_array/explain.py
"""

from __future__ import annotations

import copy
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from asking import ask_twice, same_bits, with_numpy_only
from insitu import trace
from insitu.errors import CodecError
from insitu.expressions import evaluate as evaluation
from insitu.expressions.chunk_grid import uniform_chunks
from insitu.lazy_array import LazyArray
from insitu.process_options import options
from insitu.reading import ReadContext
from insitu.reducing import expression_values, whole_blocks

SHAPE = (730, 6, 8)
"""Each variable of float32 has 140,160 bytes."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    time = np.arange("2001-01-01", "2003-01-01", dtype="M8[D]").astype("M8[ns]")
    dims = ("time", "lat", "lon")
    ds = xr.Dataset(
        {
            "a": (dims, random.normal(280, 12, SHAPE).astype("f4")),
            "b": (dims, random.normal(0, 5, SHAPE).astype("f4")),
            "c": (dims, random.normal(0, 5, SHAPE).astype("f4")),
            "i": (dims, random.integers(-9, 9, SHAPE).astype("i2")),
            "z": (dims, random.normal(0, 5, SHAPE)),
            "lsm": (("lat", "lon"), random.random(SHAPE[1:])),
        },
        coords={"time": time, "lat": np.linspace(-50, 50, 6), "lon": np.arange(8.0)},
    )
    ds.a[5:9, 2] = np.nan
    path = tmp_path_factory.mktemp("formulas") / "x.nc"
    chunks = {"a": (50, 6, 8), "b": (365, 3, 4), "c": (1, 6, 8)}
    ds.to_netcdf(path, encoding={name: {"zlib": True, "chunksizes": sizes} for name, sizes in chunks.items()})
    return path


@pytest.fixture(scope="module")
def loaded(path: Path) -> xr.Dataset:
    return xr.load_dataset(path)


@pytest.fixture
def virtual(path: Path) -> Iterator[xr.Dataset]:
    with insitu.open_dataset(path) as ds:
        yield ds


def _subtract_in_place(array: xr.DataArray, other: Any) -> xr.DataArray:
    changed = array.copy()
    changed -= other
    return changed


def _climate(ds: xr.Dataset) -> xr.Dataset:
    """In memory, as a climatology mostly is."""
    values = np.arange(12 * 6 * 8, dtype="f4").reshape(12, 6, 8)
    coords = {"month": np.arange(1, 13), "lat": ds.lat, "lon": ds.lon}
    return xr.Dataset(dict.fromkeys("ab", (("month", "lat", "lon"), values + 1)), coords=coords)


VIRTUAL: dict[str, Callable[[xr.Dataset], Any]] = {
    "xr.where": lambda ds: xr.where(ds.a > 280, ds.b, ds.c),
    "np.where of three arrays": lambda ds: ds.a.copy(data=np.where((ds.a > 280).data, ds.b.data, ds.c.data)),
    "apply_ufunc allowed": lambda ds: xr.apply_ufunc(np.hypot, ds.a, ds.b, dask="allowed"),
    "apply_ufunc parallelized": lambda ds: xr.apply_ufunc(np.hypot, ds.a, ds.b, dask="parallelized"),
    "clip": lambda ds: (ds.a - 3).clip(0, 10),
    "clip by an array": lambda ds: ds.a.clip(min=ds.b, max=300),
    "round": lambda ds: (ds.a / 3).round(1),
    "round integers": lambda ds: ds.i.round(),
    "round to tens": lambda ds: ds.i.round(-1),
    "fillna": lambda ds: (ds.a - 3).fillna(0),
    "fillna by an array": lambda ds: ds.a.fillna(ds.b),
    "combine_first": lambda ds: ds.a.combine_first(ds.b),
    "isin": lambda ds: ds.i.isin([1, 2]),
    "isnull": lambda ds: (ds.a - 1).isnull(),
    "where": lambda ds: ds.a.where(ds.b > 0),
    "where by a variable of fewer dimensions": lambda ds: ds.a.where(ds.lsm > 0.5),
    "where other": lambda ds: ds.a.where(ds.b > 0, ds.c),
    "where drop": lambda ds: (ds.a - 1).where(ds.lat > 0, drop=True),
    "astype": lambda ds: (ds.b * 2).astype("i4"),
    "in place": lambda ds: _subtract_in_place(ds.a, 3),
    "in place by an array": lambda ds: _subtract_in_place(ds.a, ds.b),
    "absolute": lambda ds: abs(ds.b),
    "conj": lambda ds: ds.b.conj(),
    "map": lambda ds: ds[["a", "b"]].map(lambda variable: variable * 2).b,
    "dataset arithmetic": lambda ds: (ds[["a", "b"]] * 2 - ds[["a", "b"]].isel(time=0)).a,
    "groups": lambda ds: ds.a.groupby("time.month") - _climate(ds).a,
    "groups of a formula": lambda ds: (ds.a * 2).groupby("time.month") / _climate(ds).a,
    "groups of a dataset": lambda ds: (ds[["a", "b"]].groupby("time.month") - _climate(ds)).b,
    "groups, reversed": lambda ds: _climate(ds).a - ds.a.groupby("time.month"),
    "diff": lambda ds: (ds.a * 2).diff("time"),
    "diff twice": lambda ds: ds.a.diff("time", n=2, label="lower"),
    "shift": lambda ds: (ds.a * 2).shift(time=2),
    "shift of integers": lambda ds: ds.i.shift(time=-2, fill_value=7),
    "roll": lambda ds: (ds.a * 2).roll(lon=3, roll_coords=True),
    "pad": lambda ds: (ds.a * 2).pad(time=2),
    "sortby": lambda ds: (ds.a * 2).sortby(ds.time.dt.day, ascending=False),
    "reindex": lambda ds: (ds.a * 2).reindex(lat=[0.0, 10.0], method="nearest"),
    "points": lambda ds: (ds.a * 2).isel(lat=xr.DataArray([0, 1], dims="p"), lon=xr.DataArray([3, 4], dims="p")),
    "concat": lambda ds: xr.concat([ds.a - 1, ds.b - 1], "kind"),
    "expand and transpose": lambda ds: (ds.a - 1).expand_dims("kind").squeeze().transpose("lon", ...),
    "detrended": lambda ds: ds.z - xr.polyval(ds.time, _trend(ds)),
    "finite": lambda ds: np.isfinite(ds.a) & (ds.b > 0),
}


def _trend(ds: xr.Dataset) -> xr.DataArray:
    """Coefficients in memory, the same for both: what is tested is not the fit."""
    return xr.DataArray([[1e-18, 2e-18], [1.0, 2.0]], dims=("degree", "lon"), coords={"degree": [1, 0]}).isel(lon=0)


@pytest.mark.parametrize("name", VIRTUAL)
def test_stays_virtual(virtual: xr.Dataset, loaded: xr.Dataset, name: str) -> None:
    with trace() as cost:
        found = VIRTUAL[name](virtual)
        repr(found), found._repr_html_()
        assert isinstance(found.variable._data, LazyArray)
    assert cost.bytes == 0
    expected = VIRTUAL[name](loaded)
    assert found.dtype == expected.dtype
    if "apply_ufunc" in name:
        xr.testing.assert_allclose(found, expected, rtol=3e-7)  # hypot: 2 ulp
    else:
        xr.testing.assert_identical(ask_twice(lambda: VIRTUAL[name](virtual)), expected)
        xr.testing.assert_identical(ask_twice(found.copy), expected)


class Watch:
    """The bytes that are read of one array at once; arithmetic keeps to small boxes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.largest = 0
        original = evaluation.read_arrays

        def watch(requests: Any, **how: Any) -> Any:
            found = original(requests, **how)
            self.largest = max(self.largest, *(part.nbytes for part in found))
            return found

        monkeypatch.setattr(evaluation, "read_arrays", watch)
        monkeypatch.setattr(options, "block_bytes", BOX)
        monkeypatch.setattr(options, "read_limit", BOX)
        monkeypatch.setattr(evaluation, "BOX_BYTES", BOX)
        monkeypatch.setattr(expression_values, "REDUCED_BYTES", BOX)
        monkeypatch.setattr(whole_blocks, "BLOCK_BYTES", 4 * BOX)


BOX = 10_000
CHUNK = 365 * 6 * 8 * 4
"""The union of chunks of a and b: less is never evaluated at a time."""

STREAMED: dict[str, Callable[[xr.Dataset], Any]] = {
    "groupby": lambda ds: (ds.a - ds.c).groupby("time.month").mean(),
    "groupby maximum": lambda ds: (ds.a * 2).groupby("time.season").max(),
    "grouped anomalies": lambda ds: (ds.c.groupby("time.month") - _climate(ds).a).groupby("time.month").std(),
    "resample": lambda ds: (ds.a - 1).resample(time="MS").max(),
    "resample sum": lambda ds: (ds.c * 2).resample(time="YS").sum(),
    "weighted": lambda ds: (ds.a - 273).weighted(np.cos(np.deg2rad(ds.lat))).mean(("lat", "lon")),
    "weighted by a formula": lambda ds: (ds.a - 273).weighted(ds.lsm * 2).sum("time"),
    "standard deviation": lambda ds: ((ds.a - 273) ** 2).std("time", ddof=1),
    "covariance": lambda ds: xr.cov(ds.a, ds.c, "time"),
    "correlation": lambda ds: xr.corr(ds.a, ds.c, "time"),
    "dot of two": lambda ds: xr.dot(ds.c, ds.c + 1, dim="time"),
    "dot": lambda ds: (ds.c * 2).dot(ds.lat),
    "count": lambda ds: (ds.a * 2).count("time"),
    "any": lambda ds: (ds.a > 320).any("time"),
    "position": lambda ds: (ds.c - 1).argmax("time"),
    "median": lambda ds: (ds.b - 1).median("time"),
}


@pytest.mark.parametrize("name", STREAMED)
def test_streams(
    path: Path, virtual: xr.Dataset, loaded: xr.Dataset, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    watch = Watch(monkeypatch)
    with insitu.open_dataset(path, cache=False) as never_kept:
        found = STREAMED[name](never_kept)
    assert isinstance(found.variable._data, np.ndarray)
    assert 0 < watch.largest <= CHUNK
    with with_numpy_only():
        expected = STREAMED[name](loaded)
    xr.testing.assert_allclose(found, expected, rtol=5e-5, atol=2e-3)
    assert found.dtype == expected.dtype
    assert same_bits(found.values, ask_twice(lambda: STREAMED[name](virtual)).values)


def test_detrending_by_a_fitted_line(virtual: xr.Dataset, loaded: xr.Dataset) -> None:
    """The fit holds the variable, as xarray's does; what is subtracted stays virtual."""

    def detrend(ds: xr.Dataset) -> xr.DataArray:
        fit = ds.z.polyfit("time", deg=1)
        return ds.z - xr.polyval(ds.time, fit.polyfit_coefficients)

    found, expected = detrend(virtual), detrend(loaded)
    assert isinstance(found.variable._data, LazyArray)
    xr.testing.assert_allclose(found, expected, atol=1e-9)


class TestShowing:
    def test_formula(self, virtual: xr.Dataset) -> None:
        shown = repr((np.hypot(virtual.a - 273.15, virtual.b) > 3).data)
        assert "hypot((a - 273.15), b) > 3;" in shown
        assert "reads a: 15 chunks in 1 file" in shown
        assert "reads b: 8 chunks in 1 file" in shown

    def test_html_is_escaped(self, virtual: xr.Dataset) -> None:
        array = virtual.a.rename("<b>").data
        named = LazyArray(array.array, ReadContext(name="<script>"))
        shown = (named < named * 2)._repr_html_()
        assert "&lt;script&gt; &lt; (&lt;script&gt; * 2)" in shown
        assert "<script>" not in shown
        assert "Reads &lt;script&gt;" in shown

    def test_line(self, virtual: xr.Dataset) -> None:
        assert "virtual: a - b" in repr(virtual.assign(d=virtual.a - virtual.b))
        long = (virtual.a * 1.23456789 + virtual.b / 9.87654321).data
        assert len(long._repr_inline_(30)) == 30
        assert long._repr_inline_(30).endswith("…")

    def test_many_leaves(self, virtual: xr.Dataset) -> None:
        total = sum((virtual.a.isel(time=slice(n, n + 5)).drop_vars("time") for n in range(12)), start=0)
        assert "and 4 more" in repr(total.data)
        assert "and 4 more" in total.data._repr_html_()

    def test_what_is_behind(self, virtual: xr.Dataset, path: Path) -> None:
        formula = virtual.a - virtual.b
        assert formula.insitu.sources == [str(path)]
        assert formula.insitu.nbytes_stored == virtual.a.insitu.nbytes_stored + virtual.b.insitu.nbytes_stored
        assert formula.to_dataset(name="d").insitu.nbytes_stored == formula.insitu.nbytes_stored

    def test_values_in_memory_are_not_files(self, virtual: xr.Dataset) -> None:
        shown = repr((virtual.a.groupby("time.month") - _climate(virtual).a).data)
        assert shown.count("reads") == 1


EXPLAINED: dict[str, Callable[[xr.Dataset], xr.DataArray]] = {
    "variable": lambda ds: ds.a,
    "part": lambda ds: ds.a.isel(time=slice(60, 120)),
    "formula": lambda ds: ds.a - ds.b * 2,
    "part of a formula": lambda ds: (ds.a - ds.b).isel(time=3),
    "masked": lambda ds: ds.a.where(ds.lsm > 0.5),
    "groups": lambda ds: ds.a.groupby("time.month") - _climate(ds).a,
    "rolling": lambda ds: ds.a.rolling(time=5).mean(),
}


class TestExplaining:
    """Nothing is read to explain, and what is said comes true."""

    @pytest.mark.parametrize("name", EXPLAINED)
    def test_bytes(self, virtual: xr.Dataset, name: str) -> None:
        formula = EXPLAINED[name](virtual)
        with trace() as cost:
            plan = virtual.insitu.explain(formula)
        assert cost.bytes == 0
        with trace() as cost:
            formula.values  # noqa: B018
        assert plan.bytes_fetched == cost.bytes
        assert plan.shape == formula.shape
        assert plan.server is None

    def test_text(self, virtual: xr.Dataset) -> None:
        shown = repr(virtual.insitu.explain(virtual.a - virtual.b, "mean", "time"))
        assert shown.startswith("mean of a - b\n  result: 6 × 8,")
        assert "in 1 block of at most 140 kB" in shown
        assert "reads a: 15 chunks of 1 file" in shown
        assert "reads b: 8 chunks of 1 file" in shown
        assert "runs here" in shown

    def test_blocks(self, virtual: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
        from insitu.lazy_array import explain

        monkeypatch.setattr(explain, "BOX_BYTES", 40_000)
        plan = virtual.insitu.explain(virtual.a * 2)
        assert plan.blocks == 4
        assert plan.block_bytes <= 40_000
        assert (plan.chunks, plan.parts[0].bytes_decoded) == (15, 750 * 6 * 8 * 4)

    def test_of_a_server(self, path: Path) -> None:
        with insitu.open_dataset(path, active="http://127.0.0.1:1") as ds:
            plan = ds.insitu.explain("a", "mean")
            assert plan.server == "http://127.0.0.1:1"
            assert "only the result travels" in repr(plan)

    def test_what_cannot_be_explained(self, virtual: xr.Dataset) -> None:
        for given, match in (
            ((virtual.time,), "in memory already"),
            ((virtual.a, None, "time"), "needs a reduction"),
            ((virtual.a, "loudest"), "there is no reduction 'loudest'"),
        ):
            with pytest.raises(ValueError, match=match):
                virtual.insitu.explain(*given)


class TestTravelling:
    def test_copies(self, virtual: xr.Dataset, loaded: xr.Dataset) -> None:
        formula, expected = virtual.a - virtual.b, loaded.a - loaded.b
        for made in (copy.copy(formula), copy.deepcopy(formula), pickle.loads(pickle.dumps(formula)), formula.copy()):
            assert isinstance(made.variable._data, LazyArray)
            xr.testing.assert_identical(made.load(), expected)

    def test_dask_has_one_task_a_block(self, virtual: xr.Dataset, loaded: xr.Dataset) -> None:
        dask = pytest.importorskip("dask.array")
        formula = (virtual.a - virtual.b).chunk(time=200)
        assert isinstance(formula.data, dask.Array)
        graph = dict(formula.data.__dask_graph__())
        assert formula.data.numblocks == (4, 1, 1)
        assert len(graph) <= 4 + 1  # and the formula itself
        xr.testing.assert_identical(formula.compute(), loaded.a - loaded.b)

    @pytest.mark.parametrize("form", ["zarr", "netcdf"])
    def test_storing_streams(
        self, virtual: xr.Dataset, loaded: xr.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
    ) -> None:
        watch = Watch(monkeypatch)
        formulas = xr.Dataset({"speed": np.hypot(virtual.a, virtual.c), "smooth": virtual.c.rolling(time=3).mean()})
        if form == "zarr":
            pytest.importorskip("zarr")
            formulas.to_zarr(tmp_path / "x.zarr", zarr_format=2, consolidated=False)
            found = xr.open_zarr(tmp_path / "x.zarr", chunks=None, consolidated=False)
        else:
            formulas.to_netcdf(tmp_path / "x.nc")
            found = xr.open_dataset(tmp_path / "x.nc")
        assert 0 < watch.largest <= CHUNK
        xr.testing.assert_allclose(found.speed.load(), np.hypot(loaded.a, loaded.c), rtol=3e-7)
        xr.testing.assert_allclose(found.smooth.load(), loaded.c.rolling(time=3).mean(), rtol=2e-5, atol=1e-4)
        found.close()


class TestErrors:
    @pytest.fixture
    def damaged(self, path: Path, tmp_path: Path) -> Path:
        """The file with a chunk of b that cannot be decompressed."""
        target = tmp_path / "damaged.nc"
        shutil.copy(path, target)
        with insitu.open_dataset(target) as ds:
            columns = ds.insitu.references("b")["b"]
        with open(target, "r+b") as file:
            file.seek(int(columns["offset"][3]))
            file.write(b"\xff" * int(columns["length"][3]))
        return target

    @pytest.mark.parametrize(
        "compute",
        [
            lambda ds: (ds.a - ds.b).values,
            lambda ds: (ds.a - ds.b).mean("time"),
            lambda ds: (ds.a - ds.b).rolling(time=3).mean().values,
            lambda ds: (ds.a - ds.b).chunk(time=365).mean().compute(),
            lambda ds: xr.corr(ds.a, ds.b, "time"),
        ],
    )
    def test_they_name_the_variable_and_its_file(self, damaged: Path, compute: Any) -> None:
        with insitu.open_dataset(damaged, cache=False) as ds, pytest.raises(CodecError) as raised:
            compute(ds)
        assert "variable b" in str(raised.value)
        assert "damaged.nc" in str(raised.value)

    def test_in_place_arithmetic_keeps_the_type(self, virtual: xr.Dataset) -> None:
        numbers, mask = virtual.i.data, virtual.lsm.data
        with pytest.raises(TypeError, match=r"from dtype\('float32'\) to dtype\('int16'\)"):
            numbers -= virtual.a.data
        with pytest.raises(ValueError, match="which is not"):
            mask -= virtual.z.data


@pytest.mark.parametrize("dask", ["forbidden", "allowed", "parallelized"])
@pytest.mark.parametrize("make", [lambda ds: ds.a, lambda ds: ds.a * 2, lambda ds: ds.a > 280])
def test_functions_of_others_get_the_values(make: Any, dask: Any, path: Path, loaded: xr.Dataset) -> None:
    def apply(data: xr.DataArray, **how: Any) -> Any:
        return xr.apply_ufunc(
            lambda values: np.asarray(values).cumsum(-1),
            data,
            input_core_dims=[["time"]],
            output_core_dims=[["time"]],
            **how,
        )

    expected = apply(make(loaded))
    with insitu.open_dataset(path) as ds:
        assert len(uniform_chunks(ds.a.variable._data.node)[ds.a.dims.index("time")]) > 1
        xr.testing.assert_equal(apply(make(ds), dask=dask, output_dtypes=[expected.dtype]).compute(), expected)


@pytest.mark.parametrize("dask", ["forbidden", "parallelized"])
@pytest.mark.parametrize("make", [lambda ds: ds.a, lambda ds: ds.a * 2])
def test_functions_of_others_may_write_to_the_values(make: Any, dask: Any, path: Path, loaded: xr.Dataset) -> None:
    def cut_off(values: Any) -> Any:
        values[values < 280] = 280
        return values

    with insitu.open_dataset(path) as ds:
        make(ds).sum()  # values are kept
        found = xr.apply_ufunc(cut_off, make(ds), dask=dask, output_dtypes=["f4"])
        xr.testing.assert_equal(found.compute(), make(loaded).clip(min=280))
        xr.testing.assert_equal(ds.a.load(), loaded.a)


def test_functions_of_others_get_values_in_the_order_of_xarray(path: Path, loaded: xr.Dataset) -> None:
    """Numba compiles a function for each order of the elements."""
    seen: list[Any] = []

    def note(values: Any) -> Any:
        seen.append(values.flags.c_contiguous)
        return values.sum(-1)

    with insitu.open_dataset(path) as ds:
        ds.a.values  # noqa: B018 - values are kept
        for data in (ds.a, loaded.a):
            how: dict[str, Any] = {"dask": "parallelized", "output_dtypes": ["f4"]}
            xr.apply_ufunc(note, data, input_core_dims=[["time"]], **how)
    assert seen == [False, False]


@pytest.mark.parametrize("exponent", [0.5, 2, 2.0, -1, -1.0, 0, 1, 3, np.float32(0.5), np.float64(0.5)])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_powers_are_those_of_the_operator(tmp_path: Path, dtype: str, exponent: Any) -> None:
    random = np.random.default_rng(1)
    values = np.concatenate([random.lognormal(0, 2, 500), [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]]).astype(dtype)
    values[:100] *= -1
    stored = xr.Dataset({"v": ("x", values)})
    stored.to_zarr(tmp_path / "x.zarr", encoding={"v": {"chunks": (100,)}}, consolidated=False)
    with np.errstate(all="ignore"), insitu.open_dataset(tmp_path / "x.zarr") as ds:
        expected = values**exponent
        found = (ds.v**exponent).values
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
