"""Reference systems that GeoTIFF keys describe by their parts: units, user-defined systems,
heights; as rioxarray shows them.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import insitu
from insitu.formats.tiff.crs import crs_attributes

tifffile = pytest.importorskip("tifffile")
rioxarray = pytest.importorskip("rioxarray")
pyproj = pytest.importorskip("pyproj")

USER = 32767
WGS84 = {1024: 2, 1025: 1, 2048: 4326}
GEOGRAPHIC = {1024: 2, 1025: 1, 2048: USER}
CITED = {**GEOGRAPHIC, 2049: "my system"}
MERCATOR = {
    1024: 1, 1025: 1, 3072: USER, 2048: 4326, 3074: USER, 3075: 1, 3076: 9001, 3080: 15.0, 3081: 0.0, 3082: 500.0,
    3083: 0.0, 3092: 0.9996,
}  # fmt: skip
ZONE = {1024: 1, 1025: 1, 3072: 32633}
OREGON = {1024: 1, 1025: 1, 3072: 2838}
IMAGINE = (
    "IMAGINE GeoTIFF Support\nCopyright 1991 - 2001 by ERDAS, Inc. All Rights Reserved\n@(#)$RCSfile: egtf.c $ "
    "$Revision: 1.9 $\nProjection Name = State Plane\nUnits = {0}\nGeoTIFF Units = {0}"
)
SYSTEMS: dict[str, dict[int, Any]] = {
    "EPSG's system, whatever the unit": {**WGS84, 2054: 9104},
    **{f"datum, angles in {unit}": {**CITED, 2050: 6326, 2054: unit} for unit in (9101, 9102, 9103, 9104, 9105, 9107)},
    "axes, arc-seconds": {**CITED, 2054: 9104, 2057: 6378137.0, 2059: 298.257223563},
    "axes, degrees": {**CITED, 2054: 9102, 2057: 6378137.0, 2059: 298.257223563},
    "datum only": {**GEOGRAPHIC, 2050: 6326},
    "another datum only": {**GEOGRAPHIC, 2050: 6230},
    "ellipsoid only": {**GEOGRAPHIC, 2056: 7030, 2054: 9102},
    "GRS 1980": {**GEOGRAPHIC, 2056: 7019, 2054: 9102},
    "citation only": {**GEOGRAPHIC, 2049: "GCS Name = WGS 84|Datum = WGS_1984|Ellipsoid = WGS_1984|Primem = Greenwich"},
    "nothing of a geographic system": GEOGRAPHIC,
    "no geographic system": {1024: 2, 1025: 1},
    "no number of EPSG's": {1024: 2, 1025: 1, 2048: 1},
    "Paris": {**GEOGRAPHIC, 2050: 6326, 2051: 8903},
    "Lisbon": {**GEOGRAPHIC, 2050: 6326, 2051: 8902},
    "a meridian by its longitude": {**GEOGRAPHIC, 2050: 6326, 2051: USER, 2061: 2.5},
    "nothing of a projection": {1024: 1, 1025: 1, 3072: USER},
    "no projection of EPSG's": {1024: 1, 1025: 1, 3072: 1},
    "the name of a projection": {1024: 1, 1025: 1, 3072: USER, 3073: "my map", 1026: "other"},
    "the citation of a projection": {1024: 1, 1025: 1, 3072: USER, 1026: "my map", 3076: 9001},
    "an unknown method": {1024: 1, 1025: 1, 3072: USER, 2048: 4326, 3074: USER, 3075: 99, 3076: 9001},
    "a zone by its number": {1024: 1, 1025: 1, 3072: USER, 2048: 4326, 3074: 16033, 3076: 9001},
    "a projection without a name": MERCATOR,
    "a projection in kilometres": {**MERCATOR, 3076: 9036},
    "a projection on another datum": {**MERCATOR, 2048: USER, 2050: 6230, 2049: "ED50", 2054: 9102},
    "EPSG's projection in a unit of a size": {1024: 1, 1025: 1, 3072: 32633, 3076: USER, 3077: 1000.0},
    "a model of its own": {1024: USER, 1025: 1},
    "a name of its own": {1024: USER, 1025: 1, 1026: "Local thing"},
    "a name of its own, in feet": {1024: USER, 1025: 1, 1026: "Local thing", 3076: 9002},
    "no model": {1025: 1, 1026: "Local thing"},
    "heights cited, without a unit": {**WGS84, 4097: "my heights"},
    "heights cited": {**WGS84, 4097: "my heights", 4099: 9001},
    "heights without a citation": {**WGS84, 4099: 9001},
    "heights in feet": {**WGS84, 4096: USER, 4097: "my heights", 4099: 9002},
    "heights above mean sea level": {**WGS84, 4096: USER, 4097: "my heights", 4098: 5100, 4099: 9001},
    "heights by number": {**WGS84, 4096: 5773, 4097: "EGM96"},
    "heights of a zone": {1024: 1, 1025: 1, 3072: 32633, 4096: 5773},
    "heights of a projection by its parts": {**MERCATOR, 4096: 5773},
    "heights of a projection cited": {**MERCATOR, 4097: "my heights", 4099: 9001},
    "heights only": {1025: 1, 4097: "my heights", 4099: 9001},
    "ellipsoidal heights": {**WGS84, 4096: 4979},
    "ellipsoidal heights of GeoTIFF 1.0": {**WGS84, 4096: 5030},
    "ellipsoidal heights of a zone": {**ZONE, 4096: 4979},
    "ellipsoidal heights of a zone of GeoTIFF 1.0": {**ZONE, 4096: 5030},
    "ellipsoidal heights on another datum": {1024: 1, 1025: 1, 3072: 25832, 4096: 4979},
    "ellipsoidal heights on another datum, in degrees": {1024: 2, 1025: 1, 2048: 4258, 4096: 4979},
    "heights above another ellipsoid": {1024: 2, 1025: 1, 2048: 4258, 4096: 5019},
    "ellipsoidal heights in Canada": {1024: 2, 1025: 1, 2048: 8255, 4096: 8254},
    "heights that are a projection": {**WGS84, 4096: 32633},
    "no heights of EPSG's": {**ZONE, 4096: 4000},
    "heights by their datum": {**WGS84, 4098: 5100},
    "heights of which nothing is known": {**WGS84, 4096: USER},
    "heights with ESRI's citation": {**ZONE, 4097: "VCS Name = EGM08|Unit Name = Meter", 4098: 1027, 4099: 9001},
    "heights and a citation of both": {**ZONE, 1026: "my places", 4096: 5773},
    "a zone without a model": {1025: 1, 3072: 32633},
    "a zone with a model of its own": {1024: USER, 1025: 1, 3072: 32633},
    "a zone without a model, with heights": {1025: 1, 3072: 32633, 4096: 4979},
    "a geographic system without a model": {1025: 1, 2048: 4326},
    **{
        f"IMAGINE's {unit}": {**OREGON, 1026: IMAGINE.format(unit)}
        for unit in ("feet", "international_FeeT", "us_survey_feet", "meters", "km", "cubits")
    },
    "IMAGINE's unit of a size": {**OREGON, 1026: IMAGINE.format("cubits"), 3076: USER, 3077: 0.5},
    "IMAGINE's citation of EPSG's projection": {**OREGON, 3073: IMAGINE.format("feet")},
    "IMAGINE's citation of a projection": {**MERCATOR, 3073: IMAGINE.format("feet")},
    "IMAGINE's local coordinates": {1024: USER, 1025: 1, 1026: IMAGINE.format("feet")},
    "IMAGINE's feet without a model": {1025: 1, 3072: 2838, 1026: IMAGINE.format("feet")},
    "a unit of GDAL's citation": {**OREGON, 1026: "a|LUnits = km"},
}


def write_keys(path: Path, keys: dict[int, Any], minor: int) -> None:
    """Write an image with these GeoTIFF keys, of revision 1.0 or 1.1."""
    table, numbers, text = [], [], ""
    for key, value in sorted(keys.items()):
        if isinstance(value, int):
            table += [key, 0, 1, value]
        elif isinstance(value, float):
            table += [key, 34736, 1, len(numbers)]
            numbers.append(value)
        else:
            table += [key, 34737, len(value) + 1, len(text)]
            text += f"{value}|"
    table = [1, 1, minor, len(keys), *table]
    tags: list[Any] = [(33550, "d", 3, (10.0, 10.0, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, 500.0, 400.0, 0.0), True)]  # fmt: skip
    tags.append((34735, "H", len(table), tuple(table), True))
    if numbers:
        tags.append((34736, "d", len(numbers), tuple(numbers), True))
    if text:
        tags.append((34737, "s", 0, text, True))
    tifffile.imwrite(path, np.zeros((4, 5), "u1"), extratags=tags, metadata=None)


@pytest.mark.parametrize("minor", [0, 1])
@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_by_their_parts(tmp_path: Path, name: str, minor: int) -> None:
    write_keys(tmp_path / "a.tif", SYSTEMS[name], minor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = rioxarray.open_rasterio(tmp_path / "a.tif")
        expected = dict(reference.spatial_ref.attrs)
        reference.close()
    if name == "citation only" and '"EPSG","4326"' in expected["spatial_ref"]:
        pytest.skip("this release of GDAL takes the whole system from the name in its citation")
    found = dict(insitu.open_dataset(tmp_path / "a.tif")["spatial_ref"].attrs)
    if expected["spatial_ref"].startswith(
        ("GEOGCRS", "PROJCRS")
    ):  # the members of a datum are those of a release of PROJ
        actual, reference = (pyproj.CRS.from_wkt(each["spatial_ref"]) for each in (found, expected))
        assert actual == reference
        assert len(actual.axis_info) == len(reference.axis_info) == 3
        return
    assert found["spatial_ref"] == expected["spatial_ref"]
    assert found == expected


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning", "ignore::DeprecationWarning")
def test_pixels_without_a_type_are_no_areas(tmp_path: Path) -> None:
    write_keys(tmp_path / "a.tif", {1024: 1, 3072: 32633}, 1)
    reference = rioxarray.open_rasterio(tmp_path / "a.tif")
    assert "AREA_OR_POINT" not in reference.attrs
    reference.close()
    assert "AREA_OR_POINT" not in insitu.open_dataset(tmp_path / "a.tif").band_data.attrs


def test_projected_coordinates_in_kilometres_are_no_metres(tmp_path: Path) -> None:
    """GDAL writes number and authority of the unit the wrong way round, so the texts differ; the
    size does not.
    """
    write_keys(tmp_path / "a.tif", {1024: 1, 1025: 1, 3072: 32633, 3076: 9036}, 1)
    found = insitu.open_dataset(tmp_path / "a.tif")["spatial_ref"].attrs["spatial_ref"]
    assert 'PARAMETER["false_easting",500]' in found
    assert 'UNIT["kilometre",1000' in found


def test_keys_of_another_type_are_no_system_or_left_out() -> None:
    """Text for the axis of an ellipsoid, numbers that are none."""
    for odd in ("é", "", float("nan"), float("inf"), -1, 0):
        for key in (2054, 2057, 2058, 2059, 2060, 3075, 3076, 3080):
            keys = {1024: 2, 2057: 6378137.0, 2051: 1, key: odd}
            assert isinstance(crs_attributes(keys), dict)
            assert isinstance(crs_attributes({**keys, 1024: 1}), dict)
    for number in (9001, 32633, 4978, 5773, 7030):  # EPSG's number of something that is no geographic system
        assert isinstance(crs_attributes({1024: 2, 2048: number, 2057: 6326}), dict)
        assert isinstance(crs_attributes({1024: 2, 2048: number}), dict)
