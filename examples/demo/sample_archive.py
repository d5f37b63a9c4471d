"""The archive of the demonstration: a year of daily maps, in monthly files that differ.

Chunk shapes, compression and packing change from file to file, as they do in archives that grow
over years. Only `pr` is written the same way in all files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.errors import InsituError

__all__ = ["LAT", "LON", "STYLES", "YEAR", "FileStyle", "land", "make_archive"]

YEAR = 2020
LAT, LON = 90, 180
Field = npt.NDArray[np.float32]


class FileStyle(NamedTuple):
    """Chunks, compression and packing of a file."""

    chunks: tuple[int, int, int]
    compression: dict[str, Any]
    packing: tuple[float, float] | None


_SHUFFLED = {"compression": "zlib", "shuffle": True}
STYLES = (
    FileStyle((10, LAT, LON), {**_SHUFFLED, "complevel": 4}, (0.01, 280.0)),
    FileStyle((10, LAT, LON), {**_SHUFFLED, "complevel": 4}, (0.004, 275.0)),
    FileStyle((31, 45, 90), {**_SHUFFLED, "complevel": 1, "fletcher32": True}, (0.004, 275.0)),
    FileStyle((1, LAT, LON), {}, None),
    FileStyle((31, 30, 60), {"compression": "zstd", "complevel": 3, "shuffle": True}, (0.02, 270.0)),
    FileStyle((5, LAT, LON), {"compression": "bzip2", "complevel": 1}, (0.02, 270.0)),
)
"""Styles of the files; each for two months of the year."""


def make_archive(folder: Path) -> list[Path]:
    """Write the files, the same ones every time, and return their paths."""
    netcdf = _import_netcdf4()
    files = []
    for month in range(1, 13):
        style = STYLES[(month - 1) // 2]
        first, last = (np.datetime64(f"{YEAR + m // 12}-{m % 12 + 1:02}-01") for m in (month - 1, month))
        days: npt.NDArray[np.int64] = np.arange(int((first - np.datetime64(f"{YEAR}-01-01")).astype(int)), 999)[
            : int((last - first).astype(int))
        ]
        path = folder / f"maps_{YEAR}{month:02}.nc"
        with netcdf.Dataset(path, "w") as file:
            file.title, file.Conventions = "Made for a demonstration", "CF-1.8"
            _axes(file, month, days)
            _variable(file, "tas", style, {"units": "K", "standard_name": "air_temperature"})[:] = temperature(days)
            rain = file.createVariable(
                "pr", "f4", ("time", "lat", "lon"), chunksizes=(1, LAT, LON), zlib=True, complevel=1
            )
            rain.units = "kg m-2 s-1"
            rain[:] = rainfall(days)
        files.append(path)
    return files


def _axes(file: Any, month: int, days: npt.NDArray[np.int64]) -> None:
    for name, length in (("time", None), ("lat", LAT), ("lon", LON)):
        file.createDimension(name, length)
    # Some files count days from the start of the year, others from that of the month.
    begin = int(days[0]) if month % 2 else 0
    time = file.createVariable("time", "f8", ("time",), chunksizes=(1,))
    time.units = f"days since {YEAR}-{month if month % 2 else 1:02}-01"
    time.calendar = "standard"
    time[:] = days - begin
    for name, units, values in (("lat", "degrees_north", latitudes()), ("lon", "degrees_east", longitudes())):
        axis = file.createVariable(name, "f4", (name,))
        axis.units = units
        axis[:] = values


def _variable(file: Any, name: str, style: FileStyle, attributes: dict[str, str]) -> Any:
    packed = style.packing is not None
    made = file.createVariable(
        name,
        "i2" if packed else "f4",
        ("time", "lat", "lon"),
        chunksizes=style.chunks,
        fill_value=np.int16(-32768) if packed else np.float32(1e20),
        **style.compression,
    )
    made.setncatts(attributes)
    if style.packing is not None:
        made.scale_factor, made.add_offset = style.packing
    return made


def latitudes() -> Field:
    """Return latitudes, in steps of two degrees."""
    return np.linspace(-89, 89, LAT, dtype=np.float32)


def longitudes() -> Field:
    """Return longitudes from 0 to 358."""
    return np.linspace(0, 358, LON, dtype=np.float32)


def land() -> Field:
    """Return a map of made-up continents: 1 on land, 0 at sea."""
    lat, lon = np.deg2rad(latitudes().astype(float))[:, None], np.deg2rad(longitudes().astype(float))
    height = np.zeros((LAT, LON))
    for at, to, wide, high in (
        (50, 80, 45, 1.2),
        (10, 20, 30, 1.0),
        (45, 260, 32, 1.1),
        (-15, 300, 24, 1.0),
        (-25, 135, 18, 1.0),
        (-85, 0, 22, 1.3),
    ):
        centre, there = np.deg2rad(at), np.deg2rad(to)
        away = np.arccos(
            np.clip(np.sin(lat) * np.sin(centre) + np.cos(lat) * np.cos(centre) * np.cos(lon - there), -1, 1)
        )
        height += high * np.exp(-((away / np.deg2rad(wide)) ** 2))
    ragged = 0.12 * np.sin(7 * lon + 3 * lat) * np.cos(9 * lat) + 0.08 * np.sin(13 * lon - 11 * lat)
    return np.asarray(height + ragged > 0.62, np.float32)


def temperature(days: npt.NDArray[np.int64]) -> Field:
    """Return daily maps of made-up air temperature."""
    random = np.random.default_rng(int(days[0]))
    lat, lon = np.deg2rad(latitudes().astype(float))[:, None], np.deg2rad(longitudes().astype(float))
    season = np.sin(2 * np.pi * (days - 105) / 365.25)[:, None, None]
    swing = 4 + 14 * land()
    field = 300 - 52 * np.sin(lat) ** 2 - 3 * land() + swing * season * np.sin(lat) + 2.5 * np.sin(3 * lon + 5 * lat)
    weather = np.sin(4 * lon[None, None] - 0.35 * days[:, None, None]) * np.cos(2 * lat) ** 2 * 3
    return np.asarray(field + weather + random.normal(0, 0.4, (len(days), LAT, LON)), np.float32)


def rainfall(days: npt.NDArray[np.int64]) -> Field:
    """Return daily maps of made-up rain."""
    random = np.random.default_rng(1000 + int(days[0]))
    wet = random.random((len(days), LAT, LON)) < 0.25
    return np.where(wet, random.exponential(5e-5, wet.shape), 0).astype(np.float32)


def _import_netcdf4() -> Any:
    try:
        import netCDF4
    except ImportError:
        raise InsituError("the demonstration needs the package netCDF4", hint="pip install 'insitu[demo]'") from None
    return netCDF4
