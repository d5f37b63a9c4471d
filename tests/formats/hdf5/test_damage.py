"""A damaged file gives an error of ours, or its sound part: no hang, crash or memory blow-up."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray

import insitu
from damaged_bytes import count_refused, flip_each, flip_one
from insitu.errors import FormatError, InsituError
from insitu.formats import InsituWarning, scan_format
from insitu.sources import MemorySource


def _file(path: Path, libver: str) -> bytes:
    with h5py.File(path, "w", libver=libver) as file:
        file.attrs["title"] = "text"
        file.create_dataset(
            "a", data=np.arange(200).reshape(20, 10), chunks=(3, 4), compression="gzip", maxshape=(None, 10)
        )
        file.create_dataset("b", data=np.arange(200).reshape(20, 10), chunks=(3, 4), maxshape=(None, None))
        file.create_dataset("c", data=np.arange(2000), chunks=(1,))
        file["g/texts"] = ["one", "two"]
        file["g/struct"] = np.zeros(3, [("x", "i4"), ("y", "S3")])
        for number in range(20):
            file["a"].attrs[f"attribute {number}"] = number
            file[f"h/{number}"] = number
    return path.read_bytes()


def _netcdf(path: Path) -> bytes:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 4)
        for name in ("t", "p", "q"):
            variable = file.createVariable(name, "f4", ("t", "x")[: 1 if name == "t" else 2])
            variable[:3] = 1
            for number in range(10):
                variable.setncattr(f"a{number}", "text")
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["earliest", "latest", "netcdf"])
def test_changed_bytes(tmp_path: Path, kind) -> None:
    whole = _netcdf(tmp_path / "x.nc") if kind == "netcdf" else _file(tmp_path / "x.h5", kind)
    chance = random.Random(kind)
    damaged = [_damage(whole, chance) for _ in range(250)]

    def scan(data: bytes) -> None:
        scan_format(MemorySource(data), errors=chance.choice(["raise", "warn"]))

    assert count_refused(damaged, scan) > 50


def _damage(whole: bytes, chance: random.Random) -> bytes:
    """Invert a bit, write a number or an undefined address, or cut the file."""
    at = chance.randrange(len(whole))
    match chance.randrange(4):
        case 0:
            return flip_one(whole, at, 1 << chance.randrange(8))
        case 1:
            return _overwrite(whole, at, (1 << chance.randrange(64)).to_bytes(8, "little"))
        case 2:
            return _overwrite(whole, at, b"\xff" * 8)
        case _:
            return whole[:at]


def _overwrite(whole: bytes, at: int, new: bytes) -> bytes:
    return (whole[:at] + new)[: len(whole)] + whole[at + len(new) :]


def test_changed_metadata_is_noticed_where_there_is_a_checksum(tmp_path: Path) -> None:
    """Every byte of a version 2 object header matters."""
    whole = _file(tmp_path / "x.h5", "latest")
    at = whole.index(b"OHDR", whole.index(b"OHDR") + 1)
    damaged = flip_each(whole, range(at, at + 60), (0x10,))
    assert count_refused(damaged, lambda data: scan_format(MemorySource(data))) == 60


def test_impossible_sizes_take_no_memory(tmp_path: Path) -> None:
    whole = _file(tmp_path / "x.h5", "earliest")
    tracemalloc.start()
    huge = [size.to_bytes(8, "little") for size in (1 << 31, 1 << 40, 1 << 60, (1 << 63) - 1)]
    damaged = (_overwrite(whole, at, size) for size in huge for at in range(0, 3000, 120))
    count_refused(damaged, lambda data: scan_format(MemorySource(data), errors="warn"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 << 20


def test_one_bad_variable_leaves_the_rest(tmp_path: Path) -> None:
    whole = bytearray(_file(tmp_path / "x.h5", "earliest"))
    with h5py.File(tmp_path / "x.h5") as file:
        address = h5py.h5o.get_info(file["c"].id).addr
    whole[address] = 77
    with pytest.raises(FormatError) as caught:
        scan_format(MemorySource(bytes(whole)))
    assert caught.value.place["variable"] == "c"
    assert caught.value.offset == address
    with pytest.warns(InsituWarning, match="c"):
        group = scan_format(MemorySource(bytes(whole)), errors="warn")
    assert set(group.arrays) == {"a", "b"}
    assert set(group.problems) == {"c"}


def test_wrong_keys_of_a_chunk_tree_are_seen(tmp_path: Path) -> None:
    """A version 1 B-tree has no checksums: h5py looks for chunks between its keys, and finds
    nothing behind a wrong one.
    """
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("x", data=np.arange(1, 301), chunks=(1,))
    good = path.read_bytes()
    nodes = [place for place in range(len(good)) if good.startswith(b"TREE\x01", place)]
    assert len(nodes) > 3
    places = [
        (node + 24 + 32 * slot + 8 + axis * 8, axis)
        for node in nodes
        for slot in (0, 1, good[node + 6] - 1, good[node + 6])
        for axis in (0, 1)
    ]
    for place, axis in places:
        for change in (1, 7, 1 << 33, -1):
            stored = int.from_bytes(good[place : place + 8], "little")
            damaged = (stored + change) % (1 << 64)
            path.write_bytes(good[:place] + damaged.to_bytes(8, "little") + good[place + 8 :])
            try:
                actual = insitu.read(path, "x", decode=False)
            except InsituError:
                continue
            with h5py.File(path) as file, suppress(OSError):  # what it refuses to read cannot be compared
                np.testing.assert_array_equal(actual, file["x"][...], err_msg=f"{place} axis {axis}: {change}")


def write_three_dimensions(path: Path) -> dict[str, int]:
    """A netCDF-4 file of three dimensions; return the addresses of its scales."""
    with netCDF4.Dataset(path, "w") as file:
        for name, length in {"y": 6, "x": 4, "time": None}.items():
            file.createDimension(name, length)
            file.createVariable(name, "f8", (name,))[:] = np.arange(length or 9)
        file.createVariable("b", "i4", ("time",))[:] = np.arange(9)
        file.createVariable("a", "i4", ("y", "x"))[:] = np.arange(24).reshape(6, 4)
        file.createVariable("c", "i4", ("time", "x"))[:] = np.arange(36).reshape(9, 4)
    with h5py.File(path) as file:
        return {name: h5py.h5o.get_info(file[name].id).addr for name in ("y", "x", "time")}


@pytest.mark.parametrize("lost", [["x", "time"], ["y", "time"], ["y", "x"], ["x"], ["y", "x", "time"]])
def test_damaged_dimension_scales_are_named_by_who_refers_to_them(tmp_path: Path, lost: list[str]) -> None:
    places = write_three_dimensions(tmp_path / "a.nc")
    with xarray.open_dataset(tmp_path / "a.nc") as whole:
        expected = whole.drop_vars(lost).load()
    data = (tmp_path / "a.nc").read_bytes()
    for name in lost:
        data = flip_one(data, places[name], 0xFF)
    (tmp_path / "b.nc").write_bytes(data)
    with pytest.raises(FormatError):
        insitu.open_dataset(tmp_path / "b.nc")
    with pytest.warns(InsituWarning):
        found = insitu.open_dataset(tmp_path / "b.nc", errors="warn")
    xarray.testing.assert_identical(found.load(), expected)


def test_variables_whose_dimensions_cannot_be_named_are_left_out(tmp_path: Path) -> None:
    places = write_three_dimensions(tmp_path / "a.nc")
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        del file["a"].attrs["DIMENSION_LIST"]  # it still says that its dimensions are number 0 and 1
        assert file["a"].attrs["_Netcdf4Coordinates"].tolist() == [0, 1]
    data = (tmp_path / "a.nc").read_bytes()
    for name in ("x", "time"):
        data = flip_one(data, places[name], 0xFF)
    (tmp_path / "b.nc").write_bytes(data)
    with pytest.warns(InsituWarning):
        found = insitu.scan(tmp_path / "b.nc", errors="warn", decode=False)
    assert {name: array.shape for name, array in found.arrays.items()} == {"y": (6,), "b": (9,), "c": (9, 4)}
    assert "cannot be named" in found.problems["a"]
