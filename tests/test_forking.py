"""A child that is forked while other threads hold our locks, decode, or import a codec goes on:
every lock and pool by name.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from insitu import forking
from insitu.active import transport
from insitu.codecs import libraries
from insitu.forking import cached_property
from insitu.formats.grib.codecs import eccodes_library
from insitu.lru import LruCache
from insitu.reading import thread_pools as reading_pool
from insitu.reading.cache import ChunkCache
from insitu.references.store.row_file import RowFile
from insitu.references.url_pool import UrlPool
from insitu.references.urls import UrlResolver
from insitu.sources import threads as fetching
from insitu.sources import tracing
from insitu.sources.local import LocalSource
from waiting import LONG

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),
]
LONGEST = 60
"""Seconds that a child gets before it counts as hung. A child that is all right takes milliseconds.
"""


def in_child(work: Callable[[], object]) -> None:
    """Do something in a forked child; fails if the child raises or hangs."""
    child = os.fork()
    if not child:
        signal.alarm(LONGEST)
        try:
            work()
        except BaseException as problem:
            os.write(2, f"in the child: {problem!r}\n".encode())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert not os.WIFSIGNALED(status), f"the child hung, and was ended by signal {os.WTERMSIG(status)}"
    assert os.WEXITSTATUS(status) == 0


class Held:
    """A lock that another thread holds."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.taken, self.free = lock, threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        with self.lock:
            self.taken.set()
            self.free.wait(LONGEST)

    def __enter__(self) -> None:
        self.thread.start()
        assert self.taken.wait(LONGEST)

    def __exit__(self, *_: object) -> None:
        self.free.set()
        self.thread.join()


def local_source(path: Path) -> tuple[Any, Callable[[], object]]:
    (path / "x").write_bytes(b"abc")
    source = LocalSource(path / "x")
    return source._lock, lambda: source.read(0, 3)


def chunk_cache(path: Path) -> tuple[Any, Callable[[], object]]:
    cache = ChunkCache(1000)
    return cache._lock, lambda: cache.get("x", lambda: np.zeros(3))


def lru_cache(path: Path) -> tuple[Any, Callable[[], object]]:
    pages: LruCache[str, str] = LruCache(100, len)
    return pages._lock, lambda: pages.get_or_load("x", lambda: "page")


def url_pool(path: Path) -> tuple[Any, Callable[[], object]]:
    urls = UrlPool(UrlResolver("s3://b/x"))
    return urls._lock, lambda: urls.number("s3://b/y")


def part(path: Path) -> tuple[Any, Callable[[], object]]:
    stored = RowFile("nowhere", 1, 1, 1, "", ())
    return stored.lock, lambda: _with(stored.lock)


def _with(lock: Any) -> None:
    with lock:
        pass


def connection(path: Path) -> tuple[Any, Callable[[], object]]:
    made = transport.Connection("http://127.0.0.1:9") if hasattr(transport, "Connection") else None
    lock = transport._guard if made is None else made._lock
    return lock, lambda: _with(lock)


LOCKS: dict[str, Callable[[Path], tuple[Any, Callable[[], object]]]] = {
    "reading.cache.ChunkCache": chunk_cache,
    "lru.LruCache": lru_cache,
    "references.url_pool.Pool": url_pool,
    "references.store.row_file.Part": part,
    "sources.local.LocalSource": local_source,
    "active.transport": connection,
    "active.transport._guard": lambda path: (transport._guard, lambda: _with(transport._guard)),
    "formats.grib.codecs.eccodes_library._LOCK": lambda path: (
        eccodes_library._LOCK,
        lambda: _with(eccodes_library._LOCK),
    ),
    "reading.pool._lock": lambda path: (
        reading_pool._lock,
        lambda: reading_pool.get_worker_pool().submit(int).result(LONGEST),
    ),
    "sources.threads._pool": lambda path: (
        fetching._pool._lock,
        lambda: fetching.gather(lambda item, stop: item, [1, 2, 3]),
    ),
    "sources.tracing._lock": lambda path: (tracing._lock, lambda: _with(tracing._lock)),
    "a lock of forking": lambda path: _plain(forking.fork_safe_lock()),
    "a lock of forking that may be taken again": lambda path: _plain(forking.fork_safe_rlock()),
}


def _plain(lock: Any) -> tuple[Any, Callable[[], object]]:
    return lock, lambda: _with(lock)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_that_another_thread_holds(name: str, tmp_path: Path) -> None:
    lock, work = LOCKS[name](tmp_path)
    with Held(lock):
        in_child(work)
    work()  # and in the parent it is as it was


def test_a_pool_whose_threads_are_busy() -> None:
    go = threading.Event()
    busy = [reading_pool.get_worker_pool().submit(go.wait, LONGEST) for _ in range(40)]
    try:
        in_child(lambda: reading_pool.get_worker_pool().submit(int).result(LONGEST))
    finally:
        go.set()
    for future in busy:
        future.result(LONGEST)


def test_a_chunk_that_another_thread_decodes() -> None:
    cache = ChunkCache(1000)
    begun, go = threading.Event(), threading.Event()

    def slow() -> Any:
        begun.set()
        go.wait(LONGEST)
        return np.zeros(2)

    thread = threading.Thread(target=cache.get, args=("key", slow))
    thread.start()
    assert begun.wait(LONGEST)

    def work() -> None:
        assert cache.get("key", lambda: np.ones(3)).tolist() == [1, 1, 1]
        assert (cache.nbytes, len(cache._flights)) == (24, 0)

    in_child(work)
    go.set()
    thread.join()
    assert cache.get("key", lambda: np.ones(3)).tolist() == [0, 0]


def test_a_fork_inside_of_a_decode() -> None:
    """The forking thread itself is under way with a chunk: in the child it lands, too."""
    cache = ChunkCache(1000)

    def forks() -> Any:
        in_child(lambda: cache.get("other", lambda: np.ones(1)))
        return np.zeros(2)

    assert cache.get("key", forks).tolist() == [0, 0]


def test_a_property_that_another_thread_computes() -> None:
    """functools.cached_property of Python 3.11 has one lock for all objects."""
    begun, go = threading.Event(), threading.Event()

    class Plan:
        def __init__(self, is_slow: bool) -> None:
            self.is_slow = is_slow

        @cached_property
        def size(self) -> int:
            if self.is_slow:
                begun.set()
                go.wait(LONGEST)
            return 3

    slow = Plan(True)
    thread = threading.Thread(target=lambda: slow.size)
    thread.start()
    assert begun.wait(LONGEST)

    def work() -> None:
        assert Plan(False).size == 3

    try:
        in_child(work)
    finally:
        go.set()
        thread.join()
    assert slow.size == 3


def test_no_property_has_a_lock() -> None:
    """The package takes the one that has none."""
    source = Path(insitu.__file__).parent
    found = [path for path in source.rglob("*.py") if "functools import cached_property" in path.read_text("utf-8")]
    assert found == [source / "forking.py"]


def test_a_read_in_a_child_while_others_read(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    values = np.random.default_rng(0).random((40, 500))
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(1, 100), compression="gzip", shuffle=True)
    group = insitu.scan(path, decode=False)
    cache = ChunkCache(10 << 20, ahead=True)
    stop = threading.Event()

    def reads() -> None:
        while not stop.is_set():
            cache.clear()
            insitu.read(group, "x", cache=cache, decode=False)

    readers = [threading.Thread(target=reads) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(10):
            in_child(lambda: np.testing.assert_array_equal(insitu.read(group, "x", cache=cache, decode=False), values))
    finally:
        stop.set()
        for reader in readers:
            reader.join()


@pytest.fixture
def slow_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A library whose import takes as long as it is told to."""
    (tmp_path / "slow_codec_library.py").write_text(
        "import slow_codec_signals as signals\nsignals.begun.set()\nsignals.go.wait(signals.longest)\ndecode = len\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    signals = ModuleType("slow_codec_signals")
    signals.begun, signals.go, signals.longest = threading.Event(), threading.Event(), LONGEST  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "slow_codec_signals", signals)
    monkeypatch.delitem(sys.modules, "slow_codec_library", raising=False)
    return signals


def test_a_library_that_imports_its_parts_under_a_lock(
    slow_library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As imagecodecs does: a child that is forked meanwhile could never name that part."""
    (tmp_path / "slow_lazy_library.py").write_text(
        "import threading, slow_codec_signals as signals\n_lock = threading.Lock()\n"
        "def __getattr__(name):\n    if name != 'decode':\n        raise AttributeError(name)\n"
        "    with _lock:\n        signals.begun.set()\n        signals.go.wait(signals.longest)\n        return len\n"
    )
    monkeypatch.delitem(sys.modules, "slow_lazy_library", raising=False)
    thread = threading.Thread(target=libraries.find_function, args=("slow_lazy_library", "decode"))
    thread.start()
    assert slow_library.begun.wait(LONGEST)
    threading.Timer(0.2, slow_library.go.set).start()
    in_child(lambda: libraries.find_function("slow_lazy_library", "decode"))
    thread.join()


def test_a_codec_that_another_thread_imports(slow_library: Any) -> None:
    thread = threading.Thread(target=libraries.find_function, args=("slow_codec_library", "decode"))
    thread.start()
    assert slow_library.begun.wait(LONGEST)
    threading.Timer(0.2, slow_library.go.set).start()  # the fork waits for it

    def work() -> None:
        assert libraries.find_function("slow_codec_library", "decode") is len

    in_child(work)
    thread.join()


def test_a_fork_does_not_wait_for_ever(slow_library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "_IMPORT_SECONDS", 0.1)
    thread = threading.Thread(target=libraries.find_function, args=("slow_codec_library", "decode"))
    thread.start()
    assert slow_library.begun.wait(LONGEST)
    in_child(lambda: libraries.find_function("zlib", "decompress"))  # others can be imported in the child
    slow_library.go.set()
    thread.join()
    assert libraries.find_function("slow_codec_library", "decode") is len


def test_no_lock_is_made_without_a_thought_of_fork() -> None:
    """Every lock of the package that outlives a call is one of `forking`, or its owner is renewed
    in a child.
    """
    root = Path(insitu.__file__).parent
    known = {
        "active/share_work.py": "lives as long as one reduction",
        "copying/copy_tree.py": "lives as long as one copy",
        "copying/journal.py": "lives as long as one copy",
        "forking.py": "makes them",
        "references/check_sources.py": "lives as long as one call",
        "xarray_bridge/weighted_accessor.py": "lives as long as one reduction",
    }
    strange = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        if name in known or name.startswith("server/"):  # the server's workers are spawned, never forked
            continue
        makes = re.search(r"\b(threading\.)?(R?Lock|Condition|BoundedSemaphore)\(\)", text)
        if makes and not re.search(r"def renew\(self\)|register_at_fork|turn = threading\.Lock\(\)", text):
            strange.append(name)
    assert strange == []


COLD = """
import importlib.abc, sys, threading
import numpy as np
from insitu.model import Codec
from insitu.reading.zarr_store.encoded_chunks import _apply_codec

begun, ended, found = threading.Event(), threading.Event(), []

class Halt(importlib.abc.MetaPathFinder):
    '''Holds the import of numcodecs up after its registry is there, and before it is filled.'''

    def find_spec(self, name, path=None, target=None):
        if name == "numcodecs.zlib":
            begun.set()
            ended.wait(1)  # until the other thread has failed; if it waits as it should, for a second

def encode():
    begun.wait()
    try:
        found.append(_apply_codec(Codec("gzip", {"level": 1}), np.zeros(9)))
    finally:
        ended.set()

sys.meta_path.insert(0, Halt())
thread = threading.Thread(target=encode)
thread.start()
import numcodecs
thread.join()
assert found
"""


def test_a_library_that_another_thread_is_importing() -> None:
    """The first request for a Zarr key of a cold server found no codec in numcodecs' registry."""
    done = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 0, done.stderr
