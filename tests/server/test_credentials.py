"""Credentials of one client never serve another, by any route and out of any cache; those of the
operator serve nobody.

Modules: server/client_source_pools.py
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pytest

from access_policies import PathPolicy
from insitu.active.wire_array import array_to_wire
from insitu.model import Encoding, Source
from insitu.reading import ChunkCache
from insitu.reducing.chunk_storage import chunk_array
from insitu.server.authentication import Credentials, TokenError, identify
from insitu.server.client_cache import ClientCache
from insitu.server.client_source_pools import ClientSourcePools
from insitu.server.local_copies import LocalCopies
from insitu.server.metrics import Metrics
from insitu.server.scanned_archives import ScannedArchives
from insitu.sources import open_source
from insitu.sources.access_policy import access_policy_scope, can_use_environment
from insitu.sources.http.login import cookies_for
from insitu.sources.object_store.bucket import open_bucket
from server.private_site import ANN, BOB, VALUES, Site, login
from server.serving import Answer, Server, serving


@pytest.fixture(scope="module")
def running(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose operator can read the site by netrc, has keys for buckets, and keeps bytes on
    disk.
    """
    folder: Path = tmp_path_factory.mktemp("operator")
    (folder / ".netrc").write_text("machine 127.0.0.1 login ann password hush\n")
    (folder / ".netrc").chmod(0o600)
    (folder / "options.json").write_text(json.dumps({"cache": str(folder / "cache")}))
    environment = {"HOME": str(folder), "NETRC": str(folder / ".netrc")}
    options = ("--storage-options", str(folder / "options.json"), "--cache", "0")
    with serving([site.url], folder / "log", *options, environment=environment) as found:
        yield found


def _v2(server: Server, site: Site, how: str, headers: dict[str, str]) -> Answer:
    request = {"interface_type": "http", "url": f"{site.url}/{how}/raw", "dtype": "int32", "byte_order": "big"}
    return server.post("/v2/sum", {**request, "shape": [600]}, headers)


def _by_url(server: Server, site: Site, how: str, headers: dict[str, str]) -> Answer:
    job = {"url": f"{site.url}/{how}/x.nc", "variable": "v", "methods": ["sum"]}
    return server.post("/reduce", {"jobs": [job]}, headers)


def _by_table(route: str) -> Callable[..., Answer]:
    def ask(server: Server, site: Site, how: str, headers: dict[str, str]) -> Answer:
        # With the ETag: whoever has seen the object once knows it, and sources that have been told
        # it need not ask.
        url = f"{site.url}/{how}/raw"
        table = array_to_wire(chunk_array(url, 0, VALUES.nbytes, Encoding(VALUES.dtype), VALUES.shape))
        table["sources"] = [[url, VALUES.nbytes, '"v1"', None, False]]
        job: dict[str, Any] = {"array": table}
        if route == "/reduce":
            job["methods"] = ["sum"]
        return server.ask("POST", route, cbor2.dumps({"jobs": [job]}), {"Content-Type": "application/cbor", **headers})

    return ask


def _scan(name: str) -> Callable[..., Answer]:
    return lambda server, site, how, headers: server.post("/scan", {"url": f"{site.url}/{how}/{name}"}, headers)


def _zarr(route: str) -> Callable[..., Answer]:
    def ask(server: Server, site: Site, how: str, headers: dict[str, str]) -> Answer:
        return server.get(f"/{route}/{site.url}/{how}/x.nc!/{'v/c/0' if route == 'zarr' else 'v/0'}", headers)

    return ask


ROUTES: dict[str, Callable[..., Answer]] = {
    "v2": _v2,
    "reduce-url": _by_url,
    "reduce-table": _by_table("/reduce"),
    "read-table": _by_table("/read"),
    "scan": _scan("x.nc"),
    "scan-member": _scan("x.zip::a.nc"),
    "zarr": _zarr("zarr"),
    "zarr2": _zarr("zarr2"),
}


@pytest.mark.parametrize("how", ["header", "cookie", "connection"])
@pytest.mark.parametrize("route", ROUTES)
def test_no_route_gives_a_client_what_another_may_read(site: Site, running: Server, route: str, how: str) -> None:
    def ask(headers: dict[str, str]) -> int:
        return ROUTES[route](running, site, how, headers).status

    assert ask({}) == 401  # nor is the operator's netrc used
    assert ask(ANN) == 200
    assert ask({}) == 401
    assert ask(BOB) == 401
    assert ask(ANN) == 200


def test_behind_the_server_no_cookie_is_sent_and_no_login_but_the_clients(site: Site, running: Server) -> None:
    site.handler.seen.clear()  # type: ignore[attr-defined]
    for headers in (ANN, {}, BOB):
        for how in ("header", "cookie"):
            _v2(running, site, how, headers)
    seen = site.handler.seen  # type: ignore[attr-defined]
    assert {cookie for _, _, cookie in seen} == {None}
    assert {message for _, message, _ in seen} == {None, ANN["Authorization"], BOB["Authorization"]}


def test_a_name_that_is_empty_is_refused() -> None:
    with pytest.raises(TokenError, match="no name"):
        identify({"authorization": login("", "x")["Authorization"]}, None)


def test_no_two_pairs_of_name_and_secret_have_one_digest() -> None:
    assert Credentials("a\0b", "c").digest != Credentials("a", "b\0c").digest


# -- every cache by its name

EVERYTHING = PathPolicy(lambda path: True, remote=True)
"""Lets everything in: what counts is that there is a policy."""


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ann password hush\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


@pytest.mark.usefixtures("netrc")
def test_netrc_is_for_clients_only(site: Site) -> None:
    url = f"{site.url}/header/raw"
    assert open_source(url).read(0, 4) == VALUES.tobytes()[:4]
    with access_policy_scope(EVERYTHING), pytest.raises(PermissionError, match="401"):
        open_source(url).read(0, 4)


def test_cookie_jar(site: Site) -> None:
    url = f"{site.url}/cookie/raw"
    assert open_source(url, {"headers": ANN}).read(0, 4) == VALUES.tobytes()[:4]
    assert open_source(url, {"headers": ANN}).read(0, 4) == VALUES.tobytes()[:4]
    with pytest.raises(PermissionError):
        open_source(url).read(0, 4)
    with pytest.raises(PermissionError):
        open_source(url, {"headers": BOB}).read(0, 4)
    assert cookies_for("a") is cookies_for("a")
    assert cookies_for("a") is not cookies_for("b")


def test_connection_pool(site: Site) -> None:
    url = f"{site.url}/connection/raw"
    assert open_source(url, {"headers": ANN}).read(0, 4) == VALUES.tobytes()[:4]
    with pytest.raises(PermissionError):
        open_source(url).read(0, 4)
    with pytest.raises(PermissionError):
        open_source(url, {"headers": BOB}).read(0, 4)


def test_connections_are_shared_by_the_same_credentials(site: Site) -> None:
    """One login serves further files: what does not separate clients is not given up."""
    from insitu.sources.http.connections import find_connection_pool
    from insitu.sources.http.login import credential_scope

    scope = credential_scope(ANN)
    assert (
        find_connection_pool(f"{site.url}/a", True, scope)[0] is find_connection_pool(f"{site.url}/b", True, scope)[0]
    )
    assert (
        find_connection_pool(f"{site.url}/a", True, scope)[0] is not find_connection_pool(f"{site.url}/a", True, "")[0]
    )


@pytest.mark.parametrize("behind", [False, True])
def test_disk_cache(site: Site, tmp_path: Path, behind: bool) -> None:
    url, facts = f"{site.url}/header/raw", Source(f"{site.url}/header/raw", VALUES.nbytes, '"v1"')

    def read(headers: dict[str, str]) -> bytes:
        options: dict[str, Any] = {"cache": str(tmp_path), "headers": headers}
        return open_source(url, options, expected=facts).read(0, 400)

    def check() -> None:
        site.handler.seen.clear()  # type: ignore[attr-defined]
        assert read(ANN) == read(ANN) == VALUES.tobytes()[:400]
        assert len(site.handler.seen) == 1  # type: ignore[attr-defined]
        for others in ({}, BOB):
            with pytest.raises(PermissionError):
                read(others)

    if behind:
        with access_policy_scope(EVERYTHING):
            check()
    else:
        check()


def test_disk_cache_knows_the_endpoint(tmp_path: Path) -> None:
    from insitu.sources.cached_source import cache_scope

    one, two = ({"endpoint_url": f"http://{host}"} for host in ("a", "b"))
    assert cache_scope("s3://b/k", one) != cache_scope("s3://b/k", two)
    assert cache_scope("s3://b/k", {}) == "" == cache_scope("s3://b/k", {"token": "of this hour"})


@pytest.mark.usefixtures("netrc")
def test_redirects_remembered(site: Site) -> None:
    """Where a server sent one client is not where it sends another: each source asks for itself."""
    with access_policy_scope(EVERYTHING):
        one, two = (open_source(f"{site.url}/header/raw", {"headers": who}) for who in (ANN, {}))
        assert one.read(0, 4) == VALUES.tobytes()[:4]
        with pytest.raises(PermissionError):
            two.read(0, 4)


def test_source_pools() -> None:
    pools = ClientSourcePools(LocalCopies(lambda url: url))
    ann, bob = Credentials("ann", "hush"), Credentials("bob", "hush")
    found = [pools.for_client(who, {}) for who in (ann, bob, Credentials(), Credentials("ann", "other"))]
    found.append(pools.for_client(ann, {"endpoint_url": "http://other"}))
    assert len({id(one) for one in found}) == 5
    assert pools.for_client(ann, {}) is found[0]
    pools.close()


def test_decoded_chunk_cache() -> None:
    whole = ChunkCache(1 << 20)
    ann, bob = (ClientCache(whole, Credentials(name, "hush"), {}) for name in ("ann", "bob"))
    assert ann.get("key", lambda: np.zeros(3))[0] == 0
    assert bob.get("key", lambda: np.ones(3))[0] == 1
    assert ann.get("key", lambda: np.ones(3))[0] == 0
    assert "key" not in ClientCache(whole, Credentials(), {})


def test_scans_cache(site: Site) -> None:
    scans = ScannedArchives(4, 60, Metrics())
    options = {"headers": ANN}
    ann, url = Credentials("ann", "hush").digest, f"{site.url}/header/x.nc"
    assert scans.array(url, "v", decoded=False, options=options, who=ann).shape == (600,)
    assert scans.array(url, "v", decoded=False, options={}, who=ann).shape == (600,)  # kept
    with pytest.raises(PermissionError):
        scans.array(url, "v", decoded=False, options={}, who=Credentials().digest)


def test_members_of_archives(site: Site) -> None:
    from insitu.formats.containers.entry_list import list_entries

    url = f"{site.url}/header/x.zip"
    with access_policy_scope(EVERYTHING):
        source = open_source(url, {"headers": ANN})
        assert [member.name for member in list_entries(source)] == ["a.nc"]
        facts = source.describe()
        with pytest.raises(PermissionError):
            list_entries(open_source(url, expected=facts))


KEYS = {
    "s3": {"AWS_ACCESS_KEY_ID": "AKOPERATOR", "AWS_SECRET_ACCESS_KEY": "operators-own"},
    "gs": {"GOOGLE_BEARER_TOKEN": "operators-own"},
    "az": {"AZURE_STORAGE_SAS_TOKEN": "sv=2021&sig=operators-own", "AZURE_STORAGE_ACCOUNT_NAME": "me"},
}
CLIENTS: list[dict[str, Any]] = [{"key": "k", "secret": "s"}, {"key": "", "secret": "s"}, {}]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("scheme", KEYS)
def test_object_store_takes_nothing_from_the_operator(
    scheme: str, client: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the request that would be sent: no key of the environment is in its address or its
    headers.
    """
    for name, value in KEYS[scheme].items():
        monkeypatch.setenv(name, value)
    if scheme == "az":
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"operators-own").decode())
        client = {**client, "key": base64.b64encode(b"clients").decode()} if client.get("key") else client
    monkeypatch.setattr("insitu.sources.object_store.bucket.Bucket._find_region", lambda bucket: None)
    with access_policy_scope(EVERYTHING):
        found = open_source(f"{scheme}://bucket/key", client)
        bucket, _ = open_bucket(f"{scheme}://bucket/key", client) or (None, "")
    sent = f"{found._address} {found._settings['headers']}"  # type: ignore[attr-defined]
    assert "operator" not in sent.lower()
    assert bucket is not None
    assert bucket.secret(*KEYS[scheme]) == ""


def test_object_store_instances_are_one_for_each_credentials() -> None:
    given: list[dict[str, Any]] = [{"key": "a", "secret": "b"}, {"key": "a", "secret": "c"}, {"anon": True}]
    found = [open_bucket("s3://bucket/key", options) for options in given]
    assert len({id(bucket) for bucket, _ in filter(None, found)}) == 3
    scopes = [bucket.scope for bucket, _ in filter(None, found)]
    assert len(set(scopes)) == 3
    assert scopes[2] == ""


def test_an_operator_may_lend_what_the_machine_has() -> None:
    with access_policy_scope(EVERYTHING):
        assert not can_use_environment({})
        assert not can_use_environment({"anon": True})
        assert can_use_environment({"anon": False})
        assert can_use_environment({"profile": "data"})
    assert can_use_environment({})


def test_icechunk_takes_nothing_from_the_environment_behind_a_gate() -> None:
    from insitu.references.icechunk.repository import _s3_keys

    assert _s3_keys({}) == {"from_env": True}
    with access_policy_scope(EVERYTHING):
        assert _s3_keys({}) == {"anonymous": True}
        assert _s3_keys({"key": "a", "secret": "b"}) == {"access_key_id": "a", "secret_access_key": "b"}
