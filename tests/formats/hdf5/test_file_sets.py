"""Members of a set of files (family, split, multi) are recognised and refused, with the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from insitu.errors import FormatError, InsituError, UnsupportedError

NUMBERS = np.arange(3000).reshape(60, 50)


def _write(path: Path, libver: str, **options: Any) -> None:
    with h5py.File(path, "w", libver=libver, **options) as file:
        file.attrs["title"] = "text"
        file["contiguous"] = NUMBERS
        file.create_dataset("chunked", data=NUMBERS, chunks=(7, 9), compression="gzip", maxshape=(None, 50))
        file["texts"] = ["one", "two"]


@pytest.mark.parametrize("userblock", [0, 512])
@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
@pytest.mark.parametrize("size", [2048, 5001, 20000])
def test_the_first_member_of_a_family_is_refused(tmp_path: Path, libver: str, size: int, userblock: int) -> None:
    _write(tmp_path / "x%d.h5", libver, driver="family", memb_size=size, userblock_size=userblock)
    for errors in ("raise", "warn"):
        with pytest.raises(UnsupportedError, match=r"(?s)family of files.*h5repart -family_to_single"):
            insitu.scan(tmp_path / "x0.h5", errors=errors, decode=False)
    with pytest.raises(InsituError):
        insitu.scan(tmp_path / "x1.h5", decode=False)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_family_of_one_member_is_a_whole_file(tmp_path: Path, libver: str) -> None:
    _write(tmp_path / "x%d.h5", libver, driver="family", memb_size=1 << 20)
    for name in ("contiguous", "chunked"):
        np.testing.assert_array_equal(insitu.read(tmp_path / "x0.h5", name, decode=False), NUMBERS)


@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
def test_a_split_set_is_refused(tmp_path: Path, libver: str) -> None:
    _write(tmp_path / "x", libver, driver="split")
    with pytest.raises(UnsupportedError, match=r"(?s)split or multi set.*h5repack.*driver=\"split\""):
        insitu.scan(tmp_path / "x-m.h5", decode=False)
    with pytest.raises(InsituError):
        insitu.scan(tmp_path / "x-r.h5", decode=False)


def test_the_way_out_of_a_split_set(tmp_path: Path) -> None:
    """What the refusal advises is enough."""
    _write(tmp_path / "x", "latest", driver="split")
    with h5py.File(tmp_path / "x", driver="split") as file, h5py.File(tmp_path / "one.h5", "w") as one:
        for name in file:
            file.copy(name, one)
    np.testing.assert_array_equal(insitu.read(tmp_path / "one.h5", "chunked", decode=False), NUMBERS)
    assert insitu.read(tmp_path / "one.h5", "texts", decode=False).tolist() == ["one", "two"]


def test_an_unknown_driver_is_named(tmp_path: Path) -> None:
    _write(tmp_path / "x%d.h5", "earliest", driver="family", memb_size=1 << 20)
    path = tmp_path / "x0.h5"
    path.write_bytes(path.read_bytes().replace(b"NCSAfami", b"somebody", 1))
    with pytest.raises(UnsupportedError, match="'somebody'"):
        insitu.scan(path, decode=False)


def test_a_driver_information_block_that_is_none_is_damage(tmp_path: Path) -> None:
    _write(tmp_path / "x%d.h5", "earliest", driver="family", memb_size=1 << 20)
    path = tmp_path / "x0.h5"
    data = bytearray(path.read_bytes())
    data[96] = 9
    path.write_bytes(data)
    with pytest.raises(FormatError, match="driver information block"):
        insitu.scan(path, decode=False)
    data[48:56] = (1 << 40).to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(FormatError, match="driver information block"):
        insitu.scan(path, decode=False)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_link_into_a_set_is_left_out_with_its_reason(tmp_path: Path, libver: str) -> None:
    _write(tmp_path / "x%d.h5", libver, driver="family", memb_size=8000)
    _write(tmp_path / "y", libver, driver="split")
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["here"] = NUMBERS
        for letter, name in (("x", "x0.h5"), ("y", "y-m.h5")):
            file[f"{letter}_link"] = h5py.ExternalLink(name, "/chunked")
            layout = h5py.VirtualLayout((60, 50), "i8")
            layout[...] = h5py.VirtualSource(name, "/chunked", (60, 50))
            file.create_virtual_dataset(f"{letter}_virtual", layout)
    with pytest.warns(UserWarning, match="not supported") as caught:
        group = insitu.scan(tmp_path / "link.h5", errors="warn", decode=False)
    assert list(group.arrays) == ["here"]
    messages = "\n".join(str(warning.message) for warning in caught)
    for name in ("x_link", "x_virtual", "y_link", "y_virtual", "family of files", "split or multi set"):
        assert name in messages
    for name in ("x_link", "y_virtual"):
        with pytest.raises(UnsupportedError, match="not supported"):
            insitu.read(tmp_path / "link.h5", name, decode=False)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_truncated_file_with_a_zero_in_its_name_may_be_an_old_family(tmp_path: Path, libver: str) -> None:
    """Before HDF5 1.8, families did not store that they are one."""
    _write(tmp_path / "x0.h5", libver)
    data = (tmp_path / "x0.h5").read_bytes()
    (tmp_path / "x0.h5").write_bytes(data[:-100])
    with pytest.raises(FormatError, match=r"(?s)truncated.*h5repart"):
        insitu.scan(tmp_path / "x0.h5", decode=False)
    (tmp_path / "x0.h5").rename(tmp_path / "x.h5")
    with pytest.raises(FormatError, match="truncated") as caught:
        insitu.scan(tmp_path / "x.h5", decode=False)
    assert "h5repart" not in str(caught.value)
