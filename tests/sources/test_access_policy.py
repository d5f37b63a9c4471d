"""Under an access policy no redirect of an object store is followed to a place that is not allowed:
that place gets no request.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from insitu.errors import AccessError, NotFoundError, SourceError
from insitu.server.roots import Roots
from insitu.sources import listing, open_source
from insitu.sources.access_policy import RefusedError, access_policy_scope
from insitu.sources.object_store.signed_requests import _shared_key, _signature_4

PLACES = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}
KEYS: dict[str, list[dict[str, Any]]] = {
    "s3": [{"anon": True}, {"key": "AK", "secret": "hush"}],
    "gs": [{"anon": True}, {"bearer_token": "hush"}],
    "az": [
        {"anon": True, "account_name": "me"},
        {"account_name": "me", "account_key": "aHVzaA=="},
        {"account_name": "me", "sas_token": "sv=2021&sig=hush"},
    ],
}
CASES = [(scheme, options) for scheme, all_of in KEYS.items() for options in all_of]


class Site:
    """A web server that notes what it is asked, and sends everybody `away` if it is told to."""

    def __init__(self) -> None:
        site = self
        self.requests: list[str] = []
        self.away: str | None = None
        self.status = 302
        self.pages: dict[str, bytes] = {}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(self.path)
                site.answer(self)

            do_HEAD = do_GET

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlsplit(handler.path).query)
        mark = (query.get("continuation-token") or query.get("marker") or [""])[0]
        body = self.pages.get(mark, b"secret") if "prefix" in query or "list-type" in query else b"secret"
        if self.away is not None:
            handler.send_response(self.status)
            handler.send_header("Location", self.away)
            body = b""
        else:
            handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("ETag", '"v1"')
        handler.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(body)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site()
    for name in PLACES.values():
        monkeypatch.setenv(name, site.url)
    yield site
    site.close()


@pytest.fixture
def elsewhere() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def acts(url: str, options: dict[str, Any]) -> dict[str, Any]:
    return {
        "read": lambda: open_source(url, options).read(0, 6),
        "read many": lambda: open_source(url, options).read_many([(0, 2), (3, 2)]),
        "size": lambda: open_source(url, options).size(),
        "describe": lambda: open_source(url, options).describe(),
        "tail": lambda: open_source(url, options).tail(2),  # type: ignore[attr-defined]
        "level": lambda: listing.list_folder(url.rpartition("/")[0], options),
        "children": lambda: listing.list_subfolders(url.rpartition("/")[0], options),
        "objects": lambda: listing.list_all_objects(url.rpartition("/")[0], options),
    }


@pytest.mark.parametrize(("scheme", "options"), CASES)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(
    store: Site, elsewhere: Site, scheme: str, options: dict[str, Any], status: int
) -> None:
    store.status = status
    with access_policy_scope(Roots([f"{scheme}://box/a"])):
        for away in (
            f"{elsewhere.url}/box/a/x",
            f"{elsewhere.url.replace('127.0.0.1', 'localhost')}/x",
            f"{store.url}/b/x",
        ):
            store.away = away
            for name, act in acts(f"{scheme}://box/a/x", options).items():
                before = len(store.requests)
                with pytest.raises(RefusedError, match="read from th") as caught:
                    act()
                assert "hush" not in str(caught.value)
                assert len(store.requests) == before + 1, (
                    name
                )  # the question itself, and not the other place on the same server
    assert elsewhere.requests == []


@pytest.mark.parametrize(("scheme", "options"), CASES)
def test_a_redirect_to_what_is_allowed_is_followed(
    store: Site, elsewhere: Site, scheme: str, options: dict[str, Any]
) -> None:
    store.away = f"{elsewhere.url}/good/x"
    with access_policy_scope(Roots([f"{scheme}://box", f"{elsewhere.url}/good"])):
        assert open_source(f"{scheme}://box/x", options).read(0, 6) == b"secret"
    assert elsewhere.requests


@pytest.mark.parametrize(("scheme", "options"), CASES)
def test_what_a_store_answers_itself_is_read(store: Site, scheme: str, options: dict[str, Any]) -> None:
    with access_policy_scope(Roots([f"{scheme}://box"])):
        source = open_source(f"{scheme}://box/a b/ü+x", options)
        assert source.read(0, 6) == b"secret"
        assert source.url == f"{scheme}://box/a b/ü+x"
        assert source.describe().url == source.url
    assert unquote(store.requests[-1].partition("?")[0]).endswith("/box/a b/ü+x")


def s3_page(keys: list[str], folders: list[str], after: str = "") -> bytes:
    found = "".join(f"<Contents><Key>{key}</Key><Size>7</Size></Contents>" for key in keys)
    found += "".join(f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in folders)
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{after}</NextContinuationToken>" if after else ""
    return f'<R xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{found}{more}</R>'.encode()


def azure_page(keys: list[str], folders: list[str], after: str = "") -> bytes:
    found = "".join(
        f"<Blob><Name>{key}</Name><Properties><Content-Length>7</Content-Length></Properties></Blob>" for key in keys
    )
    found += "".join(f"<BlobPrefix><Name>{name}</Name></BlobPrefix>" for name in folders)
    return f"<R><Blobs>{found}</Blobs><NextMarker>{after}</NextMarker></R>".encode()


@pytest.mark.parametrize(("scheme", "options"), CASES)
def test_pages_of_a_listing(store: Site, elsewhere: Site, scheme: str, options: dict[str, Any]) -> None:
    page = azure_page if scheme == "az" else s3_page
    store.pages = {"": page(["a/x", "a/"], ["a/sub/"], "next/1 +"), "next/1 +": page(["a/y z"], ["a/tail/"])}
    with access_policy_scope(Roots([f"{scheme}://box/a"])):
        folder = listing.list_folder(f"{scheme}://box/a", options)
        assert (folder.folders, folder.files) == (["sub", "tail"], ["x", "y z"])
        assert folder.sizes == {"x": 7, "y z": 7}
        assert listing.list_all_objects(f"{scheme}://box/a", options) == {"x": 7, "y z": 7}
        with pytest.raises(RefusedError):
            listing.list_all_objects(f"{scheme}://box/b", options)
        with pytest.raises(RefusedError):
            listing.list_folder(f"{scheme}://box", options)
        store.pages = {"": b"<!DOCTYPE x [<!ENTITY a 'b'>]><R/>"}
        with pytest.raises(SourceError, match="document type"):
            listing.list_all_objects(f"{scheme}://box/a", options)
        store.pages = {"": b"<R><Contents>"}
        with pytest.raises(SourceError, match="cannot be read"):
            listing.list_folder(f"{scheme}://box/a", options)


def test_the_second_page_may_not_lead_away_either(store: Site, elsewhere: Site) -> None:
    answer = store.answer

    def second(handler: BaseHTTPRequestHandler) -> None:
        store.away = f"{elsewhere.url}/x" if "continuation-token" in handler.path else None
        answer(handler)

    store.answer = second  # type: ignore[method-assign]
    store.pages = {"": s3_page(["a/x"], [], "next")}
    with access_policy_scope(Roots(["s3://box/a"])), pytest.raises(RefusedError):
        listing.list_all_objects("s3://box/a", {"anon": True})
    assert elsewhere.requests == []


def test_credentials_that_cannot_sign(store: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with access_policy_scope(Roots(["gs://box"])):
        with pytest.raises(AccessError, match="cannot be listed"):
            listing.list_folder("gs://box", {"service_account_key": SERVICE})
        with pytest.raises((AccessError, SourceError)):
            open_source("gs://box/x", {"service_account_key": "{}"}).read(0, 1)
    assert store.requests == []


SERVICE = '{"private_key": "x", "private_key_id": "1", "client_email": "a@b", "disable_oauth": true}'


def test_a_store_that_refuses(store: Site) -> None:
    with access_policy_scope(Roots(["s3://box"])):
        for status, error in ((404, NotFoundError), (403, AccessError), (401, AccessError), (400, SourceError)):
            store.status, store.away = status, "/x"
            with pytest.raises(error):
                open_source("s3://box/x", {"anon": True}).read(0, 1)
        store.status = 403
        with pytest.raises(AccessError, match="refuses to list"):
            listing.list_all_objects("s3://box/a", {"anon": True})
        store.status = 404
        assert listing.list_all_objects("s3://box/a", {"anon": True}) == {}


def test_signatures_as_their_makers_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    botocore = pytest.importorskip("botocore.auth")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    for token in (None, "session/token="):
        where, query = "https://s3.eu-west-1.amazonaws.com/box", "list-type=2&prefix=a%20b%2F"
        actual = _signature_4(where, query, ("AK", "hush", token), "eu-west-1")
        request = AWSRequest("GET", f"{where}?{query}")
        signer = botocore.S3SigV4Auth(Credentials("AK", "hush", token), "s3", "eu-west-1")
        request.context["timestamp"] = actual["x-amz-date"]
        request.headers["X-Amz-Content-SHA256"] = actual["x-amz-content-sha256"]
        if token:
            request.headers["X-Amz-Security-Token"] = token
        request.headers["X-Amz-Date"] = actual["x-amz-date"]
        text = signer.string_to_sign(request, signer.canonical_request(request))
        assert actual["Authorization"].endswith(f"Signature={signer.signature(text, request)}")
    assert _shared_key("https://me.blob.core.windows.net/box", {"comp": "list"}, "me", "aHVzaA==")[
        "Authorization"
    ].startswith("SharedKey me:")
