"""One dataset whose files lie at two servers: the same numbers as here, each part reduced where it lies,
and a server that ends in the middle.
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from asking import ask_twice
from insitu.active import distribute
from insitu.active.client import Active
from insitu.active.distribute import Distribution
from insitu.active.transport import ServerError, client_for
from insitu.errors import ActiveWarning, InsituError
from server.serving import Server, serving

LENGTHS = (20, 11, 31, 16)
"""Time steps of each file."""


def write(path: Path, number: int, lat: slice = slice(None), scale: float = 0.25) -> None:
    """Write a file of eighths, whose sums are exact in any order."""
    rng = np.random.default_rng(number)
    length = LENGTHS[number % len(LENGTHS)]
    values = (rng.integers(-4000, 4000, (length, 12, 18)) / 8).astype("f4")
    values[3, 2:5] = np.nan
    begin = np.datetime64("2001-01-01") + np.timedelta64(40 * number, "D")
    made = xr.Dataset(
        {
            "t": (("time", "lat", "lon"), values),
            "u": (("time", "lat", "lon"), np.round(values[:, ::-1]) * scale),
            "n": (("time", "lat"), rng.integers(-9, 9, (length, 12)).astype("i4")),
        },
        coords={
            "time": (begin + np.arange(length)).astype("M8[ns]"),
            "lat": np.linspace(-55, 55, 12),
            "lon": np.arange(18) * 20.0,
        },
    ).isel(lat=lat)
    rows = min(6, made.sizes["lat"])
    chunks = {"t": (5, rows, 9), "u": (7, made.sizes["lat"], 18)}
    made.to_netcdf(path, encoding={name: {"zlib": True, "chunksizes": sizes} for name, sizes in chunks.items()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that alternate between two folders."""
    made: Path = tmp_path_factory.mktemp("archive")
    for name in ("one", "two"):
        (made / name).mkdir()
    for number in range(4):
        write(made / ("one", "two")[number % 2] / f"{number}.nc", number)
    return made


@pytest.fixture(scope="module")
def servers(folder: Path) -> Iterator[tuple[Server, Server]]:
    with serving([folder / "one"], folder / "one.log") as one, serving([folder / "two"], folder / "two.log") as two:
        yield one, two


def both(folder: Path, servers: tuple[Server, Server], **more: Any) -> tuple[xr.Dataset, xr.Dataset]:
    """The dataset without servers, and with both."""
    active = {f"{folder}/one/": servers[0].url, f"{folder}/two": servers[1].url}
    here = insitu.open_mfdataset(str(folder / "*" / "*.nc"))
    return here, insitu.open_mfdataset(str(folder / "*" / "*.nc"), active=active, **more)


OPERATIONS: dict[str, Any] = {
    "mean of all": lambda ds: ds.t.mean(),
    "mean": lambda ds: ds.t.mean("time"),
    "kept time": lambda ds: ds.t.mean(("lat", "lon")),
    "all variables": lambda ds: ds.max(),
    "slices": lambda ds: ds.t.isel(time=slice(5, 70, 3)).sel(lat=slice(-20, 40)).sum(("time", "lon")),
    "reversed": lambda ds: ds.t.isel(time=slice(None, None, -1)).sum("lat"),
    "list": lambda ds: ds.t.isel(time=[70, 3, 22, 22, 41]).min("time"),
    "one file": lambda ds: ds.t.isel(time=slice(0, 9)).std(),
    "std": lambda ds: ds.t.std("time", ddof=1),
    "count": lambda ds: ds.t.count("time"),
    "argmax": lambda ds: ds.t.fillna(-1e9).argmax("time"),
    "argmin of stored values": lambda ds: ds.n.argmin("time"),
    "kept argmax": lambda ds: ds.n.argmax("lat"),
    "integers": lambda ds: ds.n.sum("time"),
    "no skipping": lambda ds: ds.t.mean("time", skipna=False),
    "transposed": lambda ds: ds.n.transpose("lat", "time").any("time"),
    "weighted": lambda ds: ds.t.weighted(np.cos(np.deg2rad(ds.lat))).mean(("lat", "lon")),
    "weighted in time": lambda ds: ds[["t"]].insitu.weighted(ds.time.dt.dayofyear.astype("f8")).mean("time").t,
    "months": lambda ds: ds.insitu.groupby("time.month").mean().t,
    "months of an expression": lambda ds: (ds.t * 2 + ds.u).to_dataset(name="x").insitu.groupby("time.month").max().x,
    "expression": lambda ds: (ds.t - ds.u).mean("time"),
    "expression over space": lambda ds: (ds.t * ds.u > 5).sum(("lat", "lon")),
    "with what is here": lambda ds: (ds.t - ds.t.isel(time=0).load()).max("time"),
    "weighted expression": lambda ds: (ds.t + 1).weighted(np.cos(np.deg2rad(ds.lat))).mean(("lat", "time")),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_equal_to_here(folder: Path, servers: tuple[Server, Server], name: str) -> None:
    here, there = both(folder, servers, active_required=True)
    before = [client_for(server.url).traffic.requests for server in servers]
    found = OPERATIONS[name](there).load()
    requested = [client_for(server.url).traffic.requests - old for server, old in zip(servers, before, strict=True)]
    assert requested[0]
    assert requested[1] or name == "one file"
    expected = ask_twice(lambda: OPERATIONS[name](here))
    xr.testing.assert_identical(found, expected)


def test_each_server_reads_its_own_files_only(folder: Path, servers: tuple[Server, Server]) -> None:
    _, there = both(folder, servers, active_required=True)
    before = [server.metrics()["insitu_chunks_total"] for server in servers]
    there.t.mean().load()
    chunks = [int(server.metrics()["insitu_chunks_total"] - old) for server, old in zip(servers, before, strict=True)]
    assert chunks == [(4 + 7) * 4, (3 + 4) * 4]


def test_a_median_needs_all_values_at_one_place(folder: Path, servers: tuple[Server, Server]) -> None:
    """Neither server has all files: the one with most bytes refuses, and the values are read here."""
    here, there = both(folder, servers)
    with pytest.warns(ActiveWarning, match="read and reduced here"):
        found = there.t.median("time").load()
    xr.testing.assert_identical(found, here.t.median("time").load())
    xr.testing.assert_identical(
        there.t.isel(time=slice(0, 9)).median("time"), here.t.isel(time=slice(0, 9)).median("time")
    )


def test_a_grid_of_files(tmp_path: Path) -> None:
    """Files in time and latitude, like the squares of a chessboard: no dimension separates the servers."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    for number in range(2):
        for part in range(2):
            write(
                tmp_path / ("one", "two")[(number + part) % 2] / f"{number}{part}.nc",
                number,
                slice(6 * part, 6 * part + 6),
            )
    with serving([tmp_path / "one"], tmp_path / "1.log") as one, serving([tmp_path / "two"], tmp_path / "2.log") as two:
        here, there = both(tmp_path, (one, two), active_required=True)
        for reduce in (lambda a: a.mean("time"), lambda a: a.max(("lat", "lon")), lambda a: a.count()):
            xr.testing.assert_identical(reduce(there.t).load(), reduce(here.t).load())


def test_files_that_no_server_has_are_read_here(folder: Path, servers: tuple[Server, Server]) -> None:
    here = insitu.open_mfdataset(str(folder / "*" / "*.nc"))
    some = {str(folder / "one"): servers[0].url}
    there = insitu.open_mfdataset(str(folder / "*" / "*.nc"), active=some)
    before = client_for(servers[0].url).traffic.requests
    with pytest.warns(ActiveWarning, match="t is not read by a server"):
        xr.testing.assert_identical(there.t.mean("time").load(), here.t.mean("time").load())
    assert client_for(servers[0].url).traffic.requests == before + 1
    required = insitu.open_mfdataset(str(folder / "*" / "*.nc"), active=some, active_required=True)
    with pytest.raises(InsituError, match="t is not read by a server"):
        required.t.mean("time").load()


def test_leaves_at_different_servers(folder: Path, servers: tuple[Server, Server], tmp_path: Path) -> None:
    """The server with more of the bytes is asked; it cannot read the other's files, or it can."""
    one, two = servers
    long, short = (
        insitu.open_dataset(folder / "one" / "2.nc", active=one.url),
        insitu.open_dataset(folder / "two" / "3.nc", active=two.url),
    )
    difference = long.t.isel(time=slice(0, 16)).drop_vars("time") - short.t.drop_vars("time")
    expected = xr.load_dataset(folder / "one" / "2.nc").t.isel(time=slice(0, 16)).drop_vars("time") - xr.load_dataset(
        folder / "two" / "3.nc"
    ).t.drop_vars("time")
    before = client_for(one.url).traffic.requests, client_for(two.url).traffic.requests
    with pytest.warns(ActiveWarning, match="read and reduced here"):
        xr.testing.assert_allclose(difference.mean("time").load(), expected.mean("time"))
    assert client_for(one.url).traffic.requests > before[0]
    assert client_for(two.url).traffic.requests == before[1]
    with serving([folder], tmp_path / "log") as wide:
        # Two servers, of which one may read everything, and has most.
        long = insitu.open_dataset(folder / "one" / "2.nc", active=wide.url, active_required=True)
        difference = long.t.isel(time=slice(0, 16)).drop_vars("time") - short.t.drop_vars("time")
        xr.testing.assert_allclose(difference.mean("time").load(), expected.mean("time"))
        assert client_for(wide.url).traffic.requests == 1


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.reducing.portions.PORTION_CHUNKS", 4)


@pytest.mark.usefixtures("small_pieces")
def test_servers_with_the_same_data_share_the_work(folder: Path, tmp_path: Path) -> None:
    with serving([folder], tmp_path / "1.log") as one, serving([folder], tmp_path / "2.log") as two:
        here = insitu.open_mfdataset(str(folder / "*" / "*.nc"))
        there = insitu.open_mfdataset(str(folder / "*" / "*.nc"), active=[one.url, two.url], active_required=True)
        xr.testing.assert_identical(there.t.mean("time").load(), here.t.mean("time").load())
        xr.testing.assert_identical((there.t * 2).sum().load(), (here.t * 2).sum().load())
        for server in (one, two):
            assert client_for(server.url).traffic.requests > 2


@contextmanager
def stopped_in_the_middle(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a server die while it works on the second request to it."""
    client, seen = client_for(server.url), threading.Lock()
    ask, count = client._post_once, 0

    def post(*arguments: Any) -> Any:
        nonlocal count
        with seen:
            count += 1
            if count == 2:
                os.kill(server.process.pid, signal.SIGKILL)
                server.process.wait()
        return ask(*arguments)

    monkeypatch.setattr(client, "_post_once", post)
    yield
    assert count > 2, "the server was asked again"


@pytest.mark.usefixtures("small_pieces")
def test_a_server_dies_and_another_has_the_same_data(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = insitu.open_mfdataset(str(folder / "*" / "*.nc"))
    with serving([folder], tmp_path / "1.log") as one, serving([folder], tmp_path / "2.log") as two:
        there = insitu.open_mfdataset(str(folder / "*" / "*.nc"), active=[one.url, two.url], active_required=True)
        with (
            stopped_in_the_middle(one, monkeypatch),
            pytest.warns(ActiveWarning, match="others with the same data did"),
        ):
            xr.testing.assert_identical(there.t.mean("time").load(), here.t.mean("time").load())


def test_a_server_dies_and_its_files_are_read_here(
    folder: Path, servers: tuple[Server, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("insitu.reducing.portions.PORTION_CHUNKS", 4)
    monkeypatch.setattr("insitu.reducing.parts_by_folder.FOLDER_BYTES", 1000)
    monkeypatch.setattr("insitu.active.fallback._warned", set())
    with serving([folder / "two"], tmp_path / "2.log") as dying:
        here, there = both(folder, (servers[0], dying))
        with stopped_in_the_middle(dying, monkeypatch), pytest.warns(ActiveWarning) as caught:
            xr.testing.assert_identical(there.t.mean("time").load(), here.t.mean("time").load())
    assert len(caught) == 1
    message = str(caught[0].message)
    moved = int(message.partition("about ")[2].partition(" bytes")[0].replace(",", ""))
    stored = sum(
        tile.chunks.length.sum()
        for number in (1, 3)
        for tile in insitu.scan(folder / "two" / f"{number}.nc").array("t").tiles
    )
    assert 0 < moved <= stored  # of its own files, and not of those that had been reduced before
    assert dying.url in message
    required = insitu.open_mfdataset(
        str(folder / "*" / "*.nc"),
        active={str(folder / "one"): servers[0].url, str(folder / "two"): dying.url},
        active_required=True,
    )
    with pytest.raises(ServerError):
        required.t.mean("time").load()


def test_what_active_takes(folder: Path) -> None:
    for wrong in ({}, [], {"s3://a/": []}, {"s3://a/": 7}, [7], ""):
        with pytest.raises(ServerError, match="active="):
            Active(wrong)  # type: ignore[arg-type]
    one = Active({"s3://a": "http://x:1", "s3://a/b/": ["http://y:2", "http://z:3"]})
    assert one == Active({"s3://a/b/": ["http://y:2", "http://z:3"], "s3://a": "http://x:1"})
    assert hash(one) == hash(Active(one.servers))
    assert one != Active("http://x:1")
    assert "hush" not in repr(Active({"s3://a/": "https://:hush@host:1", "s3://b/": "https://:hush@other:1"}))


def test_explain_names_all_servers(folder: Path, servers: tuple[Server, Server]) -> None:
    _, there = both(folder, servers)
    plan = there.insitu.explain("t", "mean", "time")
    assert all(server.url in repr(plan) for server in servers)
    expression = (there.t - there.u).variable._data
    owners = {owner.servers for _, owner in Distribution(expression.node).parts()}
    assert owners == {(servers[0].url,), (servers[1].url,)}


def test_the_verb(folder: Path, servers: tuple[Server, Server]) -> None:
    path = folder / "one" / "0.nc"
    with warnings.catch_warnings():
        warnings.simplefilter("error", ActiveWarning)
        found = insitu.reduce(path, "t", "max", active=[servers[0].url])
    assert found == xr.load_dataset(path).t.max()


def test_servers_work_at_the_same_time(
    folder: Path, servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many pieces at each of two servers: neither waits until the other has done all of its own."""
    monkeypatch.setattr("insitu.reducing.portions.PORTION_CHUNKS", 1)
    monkeypatch.setattr("insitu.reducing.parts_by_folder.FOLDER_BYTES", 1000)
    monkeypatch.setattr(distribute, "CONCURRENT_REQUESTS", 1)
    _, there = both(folder, servers, active_required=True)
    order: list[str] = []
    for server in servers:
        client = client_for(server.url)

        def post(*arguments: Any, ask: Any = client._post_once, url: str = server.url) -> Any:
            order.append(url)
            return ask(*arguments)

        monkeypatch.setattr(client, "_post_once", post)
    there.t.max().load()
    assert len(order) > 15
    assert {*order[:3]} == {server.url for server in servers}
