"""One server for the tests of this folder, over a folder of files; and one over every kind of
storage.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from server.places import Place, Website, basic, bucket_of, servers
from server.private_site import Site
from server.serving import Server, serving


@pytest.fixture(scope="session", autouse=True)
def no_credentials() -> Iterator[None]:
    """A machine without credentials: what a developer has set up must not let a test pass."""
    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    yield
    os.environ.update(before)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the one server. What fixtures write there is made once in a session: tests of one module may run
    in several turns.
    """
    found: Path = tmp_path_factory.mktemp("root")
    return found


@pytest.fixture(scope="session")
def server(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([root], tmp_path_factory.mktemp("log") / "serve.log") as running:
        yield running


@pytest.fixture(scope="session")
def web() -> Iterator[tuple[str, dict[str, bytes]]]:
    handler = type("Handler", (Website,), {"objects": {}})
    site = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=site.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{site.server_address[1]}", handler.objects  # type: ignore[attr-defined]
    site.shutdown()
    site.server_close()


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A web server that lets ann in."""
    found = Site()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """SeaweedFS, or None where it cannot be had."""
    if servers.reason("seaweedfs") is not None:
        yield None
        return
    with servers.start("seaweedfs", tmp_path_factory.mktemp("seaweed")) as running:
        yield running


@pytest.fixture(scope="session")
def all_places(web: Any, store: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    folder: Path = tmp_path_factory.mktemp("files")
    roots = [folder, web[0], *([store.url] if store is not None else [])]
    numbers = iter(range(1_000_000))

    def file(data: bytes) -> str:
        path = folder / f"a b-{next(numbers)}"
        path.write_bytes(data)
        return f"file://{quote(str(path))}"

    def page(data: bytes) -> str:
        path = f"/x{next(numbers)}"
        web[1][path] = data
        return web[0] + path

    with serving(roots, tmp_path_factory.mktemp("log") / "serve.log") as running:
        found = {"file": Place(running.url, "file", file), "http": Place(running.url, "http", page)}
        if store is not None:
            found["s3"] = Place(running.url, "s3", bucket_of(store.url, numbers), basic(servers.KEY, servers.SECRET))
        yield found


@pytest.fixture(params=["file", "http", "s3"])
def place(request: pytest.FixtureRequest, all_places: dict[str, Place]) -> Place:
    if request.param not in all_places:
        pytest.skip(servers.reason("seaweedfs"))
    return all_places[request.param]


@pytest.fixture
def near(all_places: dict[str, Place]) -> Place:
    return all_places["file"]
