"""`encoding`, types and dimensions of characters, as the engine netcdf4 gives them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu
from waiting import LONG

FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "zlib": {"zlib": True, "complevel": 2, "shuffle": True, "fletcher32": True},
    "szip": {"compression": "szip"},
    "szip_ec": {"compression": "szip", "szip_coding": "ec", "szip_pixels_per_block": 16},
    "zstd": {"compression": "zstd", "complevel": 5},
    "bzip2": {"compression": "bzip2", "complevel": 3},
    **{
        f"blosc_{name}_{shuffle}": {"compression": f"blosc_{name}", "blosc_shuffle": shuffle, "complevel": 7}
        for name in ("lz", "lz4", "lz4hc", "zlib", "zstd")
        for shuffle in (0, 1, 2)
    },
}


def opened(function: str, path: Path, **how: Any) -> xr.Dataset:
    return insitu.open_dataset(path, **how) if function == "virtual" else xr.open_dataset(path, engine="insitu", **how)


@pytest.mark.parametrize("function", ["virtual", "engine"])
@pytest.mark.parametrize("name", FILTERS)
def test_filters_are_told_as_netcdf4_tells_them(tmp_path: Path, name: str, function: str) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 8192)
        try:
            made = file.createVariable("v", "f4", ("x",), chunksizes=(4096,), **FILTERS[name])
        except RuntimeError:
            pytest.skip(f"this build of netCDF has no {name}")
        made[:] = np.arange(8192) // 100
    with xr.open_dataset(path, engine="netcdf4") as expected:
        found = opened(function, path)
        assert found.v.encoding == expected.v.encoding
        np.testing.assert_array_equal(found.v.values, expected.v.values)


def test_lzf_is_told_as_h5netcdf_tells_it(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(100), chunks=(10,), compression="lzf")
    dataset = insitu.open_dataset(path)
    assert dataset.v.encoding["compression"] == "lzf"
    assert dataset.v.encoding["compression_opts"] is None
    dataset.to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    with h5py.File(tmp_path / "b.nc") as written:
        assert written["v"].compression == "lzf"


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"])
@pytest.mark.parametrize("function", ["virtual", "engine"])
def test_least_significant_digit_is_encoding(tmp_path: Path, format: str, function: str) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.createDimension("x", 4)
        file.createVariable("v", "f4", ("x",))[:] = np.arange(4) / 4
        file.createVariable("x", "f4", ("x",))[:] = np.arange(4)
        file.createVariable("one", "f4", ())[...] = 2
        for name in ("v", "x", "one"):
            file[name].least_significant_digit = 2
    with xr.open_dataset(path, engine="netcdf4") as expected:
        found = opened(function, path)
        xr.testing.assert_identical(found.load(), expected.load())
        for name in ("v", "x", "one"):
            assert found[name].encoding["least_significant_digit"] == expected[name].encoding["least_significant_digit"]
    found.insitu.save(tmp_path / "s.json")
    with xr.open_dataset(tmp_path / "s.json", engine="insitu") as again:
        assert {name: again[name].attrs for name in ("v", "x", "one")} == {
            name: {"least_significant_digit": 2} for name in ("v", "x", "one")
        }


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_CLASSIC"])
@pytest.mark.parametrize("function", ["virtual", "engine"])
@pytest.mark.parametrize("how", [{}, {"concat_characters": False}, {"decode_cf": False}], ids=str)
def test_scalar_characters_keep_their_type(tmp_path: Path, format: str, function: str, how: dict[str, Any]) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.createDimension("x", 4)
        file.createVariable("crs", "c", ())[...] = b"\0"
        file["crs"].grid_mapping_name = "latitude_longitude"
        file.createVariable("unwritten", "c", ())
        file.createVariable("letter", "c", ())[...] = b"q"
        file.createVariable("row", "c", ("x",))[:] = np.array([b"a", b"\0", b"b", b"\0"])
        file.createVariable("v", "f4", ("x",))[:] = 1
        file["v"].grid_mapping = "crs"
    with xr.open_dataset(path, engine="netcdf4", **how) as expected:
        found = opened(function, path, **how).load()
        xr.testing.assert_identical(found, expected.load())
        for name in expected.variables:
            assert found[name].dtype == expected[name].dtype, name
            assert isinstance(found[name].values, np.ndarray)
    if function == "virtual" and not how:
        insitu.open_dataset(path).insitu.save(tmp_path / "s.insitu")
        xr.testing.assert_identical(insitu.open_dataset(tmp_path / "s.insitu").load(), found)
        assert insitu.open_dataset(tmp_path / "s.insitu").crs.dtype == np.dtype("S1")


PHONY: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    "same": {"one": ("S1", (3,)), "two": ("S2", (3,))},
    "same, two dimensions": {"one": ("S1", (4, 3)), "two": ("S2", (4, 3))},
    "first dimension": {"one": ("S1", (4, 3)), "two": ("S2", (4,))},
    "last dimension": {"one": ("S1", (4, 3)), "two": ("S2", (3,))},
    "square": {"one": ("S1", (3, 3)), "two": ("S2", (3,))},
    "characters only": {"one": ("S1", (3,)), "two": ("S1", (3,))},
    "a number": {"one": ("S1", (3,)), "n": ("f4", (3,))},
}


@pytest.mark.parametrize("case", PHONY)
def test_characters_beside_texts_on_phony_dimensions(tmp_path: Path, case: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name, (kind, shape) in PHONY[case].items():
            values = np.full(shape, b"xyz"[: int(kind[1])], kind) if kind[0] == "S" else np.zeros(shape, kind)
            file.create_dataset(name, data=values)
    with xr.open_dataset(path, engine="netcdf4") as expected:
        found = insitu.open_dataset(path).load()
        xr.testing.assert_identical(found, expected.load())
        assert {n: v.dtype for n, v in found.variables.items()} == {n: v.dtype for n, v in expected.variables.items()}


@pytest.mark.parametrize("group", [None, "g"])
def test_enumerations_are_told_with_their_name(tmp_path: Path, group: str | None) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        kind = file.createEnumType(np.uint8, "cloud_type", {"clear": 0, "cloudy": 1})
        place = file if group is None else file.createGroup(group)
        file.createDimension("t", 2)
        place.createVariable("clouds", kind, "t", fill_value=None)[:] = 1
    with xr.open_dataset(path, engine="netcdf4", group=group) as expected:
        found = insitu.open_dataset(path, group=group).clouds.encoding["dtype"].metadata
        if group is None:
            assert found == expected.clouds.encoding["dtype"].metadata
        else:  # the type lies outside of the group, which was all that was read
            assert found["enum"] == {"clear": 0, "cloudy": 1}


@pytest.mark.parametrize("function", ["virtual", "engine"])
def test_a_variable_without_a_name(tmp_path: Path, function: str) -> None:
    path = tmp_path / "a.nc"
    made = xr.Dataset({None: (("x", "y"), [[0, 1], [2, 3]])})
    made.to_netcdf(path, engine="netcdf4")
    found = opened(function, path)
    xr.testing.assert_identical(found.load(), made)
    two = insitu.open_mfdataset([path, path], combine="nested", concat_dim="x")
    xr.testing.assert_identical(two.load(), xr.concat([made, made], "x"))
    virtual = insitu.open_dataset(path)
    assert virtual.insitu.virtual == ["__values__"]
    for suffix in ("insitu", "json"):
        virtual.insitu.save(tmp_path / f"s.{suffix}")
        xr.testing.assert_identical(insitu.open_dataset(tmp_path / f"s.{suffix}").load(), made)


def test_warnings_about_times_begin_as_xarrays_do(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", 2)
        file.createVariable("t", "i4", ("t",))[:] = [0, 1]
        file["t"].units = "days since 0001-01-01"
    message = "Unable to decode time axis into full numpy.datetime64"
    code = (
        f"import warnings, xarray as xr, insitu\n"
        f"warnings.filterwarnings('error')\n"
        f"warnings.filterwarnings('ignore', {message!r})\n"
        f"assert insitu.open_dataset({str(path)!r}).t.dtype == object\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LONG)
    with pytest.warns(xr.SerializationWarning, match=message):
        insitu.open_dataset(path)
