"""Nothing outside of the roots is read, whatever leads there: paths, links, redirects, references,
external files, virtual datasets.
"""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from insitu.errors import AccessError, SourceError
from insitu.server.roots import Roots
from insitu.sources import LocalSource, open_source
from insitu.sources.access_policy import access_policy_scope
from server.serving import Answer, Server, serving

SECRET = np.full(8, 77, "<i4")


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is no root, with a secret in every form."""
    h5py = pytest.importorskip("h5py")
    folder: Path = tmp_path_factory.mktemp("outside")
    (folder / "secret").write_bytes(SECRET.tobytes())
    with h5py.File(folder / "secret.h5", "w") as file:
        file["t"] = SECRET
    return folder


@pytest.fixture(scope="session")
def inside(server: Server, root: Path) -> Path:
    folder = root / "inside"
    folder.mkdir(exist_ok=True)
    (folder / "good").write_bytes(SECRET.tobytes())
    return folder


def chunk(server: Server, url: str, interface: str = "file") -> Answer:
    return server.post("/v2/sum", {"interface_type": interface, "url": url, "dtype": "int32"})


def variable(server: Server, url: str, name: str = "t", **more: Any) -> Answer:
    return server.post("/reduce", {"jobs": [{"url": url, "variable": name, "methods": ["sum"], **more}]})


def assert_refused(answer: Answer, *statuses: int) -> None:
    """Assert that a response has one of these statuses and does not contain the secret."""
    assert answer.status in (statuses or (403,)), (answer.status, answer.body)
    assert int(SECRET.sum()).to_bytes(4, "little") not in answer.body
    assert SECRET.tobytes()[:8] not in answer.body


def test_paths(server: Server, inside: Path, outside: Path) -> None:
    assert chunk(server, f"file://{inside}/good").status == 200
    assert_refused(chunk(server, f"file://{outside}/secret"))
    assert_refused(chunk(server, f"file://{inside}/../../{outside.name}/secret"))
    assert_refused(chunk(server, f"file://{inside}/%2e%2e/%2e%2e/{outside.name}/secret"))
    assert_refused(chunk(server, f"file://{inside}/..%2f..%2f{outside.name}/secret"))
    assert_refused(chunk(server, "file:///etc/passwd"))
    assert_refused(chunk(server, "file:///proc/self/environ"))
    assert_refused(variable(server, str(outside / "secret.h5")))
    assert_refused(variable(server, f"file://{outside}/secret.h5"))
    assert_refused(variable(server, f"{inside}/../../{outside.name}/secret.h5"))
    assert_refused(variable(server, f"simplecache::file://{outside}/secret.h5"))
    assert_refused(variable(server, f"local://{outside}/secret.h5"))
    assert_refused(variable(server, f"reference+json://{outside}/secret.h5"))
    assert_refused(variable(server, "memory://anything"), 403)


def test_a_neighbour_whose_name_begins_like_a_root(server: Server, root: Path, outside: Path) -> None:
    neighbour = root.parent / (root.name + "-of-others")
    neighbour.mkdir(exist_ok=True)
    (neighbour / "secret").write_bytes(SECRET.tobytes())
    assert_refused(chunk(server, f"file://{neighbour}/secret"))


def test_symbolic_links(server: Server, inside: Path, outside: Path) -> None:
    for name, target in (("link", outside / "secret"), ("folder", outside), ("file.h5", outside / "secret.h5")):
        if not (inside / name).is_symlink():
            (inside / name).symlink_to(target)
    if not (inside / "within").is_symlink():
        (inside / "within").symlink_to(inside / "good")
    assert chunk(server, f"file://{inside}/within").status == 200
    assert_refused(chunk(server, f"file://{inside}/link"))
    assert_refused(chunk(server, f"file://{inside}/folder/secret"))
    assert_refused(variable(server, str(inside / "file.h5")))
    assert_refused(variable(server, str(inside / "folder" / "secret.h5")))


def test_zarr_stores_with_links(server: Server, inside: Path, outside: Path) -> None:
    store = inside / "linked.zarr" / "t"
    store.mkdir(parents=True, exist_ok=True)
    meta = {
        "zarr_format": 2,
        "shape": [8],
        "chunks": [8],
        "dtype": "<i4",
        "compressor": None,
        "filters": None,
        "fill_value": 0,
        "order": "C",
    }
    (inside / "linked.zarr" / ".zgroup").write_text('{"zarr_format": 2}')
    (store / ".zarray").write_text(json.dumps(meta))
    if not (store / "0").is_symlink():
        (store / "0").symlink_to(outside / "secret")
    assert_refused(variable(server, str(inside / "linked.zarr")))


def test_references_that_point_elsewhere(server: Server, inside: Path, outside: Path) -> None:
    meta = {
        "zarr_format": 2,
        "shape": [8],
        "chunks": [8],
        "dtype": "<i4",
        "compressor": None,
        "filters": None,
        "fill_value": 0,
        "order": "C",
    }
    targets = [
        str(outside / "secret"),
        f"file://{outside}/secret",
        f"../../{outside.name}/secret",
        "http://127.0.0.1:9/secret",
    ]
    for number, target in enumerate(targets):
        refs = {".zgroup": '{"zarr_format": 2}', "t/.zarray": json.dumps(meta), "t/0": [target, 0, 32]}
        path = inside / f"refs-{number}.json"
        path.write_text(json.dumps({"version": 1, "refs": refs}))
        assert_refused(variable(server, str(path)), 403, 400, 401, 422, 404)


def test_hdf5_that_leads_elsewhere(server: Server, inside: Path, outside: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = inside / "leading.h5"
    with h5py.File(path, "w") as file:
        file["link"] = h5py.ExternalLink(str(outside / "secret.h5"), "/t")
        file.create_dataset("raw", (8,), "<i4", external=[(str(outside / "secret"), 0, 32)])
        layout = h5py.VirtualLayout((8,), "<i4")
        layout[:] = h5py.VirtualSource(str(outside / "secret.h5"), "t", (8,))
        file.create_virtual_dataset("virtual", layout, fillvalue=-1)
    for name in ("link", "raw", "virtual"):
        assert_refused(variable(server, str(path), name), 403, 401, 404, 422)


def test_tables_that_name_other_objects(server: Server, inside: Path, outside: Path) -> None:
    import cbor2

    from insitu.active.wire_array import array_to_wire
    from insitu.model import Encoding
    from insitu.reducing.chunk_storage import chunk_array

    for route in ("/reduce", "/read"):
        for url, good in (
            (str(inside / "good"), True),
            (str(outside / "secret"), False),
            ("https://example.invalid/x", False),
        ):
            table = array_to_wire(chunk_array(url, 0, 32, Encoding(np.dtype("<i4")), None))
            job = {"array": table, "methods": ["sum"]} if route == "/reduce" else {"array": table}
            answer = server.ask("POST", route, cbor2.dumps({"jobs": [job]}), {"Content-Type": "application/cbor"})
            if good:
                assert answer.status == 200
            else:
                assert_refused(answer)


class _Redirecting(http.server.BaseHTTPRequestHandler):
    """`/good/…` serves bytes; `/good/away` sends the reader to `/secret`, on this host or another
    name of it.
    """

    paths: list[str]

    def do_GET(self) -> None:
        type(self).paths.append(self.path)
        if self.path.startswith("/good/away"):
            self.send_response(302)
            port = self.server.server_address[1]
            to = f"http://localhost:{port}/secret" if self.path.endswith("host") else "/secret"
            self.send_header("Location", to)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = SECRET.tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def web() -> Iterator[tuple[str, list[str]]]:
    handler = type("Handler", (_Redirecting,), {"paths": []})
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=served.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{served.server_address[1]}", handler.paths
    served.shutdown()
    served.server_close()


def test_web_addresses_and_redirects(web: tuple[str, list[str]], tmp_path: Path) -> None:
    url, requested = web
    with serving([f"{url}/good/"], tmp_path / "log") as server:
        assert chunk(server, f"{url}/good/x", "http").status == 200
        for bad in (
            f"{url}/secret",
            f"{url}/good/../secret",
            f"{url}/good/%2e%2e/secret",
            f"{url}/good/%252e%252e/secret",
            f"{url}/goodness",
            f"{url}/good/..\\secret",
            url.replace("127.0.0.1", "localhost") + "/good/x",
            url.replace("http", "https") + "/good/x",
            "http://169.254.169.254/latest/meta-data/",
            "http://127.0.0.1:22/",
        ):
            answer = chunk(server, bad, "http")
            assert_refused(answer, 400, 403)
            assert_refused(chunk(server, bad.replace("/x", "/bucket/x"), "s3"), 400, 403)
        before = len([path for path in requested if "secret" in path])
        for path in ("/good/away", "/good/away-to-another-host"):
            assert_refused(chunk(server, url + path, "http"))
            assert_refused(variable(server, url + path))
        assert len([path for path in requested if "secret" in path]) == before, "the redirect was followed"
        assert_refused(chunk(server, url.replace("://", "://user:pass@") + "/good/x", "http"), 400)
        # The storage of S3 is no exception.
        assert_refused(chunk(server, f"{url}/good/away", "s3"), 400, 403)
        assert len([path for path in requested if "secret" in path]) == before, "the redirect was followed"


def test_a_bucket_that_redirects(tmp_path: Path) -> None:
    """A root `s3://` at an endpoint whose answers lead to another server, which sees no request."""
    other = type("Other", (_Redirecting,), {"paths": []})
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), other)
    threading.Thread(target=served.serve_forever, args=(0.02,), daemon=True).start()
    away = type("Away", (_Redirecting,), {"paths": []})

    def do_get(self: Any) -> None:
        type(self).paths.append(self.path)
        self.send_response(307)
        self.send_header("Location", f"http://127.0.0.1:{served.server_address[1]}/box/x")
        self.send_header("Content-Length", "0")
        self.end_headers()

    away.do_GET = away.do_HEAD = do_get  # type: ignore[attr-defined]
    store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), away)
    threading.Thread(target=store.serve_forever, args=(0.02,), daemon=True).start()
    endpoint = f"http://127.0.0.1:{store.server_address[1]}"
    try:
        with serving(["s3://box"], tmp_path / "log", environment={"AWS_ENDPOINT_URL": endpoint}) as server:
            for basic in ({}, {"Authorization": "Basic QUs6aHVzaA=="}):
                assert_refused(
                    server.post(
                        "/v2/sum", {"interface_type": "s3", "url": f"{endpoint}/box/x", "dtype": "int32"}, basic
                    )
                )
                for name in ("x.h5", "x.zarr", "x.zarr/", "x.json"):
                    job = {"url": f"s3://box/{name}", "variable": "t", "methods": ["sum"]}
                    assert_refused(server.post("/reduce", {"jobs": [job]}, basic))
                assert_refused(server.post("/scan", {"url": "s3://box/x.zarr"}, basic))
            assert "hush" not in server.log.read_text()
        assert away.paths  # type: ignore[attr-defined]
        assert other.paths == []  # type: ignore[attr-defined]
    finally:
        for each in (served, store):
            each.shutdown()
            each.server_close()


def test_without_roots_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1234")
    with serving([], tmp_path / "log") as server:
        assert_refused(chunk(server, f"file://{tmp_path}/x"))
        assert_refused(chunk(server, "http://127.0.0.1:9/x", "http"))
        assert_refused(chunk(server, "http://127.0.0.1:9/bucket/x", "s3"))


def test_roots(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "one").write_bytes(b"1")
    found = Roots(
        [
            str(tmp_path / "data"),
            f"file://{tmp_path}/one",
            "https://Host.org/era5",
            "s3://bucket/a/b",
            "http://store:9000/box",
        ]
    )
    assert found.path(str(tmp_path / "data" / "x" / "y"))
    parts = Roots(["https://host.org/year=2020/", f"https://host.org/month=1={tmp_path}/data"])
    assert parts.web("https://host.org/year=2020/a.nc")
    assert not parts.web("https://host.org/year=2021/a.nc")
    assert parts.local_copy("https://host.org/month=1/a.nc") == str(tmp_path / "data" / "a.nc")
    for wrong in ("https://host.org/a?sig=hush", f"https://host.org/={tmp_path}/none"):
        with pytest.raises(SourceError) as problem:
            Roots([wrong])
        assert "hush" not in str(problem.value)
    assert found.path(str(tmp_path / "one"))
    assert not found.path(str(tmp_path / "one-more"))
    assert not found.path(str(tmp_path))
    for url, good in (
        ("https://host.org/era5/x.nc", True),
        ("https://host.org:443/era5", True),
        ("https://host.org/era5x", False),
        ("https://host.org/", False),
        ("http://host.org/era5/x", False),
        ("https://host.org:8443/era5/x", False),
        ("https://host.org/era5/../x", False),
        ("https://host.org.evil.org/era5/x", False),
        ("https://evil@host.org/era5/x", False),
        ("https://host.org/era5/%2e%2e/x", False),
    ):
        assert found.web(url) is good, url
    assert found.bucket("s3", None, "bucket", "a/b/c")
    assert not found.bucket("s3", None, "bucket", "a/bc")
    assert not found.bucket("s3", None, "bucket", "a/b/../c")
    assert not found.bucket("s3", "http://elsewhere:9000", "bucket", "a/b/c")
    assert not found.bucket("gcs", None, "bucket", "a/b/c")
    assert found.bucket("s3", "http://store:9000", "box", "k")
    assert not found.bucket("s3", "http://store:9000", "boxes", "k")


def test_the_gate_looks_at_what_was_opened(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x").write_bytes(b"good")
    (tmp_path / "secret").write_bytes(b"secret")
    os.link(tmp_path / "in" / "x", tmp_path / "in" / "hard")
    with access_policy_scope(Roots([str(tmp_path / "in")])):
        assert LocalSource(tmp_path / "in" / "x").read(0, 9) == b"good"
        with pytest.raises(AccessError, match="read from th"):
            LocalSource(tmp_path / "secret")
        with pytest.raises(AccessError, match="read from th"):
            open_source("simplecache::file:///etc/passwd")
        with pytest.raises(AccessError, match="read from th"):
            open_source("s3://somewhere/else", {"anon": True})
    assert LocalSource(tmp_path / "secret").read(0, 9) == b"secret"


def test_what_others_know_by_a_url_lies_here(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "x y").write_bytes(SECRET.tobytes())
    (tmp_path / "secret").write_bytes(SECRET.tobytes())
    found = Roots([f"https://data.invalid/era5={folder}"])
    assert found.local_copy("https://data.invalid/era5/a/b%20c") == str(folder / "a" / "b c")
    assert found.local_copy("https://data.invalid/other") == "https://data.invalid/other"
    with serving([f"https://data.invalid/era5={folder}"], tmp_path / "log", "--trust-copies") as server:
        answer = chunk(server, "https://data.invalid/era5/x%20y", "https")
        assert answer.status == 200
        assert answer.cbor["count"] == [8]
        assert_refused(chunk(server, "https://data.invalid/era5/../secret", "https"))
        assert_refused(chunk(server, f"file://{tmp_path}/secret"))
