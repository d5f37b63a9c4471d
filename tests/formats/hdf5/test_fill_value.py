"""Elements that were never written have the fill value."""

from __future__ import annotations

from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest

from insitu.formats.hdf5.structures.fill_value import Fill, parse_fill, parse_old_fill


@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
def test_same_as_h5py(tmp_path: Path, scan, libver) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("default", (2,), "f4")
        file.create_dataset("user", (2,), ">f8", fillvalue=-9.5)
        file.create_dataset("bool", (2,), bool, fillvalue=True)
        file.create_dataset("text", (2,), "S3", fillvalue=b"ab")
        file.create_dataset("struct", (2,), [("a", "i2")], fillvalue=np.array((7,), [("a", "i2")])[()])
        file.create_dataset("array", (2,), np.dtype(("i2", (2,))))
        never = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        never.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(file.id, b"never", h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((2,)), never)
    arrays = scan(path).arrays
    with h5py.File(path) as file:
        for name in ("default", "user", "bool", "text", "never"):
            assert arrays[name].fill_value == file[name].fillvalue, name
        assert arrays["struct"].fill_value["a"] == 7
    assert arrays["user"].tiles[0].encodings[0].fill == np.array(-9.5, ">f8").tobytes()
    assert arrays["default"].tiles[0].encodings[0].fill is None


def test_netcdf(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createVariable("default", "i2", ("x",))
        file.createVariable("own", "f4", ("x",), fill_value=1e20)
    arrays = scan(path).arrays
    assert arrays["default"].fill_value == netCDF4.default_fillvals["i2"]
    assert arrays["own"].fill_value == np.float32(1e20) == arrays["own"].attributes["_FillValue"]


def test_message_versions() -> None:
    assert parse_old_fill(bytes([2, 0, 0, 0, 7, 8])) == Fill(b"\7\x08", "user")
    assert parse_old_fill(bytes(4)) == Fill(None, "default")
    assert parse_fill(bytes([2, 2, 2, 0])) == Fill(None, "undefined")
    assert parse_fill(bytes([2, 2, 2, 1, 0, 0, 0, 0])) == Fill(None, "default")
    assert parse_fill(bytes([3, 0x10])) == Fill(None, "undefined")
    assert parse_fill(bytes([3, 0x20, 1, 0, 0, 0, 5])) == Fill(b"\5", "user")
    assert parse_fill(bytes([3, 0x00])) == Fill(None, "default")
