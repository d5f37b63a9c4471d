"""Which kind of source a URL or an object is.

Modules: sources/fsspec_source.py, sources/memory.py
"""

from __future__ import annotations

import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from insitu.errors import InsituError, NotFoundError, SourceError, StaleSourceError, UnsupportedError
from insitu.model import Source
from insitu.sources import (
    FileLikeSource,
    FsspecSource,
    HttpSource,
    LocalSource,
    MemorySource,
    ObjectSource,
    open_source,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "a b#1?%.nc"
    file.write_bytes(b"abcdef")
    return file


def test_paths(path, monkeypatch):
    quoted = str(path).replace("%", "%25").replace(" ", "%20")
    for given in (path, str(path), f"file://{quoted}", f"file://localhost{quoted}"):
        with open_source(given, {"anon": True}) as source:
            assert isinstance(source, LocalSource)
            assert source.url == str(path)
            assert source.read(0, 3) == b"abc"
    monkeypatch.setenv("HOME", str(path.parent))
    assert open_source(f"~/{path.name}").size() == 6
    with pytest.raises(SourceError, match="another machine"):
        open_source(f"file://host{path}")


def test_urls():
    for url in ("http://host/x.nc", "HTTPS://host/x.nc"):
        assert isinstance(open_source(url), HttpSource)
    source = open_source("https://me:secret@host/a b.nc?version=2", {"headers": {"X": "1"}})
    assert source.url == "https://host/a b.nc?version=2"
    options = {"anon": True, "region": "eu-west-1", "account_name": "acc"}
    for url in ("s3://b/k?x#y.nc", "s3a://b/k"):
        assert isinstance(open_source(url, {"anon": True, "region": "eu-west-1"}), ObjectSource)
    for url in ("gs://b/k", "gcs://b/k"):
        assert isinstance(open_source(url, {"token": "anon"}), ObjectSource)
    for url in ("az://c/k", "abfs://c/k", "abfss://c@other.dfs.core.windows.net/k"):
        source = open_source(url, options)
        assert isinstance(source, ObjectSource)
        assert source.url == url


def test_azure_accounts_in_urls():
    source = open_source("abfs://box@acc.dfs.core.windows.net/a/b.nc", {"anon": True})
    assert source._store.config["account_name"] == "acc"
    assert source._store.config["container_name"] == "box"
    assert source._path == "a/b.nc"


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "gs:///key"])
def test_urls_that_name_no_object(url):
    with pytest.raises(SourceError, match="names no"):
        open_source(url, {"anon": True})


def test_options_nobody_knows():
    with pytest.raises(SourceError, match="'anonymous'"):
        open_source("https://host/x", {"anonymous": True})
    with pytest.raises(SourceError, match="rejects the storage_options"):
        open_source("s3://bucket/x", {"anonymous": True})


def test_memory():
    source = MemorySource(b"abc", "somewhere")
    assert open_source("memory://somewhere") is source
    assert open_source(b"abc").read(1, 1) == b"b"
    assert open_source(bytearray(b"abc")).size() == 3
    with pytest.raises(NotFoundError):
        open_source("memory://nowhere")


def test_open_files():
    file = io.BytesIO(b"abc")
    url = open_source(file).url
    assert isinstance(open_source(url), FileLikeSource)
    assert open_source(url).url == url
    assert open_source(url).read(1, 1) == b"b"
    assert open_source(io.BytesIO(b"abc")).url != url
    del file
    with pytest.raises(NotFoundError, match="Keep the file open"):
        open_source(url)


def test_a_deleted_file_is_read_by_the_object_that_has_it_open(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    with path.open("rb") as file:
        path.unlink()
        path.write_bytes(b"other")
        source = open_source(file)
        assert source.read(0, 9) == b"abc"
        assert open_source(source.url).read(0, 9) == b"abc"


def test_sources_on_one_file_object_share_its_position():
    data = bytes(range(256)) * 100
    file = io.BytesIO(data)
    first = open_source(file)
    second = open_source(first.url)
    assert first._opened is second._opened
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda at: (first, second)[at % 2].read(at, 3), range(2000))
        assert list(found) == [data[at : at + 3] for at in range(2000)]


def test_what_is_no_file():
    with pytest.raises(TypeError, match="int"):
        open_source(3)


def test_what_only_fsspec_knows(path):
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    files.pipe_file("/box/x.nc", bytes(range(100)))
    source = open_source("memory://box/x.nc")
    assert isinstance(source, FsspecSource)
    assert source.read_many([(5, 2), (50, 3), (98, 9)]) == [b"\5\6", b"234", b"bc"]
    chained = open_source("simplecache::memory://box/x.nc")
    assert chained.read(1, 2) == b"\1\2"
    with pytest.raises(UnsupportedError, match="nonsense"):
        open_source("nonsense://x/y")
    with pytest.raises(NotFoundError):
        open_source("simplecache::memory://box/none")
    with pytest.raises(SourceError, match="directory"):
        FsspecSource(f"file://{path.parent}")


def test_without_fsspec(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UnsupportedError, match="pip install fsspec"):
        open_source("sftp://user:secret@host/x")
    with pytest.raises(InsituError) as caught:
        open_source("sftp://user:secret@host/x")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_the_one_recorded(path):
    recorded = open_source(path).describe()
    assert open_source(path, expected=recorded).read(0, 3) == b"abc"
    assert open_source(path, expected=Source(str(path))).read(0, 3) == b"abc"
    os.utime(path, ns=(0, int(recorded.modified) * 10**9))
    assert open_source(path, expected=recorded).read(0, 3) == b"abc"
    os.utime(path, ns=(0, int(recorded.modified) * 10**9 + 10**9 + 5))
    with pytest.raises(StaleSourceError, match="not the one that was scanned"):
        open_source(path, expected=recorded)
    path.write_bytes(b"abcdefg")
    with pytest.raises(StaleSourceError, match="its size was 6 and is now 7"):
        open_source(str(path), expected=recorded)


def test_what_a_request_costs(path):
    from insitu.sources import CountingSource, request_bytes

    local = open_source(path)
    assert request_bytes(local) == request_bytes(str(path)) == 16384
    far = HttpSource("https://host-that-costs/x")
    assert request_bytes(CountingSource(CountingSource(far))) == request_bytes("https://host-that-costs/x") > 16384
    far._throttle.record_latency(1e-3)
    assert request_bytes("https://host-that-costs/x") == 4096
    assert request_bytes("s3://bucket-that-costs/x") > 16384
