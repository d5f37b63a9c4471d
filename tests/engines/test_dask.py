"""Large reductions on a real Dask cluster of processes: the same bits as in this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import insitu
from asking import ask_twice
from dask_cluster import start_cluster
from insitu.engines import dask as dask_engine
from insitu.engines.dask import _SharedJob, make_graph
from insitu.errors import InsituError, NotFoundError
from insitu.reducing import portions

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]  # the warnings: Dask's sockets
LATS, LONS = 24, 32


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with start_cluster() as connected:
        yield connected


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files of 30 days, in chunks of 4, with missing values."""
    folder = tmp_path_factory.mktemp("archive")
    rng = np.random.default_rng(7)
    for number in range(4):
        values = rng.normal(280, 10, (30, LATS, LONS)).astype("f4")
        values[rng.random(values.shape) < 0.05] = np.nan
        time = np.datetime64("2001-01-10", "ns") + np.arange(30 * number, 30 * number + 30) * np.timedelta64(1, "D")
        dims = ("time", "lat", "lon")
        ds = xr.Dataset(
            {"tas": (dims, values), "pr": (dims, values[::-1] / 7)},
            {"time": time, "lat": np.linspace(-60, 60, LATS), "lon": np.arange(float(LONS))},
        )
        how = {"chunksizes": (4, 12, LONS), "zlib": True}
        ds.to_netcdf(folder / f"{number}.nc", engine="h5netcdf", encoding={"tas": how, "pr": how})
    return folder


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "PORTION_BYTES", 13_000)
    monkeypatch.setattr(insitu.options, "block_bytes", 20_000)


def open_archive(folder: Path, **how: Any) -> xr.Dataset:
    return insitu.open_mfdataset(f"{folder}/*.nc", **how)


STATISTICS: dict[str, Any] = {
    "mean": lambda ds: ds.tas.mean("time"),
    "std of all": lambda ds: ds.tas.std(),
    "several": lambda ds: ds.tas.insitu.stats(["mean", "max", "argmin"], "time"),
    "selection": lambda ds: ds.tas.isel(time=slice(5, 110, 3), lat=[1, 2, 20]).mean("time"),
    "expression": lambda ds: np.hypot(ds.tas - 273.15, ds.pr * 2).mean("time"),
    "anomaly": lambda ds: (ds.tas - ds.tas.isel(time=0).load()).std("time"),
    "weighted": lambda ds: ds.insitu.weighted(np.cos(np.deg2rad(ds.lat))).mean(["lat", "lon"]),
    "groups": lambda ds: ds.insitu.groupby("time.month").mean(),
    "groups of an expression": lambda ds: (ds[["tas"]] * ds.pr).insitu.groupby("time.month").std(),
    "resampling": lambda ds: ds.insitu.resample(time="7D").mean(),
}


@pytest.fixture
def graphs(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The graphs that are sent to the cluster."""
    sent: list[dict[str, Any]] = []
    get = client.get

    def note(graph: Any, keys: Any, **how: Any) -> Any:
        sent.append(dict(graph))
        return get(graph, keys, **how)

    monkeypatch.setattr(client, "get", note)
    return sent


@pytest.mark.parametrize("name", STATISTICS)
def test_the_cluster_gives_the_same_bits(archive: Path, client: Any, graphs: list[Any], name: str) -> None:
    ds, never_kept = open_archive(archive), open_archive(archive, cache=False)
    here = ask_twice(lambda: STATISTICS[name](ds))
    with insitu.options(engine=client):
        there = STATISTICS[name](never_kept)
    assert graphs
    assert any("merge(" in key for graph in graphs for key in graph) == (name != "weighted")
    if isinstance(here, xr.DataArray):
        here, there = here.to_dataset(name="x"), there.to_dataset(name="x")
    xr.testing.assert_identical(here, there)


def test_caches_stay_behind(archive: Path, client: Any) -> None:
    cached = open_archive(archive)
    with insitu.options(engine=client):
        there = (cached.tas * cached.pr).std("time")
    ds = open_archive(archive)
    xr.testing.assert_identical(there, ask_twice(lambda: (ds.tas * ds.pr).std("time")))


def test_a_saved_archive_and_the_verbs(archive: Path, client: Any, tmp_path: Path) -> None:
    target = tmp_path / "all.insitu"
    open_archive(archive).insitu.save(target)
    here = insitu.reduce(target, "tas", "mean", dim="time")
    saved = insitu.Archive.open(target)
    with insitu.options(engine=client):
        np.testing.assert_array_equal(insitu.reduce(target, "tas", "mean", dim="time"), here)
        np.testing.assert_array_equal(saved.reduce("tas", "mean", dim="time"), here)


def test_a_worker_is_killed_in_the_middle(archive: Path, client: Any) -> None:
    ds = open_archive(archive, cache=False)
    here = ds.tas.mean("time")

    def die_at_the_third_portion() -> int:
        from insitu.reducing import fold_portions

        fold, calls = fold_portions.PortionFolds.fold_portion, []

        def dying(job: Any, portion: Any) -> Any:
            calls.append(portion)
            if len(calls) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return fold(job, portion)

        fold_portions.PortionFolds.fold_portion = dying  # type: ignore[method-assign]
        return os.getpid()

    one = next(iter(client.scheduler_info()["workers"]))
    (killed,) = client.run(die_at_the_third_portion, workers=[one]).values()
    with insitu.options(engine=client):
        there = ds.tas.mean("time")
    xr.testing.assert_identical(here, there)
    client.wait_for_workers(2)
    assert killed not in client.run(os.getpid).values()


def test_a_file_that_is_gone_is_our_error(archive: Path, client: Any, tmp_path: Path) -> None:
    path = tmp_path / "gone.nc"
    path.write_bytes((archive / "0.nc").read_bytes())
    ds = insitu.open_dataset(path)
    path.unlink()
    with insitu.options(engine=client), pytest.raises(NotFoundError, match=r"gone\.nc"):
        ds.tas.mean("time")


def test_workers_that_die_again_and_again_are_an_error(archive: Path) -> None:
    ds = open_archive(archive)
    with ProcessPoolExecutor(1) as pool:
        pool.submit(os.getpid).result()
        os.kill(next(iter(pool._processes)), signal.SIGKILL)
        with insitu.options(engine=pool), pytest.raises(InsituError, match=r"workers.*mean\(tas\).*more of it"):
            ds.tas.mean("time")


def test_processes_give_the_same_bits(archive: Path) -> None:
    ds = open_archive(archive)
    with ProcessPoolExecutor(2) as pool, insitu.options(engine=pool):
        there = ds.tas.std("time")
    xr.testing.assert_identical(there, ask_twice(lambda: ds.tas.std("time")))


def test_values_in_memory_stay_here(archive: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = insitu.open_dataset((archive / "0.nc").read_bytes(), cache=False)
    wanted = ds.tas.mean("time")
    monkeypatch.setattr(client, "get", None)
    with insitu.options(engine=client):
        xr.testing.assert_identical(ds.tas.mean("time"), wanted)
        formula = (ds.tas * ds.pr).max("time")
    xr.testing.assert_identical(formula, (ds.tas * ds.pr).max("time"))


def test_a_small_reduction_stays_here(archive: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "PORTION_BYTES", 256 << 20)
    monkeypatch.setattr(client, "get", None)
    with insitu.options(engine=client):
        open_archive(archive).tas.mean("time")


def test_task_names_say_what_is_computed() -> None:
    from dask.utils import key_split

    class Job:
        name = "mean(t2m - 273.15)"

    graph, wanted = make_graph(Job(), [range(20)], "0f" * 16)  # type: ignore[arg-type]
    assert {key_split(key) for key in graph} == {
        "mean(t2m _ 273.15)",
        "merge(mean(t2m _ 273.15))",
        "table(mean(t2m _ 273.15))",
    }
    assert len(graph) == 1 + 20 + 3 + 1
    assert len(wanted) == 1


def test_the_graph_has_the_table_once_and_one_task_a_portion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros((20_000, 8), "f4"), chunks=(4, 8))
    graphs: list[dict[str, Any]] = []

    def note(job: Any, groups: Any, token: str) -> Any:
        made = make_graph(job, groups, token)
        graphs.append(made[0])
        return made

    monkeypatch.setattr(portions, "PORTION_BYTES", 64_000)
    monkeypatch.setattr(dask_engine, "make_graph", note)
    ds = insitu.open_dataset(path)
    with insitu.options(engine="dask"):
        assert ds.x.mean() == 0
    (graph,) = graphs
    assert len(graph) == 1 + 10 + 3  # 5,000 chunks
    assert sum(isinstance(task, _SharedJob) for task in graph.values()) == 1


@pytest.mark.parametrize("engine", ["threads", 3, object()])
def test_something_else_is_no_engine(engine: Any) -> None:
    with pytest.raises(TypeError, match="engine must be a Dask client"), insitu.options(engine=engine):
        pass
    assert insitu.options.engine is None


def test_options_come_back_after_an_error(client: Any) -> None:
    def fail() -> None:
        with insitu.options(engine=client, block_bytes=5):
            assert insitu.options.engine is client
            assert insitu.options.block_bytes == 5
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert insitu.options.engine is None
    assert insitu.options.block_bytes == 20_000
    with pytest.raises(TypeError, match="not an option of insitu: engin"), insitu.options(engin=client):
        pass
