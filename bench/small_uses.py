"""Open and use small archives: what `small_things.py` measures, with insitu and with xarray's own engines.

Each function returns one that does the thing `repeat` times and gives a number that all must agree on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["far_opening", "load", "second_opening", "slabs", "spells", "step_by_step", "ten_uses"]


def _openers(engine: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return `open_dataset` and `open_mfdataset` of an engine; `"insitu"` means our own functions."""
    warnings.simplefilter("ignore")
    if engine == "insitu":
        import insitu

        return insitu.open_dataset, insitu.open_mfdataset
    import xarray as xr

    return (
        lambda path: xr.open_dataset(path, engine=engine),
        lambda paths: xr.open_mfdataset(paths, engine=engine, combine="by_coords"),
    )


def _answer(ds: Any) -> float:
    total = 0.0
    for name in sorted(ds.data_vars):
        if ds[name].dtype.kind in "fiu":
            total += float(ds[name].values.astype("f8").sum())
    return round(total, 3)


def load(path: str | list[str], engine: str, repeat: int, warm: str) -> Callable[[], float]:
    """Open a file, or several as one, and load everything."""
    one, many = _openers(engine)
    opened = one if isinstance(path, str) else many
    opened(warm if isinstance(path, str) else path[:2]).load().close()

    def work() -> float:
        for _ in range(repeat):
            ds = opened(path).load()
            ds.close()
        return _answer(ds)

    return work


def second_opening(path: str, engine: str, repeat: int, warm: str) -> Callable[[], float]:
    """Open a file that was opened before, and look at it."""
    one, _ = _openers(engine)
    first = one(path)

    def work() -> float:
        for _ in range(repeat):
            ds = one(path)
            str(ds)
            ds.close()
        return float(sum(first.sizes.values()))

    return work


def ten_uses(path: str, engine: str, repeat: int, warm: str) -> Callable[[], float]:
    """Use one variable ten times, as a notebook does."""
    one, _ = _openers(engine)
    one(warm).load().close()

    def work() -> float:
        total = 0.0
        for _ in range(repeat):
            with one(path) as ds:
                values = ds["tasmax"]
                for window in range(2, 12):
                    total += float(values.rolling(time=window).mean().isel(time=-1).sum())
                total += float((values - 273.15).max()) + float(values.mean())
        return round(total, 1)

    return work


def step_by_step(path: str, engine: str, repeat: int, warm: str) -> Callable[[], float]:
    """Read one step after the other, of chunks that hold many."""
    one, _ = _openers(engine)
    one(warm).isel(time=0).load().close()

    def work() -> float:
        total = 0.0
        for _ in range(repeat):
            with one(path) as ds:
                for step in range(ds.sizes["time"]):
                    total += float(ds["tas"].isel(time=step).values[0, 0])
        return round(total, 1)

    return work


def slabs(path: str, engine: str, repeat: int, warm: str) -> Callable[[], float]:
    """Read small boxes at random places."""
    import numpy as np

    one, _ = _openers(engine)
    one(warm).isel(time=0).load().close()
    corners = np.random.default_rng(7).integers(0, (190, 90, 90), (50, 3)).tolist()

    def work() -> float:
        total = 0.0
        for _ in range(repeat):
            with one(path) as ds:
                for time, lat, lon in corners:
                    box = {"time": slice(time, time + 10), "lat": slice(lat, lat + 10), "lon": slice(lon, lon + 10)}
                    total += float(ds["tas"].isel(box).values.astype("f8").sum())
        return round(total, 1)

    return work


def far_opening(urls: list[str], folder: str) -> Callable[[], float]:
    """Open remote files as one dataset; with a folder for the scan cache, the second time."""
    import os

    os.environ["INSITU_SCAN_CACHE"] = folder or "off"
    _, many = _openers("insitu")
    many(urls[:1])  # imports, and a connection
    if folder:
        os.makedirs(folder, 0o700, exist_ok=True)
        many(urls)

    def work() -> float:
        return float(sum(many(urls).sizes.values()))

    return work


def spells(path: str, engine: str, repeat: int, warm: str) -> Callable[[], float]:
    """Compute xclim's hot spell frequency, which uses its input many times."""
    import xclim

    one, _ = _openers(engine)
    one(warm).load().close()

    def work() -> float:
        for _ in range(repeat):
            with one(path) as ds:
                found = xclim.indices.hot_spell_frequency(ds["tasmax"], thresh="300 K", window=3, freq="YS")
                total = float(found.sum())
        return total

    return work
