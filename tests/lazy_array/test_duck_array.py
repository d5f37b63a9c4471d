"""Virtual arrays are plain duck arrays to xarray: groups, writing, loading and chunking as with NumPy's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.lazy_array.duck_array import LazyArray
from plain_xarray import with_libraries

LENGTHS = {"time": 730, "lat": 6, "lon": 8}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two years of days, with a mask of land that does not depend on time."""
    path = tmp_path_factory.mktemp("duck") / "days.nc"
    random = np.random.default_rng(3)
    ds = xr.Dataset(
        {
            "tas": (tuple(LENGTHS), random.normal(280, 10, tuple(LENGTHS.values())).astype("f4")),
            "pr": (tuple(LENGTHS), random.integers(0, 90, tuple(LENGTHS.values()), "i2")),
            "lsm": (("lat", "lon"), random.random((6, 8)).astype("f4")),
            "bottom": (("lat", "lon"), random.integers(0, 5, (6, 8))),
        },
        {"time": np.arange("2001", "2003", dtype="M8[D]"), "lat": np.arange(6.0), "lon": np.arange(8.0)},
    )
    ds["tas"][5:9, 2] = np.nan
    chunks = {"tas": (100, 6, 8), "pr": (50, 3, 4), "lsm": (3, 4), "bottom": (6, 8)}
    ds.to_netcdf(path, encoding={name: {"zlib": True, "chunksizes": sizes} for name, sizes in chunks.items()})
    return path


@pytest.fixture
def virtual(path: Path) -> Iterator[xr.Dataset]:
    with insitu.open_dataset(path) as ds:
        yield ds


@pytest.fixture(scope="module")
def loaded(path: Path) -> xr.Dataset:
    return xr.load_dataset(path)


def is_virtual(array: xr.DataArray) -> bool:
    return isinstance(array.variable._data, LazyArray)


GROUPED: dict[str, Callable[[xr.Dataset], Any]] = {
    "anomaly of a dataset": lambda ds: (
        ds[["tas", "pr"]].groupby("time.month") - ds[["tas", "pr"]].groupby("time.month").max()
    ),
    "groups by a virtual condition": lambda ds: ds.tas.groupby(ds.lsm > 0.5).max(),
    "groups by a virtual variable": lambda ds: ds.tas.groupby(ds.bottom).min(),
    "bins": lambda ds: ds.tas.groupby_bins("lat", [0, 2, 5]).max(),
    "bins of a virtual variable": lambda ds: ds.tas.groupby_bins(ds.lsm, [0, 0.3, 0.7, 1]).max(),
    "a condition in groups": lambda ds: (ds.tas > 285).groupby("time.year").sum(),
    "resampled": lambda ds: ds.tas.resample(time="MS").max(),
    "first": lambda ds: ds.pr.groupby("time.year").first(),
    "last": lambda ds: ds.tas.resample(time="MS").last(),
    "median": lambda ds: ds.tas.groupby("time.year").median(),
    "quantile": lambda ds: ds.pr.groupby("time.year").quantile(0.25),
    "indexed by a virtual variable": lambda ds: ds.tas.isel(time=ds.bottom),
    "arg of a date": lambda ds: ds.tas.idxmax("time"),
}


@pytest.mark.parametrize("name", GROUPED)
def test_groups_equal_xarray(virtual: xr.Dataset, loaded: xr.Dataset, name: str) -> None:
    expected = GROUPED[name](loaded)
    for _ in range(2):
        xr.testing.assert_identical(GROUPED[name](virtual).compute(), expected)


@pytest.mark.parametrize("name", ["a condition in groups", "resampled", "first", "median"])
def test_groups_stream_with_flox_installed(virtual: xr.Dataset, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flox = pytest.importorskip("flox")
    monkeypatch.setattr(flox, "groupby_reduce", None)  # flox is there, and is not called
    monkeypatch.setattr("flox.xarray.xarray_reduce", None)
    with with_libraries():
        GROUPED[name](virtual).compute()


def test_no_option_of_xarray_is_changed(virtual: xr.Dataset) -> None:
    before = dict(xr.get_options())

    def watch(length: int) -> bool:
        virtual.tas.isel(time=slice(40)).rolling(time=length).mean().compute()
        return dict(xr.get_options()) == before

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(watch, range(3, 20)))


def test_loading_gives_values(path: Path, loaded: xr.Dataset) -> None:
    for load in (
        lambda ds: ds.load(),
        lambda ds: ds.compute(),
        lambda ds: ds.assign(
            tas=ds.tas.variable.compute(), pr=ds.pr.load(), lsm=ds.lsm.compute(), bottom=ds.bottom.load()
        ),
        lambda ds: asyncio.run(ds.load_async()),
        lambda ds: xr.DataTree.from_dict({"/": ds[["lsm"]], "/a/b": ds.drop_vars("lsm")}).load().to_dict(),
    ):
        with insitu.open_dataset(path) as ds:
            found = load(ds)
            if isinstance(found, dict):
                found = xr.merge([part.dataset if isinstance(part, xr.DataTree) else part for part in found.values()])
            xr.testing.assert_identical(found.drop_attrs(), loaded.drop_attrs())
            assert not any(map(is_virtual, found.data_vars.values()))


def test_a_virtual_array_has_no_chunks(virtual: xr.Dataset) -> None:
    assert virtual.tas.chunks is None
    assert not virtual.chunks
    assert is_virtual(virtual.tas)
    assert isinstance(virtual.tas.data, LazyArray)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "encoding",
    [{"chunks": (70, 4, 5)}, {"chunks": (7, 2, 8), "shards": (70, 6, 8)}],
    ids=["chunks", "shards"],
)
def test_writing_is_aligned_with_the_target(
    virtual: xr.Dataset, loaded: xr.Dataset, tmp_path: Path, encoding: dict[str, Any], zarr_format: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if "shards" in encoding and zarr_format == 2:
        pytest.skip("Zarr V2 has no shards")
    import zarr

    written = []
    original = zarr.Array.__setitem__

    def watch(self: Any, key: Any, value: Any) -> None:
        if self.ndim == 3:
            written.append((key, self.shards or self.chunks))
        original(self, key, value)

    monkeypatch.setattr(zarr.Array, "__setitem__", watch)
    with insitu.options(block_bytes=40_000):
        virtual[["tas"]].to_zarr(
            tmp_path / "x.zarr", encoding={"tas": encoding}, zarr_format=zarr_format, consolidated=False
        )
    assert len(written) > 1
    for key, sizes in written:
        assert all(part.start % size == 0 for part, size in zip(key, sizes, strict=True))
    found = xr.load_dataset(tmp_path / "x.zarr", engine="zarr", consolidated=False)
    xr.testing.assert_identical(found, loaded[["tas"]])


def test_writing_to_a_region(virtual: xr.Dataset, loaded: xr.Dataset, tmp_path: Path) -> None:
    target = tmp_path / "x.zarr"
    encoding = {"tas": {"chunks": (64, 6, 5)}}
    (loaded[["tas"]] * np.nan).to_zarr(target, encoding=encoding, consolidated=False)
    part = virtual[["tas"]].isel(time=slice(30, 500)).drop_vars(["lat", "lon"])
    with insitu.options(block_bytes=40_000):
        part.to_zarr(target, region={"time": slice(30, 500)}, consolidated=False)
    found = xr.load_dataset(target, engine="zarr", consolidated=False)
    np.testing.assert_array_equal(found.tas[30:500], loaded.tas[30:500])
    assert found.tas[:30].isnull().all()
    assert found.tas[500:].isnull().all()


def test_writing_later(virtual: xr.Dataset, loaded: xr.Dataset, tmp_path: Path) -> None:
    virtual.to_zarr(tmp_path / "x.zarr", compute=False, consolidated=False).compute()
    virtual.to_netcdf(tmp_path / "x.nc", compute=False).compute()
    xr.testing.assert_identical(xr.load_dataset(tmp_path / "x.nc"), loaded)
    found = xr.load_dataset(tmp_path / "x.zarr", engine="zarr", consolidated=False)
    xr.testing.assert_identical(found, loaded)


def test_blocks_of_one_array_that_is_cut_twice(virtual: xr.Dataset, loaded: xr.Dataset) -> None:
    """Dask knows blocks by name: those of 100 and of 70 days have different ones."""
    cuts = [virtual.tas.chunk(time=100), virtual.tas.chunk(time=70, lat=2)]
    assert len({cut.data.name for cut in cuts}) == 2
    difference = cuts[0] - cuts[1]
    np.testing.assert_array_equal(difference.values, (loaded.tas - loaded.tas).values)


@pytest.mark.parametrize("dask", ["parallelized", "allowed", "forbidden"])
def test_functions_get_values(virtual: xr.Dataset, loaded: xr.Dataset, dask: Any) -> None:
    def spread(values: Any, axis: int) -> Any:
        if dask != "allowed":
            assert isinstance(values, np.ndarray)
        return np.max(values, axis=axis) - np.min(values, axis=axis)

    def apply(ds: xr.Dataset) -> xr.DataArray:
        found: xr.DataArray = xr.apply_ufunc(
            spread, ds.pr, input_core_dims=[["time"]], kwargs={"axis": -1}, dask=dask, output_dtypes=["i2"]
        )
        return found

    xr.testing.assert_identical(apply(virtual).compute(), apply(loaded))


def test_a_ufunc_stays_virtual(virtual: xr.Dataset, loaded: xr.Dataset) -> None:
    found = xr.apply_ufunc(np.add, virtual.tas, virtual.pr, dask="parallelized", output_dtypes=["f4"])
    assert is_virtual(found)
    xr.testing.assert_identical(found.compute(), xr.apply_ufunc(np.add, loaded.tas, loaded.pr))


def test_anomalies_stay_virtual(virtual: xr.Dataset) -> None:
    anomalies = virtual[["tas", "pr"]].groupby("time.month") - virtual[["tas", "pr"]].groupby("time.month").mean()
    assert is_virtual(anomalies.tas)
    assert is_virtual(anomalies.pr)


def test_beside_dask_arrays(virtual: xr.Dataset, loaded: xr.Dataset) -> None:
    both = virtual.tas + virtual.pr.chunk(time=90)
    np.testing.assert_array_equal(both.values, (loaded.tas + loaded.pr).values)
    found = xr.where(virtual.lsm.chunk() > 0.5, virtual.tas, 0)
    np.testing.assert_array_equal(found.values, xr.where(loaded.lsm > 0.5, loaded.tas, 0).values)


@pytest.mark.parametrize("keywords", [{"method": "map-reduce"}, {"engine": "numpy"}])
def test_keywords_of_flox_change_nothing(virtual: xr.Dataset, loaded: xr.Dataset, keywords: dict[str, Any]) -> None:
    pytest.importorskip("flox")
    xr.testing.assert_identical(
        virtual[["pr"]].groupby("time.month").max(**keywords).compute(), loaded[["pr"]].groupby("time.month").max()
    )
    xr.testing.assert_identical(
        virtual.pr.resample(time="MS").min(**keywords).compute(), loaded.pr.resample(time="MS").min()
    )


@pytest.mark.parametrize("other", ["a", np.array(["a"] * 8), np.datetime64("2001"), None])
def test_types_that_cannot_be_compared(virtual: xr.Dataset, loaded: xr.Dataset, other: Any) -> None:
    for _ in range(2):
        xr.testing.assert_identical((virtual.tas == other).compute(), loaded.tas == other)
        np.testing.assert_array_equal(virtual.pr.data != other, loaded.pr.data != other)
        with pytest.raises(TypeError):
            np.equal(virtual.pr.data, "a")


def test_a_scalar_is_formatted(virtual: xr.Dataset, loaded: xr.Dataset) -> None:
    assert f"{virtual.tas[0, 0, 0]:.2f}" == f"{loaded.tas[0, 0, 0]:.2f}"
    assert f"{(virtual.pr[3, 1, 1] + 1).data:05d}" == f"{(loaded.pr[3, 1, 1] + 1).data:05d}"
    assert f"{virtual.tas.data}" == repr(virtual.tas.data)
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{virtual.tas.data:.2f}"


@pytest.mark.parametrize("count", [-731, -730, 730, 1000])
def test_shift_beyond_the_length(virtual: xr.Dataset, loaded: xr.Dataset, count: int) -> None:
    for _ in range(2):
        for name in ("tas", "pr"):
            xr.testing.assert_identical(virtual[name].shift(time=count).compute(), loaded[name].shift(time=count))
        shifted = virtual.pr.isel(time=slice(0, 0)).shift(time=2, fill_value=7)
        xr.testing.assert_identical(shifted.compute(), loaded.pr.isel(time=slice(0, 0)).shift(time=2, fill_value=7))
        padded = virtual.pr.isel(time=[]).pad(time=2, constant_values=7)
        xr.testing.assert_identical(padded.compute(), loaded.pr.isel(time=[]).pad(time=2, constant_values=7))
