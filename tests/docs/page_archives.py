"""Files that the pages of the documentation take as given, in folders and in buckets. Used in the process of a page."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import obstore
import pandas as pd
import xarray as xr
from obstore.store import S3Store

MONTHS = pd.date_range("2020-05-01", periods=3, freq="MS")


def clear_buckets(*names: str) -> None:
    """Delete all objects of these buckets."""
    for name in names:
        store = _open_bucket(name)
        for entries in obstore.list(store):
            obstore.delete(store, [entry["path"] for entry in entries])


def _open_bucket(name: str) -> S3Store:
    """Where that is, and with which keys, the environment says."""
    return S3Store(name, client_options={"allow_http": True})


def put(url: str, data: bytes) -> None:
    """Write an object of a bucket."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    obstore.put(_open_bucket(bucket), key, data)


def write(
    path: str,
    day: pd.Timestamp,
    names: Sequence[str] = ("tas", "pr"),
    days: int = 31,
    attributes: Mapping[str, str] | None = None,
    scalars: Mapping[str, int] | None = None,
) -> None:
    """Write a file of daily maps from a day on, with some attributes and single values."""
    if path.startswith("s3://"):
        with tempfile.TemporaryDirectory() as folder:
            local = f"{folder}/file.nc"
            write(local, day, names, days, attributes, scalars)
            put(path, Path(local).read_bytes())
        return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    dims, shape = ("time", "lat", "lon"), (days, 12, 16)
    values = np.random.default_rng(day.dayofyear).random(shape).astype("f4") * 30 + 260
    labels = {
        **(scalars or {}),
        "time": pd.date_range(day, periods=days),
        "lat": np.linspace(40, 51, 12),
        "lon": np.arange(16.0),
    }
    variables = {name: (dims, values, {"units": "K"}) for name in names}
    encoding = {name: {"chunksizes": (1, 6, 16), "zlib": True} for name in names}
    xr.Dataset(variables, labels, attributes).to_netcdf(path, engine="h5netcdf", encoding=encoding)


def write_months(path: str) -> None:
    """Write three files of a month each, whose names are the path with the month filled in as `strftime` does."""
    for day in MONTHS:
        write(day.strftime(path), day, days=day.days_in_month)
