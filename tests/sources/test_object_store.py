from __future__ import annotations

import os
import subprocess
import sys

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import LocalStore, MemoryStore

import insitu.sources.object_store as object_store
from insitu.errors import AccessError, NotFoundError, SourceError, StaleSourceError, TimedOutError
from insitu.sources import ObjectSource, open_source


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
    ("theirs", "ours"),
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
def test_errors_become_ours_without_secrets(store, monkeypatch, theirs, ours):
    source = ObjectSource(store, "a/b.nc")
    source.read(0, 1)

    def fail(*arguments, **keywords):
        raise theirs

    monkeypatch.setattr(object_store.obstore, "get", fail)
    with pytest.raises(ours) as caught:
        source.read(3, 4)
    assert "abc" not in str(caught.value)
    if "169.254" in str(theirs):
        assert "anon" in str(caught.value)
    if "LOCATION" in str(theirs):
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
from insitu.sources import ObjectSource
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
    done = subprocess.run([sys.executable, "-c", code, tmp_path], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0", done.stderr
