"""Decoded chunks are kept up to a number of bytes, and made once however many threads want them.

Modules: reading/fetch.py, reading/read_selection.py
"""

from __future__ import annotations

import os
import pickle
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu
from insitu.errors import CodecError
from insitu.reading import ChunkCache, ReadStatistics, cache_from_option
from waiting import LONG


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as made:
        made.create_dataset(
            "x", data=np.arange(1000.0).reshape(100, 10), chunks=(10, 10), compression="gzip", shuffle=True
        )
        made.create_dataset("plain", data=np.arange(1000.0), chunks=(100,))
    return path


# Of uncompressed chunks only the wanted part is fetched, and kept: another part is another fetch.
@pytest.mark.parametrize(("name", "first_key"), [("x", np.s_[:]), ("plain", np.s_[5:95:3])])
def test_a_second_read_fetches_nothing(file: Path, name: str, first_key: slice) -> None:
    cache = ChunkCache(1 << 20)
    group = insitu.scan(file, decode=False)
    first, second = ReadStatistics(), ReadStatistics()
    one = insitu.read(group, name, first_key, cache=cache, tally=first, decode=False)
    other = insitu.read(group, name, np.s_[5:95:3], cache=cache, tally=second, decode=False)
    np.testing.assert_array_equal(one if name == "plain" else one[5:95:3], other)
    assert first.chunks == (10 if name == "x" else 1)
    assert (second.requests, second.bytes_fetched, second.bytes_decoded) == (0, 0, 0)
    one[...] = 0  # the values are the caller's, not the cache's
    np.testing.assert_array_equal(insitu.read(group, name, np.s_[5:95:3], cache=cache, decode=False), other)


def test_no_more_than_max_bytes_are_kept(file: Path) -> None:
    cache = ChunkCache(3 * 800)
    group = insitu.scan(file, decode=False)
    values = insitu.read(group, "x", cache=cache, decode=False)
    np.testing.assert_array_equal(values, np.arange(1000.0).reshape(100, 10))
    assert cache.nbytes <= 3 * 800
    assert ChunkCache(10).get("a", lambda: np.zeros(100)).shape == (100,)
    cache.clear()
    assert cache.nbytes == 0
    with pytest.raises(ValueError, match="must not be negative"):
        ChunkCache(-1)


def test_a_changed_file_is_another_chunk(file: Path) -> None:
    cache = ChunkCache(1 << 20)
    insitu.read(file, "plain", cache=cache, decode=False)
    with h5py.File(file, "r+") as changed:
        changed["plain"][...] = 7
    assert (insitu.read(file, "plain", cache=cache, decode=False) == 7).all()


def test_threads_make_a_chunk_once() -> None:
    cache, made, go = ChunkCache(1 << 20), [], threading.Event()

    def make() -> np.ndarray:
        go.wait(LONG)
        made.append(1)
        return np.arange(10)

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(cache.get, "key", make) for _ in range(8)]
        go.set()
        assert all(future.result().tolist() == list(range(10)) for future in waiting)
    assert len(made) == 1
    assert (cache.hits, cache.misses) == (7, 1)


def test_a_failure_reaches_everyone_and_is_not_kept(file: Path) -> None:
    cache = ChunkCache(1 << 20)

    def fail() -> np.ndarray:
        raise zlib.error("no")

    for _ in range(2):
        with pytest.raises(zlib.error):
            cache.get("key", fail)
    group = insitu.scan(file, decode=False)
    chunk = group.arrays["x"].tiles[0].chunks[3, 0]
    before = file.stat()
    with file.open("r+b") as damaged:
        damaged.seek(chunk.offset)
        damaged.write(b"\0" * chunk.length)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a disk damages it: without a trace
    with pytest.raises(CodecError, match=r"variable x, chunk \(3, 0\)"):
        insitu.read(group, "x", cache=cache, decode=False)


def test_a_cache_travels_empty() -> None:
    cache = ChunkCache(100)
    cache.get("a", lambda: np.zeros(3))
    again = pickle.loads(pickle.dumps(cache))
    assert (again.max_bytes, again.nbytes) == (100, 0)


def test_what_the_option_means() -> None:
    mine = ChunkCache(10)
    assert cache_from_option(mine) is mine
    assert cache_from_option(None) is cache_from_option(False) is None
    assert cache_from_option(1000).max_bytes == 1000  # type: ignore[union-attr]
    assert cache_from_option(True) is cache_from_option(True) is not None


def test_a_cache_of_the_process_is_shared_by_reads(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(100.0), chunks=(10,), compression="gzip")
    shared = cache_from_option(True)
    assert shared is not None
    insitu.read(path, "x", cache=True)
    hits = shared.hits
    np.testing.assert_array_equal(insitu.read(path, "x", cache=True), np.arange(100.0))
    assert shared.hits >= hits + 10
    without = shared.hits, shared.misses
    insitu.read(path, "x", cache=False)
    assert (shared.hits, shared.misses) == without


def test_an_archive_is_a_zarr_store(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(6.0), chunks=(2,))
    group = zarr.open_group(insitu.Archive.open(path).zarr_store(zarr_format=2), mode="r")
    np.testing.assert_array_equal(group["x"][:], np.arange(6.0))


@pytest.mark.parametrize("compression", [{"compression": "gzip"}, {}])
def test_a_cache_keeps_the_chunks_of_points(tmp_path: Path, compression: dict[str, str]) -> None:
    """Of large uncompressed chunks only some bytes are fetched: these are another thing than the chunk."""
    values = np.arange(200_000, dtype="<f8").reshape(400, 500)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=values, chunks=(200, 250), **compression)
    cache = ChunkCache(1 << 24)
    lat, lon = np.array([3, 399, 3]), np.array([499, 0, 498])
    for decodes in (True, False):
        tally = ReadStatistics()
        found = insitu.read(tmp_path / "a.h5", "v", points=(lat, lon), cache=cache, tally=tally)
        np.testing.assert_array_equal(found, values[lat, lon])
        assert bool(tally.bytes_decoded) is decodes
        assert bool(tally.requests) is decodes
    np.testing.assert_array_equal(insitu.read(tmp_path / "a.h5", "v", cache=cache), values)
    np.testing.assert_array_equal(insitu.read(tmp_path / "a.h5", "v", points=(lat, lon), cache=cache), found)
