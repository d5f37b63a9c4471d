"""Zarr on a web server that redirects: what leads to nothing is lost, not a chunk that was never written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import zarr

import insitu
from insitu.errors import NotFoundError


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of the test's folder on the web, and where its paths are redirected to."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    moved: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            file = tmp_path / self.path.lstrip("/")
            there = moved.get(self.path) if self.headers["Host"].startswith("127.") else None
            data = file.read_bytes() if there is None and file.is_file() else b""
            self.send_response(302 if there is not None else 200 if data else 404)
            if there is not None:
                self.send_header("Location", there)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", moved
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("sharded", [False, True])
def test_a_chunk_that_is_redirected_to_nothing(tmp_path: Path, site: tuple[str, dict[str, str]], sharded: bool) -> None:
    url, moved = site
    group = zarr.create_group(tmp_path / "x.zarr")
    array = group.create_array(
        "a", shape=(8,), chunks=(1,) if sharded else (2,), shards=(2,) if sharded else None, dtype="i4", fill_value=-1
    )
    array[:6] = np.arange(6)
    expected = [0, 1, 2, 3, 4, 5, -1, -1]
    for _ in range(2):
        assert insitu.read(f"{url}/x.zarr", "a", decode=False).tolist() == expected
    # The last chunk was never written: another host that has the same path does not have it either.
    moved["/x.zarr/a/c/3"] = f"{url.replace('127.0.0.1', 'localhost')}/x.zarr/a/c/3"
    (tmp_path / "other").mkdir()
    (tmp_path / "x.zarr/a/c/0").rename(tmp_path / "other/0")
    moved["/x.zarr/a/c/0"] = "/other/0"
    assert insitu.read(f"{url}/x.zarr", "a", decode=False).tolist() == expected
    moved["/x.zarr/a/c/1"] = "/other/1"
    for _ in range(2):
        with pytest.raises(NotFoundError, match=r"404.*other/1"):
            insitu.read(f"{url}/x.zarr", "a", decode=False)
