"""A small archive for the examples: a year of daily maps, no two files packed alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr


def make(folder: str = "archive", *, alike: bool = False) -> list[Path]:
    """Write twelve files; `alike`: chunked and packed in the same way."""
    Path(folder).mkdir(exist_ok=True)
    lat, lon = np.linspace(-87.5, 87.5, 36), np.arange(0, 360, 5.0)
    year = pd.date_range("2020-01-01", "2020-12-31")
    for month in range(1, 13):
        time = year[year.month == month]
        season = np.cos(2 * np.pi * (time.dayofyear.values - 20) / 366)[:, None, None]
        high = np.sin(np.deg2rad(lat))[:, None]
        tas = 288 - 30 * high**2 - 10 * season * high + 2 * np.sin(np.deg2rad(lon))
        scale = 0.001 if alike else 0.001 + 0.0001 * month
        chunks = (1, 36, 72) if alike or month > 6 else (10, 18, 72)
        ds = xr.Dataset({"tas": (("time", "lat", "lon"), tas, {"units": "K"})}, {"time": time, "lat": lat, "lon": lon})
        how = {
            "dtype": "i2",
            "scale_factor": scale,
            "add_offset": 273.0,
            "_FillValue": -32768,
            "zlib": True,
            "chunksizes": chunks,
        }
        when = {"units": "days since 2020-01-01", "dtype": "f8", "chunksizes": (1,)}
        ds.to_netcdf(
            f"{folder}/tas_{month:02}.nc",
            engine="netcdf4",
            encoding={"tas": how, "time": when},
            unlimited_dims=["time"],
        )
    return sorted(Path(folder).glob("*.nc"))
