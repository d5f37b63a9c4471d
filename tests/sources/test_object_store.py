from __future__ import annotations

import os
import subprocess
import sys
from urllib.parse import unquote

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import LocalStore, MemoryStore

import insitu.sources.object_store.object_source as object_store
from insitu.errors import AccessError, NotFoundError, SourceError, StaleSourceError, TimedOutError
from insitu.sources import HttpSource, ObjectSource, open_source, trace
from insitu.sources.range_batch import RequestLimits
from insitu.sources.throttle import throttle_for
from waiting import LONG


@pytest.fixture
def store(data) -> MemoryStore:
    made = MemoryStore()
    made.put("a/b.nc", data)
    made.put("empty", b"")
    return made


def count_calls(monkeypatch) -> list[str]:
    calls: list[str] = []
    for name in ("get", "head"):
        original = getattr(object_store.obstore, name)

        def noted(*arguments, name=name, original=original, **keywords):
            calls.append(name)
            return original(*arguments, **keywords)

        monkeypatch.setattr(object_store.obstore, name, noted)
    return calls


def test_the_first_read_teaches_what_the_object_is(store, data, monkeypatch):
    calls = count_calls(monkeypatch)
    source = ObjectSource(store, "a/b.nc")
    assert source.read(5, 5) == data[5:10]
    facts = source.describe()
    assert (facts.size, source.size()) == (len(data), len(data))
    assert facts.etag
    assert facts.modified
    assert calls == ["get"]
    assert source.read(len(data), 1) == b""
    assert calls == ["get"]


def test_described_before_it_is_read(store, data, monkeypatch):
    calls = count_calls(monkeypatch)
    source = ObjectSource(store, "a/b.nc", "s3://bucket/a/b.nc")
    assert source.describe().size == len(data)
    assert source.describe().url == "s3://bucket/a/b.nc"
    assert calls == ["head"]


def test_close_ranges_are_one_request(store, data, monkeypatch):
    calls = count_calls(monkeypatch)
    source = ObjectSource(store, "a/b.nc")
    ranges = [(0, 10), (20, 10), (100_000, 10)]
    assert source.read_many(ranges) == [data[offset : offset + length] for offset, length in ranges]
    assert calls == ["get", "get"]


def test_an_empty_object(store):
    source = ObjectSource(store, "empty")
    assert source.read(0, 10) == b""
    assert source.size() == 0


def test_no_such_object(store, tmp_path):
    for source in (ObjectSource(store, "nope"), ObjectSource(LocalStore(tmp_path), "nope")):
        for act in (
            lambda s=source: s.read(0, 1),
            source.size,
            source.describe,
            lambda s=source: s.read_many([(0, 1)]),
        ):
            with pytest.raises(NotFoundError):
                act()


def test_an_object_replaced_between_reads_is_noticed(store, data):
    source = ObjectSource(store, "a/b.nc")
    source.read(0, 10)
    store.put("a/b.nc", data[::-1])
    with pytest.raises(StaleSourceError):
        source.read(10, 10)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (PermissionDeniedError("no"), AccessError),
        (UnauthenticatedError("who"), AccessError),
        (PreconditionError("other"), StaleSourceError),
        (GenericError("operation timed out"), TimedOutError),
        (GenericError("error sending request for url (https://h/x?sig=abc&v=1)\n\nDebug source: abc"), SourceError),
        (GenericError("Received redirect without LOCATION"), SourceError),
        (GenericError("GET http://169.254.169.254/latest/api/token"), SourceError),
    ],
)
def test_errors_become_ours_without_secrets(store, monkeypatch, hasty, raised, expected):
    source = ObjectSource(store, "a/b.nc", policy=hasty)
    source.read(0, 1)

    def fail(*arguments, **keywords):
        raise raised

    monkeypatch.setattr(object_store.obstore, "get", fail)
    with pytest.raises(expected) as caught:
        source.read(3, 4)
    assert "abc" not in str(caught.value)
    if "169.254" in str(raised):
        assert "anon" in str(caught.value)
    if "LOCATION" in str(raised):
        assert "region" in str(caught.value)


def test_s3_over_the_wire(web, data, monkeypatch):
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    endpoint = web.url("").rstrip("/")
    with open_source("s3://file/some/key.nc", {"anon": True, "endpoint_url": endpoint}) as source:
        assert source.read_many([(0, 10), (150_000, 5)]) == [data[:10], data[150_000:150_005]]
        assert source.describe().etag == '"v1"'
        assert source.url == "s3://file/some/key.nc"
    assert {path for _, path, _ in web.requests} == {"/file/some/key.nc"}
    assert not any("authorization" in sent for _, _, sent in web.requests)

    web.requests.clear()
    options = {"key": "AKID", "secret": "hush", "token": "tok", "endpoint_url": endpoint, "region": "eu-west-1"}
    source = open_source("s3://file/key", {"s3://file/": options, "s3://other/": {"anon": True}})
    assert source.read(5, 5) == data[5:10]
    sent = web.requests[0][2]
    assert "Credential=AKID" in sent["authorization"]
    assert "eu-west-1" in sent["authorization"]
    assert sent["x-amz-security-token"] == "tok"
    assert "hush" not in repr(source)

    with pytest.raises(NotFoundError):
        open_source("s3://404/key", {"anon": True, "endpoint_url": endpoint}).read(0, 1)
    with pytest.raises(AccessError, match="anon"):
        open_source("s3://403/key", {"anon": True, "endpoint_url": endpoint}).read(0, 1)


def test_stores_are_shared_by_the_objects_of_a_bucket():
    options = {"anon": True, "region": "eu-west-1"}
    first, second = (open_source(f"s3://bucket/{name}", options) for name in "ab")
    other = open_source("s3://bucket/a", {**options, "region": "us-east-1"})
    assert first._store is second._store
    assert first._store is not other._store


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_gets_an_error_and_does_not_hang(tmp_path):
    (tmp_path / "x").write_bytes(b"abcdef")
    code = """
import os, sys
from obstore.store import LocalStore
from insitu.errors import SourceError
from insitu.sources import HttpSource, ObjectSource
source = ObjectSource(LocalStore(sys.argv[1]), "x")
source.read(0, 1)
child = os.fork()
if child == 0:
    try:
        source.read(1, 1)
    except SourceError as error:
        os._exit(0 if "spawn" in str(error) else 2)
    os._exit(1)
print(os.waitpid(child, 0)[1])
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code, tmp_path], env=env, capture_output=True, text=True, timeout=LONG)
    assert done.stdout.strip() == "0", done.stderr


@pytest.mark.parametrize("bucket", ["frankfurt", "malformed"])
@pytest.mark.parametrize("region", [None, "us-west-2"])
def test_the_region_is_found(web, data, monkeypatch, bucket, region):
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    options = {"key": "AKID", "secret": "hush", "endpoint_url": web.url("").rstrip("/"), "region": region}
    source = open_source(f"s3://{bucket}/key", options)
    assert source.read(5, 5) == data[5:10]
    requested = len(web.requests)
    assert open_source(f"s3://{bucket}/other", options).read_many([(0, 5), (100_000, 5)])[0] == data[:5]
    assert len(web.requests) == requested + 2


def test_a_store_that_sends_whole_objects(web, data):
    options = {"anon": True, "endpoint_url": web.url("").rstrip("/"), "region": "x"}
    source = open_source("s3://whole/key", options)
    assert source.read(100_000, 5) == data[100_000:100_005]
    assert source.read_many([(0, 5), (190_000, 5)]) == [data[:5], data[190_000:190_005]]
    source._limits, source._body = RequestLimits(whole=1000), None
    with pytest.raises(SourceError, match="too large to take whole"):
        source.read(0, 5)


def test_a_busy_store_is_retried_and_throttled(web, data, monkeypatch):
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    throttle = throttle_for("s3://busy")
    before = throttle.width
    with trace() as cost:
        source = open_source("s3://busy/key", {"anon": True, "endpoint_url": web.url("").rstrip("/"), "region": "x"})
        assert source.read(5, 5) == data[5:10]
    assert (cost.requests, cost.retries, cost.failures) == (3, 2, 2)
    assert throttle.width < before


def test_a_store_that_stays_busy_is_given_up(web, monkeypatch):
    options = {"anon": True, "endpoint_url": web.url("").rstrip("/"), "region": "x", "retries": 1}
    source = open_source("s3://500/key", options)
    with trace() as cost, pytest.raises(SourceError, match="attempts 2") as caught:
        source.size()
    assert cost.requests == 2
    assert "retries" not in str(caught.value)


def test_web_addresses_of_buckets(data, monkeypatch):
    for url in (
        "https://bucket.s3.eu-west-1.amazonaws.com/a/b.nc",
        "https://s3.eu-west-1.amazonaws.com/bucket/a/b.nc",
        "https://s3.dualstack.eu-west-1.amazonaws.com/bucket/a/b.nc",
        "https://bucket.s3-eu-west-1.amazonaws.com/a/b.nc",
    ):
        source = open_source(url, {"anon": True})
        assert isinstance(source, ObjectSource)
        assert (source._bucket.place, source._path, source.url) == ("s3://bucket", "a/b.nc", url)
        assert source._store.config["region"] == "eu-west-1"
        # Without a word about credentials it is a web page like any other.
        assert isinstance(open_source(url), HttpSource)
        assert isinstance(open_source(f"{url}?X-Amz-Signature=x", {"anon": True}), HttpSource)
    for url in ("https://storage.googleapis.com/bucket/a.nc", "https://bucket.storage.googleapis.com/a.nc"):
        source = open_source(url, {"token": "anon"})
        assert (source._bucket.place, source._path) == ("gs://bucket", "a.nc")
    source = open_source("https://acc.blob.core.windows.net/box/a.nc", {"anon": True})
    assert (source._bucket.place, source._path) == ("az://box", "a.nc")
    assert source._store.config["account_name"] == "acc"


def test_google_over_the_wire(web, data, monkeypatch):
    """No emulator at hand sends what obstore wants to hear; this shows the address, the signature
    and the ranges.
    """
    for name in list(os.environ):
        if name.startswith("GOOGLE_"):
            monkeypatch.delenv(name)
    options = {"token": "ya29.hush", "endpoint_url": web.url("").rstrip("/"), "requester_pays": "my-project"}
    source = open_source("gs://file/some/key.nc", options)
    assert source.read_many([(0, 10), (150_000, 5)]) == [data[:10], data[150_000:150_005]]
    sent = web.requests[0][2]
    assert sent["authorization"] == "Bearer ya29.hush"
    assert sent["x-goog-user-project"] == "my-project"
    assert {unquote(path) for _, path, _ in web.requests} == {"/file/some/key.nc"}
    anonymous = open_source("gs://file/key", {"token": "anon", "endpoint_url": options["endpoint_url"]})
    assert anonymous.read(5, 5) == data[5:10]
    assert "authorization" not in web.requests[-1][2]
