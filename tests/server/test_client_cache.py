"""Decoded chunks are kept between requests: the storage is not asked twice, what has changed is
read anew, and nobody is given what another has read.
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pytest

from insitu.active.wire_array import array_to_wire
from insitu.model import Codec, Encoding
from insitu.reducing.chunk_storage import chunk_array
from server.serving import Answer, Server, serving

VALUES = np.arange(600, dtype="<i4")
ROUTES = ("/reduce", "/read")


def login(name: str, secret: str = "hush") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()}


class Website:
    """A web server that lets `ann` and `bob` see what is theirs, and counts the bytes that it
    sends.
    """

    def __init__(self) -> None:
        site = self
        self.data = zlib.compress(VALUES.tobytes())
        self.etag: str | None = '"v1"'
        self.sent = 0
        self.owners = {"/ann/x": "ann"}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            do_HEAD = do_GET

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        owner = self.owners.get(handler.path)
        if owner is not None and handler.headers.get("Authorization") != login(owner)["Authorization"]:
            handler.send_response(401)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        first, _, last = handler.headers["Range"].removeprefix("bytes=").partition("-")
        part = self.data[int(first) : int(last) + 1]
        self.sent += len(part)
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(self.data)}")
        handler.send_header("Content-Length", str(len(part)))
        if self.etag is not None:
            handler.send_header("ETag", self.etag)
        handler.end_headers()
        handler.wfile.write(part)


@pytest.fixture(scope="module")
def website() -> Iterator[Website]:
    site = Website()
    yield site
    site.server.shutdown()
    site.server.server_close()


@pytest.fixture(scope="module")
def near(website: Website, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([website.url], tmp_path_factory.mktemp("log") / "serve.log") as running:
        yield running


def send(server: Server, route: str, jobs: list[Any], who: dict[str, str] | None = None, **more: Any) -> Answer:
    jobs = [{**job, "methods": ["sum"]} if route == "/reduce" else job for job in jobs]
    body = cbor2.dumps({"jobs": jobs, **more})
    return server.ask("POST", route, body, {"Content-Type": "application/cbor", **(who or {})})


def total(answer: Answer) -> tuple[int, int]:
    """The sum of what came, and how many bytes were read from the storage for it."""
    assert answer.status == 200, answer.body
    items = answer.items
    fetched = items[-1]["bytes_fetched"]
    if "values" in items[0]:
        return int(np.frombuffer(items[0]["values"]["sum"]["data"], items[0]["values"]["sum"]["dtype"])[0]), fetched
    data = b"".join(item for item in items if isinstance(item, bytes))
    return int(np.frombuffer(data, items[0]["dtype"]).sum()), fetched


def table(url: str, size: int, **facts: Any) -> dict[str, Any]:
    encoding = Encoding(np.dtype("<i4"), (Codec("zlib"),))
    made = array_to_wire(chunk_array(url, 0, size, encoding, VALUES.shape))
    made["sources"][0][1:3] = [facts.get("size"), facts.get("etag")]
    return {"array": made}


@pytest.mark.parametrize("route", ROUTES)
def test_a_file_is_read_once_and_again_when_it_changes(server: Server, root: Path, route: str) -> None:
    h5py = pytest.importorskip("h5py")
    path = root / f"kept-{route[1:]}.h5"

    def write(values: Any) -> None:
        path.unlink(missing_ok=True)
        with h5py.File(path, "w") as file:
            file.create_dataset("t", data=values, chunks=(100,), compression="gzip")

    write(VALUES)
    job = {"url": str(path), "variable": "t"}
    before = server.metrics()
    found, fetched = total(send(server, route, [job]))
    assert found == VALUES.sum()
    assert fetched > 0
    assert total(send(server, route, [job])) == (VALUES.sum(), 0)
    after = server.metrics()
    assert after["insitu_cache_misses_total"] - before["insitu_cache_misses_total"] == 6
    assert after["insitu_cache_hits_total"] - before["insitu_cache_hits_total"] == 6
    assert after["insitu_bytes_fetched_total"] - before["insitu_bytes_fetched_total"] == fetched
    # A part of it, and the other route, find the same chunks.
    part, fetched = total(send(server, "/read", [{**job, "selection": [{"slice": [50, 250]}]}]))
    assert (part, fetched) == (VALUES[50:250].sum(), 0)
    # Whoever does not want that says so.
    assert total(send(server, route, [job], cache=False))[1] > 0
    write(VALUES[::-1] + 1)
    found, fetched = total(send(server, route, [job]))
    assert found == (VALUES + 1).sum()
    assert fetched > 0


def test_a_long_pass_keeps_nothing(server: Server, root: Path) -> None:
    """More than half of the cache (128 MiB): what others read again stays."""
    h5py = pytest.importorskip("h5py")
    path = root / "long.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("t", shape=(18_000_000,), dtype="i4", chunks=(1_000_000,), compression="gzip")
        file["t"][::1_000_000] = 1
    before = server.metrics()["insitu_cache_misses_total"]
    for _ in range(2):
        found, fetched = total(send(server, "/reduce", [{"url": str(path), "variable": "t"}]))
        assert found == 18
        assert fetched > 0
    assert server.metrics()["insitu_cache_misses_total"] == before


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("facts", [{}, {"etag": '"v1"'}])
def test_a_remote_object_is_read_once(near: Server, website: Website, route: str, facts: dict[str, str]) -> None:
    url = f"{website.url}/free/{route[1:]}-{len(facts)}"
    job = table(url, len(website.data), **facts)
    website.sent = 0
    assert total(send(near, route, [job])) == (VALUES.sum(), len(website.data))
    first = website.sent
    assert total(send(near, route, [job])) == (VALUES.sum(), 0)
    assert website.sent == first, "the storage was asked again"
    assert total(send(near, route, [job], cache=False)) == (VALUES.sum(), len(website.data))
    assert website.sent == 2 * first


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("facts", [{}, {"etag": '"v1"'}])
def test_nobody_is_given_what_another_has_read(
    near: Server, website: Website, route: str, facts: dict[str, Any]
) -> None:
    job = table(f"{website.url}/ann/x", len(website.data), **facts)
    for _ in range(2):
        assert total(send(near, route, [job], login("ann")))[0] == VALUES.sum()
        for other in (login("bob"), login("ann", "wrong"), {}, {"X-Insitu-Token": "ann"}):
            answer = send(near, route, [job], other)
            assert answer.status == 401, answer.body
            assert VALUES.tobytes()[:16] not in answer.body
    request = {
        "interface_type": "http",
        "url": f"{website.url}/ann/x",
        "dtype": "int32",
        "shape": [600],
        "compression": {"id": "zlib"},
        "size": len(website.data),
    }
    for operation in ("sum", "select"):
        assert near.post(f"/v2/{operation}", request, login("ann")).status == 200
        for other in (login("bob"), login("ann", "wrong"), {}):
            assert near.post(f"/v2/{operation}", request, other).status == 401


def test_an_object_that_changes_while_its_metadata_is_kept(tmp_path: Path) -> None:
    """Scans of remote archives are believed for a while; one that proves wrong is made anew, not
    answered with an error.
    """
    h5py = pytest.importorskip("h5py")

    class Archive(Website):
        def answer(self, handler: BaseHTTPRequestHandler) -> None:
            if handler.headers.get("If-Match") not in (None, self.etag):
                handler.send_response(412)
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
            super().answer(handler)

    site = Archive()

    def put(values: Any, etag: str) -> None:
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("t", data=values, chunks=(100,), compression="gzip")
        site.data, site.etag = (tmp_path / "x.h5").read_bytes(), etag

    job = {"url": f"{site.url}/x.h5", "variable": "t"}
    try:
        with serving([site.url], tmp_path / "log") as server:
            put(VALUES, '"v1"')
            assert total(send(server, "/reduce", [job]))[0] == VALUES.sum()
            put(VALUES * 2, '"v2"')
            assert (
                total(send(server, "/reduce", [{**job, "selection": [{"slice": [0, 600]}]}], cache=False))[0]
                == 2 * VALUES.sum()
            )
            assert total(send(server, "/reduce", [job]))[0] == 2 * VALUES.sum()
            put(VALUES * 3, '"v3"')
            assert total(send(server, "/read", [job], cache=False))[0] == 3 * VALUES.sum()
    finally:
        site.server.shutdown()
        site.server.server_close()


def test_the_compatible_routes(server: Server, root: Path) -> None:
    path = root / "kept-chunk"
    path.write_bytes(VALUES.tobytes())
    request = {"interface_type": "file", "url": f"file://{path}", "dtype": "int32"}

    def fetched(**more: Any) -> tuple[int, float]:
        before = server.metrics()["insitu_bytes_fetched_total"]
        answer = server.post("/v2/sum", {**request, **more}).cbor
        return int(np.frombuffer(answer["bytes"], answer["dtype"])[0]), server.metrics()[
            "insitu_bytes_fetched_total"
        ] - before

    assert fetched() == (VALUES.sum(), 2400)
    assert fetched() == (VALUES.sum(), 0)
    assert fetched(option_disable_chunk_cache=True) == (VALUES.sum(), 2400)
    assert fetched(option_disable_chunk_cache=False) == (VALUES.sum(), 0)
    path.write_bytes((VALUES + 1).tobytes())
    assert fetched() == (VALUES.sum() + 600, 2400)
    answer: Answer = server.post("/reduce", {"jobs": [{"url": "x", "variable": "t"}], "cache": "yes"})
    assert answer.status == 400
