"""What a server refuses it does not describe: no answer names a path, or an address, that lies
outside the roots.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import cbor2
import h5py
import numpy as np
import pytest

from access_policies import PathPolicy
from insitu.active.wire_array import array_to_wire
from insitu.errors import AccessError, CodecError, FormatError, NotFoundError, SourceError, VariableError
from insitu.model import Encoding
from insitu.reducing.chunk_storage import chunk_array
from insitu.server.error_responses import public_message
from insitu.sources.access_policy import access_policy_scope, without_outside_paths
from server.serving import Answer, Server, serving

SECRET = "keep-this-name-to-yourself"
COPIED = "http://copied.example/a"


class Redirecting(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/locked"):
            self.send_response(401)
        else:
            self.send_response(302)
            scheme = "s3" if self.path.startswith("/bucket") else "http"
            self.send_header("Location", f"{scheme}://{SECRET}.internal/{SECRET}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root: Path = tmp_path_factory.mktemp("root")
    outside: Path = tmp_path_factory.mktemp(SECRET)
    with h5py.File(outside / "x.h5", "w") as file:
        file["v"] = np.arange(10.0)
    np.arange(10.0).tofile(outside / "raw")
    (root / "link.h5").symlink_to(outside / "x.h5")
    (root / "folder").symlink_to(outside)
    with h5py.File(root / "external.h5", "w") as file:
        file["here"] = np.arange(3.0)
        file["v"] = h5py.ExternalLink(str(outside / "x.h5"), "v")
    with h5py.File(root / "storage.h5", "w") as file:
        file.create_dataset("v", (10,), "f8", external=[(str(outside / "raw"), 0, 80)])
    with h5py.File(root / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((10,), "f8")
        layout[:] = h5py.VirtualSource(str(outside / "x.h5"), "v", (10,))
        file.create_virtual_dataset("v", layout)
    array = {
        "zarr_format": 2,
        "shape": [10],
        "chunks": [10],
        "dtype": "<f8",
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
    refs = {
        ".zgroup": '{"zarr_format": 2}',
        "v/.zarray": json.dumps(array),
        "v/.zattrs": '{"_ARRAY_DIMENSIONS": ["x"]}',
    }
    kerchunk = {"version": 1, "refs": {**refs, "v/0": [str(outside / "raw"), 0, 80]}}
    (root / "refs.json").write_text(json.dumps(kerchunk))
    dmrpp = f"""<?xml version="1.0"?>
<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#"
 dmrpp:href="{outside}/raw" name="x"><Dimension name="x" size="10"/><Float64 name="v"><Dim name="/x"/>
<dmrpp:chunks><dmrpp:chunk offset="0" nBytes="80"/></dmrpp:chunks></Float64></Dataset>"""
    (root / "x.dmrpp").write_text(dmrpp)
    return root, outside


@pytest.fixture(scope="module")
def client(folders: tuple[Path, Path], site: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    copies = tmp_path_factory.mktemp(SECRET)
    for path in folders[0].iterdir():
        if path.is_file() and not path.is_symlink():
            (copies / path.name).write_bytes(path.read_bytes())
    (copies / "damaged.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 100)
    (copies / "text.nc").write_text("hello")
    (copies / "empty.zarr").mkdir()
    with serving([folders[0], site, f"{COPIED}={copies}"], tmp_path_factory.mktemp("log") / "log") as found:
        yield found


def _reduce(client: Server, url: str) -> Answer:
    return client.post("/reduce", {"jobs": [{"url": url, "variable": "v", "methods": ["sum"]}]})


def _read_decoded(client: Server, url: str) -> Answer:
    return client.post("/read", {"jobs": [{"url": url, "variable": "v", "decode": True}]})


def _table(client: Server, url: str) -> Answer:
    table = array_to_wire(chunk_array(url, 0, 80, Encoding(np.dtype("<f8")), (10,)))
    body = cbor2.dumps({"jobs": [{"array": table, "methods": ["sum"]}]})
    return client.ask("POST", "/reduce", body, {"Content-Type": "application/cbor"})


def _scan(client: Server, url: str) -> Answer:
    return client.post("/scan", {"url": url})


def _zarr(client: Server, url: str) -> Answer:
    return client.get(f"/zarr{url if url.startswith('/') else '/' + url}!/v/c/0")


def _v2(client: Server, url: str) -> Answer:
    interface, place = ("file", f"file://{url}") if url.startswith("/") else ("http", url)
    return client.post("/v2/sum", {"interface_type": interface, "url": place, "dtype": "float64", "shape": [10]})


ROUTES: dict[str, Callable[[Server, str], Answer]] = {
    "reduce": _reduce, "read": _read_decoded, "table": _table, "scan": _scan, "zarr": _zarr, "v2": _v2,
}  # fmt: skip
PLACES = [
    "link.h5",
    "folder/x.h5",
    "folder",
    "external.h5",
    "storage.h5",
    "virtual.h5",
    "refs.json",
    "x.dmrpp",
    "folder/none.h5",
]


@pytest.mark.filterwarnings("ignore::insitu.formats.unreadable.InsituWarning")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("route", ROUTES)
def test_no_answer_names_what_lies_outside(client: Server, folders: tuple[Path, Path], route: str, place: str) -> None:
    answer = ROUTES[route](client, str(folders[0] / place))
    assert answer.status != 500, answer.body.decode(errors="replace")
    if route not in ("scan", "v2", "table"):
        assert answer.status >= 400 or place == "virtual.h5"
    if (route, place) == ("scan", "refs.json"):
        assert (
            answer.status == 200
        )  # what a set of references says is its content, and its chunks are refused when they are read
        return
    assert SECRET.encode() not in answer.body


@pytest.mark.parametrize("route", ROUTES)
def test_a_path_outside_is_refused_without_its_name(client: Server, folders: tuple[Path, Path], route: str) -> None:
    there, gone = (ROUTES[route](client, str(folders[1] / name)) for name in ("x.h5", "none.h5"))
    assert there.status == gone.status == 403
    assert there.body == gone.body  # nor does it tell whether it exists
    assert SECRET.encode() not in there.body


@pytest.mark.parametrize(
    "name", ["x.h5", "damaged.h5", "text.nc", "empty.zarr", "none.nc", "storage.h5", "refs.json", ""]
)
@pytest.mark.parametrize("route", [*ROUTES, "chunks"])
def test_a_copy_is_named_by_its_url(client: Server, route: str, name: str) -> None:
    """The folder of a root URL=FOLDER is the operator's business."""
    url = f"{COPIED}/{name}"
    if route == "chunks":
        answer = client.get(f"/explorer/api/chunks?archive={quote(url)}&variable=v")
    else:
        answer = ROUTES[route](client, url)
    assert answer.status != 500, answer.body.decode(errors="replace")
    assert (name, route) == ("refs.json", "scan") or SECRET.encode() not in answer.body
    if route in ("reduce", "scan") and name in ("damaged.h5", "text.nc", "none.nc", "empty.zarr"):
        assert f"[in {url}]" in answer.message or f", in {url}]" in answer.message


@pytest.mark.parametrize("route", ROUTES)
def test_hints_are_for_the_client(client: Server, site: str, route: str) -> None:
    answer = ROUTES[route](client, f"{site}/locked.nc")
    assert answer.status == 401
    assert "netrc" not in answer.message
    assert "storage_options" not in answer.message
    assert "Basic credentials" in answer.message


@pytest.mark.parametrize("place", ["x.nc", "bucket.nc"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_redirect_to_the_outside_is_refused_by_the_address_asked_for(
    client: Server, site: str, route: str, place: str
) -> None:
    answer = ROUTES[route](client, f"{site}/{place}")
    assert answer.status == 403
    assert SECRET not in answer.body.decode(errors="replace")
    assert site.removeprefix("http://") in answer.body.decode(errors="replace")


def test_hints_and_causes_are_searched() -> None:
    with access_policy_scope(PathPolicy(lambda path: f"{path}/".startswith("/data/my files/"))):
        hidden = [
            AccessError(
                "there is no AWS profile 'x'",
                url="s3://b",
                hint="Looked in /home/op/.aws/config and /home/op/.aws/credentials.",
            ),
            SourceError("the cache folder cannot be created: full", url="/var/cache/op/insitu"),
            SourceError("the certificate bundle '/etc/op ssl/x.pem' cannot be read", url="https://h/x"),
            NotFoundError("no such file", url="file:///home/op/x"),
            CodecError("cannot be decoded", url="/home/op/x.nc"),
            OSError(2, "No such file or directory", "/home/op/x y"),
            FormatError("is damaged", url="/data/my files/../../op/x.nc"),
        ]
        for error in hidden:
            assert "op/" not in public_message(error), error
            assert "op " not in public_message(error), error
        shown = SourceError("failed", url="/data/my files/a b.nc")
        assert public_message(shown) == "failed [in /data/my files/a b.nc]"
        assert public_message(VariableError("there is no variable '/a/b'")) == "there is no variable '/a/b'"
        assert "/data/my files/x" in without_outside_paths("see '/data/my files/x'")
    assert without_outside_paths("see /home/op/x") == "see /home/op/x"


def test_a_link_is_named_as_the_client_knows_it(client: Server, folders: tuple[Path, Path]) -> None:
    answer = _reduce(client, str(folders[0] / "link.h5"))
    assert answer.status == 403
    assert os.path.join(folders[0], "link.h5") in answer.json["error"]["message"]
