"""Are encodings and attributes of a copy those of the source, where stored values are encoded again?

Modules: copying/stored_forms.py, copying/repacking.py, scanning/stored_view.py,
references/icechunk/repository_writer.py
"""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import netCDF4
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr

import insitu
import insitu.xarray_bridge.accessor  # registers itself
from insitu.errors import UnsupportedError


def write_packed(path: Path, begin: int, scale: Any, **attributes: Any) -> None:
    """Write a packed variable, with what decodes it in types that JSON does not have."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", 2)
        file.createDimension("x", 3)
        for name, dtype in (("short", "i2"), ("long", "i4")):
            variable = file.createVariable(name, dtype, ("time", "x"), chunksizes=(1, 3))
            variable.set_auto_maskandscale(False)
            variable.setncatts({"scale_factor": scale, "add_offset": type(scale)(-5), **attributes})
            variable[...] = np.arange(6).reshape(2, 3) * 7 - 11
        file.createVariable("time", "f8", ("time",)).units = "hours since 1999-12-31 12:00:00Z"
        file["time"][...] = [begin, begin + 1]


def shown(path: Path) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_dataset(path) as ds:
            return ds.load()


@pytest.mark.parametrize("target", ["t.zarr", "v2.zarr", "t.nc"])
def test_types_of_scales(tmp_path: Path, target: str) -> None:
    """No attribute tells them: where JSON would change values, they are unpacked, elsewhere nothing is missing."""
    write_packed(tmp_path / "a.nc", 0, np.float32(0.001))
    how = {"zarr_format": 2} if target == "v2.zarr" else {}
    report = insitu.Archive.open(tmp_path / "a.nc").copy(tmp_path / target, **how)
    found, want = shown(tmp_path / target), shown(tmp_path / "a.nc")
    xr.testing.assert_identical(found, want)
    assert found.long.encoding["dtype"] == np.dtype("i4")
    assert found.short.dtype == want.short.dtype == np.float32
    assert ("short: stored unpacked" in str(report)) == (target != "t.nc")


def test_float32_that_is_scaled_in_float64(tmp_path: Path) -> None:
    """xarray applies a float64 of a file otherwise than the same number of JSON."""
    values = np.random.default_rng(0).normal(0, 100, 50).astype("f4")
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 50)
        variable = file.createVariable("v", "f4", ("x",), fill_value=np.nan, chunksizes=(10,))
        variable.set_auto_maskandscale(False)
        variable.setncatts({"scale_factor": 2.0, "add_offset": 273.15})
        variable[...] = values
    for target in ("t.zarr", "t.nc"):
        insitu.Archive.open(tmp_path / "a.nc").copy(tmp_path / target)
        xr.testing.assert_identical(shown(tmp_path / target), shown(tmp_path / "a.nc"))


def test_packing_that_stays_but_for_the_type_of_its_scale(tmp_path: Path) -> None:
    """Packed anew, the same numbers are stored: values change by no more than their rounding."""
    write_packed(tmp_path / "a.nc", 0, np.float32(0.001), missing_value=np.int16(-11))
    archive = insitu.Archive.open(tmp_path / "a.nc", variables=["short"])
    stated = str(archive.copy(tmp_path / "t.zarr", repack=True, dry_run=True))
    report = archive.copy(tmp_path / "t.zarr", repack=True)
    found, want = shown(tmp_path / "t.zarr"), shown(tmp_path / "a.nc")
    bound = float(re.findall("an error of up to ([0-9.e-]+)", stated)[0])
    assert report.errors["short"] == np.abs(found.short - want.short.astype("f8")).max() <= bound < 1e-5
    np.testing.assert_array_equal(zarr.open(tmp_path / "t.zarr")["short"][...].reshape(-1), np.arange(6) * 7 - 11)
    np.testing.assert_array_equal(np.isnan(found.short), np.isnan(want.short))


@pytest.mark.parametrize("target", ["t.zarr", "t.nc"])
def test_part_of_files_that_scale_in_several_types(tmp_path: Path, target: str) -> None:
    """The values of the first file were scaled as float32, though the archive has float64."""
    write_packed(tmp_path / "a.nc", 0, np.float32(0.001))
    write_packed(tmp_path / "b.nc", 2, np.float64(0.001))
    files = [str(tmp_path / name) for name in ("a.nc", "b.nc")]
    part = insitu.open_mfdataset(files)[["short"]].isel(time=slice(0, 2))
    part.insitu.copy(tmp_path / target)
    with xr.open_mfdataset(files) as both:
        want = both[["short"]].isel(time=slice(0, 2)).load()
    assert want.short.dtype == np.float64
    xr.testing.assert_identical(shown(tmp_path / target), want)


@pytest.mark.parametrize("target", ["t.zarr", "t.nc"])
def test_types_of_parts(tmp_path: Path, target: str) -> None:
    """What a part has no stored values of, or only those of one file, keeps the type of the whole."""
    for number, dtype in enumerate(("i2", "i4")):
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "w") as file:
            file.createDimension("time", 2)
            for name in ("masked", "packed"):
                file.createVariable(name, dtype, ("time",), chunksizes=(1,), fill_value=-1)
            file["packed"].scale_factor = 0.5
            file.createVariable("time", "f8", ("time",)).units = "hours since 2000-01-01"
            file["masked"][...], file["packed"][...], file["time"][...] = [1, 2], [1, 2], [2 * number, 2 * number + 1]
    files = [str(tmp_path / f"{number}.nc") for number in range(2)]
    with xr.open_mfdataset(files) as both:
        want = both.load()
    for time in (slice(0, 2), slice(0, 0)):
        insitu.open_mfdataset(files).isel(time=time).insitu.copy(tmp_path / target, overwrite=True)
        found = shown(tmp_path / target)
        xr.testing.assert_identical(found, want.isel(time=time))
        assert found.masked.dtype == found.packed.dtype == np.float64


def test_units_of_times_as_they_were_given(tmp_path: Path) -> None:
    """xarray would write them in another form."""
    for number in range(2):
        write_packed(tmp_path / f"{number}.nc", 2 * number, np.float64(0.5))
    insitu.Archive.open(f"{tmp_path}/[01].nc").copy(tmp_path / "t.zarr")
    assert shown(tmp_path / "t.zarr").time.encoding["units"] == "hours since 1999-12-31 12:00:00Z"


@pytest.mark.parametrize(
    "marks",
    [
        {"_FillValue": np.float32(-9), "missing_value": np.float32(np.nan)},
        {"_FillValue": np.float32(-9), "missing_value": np.float32(7)},
        {"missing_value": np.array([7, -9], "f4")},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.filterwarnings("ignore:variable .* has .* missing values")
def test_several_marks_of_values_in_memory(tmp_path: Path, marks: dict[str, Any], shape: tuple[int, ...]) -> None:
    """xarray reads single values and labels with two marks, but does not write them."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("v", 3)
        dims = ("v",) if shape else ()
        variable = file.createVariable("v", "f4", dims, fill_value=marks.get("_FillValue"))
        variable.set_auto_maskandscale(False)
        variable.setncatts({key: value for key, value in marks.items() if key != "_FillValue"})
        variable[...] = np.array([7, -9, 1], "f4") if shape else -9
    for target in ("t.zarr", "t.nc"):
        insitu.Archive.open(tmp_path / "a.nc").copy(tmp_path / target)
        xr.testing.assert_identical(shown(tmp_path / target), shown(tmp_path / "a.nc"))


def test_icechunk_has_neither_nan_nor_infinity(tmp_path: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    ds = xr.Dataset({"v": ("x", np.array([1, np.nan]))})
    ds.to_netcdf(tmp_path / "a.nc", encoding={"v": {"missing_value": np.nan, "_FillValue": np.nan}})
    archive = insitu.Archive.open(tmp_path / "a.nc")
    archive.copy(tmp_path / "t.icechunk")
    archive.save(tmp_path / "saved.icechunk")
    storage = icechunk.local_filesystem_storage(str(tmp_path / "t.icechunk"))
    store = icechunk.Repository.open(storage).readonly_session("main").store
    xr.testing.assert_identical(xr.open_zarr(store, consolidated=False).load(), ds)
    xr.testing.assert_identical(insitu.open_dataset(tmp_path / "saved.icechunk").load(), ds)
    for name, part in (("v", ds.v), ("", ds)):
        part.attrs["high"] = np.inf
        with pytest.raises(UnsupportedError, match="cannot hold the attribute 'high'") as caught:
            ds.insitu.copy(tmp_path / "u.icechunk")
        assert ("[variable v]" in str(caught.value)) == (name == "v")
        del part.attrs["high"]
    assert sorted(os.listdir(tmp_path)) == ["a.nc", "saved.icechunk", "t.icechunk"]


def test_attributes_of_groups_that_netcdf_cannot_hold(tmp_path: Path) -> None:
    ds = xr.Dataset({"v": ("x", np.zeros(2))}, attrs={"pair": np.complex128(1j)})
    with pytest.raises(UnsupportedError, match="no type for the attribute 'pair'"):
        ds.insitu.copy(tmp_path / "t.nc")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_objects_of_a_store_pass_through(tmp_path: Path, zarr_format: int) -> None:
    """Those that were never written are not there in the copy either."""
    codecs = {3: zarr.codecs.ZstdCodec(level=1), 2: numcodecs.Zstd(level=1)}
    names = ["x", "y"] if zarr_format == 3 else None
    array = zarr.create_array(
        tmp_path / "a.zarr" / "v", shape=(6, 4), chunks=(2, 4), dtype="f4", fill_value=7, filters=None,
        compressors=codecs[zarr_format], zarr_format=zarr_format, dimension_names=names,
    )  # fmt: skip
    array[2:] = np.arange(16).reshape(4, 4)
    array.attrs["_ARRAY_DIMENSIONS"] = ["x", "y"]
    zarr.create_group(tmp_path / "a.zarr", zarr_format=zarr_format)
    archive = insitu.Archive.open(tmp_path / "a.zarr")
    report = archive.copy(tmp_path / "t.zarr", zarr_format=zarr_format, verify=True)
    plan = archive.copy(tmp_path / "u.zarr", zarr_format=zarr_format, dry_run=True)
    assert "pass through" in str(plan)
    assert plan.bytes_read == pytest.approx(report.nbytes, rel=0.05)  # estimated of some objects
    assert report.objects == report.verified == 2
    np.testing.assert_array_equal(zarr.open(tmp_path / "t.zarr")["v"][...], array[...])
