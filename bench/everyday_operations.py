"""Forty operations of every day on one variable, each timed at its first and at its tenth use.

The first use is what a script sees: the file is opened, one operation is done, its values are there. The tenth is what
a notebook sees: the same operation again on the same opened dataset, which by then has been used nine times.
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["OPERATIONS", "SHAPES", "check", "time_operations", "write_everyday"]

SHAPES = {100: (25, 2, 2), 10_000: (100, 10, 10), 1_000_000: (400, 50, 50)}
"""Of the variables, by how many elements they have."""
REPEATS = {100: 9, 10_000: 9, 1_000_000: 3}
"""How often a first use is timed in one run, and how often a tenth."""
Operation = Callable[[Any], Any]

OPERATIONS: dict[str, Operation] = {
    "a - number": lambda ds: ds.a - 273.15,
    "(a - number) * number + number": lambda ds: (ds.a - 273.15) * 1.8 + 32,
    "a + b": lambda ds: ds.a + ds.b,
    "exp(a)": lambda ds: _numpy().exp(ds.a / 280),
    "clip": lambda ds: ds.a.clip(270, 290),
    "round": lambda ds: ds.a.round(1),
    "astype": lambda ds: ds.a.astype("f8"),
    "isnull": lambda ds: ds.a.isnull(),
    "fillna": lambda ds: ds.a.fillna(0),
    "where": lambda ds: ds.a.where(ds.a > 280),
    "xr.where": lambda ds: _xarray().where(ds.a > 280, ds.a, 0),
    "isel": lambda ds: ds.a.isel(time=3),
    "isel, a list": lambda ds: ds.a.isel(time=[1, 5, 9], lat=slice(1, None)),
    "sel, nearest": lambda ds: ds.a.sel(lat=12.3, lon=4.5, method="nearest"),
    "sel, a period": lambda ds: ds.a.sel(time=slice("2001-01-05", "2001-01-20")),
    "points": lambda ds: ds.a.isel({dim: _xarray().DataArray([0, 1], dims="point") for dim in ("lat", "lon")}),
    "transpose": lambda ds: ds.a.transpose("lon", "lat", "time"),
    "shift": lambda ds: ds.a.shift(time=1),
    "diff": lambda ds: ds.a.diff("time"),
    "cumsum": lambda ds: ds.a.cumsum("time"),
    "rank": lambda ds: ds.a.rank("time"),
    "mean": lambda ds: ds.a.mean(),
    "mean over time": lambda ds: ds.a.mean("time"),
    "sum of each map": lambda ds: ds.a.sum(("lat", "lon")),
    "std over time": lambda ds: ds.a.std("time"),
    "max": lambda ds: ds.a.max(),
    "count": lambda ds: ds.a.count("time"),
    "median over time": lambda ds: ds.a.median("time"),
    "quantile over time": lambda ds: ds.a.quantile(0.9, "time"),
    "idxmax": lambda ds: ds.b.idxmax("time"),
    "rolling mean": lambda ds: ds.a.rolling(time=5).mean(),
    "coarsen": lambda ds: ds.a.coarsen(time=5).mean(),
    "groupby": lambda ds: ds.a.groupby("time.month").mean(),
    "anomalies": lambda ds: ds.a.groupby("time.month") - ds.a.groupby("time.month").mean(),
    "resample": lambda ds: ds.a.resample(time="5D").mean(),
    "weighted mean": lambda ds: ds.a.weighted(_numpy().cos(_numpy().deg2rad(ds.lat))).mean(("lat", "lon")),
    "interp": lambda ds: ds.a.interp(lat=[10.0, 20.0]),
    "concat": lambda ds: _xarray().concat([ds.a, ds.a], "time"),
    "to_dataframe": lambda ds: ds.a.to_dataframe(),
    "picture": lambda ds: _draw(ds.a.isel(time=0)),
}


def _numpy() -> Any:
    import numpy

    return numpy


def _xarray() -> Any:
    import xarray

    return xarray


def _draw(field: Any) -> Any:
    """Do to a field what `plot` does before it draws: look at its values, their limits and its coordinates."""
    values = field.to_masked_array()
    return float(values.min()), float(values.max()), field.lat.values, field.lon.values, str(field.name)


def write_everyday(folder: Path) -> None:
    """Write the files that are missing: two variables of daily values, one with missing ones, compressed."""
    import numpy as np
    import xarray as xr

    folder.mkdir(parents=True, exist_ok=True)
    for size, shape in SHAPES.items():
        path = folder / f"everyday{size}.nc"
        if path.exists():
            continue
        rng = np.random.default_rng(size)
        values = [rng.normal(280, 10, shape).astype("f4") for _ in "ab"]
        values[0][rng.random(shape) < 0.05] = np.nan
        coords = {
            "time": np.datetime64("2001-01-01", "ns") + np.arange(shape[0]) * np.timedelta64(1, "D"),
            "lat": np.linspace(5, 45, shape[1]),
            "lon": np.linspace(0, 60, shape[2]),
        }
        made = {name: (("time", "lat", "lon"), found) for name, found in zip("ab", values, strict=True)}
        chunks = (min(shape[0], 100), *shape[1:])
        part = path.with_suffix(".part")
        xr.Dataset(made, coords).to_netcdf(part, encoding={name: {"zlib": True, "chunksizes": chunks} for name in made})
        part.rename(path)


def time_operations(path: str, engine: str, size: int, only: list[str] | None = None) -> Callable[[], dict[str, Any]]:
    """Time the operations on a file; the answer has for each the seconds of both uses, and a number to compare."""
    warnings.simplefilter("ignore")
    if engine == "insitu":
        import insitu

        open_file: Callable[[str], Any] = insitu.open_dataset
    else:
        import xarray as xr

        def open_file(path: str) -> Any:
            return xr.open_dataset(path, engine=engine)  # type: ignore[arg-type]

    def work() -> dict[str, Any]:
        return {name: _time_operation(OPERATIONS[name], lambda: open_file(path), size) for name in only or OPERATIONS}

    return work


def _time_operation(operation: Operation, open_file: Callable[[], Any], size: int) -> tuple[float, float, float]:
    """Return the seconds of a first and of a tenth use, the medians of some, and a number of the result."""
    with open_file() as ds:
        answer = _summarise(operation(ds))  # imports and compiles what it needs
    first, tenth = [], []
    for _ in range(REPEATS[size]):
        start = time.perf_counter()
        ds = open_file()
        _get_values(operation(ds))
        first.append(time.perf_counter() - start)
        for _ in range(8):
            _get_values(operation(ds))
        start = time.perf_counter()
        _get_values(operation(ds))
        tenth.append(time.perf_counter() - start)
        ds.close()
    return statistics.median(first), statistics.median(tenth), answer


def _get_values(found: Any) -> Any:
    return found.values if hasattr(found, "values") else found


def _summarise(found: Any) -> float:
    import numpy as np

    values = found[:2] if isinstance(found, tuple) else _get_values(found)
    values = np.asarray(values)
    if values.dtype.kind == "M":
        values = values.astype("M8[D]").astype("i8")
    return float(np.nansum(values.astype("f8")))


def check(answer: dict[str, Any]) -> str:
    """Return what a run has measured, as text."""
    return json.dumps(answer)
