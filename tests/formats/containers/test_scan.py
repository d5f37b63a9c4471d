"""Are the members of zip and tar archives read by range, as if they were files?

Modules: formats/containers/archive_entry.py, formats/containers/entry_list.py, formats/containers/tar_entries.py,
formats/containers/zarr_folders.py, formats/containers/zip_entries.py
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray

import insitu
from damaged_bytes import count_refused, cut, flip_each, flip_one
from insitu.errors import FormatError, VariableError
from insitu.formats import scan_format
from insitu.sources import MemorySource


def _netcdf(path: Path, form: str, year: int) -> None:
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("time", None)
        file.createDimension("x", 30)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2020-01-01"
        time[:] = np.arange(12) + 365 * year
        how = {"zlib": True, "chunksizes": (5, 7)} if form == "NETCDF4" else {}
        file.createVariable("tas", "f4", ("time", "x"), **how)[:] = np.random.default_rng(year).normal(size=(12, 30))
        if form == "NETCDF4":
            file.createVariable("name", str, ("x",))[:] = np.array(
                [f"station {i}" * (i % 4) for i in range(30)], object
            )


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    made = {"a.nc": "NETCDF3_CLASSIC", "deep/folder/b.nc": "NETCDF4"}
    for number, (name, form) in enumerate(made.items()):
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _netcdf(path, form, number)
    (tmp_path / "files" / "README").write_text("nothing to see here")
    return {name: tmp_path / "files" / name for name in [*made, "README"]}


def _zip(target: Path, files: dict[str, Path], method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, path in files.items():
            archive.write(path, name)


def _zip64(target: Path, files: dict[str, Path]) -> None:
    with zipfile.ZipFile(target, "w") as archive:
        for name, path in files.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                member.write(path.read_bytes())


def _streamed(target: Path, files: dict[str, Path]) -> None:
    """Without sizes in the local headers."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = io.BytesIO()

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            return self.data.write(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:  # type: ignore[arg-type]
        for name, path in files.items():
            archive.write(path, name)
    target.write_bytes(pipe.data.getvalue())


def _tar(form: int) -> Any:
    def write(target: Path, files: dict[str, Path]) -> None:
        with tarfile.open(target, "w", format=form) as archive:
            for name, path in files.items():
                archive.add(path, name)

    return write


WRITERS = {
    "zip": _zip, "zip64": _zip64, "streamed zip": _streamed, "ustar": _tar(tarfile.USTAR_FORMAT),
    "gnu tar": _tar(tarfile.GNU_FORMAT),
    "pax": _tar(tarfile.PAX_FORMAT),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITERS)
def test_members_are_groups(tmp_path: Path, files: dict[str, Path], kind: str) -> None:
    long = f"deep/{'very' * 8}/{'long' * 12}/c.nc"
    files = {**files, long: files["a.nc"]}
    target = tmp_path / "archive.bin"
    WRITERS[kind](target, files)
    tree = insitu.scan(target, decode=False)
    assert list(tree.problems) == ["README"]
    for name, path in files.items():
        if name == "README":
            continue
        actual = insitu.open_dataset(target, group=name).load()
        xarray.testing.assert_identical(actual, xarray.open_dataset(path).load())
        np.testing.assert_array_equal(
            insitu.read(tree, f"{name}/tas", decode=False), insitu.read(path, "tas", decode=False)
        )
    assert tree.array("a.nc/tas").sources[0].url.endswith("archive.bin")


def test_one_dataset_of_members(tmp_path: Path, files: dict[str, Path]) -> None:
    _zip(tmp_path / "a.zip", {"in.nc": files["a.nc"]})
    _tar(tarfile.GNU_FORMAT)(tmp_path / "b.tar", {"in.nc": files["deep/folder/b.nc"]})
    actual = insitu.open_mfdataset([tmp_path / "a.zip", tmp_path / "b.tar"], group="in.nc", drop_variables=["name"])
    parts = [
        xarray.open_dataset(files[name]).drop_vars("name", errors="ignore").load()
        for name in ("a.nc", "deep/folder/b.nc")
    ]
    xarray.testing.assert_identical(actual.load(), xarray.concat(parts, "time"))


def test_compressed_members_are_named(tmp_path: Path, files: dict[str, Path]) -> None:
    _zip(tmp_path / "a.zip", files, zipfile.ZIP_DEFLATED)
    assert "compressed" in insitu.scan(tmp_path / "a.zip", decode=False).problems["a.nc"]
    with pytest.raises(VariableError, match="compressed"):
        insitu.scan(tmp_path / "a.zip", group="a.nc", decode=False)


def test_members_that_are_not_there(tmp_path: Path, files: dict[str, Path]) -> None:
    _zip(tmp_path / "a.zip", files)
    with pytest.raises(VariableError, match=r"a\.nc"):
        insitu.scan(tmp_path / "a.zip", group="c.nc", decode=False)
    assert list(insitu.scan(tmp_path / "a.zip", group="deep", decode=False).groups) == ["folder"]
    assert set(insitu.scan(tmp_path / "a.zip", group="a.nc", variables=["tas"], decode=False).arrays) == {"tas", "time"}


def test_groups_in_members(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["inner/values"] = np.arange(5)
    _zip(tmp_path / "a.zip", {"a.h5": tmp_path / "a.h5"})
    np.testing.assert_array_equal(
        insitu.read(insitu.scan(tmp_path / "a.zip", group="a.h5/inner", decode=False), "values", decode=False),
        np.arange(5),
    )


def test_saved_references_point_into_the_archive(tmp_path: Path, files: dict[str, Path]) -> None:
    _tar(tarfile.PAX_FORMAT)(tmp_path / "a.tar", files)
    actual = insitu.open_dataset(tmp_path / "a.tar", group="a.nc")
    actual.insitu.save(tmp_path / "a.json")
    xarray.testing.assert_identical(insitu.open_dataset(tmp_path / "a.json").load(), actual.load())


@pytest.mark.parametrize("kind", ["zip", "zip64", "pax", "gnu tar"])
def test_damaged(tmp_path: Path, files: dict[str, Path], kind: str) -> None:
    WRITERS[kind](tmp_path / "a", {"a.nc": files["a.nc"], "long" * 40: files["README"]})
    good = (tmp_path / "a").read_bytes()
    random = np.random.default_rng(0)
    ends = [*range(0, 600, 7), *random.integers(0, len(good), 40).tolist()]
    places = [*range(0, 600, 5), *range(max(len(good) - 300, 0), len(good), 3)]

    def scan(data: bytes) -> None:
        scan_format(MemorySource(data), format="tar" if "zip" not in kind else "zip", errors="warn")

    assert count_refused(cut(good, ends), scan)
    assert count_refused(flip_each(good, places, (0xFF,)), scan)


def test_no_directory() -> None:
    with pytest.raises(FormatError, match="no central directory"):
        scan_format(MemorySource(b"PK\3\4" + bytes(100)))


def test_a_damaged_first_header_of_a_tar_archive(tmp_path: Path) -> None:
    """A file of HDF5 may begin at byte 2048, behind anything: here behind a header and another member."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = np.arange(5)
    (tmp_path / "note").write_bytes(b"x" * 600)
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT):
        with tarfile.open(tmp_path / "x.tar", "w", format=form) as archive:
            archive.add(tmp_path / "note", "note")
            archive.add(tmp_path / "a.h5", "a.h5")
        data = (tmp_path / "x.tar").read_bytes()
        assert data[2048:2056] == b"\x89HDF\r\n\x1a\n"
        # But for those that make a space of the first zero of the checksum, or end it otherwise: it stays the same.
        places = [*range(10), *range(100, 148), *range(149, 154), *range(257, 263)]
        for place in places:
            with pytest.raises(FormatError, match="tar header"):
                scan_format(MemorySource(flip_one(data, place, 1 << place % 8)))
