"""Dates of several calendars in one dataset stay dates: labels, bounds, data variables,
coordinates, in every way of combining.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cftime
import netCDF4
import numpy as np
import pandas
import pytest
import xarray as xr

import insitu
from fixtures.agreement import compare, identical, open_with_xarray
from fixtures.make_archive import Part, write_all
from insitu.cf.casting import cast_values, to_date_objects
from insitu.errors import CombineError, InsituError, UnsupportedError
from insitu.reading.zarr_store.value_forms import choose_value_form
from insitu.xarray_bridge import open_many, open_mfdataset

CALENDARS = [("standard", "noleap"), ("noleap", "standard"), ("noleap", "360_day"), ("standard", "noleap", "standard")]


def write(path: Path, first: int, calendar: str, unit: str = "days since 2000-01-01", dim: str = "time") -> str:
    """A file with dates as labels, bounds, data variable, coordinate and single value."""
    days = np.arange(2) + first
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension(dim, 2)
        file.createDimension("bnds", 2)
        file.createDimension("x", 3)
        for name, dims, values in (
            ("time", (dim,), days),
            ("time_bnds", (dim, "bnds"), np.stack([days, days + 1], 1)),
            ("stamp", ("x",), np.arange(3)),
            ("seen", (dim, "x"), days[:, None] + np.arange(3)),
            ("issued", (), np.array(first)),
        ):
            variable = file.createVariable(name, "i8", dims)
            if name != "time_bnds" or dim != "time":
                variable.setncatts({"units": unit, "calendar": calendar})
            variable[...] = values
        file["time"].bounds = "time_bnds"
        file.createVariable("v", "f4", (dim, "x"))[:] = days[:, None] + np.arange(3)
        file["v"].coordinates = "seen issued"
    return str(path)


@pytest.fixture(params=CALENDARS, ids="-".join)
def paths(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    return [write(tmp_path / f"{n}.nc", 2 * n, calendar) for n, calendar in enumerate(request.param)]


@pytest.mark.parametrize("concat_dim", ["time", "member", "x"])
@pytest.mark.parametrize("data_vars", ["all", "minimal", "different"])
@pytest.mark.parametrize("coords", ["all", "different"])
def test_nested(paths: list[str], concat_dim: str, data_vars: str, coords: str) -> None:
    options = {"data_vars": data_vars, "coords": coords, "compat": "equals", "join": "override"}
    compare(paths, combine="nested", concat_dim=concat_dim, **options)


def test_labels_are_dates(paths: list[str]) -> None:
    ds = open_mfdataset(paths, combine="nested", concat_dim="time")
    assert {isinstance(label, (pandas.Timestamp, cftime.datetime)) for label in ds.indexes["time"]} == {True}
    for name in ("time", "time_bnds", "seen"):
        kinds = {type(value) for value in ds[name].values.reshape(-1)}
        assert all(issubclass(kind, (pandas.Timestamp, cftime.datetime)) for kind in kinds), (name, kinds)


def test_one_part_of_the_dates(paths: list[str]) -> None:
    ds = open_mfdataset(paths, combine="nested", concat_dim="time")
    for number, path in enumerate(paths):
        with xr.open_dataset(path, engine="netcdf4") as one:
            part = ds.isel(time=slice(2 * number, 2 * number + 2))
            for name in ("time_bnds", "seen"):
                wanted = [pandas.Timestamp(v) if isinstance(v, np.datetime64) else v for v in one[name].values.flat]
                assert part[name].values.reshape(-1).tolist() == wanted


@pytest.mark.parametrize("how", ["by_coords", "names", "preprocess", "merge", "two levels"])
def test_other_ways_of_combining(paths: list[str], how: str) -> None:
    if how == "by_coords":
        compare(paths)
    elif how == "names":
        named = open_mfdataset(paths, concat_dim={"run": list(range(len(paths)))}, join="override")
        wanted = {"combine": "nested", "concat_dim": [pandas.Index(range(len(paths)), name="run")], "join": "override"}
        expected = open_with_xarray(paths, **wanted)
        if isinstance(expected, Exception):  # Dask has no size for objects
            assert "rechunking with object dtype" in str(expected)
            expected = open_mfdataset(paths, **wanted)
        identical(named, expected)
    elif how == "preprocess":
        compare(paths, combine="nested", concat_dim="time", preprocess=lambda ds: ds.reset_coords().drop_vars("time"))
    elif how == "merge":
        compare(paths, combine="nested", concat_dim=None, join="outer")
    else:
        compare([[path] for path in paths], combine="nested", concat_dim=["time", "member"])
        compare([paths, paths], combine="nested", concat_dim=["member", "time"])


def test_what_a_preprocess_computes(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask.array")
    monkeypatch.setattr(open_many, "COMPUTED_LIMIT", 1)
    compare(paths, combine="nested", concat_dim="time", preprocess=lambda ds: ds.assign(v=ds.v + 1))


@pytest.mark.parametrize("how", ["nested", "names", "by_coords"])
def test_labels_that_cannot_be_compared(tmp_path: Path, how: str) -> None:
    """Files with dates of several calendars, not joined along time: xarray raises a bare TypeError."""
    calendars = ("noleap", "360_day")
    paths = [write(tmp_path / f"{n}.nc", n, calendar) for n, calendar in enumerate(calendars)]
    options: dict[str, Any] = {"join": "outer"}
    if how == "nested":
        options |= {"combine": "nested", "concat_dim": "member"}
    elif how == "names":
        options |= {"concat_dim": {"run": [1, 2]}}
    with pytest.raises(CombineError, match=r"Datetime360Day, DatetimeNoLeap"):
        open_mfdataset(paths, **options)


def test_units_of_datetime64_differ(tmp_path: Path) -> None:
    """A file of dates that nanoseconds do not reach."""
    paths = [
        write(tmp_path / "0.nc", 0, "standard"),
        write(tmp_path / "1.nc", 0, "proleptic_gregorian", "days since 3000-01-01"),
    ]
    for unit in ("ns", "us", "s"):
        coder = xr.coders.CFDatetimeCoder(time_unit=unit)
        compare(paths, combine="nested", concat_dim="time", decode_times=coder)


@pytest.mark.parametrize(
    ("name", "other"), [("v", "i4"), ("v", "f8"), ("v", "date"), ("v", "text"), ("t", "f8"), ("t", "date")]
)
def test_durations_and_dates_with_others(tmp_path: Path, name: str, other: str) -> None:
    """As a variable and as the labels of its dimension."""
    for one in ({"units": "days", "dtype": "timedelta64[ns]"}, {"units": "days since 2000-01-01"}):
        paths = [str(tmp_path / f"{one['units'][:6]}_{n}.nc") for n in range(2)]
        for number, path in enumerate(paths):
            with netCDF4.Dataset(path, "w") as file:
                file.createDimension("t", 2)
                kind = {"date": "i4", "text": str}.get(other, other) if number else "i4"
                variable = file.createVariable(name, kind, ("t",))
                variable[:] = np.array(["a", "b"], object) if kind is str else np.arange(2) + 1
                if not number:
                    variable.setncatts(one)
                elif other == "date":
                    variable.setncatts({"units": "days since 2000-01-01", "calendar": "noleap"})
        compare(paths, combine="nested", concat_dim="t")
        compare(paths[::-1], combine="nested", concat_dim="t")


def test_types_without_a_common_one(tmp_path: Path) -> None:
    xr.Dataset({"v": ("t", [1.5])}).to_netcdf(tmp_path / "0.nc", engine="netcdf4")
    xr.Dataset({"v": ("t", np.array(["2000-01-01"], "M8[ns]"))}).to_netcdf(tmp_path / "1.nc", engine="netcdf4")
    with pytest.raises(CombineError, match=r"datetime64.*variable v"):
        open_mfdataset([tmp_path / "0.nc", tmp_path / "1.nc"], combine="nested", concat_dim="t")


def test_archive_with_bounds(tmp_path: Path) -> None:
    paths = write_all(tmp_path, [Part(first=0), Part(first=2, calendar="noleap"), Part(first=4, units=1)])
    compare(paths, combine="nested", concat_dim="time")


def test_zarr_view_refuses_two_calendars(tmp_path: Path) -> None:
    """One calendar is all that Zarr's metadata can say: dates of the other must not become missing
    ones.
    """
    paths = [write(tmp_path / "0.nc", 0, "standard"), write(tmp_path / "1.nc", 2, "noleap")]
    ds = open_mfdataset(paths, combine="nested", concat_dim="time")
    with pytest.raises(UnsupportedError, match="several calendars"):
        choose_value_form(ds.time_bnds.variable._data.array)


@pytest.mark.parametrize("target", ["kept.insitu", "kept.json", "kept.parq"])
def test_saved(tmp_path: Path, target: str) -> None:
    """Labels are kept as values, which have one calendar; the insitu store keeps everything else as
    it is.
    """
    paths = [write(tmp_path / "0.nc", 0, "standard"), write(tmp_path / "1.nc", 2, "noleap")]
    ds = open_mfdataset(paths, combine="nested", concat_dim="time")
    with pytest.raises(UnsupportedError, match=r"several calendars.*variable time"):
        ds.insitu.save(tmp_path / target)
    ds = ds.drop_vars(["time", "issued"])
    if target.endswith(".insitu"):
        ds.insitu.save(tmp_path / target)
        xr.testing.assert_identical(insitu.open_dataset(tmp_path / target).load(), ds.load())
        return
    with pytest.raises(InsituError):
        ds.insitu.save(tmp_path / target)


@pytest.mark.parametrize("unit", ["ns", "us", "s", "D"])
def test_objects_of_dates(unit: str) -> None:
    dates = np.array([["2000-01-01", "NaT"]], f"M8[{unit}]")
    found = to_date_objects(dates)
    assert found.shape == (1, 2)
    assert found[0, 0] == pandas.Timestamp("2000-01-01")
    assert found[0, 1] is pandas.NaT
    assert to_date_objects(np.array([1], "m8[D]")).tolist() == [pandas.Timedelta("1D")]
    assert cast_values(np.array([1, 2]), np.dtype(object)).tolist() == [1, 2]
