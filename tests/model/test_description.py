"""What is shown of archives, trees and arrays: in about ten lines, with the numbers that h5py knows."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu import trace
from insitu.model.description import format_bytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two variables in two files each, and a file of many variables, groups and attributes."""
    found: Path = tmp_path_factory.mktemp("described")
    for name in ("t", "u"):
        for number in range(2):
            time = np.arange(4) + 4 * number
            made = xr.Dataset({name: (("time", "x"), np.random.default_rng(number).random((4, 50)))}, {"time": time})
            made.to_netcdf(found / f"{name}{number}.nc", encoding={name: {"chunksizes": (1, 50), "zlib": True}})
    with h5py.File(found / "large.h5", "w") as file:
        for number in range(300):
            file.create_dataset(f"v{number:03}", data=np.arange(1000.0), chunks=(10,))
        for number in range(100):
            file.attrs[f"attribute {number}"] = "<b>& " + "x" * 300
        for number in range(20):
            file.create_dataset(f"group{number}/inner/w", data=np.arange(4.0))
    return found


class _Checked(HTMLParser):
    """Fails unless every element is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_large_tree(folder: Path) -> None:
    group = insitu.scan(folder / "large.h5")
    lines = repr(group).splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) < 200
    assert lines[0] == "<VirtualGroup: 320 variables in 41 groups>"
    assert lines[1].split()[0] == "v000"
    assert "100 chunks of 10 in 1 file" in lines[1]
    assert any("more" in line for line in lines)
    shown = _Checked(group._repr_html_()).words
    assert all(f"v{number:03}" in shown for number in range(300))
    assert "<b>&" in shown  # as text


def test_an_array_tells_what_is_stored(folder: Path) -> None:
    with h5py.File(folder / "t0.nc") as file:
        stored = sum(file["t"].id.get_chunk_info(number).size for number in range(4))
    assert repr(insitu.scan(folder / "t0.nc")["t"]) == (
        f"<VirtualArray (time: 4, x: 50) float64: 4 chunks of 1×50 in 1 file, {format_bytes(stored)} stored; "
        "1.6 kB virtual>"
    )


def test_archives(folder: Path) -> None:
    many = insitu.Archive.open(str(folder / "*[01].nc"))
    lines = repr(many).splitlines()
    assert lines[0] == f"<Archive of 4 files: {folder}/t0.nc … {folder}/u1.nc>"
    assert {line.split()[0] for line in lines[1:]} == {"t", "time", "u"}
    assert any("8 chunks of 1×50 in 2 files" in line for line in lines)
    assert any("values, 64 B" in line for line in lines)
    assert "8 chunks" in _Checked(many._repr_html_()).words
    assert "it cannot be read: no such file" in repr(insitu.Archive.open(str(folder / "none.nc")))


def test_a_variable_of_a_store_has_its_own_files(folder: Path, tmp_path: Path) -> None:
    """It was said to have "4 objects": all files of the store."""
    with insitu.open_mfdataset(str(folder / "*[01].nc")) as ds:
        ds.insitu.save(tmp_path / "x.insitu")
        expected = [repr(ds[name].variable._data) for name in "tu"]
    with insitu.open_dataset(tmp_path / "x.insitu") as ds:
        assert [repr(ds[name].variable._data) for name in "tu"] == expected
        assert "in 2 files" in expected[0]
        assert "chunks 1×50, 2 files" in repr(ds)
        assert "3 chunks in 1 file" in repr(ds.t.isel(time=slice(3)).variable._data)


def test_nothing_far_away_is_read() -> None:
    archive = insitu.Archive.open("http://name:secret@127.0.0.1:9/x.nc?X-Amz-Signature=hush")
    with trace() as cost:
        text = repr(archive) + archive._repr_html_()
    assert cost.requests == 0
    assert "127.0.0.1:9/x.nc" in text
    assert "secret" not in text
    assert "hush" not in text
