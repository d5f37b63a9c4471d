"""Statistics of a virtual dataset equal those of the loaded one, and are computed without holding
it.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu.expressions.evaluate as values
from asking import ask_twice, with_numpy_only
from insitu.lazy_array import numpy_reductions
from insitu.reducing import expression_values, stream
from insitu.sources import trace
from insitu.xarray_bridge import LazyArray, open_dataset, open_mfdataset, options

METHODS = ("sum", "mean", "min", "max", "std", "var", "count", "any", "all", "argmin", "argmax", "prod", "median")
KEYWORDS: dict[str, list[dict[str, Any]]] = {
    **{method: [{}, {"skipna": False}, {"skipna": True}] for method in ("mean", "min", "max", "median")},
    **{method: [{}, {"ddof": 1}, {"skipna": False, "ddof": 2}] for method in ("std", "var")},
    **{method: [{}, {"min_count": 4}, {"min_count": 10_000}, {"skipna": False}] for method in ("sum", "prod")},
}


@pytest.fixture(scope="session")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values of every type that statistics are taken of, with gaps, cut into chunks that do not
    divide the axes.
    """
    path = tmp_path_factory.mktemp("types") / "several.nc"
    random = np.random.default_rng(1)
    shape = (7, 5, 4)
    with netCDF4.Dataset(path, "w") as file:
        for name, length in zip("tyx", shape, strict=True):
            file.createDimension(name, length)
        for dtype in ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
            variable = file.createVariable(
                dtype, dtype, tuple("tyx"), zlib=True, chunksizes=(3, 2, 4), fill_value=False
            )
            data = random.integers(1, 100, shape).astype(dtype)
            if dtype.startswith("f"):
                data[random.random(shape) < 0.3] = np.nan
                data[:, 1, 2] = np.nan
            variable[:] = data
        packed = file.createVariable("packed", "i2", tuple("tyx"), zlib=True, chunksizes=(2, 5, 3), fill_value=7)
        packed.set_auto_maskandscale(False)
        packed.setncatts({"scale_factor": np.float32(0.1), "add_offset": np.float32(3)})
        packed[:] = random.integers(0, 20, shape)
        flag = file.createVariable("flag", "i1", tuple("tyx"), chunksizes=(3, 3, 3))
        flag.setncattr("dtype", "bool")
        flag[:] = random.integers(0, 2, shape)
        for name, units in (("when", "hours since 1990-01-01"), ("late", "days since 2100-01-01")):
            times = file.createVariable(name, "f8", tuple("tyx"), zlib=True, chunksizes=(3, 2, 4), fill_value=-1.0)
            times.setncatts({"units": units})
            times[:] = np.where(random.random(shape) < 0.2, -1, random.integers(0, 9999, shape))
        span = file.createVariable("span", "i8", tuple("tyx"), chunksizes=(3, 2, 4))
        span.setncatts({"units": "seconds", "dtype": "timedelta64[ns]"})
        span[:] = random.integers(0, 9999, shape)
    return path


def outcome(take: Callable[[], Any]) -> Any:
    """What comes of it, or the kind of refusal."""
    try:
        return take()
    except (TypeError, ValueError, NotImplementedError) as refused:
        return "All-NaN" if "All-NaN" in str(refused) else "refused"


def assert_same_result(found: Any, wanted: Any, why: object) -> None:
    if isinstance(wanted, str):
        assert isinstance(found, str), why
        return
    assert not isinstance(found, str), why
    assert found.dtype == wanted.dtype, why
    # float32 is summed in float64 here, in float32 there.
    xr.testing.assert_allclose(found, wanted, rtol=3e-6)
    assert found.dims == wanted.dims


@pytest.mark.filterwarnings("ignore:Degrees of freedom", "ignore:All-NaN", "ignore:Mean of empty", "ignore:overflow")
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero", "ignore:The 'generic' unit")
@pytest.mark.parametrize("method", METHODS)
def test_every_type_and_dimension(several: Path, method: str) -> None:
    virtual, loaded = open_dataset(several), open_dataset(several).load()
    assert {variable.dtype.kind for variable in loaded.values()} == set("fiubMm")
    dims: list[Any] = ["t", "x"] if method.startswith("arg") else [None, "t", "x", ("t", "y"), ("y", "x")]
    parts = [{}, {"t": slice(5, 0, -2), "x": [3, 0]}, {"y": 1}]
    for name in loaded.data_vars:
        if method == "prod" and loaded[name].dtype.kind not in "iuf":
            continue
        for number, dim in enumerate(dims):
            possible = [part for part in parts if "y" not in part or not isinstance(dim, tuple) or "y" not in dim]
            # What is selected is independent of the options: all selections with the first, then one after another.
            cases = [({}, part) for part in possible]
            for turn, keywords in enumerate(KEYWORDS.get(method, [{}])[1:], number):
                cases.append((keywords, possible[turn % len(possible)]))
            for keywords, part in cases:
                requested = virtual[name].isel(part)
                ask = (lambda question: question().load()) if part else ask_twice
                found = outcome(lambda: ask(lambda: getattr(requested, method)(dim, **keywords)))  # noqa: B023
                with with_numpy_only():
                    wanted = outcome(lambda: getattr(loaded[name].isel(part), method)(dim, **keywords))  # noqa: B023
                assert_same_result(found, wanted, (name, dim, keywords, part))


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("keywords", [{}, {"skipna": False}, {"method": "nearest"}, {"keep_attrs": True}], ids=str)
def test_quantiles(several: Path, keywords: dict[str, Any]) -> None:
    names = ["f4", "f8", "i4", "packed"]
    virtual, loaded = open_dataset(several)[names], open_dataset(several)[names].load()
    for q in (0.5, [0.1, 0.9]):
        for dim in ("t", ("t", "x"), None):
            xr.testing.assert_allclose(
                virtual.quantile(q, dim, **keywords).load(), loaded.quantile(q, dim, **keywords), rtol=1e-6
            )


class Watched:
    """How much was read at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.largest = 0
        original = values.read_arrays

        def watched(requests: Any, **how: Any) -> Any:
            found = original(requests, **how)
            self.largest = max(self.largest, *(part.nbytes for part in found))
            return found

        monkeypatch.setattr(values, "read_arrays", watched)
        monkeypatch.setattr(options, "block_bytes", 200)
        monkeypatch.setattr(expression_values, "REDUCED_BYTES", 200)
        monkeypatch.setattr(options, "read_limit", 0)
        monkeypatch.setattr(numpy_reductions, "REUSED_BYTES", 200)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


WITHOUT_HOLDING: dict[str, Callable[[xr.Dataset], Any]] = {
    "weighted mean": lambda ds: ds[["tas"]].weighted(np.cos(np.deg2rad(ds.lat))).mean(("lat", "lon")),
    "weighted sum": lambda ds: ds[["tas", "packed"]].weighted(ds.lat + 100).sum(("time", "lat")),
    "weighted by all": lambda ds: ds[["packed"]].weighted(ds.lat * 0 + ds.lon + 1).mean(),
    "masked": lambda ds: ds[["tas", "packed"]].where(ds.lat + ds.lon > 100).mean("time"),
    "masked, several": lambda ds: ds[["tas"]].where(ds.lat + ds.lon > 100).std(("time", "lon"), ddof=1),
    "masked, where the largest is": lambda ds: ds[["packed"]].where(ds.time.dt.hour + ds.lon > 5).argmax("time"),
    "groups": lambda ds: ds[["tas", "packed"]].groupby("time.day").mean(),
    "groups of hours": lambda ds: ds[["tas"]].groupby("time.hour").max(),
    "days": lambda ds: ds[["tas", "packed"]].resample(time="1D").min(),
    "median": lambda ds: ds[["tas"]].median("time"),
    "quantile": lambda ds: ds[["tas"]].quantile([0.2, 0.7], "time"),
    "count of what is there": lambda ds: ds[["tas"]].notnull().sum("time"),
}


@pytest.mark.parametrize("name", WITHOUT_HOLDING)
def test_without_holding(varied: Path, watched: Watched, name: str) -> None:
    ds = open_dataset(varied).drop_vars(["height", "scalar"])
    found = WITHOUT_HOLDING[name](ds)
    assert all(isinstance(variable.data, np.ndarray) for variable in found.values())
    assert watched.largest <= 1536  # a chunk of packed, of which all has 3840 bytes
    xr.testing.assert_identical(found, ask_twice(lambda: WITHOUT_HOLDING[name](ds)))
    with with_numpy_only():
        xr.testing.assert_allclose(found, WITHOUT_HOLDING[name](ds.load()), rtol=2e-6)


def test_blocks_that_go_to_dask(varied: Path, watched: Watched) -> None:
    dask_array = pytest.importorskip("dask.array")
    ds = open_dataset(varied)[["packed"]].drop_vars(["height", "scalar"])
    found = ds.stack(place=("lat", "lon"))
    assert isinstance(found.packed.data, dask_array.Array)
    xr.testing.assert_allclose(found.load(), ds.load().stack(place=("lat", "lon")), rtol=2e-6)


class TestStatistics:
    def test_one_pass(self, varied: Path) -> None:
        ds = open_dataset(varied)[["tas", "packed"]]
        with trace() as one:
            ds.insitu.stats("mean")
        with trace() as many:
            found = ds.insitu.stats(["min", "max", "mean", "std", "count", "argmax"])
        assert one.bytes > 0
        assert many.bytes == one.bytes
        loaded = ds.load()
        for name in ("tas", "packed"):
            for method in ("min", "max", "mean", "std", "count"):
                xr.testing.assert_allclose(found[f"{name}_{method}"], getattr(loaded[name], method)(), rtol=1e-6)

    def test_dimensions_and_keywords(self, varied: Path) -> None:
        ds = open_dataset(varied)[["tas", "number"]]
        found = ds.insitu.stats(["var", "sum", "median"], dim=["time"], ddof=1, min_count=3, skipna=True)
        loaded = ds.load()
        assert dict(found.sizes) == {"lat": 6, "lon": 8}
        xr.testing.assert_allclose(found.tas_var, loaded.tas.var("time", ddof=1), rtol=1e-5)
        xr.testing.assert_allclose(found.tas_sum, loaded.tas.sum("time", min_count=3), rtol=1e-6)
        xr.testing.assert_allclose(found.number_median, loaded.number.median("time"))
        xr.testing.assert_allclose(loaded.insitu.stats("max", "time").tas_max, loaded.tas.max("time"))

    def test_after_a_mask(self, varied: Path) -> None:
        ds = open_dataset(varied)[["tas"]]
        masked = ds.where(ds.lat + ds.lon > 100)
        assert isinstance(masked.tas.variable._data, LazyArray)
        found = ask_twice(lambda: masked.insitu.stats("mean", "time").tas_mean)
        with with_numpy_only():
            xr.testing.assert_allclose(found, masked.load().tas.mean("time"), rtol=1e-6)

    def test_wrong_words(self, varied: Path) -> None:
        with pytest.raises(TypeError, match="skip_na"):
            open_dataset(varied).insitu.stats("mean", skip_na=True)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two files of 96 MiB each, of which little was ever written: reading them is quick, holding
    them is not allowed.
    """
    folder = tmp_path_factory.mktemp("large")
    for number, contiguous in enumerate((False, True)):
        with netCDF4.Dataset(folder / f"{number}.nc", "w") as file:
            for name, length in (("time", 24), ("y", 1024), ("x", 1024)):
                file.createDimension(name, length)
            file.createVariable("time", "i4", ("time",))[:] = 24 * number + np.arange(24)
            how: dict[str, Any] = {"contiguous": True} if contiguous else {"zlib": True, "chunksizes": (4, 256, 1024)}
            file.createVariable("tas", "f4", ("time", "y", "x"), fill_value=-1.0, **how)[0, :2] = 5
    return [str(folder / f"{number}.nc") for number in range(2)]


def peak(work: Callable[[], Any]) -> int:
    """Bytes of Python's and NumPy's memory that some work takes at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


ALLOWED = 48 << 20


class TestMemory:
    """The array has 192 MiB."""

    @pytest.fixture(autouse=True)
    def _small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(options, "block_bytes", 8 << 20)

    def test_writing_netcdf(self, large: list[str], tmp_path: Path) -> None:
        ds = open_mfdataset(large)
        assert ds.insitu.nbytes_virtual == 192 << 20
        assert peak(lambda: ds.to_netcdf(tmp_path / "copy.nc", engine="netcdf4")) < ALLOWED
        with xr.open_dataset(tmp_path / "copy.nc", engine="netcdf4") as copy:
            xr.testing.assert_equal(copy.isel(y=slice(0, 4)).load(), ds.isel(y=slice(0, 4)).load())

    def test_writing_zarr(self, large: list[str], tmp_path: Path) -> None:
        pytest.importorskip("zarr")
        ds = open_mfdataset(large).drop_encoding()
        assert peak(lambda: ds.to_zarr(tmp_path / "copy.zarr", zarr_format=2, consolidated=False)) < ALLOWED
        copy = xr.open_dataset(tmp_path / "copy.zarr", engine="zarr", consolidated=False)
        xr.testing.assert_equal(copy.isel(y=slice(0, 4)).load(), ds.isel(y=slice(0, 4)).load())

    def test_statistics(self, large: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        ds = open_mfdataset(large)
        with ThreadPoolExecutor(2) as two:  # each thread holds a piece of 16 MiB, however many cores there are
            monkeypatch.setattr(stream, "get_worker_pool", lambda far: two)
            assert peak(lambda: ds.insitu.stats(["mean", "min", "max", "std"])) < 2 * ALLOWED
            assert peak(lambda: ds.tas.where(ds.time > 3).sum(("y", "x"))) < ALLOWED
