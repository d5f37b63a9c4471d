"""Names, dimensions and lengths are those that netCDF4 and xarray show.

Modules: formats/hdf5/datasets/object_tree.py, formats/hdf5/groups.py, formats/hdf5/structures/number_types.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

from insitu.model import VirtualGroup


def _assert_like_netcdf4(group: VirtualGroup, expected: Any) -> None:
    assert {n: (a.dims, a.shape) for n, a in group.arrays.items()} == {
        n: (v.dimensions, v.shape) for n, v in expected.variables.items()
    }
    assert group.details.dims == {n: len(d) for n, d in expected.dimensions.items()}
    assert set(group.unlimited) == {n for n, d in expected.dimensions.items() if d.isunlimited()}
    assert set(group.groups) == set(expected.groups)
    for name, inner in group.groups.items():
        _assert_like_netcdf4(inner, expected.groups[name])


def _plain(file: Any) -> None:
    for name, length in (("time", None), ("y", 3), ("x", 4), ("bnds", 2)):
        file.createDimension(name, length)
    file.createVariable("time", "f8", ("time",))[:] = np.arange(5)
    file.createVariable("x", "f4", ("x",))[:] = 1
    file.createVariable("a", "i2", ("time", "y", "x"))[:2] = 1
    file.createVariable("scalar", "f8")[...] = 1
    file.createVariable("short", "u1", ("time",))[:2] = 1
    file.createVariable("text", str, ("x",))[0] = "é"


def _groups(file: Any) -> None:
    file.createDimension("time", None)
    file.createDimension("x", 4)
    outer = file.createGroup("outer")
    outer.createDimension("x", 5)
    outer.createDimension("z", 2)
    inner = outer.createGroup("inner")
    file.createVariable("time", "f8", ("time",))[:] = np.arange(3)
    outer.createVariable("p", "f4", ("time", "x"))[:6] = 2
    inner.createVariable("q", "f4", ("time", "x", "z"))[:2] = 2
    inner.createVariable("z", "f4", ("z",))[:] = 1


def _coordinates(file: Any) -> None:
    for name, length in (("y", 3), ("x", 4), ("n", 6)):
        file.createDimension(name, length)
    file.createVariable("y", "f8", ("y", "x"))[:] = 1  # a coordinate of two dimensions
    file.createVariable("x", "f8", ("n",))[:] = 1  # named like a dimension that it does not have
    file.createVariable("d", "f8", ("y", "x", "n"))[:] = 1


def _square(file: Any) -> None:
    file.createDimension("y", 3)
    file.createVariable("square", "f8", ("y", "y"))[:] = 1


def _types(file: Any) -> None:
    file.createDimension("x", 3)
    enum = file.createEnumType(np.int8, "cloud", {"clear": 0, "cumulus": 3})
    compound = file.createCompoundType(np.dtype([("a", "f4"), ("b", "i2")]), "pair")
    sequence = file.createVLType(np.int32, "sequence")
    file.createVariable("e", enum, ("x",), fill_value=0)
    file.createVariable("c", compound, ("x",))
    file.createVariable("v", sequence, ("x",))


@pytest.mark.parametrize(
    ("make", "model"),
    [
        *((make, "NETCDF4") for make in (_plain, _groups, _coordinates, _square, _types)),
        (_coordinates, "NETCDF4_CLASSIC"),
    ],
)
def test_netcdf_files(tmp_path: Path, scan, make: Callable[[Any], None], model) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w", format=model) as file:
        make(file)
    with netCDF4.Dataset(path) as file:
        _assert_like_netcdf4(scan(path), file)


@pytest.mark.parametrize("order", [False, True])
def test_phony_dimensions(tmp_path: Path, scan, order) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", track_order=order) as file:
        file["b"] = np.zeros((3, 3))
        file["a"] = np.zeros((4, 3))
        file["g/c"] = np.zeros((3, 5))
        file["g/h/d"] = np.zeros(3)
        file["z/e"] = np.zeros((5, 3))
        file["flags"] = np.zeros((6, 7), bool)
        file["nothing"] = np.zeros((0, 4))
        file.create_dataset("u", (3,), "f4", maxshape=(None,), chunks=(2,))
        file.create_dataset("u2", (3,), "f4", maxshape=(None,), chunks=(2,))
    with netCDF4.Dataset(path) as file:
        _assert_like_netcdf4(scan(path), file)
        part = scan(path, group="g/h")
        assert part.arrays["d"].dims == file["g/h/d"].dimensions


def test_scales_made_by_hand(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for name, length in (("t", 3), ("x", 4), ("x2", 4)):
            file[name] = np.arange(float(length))
            file[name].make_scale(name)
        file["both"] = np.zeros((3, 4))
        file["both"].dims[0].attach_scale(file["t"])
        file["both"].dims[1].attach_scale(file["x"])
        file["both"].dims[1].attach_scale(file["x2"])
        file["second"] = np.zeros((9, 3))
        file["second"].dims[1].attach_scale(file["t"])
    with netCDF4.Dataset(path) as file:
        _assert_like_netcdf4(scan(path), file)


def test_an_axis_without_scale_beside_one_with(tmp_path: Path, scan) -> None:
    """netCDF4 cannot open such files at all; h5netcdf gives a phony name too."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["t"] = np.arange(3.0)
        file["t"].make_scale("t")
        file["a"] = np.zeros((3, 9))
        file["a"].dims[0].attach_scale(file["t"])
    assert scan(path).arrays["a"].dims == ("t", "phony_dim_1")


def test_xarray_sees_the_same(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w") as file:
        _plain(file)
        file["a"].scale_factor = np.float32(0.5)
        file.title = "all of it"
    group = scan(path)
    with xr.open_dataset(path, engine="netcdf4", decode_cf=False) as dataset:
        assert dataset.attrs == group.attributes
        for name, variable in dataset.variables.items():
            array = group.arrays[str(name)]
            assert (variable.dims, variable.shape) == (array.dims, array.shape)
            assert {k: v for k, v in variable.attrs.items() if k != "_FillValue"} == {
                k: v for k, v in array.attributes.items() if k != "_FillValue"
            }


def test_a_short_variable_has_unwritten_chunks_at_its_end(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createVariable("long", "f4", ("time",), chunksizes=(2,))[:] = np.arange(9)
        file.createVariable("short", "f4", ("time",), chunksizes=(2,))[:] = np.arange(3)
    array = scan(path).arrays["short"]
    assert (array.shape, array.details.stored_shape) == ((9,), (3,))
    located = array.tiles[0].chunks.locate([np.arange(5)])
    assert (located.source >= 0).tolist() == [True, True, False, False, False]
