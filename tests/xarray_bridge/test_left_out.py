"""`errors="warn"` keeps the rest of a file; a file that has only groups gives a warning.

Modules: scanning/scan_member.py, xarray_bridge/tree_accessor.py
"""

from __future__ import annotations

import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from h5py import h5d, h5s, h5t

import insitu
from insitu.errors import InsituError, UnsupportedError
from insitu.formats import InsituWarning
from insitu.model import VirtualGroup
from insitu.sources import ByteSource


def _wide(group: h5py.Group, name: str, length: int) -> None:
    """A variable of integers of 128 bits, which NumPy does not have."""
    kind = h5t.STD_I64LE.copy()
    kind.set_size(16)
    kind.set_precision(128)
    h5d.create(group.id, name.encode(), kind, h5s.create_simple((length,)))


def _write(path: Path, offset: int = 0) -> Path:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3) + offset
        file["good"] = np.arange(3.0)
        _wide(file, "wide", 3)
        file.create_dataset("odd", data=np.zeros(3), chunks=(3,), compression="lzf")
        file["group/inner"] = np.arange(4)
        _wide(file["group"], "deep", 4)
        file["x"].make_scale()
        for name in ("good", "wide", "odd"):
            file[name].dims[0].attach_scale(file["x"])
    # Its filter becomes one that nobody knows: id 32000 → 31999, before the length of its name.
    data = path.read_bytes()
    assert data.count(b"\x00\x7d\x08\x00") == 1
    path.write_bytes(data.replace(b"\x00\x7d\x08\x00", b"\xff\x7c\x08\x00"))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return _write(tmp_path / "x.h5")


def test_without_it_that_is_an_error(path: Path) -> None:
    with pytest.raises(UnsupportedError, match="wide"):
        insitu.open_dataset(path)
    with pytest.raises(ValueError, match="errors must be"):
        insitu.open_dataset(path, errors="ignore")


def test_it_can_be_left_out_in_silence(path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = insitu.open_dataset(path, errors="skip")
    assert not caught
    assert set(dataset.variables) == {"x", "good"}


def test_a_dataset_keeps_the_rest(path: Path) -> None:
    with pytest.warns(InsituWarning) as caught:
        dataset = insitu.open_dataset(path, errors="warn")
    messages = sorted(str(warning.message) for warning in caught)
    assert len(messages) == 2
    assert messages[0].startswith("left out: ")
    assert any("wide" in text and "128 bits" in text for text in messages)
    assert any("odd" in text and "31999" in text for text in messages)
    assert set(dataset.variables) == {"x", "good"}
    assert dataset.load()["good"].sel(x=2).item() == 2


def test_the_engine_too(path: Path) -> None:
    with pytest.warns(InsituWarning, match="wide|odd"):
        dataset = xr.open_dataset(path, engine="insitu", errors="warn")
    assert set(dataset.variables) == {"x", "good"}
    with pytest.warns(InsituWarning, match="wide|odd|deep"):
        tree = xr.open_datatree(path, engine="insitu", errors="warn")
    assert tree["group/inner"].shape == (4,)


def test_a_tree_names_all_of_them(path: Path) -> None:
    with pytest.raises(UnsupportedError):
        insitu.open_datatree(path)
    with pytest.warns(InsituWarning) as caught:
        tree = insitu.open_datatree(path, errors="warn")
    messages = " ".join(str(warning.message) for warning in caught)
    assert all(name in messages for name in ("wide", "odd", "group/deep"))
    assert set(tree.variables) == {"x", "good"}
    assert set(tree["group"].dataset.data_vars) == {"inner"}


def test_what_is_bad_below_does_not_matter_here(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["good"] = np.arange(3.0)
        _wide(file.create_group("group"), "deep", 4)
    assert set(insitu.open_dataset(path).variables) == {"good"}


def test_many_files(tmp_path: Path) -> None:
    paths = [_write(tmp_path / f"{number}.h5", 3 * number) for number in range(2)]
    with pytest.warns(InsituWarning, match="wide|odd"):
        dataset = insitu.open_mfdataset(paths, errors="warn")
    assert set(dataset.variables) == {"x", "good"}
    assert dataset["good"].sel(x=5).item() == 2


def test_labels_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(3), chunks=(3,), compression="gzip", fletcher32=True)
        file["x"].make_scale()
        file["good"] = np.arange(3.0)
        file["good"].dims[0].attach_scale(file["x"])
        place = file["x"].id.get_chunk_info(0).byte_offset
    with path.open("r+b") as raw:
        raw.seek(place + 4)
        raw.write(b"\xff\xff")
    with pytest.raises(InsituError):
        insitu.open_dataset(path)
    with pytest.warns(InsituWarning, match="left out: x"):
        dataset = insitu.open_dataset(path, errors="warn")
    assert set(dataset.variables) == {"good"}


def test_a_file_of_groups_names_them(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for number in range(10):
            file[f"beam{number}/heights/h"] = np.arange(3)
    with pytest.warns(InsituWarning, match="'beam0/heights', 'beam1/heights'.* and 2 more.*group=.*open_datatree"):
        assert not insitu.open_dataset(path).variables
    with pytest.warns(InsituWarning, match="the group 'beam1' of .* has no variables.*'beam1/heights'"):
        insitu.open_dataset(path, group="/beam1")
    with pytest.warns(InsituWarning, match="beam0"):
        insitu.open_mfdataset([path], combine="nested", concat_dim="t")
    assert set(insitu.open_dataset(path, group="beam1/heights").variables) == {"h"}


def test_a_defect_of_insitu_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from insitu.scanning import scan_member

    files = []
    for number in range(3):
        files.append(tmp_path / f"{number}.nc")
        with h5py.File(files[-1], "w") as file:
            file["x"] = np.arange(3) + 3 * number
            file["x"].make_scale()
            file["good"] = np.arange(3.0)
            file["good"].dims[0].attach_scale(file["x"])
    scan = scan_member._scan_wanted

    def broken(source: ByteSource, job: scan_member.Job) -> VirtualGroup:
        if source.url.endswith("1.nc"):
            raise IndexError("our own mistake")
        return scan(source, job)

    monkeypatch.setattr(scan_member, "_scan_wanted", broken)
    with pytest.warns(InsituWarning, match="IndexError: our own mistake. This is a defect of insitu") as caught:
        assert insitu.open_mfdataset(files, errors="warn").sizes["x"] == 6
    assert "in broken" in str(caught[0].message)  # the traceback
    with pytest.raises(IndexError, match="our own mistake") as raised:
        insitu.open_mfdataset(files)
    assert any("defect of insitu" in note for note in raised.value.__notes__)

    def preprocess(dataset: xr.Dataset) -> xr.Dataset:
        raise KeyError("not there")

    monkeypatch.undo()
    with pytest.raises(KeyError) as raised_by_caller:
        insitu.open_mfdataset(files, preprocess=preprocess)
    assert not any("defect of insitu" in note for note in raised_by_caller.value.__notes__)
