"""netCDF-4 dialects open as in xarray: deep groups, user-defined types, h5netcdf extensions."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu
from waiting import LONG


def _photons(path: Path) -> None:
    """Groups in groups, each with a time of its own, as ICESat-2 has them."""
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.attrs["short_name"] = "ATL03"
        file.create_group("METADATA/Lineage").attrs["source"] = "none"
        file["ancillary_data/atlas_sdp_gps_epoch"] = np.array([1198800018.0])
        file["ancillary_data/release"] = np.array([b"006"])
        for number, beam in enumerate(("gt1l", "gt1r")):
            count = 20 + number
            heights = file.create_group(f"{beam}/heights")
            stored = {"chunks": (7,), "compression": "gzip", "shuffle": True, "maxshape": (None,)}
            time = heights.create_dataset("delta_time", data=np.sort(random.random(count)), **stored)
            time.attrs["units"] = "seconds since 2018-01-01"
            time.make_scale("delta_time")
            for name in ("lat_ph", "lon_ph", "h_ph"):
                made = heights.create_dataset(name, data=random.random(count), **stored)
                made.dims[0].attach_scale(time)
                made.attrs["coordinates"] = "delta_time lat_ph lon_ph"
            kinds = heights.create_dataset("ds_surf_type", data=np.arange(5))
            kinds.make_scale("ds_surf_type")
            sure = heights.create_dataset("signal_conf_ph", data=random.integers(0, 4, (count, 5)).astype("i1"))
            sure.dims[0].attach_scale(time)
            sure.dims[1].attach_scale(kinds)
            deeper = heights.create_group("deeper").create_dataset("quality", data=np.arange(count))
            deeper.dims[0].attach_scale(time)
            place = file.create_group(f"{beam}/geolocation")
            other = place.create_dataset("delta_time", data=np.arange(4.0))
            other.attrs["units"] = "seconds since 2018-01-01"
            other.make_scale()
            place.create_dataset("reference_photon_lat", data=np.arange(4.0)).dims[0].attach_scale(other)


def test_deep_groups(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    _photons(path)
    tree = insitu.open_datatree(path)
    with xr.open_datatree(path, engine="netcdf4") as expected:
        xr.testing.assert_identical(tree.load(), expected.load())
    assert set(tree["gt1l/heights/deeper"].coords) >= {"delta_time"}
    with xr.open_dataset(path, engine="netcdf4", group="gt1r/heights") as expected:
        xr.testing.assert_identical(insitu.open_dataset(path, group="gt1r/heights").load(), expected.load())


@pytest.fixture
def typed_file(tmp_path: Path) -> Path:
    """Every kind of type that a user of netCDF-4 may define."""
    path = tmp_path / "types.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createDimension("u", None)
        cloud = file.createEnumType(np.uint8, "cloud", {"clear": 0, "cumulus": 1, "missing": 255})
        file.createVariable("filled", cloud, "x", fill_value=255)[:] = [0, 1, 255]
        file.createVariable("growing", cloud, ("u", "x"))[0:2] = [[0, 1, 0], [1, 0, 1]]
        pair = file.createCompoundType(np.dtype([("a", "i4"), ("b", "f8")]), "pair")
        file.createVariable("pairs", pair, "x")[:] = np.array([(1, 2), (3, 4), (5, 6)], pair.dtype)
        inner = np.dtype([("a", "i4"), ("b", "f8")])
        nest = file.createCompoundType(np.dtype([("p", inner), ("n", "i2", (2,))]), "nest")
        values = np.zeros(3, nest.dtype)
        values["n"] = np.arange(6).reshape(3, 2)
        file.createVariable("nested", nest, "x")[:] = values
        sequence = file.createVariable("sequences", file.createVLType(np.int16, "sequence"), "x")
        for number in range(3):
            sequence[number] = np.arange(number + 1, dtype="i2")
        file.createVariable("texts", str, "x")[:] = np.array(["a", "bb", "ü"], object)
        file.createGroup("group").createVariable("inherited", cloud, "x")[:] = [1, 1, 0]
        file.pair = np.array((7, 8), pair.dtype)
    return path


@pytest.mark.parametrize("decode", [True, False])
def test_user_defined_types(typed_file: Path, decode: bool) -> None:
    actual = insitu.open_dataset(typed_file, decode_cf=decode)
    with xr.open_dataset(typed_file, engine="netcdf4", decode_cf=decode) as reference:
        assert list(actual.variables) == list(reference.variables)
        assert actual.sizes == reference.sizes
        assert actual.attrs["pair"].tolist() == reference.attrs["pair"].tolist()
        for name, variable in reference.variables.items():
            assert actual[name].dims == variable.dims
            assert actual[name].attrs == variable.attrs
            mine, values = actual[name].values, variable.values
            if name == "sequences":
                assert [one.tolist() for one in mine] == [one.tolist() for one in values]
                assert {one.dtype for one in mine} == {np.dtype("i2")}
            else:
                assert mine.dtype == values.dtype, name
                np.testing.assert_array_equal(mine, values)
    with xr.open_dataset(typed_file, engine="netcdf4", group="group") as reference:
        xr.testing.assert_identical(insitu.open_dataset(typed_file, group="group").load(), reference.load())
    assert insitu.scan(typed_file, decode=False).arrays["filled"].details.enumeration == {
        "clear": 0,
        "cumulus": 1,
        "missing": 255,
    }


BEYOND = """
import sys, h5netcdf, numpy as np
with h5netcdf.File(sys.argv[1], "w", invalid_netcdf=True) as file:
    file.dimensions = {"x": 3}
    file.create_variable("c8", ("x",), data=np.array([1 + 2j, 3, 4j], "c8"))
    file.create_variable("c16", ("x",), data=np.array([1 + 2j, 3, 4j]))
    file.create_variable("truth", ("x",), data=np.array([True, False, True]))
    file.create_variable("opaque", ("x",), dtype=np.dtype("V4"))[...] = np.array([b"abcd", b"efgh", b"ijkl"], "V4")
    file.create_variable("half", ("x",), data=np.arange(3, dtype="f2"))
    file.attrs["complex"], file.attrs["truth"] = 1 + 2j, np.bool_(True)
"""


def test_what_h5netcdf_allows_beyond_netcdf(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    # In a process of its own: h5netcdf and netCDF4 each bring an HDF5 library.
    subprocess.run([sys.executable, "-W", "ignore", "-c", BEYOND, str(path)], check=True, timeout=LONG)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_dataset(path, engine="h5netcdf") as expected:
            expected.load()
    found = insitu.open_dataset(path).load()
    xr.testing.assert_identical(found, expected)
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype


def test_the_classic_model(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF4_CLASSIC") as file:
        file.createDimension("x", 3)
        file.createVariable("a", "i4", "x")[:] = [1, 2, 3]
        file.title = "classic"
    with h5py.File(path) as file:
        assert "_nc3_strict" in file.attrs
    found = insitu.open_dataset(path)
    assert found.attrs == {"title": "classic"}
    with xr.open_dataset(path, engine="netcdf4") as expected:
        xr.testing.assert_identical(found.load(), expected.load())


def test_a_file_of_matlab_is_an_hdf5_file(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        inner = file.create_group("#refs#").create_dataset("a", data=np.ones((1, 1)))
        for name, data, kind in (
            ("matrix", np.arange(6.0).reshape(2, 3), "double"),
            ("text", np.array([[104], [105]], "u2"), "char"),
            ("cell", np.array([[inner.ref]], h5py.ref_dtype), "cell"),
        ):
            file.create_dataset(name, data=data).attrs["MATLAB_class"] = np.bytes_(kind)
    with open(path, "r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    dataset = insitu.open_dataset(path).load()
    assert dataset.matrix.values.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert dataset.text.values.tolist() == [[104], [105]]
    assert dataset.cell.shape == (1, 1)
    assert dataset.matrix.attrs == {"MATLAB_class": "double"}
    assert insitu.open_dataset(path, group="#refs#").a.item() == 1.0
