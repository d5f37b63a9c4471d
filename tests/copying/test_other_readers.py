"""Do other people's readers see the stored values of the source in its copies?

Modules: copying/encode.py, copying/netcdf_target.py, copying/zarr_target.py, copying/append_targets.py
"""

from __future__ import annotations

import glob
import json
import re
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import h5netcdf
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import insitu
from copying.archives import JOIN, archive_of
from waiting import LONG

NUMBERS = ("tas", "pr", "rank", "time", "lat", "orog")
TARGETS: dict[str, dict[str, Any]] = {
    "v3.zarr": {"chunks": "both"},
    "shards.zarr": {"chunks": {"time": 10, "lat": 3}, "shards": {"time": 40, "lat": 9}},
    "v2.zarr": {"chunks": {"time": 40, "lat": 4}, "zarr_format": 2},
    "file.nc": {"chunks": {"time": 20, "lat": 4}},
    "filters.nc": {"chunks": "series", "codec": "none"},
}


def stored_values(files: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return what the library of NetCDF reads of the files, as it is stored."""
    found: dict[str, list[np.ndarray[Any, Any]]] = {}
    for path in sorted(glob.glob(files)):
        with netCDF4.Dataset(path) as file:
            file.set_auto_maskandscale(False)
            for name in NUMBERS:
                found.setdefault(name, []).append(file[name][...])
    return {name: np.concatenate(parts) if name in NUMBERS[:4] else parts[0] for name, parts in found.items()}


@pytest.mark.parametrize("name", TARGETS)
def test_stored_values(files: str, tmp_path: Path, name: str) -> None:
    """A copy, of Zarr in two steps: the last file is appended."""
    target = tmp_path / name
    if target.suffix == ".zarr":
        insitu.Archive.open(sorted(glob.glob(files))[:2], **JOIN).copy(target, **TARGETS[name])
        archive_of(files).copy(target, append=True)
    else:
        archive_of(files).copy(target, **TARGETS[name])
    want = stored_values(files)
    assert want["tas"].shape == (90, 9, 12)
    if target.suffix == ".zarr":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            group = zarr.open_group(target, mode="r")
            found = {name: np.asarray(group[name][...]) for name in NUMBERS}
    else:
        with h5netcdf.File(target) as file:
            found = {name: np.asarray(file[name][...]) for name in NUMBERS}
    for name, values in want.items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].dtype == values.dtype


@pytest.mark.skipif(shutil.which("gdalmdiminfo") is None, reason="no GDAL here (python scripts/clients.py install)")
@pytest.mark.parametrize("name", ["v2.zarr", "file.nc"])
def test_gdal(files: str, tmp_path: Path, name: str) -> None:
    archive_of(files).copy(tmp_path / name, **TARGETS[name])
    run = subprocess.run(
        ["gdalmdiminfo", "-detailed", str(tmp_path / name)], capture_output=True, text=True, timeout=LONG, check=False
    )
    arrays = json.loads(run.stdout)["arrays"]
    want = stored_values(files)
    for variable in ("pr", "rank", "lat"):
        np.testing.assert_array_equal(np.array(arrays[variable]["values"], want[variable].dtype), want[variable])
    assert (arrays["pr"]["scale"], arrays["pr"]["offset"], arrays["pr"]["nodata_value"]) == (0.001, 0.5, -32768)
    assert arrays["pr"]["unit"] == "kg m-2 s-1"


@pytest.mark.skipif(shutil.which("ncdump") is None, reason="no ncdump here (python scripts/clients.py install)")
def test_ncdump(files: str, tmp_path: Path) -> None:
    archive_of(files).copy(tmp_path / "file.nc", **TARGETS["file.nc"])
    run = subprocess.run(
        ["ncdump", "-v", "rank", str(tmp_path / "file.nc")], capture_output=True, text=True, timeout=LONG, check=True
    )
    text = run.stdout.partition(" rank =")[2]
    numbers = [int(number) for number in re.findall(r"-?\d+", text)]
    np.testing.assert_array_equal(np.reshape(numbers, (90, 9)), stored_values(files)["rank"])


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3:UserWarning")
def test_checksums_of_the_source(tmp_path: Path) -> None:
    """Codecs without options are named as zarr-python reads them."""
    values = np.arange(12.0).reshape(3, 4)
    encoding = {"v": {"fletcher32": True, "chunksizes": (1, 4)}}
    xr.Dataset({"v": (("x", "y"), values)}).to_netcdf(tmp_path / "file.nc", encoding=encoding)
    insitu.Archive.open(str(tmp_path / "file.nc")).copy(tmp_path / "copy.zarr", codec="source")
    array = zarr.open_array(tmp_path / "copy.zarr" / "v")
    assert "numcodecs.fletcher32" in {codec["name"] for codec in array.metadata.to_dict()["codecs"]}
    np.testing.assert_array_equal(array[...], values)


@pytest.mark.parametrize("target", ["v3.zarr", "v2.zarr", "file.nc"])
def test_a_dimension_without_elements(tmp_path: Path, target: str) -> None:
    ds = xr.Dataset({"v": (("time", "y"), np.empty((0, 3), "f4"), {"units": "K"})}, {"y": [1, 2, 3]})
    ds.to_netcdf(tmp_path / "empty.nc", unlimited_dims=["time"])
    way = {"zarr_format": 2} if target == "v2.zarr" else {}
    insitu.Archive.open(str(tmp_path / "empty.nc")).copy(tmp_path / target, chunks={"time": 2}, **way)
    xr.testing.assert_identical(xr.open_dataset(tmp_path / target), ds)
