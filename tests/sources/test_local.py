"""Files of this machine, open files and bytes as sources.

Modules: sources/filelike.py, sources/opened_urls.py
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import insitu.sources.local as local
from insitu.errors import AccessError, NotFoundError, SourceError
from insitu.sources import FileLikeSource, LocalSource, open_source
from waiting import LONG


@pytest.fixture
def path(tmp_path: Path, data: bytes) -> Path:
    file = tmp_path / "object.bin"
    file.write_bytes(data)
    return file


def test_identity_is_made_of_size_and_time(path, data):
    os.utime(path, ns=(10**18, 10**18 + 5))
    facts = LocalSource(path).describe()
    assert facts.url == str(path)
    assert facts.modified == pytest.approx(1e9)
    assert facts.etag == f"{len(data):x}-{10**18 + 5:x}"
    os.utime(path, ns=(10**18, 10**18 + 6))
    assert LocalSource(path).describe().etag != facts.etag


def test_a_relative_path_becomes_absolute(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    assert LocalSource("object.bin").url == str(path)


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(NotFoundError, match=r"no such file.*missing\.nc"):
        LocalSource(tmp_path / "missing.nc")
    with pytest.raises(FileNotFoundError):
        LocalSource(tmp_path / "missing.nc")
    with pytest.raises(SourceError, match="directory"):
        LocalSource(tmp_path)
    with pytest.raises(SourceError, match="not a path that the system accepts"):
        LocalSource("a\0b")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(SourceError, match="pipe"):
            LocalSource(tmp_path / "pipe")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read(path):
    path.chmod(0)
    with pytest.raises(AccessError):
        LocalSource(path)


def test_closed_is_closed(path):
    source = LocalSource(path)
    source.close()
    for act in (lambda: source.read(0, 1), lambda: source.read_many([(0, 1)]), lambda: source.read(0, 10**9)):
        with pytest.raises(SourceError, match="closed"):
            act()
    with pytest.raises(SourceError, match="closed"):
        source.read_into(0, memoryview(bytearray(3)))


def test_the_descriptor_is_given_back(path):
    source = LocalSource(path)
    number = source._file().number
    source.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(number)


def test_a_read_under_way_keeps_the_descriptor(path):
    source = LocalSource(path)
    opened = source._file()
    source.close()
    assert os.pread(opened.number, 2, 0) == path.read_bytes()[:2]


def test_a_file_that_shrank_gives_short_reads(path, data):
    source = LocalSource(path)
    os.truncate(path, 1000)
    assert source.read(990, 100) == data[990:1000]
    assert source.read_many([(0, 10), (995, 50), (5000, 5)]) == [data[:10], data[995:1000], b""]


def test_without_pread(path, data, monkeypatch):
    monkeypatch.setattr(local, "_HAS_PREAD", False)
    monkeypatch.setattr(local, "_HAS_PREADV", False)
    source = LocalSource(path)
    assert source.read_many([(5, 10), (100, 3)]) == [data[5:15], data[100:103]]
    assert source.read(len(data) - 1, 5) == data[-1:]
    target = bytearray(6)
    assert source.read_into(7, memoryview(target)) == 6
    assert target == data[7:13]


def test_systems_that_stop_short(path, data, monkeypatch):
    monkeypatch.setattr(local, "_LONGEST", 100)
    monkeypatch.setattr(local, "_pread", lambda number, length, offset: os.pread(number, min(length, 100), offset))
    source = LocalSource(path)
    assert source.read(3, 1000) == data[3:1003]
    assert source.read_many([(3, 1000), (0, 5)]) == [data[3:1003], data[:5]]


def test_an_error_of_the_system_is_ours(path, monkeypatch):
    def broken(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(local, "_pread", broken)
    source = LocalSource(path)
    with pytest.raises(SourceError, match=r"Input/output error \[bytes 4-14, in "):
        source.read(4, 10)
    with pytest.raises(SourceError, match="Input/output error"):
        source.read_many([(4, 10)])


def test_into_a_buffer_of_another_type(path, data):
    import numpy as np

    target = np.empty((2, 3), "<i4")
    assert LocalSource(path).read_into(8, memoryview(target)) == 24
    assert target.tobytes() == data[8:32]


def test_only_plain_files_are_taken_by_descriptor(tmp_path):
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(b"hello")
    with gzip.open(tmp_path / "a.gz", "rb") as file:
        source = open_source(file)
        assert isinstance(source, FileLikeSource)
        assert source.read(1, 3) == b"ell"
        assert source.url.endswith("/a.gz")
        assert open_source(source.url).read(1, 3) == b"ell"


def test_the_caller_keeps_the_file(path, data):
    with path.open("rb") as file:
        with open_source(file) as source:
            assert source.read(0, 3) == data[:3]
            assert source.url == str(path)
        assert file.read(3) == data[:3]


def test_text_files_and_streams_are_refused():
    import io

    with pytest.raises(SourceError, match="binary"):
        open_source(io.StringIO("abc")).read(0, 1)
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb"), os.fdopen(reader, "rb") as stream, pytest.raises(SourceError, match="seeking"):
        open_source(stream)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_children_read_side_by_side(path):
    code = """
import os, sys, hashlib
from insitu.sources import CountingSource, LocalSource
path = sys.argv[1]
source = CountingSource(LocalSource(path))
expected = open(path, "rb").read()
source._lock.acquire()          # as if a thread of the parent were at work
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        good = all(source.read(at, 700) == expected[at:at + 700] for at in range(0, 190000, 997))
        os._exit(0 if good else 1)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code, path], env=env, capture_output=True, text=True, timeout=LONG)
    assert done.stdout.strip() == "[0, 0, 0]", done.stderr


@pytest.mark.parametrize("kernel", [True, False])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_buffer_with_gaps_is_filled_row_by_row(tmp_path: Path, kernel: bool, data: st.DataObject) -> None:
    found = local._read_scattered
    if kernel and found is None:
        pytest.skip("the C extension was not built")
    content = np.random.default_rng(7).integers(0, 255, 700_000, np.uint8)
    path = tmp_path / "bytes"
    if not path.exists():
        path.write_bytes(content.tobytes())
    whole = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3), label="whole"))
    cut = tuple(
        slice(
            *sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))), data.draw(st.sampled_from([1, 1, 2]))
        )
        for n in whole
    )
    array = np.zeros(whole, np.dtype(data.draw(st.sampled_from(["u1", "f4", ">i2", "f8"]))))
    target = array[cut]
    offset = data.draw(st.sampled_from([0, 3, 690_000, 699_999, 800_000]))
    expected = content[offset : offset + target.nbytes]
    with patch.object(local, "_read_scattered", found if kernel else None), patch.object(local, "_BETWEEN", 100):
        count = LocalSource(path).read_into(offset, target[..., None].view(np.uint8).data)
    assert count == len(expected)
    if count == target.nbytes:
        assert target.tobytes() == expected.tobytes()
        outside = np.ones(whole, bool)
        outside[cut] = False
        assert not array[outside].any()


@pytest.mark.parametrize("kernel", [True, False])
def test_many_ranges_go_into_one_buffer(path, data, kernel, monkeypatch):
    if not kernel:
        monkeypatch.setattr(local, "_read_ranges", None)
    source = LocalSource(path)
    ranges = [(5, 3), (0, 0), (1, 9), (len(data) - 4, 4), (5, 3)]
    offset, length = np.array(ranges, np.int64).T
    target = np.zeros(length.sum(), np.uint8)
    assert source.read_ranges_into(offset, length, target) == target.size
    assert target.tobytes() == b"".join(data[begin : begin + count] for begin, count in ranges)
    assert source.read_ranges_into(np.array([len(data) - 2]), np.array([9]), np.zeros(9, np.uint8)) == 2
    source.close()
    with pytest.raises(SourceError, match="closed"):
        source.read_ranges_into(offset, length, target)


def test_the_kernel_refuses_ranges_that_do_not_fill_the_target(path):
    if local._read_ranges is None:
        pytest.skip("the C extension was not built")
    with path.open("rb") as file:
        for offset, length in (([0], [5]), ([-1], [4]), ([0], [-4]), ([0, 1], [4]), ([2**63 - 1], [4])):
            with pytest.raises(ValueError, match="do not fill"):
                local._read_ranges(file.fileno(), np.array(offset), np.array(length), bytearray(4))


@pytest.mark.parametrize("offset", [0, 300_001, 650_000])
@pytest.mark.parametrize(("whole", "cut"), [((3, 500, 300), 257), ((3, 500, 300), 64), ((2, 2, 90_000), 70_000)])
def test_short_and_long_rows_end_with_the_file(tmp_path: Path, offset: int, whole: tuple[int, ...], cut: int) -> None:
    if local._read_scattered is None:
        pytest.skip("the C extension was not built")
    content = np.random.default_rng(8).integers(1, 255, 700_000, np.uint8)
    (tmp_path / "bytes").write_bytes(content.tobytes())
    array = np.zeros(whole, np.uint8)
    target = array[::-1, :, :cut]  # rows in another order than in memory
    count = LocalSource(tmp_path / "bytes").read_into(offset, target.data)
    expected = content[offset : offset + target.size]
    assert count == len(expected)
    assert target.tobytes() == expected.tobytes() + bytes(target.size - count)
    assert not array[:, :, cut:].any()
