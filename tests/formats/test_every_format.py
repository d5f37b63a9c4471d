"""Is every format read over HTTP in few requests, and kept in every form of references that can
hold it?
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import tifffile
import xarray
from astropy.io import fits

import insitu
from insitu.errors import InsituError, UnsupportedError

SHAPE = (64, 96)
VALUES = np.random.default_rng(0).normal(280, 5, SHAPE).astype("f4")


def _netcdf3(folder: Path) -> str:
    with netCDF4.Dataset(folder / "a.nc", "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.createDimension("y", None)
        file.createDimension("x", SHAPE[1])
        for name in ("data", "other"):
            file.createVariable(name, "f4", ("y", "x"))[:] = VALUES
    return "a.nc"


def _tiff(folder: Path) -> str:
    tifffile.imwrite(folder / "a.tif", VALUES, tile=(16, 32), compression="zlib", predictor=True, metadata=None)
    return "a.tif"


def _fits(folder: Path) -> str:
    fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(VALUES, name="DATA")]).writeto(folder / "a.fits")
    return "a.fits"


def _grib(folder: Path) -> str:
    eccodes = pytest.importorskip("eccodes")
    handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
    keys = {
        "Ni": SHAPE[1], "Nj": SHAPE[0], "latitudeOfFirstGridPointInDegrees": 63, "latitudeOfLastGridPointInDegrees": 0,
        "iDirectionIncrementInDegrees": 1,
        "longitudeOfFirstGridPointInDegrees": 0, "longitudeOfLastGridPointInDegrees": 95,
        "jDirectionIncrementInDegrees": 1, "packingType": "grid_ccsds",
        "bitsPerValue": 24,
    }  # fmt: skip
    for key, value in keys.items():
        eccodes.codes_set(handle, key, value)
    with (folder / "a.grib").open("wb") as file:
        for step in (0, 6, 12):
            eccodes.codes_set(handle, "step", step)
            eccodes.codes_set_values(handle, VALUES.astype("f8").reshape(-1) + step)
            file.write(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    return "a.grib"


FORMATS: dict[str, tuple[Callable[[Path], str], str]] = {
    "netcdf3": (_netcdf3, "data"), "tiff": (_tiff, "band_data"), "fits": (_fits, "DATA"), "grib": (_grib, "t"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_over_http(tmp_path: Path, served: Any, kind: str) -> None:
    make, name = FORMATS[kind]
    file = make(tmp_path)
    local = insitu.read(tmp_path / file, name, decode=False)
    served.requests.clear()
    group = insitu.scan(served.url(file), decode=False)
    assert len(served.requests) <= 3
    np.testing.assert_array_equal(insitu.read(group, name, decode=False), local)
    assert len(served.requests) <= 6
    assert group.details.format == kind


NO_NAME = {("tiff", "a.icechunk"), ("grib", "a.icechunk")}
"""Their codecs have names in Zarr V2 only."""
TARGETS = ["a.json", "a.parq", "a.parquet", "a.insitu", "a.icechunk"]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("target", TARGETS)
def test_kept_and_opened_again(tmp_path: Path, kind: str, target: str) -> None:
    if target.endswith("icechunk"):
        pytest.importorskip("icechunk")
    actual = insitu.open_dataset(tmp_path / FORMATS[kind][0](tmp_path))
    if (kind, target) in NO_NAME:
        with pytest.raises(UnsupportedError, match="Zarr V3 has no name"):
            actual.insitu.save(tmp_path / target)
        return
    actual.insitu.save(tmp_path / target)
    xarray.testing.assert_equal(insitu.open_dataset(tmp_path / target).load(), actual.load())


def test_kerchunk_reads_its_grib_references(tmp_path: Path) -> None:
    """The codec and its configuration are kerchunk's own."""
    codecs = pytest.importorskip("kerchunk.codecs")
    insitu.open_dataset(tmp_path / _grib(tmp_path)).insitu.save(tmp_path / "a.json")
    references = json.loads((tmp_path / "a.json").read_text())["refs"]
    metadata = json.loads(references["t/.zarray"])
    filters = [metadata["compressor"]] if metadata["compressor"] else metadata["filters"]
    assert [f["id"] for f in filters] == ["grib"]
    url, offset, length = references["t/1.0.0"]
    data = Path(url.removeprefix("file://")).read_bytes()[offset : offset + length]
    options = {key: value for key, value in filters[0].items() if key != "id"}
    found = codecs.GRIBCodec(**options).decode(data)
    np.testing.assert_array_equal(
        np.asarray(found, "f4"), insitu.read(tmp_path / "a.grib", "t", np.s_[1], decode=False).reshape(-1)
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_format_by_name(tmp_path: Path, kind: str) -> None:
    make, name = FORMATS[kind]
    file = make(tmp_path)
    assert insitu.scan(tmp_path / file, format=kind, decode=False).array(name).dtype.kind == "f"
    with pytest.raises(InsituError):
        insitu.scan(tmp_path / file, format="hdf5", decode=False)
