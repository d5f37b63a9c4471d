"""A set of files (family, split, multi) is read as one file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.formats.hdf5.linked.joined_file import JoinedFile, SetMember
from insitu.model import Inline, Stored
from insitu.sources import MemorySource

NUMBERS = np.arange(3000).reshape(60, 50)
RECORDS = np.array([(b"ab", 1.5), (b"c ", -2)] * 300, [("t", "S3"), ("x", "<f8")])


def _write(path: Path, libver: str, **options: Any) -> None:
    with h5py.File(path, "w", libver=libver, **options) as file:
        file.attrs["title"] = "text"
        file["contiguous"] = NUMBERS
        file["records"] = RECORDS
        file.create_dataset("chunked", data=NUMBERS, chunks=(7, 9), compression="gzip", maxshape=(None, 50))
        file.create_dataset("sparse", (60, 50), "i8", chunks=(7, 9), fillvalue=5)[8, 10] = 1
        file["group/compact"] = 3
        for number in range(30):
            file[f"many/{number}"] = number


def _assert_reads_like(url: Any, oracle: Callable[[], h5py.File]) -> None:
    group = insitu.scan(url, decode=False)
    assert group.attributes["title"] == "text"
    with oracle() as file:
        for name, _ in group.all_arrays():
            np.testing.assert_array_equal(insitu.read(group, name, decode=False), file[name][...], err_msg=name)
        assert len(list(group.all_arrays())) >= 35


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("pattern", ["x%05d.h5", "1990_%02d_v0.nc", "x_%d"])
@pytest.mark.parametrize("size", [4096, 5001])
def test_a_family(tmp_path: Path, libver: str, pattern: str, size: int) -> None:
    path = tmp_path / pattern
    _write(path, libver, driver="family", memb_size=size)
    _assert_reads_like(tmp_path / (pattern % 0), lambda: h5py.File(path, driver="family", memb_size=size))


def test_a_family_of_which_nothing_says_that_it_is_one(tmp_path: Path) -> None:
    """As the library wrote them before 1.8."""
    whole = tmp_path / "whole.h5"
    _write(whole, "earliest")
    data = whole.read_bytes()
    for number, start in enumerate(range(0, len(data), 3000)):
        (tmp_path / f"old-{number:06d}.h5").write_bytes(data[start : start + 3000])
    _assert_reads_like(tmp_path / "old-000000.h5", lambda: h5py.File(whole))


def test_chunks_lie_in_the_members(tmp_path: Path) -> None:
    _write(tmp_path / "x%d.h5", "earliest", driver="family", memb_size=4096)
    (tile,) = insitu.scan(tmp_path / "x0.h5", decode=False).arrays["chunked"].tiles
    states = [tile.chunks[cell] for cell in np.ndindex(tile.chunks.shape)]
    urls = {Path(state.source.url).name for state in states if isinstance(state, Stored)}
    assert len(urls) > 2
    assert any(isinstance(state, Inline) for state in states)  # at the seams


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_split_set(tmp_path: Path, libver: str) -> None:
    _write(tmp_path / "x", libver, driver="split")
    _assert_reads_like(tmp_path / "x-m.h5", lambda: h5py.File(tmp_path / "x", driver="split"))
    with h5py.File(tmp_path / "x", "a", driver="split") as file:
        file["texts"] = ["one", "two"]
    assert insitu.read(tmp_path / "x-m.h5", "texts", decode=False).tolist() == ["one", "two"]


def test_a_set_in_memory() -> None:
    """Members of a bucket are found by their names, too."""
    data = bytes(range(200))
    sources = [MemorySource(data[at : at + 50], f"joined/{at}") for at in range(0, 200, 50)]
    joined = JoinedFile([SetMember(50 * n, 50, source) for n, source in enumerate(sources)], None, None)
    assert joined.read(0, 500) == data
    assert joined.read_many([(45, 60), (0, 1), (199, 1)]) == [data[45:105], data[:1], data[199:]]
    assert [(run.offset, run.length) for run in joined.runs(45, 60)] == [(45, 5), (0, 50), (0, 5)]
    with pytest.raises(FormatError):
        joined.runs(190, 20)


def test_a_set_far_away(tmp_path: Path) -> None:
    _write(tmp_path / "x%d.h5", "latest", driver="family", memb_size=8000)
    kept = [MemorySource(path.read_bytes(), f"far/away/{path.name}") for path in sorted(tmp_path.glob("x*.h5"))]
    _assert_reads_like(kept[0], lambda: h5py.File(tmp_path / "x%d.h5", driver="family", memb_size=8000))


def test_a_link_into_a_set(tmp_path: Path) -> None:
    _write(tmp_path / "x%d.h5", "latest", driver="family", memb_size=8000)
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["there"] = h5py.ExternalLink("x0.h5", "/chunked")
        layout = h5py.VirtualLayout((60, 50), "i8")
        layout[...] = h5py.VirtualSource("x0.h5", "/chunked", (60, 50))
        file.create_virtual_dataset("virtual", layout)
    for name in ("there", "virtual"):
        np.testing.assert_array_equal(insitu.read(tmp_path / "link.h5", name, decode=False), NUMBERS)


def test_values_of_varying_length_in_a_family_are_refused_by_name(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x%d.h5", "w", driver="family", memb_size=1000) as file:
        file["texts"] = ["one", "two"]
        file["numbers"] = np.arange(500)
    with pytest.raises(UnsupportedError, match=r"h5repart"):
        insitu.scan(tmp_path / "x0.h5", decode=False)
    with pytest.warns(UserWarning, match="texts"):
        group = insitu.scan(tmp_path / "x0.h5", errors="warn", decode=False)
    assert insitu.read(group, "numbers", decode=False).tolist() == list(range(500))


@pytest.mark.parametrize("driver", ["family", "split"])
def test_a_missing_member_is_named(tmp_path: Path, driver: str) -> None:
    if driver == "family":
        _write(tmp_path / "x%d.h5", "latest", driver="family", memb_size=5000)
        opened, missing = tmp_path / "x0.h5", tmp_path / "x3.h5"
    else:
        _write(tmp_path / "x", "latest", driver="split")
        opened, missing = tmp_path / "x-m.h5", tmp_path / "x-r.h5"
    missing.unlink()
    with pytest.raises(InsituError, match=missing.name):
        insitu.scan(opened, decode=False)


def test_a_renamed_split_set_is_told_apart(tmp_path: Path) -> None:
    _write(tmp_path / "x", "latest", driver="split")
    shutil.move(tmp_path / "x-m.h5", tmp_path / "other.h5")
    with pytest.raises(UnsupportedError, match=r"%s-m\.h5"):
        insitu.scan(tmp_path / "other.h5", decode=False)


def test_a_short_member_is_damage(tmp_path: Path) -> None:
    _write(tmp_path / "x%d.h5", "latest", driver="family", memb_size=5000)
    path = tmp_path / "x2.h5"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FormatError, match=r"x2\.h5"):
        insitu.scan(tmp_path / "x0.h5", decode=False)


def test_a_file_of_zeros_in_its_name_is_truncated_all_the_same(tmp_path: Path) -> None:
    _write(tmp_path / "x0.h5", "latest")
    data = (tmp_path / "x0.h5").read_bytes()
    (tmp_path / "x0.h5").write_bytes(data[:-100])
    with pytest.raises(FormatError, match="truncated"):
        insitu.scan(tmp_path / "x0.h5", decode=False)
    (tmp_path / "x1.h5").write_bytes(bytes(50))  # no member of it: what is missing stays missing
    with pytest.raises(InsituError):
        insitu.scan(tmp_path / "x0.h5", decode=False)
