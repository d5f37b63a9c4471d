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
from insitu.reading import estimate


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
        assert (plan.bytes_fetched, plan.requests) == (cost.bytes, cost.requests)
        assert plan.files == {"all": 4, "some files": 2, "columns": 4, "formula": 8}[name]


@pytest.mark.parametrize("reduction", ["mean", "max", "median"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_requests_of_reductions(paths: list[Path], name: str, reduction: str) -> None:
    with insitu.open_mfdataset(paths, cache=False) as ds:
        plan = ds.insitu.explain(name, reduction, "time")
        with trace() as cost:
            getattr(ds[name], reduction)("time").values  # noqa: B018
        assert (plan.bytes_fetched, plan.requests) == (cost.bytes, cost.requests)


@pytest.mark.parametrize("layout", ["uncompressed", "contiguous", "small chunks"])
def test_requests_of_parts(tmp_path: Path, layout: str) -> None:
    """Of uncompressed chunks parts are fetched, and near ones of small chunks together."""
    values = np.arange(60 * 80 * 90, dtype="f4").reshape(60, 80, 90)
    encoding: dict[str, dict[str, Any]] = {
        "uncompressed": {"chunksizes": (20, 80, 90)},
        "contiguous": {"contiguous": True},
        "small chunks": {"chunksizes": (1, 20, 30), "zlib": True},
    }
    ds = xr.Dataset({"a": (("time", "y", "x"), values)})
    ds.to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding={"a": encoding[layout]})
    with insitu.open_dataset(tmp_path / "a.nc", cache=False) as ds:
        for way in ({"time": 7}, {"x": slice(3, 9)}, {"y": [2, 70], "time": slice(0, 60, 9)}, {"x": 4, "y": 5}, {}):
            chosen = ds.a.isel(way)
            plan = ds.insitu.explain(chosen)
            with trace() as cost:
                chosen.values  # noqa: B018
            assert (plan.bytes_fetched, plan.requests) == (cost.bytes, cost.requests), way


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
        monkeypatch.setattr(estimate, "MOST_PLAN_BYTES", 0)
        assert ds.insitu.explain("b").parts == whole.parts
        monkeypatch.setattr(estimate, "MOST_CELLS", 3)
        part = ds.insitu.explain("b").parts[0]
        assert (part.chunks, part.bytes_decoded, part.files) == (
            whole.parts[0].chunks,
            whole.parts[0].bytes_decoded,
            whole.parts[0].files,
        )
        assert whole.bytes_fetched <= part.bytes_fetched
