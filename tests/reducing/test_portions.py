"""Portions of large reductions: where they end, and that their merged partials are the right ones.

Modules: engines/engine_protocol.py, reducing/fold_portions.py
"""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import insitu
from asking import ask_twice
from insitu.cancellation import LateError, check_deadline
from insitu.engines.choose import engine_for
from insitu.engines.dask import LocalDask
from insitu.engines.engine_protocol import merge_in_tree
from insitu.reducing import fold_portions, portions
from insitu.reducing.portions import Region, cut_portions
from waiting import LONG


@dataclass(frozen=True)
class Cut:
    """Values of which only the chunks are known."""

    shape: tuple[int, ...]
    chunks: tuple[tuple[int, ...], ...]

    @property
    def itemsize(self) -> int:
        return 4

    def chunk_lengths(self, axes: Any) -> list[int]:
        return [max(self.chunks[axis]) for axis in axes]

    def chunk_borders(self, axis: int) -> Any:
        return np.concatenate([[0], np.cumsum(self.chunks[axis])])


@st.composite
def cuts(draw: Any) -> Cut:
    chunks = tuple(
        tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=9))) for _ in range(draw(st.integers(1, 3)))
    )
    return Cut(tuple(map(sum, chunks)), chunks)


@given(cuts(), st.data())
@settings(max_examples=100, deadline=None)
def test_portions_cover_everything_once_and_cut_no_chunk(cut: Cut, data: Any) -> None:
    ndim = len(cut.shape)
    axes = tuple(data.draw(st.permutations(range(ndim)))[: data.draw(st.integers(0, ndim))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portions, "PORTION_BYTES", data.draw(st.integers(4, 2000)))
        patch.setattr(portions, "STATE_BYTES", data.draw(st.integers(8, 2000)))
        regions = cut_portions(cut, axes, 16)  # type: ignore[arg-type]
        largest = int(np.prod([max(lengths) for lengths in cut.chunks])) * 4
        most = max(portions.PORTION_BYTES, largest)
    seen = np.zeros(cut.shape, int)
    for region in regions:
        for box in region.boxes:
            seen[box] += 1
            assert all(box[axis] == region.place[axis] for axis in range(ndim) if axis not in axes)
            assert seen[box].size * 4 <= most
            for axis, part in enumerate(box):
                assert {part.start, part.stop} <= set(cut.chunk_borders(axis).tolist())
        assert all(region.place[axis] == slice(0, 1) for axis in axes)
    assert (seen == 1).all()


def test_large_maps_are_cut_so_that_partials_stay_small() -> None:
    daily = Cut((3650, 18000, 36000), ((1,) * 3650, (1000,) * 18, (1000,) * 36))
    regions = cut_portions(daily, (0,), 16)  # type: ignore[arg-type]
    lengths = [part.stop - part.start for part in regions[0].boxes[0]]
    assert lengths[1] * lengths[2] * 16 <= portions.STATE_BYTES
    assert np.prod(lengths) * 4 > portions.PORTION_BYTES / 2
    assert sum(len(region.boxes) for region in regions) <= 1.2 * portions.MOST_PORTIONS


@dataclass(frozen=True)
class Nesting:
    """A job whose state is the text of the merges that made it."""

    name: str = "nesting"
    engine: Any = None
    is_remote: bool = False

    @property
    def parts(self) -> Any:
        return (SimpleNamespace(values=self),)

    def fold_portion(self, box: Any) -> str:
        return str(box[0].start)

    def merge(self, states: Any) -> str:
        merged = states[0]
        for state in states[1:]:
            merged = f"({merged} {state})"
        return str(merged)

    def for_workers(self) -> Nesting:
        return Nesting()


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 16, 63, 64, 65, 100, 520])
def test_every_engine_merges_in_the_same_tree(count: int) -> None:
    pytest.importorskip("dask")
    job = Nesting()
    region = Region((slice(0, 1),), tuple((slice(i, i + 1),) for i in range(count)))
    here = merge_in_tree(job, map(job.fold_portion, region.boxes))
    depth = max(itertools.accumulate((c == "(") - (c == ")") for c in here)) if count > 1 else 0
    assert depth <= 7 * max(len(np.base_repr(count, 8)), 1)  # a tree, not a chain
    with ThreadPoolExecutor(3) as pool:
        for engine, is_remote in ((None, False), (None, True), (pool, False), ("dask", False)):
            job = Nesting(engine=engine, is_remote=is_remote)
            assert list(fold_portions.run_portions(job, [region.boxes])) == [here]  # type: ignore[arg-type]


class Meeting(Nesting):
    """A job whose first two portions wait for each other, and whose third fails."""

    barrier = threading.Barrier(2, timeout=LONG)
    last_began = threading.Event()
    ended: ClassVar[list[int]] = []

    def fold_portion(self, box: Any) -> str:
        number = box[0].start
        if number < 2:
            self.barrier.wait()
        elif number == 2:
            assert self.last_began.wait(LONG)
            raise OSError("no more")
        else:
            self.last_began.set()
            for _ in range(600):  # until it is told that nobody waits
                try:
                    check_deadline()
                except LateError:
                    self.ended.append(number)
                    raise
                time.sleep(0.1)
        return str(number)


def test_portions_of_far_storage_overlap_and_end_together() -> None:
    region = Region((slice(0, 1),), tuple((slice(i, i + 1),) for i in range(9)))
    with pytest.raises(OSError, match="no more"):
        list(fold_portions.run_portions(Meeting(is_remote=True), [region.boxes]))  # type: ignore[arg-type]
    assert Meeting.ended == [3]  # what had begun was told


@pytest.fixture(scope="module")
def daily(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files with missing values, of 30 and 25 days, in chunks of 4 days."""
    folder = tmp_path_factory.mktemp("daily")
    rng = np.random.default_rng(3)
    begin = 0
    for length in (30, 25):
        values = rng.normal(280, 10, (length, 20, 30)).astype("f4")
        values[rng.random(values.shape) < 0.1] = np.nan
        values[:, 3, 4] = np.nan
        time = np.datetime64("2001-01-10", "ns") + np.arange(begin, begin + length) * np.timedelta64(1, "D")
        ds = xr.Dataset(
            {
                "tas": (("time", "lat", "lon"), values),
                "n": (("time", "lat", "lon"), np.nan_to_num(values, nan=270).astype("i4") // 9),
            },
            {"time": time, "lat": np.linspace(-60, 60, 20), "lon": np.arange(30.0)},
        )
        ds["tas"].attrs["units"] = "K"
        how = {"chunksizes": (4, 10, 30), "zlib": True}
        ds.to_netcdf(folder / f"{begin:03}.nc", engine="h5netcdf", encoding={"tas": how, "n": how})
        begin += length
    return folder


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions of few chunks, and expressions that are not simply read."""
    monkeypatch.setattr(portions, "PORTION_BYTES", 6_000)
    monkeypatch.setattr(insitu.options, "block_bytes", 20_000)


def open_daily(folder: Path, **how: Any) -> xr.Dataset:
    return insitu.open_mfdataset(f"{folder}/*.nc", **how)


STATISTICS: dict[str, Any] = {
    "mean": lambda ds: ds.tas.mean("time"),
    "mean of all": lambda ds: ds.tas.mean(),
    "std": lambda ds: ds.tas.std(["time", "lat"]),
    "integers": lambda ds: ds.n.sum("time"),
    "min": lambda ds: ds.tas.min("lon"),
    "argmax": lambda ds: ds.n.argmax("time"),
    "count": lambda ds: ds.tas.count(["lat", "lon"]),
    "selection": lambda ds: ds.tas.isel(time=slice(3, 50, 2), lat=[1, 5, 12, 13], lon=slice(2, 29)).mean("time"),
    "turned": lambda ds: ds.tas.transpose("lon", "time", "lat").mean("time"),
    "expression": lambda ds: ((ds.tas - 273.15) * ds.n).mean("time"),
    "threshold": lambda ds: (ds.tas * 2 > 560).sum("time"),
    "masked": lambda ds: ds.tas.where(ds.n > 31).max("time"),
    "weighted": lambda ds: ds.insitu.weighted(np.cos(np.deg2rad(ds.lat))).mean(["lat", "lon"]).tas,
    "weighted std": lambda ds: ds.insitu.weighted(np.cos(np.deg2rad(ds.lat))).std().tas,
    "weighted expression": lambda ds: (
        (ds[["tas"]] * ds.n).insitu.weighted(np.cos(np.deg2rad(ds.lat))).mean(["lat", "time"]).tas
    ),
    "groups": lambda ds: ds.insitu.groupby("time.month").mean().tas,
    "groups of all": lambda ds: ds.insitu.groupby("time.month").std(...).tas,
    "groups of an expression": lambda ds: (ds[["tas"]] * ds.n).insitu.groupby("time.month").sum().tas,
    "resampling": lambda ds: ds.insitu.resample(time="5D").mean().tas,
}


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.usefixtures("small_portions")
def test_portions_give_what_xarray_gives(daily: Path, name: str) -> None:
    with xr.open_mfdataset(f"{daily}/*.nc", engine="h5netcdf") as expected:
        wanted = _with_xarray(name, expected.load().assign(tas=expected.tas.astype("f8")))
    ds = open_daily(daily)
    found = ask_twice(lambda: STATISTICS[name](ds))
    # Formulas are computed in float32, as xarray does with these files.
    np.testing.assert_allclose(found.values, wanted, rtol=2e-5 if "expression" in name else 2e-6)


def _with_xarray(name: str, ds: xr.Dataset) -> Any:
    weights = np.cos(np.deg2rad(ds.lat))
    replaced: dict[str, Any] = {
        "weighted": lambda: ds.tas.weighted(weights).mean(["lat", "lon"]),
        "weighted std": lambda: ds.tas.weighted(weights).std(),
        "weighted expression": lambda: (ds.tas * ds.n).weighted(weights).mean(["lat", "time"]),
        "groups": lambda: ds.tas.groupby("time.month").mean(),
        "groups of all": lambda: ds.tas.groupby("time.month").std(...),
        "groups of an expression": lambda: (ds.tas * ds.n).groupby("time.month").sum(),
        "resampling": lambda: ds.tas.resample(time="5D").mean(),
    }
    return replaced[name]() if name in replaced else STATISTICS[name](ds)


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.usefixtures("small_portions")
def test_an_executor_gives_the_same_bits(daily: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Any] = []
    submit = ThreadPoolExecutor.submit

    def count(pool: Any, *args: Any, **kwargs: Any) -> Any:
        counted.append(args)
        return submit(pool, *args, **kwargs)

    ds, never_kept = open_daily(daily), open_daily(daily, cache=False)
    here = ask_twice(lambda: STATISTICS[name](ds))
    with ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(pool, "submit", count.__get__(pool))
        with insitu.options(engine=pool):
            there = STATISTICS[name](never_kept)
    assert len(counted) > 1
    xr.testing.assert_identical(xr.Dataset({"found": here}), xr.Dataset({"found": there}))


def test_dasks_setting_of_the_scheduler_is_followed() -> None:
    dask = pytest.importorskip("dask")
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster) as client,
    ):
        chosen: Any = engine_for("dask")
        assert chosen.client is client
        with dask.config.set(scheduler="synchronous"):
            assert isinstance(engine_for("dask"), LocalDask)
