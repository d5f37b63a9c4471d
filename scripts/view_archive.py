"""Files of every kind that the explorer draws in its own way, for `page_pictures.py`: smooth fields of known grids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

Values = npt.NDArray[Any]
LON = {"standard_name": "longitude", "units": "degrees_east"}
LAT = {"standard_name": "latitude", "units": "degrees_north"}
AIR = {"standard_name": "air_temperature", "long_name": "Near-surface air temperature", "units": "K"}


def make_view_archive(folder: Path) -> None:
    """Write the files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    makers = {
        "levels": _levels, "rotated": _rotated, "curvilinear": _curvilinear, "swath": _swath, "disc": _disc,
        "mesh": _mesh, "stations": _stations, "bands": _bands,
    }  # fmt: skip
    for name, make in makers.items():
        make().to_netcdf(folder / f"{name}.nc", engine="h5netcdf")


def _temperature(lon: Values, lat: Values) -> Values:
    waves = 5 * np.sin(np.deg2rad(3 * lon + 2 * lat)) + 3 * np.cos(np.deg2rad(5 * lon)) * np.sin(np.deg2rad(4 * lat))
    values: Values = (253 + 45 * np.cos(np.deg2rad(lat)) ** 2 + waves * np.cos(np.deg2rad(lat))).astype("f4")
    return values


def _levels() -> xr.Dataset:
    """A year of days of 360 on levels, with winds and classes."""
    lon, lat, days = np.arange(-178.75, 180, 2.5), np.arange(-88.75, 90, 2.5), np.arange(12) * 30
    level = np.array([1000, 850, 700, 500, 300, 200, 100.0])
    x, y = np.meshgrid(lon, lat)
    season = 12 * np.cos(2 * np.pi * days / 360)[:, None, None, None] * -np.sin(np.deg2rad(y))
    dims = ("time", "plev", "lat", "lon")
    air = _temperature(x, y) - 28 * np.log(1000 / level)[None, :, None, None] + season
    east = 25 * np.sin(np.deg2rad(2 * np.abs(y))) + 6 * np.sin(np.deg2rad(4 * x)) + 0 * air
    north = 9 * np.cos(np.deg2rad(4 * x)) * np.cos(np.deg2rad(y)) + 0 * air
    classes = np.digitize(_temperature(x, y), [262, 275, 288]).astype("i1")
    meanings = {"flag_values": np.arange(4, dtype="i1"), "flag_meanings": "polar cold temperate tropical"}
    return xr.Dataset(
        {
            "ta": (dims, air.astype("f4"), {**AIR, "long_name": "Air temperature"}),
            "ua": (dims, east.astype("f4"), {"standard_name": "eastward_wind", "units": "m s-1"}),
            "va": (dims, north.astype("f4"), {"standard_name": "northward_wind", "units": "m s-1"}),
            "zone": (("lat", "lon"), classes, {"long_name": "Climate zone", **meanings}),
        },
        {
            "time": ("time", days, {"units": "days since 2001-01-01", "calendar": "360_day"}),
            "plev": ("plev", level, {"standard_name": "air_pressure", "units": "hPa", "positive": "down"}),
            "lat": ("lat", lat, LAT),
            "lon": ("lon", lon, LON),
        },
    )


def _rotated() -> xr.Dataset:
    pole = {"grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0}
    rlon, rlat = np.arange(-28.2, 18, 0.44), np.arange(-23.2, 21.8, 0.44)
    lon, lat = _projected({"grid_mapping_name": "rotated_latitude_longitude", **pole}, rlon, rlat)
    return xr.Dataset(
        {
            "tas": (("rlat", "rlon"), _temperature(3 * lon, lat), {**AIR, "grid_mapping": "pole"}),
            "pole": ((), 0, {"grid_mapping_name": "rotated_latitude_longitude", **pole}),
        },
        {
            "rlon": ("rlon", rlon, {"standard_name": "grid_longitude", "units": "degrees"}),
            "rlat": ("rlat", rlat, {"standard_name": "grid_latitude", "units": "degrees"}),
        },
    )


def _projected(mapping: dict[str, Any], x: Values, y: Values) -> tuple[Values, Values]:
    import pyproj

    crs = pyproj.CRS.from_cf(mapping)
    lon, lat = pyproj.Transformer.from_crs(crs, crs.geodetic_crs, always_xy=True).transform(*np.meshgrid(x, y))
    return np.asarray(lon), np.asarray(lat)


def _curvilinear() -> xr.Dataset:
    """An ocean whose northern poles lie on land: south of 40° N rows are parallels."""
    column, row = np.meshgrid(np.arange(182), np.arange(150))
    lat, away = np.deg2rad(-78 + row * 168 / 149), np.deg2rad(column * 2 - 1)
    x, y = np.cos(lat) * np.cos(away), np.cos(lat) * np.sin(away)
    y = y * (1 + 1.2 * np.clip((np.rad2deg(lat) - 40) / 50, 0, 1) ** 2)
    lon = (np.rad2deg(np.arctan2(y, x)) + 74 + 180) % 360 - 180
    lat = np.rad2deg(np.arctan2(np.sin(lat), np.hypot(x, y)))
    depth = np.array([0.5, 20, 75, 200, 500, 1200, 3000])
    sea = (_temperature(lon, lat) - 271) * np.exp(-depth / 700)[:, None, None]
    about = {"standard_name": "sea_water_potential_temperature", "long_name": "Sea water temperature", "units": "degC"}
    return xr.Dataset(
        {"thetao": (("lev", "j", "i"), sea.astype("f4"), {**about, "coordinates": "lon lat"})},
        {
            "lev": ("lev", depth, {"standard_name": "depth", "units": "m", "positive": "down"}),
            "lon": (("j", "i"), lon, LON),
            "lat": (("j", "i"), lat, LAT),
        },
    )


def _swath() -> xr.Dataset:
    """An orbit and a half of a satellite, 2,200 km wide."""
    scan, across = np.meshgrid(np.linspace(0, 3 * np.pi, 900), np.deg2rad(np.linspace(-10, 10, 90)), indexing="ij")
    slope = np.deg2rad(98.7)
    # Along the orbit and across it, on a sphere that turns below.
    ahead, aside = np.cos(across) * np.cos(scan), np.cos(across) * np.sin(scan)
    y, z = (
        aside * np.cos(slope) + np.sin(across) * np.sin(slope),
        aside * np.sin(slope) - np.sin(across) * np.cos(slope),
    )
    lon = (np.rad2deg(np.arctan2(y, ahead) - scan * 101 / 1440) + 180) % 360 - 180
    lat = np.rad2deg(np.arcsin(np.clip(z, -1, 1)))
    about = {"standard_name": "brightness_temperature", "units": "K", "coordinates": "lon lat"}
    dims = ("scan", "pixel")
    return xr.Dataset({"tb": (dims, _temperature(lon, lat), about)}, {"lon": (dims, lon, LON), "lat": (dims, lat, LAT)})


def _disc() -> xr.Dataset:
    """What a geostationary satellite sees."""
    height = 35786023.0
    mapping = {
        "grid_mapping_name": "geostationary", "perspective_point_height": height, "semi_major_axis": 6378137.0,
        "semi_minor_axis": 6356752.31414, "longitude_of_projection_origin": -75.0, "sweep_angle_axis": "x",
        "latitude_of_projection_origin": 0.0,
    }  # fmt: skip
    angle = np.linspace(-0.1518, 0.1518, 500)
    lon, lat = _projected(mapping, angle * height, -angle * height)
    seen = np.isfinite(lon) & np.isfinite(lat)
    values = np.where(seen, _temperature(np.where(seen, lon, 0), np.where(seen, lat, 0)), np.nan)
    return xr.Dataset(
        {"tb": (("y", "x"), values.astype("f4"), {**AIR, "grid_mapping": "view"}), "view": ((), 0, mapping)},
        {
            "x": ("x", angle, {"standard_name": "projection_x_coordinate", "units": "rad"}),
            "y": ("y", -angle, {"standard_name": "projection_y_coordinate", "units": "rad"}),
        },
    )


def _mesh() -> xr.Dataset:
    """Triangles as ICON has them, with its times."""
    from scipy.spatial import ConvexHull

    at = np.arange(6000) + 0.5
    colatitude, turn = np.arccos(1 - 2 * at / len(at)), np.pi * (1 + 5**0.5) * at
    points = np.stack([np.cos(turn) * np.sin(colatitude), np.sin(turn) * np.sin(colatitude), np.cos(colatitude)], -1)
    corners = ConvexHull(points).simplices
    middle = points[corners].mean(axis=1)
    clon, clat = np.arctan2(middle[:, 1], middle[:, 0]), np.arctan2(middle[:, 2], np.hypot(middle[:, 0], middle[:, 1]))
    vlon, vlat = np.arctan2(points[:, 1], points[:, 0]), np.arcsin(points[:, 2])
    air = _temperature(np.rad2deg(clon), np.rad2deg(clat)) + np.arange(4, dtype="f4")[:, None]
    angle = {"units": "radian"}
    return xr.Dataset(
        {"t_2m": (("time", "cell"), air, {**AIR, "coordinates": "clat clon"})},
        {
            "time": ("time", 20200101 + np.arange(4) / 4, {"units": "day as %Y%m%d.%f"}),
            "clon": ("cell", clon, {"standard_name": "longitude", **angle, "bounds": "clon_bnds"}),
            "clat": ("cell", clat, {"standard_name": "latitude", **angle, "bounds": "clat_bnds"}),
            "clon_bnds": (("cell", "vertex"), vlon[corners]),
            "clat_bnds": (("cell", "vertex"), vlat[corners]),
        },
    )


def _stations() -> xr.Dataset:
    random = np.random.default_rng(2)
    lon, lat = random.uniform(-9, 29, 120), random.uniform(37, 68, 120)
    hours = np.arange(96)
    air = _temperature(3 * lon, lat)[:, None] + 5 * np.sin(2 * np.pi * (hours - 9) / 24)
    return xr.Dataset(
        {"tas": (("station", "time"), air.astype("f4"), AIR)},
        {
            "lon": ("station", lon, LON),
            "lat": ("station", lat, LAT),
            "time": ("time", hours, {"units": "hours since 2024-03-01"}),
        },
    )


def _bands() -> xr.Dataset:
    lon, lat = np.meshgrid(np.linspace(5, 20, 300), np.linspace(60, 45, 300))
    bands = [np.sin(np.deg2rad(k * 17 * lon)) * np.cos(np.deg2rad(k * 23 * lat)) * 0.3 + 0.5 for k in (1, 2, 3)]
    return xr.Dataset(
        {"reflectance": (("band", "lat", "lon"), np.stack(bands).astype("f4"), {"units": "1"})},
        {
            "band": ("band", ["red", "green", "blue"]),
            "lat": ("lat", lat[:, 0], LAT),
            "lon": ("lon", lon[0], LON),
        },
    )
