"""Write the small archives of `small_things.py`: the files that people open every day."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["write_small_archives"]


def write_small_archives(folder: Path) -> None:
    """Write them all into a folder; those that exist are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in _WRITERS.items():
        if not (folder / name).exists():
            part = folder / f"part-{name}"
            write(part)
            part.rename(folder / name)


def _few_variables(path: Path) -> None:
    """Three variables of a year of months, compressed."""
    import xarray as xr

    rng = np.random.default_rng(1)
    shape = (12, 45, 90)
    variables: dict[str, Any] = {
        name: (("time", "lat", "lon"), rng.normal(280, 10, shape).astype("f4"), {"units": "K"})
        for name in ("tas", "tasmax", "tasmin")
    }
    _dataset(xr, variables, 12, "month").to_netcdf(path, encoding={name: {"zlib": True} for name in variables})


def _many_variables(path: Path) -> None:
    """200 variables of 100 values, not compressed."""
    import xarray as xr

    rng = np.random.default_rng(2)
    xr.Dataset({f"v{i}": ("x", rng.normal(size=100)) for i in range(200)}).to_netcdf(path)


def _one_record_chunks(path: Path, calendar: str) -> None:
    """Ten years of days in a file of which every record is a chunk, the bounds of time too."""
    import netCDF4

    rng = np.random.default_rng(3)
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time")
        file.createDimension("bnds", 2)
        file.createDimension("lat", 8)
        file.createDimension("lon", 16)
        time = file.createVariable("time", "f8", ("time",), chunksizes=(1,))
        time.units, time.calendar, time.bounds = "days since 2000-01-01", calendar, "time_bnds"
        bounds = file.createVariable("time_bnds", "f8", ("time", "bnds"), chunksizes=(1, 2))
        packed = file.createVariable("pr", "i2", ("time", "lat", "lon"), chunksizes=(1, 8, 16), fill_value=-1)
        packed.setncatts({"scale_factor": 0.01, "add_offset": 3.0})
        packed.set_auto_maskandscale(False)
        days = np.arange(3650.0)
        time[:], bounds[:] = days + 0.5, np.stack([days, days + 1], 1)
        packed[:] = rng.integers(0, 30000, (3650, 8, 16), dtype="i2")


def _records(path: Path) -> None:
    """76 variables of 252 records of one value, NetCDF-3."""
    import xarray as xr

    rng = np.random.default_rng(4)
    ds = xr.Dataset({f"v{i}": ("time", rng.normal(size=252).astype("f4")) for i in range(76)})
    ds.to_netcdf(path, format="NETCDF3_CLASSIC", unlimited_dims=["time"], engine="scipy")


def _texts(path: Path) -> None:
    """Names of variable length, and fixed characters."""
    import xarray as xr

    names = np.array([f"station number {i}" * (1 + i % 3) for i in range(500)], object)
    fixed = np.array([f"{i:08d}".encode() for i in range(500)], "S8")
    xr.Dataset({"name": ("station", names), "code": ("station", fixed)}).to_netcdf(path)


def _scalar(path: Path) -> None:
    import xarray as xr

    xr.Dataset({"height": ((), 2.0, {"units": "m"})}).to_netcdf(path)


def _month(path: Path, number: int) -> None:
    import xarray as xr

    rng = np.random.default_rng(100 + number)
    variables = {"tas": (("time", "lat", "lon"), rng.normal(280, 10, (30, 18, 36)).astype("f4"), {"units": "K"})}
    _dataset(xr, variables, 30, "day", 30 * number).to_netcdf(path, encoding={"tas": {"zlib": True}})


def _days(path: Path) -> None:
    """Five years of daily maxima as one CMIP file holds them."""
    import xarray as xr

    rng = np.random.default_rng(5)
    day = np.arange(1825)
    season = 300 + 8 * np.sin(2 * np.pi * day / 365)[:, None, None]
    values = (season + rng.normal(0, 3, (1825, 10, 20))).astype("f4")
    attributes = {"units": "K", "standard_name": "air_temperature", "cell_methods": "time: maximum within days"}
    ds = _dataset(xr, {"tasmax": (("time", "lat", "lon"), values, attributes)}, 1825, "day")
    ds.to_netcdf(path, encoding={"tasmax": {"zlib": True, "chunksizes": (1, 10, 20)}})


def _steps(path: Path) -> None:
    """Two chunks of a hundred steps each, which are read step by step."""
    import xarray as xr

    rng = np.random.default_rng(6)
    values = np.round(rng.normal(280, 5, (200, 100, 100)), 2).astype("f4")
    ds = _dataset(xr, {"tas": (("time", "lat", "lon"), values, {"units": "K"})}, 200, "day")
    ds.to_netcdf(path, encoding={"tas": {"zlib": True, "chunksizes": (100, 100, 100)}})


def _dataset(xr: Any, variables: dict[str, Any], steps: int, unit: str, first: int = 0) -> Any:
    _, rows, columns = next(iter(variables.values()))[1].shape
    step = np.timedelta64(30 if unit == "month" else 1, "D")
    coords = {
        "time": np.datetime64("2001-01-01", "ns") + (first + np.arange(steps)) * step,
        "lat": np.linspace(-89, 89, rows),
        "lon": np.linspace(0, 355, columns),
    }
    return xr.Dataset(variables, coords=coords)


_WRITERS = {
    "few.nc": _few_variables,
    "many.nc": _many_variables,
    "standard.nc": lambda path: _one_record_chunks(path, "standard"),
    "noleap.nc": lambda path: _one_record_chunks(path, "noleap"),
    "records.nc": _records,
    "texts.nc": _texts,
    "scalar.nc": _scalar,
    "days.nc": _days,
    "steps.nc": _steps,
    **{f"month{i:02d}.nc": lambda path, number=i: _month(path, number) for i in range(20)},  # type: ignore[misc]
}
