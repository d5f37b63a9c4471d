"""`load_async` of datasets of insitu and of the engine: the values of `load`, all requests at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu
from gated_site import GatedSite
from insitu.errors import SourceError, StaleSourceError
from insitu.lazy_array import LazyArray
from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray
from insitu.reading import ReadContext
from insitu.xarray_bridge import xarray_hooks
from insitu.xarray_bridge.backend_array import InsituArray, to_xarray_lazy
from insitu.xarray_bridge.xarray_hooks import install_hooks
from waiting import LONG

FILES = 50
Open = Callable[[Any], xr.Dataset]
WAYS: dict[str, Open] = {
    "insitu": lambda url: insitu.open_dataset(url, cache=False),
    "engine": lambda url: xr.open_dataset(url, engine="insitu"),
    "engine without cache": lambda url: xr.open_dataset(url, engine="insitu", cache=False),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a packed variable in chunks, texts, and coordinates that label no dimension."""
    made: Path = tmp_path_factory.mktemp("many")
    random = np.random.default_rng(3)
    for number in range(FILES):
        with netCDF4.Dataset(made / f"{number:02d}.nc", "w") as file:
            for name, length in (("time", 6), ("lat", 20), ("lon", 30)):
                file.createDimension(name, length)
            file.createVariable("time", "f8", ("time",))[:] = np.arange(6) + 6 * number
            file["time"].units = "days since 2001-01-01"
            tas = file.createVariable("tas", "i2", ("time", "lat", "lon"), zlib=True, chunksizes=(4, 20, 30))
            tas.setncatts({"scale_factor": 0.5, "coordinates": "height"})
            tas[:] = random.integers(0, 600, (6, 20, 30)) / 2
            file.createVariable("height", "f4", ("lat", "lon"))[:] = random.random((20, 30))
            file.createVariable("name", str, ("lat",))[:] = np.array([f"{number} {i}" for i in range(20)], object)
            file.createVariable("one", "f8", ())[...] = number
    return made


@pytest.fixture
def site(folder: Path) -> Iterator[GatedSite]:
    with GatedSite(folder) as served:
        yield served


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Open:
    return WAYS[request.param]


async def load_all(datasets: list[Any]) -> None:
    await asyncio.gather(*(ds.load_async() for ds in datasets))


def test_fifty_datasets_are_requested_at_once(folder: Path, site: GatedSite, way: Open) -> None:
    datasets = [way(f"{site.url}/{number:02d}.nc") for number in range(FILES)]
    site.hold(FILES)
    asyncio.run(load_all(datasets))
    assert site.most >= FILES
    for number, ds in enumerate(datasets):
        xr.testing.assert_identical(ds, way(folder / f"{number:02d}.nc").load())
        assert all(variable._in_memory for variable in ds.variables.values())


def test_a_dataset_takes_the_requests_of_load(site: GatedSite) -> None:
    counts = []
    for load in (lambda ds: ds.load(), lambda ds: asyncio.run(ds.load_async())):
        with insitu.open_dataset(f"{site.url}/00.nc", cache=False) as ds:
            site.hold(0)
            load(ds)
            counts.append(len(site.requests))
    assert counts[0] == counts[1] > 0


PARTS: dict[str, Callable[[xr.Dataset], Any]] = {
    "an array": lambda ds: ds.tas,
    "a selection": lambda ds: ds.isel(time=slice(1, 5, 2), lat=[3, 1, 7], lon=2),
    "points": lambda ds: ds.isel(lat=xr.DataArray([1, 5], dims="p"), lon=xr.DataArray([2, 0], dims="p")),
    "transposed": lambda ds: ds.transpose("lon", ...),
    "a coordinate": lambda ds: ds.height,
    "texts": lambda ds: ds.name[2:5],
    "a scalar": lambda ds: ds.one,
    "reversed and empty": lambda ds: ds.isel(lat=slice(5, 5, -1)),
    "arithmetic": lambda ds: ds.tas * 2 - ds.height,
}


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_a_dataset(folder: Path, way: Open, part: str) -> None:
    found, expected = (PARTS[part](way(folder / "07.nc")) for _ in range(2))
    asyncio.run(found.load_async())
    xr.testing.assert_identical(found, expected.load())


def test_a_variable(folder: Path, way: Open) -> None:
    variable = way(folder / "07.nc").tas.variable
    asyncio.run(variable.load_async())
    xr.testing.assert_identical(variable, way(folder / "07.nc").tas.variable.load())


def test_engine_arrays_answer_without_hooks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What xarray itself asks of a backend."""
    monkeypatch.setattr(xr.Dataset, "load_async", xr.Dataset.load_async.__wrapped__)  # type: ignore[attr-defined]
    calls = []
    original = InsituArray.async_getitem

    async def note(self: InsituArray, key: Any) -> Any:
        calls.append(key)
        return await original(self, key)

    monkeypatch.setattr(InsituArray, "async_getitem", note)
    ds = xr.open_dataset(folder / "03.nc", engine="insitu")
    lazy = [name for name, variable in ds.variables.items() if not variable._in_memory]
    assert {"tas", "height", "name"} <= set(lazy)
    asyncio.run(ds.load_async())
    assert len(calls) >= 3
    xr.testing.assert_identical(ds, xr.open_dataset(folder / "03.nc", engine="insitu").load())


def test_errors_are_ours(tmp_path: Path, folder: Path, way: Open) -> None:
    path = tmp_path / "a.nc"
    path.write_bytes((folder / "00.nc").read_bytes())
    with GatedSite(tmp_path) as served:
        ds, late = way(f"{served.url}/a.nc"), way(f"{served.url}/a.nc")
        path.write_bytes((folder / "01.nc").read_bytes())
        with pytest.raises(StaleSourceError, match=r"a\.nc"):
            asyncio.run(ds.load_async())
        path.unlink()
        with pytest.raises(SourceError, match=r"a\.nc"):
            asyncio.run(late.load_async())


OBJECTS = 300
"""More than are requested at once."""


def test_a_cancelled_task_makes_no_more_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has requested comes to its end, and nothing follows."""
    values = np.random.default_rng(0).random((OBJECTS, 10))
    for number, row in enumerate(values):
        (tmp_path / f"{number:03d}").write_bytes(row.tobytes())
    ended = threading.Event()
    read_all = xarray_hooks.read_all

    def note(nodes: Any) -> Any:
        try:
            return read_all(nodes)
        finally:
            ended.set()

    monkeypatch.setattr(xarray_hooks, "read_all", note)
    with GatedSite(tmp_path) as served:
        sources = [Source(f"{served.url}/{number:03d}") for number in range(OBJECTS)]
        table = Columns((OBJECTS,), sources, np.arange(OBJECTS), np.asarray(0), np.asarray(80))
        tile = Tile((Axis.regular(OBJECTS * 10, 10),), (Encoding(np.dtype("<f8")),), table)
        lazy = LazyArray(VirtualArray.of(tile, dims=["x"]), ReadContext(name="v"))
        install_hooks()
        for ds in (xr.Dataset({"v": ("x", lazy)}), to_xarray_lazy(xr.Dataset({"v": ("x", lazy)}))):
            ended.clear()
            served.hold(10 * OBJECTS)
            asyncio.run(cancel_load(ds, served))
            served.release()
            assert ended.wait(LONG)
            assert len(served.requests) < OBJECTS
            assert not ds.v.variable._in_memory
            asyncio.run(ds.load_async())  # and it can be loaded again
            np.testing.assert_array_equal(ds.v.values, values.ravel())


async def cancel_load(ds: xr.Dataset, site: GatedSite) -> None:
    loading = asyncio.create_task(ds.load_async())
    await asyncio.to_thread(site.wait_for, 4)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
