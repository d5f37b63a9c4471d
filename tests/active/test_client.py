"""Reductions next to the data: the same answers as here, in few requests, and a word when the
server cannot.

Modules: active/answer.py
"""

from __future__ import annotations

import pickle
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from asking import ask_twice
from insitu import storage
from insitu.active.answer import answer_array
from insitu.active.client import Active
from insitu.active.transport import ServerClient, ServerError, client_for
from insitu.errors import ActiveWarning, InsituError, SelectionError
from insitu.reducing import ReductionQuery, compute_statistics
from insitu.sources.retry_policy import RetryPolicy
from ports import free_port
from served_folder import ServedFolder
from server.serving import Server, serving


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files that differ in length, chunks and packing."""
    folder: Path = tmp_path_factory.mktemp("archive")
    rng = np.random.default_rng(1)
    for number, length in enumerate((31, 28, 40)):
        values = rng.normal(280, 5, (length, 18, 24)).astype("f4")
        values[2, 3] = np.nan
        made = xr.Dataset(
            {
                "t": (("time", "lat", "lon"), values),
                "n": (("time", "lat"), rng.integers(-9, 9, (length, 18)).astype("i4")),
            },
            coords={
                "time": np.arange(length) + 100 * number,
                "lat": np.linspace(-85, 85, 18),
                "lon": np.arange(24) * 15.0,
            },
        )
        made.t.encoding = {
            "zlib": True,
            "chunksizes": (10, 9, 12 + number),
            "scale_factor": 0.01 + 0.001 * number,
            "add_offset": 270.0,
            "dtype": "i2",
            "_FillValue": -999,
        }
        made.to_netcdf(folder / f"{number}.nc", engine="netcdf4")
    return folder


@pytest.fixture(scope="module")
def server(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([archive], tmp_path_factory.mktemp("log") / "log") as running:
        yield running


OPERATIONS: dict[str, Any] = {
    "mean of all": lambda ds: ds.t.mean(),
    "mean": lambda ds: ds.t.mean("time"),
    "all variables": lambda ds: ds.max(),
    "slices": lambda ds: ds.t.isel(time=slice(5, 70, 3)).sel(lat=slice(-20, 40)).max(("lat", "lon")),
    "reversed": lambda ds: ds.t.isel(lat=slice(None, None, -1)).sum("lat"),
    "list": lambda ds: ds.t.isel(lat=[3, 1, 5, 5]).min(),
    "one": lambda ds: ds.t.isel(time=7).std(),
    "std": lambda ds: ds.t.std("lon", ddof=1),
    "count": lambda ds: ds.t.count(),
    "argmax": lambda ds: ds.t.isel(lat=slice(4, 9)).argmax("time"),
    "argmin": lambda ds: ds.n.argmin("lat"),
    "median": lambda ds: ds.t.median("time"),
    "integers": lambda ds: ds.n.sum("time"),
    "no skipping": lambda ds: ds.t.mean("lon", skipna=False),
    "transposed": lambda ds: ds.t.transpose("lon", "time", "lat").prod("time"),
    "reindexed": lambda ds: ds.t.reindex(time=[0, 5, 999, 120]).mean(("lat", "lon")),
    "any": lambda ds: ds.n.any("lat"),
    "expanded": lambda ds: ds.t.expand_dims("member").max("member"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_same_bits_as_here(archive: Path, server: Server, name: str) -> None:
    operation = OPERATIONS[name]
    here = insitu.open_mfdataset(str(archive / "*.nc"))
    there = insitu.open_mfdataset(str(archive / "*.nc"), active=server.url, active_required=True)
    before = client_for(server.url).traffic.requests
    found = operation(there).load()
    assert 1 <= client_for(server.url).traffic.requests - before <= 3
    xr.testing.assert_identical(found, ask_twice(lambda: operation(here)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of slices that are all missing
        xr.testing.assert_allclose(found, operation(xr.open_mfdataset(str(archive / "*.nc"), engine="netcdf4").load()))


@pytest.mark.parametrize(
    ("chunks", "how"),
    [((10, 9, 12), {"zlib": True}), ((100, 60, 50), {}), ((100, 60, 50), {"zlib": True}), ((7, 60, 50), {})],
    ids=["small", "large and uncompressed", "large", "small and uncompressed"],
)
def test_the_same_bits_from_a_cache(tmp_path: Path, chunks: tuple[int, ...], how: dict[str, Any]) -> None:
    """Chunks that a server takes from its cache are summed in the same order as those that are decoded."""
    values = np.random.default_rng(4).normal(280, 5, (200, 60, 100))
    made = xr.Dataset({"t": (("time", "lat", "lon"), values), "f": (("time", "lat", "lon"), values.astype("f4"))})
    encoding = {"chunksizes": chunks, "_FillValue": None, **how}
    made.to_netcdf(tmp_path / "x.nc", engine="netcdf4", encoding={"t": encoding, "f": encoding})
    here = insitu.open_dataset(tmp_path / "x.nc")
    with (
        serving([tmp_path], tmp_path / "log") as cached,
        serving([tmp_path], tmp_path / "log0", "--cache", "0") as not_,
    ):
        for server in (cached, cached, not_):
            there = insitu.open_dataset(tmp_path / "x.nc", active=server.url, active_required=True)
            for dims in ("time", "lon", ("lat", "lon"), ("time", "lat", "lon")):
                for part in ({}, {"lat": slice(3, 50), "lon": slice(5, 90)}):
                    found, expected = (ds.isel(part).mean(dims).load() for ds in (there, here))
                    xr.testing.assert_identical(found, expected)
                    xr.testing.assert_identical(there.t.isel(part).std(dims).load(), here.t.isel(part).std(dims).load())


def test_datasets_and_trees(archive: Path, server: Server) -> None:
    one = insitu.open_dataset(archive / "0.nc", active=server.url, active_required=True)
    expected = xr.load_dataset(archive / "0.nc", engine="netcdf4")
    np.testing.assert_allclose(one.t.mean(), expected.t.mean(), rtol=1e-6)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(one)).t.max(), expected.t.max())
    tree = insitu.open_datatree(archive / "0.nc", active=server.url, active_required=True)
    np.testing.assert_allclose(tree["t"].min(), expected.t.min())


def test_many_requests_are_merged(archive: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.reducing.portions.PORTION_CHUNKS", 3)
    array = insitu.scan(archive / "2.nc", decode=False).array("t")
    active = Active(server.url, required=True)
    methods = ["sum", "mean", "min", "max", "std", "argmax", "argmin", "count", "any", "prod"]
    for axes in (None, [0], [1], [2], [0, 2], [2, 0]):
        for selection in (..., np.s_[3:33:2, ::-1, 5]) if axes in (None, [0], [1]) else (...,):
            before = client_for(server.url).traffic.requests
            found = answer_array(array, ReductionQuery.of(methods, axes, selection), active=active)
            assert client_for(server.url).traffic.requests - before > 1
            expected = compute_statistics(array, ReductionQuery.of(methods, axes, selection))
            for name in methods:
                np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{name} {axes}")
                assert found[name].dtype == expected[name].dtype


def test_a_server_that_is_not_there(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.active.transport.RETRIES", RetryPolicy(attempts=5, first_pause=0.001))
    url = f"http://127.0.0.1:{free_port()}"
    there = insitu.open_dataset(archive / "0.nc", active=url)
    with pytest.warns(ActiveWarning, match=r"t is read and reduced here, not by http.*refused"):
        found = there.t.mean()
    np.testing.assert_allclose(found, xr.load_dataset(archive / "0.nc", engine="netcdf4").t.mean(), rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = there.t.max(), there.t.min()  # once is enough
    strict = insitu.open_dataset(archive / "0.nc", active=url, active_required=True)
    with pytest.raises(InsituError, match=r"unreachable|cannot connect"):
        strict.t.mean()


def test_a_server_that_may_not(tmp_path: Path, server: Server, archive: Path) -> None:
    (tmp_path / "0.nc").write_bytes((archive / "0.nc").read_bytes())
    there = insitu.open_dataset(tmp_path / "0.nc", active=server.url)
    with pytest.warns(ActiveWarning, match="lies outside its roots"):
        found = there.t.max()
    np.testing.assert_allclose(found, xr.load_dataset(archive / "0.nc", engine="netcdf4").t.max())
    with pytest.raises(ServerError, match="lies outside its roots"):
        insitu.open_dataset(tmp_path / "0.nc", active=server.url, active_required=True).t.max()


def test_a_file_that_was_changed_is_noticed(tmp_path: Path, archive: Path) -> None:
    import os

    (tmp_path / "0.nc").write_bytes((archive / "0.nc").read_bytes())
    with serving([tmp_path], tmp_path / "log") as server:
        there = insitu.open_dataset(tmp_path / "0.nc", active=server.url, active_required=True)
        there.t.max()
        (tmp_path / "0.nc").write_bytes((archive / "1.nc").read_bytes())
        os.utime(tmp_path / "0.nc", (1, 1))
        with pytest.raises(InsituError, match=r"changed|not the one|scanned"):
            there.t.max()


def test_the_founding_contract(tmp_path: Path) -> None:
    values = np.arange(60, dtype="<f4").reshape(6, 10)
    (tmp_path / "x").write_bytes(b"head" + zlib.compress(values.tobytes()) + b"tail")
    size = len(zlib.compress(values.tobytes()))
    encoding = {"dtype": "<f4", "codecs": [{"id": "zlib"}]}
    spans = [(2, 3), (50, 4)]
    expected = np.concatenate([values.ravel()[2:5], values.ravel()[50:54]])
    with serving([tmp_path], tmp_path / "log") as server:
        chunk = storage.StoredChunk(str(tmp_path / "x"), 4, size, encoding, (6, 10))
        for active in (None, Active(server.url)):
            np.testing.assert_array_equal(storage.read(chunk, spans, active=active), expected)
            np.testing.assert_array_equal(storage.read(chunk, active=active), values)
            total = storage.reduce(chunk, ReductionQuery.of("sum"), spans, active=active)
            assert total["sum"] == expected.sum()
            both = storage.reduce(chunk, ReductionQuery.of(["max", "mean"], axes=0), active=active)
            np.testing.assert_array_equal(both["max"], values.max(0))
            np.testing.assert_array_equal(both["mean"], values.mean(0))
            with pytest.raises(SelectionError):
                storage.read(chunk, [(58, 5)], active=active)


def test_addresses() -> None:
    assert ServerClient("http://host:8080/").url == "http://host:8080"
    with_token = ServerClient("https://:hush@host/prefix")
    assert (with_token.url, with_token.token) == ("https://host/prefix", "hush")
    assert "hush" not in repr(with_token)
    for bad in ("host:8080", "ftp://host", "http://"):
        with pytest.raises(ServerError, match="not the URL of a server"):
            ServerClient(bad)


def test_the_command_line(archive: Path, server: Server) -> None:
    from typer.testing import CliRunner

    from insitu.cli import app

    for more in ([], ["--active", server.url]):
        done = CliRunner().invoke(app, ["reduce", str(archive / "0.nc"), "n[::2, 3]", "max", *more, "-v"])
        assert done.exit_code == 0, done.output
        expected = xr.load_dataset(archive / "0.nc", engine="netcdf4").n[::2, 3].max().item()
        assert str(expected) in done.output


def test_the_server_knows_where_chunks_lie(archive: Path, tmp_path: Path) -> None:
    """A remote archive is not scanned by the client: it reads its coordinates and nothing else."""
    place = f"http://127.0.0.1:{free_port()}/data"
    with serving([f"{place}={archive}"], tmp_path / "log", "--trust-copies") as server:
        group = Active(server.url, required=True).scan(f"{place}/0.nc")
        assert group is not None
        here = insitu.scan(archive / "0.nc")
        assert list(group.arrays) == list(here.arrays)
        assert {source.url for source in group.sources} == {f"{place}/0.nc"}
        for name, array in here.arrays.items():
            found = group.arrays[name]
            assert (found.shape, found.dims, found.dtype) == (array.shape, array.dims, array.dtype)
            assert list(found.attributes) == list(array.attributes)
            for key, value in array.attributes.items():
                np.testing.assert_array_equal(found.attributes[key], value)
        query = ReductionQuery.of("max", axes=0)
        found = answer_array(group.arrays["t"], query, active=Active(server.url, required=True))
        np.testing.assert_array_equal(found["max"], compute_statistics(here.arrays["t"], query)["max"])
        assert Active(server.url).scan("http://127.0.0.1:9/x.nc") is None


def test_a_remote_archive_is_the_same_with_a_server(archive: Path, tmp_path: Path) -> None:
    with ServedFolder(archive) as web, serving([f"{web.url}={archive}"], tmp_path / "log") as server:
        there = insitu.open_dataset(f"{web.url}/1.nc", active=server.url, active_required=True)
        plain = insitu.open_dataset(f"{web.url}/1.nc")
        assert client_for(server.url).traffic.requests == 1
        xr.testing.assert_identical(there.t.mean("time").load(), plain.t.mean("time").load())
        xr.testing.assert_identical(there.load(), plain.load())


def test_reduce_from_a_url(archive: Path, server: Server) -> None:
    before = client_for(server.url).traffic.requests
    found = insitu.reduce(archive / "0.nc", "n", "max", axes=0, active=server.url, decode=False)
    assert client_for(server.url).traffic.requests == before + 1
    np.testing.assert_array_equal(found, insitu.reduce(archive / "0.nc", "n", "max", axes=0, decode=False))
