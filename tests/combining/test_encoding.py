"""What is written of a combined dataset is what it held, whatever its files were packed with.

Modules: combining/align.py, combining/arrange.py, combining/cached_archive.py, combining/concat.py,
combining/equality.py, combining/file_names.py, combining/merge_attributes.py, combining/survey.py,
combining/type_check.py, lazy_array/dispatch.py, reducing/known_values.py
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import cftime
import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.combining.merge_attributes import common_items


def test_a_packing_is_kept_whole_or_not_at_all() -> None:
    one = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9, "zlib": True}
    assert common_items([one, dict(one)]) == one
    assert common_items([one, {**one, "scale_factor": 0.25}]) == {"zlib": True}
    assert common_items([one, {"dtype": "i2", "_FillValue": -9, "zlib": True}]) == {"zlib": True}
    assert common_items([{"dtype": "i2"}, {"dtype": "i2", "add_offset": 1.0}]) == {}


@pytest.mark.parametrize("scales", [(0.5, 0.25), (0.5, 0.5)])
def test_to_netcdf_of_files_packed_differently(tmp_path: Path, scales: tuple[float, float]) -> None:
    for number, scale in enumerate(scales):
        made = xr.Dataset({"v": ("x", np.arange(4) * 0.75 + number)}, {"x": np.arange(4) + 4 * number})
        packing = {"dtype": "i2", "scale_factor": scale, "_FillValue": -9}
        made.to_netcdf(tmp_path / f"{number}.nc", engine="netcdf4", encoding={"v": packing})
    combined = insitu.open_mfdataset([tmp_path / "0.nc", tmp_path / "1.nc"])
    combined.to_netcdf(tmp_path / "all.nc", engine="netcdf4")
    with xr.open_dataset(tmp_path / "all.nc", engine="netcdf4") as written:
        np.testing.assert_array_equal(written.v.values, combined.v.values)


def test_what_is_written_of_what_is_not_joined(tmp_path: Path) -> None:
    """A height and latitudes that one file has in float32, another in float64, are written in float64."""
    for number, dtype in enumerate(("f4", "f8")):
        coords = {"x": [number], "lat": ("lat", [0.5, 1.5]), "height": 2.0}
        how = {name: {"dtype": dtype, "zlib": name == "lat"} for name in ("lat", "height")}
        made = xr.Dataset({"v": (("x", "lat"), np.ones((1, 2)))}, coords)
        made.to_netcdf(tmp_path / f"{number}.nc", engine="netcdf4", encoding=how)
    combined = insitu.open_mfdataset(
        [tmp_path / "0.nc", tmp_path / "1.nc"], join="override", compat="override", coords="minimal"
    )
    assert "dtype" not in combined.lat.encoding
    assert combined.lat.encoding["zlib"]
    assert "dtype" not in combined.height.encoding


UNITS = {
    "another date": ("days since 2000-01-01", "days since 1999-12-01"),
    "another unit": ("days since 2000-01-01", "hours since 2000-01-01 00:00:00"),
    "another hour": ("days since 2000-01-01", "hours since 1999-12-31 12:00"),
}


def write_with_bounds(path: Path, start: int, units: tuple[str, str], dtype: str, calendar: str) -> str:
    """Times in the first unit, bounds in the second; from a day on, whole days if they are integers."""
    hours = 24 * start + np.arange(3) * (24 if dtype == "i4" else 6)
    dates = cftime.num2date(hours, "hours since 2000-01-01", calendar=calendar)
    edges = np.stack([dates, dates + timedelta(days=1)], 1)
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("bnds", 2)
        time = file.createVariable("time", dtype, ("time",))
        bounds = file.createVariable("time_bnds", dtype, ("time", "bnds"))
        time.units, bounds.units = units
        time.calendar = bounds.calendar = calendar
        time.bounds = "time_bnds"
        time[:] = cftime.date2num(dates, units[0], calendar)
        bounds[:] = cftime.date2num(edges, units[1], calendar)
    return str(path)


@pytest.mark.parametrize("calendar", ["standard", "noleap"])
@pytest.mark.parametrize("dtype", ["i4", "f8"])
@pytest.mark.parametrize("case", UNITS)
def test_times_whose_units_differ_are_written(tmp_path: Path, case: str, dtype: str, calendar: str) -> None:
    """Of times and of their bounds; also where the user gives the units of the times."""
    one, other = UNITS[case]
    how: tuple[str, str] = (dtype, calendar)
    both = [
        write_with_bounds(tmp_path / f"a{n}.nc", 3 * n, (units, units), *how) for n, units in enumerate((one, other))
    ]
    bounds = [
        write_with_bounds(tmp_path / f"b{n}.nc", 3 * n, (one, units), *how) for n, units in enumerate((one, other))
    ]
    for paths in (both, bounds):
        with xr.open_mfdataset(paths, engine="netcdf4") as ds:
            expected = ds.load()
        for given in ({}, {"units": "hours since 1990-01-01", "dtype": "f8"}):
            for number, (write, form) in enumerate((("to_netcdf", {}), ("to_zarr", {"zarr_format": 2}))):
                found = insitu.open_mfdataset(paths)
                found.time.encoding.update(given)
                target = tmp_path / f"{Path(paths[0]).name}{bool(given)}{number}"
                getattr(found, write)(target, **form)
                with xr.open_dataset(target, engine="zarr" if number else "netcdf4") as back:
                    for name in ("time", "time_bnds"):
                        assert back[name].values.tolist() == expected[name].values.tolist(), (write, given, name)


def test_durations_whose_units_differ_are_written(tmp_path: Path) -> None:
    for number, units in enumerate(("days", "hours")):
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "w") as file:
            file.createDimension("x", 2)
            lead = file.createVariable("lead", "i4", ("x",))
            lead.setncatts({"units": units, "dtype": "timedelta64[ns]"})
            lead[:] = [1, 5]
    paths = [str(tmp_path / f"{number}.nc") for number in range(2)]
    how = {"combine": "nested", "concat_dim": "x"}
    insitu.open_mfdataset(paths, **how).to_zarr(tmp_path / "x.zarr", zarr_format=2)
    with xr.open_mfdataset(paths, engine="netcdf4", **how) as expected, xr.open_zarr(tmp_path / "x.zarr") as found:
        assert found.lead.values.tolist() == expected.lead.values.tolist()
