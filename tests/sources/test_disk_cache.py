from __future__ import annotations

import os
import pickle
import threading
import time

import pytest

from insitu.errors import SourceError
from insitu.model import Source
from insitu.sources import CachedSource, CountingSource, DiskCache, MemorySource, open_source, read_tail, trace


class Versioned(MemorySource):
    """Memory that says which version it is."""

    version: str | None = '"v1"'

    def describe(self) -> Source:
        return Source(self.url, self.size(), self.version)


def test_kept_and_found(tmp_path, data):
    cache = DiskCache(tmp_path / "c", 10 << 20)
    inner = CountingSource(Versioned(data))
    source = CachedSource(inner, cache)
    ranges = [(0, 100), (5000, 200), (5000, 200), (199_990, 50), (7, 0), (300_000, 5)]
    expected = [data[offset : offset + length] for offset, length in ranges]
    assert source.read_many(ranges) == expected
    assert inner.batches == 1
    with trace() as cost:
        assert source.read_many(ranges) == expected
    assert inner.batches == 1
    assert cost.cache_hits == 4
    assert source.tail(10) == read_tail(source, 10) == data[-10:]


def test_other_versions_and_objects_are_other_things(tmp_path):
    cache = DiskCache(tmp_path, 10 << 20)
    one = Versioned(b"one" * 10, "x")
    CachedSource(one, cache, Source("x", etag="1")).read(0, 3)
    two = Versioned(b"two" * 10, "x")
    two.version = '"v2"'
    assert CachedSource(two, cache, Source("x", etag="1")).read(0, 3) == b"two"
    other = Versioned(b"six" * 10, "y")
    assert CachedSource(other, cache, Source("y", etag="1")).read(0, 3) == b"six"


def test_without_a_version_nothing_is_kept(tmp_path):
    cache = DiskCache(tmp_path, 10 << 20)
    inner = Versioned(b"abc")
    inner.version = None
    source = CachedSource(inner, cache)
    assert [source.read(0, 2), source.read(0, 2)] == [b"ab", b"ab"]
    assert cache.size() == 0


def test_damage_is_a_miss(tmp_path):
    cache = DiskCache(tmp_path, 10 << 20)
    key = cache.key("u", "v", 0, 5)
    for damage in (lambda raw: raw[:-1], lambda raw: raw[:-1] + b"x", lambda raw: b"", lambda raw: b"x" + raw[1:]):
        cache.put(key, b"abcde")
        assert cache.get(key) == b"abcde"
        path = cache._path(key)
        path.write_bytes(damage(path.read_bytes()))
        assert cache.get(key) is None
        assert not path.exists()


def test_full_means_the_oldest_go(tmp_path):
    cache = DiskCache(tmp_path, 40 * 4096)
    keys = [cache.key("u", "v", at, 1) for at in range(100)]
    for at, key in enumerate(keys):
        cache.put(key, b"x" * 3000)
        if at == 5:
            first = cache._path(keys[0])
        if at >= 5 and first.exists():
            os.utime(first, (time.time() + at, time.time() + at))  # used all the time
        if cache._path(key).exists():
            os.utime(cache._path(key), (1000 + at, 1000 + at))
        assert cache.size() <= cache.capacity
    assert cache.get(keys[0]) is not None
    assert cache.get(keys[1]) is None
    assert cache.get(keys[-1]) is not None
    cache.put(cache.key("u", "v", 0, 9), bytes(40 * 4096))
    assert cache.get(cache.key("u", "v", 0, 9)) is None
    cache.clear()
    assert cache.size() == 0


def test_leftovers_of_the_dead_are_cleaned(tmp_path):
    cache = DiskCache(tmp_path, 10 * 4096)
    cache.put(cache.key("u", "v", 0, 1), b"x")
    shelf = next(path for path in tmp_path.iterdir() if path.is_dir())
    (shelf / ".old").write_bytes(bytes(30 * 4096))
    os.utime(shelf / ".old", (1000, 1000))
    (shelf / ".new").write_bytes(b"being written")
    for at in range(30):
        cache.put(cache.key("u", "v", at, 1), b"x")
    assert not (shelf / ".old").exists()
    assert (shelf / ".new").exists()


def test_threads(tmp_path, data):
    cache = DiskCache(tmp_path, 50 * 4096)
    source = CachedSource(Versioned(data), cache)
    wrong = []

    def work(seed):
        for at in range(100):
            offset = (seed * 31 + at * 17) % 90 * 2000
            if source.read(offset, 1000) != data[offset : offset + 1000]:
                wrong.append(offset)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert cache.size() <= cache.capacity


def test_a_disk_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    cache = DiskCache(tmp_path, 10 << 20)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    source = CachedSource(Versioned(b"abc"), cache)
    assert [source.read(0, 2), source.read(0, 2)] == [b"ab", b"ab"]
    monkeypatch.undo()
    assert not list(tmp_path.rglob(".*"))
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="the cache folder cannot be created"):
        DiskCache(tmp_path / "file" / "c")
    with pytest.raises(ValueError, match="capacity"):
        DiskCache(tmp_path, 0)


def test_it_is_an_option(web, data, tmp_path, monkeypatch):
    url = web.url("file")
    for given in (tmp_path / "c", str(tmp_path / "c"), DiskCache(tmp_path / "c")):
        source = open_source(url, {"cache": given})
        assert isinstance(source, CachedSource)
        assert source.cache.folder == tmp_path / "c"
        assert source.read(0, 5) == data[:5]
    assert not isinstance(open_source(b"abc", {"cache": tmp_path}), CachedSource)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert open_source(url, {"cache": True}).cache.folder == tmp_path / "insitu"
    with pytest.raises(SourceError, match="must be a folder"):
        open_source(url, {"cache": 3})
    again = pickle.loads(pickle.dumps(source))
    assert again.read(0, 5) == data[:5]
    assert again.cache.folder == source.cache.folder
    assert (tmp_path / "c").stat().st_mode & 0o077 == 0


def test_entries_that_cannot_be_deleted_are_no_error(tmp_path, monkeypatch):
    """Windows does not delete a file that another process reads."""

    def refuse(path, **how):
        raise PermissionError(13, "another process has it open")

    cache = DiskCache(tmp_path, 1 << 20)
    monkeypatch.setattr(os, "unlink", refuse)
    for number in range(40):
        cache.put(f"{number:040}", bytes([number]) * 50_000)
    assert cache.get(f"{39:040}") == bytes([39]) * 50_000
    assert cache.size() > 1 << 20  # all of them are still there
