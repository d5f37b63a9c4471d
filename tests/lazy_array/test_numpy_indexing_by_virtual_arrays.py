"""Virtual arrays as indexers: of virtual arrays, of arrays in memory and of indexes, as with NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values with indices, masks and labels of their dimensions."""
    path = tmp_path_factory.mktemp("indexers") / "a.nc"
    random = np.random.default_rng(5)
    xr.Dataset(
        {
            "tas": (("time", "lat", "lon"), random.normal(size=(7, 4, 5))),
            "bottom": (("lat", "lon"), random.integers(-2, 5, (4, 5))),
            "order": ("time", random.permutation(7).astype("i2")),
            "some": ("time", random.random(7) < 0.5),
            "labels": ("point", [2.0, 0.0, 3.0]),
            "one": ((), 3),
        },
        {"time": np.arange("2001-01-01", "2001-01-08", dtype="M8[D]"), "lat": np.arange(4.0)},
    ).to_netcdf(path)
    return path


@pytest.fixture
def virtual(path: Path) -> Iterator[xr.Dataset]:
    with insitu.open_dataset(path) as ds:
        yield ds


CASES: dict[str, Callable[[xr.Dataset], Any]] = {
    "an array of one dimension": lambda ds: ds.isel(time=ds.order.drop_vars("time")),
    "an array of two dimensions": lambda ds: ds.isel(time=ds.bottom),
    "a scalar": lambda ds: ds.isel(time=ds.one),
    "a scalar with a list": lambda ds: ds.tas.isel(time=ds.one, lat=[2, 0]),
    "a scalar with an array": lambda ds: ds.tas.isel(time=ds.one, lon=ds.bottom[:, 2] + 0),
    "a mask": lambda ds: ds.isel(time=ds.some),
    "a mask of a formula": lambda ds: ds.tas.isel(time=ds.order * 2 > 5),
    "a variable": lambda ds: ds.tas.variable[ds.order.variable],
    "bare": lambda ds: ds.tas[ds.order.data],
    "by name": lambda ds: ds.tas[{"time": ds.one, "lon": ds.bottom[0].drop_vars("lat")}],
    "labels": lambda ds: ds.sel(lat=ds.labels),
    "a label": lambda ds: ds.tas.sel(lat=ds.labels[0], method="nearest"),
    "values in memory": lambda ds: ds.tas.compute().isel(time=ds.order.drop_vars("time")),
    "values in memory by a scalar": lambda ds: ds.compute().isel(time=ds.one),
    "an index": lambda ds: ds.time[ds.one],
    "labels to interpolate at": lambda ds: ds.tas.interp(lat=ds.labels),
    "bare labels to interpolate at": lambda ds: ds.tas.interp(lat=ds.labels.data),
    "sorted": lambda ds: ds.sortby("order"),
    "of argmax": lambda ds: ds.tas.isel(ds.tas.argmax(["time", "lat"])),
    "dropped": lambda ds: ds.tas.where(ds.some, drop=True),
    "a lag": lambda ds: ds.tas.isel(time=slice(ds.one.data, None)),
}


@pytest.mark.parametrize("name", CASES)
def test_indexing_equals_xarray(path: Path, virtual: xr.Dataset, name: str) -> None:
    expected = CASES[name](xr.load_dataset(path))
    for _ in range(2):
        assert expected.identical(CASES[name](virtual).compute())


@pytest.mark.parametrize("name", ["order", "one", "some", "bottom"])
def test_writing_at_a_virtual_index(path: Path, virtual: xr.Dataset, name: str) -> None:
    def write(ds: xr.Dataset) -> xr.DataArray:
        written = ds.tas.copy()
        index = ds[name].variable if name != "bottom" else ds[name].variable[0]
        written[{"time": index}] = -1.0
        return written

    expected = write(xr.load_dataset(path))
    assert expected.identical(write(virtual).compute())
