"""The range of an animation, from a sample, compared with xarray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from insitu.server.explorer.answers.field_values import BUDGET_BYTES
from insitu.server.explorer.answers.sampled_range import plan_samples, spread_positions
from insitu.server.explorer.field_query import FieldQuery
from insitu.server.explorer.field_sampling import FieldBox
from insitu.server.explorer.formula_array import estimate_values
from insitu.server.settings import Limits
from server.explorer.client import AppServer, Explorer
from server.explorer.test_field_sampling import array_of
from server.serving import serving

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def growing() -> xr.Dataset:
    random = np.random.default_rng(8)
    values = random.normal(0, 1, (200, 3, 20, 30)) + np.arange(200)[:, None, None, None]
    values[:, :, :5] = np.nan
    dims = ("time", "level", "lat", "lon")
    return xr.Dataset({"tas": (dims, values.astype("f4")), "empty": (dims[1:], np.full((3, 20, 30), np.nan))})


@pytest.fixture(scope="module")
def api(growing: xr.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder: Path = tmp_path_factory.mktemp("ranges")
    growing.to_netcdf(folder / "growing.nc", engine="h5netcdf", encoding={"tas": {"chunksizes": (10, 1, 20, 30)}})
    sparse = zarr.open_group(folder / "sparse.zarr", mode="w", zarr_format=2)
    array = sparse.create_array("v", shape=(50, 40_000, 40_000), chunks=(1, 1000, 1000), dtype="f4", fill_value=0)
    array.attrs["_ARRAY_DIMENSIONS"] = ["time", "y", "x"]
    array[7, :10, :10] = 5
    with serving([folder], folder / "serve.log") as running:
        yield Explorer(running, str(folder / "growing.nc"))


def _expected(values: xr.DataArray) -> dict[str, Any]:
    finite = values.values[np.isfinite(values.values)].astype("f8")
    low, high = np.percentile(finite, [2, 98])
    return {"min": finite.min(), "max": finite.max(), "low": low, "high": high}


def test_a_sample_of_a_long_dimension(api: Explorer, growing: xr.Dataset) -> None:
    found = api.json("range", variable="tas", y="lat", x="lon", index={"level": 2, "time": 3}, along="time")
    positions = found.pop("positions")
    assert positions == spread_positions(200, 16)
    assert len({*positions}) == 16
    assert {found.pop("along"), found.pop("size")} == {"time", 200}
    sample = growing.tas[positions, 2]
    assert found == pytest.approx(_expected(sample), rel=1e-12)
    # It is close to that of all positions, which one picture would miss by far.
    whole = _expected(growing.tas[:, 2])
    assert found["low"] == pytest.approx(whole["low"], abs=10)
    assert found["high"] == pytest.approx(whole["high"], abs=10)


def test_all_of_a_short_dimension_and_a_box(api: Explorer, growing: xr.Dataset) -> None:
    found = api.json("range", variable="tas", index={"time": 9}, along="level", box=[3, 9, 4, 20])
    assert found["positions"] == [0, 1, 2]
    expected = _expected(growing.tas[9, :, 3:9, 4:20])
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_a_statistic_and_a_formula(api: Explorer, growing: xr.Dataset) -> None:
    found = api.json("range", variable="=tas * 2", over="level", statistic="max", along="time")
    expected = _expected((growing.tas * 2).max("level")[found["positions"]])
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_the_cells_of_a_mesh_are_not_all_alike(tmp_path: Path) -> None:
    """Cells of nested grids lie in blocks: few of them, evenly spread, may all be in the same place of their block."""
    n, attributes = 1_600_000, {"coordinates": "lon lat"}  # 40 times as many as are looked at: a divisor of a block
    values = np.tile(np.arange(80.0), n // 80)
    xr.Dataset(
        {"v": (("time", "cell"), np.stack([values, values + 1]), attributes)},
        {
            "lon": ("cell", np.linspace(-179, 179, n), {"units": "degrees_east", "standard_name": "longitude"}),
            "lat": ("cell", np.linspace(-89, 89, n), {"units": "degrees_north", "standard_name": "latitude"}),
        },
    ).to_netcdf(tmp_path / "mesh.nc", engine="h5netcdf")
    api = Explorer(AppServer((str(tmp_path),)), str(tmp_path / "mesh.nc"))
    assert api.variable("v")["map"]["kind"] == "cells"
    found = api.json("range", variable="v", x="cell", along="time")
    assert (found["min"], found["max"]) == (0, 80)


def test_what_has_no_range(api: Explorer) -> None:
    found = api.json("range", variable="empty", along="level")
    assert [found[name] for name in ("min", "max", "low", "high")] == [None] * 4
    sparse = api.url.replace("growing.nc", "sparse.zarr")
    assert api.json("range", url=sparse, variable="v", along="time")["positions"] == []


@pytest.mark.parametrize("along", ["lat", "depth", ""])
def test_a_dimension_that_is_not_there(api: Explorer, along: str) -> None:
    message = api.refusal("range", variable="tas", along=along)
    assert "along" in message


@pytest.mark.parametrize(("shape", "chunks", "count"), [
    ((400, 50_000, 50_000), (1, 1000, 1000), 16),  # 4 of 2500 chunks of 4 MB at each position
    ((400, 8000, 8000), (1, 8000, 8000), 2),  # one chunk of 256 MB
])  # fmt: skip
def test_a_sample_decodes_no_more_than_one_picture(shape: tuple[int, ...], chunks: tuple[int, ...], count: int) -> None:
    field = FieldQuery("v", array_of(shape, chunks), "d1", "d2", {"d0": 0}, FieldBox(0, shape[1], 0, shape[2]))
    positions, samples = plan_samples(field, "d0", Limits())
    assert len(positions) == len(samples) == count
    decoded = 0
    for position, (one, sampling) in zip(positions, samples, strict=True):
        assert one.index == {"d0": position}
        key = one.select(sampling.y.selector, sampling.x.selector)
        decoded += estimate_values(one.array, key).bytes_decoded
    assert decoded <= max(BUDGET_BYTES, 2 * 4 * int(np.prod(chunks)))
