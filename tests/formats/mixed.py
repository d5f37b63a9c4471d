"""One variable, five years, four formats: an archive as they are found."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray
import zarr

__all__ = ["GRIB_ONLY", "NAMES", "five_years", "part"]

NAMES = ["y2020.nc", "y2021.nc", "y2022.nc", "y2023.zarr", "y2024.grib2"]
LATITUDES, LONGITUDES = np.linspace(60, -60, 31), np.arange(0, 360, 22.5)
UNIT = "hours since 2020-01-01"
GRIB_ONLY = ["step", "heightAboveGround", "valid_time"]


def _hours(year: int) -> np.ndarray[Any, Any]:
    days = np.arange(f"{year}-01-01", f"{year + 1}-01-01", dtype="datetime64[D]")[::9]
    return (days - np.datetime64("2020-01-01")).astype("timedelta64[h]").astype(int)


def _values(year: int) -> np.ndarray[Any, Any]:
    count = len(_hours(year))
    return np.random.default_rng(year).normal(280, 10, (count, len(LATITUDES), len(LONGITUDES))).astype(np.float32)


def _netcdf(path: Path, year: int, form: str, packing: tuple[float, float] | None = None, **how: Any) -> None:
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("time", None)
        for name, values in (("latitude", LATITUDES), ("longitude", LONGITUDES)):
            file.createDimension(name, len(values))
            file.createVariable(name, "f8", (name,))[:] = values
        time = file.createVariable("time", "i4", ("time",))
        time.units, time.calendar = UNIT, "standard"
        time[:] = _hours(year)
        dims = ("time", "latitude", "longitude")
        if packing is None:
            variable = file.createVariable("t2m", "f4", dims, **how)
        else:
            variable = file.createVariable("t2m", "i2", dims, fill_value=-32768, **how)
            variable.scale_factor, variable.add_offset = packing
        variable.units = "K"
        variable[:] = _values(year)


def _zarr(path: Path, year: int) -> None:
    root = zarr.open_group(path, mode="w", zarr_format=3)
    for name, values, dims in (
        ("latitude", LATITUDES, ["latitude"]),
        ("longitude", LONGITUDES, ["longitude"]),
        ("time", _hours(year), ["time"]),
        ("t2m", _values(year), ["time", "latitude", "longitude"]),
    ):
        chunks = (5, 10, 16) if len(dims) == 3 else values.shape
        array = root.create_array(name, shape=values.shape, dtype=values.dtype, chunks=chunks, dimension_names=dims)
        array[...] = values
    root["time"].attrs.update(units=UNIT, calendar="standard")
    root["t2m"].attrs["units"] = "K"
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # not part of the specification yet; but a web server cannot be asked what it has
        zarr.consolidate_metadata(path)


def _grib(path: Path, year: int) -> None:
    import eccodes

    moments = np.datetime64("2020-01-01T00") + _hours(year).astype("timedelta64[h]")
    with path.open("wb") as file:
        for moment, values in zip(moments, _values(year), strict=True):
            handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
            keys = {
                "shortName": "2t", "dataDate": int(str(moment)[:10].replace("-", "")), "dataTime": 0,
                "Ni": len(LONGITUDES), "Nj": len(LATITUDES),
                "latitudeOfFirstGridPointInDegrees": 60, "latitudeOfLastGridPointInDegrees": -60,
                "longitudeOfFirstGridPointInDegrees": 0,
                "longitudeOfLastGridPointInDegrees": 337.5, "iDirectionIncrementInDegrees": 22.5,
                "jDirectionIncrementInDegrees": 4, "bitsPerValue": 16,
            }  # fmt: skip
            for key, value in keys.items():
                eccodes.codes_set(handle, key, value)
            eccodes.codes_set_values(handle, values.reshape(-1).astype(np.float64))
            file.write(eccodes.codes_get_message(handle))
            eccodes.codes_release(handle)


def five_years(folder: Path) -> list[Path]:
    """NetCDF-3 for the first year, NetCDF-4 for two more with other chunks and packing, Zarr, GRIB."""
    paths = [folder / name for name in NAMES]
    _netcdf(paths[0], 2020, "NETCDF3_CLASSIC")
    _netcdf(paths[1], 2021, "NETCDF4", (0.01, 280), chunksizes=(4, 31, 8), zlib=True)
    _netcdf(paths[2], 2022, "NETCDF4", (0.02, 270), chunksizes=(7, 10, 16), zlib=True, shuffle=False)
    _zarr(paths[3], 2023)
    _grib(paths[4], 2024)
    return paths


def part(path: Path) -> xarray.Dataset:
    """One year, as xarray opens it."""
    if path.suffix == ".zarr":
        return xarray.open_zarr(path, consolidated=False, chunks=None)
    if path.suffix == ".grib2":
        return xarray.open_dataset(path, engine="cfgrib", backend_kwargs={"indexpath": ""}).drop_vars(GRIB_ONLY)
    return xarray.open_dataset(path, engine="netcdf4")
