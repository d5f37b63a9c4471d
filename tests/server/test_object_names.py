"""Objects whose names need quoting are found by every route: as the Reductionist compliance suite
names them, and worse.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import cbor2
import numpy as np
import pytest
import xarray
from scipy.io import netcdf_file

import insitu
from insitu.active.wire_array import array_to_wire
from insitu.model import Encoding
from insitu.reducing.chunk_storage import chunk_array
from insitu.server.error_responses import RequestError
from insitu.server.reductionist.object_url import locate_object
from insitu.server.reductionist.request import parse_chunk_request
from server.places import basic, servers
from server.serving import Server, serving

NAMES = [
    "shape-[5, 5, 4]",
    "a b",
    "100%",
    "50%41",
    "a%20b",
    "a+b",
    "ü-é-日本",
    "who?",
    "no#1",
    "a?b#c",
    "#",
    "?",
    "a&b=c",
    "{x,y}",
    "wow!",
    "~tilde",
    "'single' \"double\"",
    "comma,semi;colon:",
    "at@sign",
    "star*",
    "caret^pipe|tick`",
    "<lt>",
    "$dollar",
    "folder [1]/a b",
    "x.zarr?b",
    "[z-a]",
    "50%zz %41",
    "x?sig=1",
    "a?b&&c",
]
PATTERNS = ("?", "{x,y}")
"""Where many files are opened these mean others too, or others only: a pattern goes before a name
that looks like one.
"""
VALUES = np.arange(100, dtype="<f4")
KEYS = {"key": servers.KEY, "secret": servers.SECRET}
LOGIN = basic(servers.KEY, servers.SECRET)


def netcdf() -> bytes:
    file = BytesIO()
    made = netcdf_file(file, "w")
    made.createDimension("x", VALUES.size)
    made.createVariable("v", ">f4", ("x",))[:] = VALUES
    made.flush()
    return file.getvalue()


FILE = netcdf()


class Strict(BaseHTTPRequestHandler):
    """A web server that decodes a path once, and refuses what may not stand in one (RFC 3986)."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        legal = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:@/%[]")
        lone = any(len(part) < 2 or not set(part[:2]) <= set("0123456789abcdefABCDEF") for part in path.split("%")[1:])
        data = self.objects.get(unquote(path)[1:]) if set(path) <= legal and not lone else None
        if data is None:
            status, part, more = (400 if lone or not set(path) <= legal else 404), b"", {}
        else:
            first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            if not first:
                first, last = str(max(len(data) - int(last), 0)), str(len(data) - 1)
            part = data[int(first) : int(last) + 1 if last else None]
            status, more = 206, {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"}
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)

    do_HEAD = do_GET

    def log_message(self, *arguments: object) -> None:
        pass


@dataclass
class Storage:
    """One kind of storage, with objects of all the names."""

    interface: str
    quoted: Callable[[str], str]
    """The URL of a name, as a careful client writes it for `/v2`."""
    raw: Callable[[str], str]
    """As the clients of Reductionist write it: the name as it is."""
    ours: Callable[[str], str]
    """As users of insitu write it."""
    headers: dict[str, str]
    options: dict[str, Any]
    python: dict[str, Any]


@pytest.fixture(scope="module")
def website() -> Iterator[tuple[str, dict[str, bytes]]]:
    handler = type("Handler", (Strict,), {"objects": {}})
    site = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=site.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{site.server_address[1]}", handler.objects  # type: ignore[attr-defined]
    site.shutdown()
    site.server_close()


@pytest.fixture(scope="module")
def all_storage(
    website: Any, store: Any, all_places: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Storage]:
    folder: Path = tmp_path_factory.mktemp("names")
    for name, (suffix, data) in product(NAMES, ((".bin", VALUES.tobytes()), (".nc", FILE))):
        path = folder / f"{name}{suffix}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        website[1][f"{name}{suffix}"] = data
    site = website[0]
    found = {
        "file": Storage(
            "file", lambda name: f"file://{quote(f'{folder}/{name}')}", lambda name: f"file://{folder}/{name}",
            lambda name: f"{folder}/{name}", {}, {}, {},
        ),
        "http": Storage(
            "http", lambda name: f"{site}/{quote(name)}", lambda name: f"{site}/{name}",
            lambda name: f"{site}/{quote(name, safe='/ []{}<>|^`é日本ü')}", {}, {}, {},
        ),
    }  # fmt: skip
    if store is not None:
        _fill(store.url)
        base = f"{store.url}/private/names"
        found["s3"] = Storage(
            "s3", lambda name: f"{base}/{quote(name)}", lambda name: f"{base}/{name}",
            lambda name: f"s3://private/names/{name}", LOGIN, {"endpoint_url": store.url},
            {"endpoint_url": store.url, **KEYS},
        )  # fmt: skip
    return found


def _fill(endpoint: str) -> None:
    import obstore
    from obstore.store import S3Store

    config: Any = {
        "endpoint": endpoint, "access_key_id": servers.KEY, "secret_access_key": servers.SECRET, "region": "us-east-1"
    }  # fmt: skip
    bucket = S3Store("private", config=config, client_options={"allow_http": True})
    for name in NAMES:
        obstore.put(bucket, f"names/{name}.bin", VALUES.tobytes())
        obstore.put(bucket, f"names/{name}.nc", FILE)
    listed = {row["path"] for page in obstore.list(bucket, "names") for row in page}
    # Other processes of the same run may have put more there.
    assert listed >= {f"names/{name}{suffix}" for name in NAMES for suffix in (".bin", ".nc")}


@pytest.fixture(scope="module", params=["file", "http", "s3"])
def storage(request: pytest.FixtureRequest, all_storage: dict[str, Storage]) -> Storage:
    if request.param not in all_storage:
        pytest.skip(servers.reason("seaweedfs"))
    return all_storage[request.param]


@pytest.fixture(scope="module")
def running(
    all_storage: dict[str, Storage], website: Any, store: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = all_storage["file"].ours("")
    roots = [folder, website[0], *([store.url, "s3://private"] if store is not None else [])]
    environment = {} if store is None else {"AWS_ENDPOINT_URL": store.url}
    log: Path = tmp_path_factory.mktemp("log") / "serve.log"
    with serving(roots, log, environment=environment) as found:
        yield found


def _means_itself(name: str, interface: str) -> bool:
    """Whether a name that is not quoted can only be read as itself: `%41` always means A, and a web
    address has a query.
    """
    encoded = unquote(name) != name
    return not encoded and not (interface == "http" and set("?#") & set(name))


def _total(server: Server, url: str, storage: Storage) -> float:
    request = {"interface_type": storage.interface, "url": url, "dtype": "float32", "byte_order": "little"}
    answer = server.post("/v2/sum", {**request, "shape": [100]}, storage.headers)
    assert answer.status == 200, answer.message
    return float(np.frombuffer(answer.cbor["bytes"], "<f4")[0])


@pytest.mark.parametrize("name", NAMES)
def test_v2(running: Server, storage: Storage, name: str) -> None:
    assert _total(running, storage.quoted(f"{name}.bin"), storage) == VALUES.sum()
    if _means_itself(name, storage.interface):
        assert _total(running, storage.raw(f"{name}.bin"), storage) == VALUES.sum()


@pytest.mark.parametrize("name", NAMES)
def test_our_own_routes(running: Server, storage: Storage, name: str) -> None:
    url = storage.ours(f"{name}.nc")
    job = {"url": url, "variable": "v", "methods": ["sum"]}
    answer = running.post("/reduce", {"jobs": [job], "options": storage.options}, storage.headers)
    assert answer.status == 200, answer.message
    assert running.post("/scan", {"url": url, "options": storage.options}, storage.headers).status == 200
    table = array_to_wire(chunk_array(storage.ours(f"{name}.bin"), 0, 400, Encoding(VALUES.dtype), (100,)))
    body = cbor2.dumps({"jobs": [{"array": table}], "options": storage.options})
    answer = running.ask("POST", "/read", body, {"Content-Type": "application/cbor", **storage.headers})
    assert answer.status == 200, answer.message
    assert b"".join(item for item in answer.items if isinstance(item, bytes)) == VALUES.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_zarr_view(running: Server, storage: Storage, name: str) -> None:
    url = storage.ours(f"{name}.nc")
    answer = running.get(f"/zarr/{quote(url)}!/v/zarr.json", storage.headers)
    assert answer.status == 200, answer.message
    assert answer.json["shape"] == [100]


@pytest.mark.parametrize("name", NAMES)
def test_python(storage: Storage, name: str) -> None:
    url, options = storage.ours(f"{name}.nc"), storage.python
    np.testing.assert_array_equal(insitu.read(url, "v", storage_options=options, decode=False), VALUES)
    group = insitu.scan(url, storage_options=options, decode=False)
    np.testing.assert_array_equal(insitu.read(group, "v", storage_options=options, decode=False), VALUES)
    expected = xarray.Dataset({"v": ("x", VALUES)})
    with insitu.open_dataset(url, storage_options=options) as found:
        xarray.testing.assert_equal(found.load(), expected)
    if name in PATTERNS and storage.interface == "s3":
        return
    with insitu.open_mfdataset([url], storage_options=options) as found:
        xarray.testing.assert_equal(found.load(), expected)


@pytest.mark.parametrize("name", NAMES)
def test_python_by_other_spellings(all_storage: dict[str, Storage], name: str) -> None:
    path = all_storage["file"].ours(f"{name}.nc")
    for url in (Path(path), f"file://{quote(path)}"):
        np.testing.assert_array_equal(insitu.read(url, "v", decode=False), VALUES)
    np.testing.assert_array_equal(insitu.read(all_storage["http"].quoted(f"{name}.nc"), "v", decode=False), VALUES)


@pytest.mark.parametrize("target", ["refs.json", "refs.parq", "refs.insitu"])
def test_saved_references(storage: Storage, tmp_path: Path, target: str) -> None:
    """The names survive being written down."""
    for number, name in enumerate(NAMES):
        place = str(tmp_path / f"{number}-{target}")
        with insitu.open_dataset(storage.ours(f"{name}.nc"), storage_options=storage.python) as dataset:
            dataset.insitu.save(place)
        with insitu.open_dataset(place, storage_options=storage.python) as found:
            np.testing.assert_array_equal(found.v.values, VALUES)


# -- the compliance suite's way: one object for each case, named by what it tests, never quoted

SHAPES = [[10], [5, 2], [5, 5, 4], [1, 1], [2, 3, 1, 2]]
TYPES = ["int32", "int64", "uint32", "uint64", "float32", "float64"]
ORDERS = ["C", "F"]


def test_cases_as_the_compliance_suite_names_them(
    running: Server, storage: Storage, all_storage: Any, website: Any
) -> None:
    """300 cases on objects such as `sum-int32-shape-[5, 5, 4]-order-F-selection-[[0, 5, 2], [1, 4,
    1], [0, 4, 1]].bin`.
    """
    import obstore
    from obstore.store import S3Store

    put: Callable[[str, bytes], Any]
    if storage.interface == "file":
        put = lambda name, data: Path(storage.ours(name)).write_bytes(data)  # noqa: E731
    elif storage.interface == "http":
        put = website[1].__setitem__
    else:
        config: Any = {
            "endpoint": storage.options["endpoint_url"],
            "access_key_id": servers.KEY,
            "secret_access_key": servers.SECRET,
            "region": "us-east-1",
        }
        bucket = S3Store("private", config=config, client_options={"allow_http": True})
        put = lambda name, data: obstore.put(bucket, f"names/{name}", data)  # noqa: E731
    cases = 0
    for shape, kind, order in product(SHAPES, TYPES, ORDERS):
        array = (np.arange(1, np.prod(shape) + 1)).reshape(shape).astype(kind)
        selection = [[0, length, 2] if length > 2 else [0, length, 1] for length in shape]
        name = f"all-{kind}-shape-{shape}-order-{order}-selection-{selection}.bin"
        put(name, array.tobytes(order))  # type: ignore[arg-type]
        request = {
            "interface_type": storage.interface,
            "url": storage.raw(name),
            "dtype": kind,
            "shape": shape,
            "order": order,
            "selection": selection,
            "byte_order": "little",
        }
        chosen = array[tuple(slice(*part) for part in selection)]
        for operation in ("count", "max", "min", "sum", "select"):
            answer = running.post(f"/v2/{operation}", request, storage.headers)
            assert answer.status == 200, (name, answer.message)
            found = np.frombuffer(answer.cbor["bytes"], answer.cbor["dtype"])
            wanted = {"count": chosen.size, "select": chosen.ravel(order)}.get(operation)  # type: ignore[arg-type, call-overload]
            np.testing.assert_array_equal(
                found, getattr(chosen, operation)() if wanted is None else wanted, err_msg=name
            )
            cases += 1
    assert cases == 300


# -- without a server


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://h/b/shape-[5, 5, 4]", "shape-[5, 5, 4]"),
        ("http://h/b/shape-[5,%205,%204]", "shape-[5, 5, 4]"),
        ("http://h/b/shape-%5B5%2C%205%2C%204%5D", "shape-[5, 5, 4]"),
        ("http://h/b/100%", "100%"),
        ("http://h/b/100%25", "100%"),
        ("http://h/b/100%2541", "100%41"),
        ("http://h/b/a+b", "a+b"),
        ("http://h/b/a%2Bb", "a+b"),
        ("http://h/b/日本", "日本"),
        ("http://h/b/a?b#c", "a?b#c"),
        ("http://h/b/a%3Fb%23c", "a?b#c"),
        ("http://h/b//a//b", "a//b"),
        (" http://h/b/a ", "a"),
    ],
)
def test_the_key_of_a_url(url: str, key: str) -> None:
    assert locate_object("s3", url).url == f"s3://b/{key}"


@pytest.mark.parametrize(
    "url",
    ["http://h/b/a\nb", "http://h/b/a\0", "http://h/b/a\x7f", "http://h/b/\ud800", "http://[::1/b/a", "h/b/a", ""],
)
def test_what_is_no_url(url: str) -> None:
    for interface in ("s3", "http", "file"):
        with pytest.raises(RequestError) as problem:
            locate_object(interface, url)
        assert "url" in str(problem.value.why)


def test_parameters_of_s3_are_refused_by_name() -> None:
    for query in ("versionId=1", "X-Amz-Signature=abc", "a=1&AWSAccessKeyId=AK&Signature=s"):
        with pytest.raises(RequestError) as problem:
            locate_object("s3", f"http://h/b/key?{query}")
        assert "parameters" in str(problem.value.why)
        assert "abc" not in str(problem.value.why)


def test_a_missing_shape_is_reported_before_a_zero_stride() -> None:
    request = b'{"interface_type": "s3", "url": "http://h/b/k", "dtype": "int32", "selection": [[0, 5, 0]]%s}'
    with pytest.raises(RequestError) as problem:
        parse_chunk_request(request % b"")
    assert problem.value.why == "Selection requires shape to be specified"
    with pytest.raises(RequestError) as problem:
        parse_chunk_request(request % b', "shape": [5]')
    assert "stride must not be equal to zero" in str(problem.value.why)
