"""What `ds.insitu.explain` says of files, requests, bytes and memory, beside what then happens.

Modules: xarray_bridge/explain_dataset.py
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu import trace
from insitu.model import Source
from insitu.reading import estimate
from insitu.reading.estimate import estimate_requests
from insitu.reading.task_batches import BATCH_BYTES


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("explained")
    rng = np.random.default_rng(7)
    made = []
    for number in range(4):
        values = rng.normal(size=(40, 60, 90)).astype("f4")
        one = xr.Dataset(
            {
                "a": (("time", "y", "x"), values),
                "b": (("time", "y", "x"), values * 2),
                "still": (("y", "x"), values[0]),
            },
            {"time": np.arange(40) + 40 * number},
        )
        chunks = {"a": (10, 60, 90), "b": (40, 20, 30), "still": (60, 90)}
        encoding: Any = {name: {"zlib": True, "chunksizes": sizes} for name, sizes in chunks.items()}
        made.append(folder / f"{number}.nc")
        one.to_netcdf(made[-1], engine="netcdf4", encoding=encoding)
    return made


READ: dict[str, Any] = {
    "all": lambda ds: ds.a,
    "some files": lambda ds: ds.a.isel(time=slice(10, 45)),  # of more than a quarter all is read, and kept
    "columns": lambda ds: ds.b.isel(x=5),
    "formula": lambda ds: ds.a - ds.b * 2,
}


@pytest.mark.parametrize("name", READ)
def test_files_requests_and_bytes(paths: list[Path], name: str) -> None:
    with insitu.open_mfdataset(paths) as ds:
        chosen = READ[name](ds)
        with trace() as cost:
            plan = ds.insitu.explain(chosen)
        assert (cost.bytes, cost.requests) == (0, 0)
        with trace() as cost:
            chosen.values  # noqa: B018
        assert plan.bytes_fetched <= cost.bytes <= plan.bytes_fetched + 5000 * plan.chunks
        assert plan.requests <= cost.requests <= max(plan.chunks, 1) + plan.files
        assert plan.files == {"all": 4, "some files": 2, "columns": 4, "formula": 8}[name]


@pytest.mark.parametrize("reduction", [None, "mean", "std", "median"])
@pytest.mark.parametrize("name", READ)
def test_memory_is_not_exceeded(paths: list[Path], name: str, reduction: str | None) -> None:
    with insitu.open_mfdataset(paths, cache=False) as ds:
        chosen = READ[name](ds)
        plan = ds.insitu.explain(chosen, reduction, None if reduction is None else "time")

        def work() -> Any:
            return chosen.copy().values if reduction is None else getattr(chosen, reduction)("time").values

        work()  # threads, and what is imported when it is needed
        tracemalloc.start()
        try:
            work()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak <= plan.memory + (1 << 20)


def test_of_a_dataset(paths: list[Path]) -> None:
    with insitu.open_mfdataset(paths) as ds:
        plan = ds.insitu.explain()
        assert set(plan.variables) == set(ds.insitu.virtual)
        parts = [ds.insitu.explain(name) for name in plan.variables]
        for field in ("chunks", "requests", "bytes_fetched", "bytes_decoded"):
            assert getattr(plan, field) == sum(getattr(part, field) for part in parts)
        assert plan.memory >= ds[list(plan.variables)].nbytes
        assert f"{len(parts)} variables: " in repr(plan)
        means = ds.insitu.explain(reduction="mean", dim="time")
        assert set(means.variables) == {name for name in ds.data_vars if "time" in ds[name].dims}
        assert means.bytes_fetched <= plan.bytes_fetched
        assert 0 < means.memory < 64 << 20
        with pytest.raises(ValueError, match="there is no dimension 'level'"):
            ds.insitu.explain(reduction="mean", dim="level")
        with pytest.raises(ValueError, match="there is no reduction 'loudest'"):
            ds.insitu.explain(reduction="loudest")


def test_text(paths: list[Path]) -> None:
    with insitu.open_mfdataset(paths) as ds:
        shown = repr(ds.insitu.explain("a", "mean", "time"))
        assert "reads a: 16 chunks of 4 files, " in shown
        assert " fetched in 4 requests, " in shown
        assert "  needs about " in shown


def test_of_many_cells_in_blocks(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with insitu.open_mfdataset(paths) as ds:
        whole = ds.insitu.explain("b")
        monkeypatch.setattr(estimate, "MOST_CELLS", 3)
        assert ds.insitu.explain("b").parts[0].chunks == whole.parts[0].chunks
        assert ds.insitu.explain("b").bytes_fetched == whole.bytes_fetched


@pytest.mark.parametrize(
    ("url", "offset", "length", "expected"),
    [
        ("/a.nc", [0, 100, 200], [100, 100, 100], 1),  # side by side
        ("/a.nc", [0, 3000, 90_000], [100, 100, 100], 2),  # a page apart, and far apart
        ("/a.nc", [0, 200_000], [100_000, 100_000], 2),  # large ones are not merged over a gap
        ("https://host/a.nc", [0, 3000, 50_000_000], [100, 100, 100], 2),
        ("/a.nc", [0, BATCH_BYTES, 2 * BATCH_BYTES], [BATCH_BYTES] * 3, 3),  # a task each
        ("/a.nc", [0, 5, 9], [-1, -1, -1], 3),  # whole objects of unknown size
        ("/a.nc", [], [], 0),
    ],
)
def test_requests_of_ranges(url: str, offset: list[int], length: list[int], expected: int) -> None:
    columns = np.zeros(len(offset), np.int64), np.array(offset, np.int64), np.array(length, np.int64)
    assert estimate_requests([Source(url)], *columns) == expected
    two = np.concatenate([columns[0], columns[0] + 1]), np.tile(columns[1], 2), np.tile(columns[2], 2)
    assert estimate_requests([Source(url), Source(url + "2")], *two) == 2 * expected
