"""HDF5 by h5py, NetCDF-4 and NetCDF-3 by netCDF-C, h5netcdf and scipy (the last two as xarray calls
them).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hdf5plugin  # before netCDF4: loaded after it, its filters fail when h5py writes
import numpy as np
from registry import by, field


def _h5py_filters(path: Path) -> None:
    import h5py

    options: dict[str, dict[str, Any]] = {
        "gzip": {"compression": "gzip", "shuffle": True, "fletcher32": True},
        "lzf": {"compression": "lzf"},
        "scaleoffset": {"scaleoffset": 2},
        "zstd": dict(hdf5plugin.Zstd()),
        "lz4": dict(hdf5plugin.LZ4()),
        "blosc": dict(hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE)),
        "blosc2": dict(hdf5plugin.Blosc2()),
        "bitshuffle": dict(hdf5plugin.Bitshuffle()),
        "bzip2": dict(hdf5plugin.BZip2()),
        "zfp": dict(hdf5plugin.Zfp(reversible=True)),
    }
    if h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP) and h5py.h5z.get_filter_info(h5py.h5z.FILTER_SZIP) & 1:
        options["szip"] = {"compression": "szip"}
    with h5py.File(path, "w") as file:
        for name, option in options.items():
            file.create_dataset(name, data=field(24, 30), chunks=(10, 16), **option)


def _h5py_layouts(libver: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import h5py

        with h5py.File(path, "w", libver=libver) as file:
            file["contiguous"] = field(12, 10, dtype=">f8")
            file.create_dataset("fixed", data=field(12, 10), chunks=(5, 4))
            file.create_dataset("extensible", data=field(12, 10), chunks=(5, 4), maxshape=(None, 10))
            file.create_dataset("tree", data=field(12, 10), chunks=(5, 4), maxshape=(None, None), compression="gzip")
            sparse = file.create_dataset("sparse", (40, 10), "i2", chunks=(10, 10), fillvalue=-7)
            sparse[12:17] = field(5, 10, dtype="i2")
            compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            compact.set_layout(h5py.h5d.COMPACT)
            space = h5py.h5s.create_simple((6,))
            made = h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I32LE, space, compact)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(6, dtype="i4"))
            for number in range(20):
                file.create_group(f"many/group{number}").attrs["number"] = number

    return write


def _h5py_types(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["text"] = np.array(["", "a", "Grüße", "π ≈ 3.14159"], object)
        file["fixed_text"] = np.array([b"one", b"three"])
        file["record"] = np.array([(1, 2.5, b"x"), (-3, 1e30, b"yz")], [("n", "<i2"), ("v", ">f8"), ("s", "S3")])
        file["half"] = field(7, dtype="f2")
        file["complex"] = field(5, dtype="c8")
        file["flag"] = np.array([True, False, True])
        file.create_dataset("enum", data=[0, 2, 1], dtype=h5py.enum_dtype({"LOW": 0, "MID": 1, "HIGH": 2}, "u1"))
        ragged = file.create_dataset("ragged", (3,), h5py.vlen_dtype("<i4"))
        for number in range(3):
            ragged[number] = np.arange(number * 2)
        file["empty"] = h5py.Empty("f4")
        file["array"] = np.zeros(3, "(2,2)i4")


def _h5py_scales(path: Path) -> None:
    import h5py

    with h5py.File(path, "w", track_order=True) as file:
        for name, values in (("time", np.arange(4.0)), ("lat", np.linspace(-10, 10, 5))):
            file[name] = values
            file[name].make_scale(name)
        file["t"] = field(4, 5)
        for axis, name in enumerate(("time", "lat")):
            file["t"].dims[axis].attach_scale(file[name])
        file["time"].attrs["units"] = "days since 2001-01-01"


for _name, _write in {
    "h5py_filters.h5": _h5py_filters,
    "h5py_layouts_earliest.h5": _h5py_layouts("earliest"),
    "h5py_layouts_latest.h5": _h5py_layouts("latest"),
    "h5py_types.h5": _h5py_types,
    "h5py_scales.h5": _h5py_scales,
}.items():
    by(f"hdf5/{_name}", "h5py", "hdf5plugin")(_write)


@by("hdf5/netcdf4_model.nc", "netCDF4")
def _netcdf4_model(path: Path) -> None:
    import netCDF4

    with netCDF4.Dataset(path, "w") as file:
        file.title = "written by netCDF-C"
        file.createDimension("time", None)
        file.createDimension("x", 9)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.calendar = "hours since 1999-12-31 18:00", "noleap"
        time[:] = np.arange(6)
        packed = file.createVariable("packed", "i2", ("time", "x"), zlib=True, fill_value=-999, chunksizes=(4, 9))
        packed.scale_factor, packed.add_offset = 0.01, 273.15
        packed[:] = np.ma.masked_greater(field(6, 9), 300)
        file.createVariable("never_written", "f4", ("time", "x"))
        file.createVariable("quantized", "f4", ("time", "x"), zlib=True, significant_digits=3)[:] = field(6, 9)
        inner = file.createGroup("inner").createGroup("deeper")
        inner.createDimension("y", 3)
        inner.createVariable("names", str, ("y",))[:] = np.array(["one", "", "trois"], object)
        ragged = inner.createVLType("i4", "ragged_t")
        values = inner.createVariable("ragged", ragged, ("y",))
        for number in range(3):
            values[number] = np.arange(number, dtype="i4")
        enum = inner.createEnumType("u1", "enum_t", {"clear": 0, "cloudy": 1})
        inner.createVariable("sky", enum, ("y",), fill_value=0)[:] = [0, 1, 1]
        record = inner.createCompoundType(np.dtype([("a", "i4"), ("b", "f8")]), "record_t")
        inner.createVariable("record", record, ("y",))[:] = np.array([(1, 2.0), (3, 4.0), (5, 6.0)], record.dtype)


@by("hdf5/netcdf4_filters.nc", "netCDF4")
def _netcdf4_filters(path: Path) -> None:
    import netCDF4

    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 4000)
        for name in ("zlib", "szip", "zstd", "bzip2", "blosc_lz4", "blosc_zstd"):
            file.createVariable(name, "i4", ("x",), compression=name, chunksizes=(1500,))[:] = np.arange(4000) // 7


def make_dataset() -> Any:
    """Return what the writers of xarray write."""
    import xarray

    return xarray.Dataset(
        {"t": (("time", "lat", "lon"), field(5, 4, 6), {"units": "K"})},
        {
            "time": np.datetime64("2003-02-26", "ns") + np.arange(5) * np.timedelta64(1, "D"),
            "lat": np.linspace(-30, 30, 4),
            "lon": np.arange(6) * 60.0,
        },
        {"title": "written by xarray"},
    )


ENCODING = {
    "t": {
        "dtype": "i2",
        "scale_factor": 0.01,
        "add_offset": 280.0,
        "_FillValue": -32768,
        "zlib": True,
        "chunksizes": (2, 4, 3),
    }
}


@by("hdf5/xarray_h5netcdf.nc", "xarray", "h5netcdf")
def _xarray_h5netcdf(path: Path) -> None:
    make_dataset().to_netcdf(path, engine="h5netcdf", encoding=ENCODING)


@by("hdf5/xarray_netcdf4.nc", "xarray", "netCDF4")
def _xarray_netcdf4(path: Path) -> None:
    make_dataset().to_netcdf(path, engine="netcdf4", encoding=ENCODING, unlimited_dims=["time"])


def _netcdf3(format_: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import netCDF4

        with netCDF4.Dataset(path, "w", format=format_) as file:
            file.createDimension("time", None)
            file.createDimension("x", 5)
            file.createDimension("letters", 4)
            for name, dtype in (("odd", "i1"), ("short", "i2"), ("long", "i4"), ("single", "f4"), ("double", "f8")):
                file.createVariable(name, dtype, ("time", "x"))[:] = field(3, 5).astype(dtype)
            file.createVariable("alone", "i2", ("x",), fill_value=-1)[:] = np.ma.masked_equal(np.arange(5), 2)
            file.createVariable("text", "S1", ("x", "letters"))[0] = netCDF4.stringtochar(np.array([b"abc"], "S4"))[0]
            if format_ == "NETCDF3_64BIT_DATA":
                file.createVariable("wide", "u8", ("time", "x"))[:] = np.arange(15, dtype="u8").reshape(3, 5) << 40

    return write


for _name, _format in (
    ("classic", "NETCDF3_CLASSIC"),
    ("offset64", "NETCDF3_64BIT_OFFSET"),
    ("cdf5", "NETCDF3_64BIT_DATA"),
):
    by(f"netcdf3/netcdf4_{_name}.nc", "netCDF4")(_netcdf3(_format))


@by("netcdf3/xarray_scipy.nc", "xarray", "scipy")
def _xarray_scipy(path: Path) -> None:
    make_dataset().to_netcdf(path, engine="scipy", unlimited_dims=["time"])
