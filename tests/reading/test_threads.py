"""Reads from many threads, after a fork, when interrupted, and at exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu
from insitu.model import Selection
from insitu.reading import SourcePool, execute, plan_read
from insitu.sources import MemorySource
from waiting import LONG

VALUES = np.arange(400_000, dtype="<i4").reshape(400, 1000)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "a.h5"
    with h5py.File(path, "w") as made:
        made.create_dataset("x", data=VALUES, chunks=(10, 50), compression="gzip", shuffle=True)
    return path


def test_many_threads_read_side_by_side(file: Path) -> None:
    group = insitu.scan(file, decode=False)

    def slab(seed: int) -> bool:
        random = np.random.default_rng(seed)
        (a, b), (c, d) = np.sort(random.integers(0, 400, 2)), np.sort(random.integers(0, 1000, 2))
        key = np.s_[a : b + 1, c : d + 1]
        return np.array_equal(insitu.read(group, "x", key, decode=False), VALUES[key])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(slab, range(64)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_reads_too(file: Path) -> None:
    group = insitu.scan(file, decode=False)
    insitu.read(group, "x", decode=False)  # the parent's threads are running now
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if np.array_equal(insitu.read(group, "x", decode=False), VALUES) else 1)
        finally:
            os._exit(2)
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


class Slow(MemorySource):
    """Each read takes a while."""

    def read(self, offset: int, length: int) -> bytes:
        time.sleep(0.02)
        return super().read(offset, length)

    def read_many(self, ranges):
        return [self.read(*one) for one in ranges]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no timers that interrupt")
def test_an_interrupt_ends_a_read_and_nothing_writes_afterwards(file: Path) -> None:
    array = insitu.scan(file, decode=False).arrays["x"]
    out = np.full(array.shape, -1, array.dtype)
    data = file.read_bytes()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def read_on() -> None:
        for _ in range(100):
            execute(plan_read(array, Selection.of(..., array.shape)), out, SourcePool(opener=lambda source: Slow(data)))

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            read_on()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    snapshot = out.copy()
    time.sleep(0.1)
    np.testing.assert_array_equal(out, snapshot)
    np.testing.assert_array_equal(insitu.read(file, "x", decode=False), VALUES)  # and the next read is fine


def test_a_process_that_leaves_in_the_middle_of_a_read_ends(file: Path) -> None:
    code = f"""
import threading, time, insitu
group = insitu.scan({str(file)!r})
threading.Thread(target=lambda: [insitu.read(group, "x") for _ in range(10**6)], daemon=True).start()
time.sleep(0.3)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=LONG, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_first_error_ends_the_read(file: Path) -> None:
    array = insitu.scan(file, decode=False).arrays["x"]
    data = file.read_bytes()
    reads = []
    lock = threading.Lock()

    class Failing(MemorySource):
        def read(self, offset: int, length: int) -> bytes:
            with lock:
                reads.append(offset)
            raise insitu.errors.SourceError("gone", url="a.h5", offset=offset)

        def read_many(self, ranges):
            return [self.read(*one) for one in ranges]

    with pytest.raises(insitu.errors.SourceError, match="gone"):
        execute(
            plan_read(array, Selection.of(..., array.shape)),
            np.empty(array.shape, array.dtype),
            SourcePool(opener=lambda s: Failing(data)),
        )
    assert len(reads) < 10
