"""The pool of open sources: by identity, opened once, and never under the lock."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu
from insitu.cancellation import Deadline, LateError, deadline_scope
from insitu.errors import NotFoundError, StaleSourceError
from insitu.model import Source, VirtualArray, VirtualGroup, concatenate
from insitu.reading import ChunkCache, ReadContext, SourcePool, read_array
from insitu.reading.zarr_store import ZarrTree
from insitu.reducing import ReductionQuery, compute_statistics
from insitu.sources import ByteSource, HttpSource, MemorySource
from waiting import LONG


def make(path: Path, number: int) -> None:
    """Write a file whose versions have the same size and the same chunks, but other values."""
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", data=np.full((4, 4), number, "<i4"), chunks=(2, 4))
    os.utime(path, (1e9 + number, 1e9 + number))


@pytest.fixture
def versions(tmp_path: Path) -> VirtualArray:
    """The present version of a file, and behind it the one that was recorded before."""
    path = tmp_path / "a.h5"
    make(path, 1)
    old = insitu.scan(path, decode=False).array("x")
    make(path, 2)
    new = insitu.scan(path, decode=False).array("x")
    assert {source.size for tile in (*old.tiles, *new.tiles) for source in tile.chunks.sources} == {path.stat().st_size}
    return concatenate([new, old], 0)


def test_two_recorded_versions_of_a_file_in_one_read(versions: VirtualArray) -> None:
    assert (read_array(versions, np.s_[:4]) == 2).all()
    with pytest.raises(StaleSourceError):
        read_array(versions)
    with pytest.raises(StaleSourceError):
        read_array(versions, context=ReadContext(cache=ChunkCache(1 << 20)))
    with pytest.raises(StaleSourceError):
        compute_statistics(versions, ReductionQuery.of("sum"))


def test_two_recorded_versions_seen_as_zarr(versions: VirtualArray) -> None:
    tree = ZarrTree(VirtualGroup({"x": versions}), 3, "gzip")
    assert tree.get("x/c/0/0") is not None  # the present version is open now
    with pytest.raises(StaleSourceError):
        tree.get("x/c/2/0")


class _Versions(BaseHTTPRequestHandler):
    """An object whose ETag is that of its second version; conditions are not looked at."""

    protocol_version = "HTTP/1.1"
    data = b""

    def do_GET(self) -> None:
        first, last = (int(number) for number in self.headers["Range"].removeprefix("bytes=").split("-"))
        part = self.data[first : last + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(self.data)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", '"v2"')
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *arguments: object) -> None:
        pass


def test_two_recorded_versions_on_the_web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    make(tmp_path / "a.h5", 2)
    handler = type("Handler", (_Versions,), {"data": (tmp_path / "a.h5").read_bytes()})
    site = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=site.serve_forever, args=(0.01,), daemon=True).start()
    try:
        url = f"http://127.0.0.1:{site.server_port}/a.h5"
        new = Source(url, len(handler.data), '"v2"')
        old = Source(url, len(handler.data), '"v1"')
        with SourcePool() as opened:
            with opened.acquire(new) as source:
                assert source.read(0, 4) == handler.data[:4]
                with opened.acquire(old) as other, pytest.raises(StaleSourceError):
                    other.read(0, 4)
            with opened.acquire(new) as again:
                assert again is source
    finally:
        site.shutdown()
        site.server_close()


def test_a_size_alone_is_no_version() -> None:
    """A cache must not take a size for an identity: the version is asked for first."""

    class Web(HttpSource):
        requested = 0

        def read(self, offset: int, length: int) -> bytes:
            self.requested += 1
            self._identity.observe(100, '"v7"', None)
            return b"x"

    source = Web("http://127.0.0.1:9/x", expected=Source("http://127.0.0.1:9/x", 100))
    assert source.size() == 100
    assert source.requested == 0
    assert source.describe().etag == '"v7"'


def test_a_slow_source_delays_nobody_else() -> None:
    opening, go = threading.Event(), threading.Event()

    def opener(source: Source) -> ByteSource:
        if source.url == "slow":
            opening.set()
            assert go.wait(LONG)
        return MemorySource(source.url.encode())

    with SourcePool(opener=opener) as opened, ThreadPoolExecutor(2) as pool:

        def read(url: str) -> bytes:
            with opened.acquire(Source(url)) as source:
                return source.read(0, 4)

        slow = pool.submit(read, "slow")
        assert opening.wait(LONG)
        fast = pool.submit(read, "fast")
        try:
            assert fast.result(LONG) == b"fast"
            assert not slow.done()
        finally:
            go.set()
        assert slow.result(LONG) == b"slow"


def test_threads_that_want_one_source_open_it_once() -> None:
    count, wanted = 8, threading.Semaphore(0)
    calls: list[str] = []

    def opener(source: Source) -> ByteSource:
        calls.append(source.url)
        for _ in range(count):
            assert wanted.acquire(timeout=LONG)
        return MemorySource(b"abc")

    with SourcePool(opener=opener) as opened, ThreadPoolExecutor(count) as pool:

        def read(_: int) -> bytes:
            wanted.release()
            with opened.acquire(Source("one")) as source:
                return source.read(0, 3)

        assert list(pool.map(read, range(count))) == [b"abc"] * count
    assert calls == ["one"]


def test_a_source_that_cannot_be_opened_fails_for_all_who_wait_and_is_tried_again_later() -> None:
    count, wanted = 4, threading.Semaphore(0)
    calls: list[str] = []

    def opener(source: Source) -> ByteSource:
        calls.append(source.url)
        if len(calls) > 1:
            return MemorySource(b"abc")
        for _ in range(count):
            assert wanted.acquire(timeout=LONG)
        while opened._busy[("one", None, None, None)].users < count:
            threading.Event().wait(0.001)
        raise NotFoundError("no such object", url=source.url)

    with SourcePool(opener=opener) as opened, ThreadPoolExecutor(count) as pool:

        def read(number: int) -> NotFoundError:
            wanted.release()
            with pytest.raises(NotFoundError) as caught, opened.acquire(Source("one")):
                pass
            return caught.value

        errors = list(pool.map(read, range(count)))
        assert len({id(error) for error in errors}) == count  # each may be told its own whereabouts
        with opened.acquire(Source("one")) as source:
            assert source.read(0, 3) == b"abc"
    assert calls == ["one", "one"]


def test_somebody_elses_deadline_is_not_mine() -> None:
    calls, late, waiting = [], threading.Event(), threading.Event()

    def opener(source: Source) -> ByteSource:
        calls.append(source.url)
        if len(calls) == 1:
            late.set()
            assert waiting.wait(LONG)
            while opened._busy[("one", None, None, None)].users < 2:
                threading.Event().wait(0.001)
            raise LateError("too late")
        return MemorySource(b"abc")

    with SourcePool(opener=opener) as opened, ThreadPoolExecutor(2) as pool:

        def read() -> bytes:
            with opened.acquire(Source("one")) as source:
                return source.read(0, 3)

        first = pool.submit(read)
        assert late.wait(LONG)
        second = pool.submit(lambda: (waiting.set(), read())[1])
        with pytest.raises(LateError):
            first.result(LONG)
        assert second.result(LONG) == b"abc"


def test_whoever_waits_for_a_source_waits_within_its_deadline() -> None:
    opening, go = threading.Event(), threading.Event()

    def opener(source: Source) -> ByteSource:
        opening.set()
        assert go.wait(LONG)
        return MemorySource(b"abc")

    with SourcePool(opener=opener) as opened, ThreadPoolExecutor(1) as pool:

        def read() -> bytes:
            with opened.acquire(Source("one")) as source:
                return source.read(0, 3)

        first = pool.submit(read)
        assert opening.wait(LONG)
        with deadline_scope(Deadline.after(0.1)), pytest.raises(LateError):
            read()
        go.set()
        assert first.result(LONG) == b"abc"
        assert read() == b"abc"


def test_idle_sources_are_bounded() -> None:
    closed: list[str] = []

    class Noted(MemorySource):
        def close(self) -> None:
            closed.append(self.read(0, 9).decode())

    with SourcePool(opener=lambda source: Noted(source.url.encode()), keep=2) as opened:
        for url in "abcd":
            with opened.acquire(Source(url)):
                pass
        assert closed == ["a", "b"]
    assert closed == ["a", "b", "c", "d"]
