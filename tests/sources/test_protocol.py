"""Every source keeps the same promises: pread's rule at the end, order, errors that are ours."""

from __future__ import annotations

import io
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from obstore.store import LocalStore, MemoryStore

from insitu.errors import SourceError
from insitu.sources import (
    ByteSource,
    CachedSource,
    CountingSource,
    DiskCache,
    FileLikeSource,
    FsspecSource,
    HttpSource,
    LocalSource,
    MemorySource,
    ObjectSource,
    open_source,
    read_into,
    read_tail,
)

KINDS = [
    "local", "opened", "bytes", "filelike", "http", "http-whole", "http-capped", "http-chunked", "http-sizeless",
    "object-memory", "object-local", "filesystem", "counted", "cached", "cached-web",
]  # fmt: skip
RANDOM = random.Random(3)
RANGES = [(RANDOM.randrange(0, 201_000), RANDOM.choice([0, 1, 7, 300, 3000, 20_000])) for _ in range(60)]


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: Path, data: bytes, hasty) -> Iterator[ByteSource]:
    kind: str = request.param
    path = tmp_path / "object.bin"
    path.write_bytes(data)
    store = MemoryStore()
    store.put("a/object.bin", data)
    pytest.importorskip("fsspec") if kind == "filesystem" else None
    makers: dict[str, Callable[[], ByteSource]] = {
        "local": lambda: LocalSource(path),
        "bytes": lambda: MemorySource(data),
        "filelike": lambda: FileLikeSource(io.BytesIO(data)),
        "object-memory": lambda: ObjectSource(store, "a/object.bin"),
        "object-local": lambda: ObjectSource(LocalStore(tmp_path), "object.bin"),
        "filesystem": lambda: FsspecSource(f"file://{path}"),
        "counted": lambda: CountingSource(MemorySource(data)),
        "cached": lambda: CachedSource(LocalSource(path), DiskCache(tmp_path / "cache", 1 << 20)),
    }
    if kind == "opened":
        with path.open("rb") as file, open_source(file) as made:
            assert isinstance(made, LocalSource)
            yield made
    elif kind.startswith("http"):
        web = request.getfixturevalue("web")
        with HttpSource(web.url(kind.partition("-")[2] or "file"), policy=hasty) as made:
            yield made
    elif kind == "cached-web":
        web = request.getfixturevalue("web")
        with CachedSource(HttpSource(web.url("file"), policy=hasty), DiskCache(tmp_path / "cache", 1 << 20)) as made:
            yield made
    else:
        with makers[kind]() as made:
            yield made


def test_is_a_byte_source(source):
    assert isinstance(source, ByteSource)
    assert open_source(source) is source
    assert source.url in repr(source)


def test_ranges_in_order_short_only_at_the_end(source, data):
    expected = [data[offset : offset + length] for offset, length in RANGES]
    assert source.read_many(RANGES) == expected
    assert [source.read(*item) for item in RANGES[:20]] == expected[:20]
    assert all(type(found) is bytes for found in source.read_many(RANGES[:3]))


@pytest.mark.parametrize("first", [0, 1])
def test_reads_past_the_end_give_nothing(source, data, first):
    end = len(data)
    if first:
        source.read(0, 1)
    assert source.read(end - 3, 10) == data[-3:]
    assert source.read(end, 10) == b""
    assert source.read(end + 10, 10) == b""
    assert source.read(10, 0) == b""
    assert source.read_many([(end + 5, 5), (0, 4), (end - 1, 5), (3, 0)]) == [b"", data[:4], data[-1:], b""]
    assert source.read_many([]) == []


def test_a_first_read_past_the_end_gives_nothing(source, data):
    assert source.read(len(data) + 10, 10) == b""
    assert source.read(0, 2) == data[:2]


def test_ranges_of_damaged_tables_take_neither_memory_nor_down(source, data):
    assert source.read(2**64 - 1, 16) == b""
    assert source.read(2**70, 2**70) == b""
    assert source.read(len(data) - 2, 2**60) == data[-2:]
    assert source.read_many([(2**64 - 1, 8), (len(data) - 2, 2**60), (0, 1)]) == [b"", data[-2:], data[:1]]
    for bad in [(-1, 4), (4, -1)]:
        with pytest.raises(SourceError, match="negative"):
            source.read(*bad)
        with pytest.raises(SourceError, match="negative"):
            source.read_many([(0, 1), bad])


def test_size_and_description(source, data):
    assert source.size() == len(data)
    facts = source.describe()
    assert (facts.url, facts.size) == (source.url, len(data))


def test_into_a_buffer(source, data):
    target = bytearray(10)
    assert read_into(source, 5, memoryview(target)) == 10
    assert target == data[5:15]
    assert read_into(source, len(data) - 4, memoryview(target)) == 4
    assert target == data[-4:] + data[9:15]


def test_into_a_buffer_of_nothing(source):
    for shape in ((0,), (2, 0, 3)):
        assert read_into(source, 5, np.empty(shape, np.uint8).data) == 0


@pytest.mark.parametrize("first", [0, 1])
def test_the_tail(source, data, first):
    if first:
        source.read(0, 1)
    assert read_tail(source, 5) == data[-5:]
    assert read_tail(source, 0) == b""
    assert read_tail(source, 2**60) == data
    assert source.size() == len(data)


def test_threads_read_at_once(source, data):
    wanted = [(at * 997 % len(data), 500) for at in range(60)]
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda at: source.read_many(wanted[at : at + 10]), range(0, 60, 10)))
    assert [part for batch in found for part in batch] == [data[offset : offset + 500] for offset, _ in wanted]


def test_another_process_can_have_it(source, data):
    if isinstance(source, FileLikeSource | CountingSource):
        pytest.skip("bound to this process")
    if isinstance(source, ObjectSource) and "MemoryStore" in source.url:
        pytest.skip("a memory store is bound to its process")
    with pickle.loads(pickle.dumps(source)) as again:
        assert again.url == source.url
        assert again.read(100, 5) == data[100:105]


def test_closing_twice_does_no_harm(source):
    source.close()
    source.close()


def test_no_source_keeps_a_module_from_loading_fast():
    # The remote libraries come when they are first asked for.
    import subprocess

    code = "import sys, insitu.sources.resolve as r; print('urllib3' in sys.modules, 'obstore' in sys.modules)"
    env = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""}
    assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True).split() == ["False", "False"]
