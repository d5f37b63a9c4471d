"""Random mosaics in random chunks, within random memory: xarray shows the same of source and copy.

Modules: copying/sweeps.py, copying/copy_boxes.py, copying/two_passes.py, copying/append_plan.py
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import insitu

DTYPES = ("f4", "f8", "i2", "u1", "packed")
FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"zlib": True, "complevel": 1},
    {"zlib": True, "shuffle": True, "complevel": 4},
    {"zlib": True, "fletcher32": True},
)


@st.composite
def mosaics(draw: st.DrawFn) -> list[tuple[xr.Dataset, dict[str, Any]]]:
    """Return files that follow one another along t, each with chunks and filters of its own."""
    rows, columns = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    dtype = draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    found, begin = [], 0
    for _ in range(draw(st.integers(1, 4))):
        steps = draw(st.integers(1, 9))
        shape = (steps, rows, columns)
        values = rng.integers(0, 200, shape)
        ds = xr.Dataset(
            {
                "x": (("t", "y", "z"), values.astype("f8" if dtype == "packed" else dtype)),
                "flat": ("y", np.arange(rows)),
            },
            {"t": begin + np.arange(steps), "y": np.arange(rows) * 1.5},
        )
        sizes = tuple(draw(st.integers(1, length)) for length in shape)
        encoding = {"chunksizes": sizes, **draw(st.sampled_from(FILTERS))} if draw(st.booleans()) else {}
        if dtype == "packed":
            encoding |= {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
            ds.x[0] = np.nan
        found.append((ds, encoding))
        begin += steps
    return found


@st.composite
def ways(draw: st.DrawFn) -> dict[str, Any]:
    """Return options of a copy."""
    sizes = {dim: draw(st.integers(1, 12)) for dim in ("t", "y", "z") if draw(st.booleans())}
    way: dict[str, Any] = {"chunks": draw(st.sampled_from([None, "series", "maps", "both", sizes, sizes]))}
    way["memory"] = draw(st.sampled_from([None, 10_000, 20_000, 50_000]))
    way["codec"] = draw(st.sampled_from([None, "none", "zstd:1", "zlib:1"]))
    kind = draw(st.sampled_from(["zarr2", "zarr3", "shards", "nc"]))
    if kind == "zarr2":
        way["zarr_format"] = 2
    if kind == "shards" and isinstance(way["chunks"], dict) and "t" in sizes:
        way["shards"] = {"t": sizes["t"] * draw(st.integers(1, 4))}
    return {"suffix": ".nc" if kind == "nc" else ".zarr", **way}


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(mosaics(), ways(), st.integers(0, 3))
def test_copies_of_random_mosaics(
    mosaic: list[tuple[xr.Dataset, dict[str, Any]]], way: dict[str, Any], first: int
) -> None:
    """With a first part of the files, the others are appended."""
    options = dict(way)
    with tempfile.TemporaryDirectory() as name:
        files = [f"{name}/{number}.nc" for number in range(len(mosaic))]
        for file, (ds, encoding) in zip(files, mosaic, strict=True):
            ds.to_netcdf(file, encoding={"x": encoding})
        target = Path(name) / f"target{options.pop('suffix')}"
        join: dict[str, Any] = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
        if 0 < first < len(files) and target.suffix == ".zarr":
            insitu.Archive.open(files[:first], **join).copy(target, verify=True, **options)
            insitu.Archive.open(files, **join).copy(target, verify=True, append="t", memory=options["memory"])
        else:
            insitu.Archive.open(files, **join).copy(target, verify=True, **options)
        want = xr.open_mfdataset(files, **join).load()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opened = xr.open_zarr(target) if target.suffix == ".zarr" else xr.open_dataset(target, engine="netcdf4")
        with opened:
            found = opened.load()
        want.close()
        xr.testing.assert_equal(found, want)
        assert found.x.dtype == want.x.dtype
