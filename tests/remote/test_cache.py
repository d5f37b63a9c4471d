"""The cache on disk, over a real server: what was read once is read from there, by any process.

Modules: cli/cache.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import insitu
from insitu.errors import StaleSourceError
from insitu.model import Source
from insitu.sources import DiskCache, open_source, trace
from remote.faults import FaultProxy
from waiting import LONG

pytestmark = pytest.mark.xdist_group("remote")  # one worker for all: each server runs once


def test_the_second_read_asks_nothing(nginx, data, tmp_path):
    options = {"cache": tmp_path / "cache"}
    ranges = [(at * 5000, 300) for at in range(50)]
    first = open_source(f"{nginx.url}/x.bin", options)
    expected = [data[offset : offset + length] for offset, length in ranges]
    assert first.read_many(ranges) == expected
    recorded = first.describe()
    with trace() as cost:
        again = open_source(f"{nginx.url}/x.bin", options, expected=recorded)
        assert again.read_many(ranges) == expected
    assert (cost.requests, cost.cache_hits, cost.cache_bytes) == (0, 50, 15_000)
    with trace() as cost:
        # Nothing recorded: the first answer tells which version is there.
        fresh = open_source(f"{nginx.url}/x.bin", options)
        assert fresh.read(0, 300) == expected[0]
        assert fresh.read_many(ranges[1:]) == expected[1:]
    assert (cost.requests, cost.cache_hits) == (1, 49)


def test_another_version_is_another_thing(nginx, tmp_path):
    path = nginx.folder / "files" / "versions"
    options = {"cache": tmp_path / "cache"}
    seen = []
    for number, text in enumerate((b"one", b"two")):
        path.write_bytes(text * 100)
        os.utime(path, (1_000_000_000 + number,) * 2)
        source = open_source(f"{nginx.url}/versions", options)
        seen.append((source.read(0, 3), source.read(3, 3)))
    assert seen == [(b"one", b"one"), (b"two", b"two")]
    with pytest.raises(StaleSourceError):
        open_source(f"{nginx.url}/versions", options, expected=Source("x", 300, '"other"')).read(6, 3)


def test_a_dataset_is_read_again_without_its_server(nginx, archive, tmp_path):
    options = {"cache": DiskCache(tmp_path / "cache", 1 << 28), "retries": 0}
    with FaultProxy(nginx.address) as proxy:
        url = f"{proxy.url}/archive.h5"
        group = insitu.scan(url, storage_options=options, decode=False)
        source = open_source(url, options)
        recorded = source.describe()
        chunks = [(4096 * at, 200) for at in range(20)]
        before = source.read_many(chunks)
        values = insitu.read(group, "t", storage_options=options, decode=False)
    assert open_source(url, options, expected=recorded).read_many(chunks) == before
    np.testing.assert_array_equal(values, insitu.read(archive, "t", decode=False))


def test_many_processes_share_one_folder(nginx, data, tmp_path):
    code = """
import random, sys
from insitu.sources import CachedSource, DiskCache, open_source

url, folder, seed = sys.argv[1:]
cache = DiskCache(folder, 400_000)
data = open_source(url).read(0, 300_000)
dice = random.Random(int(seed) % 2)
source = CachedSource(open_source(url), cache)
for _ in range(60):
    ranges = [(dice.randrange(100) * 2900, 2900) for _ in range(8)]
    assert source.read_many(ranges) == [data[offset : offset + length] for offset, length in ranges]
print(cache.size())
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def run(seed):
        command = [sys.executable, "-c", code, f"{nginx.url}/x.bin", str(tmp_path / "cache"), str(seed)]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONG)

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(run, range(4)))
    assert [one.returncode for one in done] == [0] * 4, [one.stderr for one in done]
    assert all(int(one.stdout) <= 400_000 for one in done)
    assert DiskCache(tmp_path / "cache", 400_000).size() > 0
