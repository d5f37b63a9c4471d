"""The explorer's answers in a browser: security headers, tokens, names of this machine, ETags, bad queries, and that
the work ends when a client goes.

Modules: server/explorer/api_answer.py, server/explorer/archive_route.py
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

from forked_commands import run_command
from insitu.cancellation import LateError, check_deadline
from insitu.server.access import CLIENT
from insitu.server.authentication import Credentials
from insitu.server.explorer.api_answer import ApiAnswer
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest, archive_route
from insitu.server.explorer.guarded_app import SECURITY_HEADERS, is_loopback_name
from insitu.server.settings import Settings
from insitu.server.worker import Worker
from server.explorer.client import Explorer
from server.explorer.process import exploring
from server.serving import Server, serving
from waiting import LONG, wait_until

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x00"


@pytest.fixture(scope="session")
def path(root: Path) -> Path:
    place = root / "guarded.nc"
    data = xarray.Dataset(
        {"a": (("t", "y", "x"), np.arange(24.0).reshape(2, 3, 4), {"note": HOSTILE.replace("\0", "")})},
        attrs={"title": "<b>bold</b>"},
    )
    data["empty"] = (("none", "x"), np.zeros((0, 4)))
    data["text"] = ("y", np.array(["<i>", "b", "c"], object))
    data.to_netcdf(place)
    return place


@pytest.fixture
def explorer(server: Server, path: Path) -> Explorer:
    return Explorer(server, str(path))


def test_every_answer_has_the_security_headers(server: Server, explorer: Explorer) -> None:
    answers = [
        server.get("/"),
        server.get("/explorer/page/no-such-file.js"),
        server.get("/explorer/nothing"),
        server.ask("POST", "/explorer/api/list"),
        explorer.ask("server"),
        explorer.ask("archive"),
        explorer.ask("field", variable="a"),
        explorer.ask("field", variable="no such variable"),
        explorer.ask("list", folder="/etc"),
    ]
    for answer in answers:
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name] == value
        assert "no-cache" in answer.headers["Cache-Control"]
        assert "Access-Control-Allow-Origin" not in answer.headers
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_page_ships_with_the_package(server: Server) -> None:
    page = server.get("/")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert server.ask("GET", "/", None, {"If-None-Match": page.headers["ETag"]}).status == 304
    plain = server.get("/explorer/page/vendor/countries-110m.json")
    assert "Content-Encoding" not in plain.headers
    packed = server.ask("GET", "/explorer/page/vendor/countries-110m.json", None, {"Accept-Encoding": "gzip, br"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert int(packed.headers["Content-Length"]) < len(plain.body) / 2
    assert packed.body in (plain.body, gzip.compress(plain.body, 6, mtime=0))  # clients may decode it
    assert packed.headers["ETag"] != plain.headers["ETag"]
    assert packed.headers["Vary"] == "Accept-Encoding"
    for hostile in ("../api_routes.py", "..%2fapi_routes.py", "%2e%2e/api_routes.py", "__init__.py", "", "vendor/"):
        assert server.get(f"/explorer/page/{hostile}").status == 404


def test_hostile_texts_are_json(explorer: Explorer) -> None:
    answer = explorer.ask("archive")
    assert answer.headers["Content-Type"] == "application/json"
    (group,) = answer.json["groups"]
    assert {"name": "title", "value": "<b>bold</b>"} in group["attributes"]
    (variable,) = (one for one in group["variables"] if one["path"] == "a")
    assert variable["attributes"] == [{"name": "note", "value": HOSTILE.replace("\0", "")}]


def test_an_answer_that_the_client_has_is_not_computed(server: Server, explorer: Explorer) -> None:
    for name, fields in (("archive", {}), ("field", {"variable": "a", "index": {"t": 1}}), ("list", {})):
        first = explorer.ask(name, **fields)
        tag = first.headers["ETag"]
        assert first.status == 200
        again = Explorer(server, explorer.url, {"If-None-Match": tag})
        before = server.metrics()["insitu_chunks_total"]
        second = again.ask(name, **fields)
        assert (second.status, second.body, second.headers["ETag"]) == (304, b"", tag)
        assert server.metrics()["insitu_chunks_total"] == before
    other = Explorer(server, explorer.url, {"If-None-Match": tag})
    assert other.ask("field", variable="a", index={"t": 0}).status == 200


BAD = [
    ("archive", {"url": ""}, 400),
    ("field", {}, 400),
    ("field", {"variable": "b"}, 404),
    ("field", {"variable": "no/such/group/a"}, 404),
    ("field", {"variable": "text"}, 400),
    ("field", {"variable": "empty"}, 400),
    ("field", {"variable": "a", "y": "x", "x": "x"}, 400),
    ("field", {"variable": "a", "y": "z"}, 400),
    ("field", {"variable": "a", "index": "{"}, 400),
    ("field", {"variable": "a", "index": "[" * 5000}, 400),
    ("field", {"variable": "a", "index": "[1]"}, 400),
    ("field", {"variable": "a", "index": {"t": 2}}, 400),
    ("field", {"variable": "a", "index": {"t": -1}}, 400),
    ("field", {"variable": "a", "index": {"t": 0.5}}, 400),
    ("field", {"variable": "a", "index": {"t": True}}, 400),
    ("field", {"variable": "a", "index": {"w": 0}}, 400),
    ("field", {"variable": "a", "box": [0, 3, 0, 5]}, 400),
    ("field", {"variable": "a", "box": [2, 2, 0, 4]}, 400),
    ("field", {"variable": "a", "box": [0, 3]}, 400),
    ("field", {"variable": "a", "box": "NaN"}, 400),
    ("field", {"variable": "a", "rows": "many"}, 400),
    ("field", {"variable": "a", "rows": "0"}, 400),
    ("field", {"variable": "a", "rows": "9" * 5000}, 400),
    ("field", {"variable": "a", "sampling": "best"}, 400),
    ("field", {"variable": "a", "statistic": "mean"}, 400),
    ("field", {"variable": "a", "statistic": "median", "over": "t"}, 400),
    ("field", {"variable": "a", "statistic": "mean", "over": "y"}, 400),
    ("field", {"variable": "a", "junk": "x" * 30_000}, 400),
    ("line", {"variable": "a"}, 400),
    ("line", {"variable": "a", "dim": "w"}, 400),
    ("line", {"variable": "text"}, 400),
    ("point", {"variable": "a", "index": {"t": 0}}, 400),
    ("point", {"variable": "empty", "index": {}}, 400),
    ("table", {"variable": "a", "start": "-1"}, 400),
    ("coordinate", {"variable": "a"}, 400),
    ("coordinate", {"dimension": "w"}, 400),
    ("coordinate", {"dimension": "x", "group": "none"}, 404),
    ("download", {"variable": "a", "format": "png"}, 400),
]


@pytest.mark.parametrize(("name", "fields", "status"), BAD)
def test_bad_queries_are_refused_with_a_message(
    explorer: Explorer, name: str, fields: dict[str, Any], status: int
) -> None:
    assert explorer.refusal(name, status, **fields)


def test_a_field_that_is_too_large_to_download(tmp_path: Path) -> None:
    xarray.Dataset({"a": (("y", "x"), np.zeros((1500, 1500)))}).to_netcdf(tmp_path / "large.nc")
    with serving([tmp_path], tmp_path / "log", "--memory", "0.05", "--max-chunk", "32") as server:
        explorer = Explorer(server, f"{tmp_path}/large.nc")
        assert "Draw a smaller box" in explorer.refusal("download", 413, variable="a", format="netcdf")
        assert "Draw a smaller box" in explorer.refusal("download", 413, variable="a", format="csv")
        assert explorer.ask("download", variable="a", format="csv", box=[0, 10, 0, 10]).status == 200
        assert explorer.picture("field", variable="a").header["sampling"]["method"] in ("mean", "nearest")


def test_tokens(path: Path, tmp_path: Path) -> None:
    with serving([path.parent], tmp_path / "log", "--token", "sesame") as server:
        state = Explorer(server).json("server")
        assert (state["needs_token"], state["mode"], state["open"]) == (True, "serve", None)
        assert server.get("/").status == 200
        for name in ("list", "archive", "field", "line", "point", "table", "download", "coordinate", "chunks", "chunk"):
            for wrong in (None, {"Authorization": "Bearer wrong"}):
                answer = Explorer(server, str(path), wrong).ask(name, variable="a")
                assert answer.status == 401, name
                assert str(path).encode() not in answer.body
            refused = server.get(f"/explorer/api/{name}?url={path}&variable=a&token=sesame")
            assert refused.status == 401  # never in an address
        right = Explorer(server, str(path), {"Authorization": "Bearer sesame"})
        assert right.ask("field", variable="a").status == 200
        assert "sesame" not in (tmp_path / "log").read_text()
        assert "/?url=" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:80", True),
        ("LOCALHOST:1", True),
        ("[::1]", True),
        ("[::1]:8080", True),
        ("", False),
        ("evil.org", False),
        ("127.0.0.1.evil.org:80", False),
        ("localhost:80@evil.org", False),
        ("localhost:", True),
    ],
)
def test_names_of_this_machine(host: str, good: bool) -> None:
    assert is_loopback_name(host) == good


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder: Path = tmp_path_factory.mktemp("explored")
    for year in (2000, 2001):
        times = np.arange(f"{year}-01-01", f"{year}-01-04", dtype="M8[D]").astype("M8[ns]")
        data = xarray.Dataset({"v": (("time", "y", "x"), np.full((3, 2, 2), float(year)))}, {"time": times})
        data.to_netcdf(folder / f"v_{year}.nc")
    (folder / "more").mkdir()
    (folder / "more" / "extra.nc").write_bytes((folder / "v_2000.nc").read_bytes())
    (folder / "private.nc").write_bytes((folder / "v_2000.nc").read_bytes())
    with exploring("v_2000.nc", "v_2001.nc", "more", folder=folder) as server:
        yield server, folder


def test_what_explore_was_started_for(explored: tuple[Server, Path]) -> None:
    server, folder = explored
    state = Explorer(server).json("server")
    assert (state["mode"], state["open"], state["needs_token"]) == ("explore", None, False)
    listed = Explorer(server).json("list")
    assert listed["combined"] == "collection:0"
    assert [(entry["url"], entry["kind"]) for entry in listed["entries"]] == [
        (f"{folder}/v_2000.nc", "archive"),
        (f"{folder}/v_2001.nc", "archive"),
        (f"{folder}/more", "folder"),
        ("collection:0", "archive"),
    ]
    together = Explorer(server, "collection:0")
    assert together.json("archive")["urls"] == [f"{folder}/v_2000.nc", f"{folder}/v_2001.nc"]
    assert together.variable("v")["shape"] == [6, 2, 2]
    line = together.picture("line", variable="v", dim="time", index={"y": 0, "x": 0})
    np.testing.assert_array_equal(line.arrays["values"], [2000.0] * 3 + [2001.0] * 3)
    assert Explorer(server, f"{folder}/more/extra.nc").ask("archive").status == 200


def test_explore_answers_its_page_and_zarr_clients_only(explored: tuple[Server, Path]) -> None:
    """Whatever an archive refers to is opened there, so requests that bring their own arrays are not answered."""
    server, folder = explored
    request = {"url": f"{folder}/v_2000.nc", "variable": "v"}
    for route in ("/read", "/reduce", "/scan", "/v2/sum"):
        assert server.post(route, request).status == 404
    assert server.get(f"/zarr{folder}/v_2000.nc!/zarr.json").status == 200


def test_explore_shows_nothing_else(explored: tuple[Server, Path]) -> None:
    server, folder = explored
    for url in (f"{folder}/private.nc", f"{folder}/*.nc", "/etc/passwd"):
        assert Explorer(server, url).ask("archive").status == 403
    assert Explorer(server).ask("list", folder=str(folder)).status == 403


def test_explore_keeps_other_websites_out(explored: tuple[Server, Path]) -> None:
    """By DNS rebinding a page of another site reaches this server under its own name."""
    server, folder = explored
    for place in ("/", "/explorer/api/list", f"/zarr{folder}/v_2000.nc!/zarr.json", "/health"):
        assert server.get(place, {"Host": "evil.org"}).status == 421
        answer = server.get(place, {"Origin": "https://evil.org"})
        assert answer.status == 200
        assert "Access-Control-Allow-Origin" not in answer.headers
    preflight = server.ask("OPTIONS", f"/zarr{folder}/v_2000.nc!/zarr.json", None, {"Origin": "https://evil.org"})
    assert not any(name.lower().startswith("access-control") for name in preflight.headers)


def test_explore_of_one_pattern(explored: tuple[Server, Path], tmp_path: Path) -> None:
    _, folder = explored
    with exploring(f"{folder}/v_*.nc", "--token", "mine", folder=tmp_path) as server:
        assert Explorer(server).json("server")["open"] is None
        user = Explorer(server, headers={"Authorization": "Bearer mine"})
        assert user.json("server")["open"] == f"{folder}/v_*.nc"
        assert Explorer(server, f"{folder}/v_*.nc").ask("archive").status == 401
        mine = Explorer(server, f"{folder}/v_*.nc", {"Authorization": "Bearer mine"})
        assert mine.variable("v")["shape"] == [6, 2, 2]


def test_an_archive_that_refers_elsewhere(tmp_path: Path) -> None:
    """A user may read what references name; a client of `insitu serve` only what lies under the roots."""
    import insitu

    (tmp_path / "data").mkdir()
    (tmp_path / "saved").mkdir()
    xarray.Dataset({"v": (("y", "x"), np.ones((300, 200)))}).to_netcdf(tmp_path / "data" / "v.nc")
    saved = f"{tmp_path}/saved/v.insitu"
    insitu.open_dataset(f"{tmp_path}/data/v.nc").insitu.save(saved)
    with exploring(saved, folder=tmp_path) as server:
        assert Explorer(server).json("server")["open"] == saved
        assert Explorer(server, saved).picture("field", variable="v").arrays["values"].sum() == 60_000
    with serving([tmp_path / "saved"], tmp_path / "log") as server:
        explorer = Explorer(server, saved)
        assert explorer.variable("v")["shape"] == [300, 200]
        message = explorer.refusal("field", 403, variable="v")
        assert "refers to objects that do not" in message
        assert str(tmp_path / "data") not in message


def test_explore_of_nothing_is_an_error(tmp_path: Path) -> None:
    for missing in ("no-such-file.nc", "no-such-*.nc"):
        done = run_command(["explore", "--no-browser", missing], folder=tmp_path)
        assert done.returncode == 1
        assert "no-such" in done.stderr


def test_the_log_names_the_address(server: Server) -> None:
    wait_until(lambda: f"listening on {server.url}/:" in server.log.read_text())


def test_the_work_ends_when_the_client_goes(path: Path) -> None:
    """The task of a request runs on a thread, and stops soon after its connection is closed."""
    ended, began = asyncio.Event(), asyncio.Event()

    def prepare(request: ArchiveRequest) -> ApiTask:
        def work(context: Any) -> ApiAnswer:
            loop.call_soon_threadsafe(began.set)
            try:
                while True:
                    check_deadline()
                    time.sleep(0.001)
            except LateError:
                loop.call_soon_threadsafe(ended.set)
                raise

        return ApiTask(work)

    async def exchange() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/explorer/api/endless",
            "query_string": f"url={path}".encode(),
            "headers": [],
            CLIENT: Credentials(),
        }
        messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Any:
            message = next(messages, None)
            if message is None:
                await began.wait()
                return {"type": "http.disconnect"}
            return message

        sent = []

        async def send(message: Any) -> None:
            sent.append(message)

        await archive_route(worker, "endless", prepare).handle(scope, receive, send)
        assert sent[0]["status"] == 499  # for the log: nobody gets it
        await asyncio.wait_for(ended.wait(), LONG)

    loop: asyncio.AbstractEventLoop
    worker = Worker(Settings(roots=(str(path.parent),)))
    try:
        asyncio.run(exchange())
    finally:
        worker.close()


def test_a_closed_connection_frees_the_server(tmp_path: Path) -> None:
    """With room for one request, the next one is answered as soon as the first client has gone."""
    values = np.random.default_rng(0).random((200, 100, 100)).astype("f4")
    encoding = {"v": {"chunksizes": (200, 5, 5), "zlib": True, "complevel": 1}}
    data = xarray.Dataset({"v": (("t", "y", "x"), values)})
    data.to_netcdf(tmp_path / "slow.nc", encoding=encoding)
    with serving([tmp_path], tmp_path / "log") as server:
        explorer = Explorer(server, f"{tmp_path}/slow.nc")
        explorer.json("archive")
        host, port = server.url.removeprefix("http://").split(":")
        query = f"/explorer/api/field?url={tmp_path}/slow.nc&variable=v&statistic=std&over=t"
        for _ in range(5):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(f"GET {query} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                time.sleep(0.05)
        wait_until(lambda: server.metrics()["insitu_running"] == 0)
        log = (tmp_path / "log").read_text()
        assert "Traceback" not in log
        assert json.loads(server.get("/ready").body)["waiting"] == 0
