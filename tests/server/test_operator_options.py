"""Storage options of the operator, as operators write them: each form signs what it is meant to sign, on every route,
and no secret is shown.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from insitu.cli import app
from insitu.errors import InsituError
from insitu.server import Settings, create_app
from insitu.server.operator_options import unmatched_options
from server.in_process import Request, ask_app
from server.private_site import VALUES, netcdf

KEYS = {"key": "AKOPERATOR", "secret": "hush"}


class Bucket(BaseHTTPRequestHandler):
    """A store that gives objects to requests that are signed with the operator's key."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        signed = "Credential=AKOPERATOR/" in unquote(self.path + self.headers.get("Authorization", ""))
        data = {"/box/raw": VALUES.tobytes(), "/box/x.nc": netcdf()}.get(self.path.partition("?")[0], b"")
        status, part, more = (403, b"", {}) if not signed else (206 if data else 404, data, {})
        if status == 206:
            first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            start = int(first) if first else max(len(data) - int(last), 0)
            part = data[start : int(last) + 1 if first and last else None]
            more = {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(data)}", "ETag": '"v1"'}
        self.send_response(status)
        for name, value in {**more, "Content-Length": str(len(part))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)

    do_HEAD = do_GET

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


FORMS: dict[str, Any] = {
    "for everything": {**KEYS, "endpoint_url": "{endpoint}"},
    "for everything, as fsspec nests it": {**KEYS, "client_kwargs": {"endpoint_url": "{endpoint}"}},
    "for the bucket": {"s3://box/": {**KEYS, "endpoint_url": "{endpoint}"}},
    "for the bucket, without a slash": {"s3://box": {**KEYS, "endpoint_url": "{endpoint}"}},
    "for all buckets": {"s3://": {**KEYS, "endpoint_url": "{endpoint}"}},
    "with anon": {"s3://box/": {**KEYS, "anon": False, "endpoint_url": "{endpoint}"}},
    "nested in the bucket": {"s3://box/": {**KEYS, "client_kwargs": {"endpoint_url": "{endpoint}"}}},
    "the endpoint for everything, the keys for the bucket": {"endpoint_url": "{endpoint}", "s3://box/": KEYS},
}


def requests(endpoint: str, *, by_bucket: bool = True) -> list[Request]:
    chunk = {"interface_type": "s3", "url": f"{endpoint}/box/raw", "dtype": "int32", "byte_order": "big"}
    job = {"url": "s3://box/x.nc", "variable": "v"}
    there = {"endpoint_url": endpoint, "region": "us-east-1"}
    found = [
        Request("POST", "/v2/sum", {**chunk, "shape": [600]}),
        Request("POST", "/reduce", {"jobs": [{**job, "methods": ["sum"]}], "options": there}),
        Request("POST", "/scan", {"url": "s3://box/x.nc", "options": there}),
    ]
    if by_bucket:
        found += [
            Request("POST", "/read", {"jobs": [job]}),
            Request("GET", "/zarr/s3://box/x.nc!/v/c/0"),
            Request("GET", "/explorer/api/table", query={"url": "s3://box/x.nc", "variable": "v"}),
        ]
    return found


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_used_on_every_route(form: str, endpoint: str) -> None:
    options = json.loads(json.dumps(FORMS[form]).replace("{endpoint}", endpoint))
    settings = Settings(roots=("s3://box",), storage_options=options)
    for answer in ask_app(create_app(settings), *requests(endpoint), *requests(endpoint)):
        assert answer.status == 200, answer.body
    assert unmatched_options(["s3://box"], options) == []


def test_keys_of_an_endpoint(endpoint: str) -> None:
    """The root and the options name the bucket by its endpoint, as clients of the protocol do."""
    options = {f"{endpoint}/box/": KEYS}
    settings = Settings(roots=(f"{endpoint}/box",), storage_options=options)
    for answer in ask_app(create_app(settings), *requests(endpoint, by_bucket=False)):
        assert answer.status == 200, answer.body
    assert unmatched_options([f"{endpoint}/box"], options) == []


def test_keys_stay_with_their_endpoint(endpoint: str) -> None:
    """A bucket of the same name elsewhere is another bucket."""
    elsewhere = {**KEYS, "endpoint_url": "http://127.0.0.1:9"}
    for options in ({"s3://box/": elsewhere}, {"s3://": elsewhere}, elsewhere):
        settings = Settings(roots=("s3://box", endpoint), storage_options=options)
        for answer in ask_app(create_app(settings), *requests(endpoint, by_bucket=False)):
            assert answer.status in (401, 403), answer.body
    other = Settings(roots=("s3://box",), storage_options={"s3://box/": {**KEYS, "endpoint_url": "http://127.0.0.1:9"}})
    for answer in ask_app(create_app(other), *requests(endpoint, by_bucket=False)):
        assert answer.status == 403, answer.body


def test_a_client_does_not_choose_the_credentials_of_the_machine(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS["secret"])
    settings = Settings(roots=(endpoint,))
    job = {"url": "s3://box/x.nc", "variable": "v", "methods": ["sum"]}
    for anon in (True, False):
        given = {"endpoint_url": endpoint, "region": "us-east-1", "anon": anon}
        answer = ask_app(create_app(settings), Request("POST", "/reduce", {"jobs": [job], "options": given}))[0]
        assert answer.status == 401


def test_a_folder_in_place_of_a_url(tmp_path: Path) -> None:
    (tmp_path / "x.nc").write_bytes(netcdf())
    (tmp_path / "refs.json").write_text(
        json.dumps(
            {
                "version": 1,
                "refs": {
                    ".zgroup": '{"zarr_format":2}',
                    "v/.zarray": json.dumps(
                        {
                            "zarr_format": 2, "shape": [600], "chunks": [600], "dtype": ">i4", "order": "C",
                            "compressor": None, "filters": None, "fill_value": None,
                        }
                    ),
                    "v/.zattrs": '{"_ARRAY_DIMENSIONS":["x"]}',
                    "v/0": ["https://data.invalid/raw", 0, VALUES.nbytes],
                },
            }
        )
    )  # fmt: skip
    (tmp_path / "raw").write_bytes(VALUES.tobytes())
    settings = Settings(roots=(f"https://data.invalid/={tmp_path}",))
    (refused,) = ask_app(create_app(settings), Request("GET", "/zarr/https://data.invalid/x.nc!/v/c/0"))
    assert refused.status == 409, "nothing proves that the copy is the object"
    settings = replace(settings, trust_copies=True)
    requested = [
        Request("GET", f"/{route}/https://data.invalid/{name}!/{key}")
        for name in ("x.nc", "x.n*", "refs.json")
        for route, key in (("zarr", "v/c/0"), ("zarr2", "v/0"), ("zarr", "v/c/0"))
    ]
    for answer in ask_app(create_app(settings), *requested):
        assert answer.status == 200, answer.body


def test_options_that_match_no_root() -> None:
    options = {"s3://box/": {}, "s3://other/": {}, "s3": {"key": "k"}, "headers": {"a": "b"}, "key": "k"}
    assert unmatched_options(["s3://box/era5"], options) == ["s3://other/", "s3"]
    assert unmatched_options(["/data", "https://host"], {"https://host/a": {}, "/data/b": {}, "/dat": {}}) == ["/dat"]


@pytest.mark.parametrize(
    "given",
    ['{"key": "hush"', '["hush"]', '{"s3://none/": {"secret": "hush"}}', "hush.json"],
)
def test_secrets_are_not_shown(
    given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("insitu.server.run", lambda settings, **more: None)
    monkeypatch.setattr("logging.config.dictConfig", lambda settings: None)
    shown = ""
    try:
        app(["serve", str(tmp_path), "--storage-options", given], standalone_mode=False)
    except InsituError as problem:
        shown = str(problem)
    if given.endswith(".json"):
        assert "hush.json" in shown
    else:
        assert shown or "s3://none/" in caplog.text
        assert "hush" not in shown + caplog.text


def test_a_table_of_the_file_of_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Settings] = []
    monkeypatch.setattr("insitu.server.run", lambda settings, **more: seen.append(settings))
    monkeypatch.setattr("logging.config.dictConfig", lambda settings: None)
    (tmp_path / "serve.toml").write_text('roots = ["s3://box"]\n[storage_options."s3://box/"]\nkey = "k"\n')
    app(["serve", "--config", str(tmp_path / "serve.toml")], standalone_mode=False)
    assert seen[0].storage_options == {"s3://box/": {"key": "k"}}
    (tmp_path / "serve.toml").write_text('token = "hush"')
    with pytest.raises(InsituError, match="token must be a list of texts") as problem:
        app(["serve", "--config", str(tmp_path / "serve.toml")], standalone_mode=False)
    assert "hush" not in str(problem.value)
