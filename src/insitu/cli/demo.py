"""`insitu demo`: the main job on data made on the spot.

A small archive as archives are: three years of daily maps, each file chunked, packed and compressed in its own way.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.rule import Rule

from insitu.cli.chunk_map import chunk_map
from insitu.cli.screen import results, size
from insitu.cli.tree import as_table
from insitu.errors import InsituError
from insitu.model import census
from insitu.opening import read, scan
from insitu.reading import Tally
from insitu.sources import Counted, open_source

__all__ = ["demo", "make_archive"]

LAT, LON = 60, 120
# year: days of a chunk, degrees of a chunk, compression, packing
HABITS: dict[int, tuple[tuple[int, int, int], dict[str, Any], tuple[float, float] | None]] = {
    2019: ((10, 60, 120), {"compression": "zlib", "complevel": 4, "shuffle": True}, (0.01, 280.0)),
    2020: ((31, 30, 60), {"compression": "zlib", "complevel": 1, "shuffle": True, "fletcher32": True}, (0.004, 275.0)),
    2021: ((1, 60, 120), {}, None),
}


def demo(
    folder: Annotated[Path, typer.Argument(help="Where to put the archive.")] = Path("demo-output"),
) -> None:
    """Make a small archive, find every chunk of it, draw where they lie, and read a slab."""
    folder.mkdir(parents=True, exist_ok=True)
    results.print(Rule("an archive of three files, no two alike"))
    files = make_archive(folder)
    for path in files:
        begin = time.perf_counter()
        with Counted(open_source(path)) as source:
            group = scan(source)
        milliseconds = 1000 * (time.perf_counter() - begin)
        results.print(
            f"\n[bold]{path}[/]  {size(path.stat().st_size)}: scanned in {milliseconds:.1f} ms, "
            f"{source.requests} requests, {size(source.bytes)} read"
        )
        results.print(as_table(group))
    results.print(Rule("where the chunks lie"))
    for path in files[:2]:
        results.print(f"[bold]{path.name}[/]")
        results.print(chunk_map(scan(path), results.width))
    results.print(Rule("one slab, read where it lies"))
    for path in files:
        _slab(path)
    results.print(Rule("all of it as one dataset"))
    _one_dataset(files)
    results.print(
        f"\nTry: [bold]insitu info {files[0]} --map[/]   or   [bold]insitu read {files[0]} 'tas[0, ::10, ::20]'[/]"
    )


def _slab(path: Path) -> None:
    """Read a corner of a file and compare it with what the netCDF library gives."""
    netcdf = _netcdf()
    group = scan(path)
    tally = Tally()
    begin = time.perf_counter()
    values = read(group, "tas", np.s_[100:103, 20:30:5, 40:70:10], tally=tally)
    milliseconds = 1000 * (time.perf_counter() - begin)
    with netcdf.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        same = np.array_equal(values, file["tas"][100:103, 20:30:5, 40:70:10])
    if not same:
        raise InsituError(f"{path}: the slab differs from what the netCDF library reads")
    array = group.array("tas")
    results.print(
        f"[bold]{path.name}[/]  tas\\[100:103, 20:30:5, 40:70:10]: {tally.chunks} of {census(array).cells} chunks, "
        f"{size(tally.bytes_fetched)} of {size(census(array).nbytes)} fetched, {milliseconds:.1f} ms; "
        f"equal to the netCDF library's: [green]{same}[/]"
    )
    results.print(f"  {np.array2string(values[0], separator=', ')}".replace("\n", "\n  "), markup=False)


def _one_dataset(files: list[Path]) -> None:
    """Open the files as one dataset, and compare with what xarray gives."""
    import xarray as xr  # not at the top: the other verbs do not need it

    from insitu.xarray_bridge import open_mfdataset

    begin = time.perf_counter()
    ds = open_mfdataset(files)
    opened = time.perf_counter() - begin
    results.print(str(ds), markup=False)
    results.print(f"opened in {1000 * opened:.0f} ms; nothing but metadata and coordinates was read")
    begin = time.perf_counter()
    mean = float(ds.tas.sel(lat=slice(-30, 30)).mean())
    seconds = time.perf_counter() - begin
    results.print(f"mean of tas between 30°S and 30°N: {mean:.4f} K, in {1000 * seconds:.0f} ms")
    with xr.open_mfdataset(files, engine="netcdf4", data_vars="minimal") as theirs:
        same = ds.load().identical(theirs.load())
    if not same:
        raise InsituError("the dataset differs from what xarray.open_mfdataset gives")
    results.print(f"identical to xarray.open_mfdataset, value by value: [green]{same}[/]")


def make_archive(folder: Path) -> list[Path]:
    """Write the files; the same every time."""
    netcdf = _netcdf()
    files = []
    for year, (chunks, compression, packing) in HABITS.items():
        days = 366 if year % 4 == 0 else 365
        path = folder / f"tas_{year}.nc"
        with netcdf.Dataset(path, "w") as file:
            file.title = "Made for a demonstration"
            file.Conventions = "CF-1.8"
            for name, length in (("time", None), ("lat", LAT), ("lon", LON)):
                file.createDimension(name, length)
            time_ = file.createVariable("time", "f8", ("time",))
            time_.units = f"days since {year}-01-01"
            time_.calendar = "standard"
            time_[:] = np.arange(days)
            lat = file.createVariable("lat", "f4", ("lat",))
            lat.units = "degrees_north"
            lat[:] = np.linspace(-88.5, 88.5, LAT)
            lon = file.createVariable("lon", "f4", ("lon",))
            lon.units = "degrees_east"
            lon[:] = np.linspace(0, 357, LON)
            kind = "f4" if packing is None else "i2"
            fill = np.float32(1e20) if packing is None else np.int16(-32768)
            tas = file.createVariable(
                "tas", kind, ("time", "lat", "lon"), chunksizes=chunks, fill_value=fill, **compression
            )
            tas.units = "K"
            tas.standard_name = "air_temperature"
            if packing is not None:
                tas.scale_factor, tas.add_offset = packing
            rain = file.createVariable(
                "pr", "f4", ("time", "lat", "lon"), chunksizes=(30, 30, 60), zlib=True, complevel=1
            )
            rain.units = "kg m-2 s-1"
            air, wet = temperatures(year, days), rainfall(year, days)
            for first in range(0, days, 60):  # as models write: step by step, the variables in turn
                last = min(first + 60, days)
                tas[first:last] = air[first:last]
                rain[first:last] = wet[first:last]
        files.append(path)
    return files


def temperatures(year: int, days: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Daily maps of something like air temperature."""
    random = np.random.default_rng(year)
    season = np.sin(2 * np.pi * (np.arange(days) - 105) / 365.25)[:, None, None]
    lat = np.deg2rad(np.linspace(-88.5, 88.5, LAT))[:, None]
    lon = np.deg2rad(np.linspace(0, 357, LON))
    field = 288 - 45 * np.sin(lat) ** 2 + 12 * season * np.sin(lat) + 3 * np.sin(2 * lon + 5 * lat)
    return np.asarray(field + random.normal(0, 0.6, (days, LAT, LON)), np.float32)


def rainfall(year: int, days: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Daily maps of something like rain: mostly none."""
    random = np.random.default_rng(1000 + year)
    wet = random.random((days, LAT, LON)) < 0.3
    return np.where(wet, random.exponential(5e-5, (days, LAT, LON)), 0).astype(np.float32)


def _netcdf() -> Any:
    try:
        import netCDF4
    except ImportError:
        raise InsituError("the demonstration writes NetCDF files", hint="pip install 'insitu[demo]'") from None
    return netCDF4
