"""Zarr by zarr-python, references by kerchunk, an Icechunk repository, and HDF4 by pyhdf."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from hdf5_netcdf import make_dataset
from registry import by, field


def _zarr(path: Path, version: int) -> None:
    """Arrays of several kinds, in a zip file: one file in the project instead of dozens."""
    import zarr
    from zarr.storage import ZipStore

    with ZipStore(path, mode="w", compression=zipfile.ZIP_STORED) as store:
        group = zarr.create_group(store, zarr_format=version, attributes={"title": f"Zarr V{version}"})
        group.create_array("plain", shape=(9, 7), chunks=(4, 3), dtype="<f4", compressors=None)[:] = field(9, 7)
        group.create_array("compressed", shape=(9, 7), chunks=(4, 7), dtype="<i2")[:] = field(9, 7, dtype="i2")
        group.create_array("big_endian", shape=(5,), chunks=(2,), dtype=">i4")[:] = np.arange(5) * 1000
        group.create_array("partly", shape=(20,), chunks=(5,), dtype="<f8", fill_value=-1.5)[5:10] = field(5)
        group.create_array("scalar", shape=(), dtype="<i8")[...] = 42
        inner = group.create_group("inner")
        inner.create_array("complex", shape=(3,), chunks=(3,), dtype="<c8")[:] = [1, 2j, 3 + 4j]
        if version == 3:
            sharded = inner.create_array("sharded", shape=(12, 8), chunks=(2, 4), shards=(6, 8), dtype="<f4")
            sharded[:] = field(12, 8)


@by("zarr/zarr_python_v2.zarr.zip", "zarr")
def _zarr_v2(path: Path) -> None:
    _zarr(path, 2)


@by("zarr/zarr_python_v3.zarr.zip", "zarr")
def _zarr_v3(path: Path) -> None:
    _zarr(path, 3)


def _xarray_zarr(path: Path, version: int) -> None:
    encoding: dict[str, Any] = {"t": {"chunks": (2, 4, 3)}}
    make_dataset().to_zarr(path, zarr_format=version, consolidated=version == 2, encoding=encoding)


@by("zarr/xarray_v2.zarr", "xarray", "zarr")
def _xarray_v2(path: Path) -> None:
    _xarray_zarr(path, 2)


@by("zarr/xarray_v3.zarr", "xarray", "zarr")
def _xarray_v3(path: Path) -> None:
    _xarray_zarr(path, 3)


@by("references/kerchunk_hdf5.json", "kerchunk")
def _kerchunk(path: Path) -> None:
    """References to one of our files, by a path that is relative to the references."""
    from kerchunk.hdf import SingleHdf5ToZarr

    target = path.parents[1] / "hdf5" / "xarray_netcdf4.nc"
    with target.open("rb") as file:
        found = SingleHdf5ToZarr(file, "../hdf5/xarray_netcdf4.nc", inline_threshold=0).translate()
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")


@by("references/icechunk", "icechunk", "zarr")
def _icechunk(path: Path) -> None:
    import icechunk

    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)))
    session = repository.writable_session("main")
    make_dataset().to_zarr(session.store, zarr_format=3, consolidated=False)
    session.commit("one dataset")


@by("hdf4/pyhdf.hdf", "pyhdf")
def _pyhdf(path: Path) -> None:
    from pyhdf.SD import SD, SDC

    file = SD(str(path), SDC.WRITE | SDC.CREATE | SDC.TRUNC)
    file.title = "written by pyhdf"
    for name, kind, dtype in (
        ("t", SDC.FLOAT32, "f4"),
        ("n", SDC.INT16, "i2"),
        ("d", SDC.FLOAT64, "f8"),
        ("b", SDC.UINT8, "u1"),
    ):
        dataset = file.create(name, kind, (6, 5))
        dataset.dim(0).setname("time")
        dataset.dim(1).setname("x")
        if name == "t":
            dataset.setcompress(SDC.COMP_DEFLATE, 5)
            dataset.units = "K"
        if name == "n":
            dataset.setfillvalue(-9)
            dataset.setcal(0.01, 0.0, 273.15, 0.0, SDC.INT16)
        dataset[:] = (field(6, 5) % 250).astype(dtype)
        dataset.endaccess()
    file.end()
