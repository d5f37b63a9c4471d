"""Dimensions without names are numbered as in netCDF, whatever the types of the variables."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5d, h5s, h5t

import insitu

ARRAY = h5t.array_create(h5t.STD_I32LE, (3,))
SHORTER = h5t.array_create(h5t.STD_I32LE, (2,))
TURNED = h5t.array_create(h5t.STD_I32BE, (3,))
INNER = np.dtype([("z", "f4")])
NESTED = np.dtype([("x", "i4"), ("y", INNER)])
ENUM = h5py.enum_dtype({"q": 1})
TYPES: dict[str, list[Any]] = {
    "one array": [ARRAY],
    "arrays": [ARRAY, ARRAY, ARRAY],
    "arrays in turn": [ARRAY, SHORTER, ARRAY, SHORTER],
    "arrays that are equal once native": [ARRAY, TURNED],
    "bit fields": [h5t.STD_B8LE, h5t.STD_B8LE],
    "references": [h5py.ref_dtype, h5py.ref_dtype],
    "references, then arrays": [h5py.ref_dtype, ARRAY, ARRAY],
    "opaque": ["V5", "V5"],
    "enumerations": [ENUM, bool],
    "sequences": [h5py.vlen_dtype("i4")],
    "sequences of arrays": [h5t.vlen_create(ARRAY), h5t.vlen_create(ARRAY)],
    "sequences of records": [h5py.vlen_dtype(INNER), h5py.vlen_dtype(INNER)],
    "sequences of sequences": [h5py.vlen_dtype(h5py.vlen_dtype("i4"))],
    "sequences of known sequences": [h5py.vlen_dtype("i4"), h5py.vlen_dtype(h5py.vlen_dtype("i4"))],
    "sequences of texts": [h5py.vlen_dtype(h5py.string_dtype())],
    "sequences of references": [h5py.vlen_dtype(h5py.ref_dtype), h5py.vlen_dtype(h5py.ref_dtype)],
    "records": [np.dtype([("x", "i4"), ("y", "f4", (2,))])],
    "records with texts": [np.dtype([("x", "i4"), ("y", "S4")]), np.dtype([("y", h5py.string_dtype())])],
    "records in records": [NESTED, NESTED],
    "records in records, turned": [NESTED, np.dtype([("x", ">i4"), ("y", [("z", ">f4")])])],
    "records in records, other names": [NESTED, np.dtype([("x", "i4"), ("w", INNER)])],
    "known records in records": [INNER, NESTED],
    "references in records": [np.dtype([("y", h5py.ref_dtype)])] * 2,
    "enumerations in records": [np.dtype([("y", ENUM)])],
    "known enumerations in records": [ENUM, np.dtype([("y", ENUM)])],
    "opaque in records": ["V3", np.dtype([("y", "V3")])],
    "truth in records": [bool, np.dtype([("y", bool)])],
    "sequences in records": [np.dtype([("y", h5py.vlen_dtype("i4"))])],
    "complex": ["c8", np.dtype([("x", "c8")])],
    "complex in records": [np.dtype([("x", "c8")])],
    "odd numbers": ["f2", np.longdouble],
}


def _put(group: h5py.Group, name: str, kind: Any, length: int) -> None:
    if isinstance(kind, h5t.TypeID):
        h5d.create(group.id, name.encode(), kind, h5s.create_simple((length,)))
    else:
        group.create_dataset(name, (length,), kind)


def _dimensions(group: netCDF4.Dataset, path: str = "") -> dict[str, tuple[str, ...]]:
    found = {f"{path}{name}": variable.dimensions for name, variable in group.variables.items()}
    for name, child in group.groups.items():
        found |= _dimensions(child, f"{path}{name}/")
    return found


def _assert_dims_like_netcdf4(path: Path, write: Callable[[h5py.File], None]) -> None:
    with h5py.File(path, "w") as file:
        write(file)
    actual = {name: array.dims for name, array in insitu.scan(path, decode=False).all_arrays()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # variables that it has no type for
        with netCDF4.Dataset(path) as file:
            reference = _dimensions(file)
    assert "last" in reference
    assert {name: actual[name] for name in reference} == reference


@pytest.mark.parametrize("kinds", TYPES.values(), ids=TYPES)
def test_numbers_beside_odd_types(tmp_path: Path, kinds: list[Any]) -> None:
    def write(file: h5py.File) -> None:
        for number, kind in enumerate(kinds):
            _put(file, f"v{number}", kind, 4 + number)
        file["last"] = np.zeros((20, 4))

    _assert_dims_like_netcdf4(tmp_path / "x.h5", write)


def test_numbers_in_groups(tmp_path: Path) -> None:
    def write(file: h5py.File) -> None:
        for number, name in enumerate(("a", "a/deeper", "b", "")):
            group = file.require_group(name) if name else file
            _put(group, "array", ARRAY, 4 + number)
            _put(group, "nested", NESTED, 4 + number)
            group["values"] = np.zeros((3, 3, 5 + number))
            group.create_dataset("growing", (3, 3), "f4", maxshape=(None, 3))
            group.create_dataset("grown", (3, 6), "f4", maxshape=(None, None))
        file["last"] = np.zeros(20)

    _assert_dims_like_netcdf4(tmp_path / "x.h5", write)


def test_numbers_beside_scales(tmp_path: Path) -> None:
    def write(file: h5py.File) -> None:
        file["x"] = np.arange(4)
        file["x"].make_scale()
        for name, shape in (("attached", (4,)), ("loose", (4, 5)), ("square", (4, 4))):
            file[name] = np.zeros(shape)
        file["attached"].dims[0].attach_scale(file["x"])
        _put(file, "array", ARRAY, 6)
        _put(file, "arrays", ARRAY, 7)
        file["last"] = np.zeros((5, 9))

    _assert_dims_like_netcdf4(tmp_path / "x.h5", write)
