"""Projected fields and meshes: positions compared with PROJ strings and the files' own vertices, values with xarray.

Modules: server/explorer/mesh.py, server/explorer/projected_grid.py
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from insitu.server.explorer import projected_grid
from insitu.server.explorer.cell_corners import to_sphere
from server.explorer.client import AppServer, Explorer

pyproj = pytest.importorskip("pyproj")
pytestmark = pytest.mark.servers

HEIGHT = 35786023.0
LAMBERT = {
    "grid_mapping_name": "lambert_conformal_conic",
    "standard_parallel": [46.0, 49.0],
    "longitude_of_central_meridian": 2.5,
    "latitude_of_projection_origin": 46.5,
    "semi_major_axis": 6378137.0,
    "inverse_flattening": 298.257222101,
}
GOES = {
    "grid_mapping_name": "geostationary",
    "perspective_point_height": HEIGHT,
    "longitude_of_projection_origin": -75.0,
    "latitude_of_projection_origin": 0.0,
    "sweep_angle_axis": "x",
    "semi_major_axis": 6378137.0,
    "semi_minor_axis": 6356752.31414,
}
ROTATED = {
    "grid_mapping_name": "rotated_latitude_longitude",
    "grid_north_pole_latitude": 39.25,
    "grid_north_pole_longitude": -162.0,
}
PROJECTED: dict[str, tuple[str, Any, Any, float]] = {
    # PROJ's own words for it, edges of x and y in its units
    "lambert": ("+proj=lcc +lat_1=46 +lat_2=49 +lat_0=46.5 +lon_0=2.5 +ellps=GRS80", (-6e5, 6e5, 13), (-5e5, 4e5, 10),
                1),
    "goes": (f"+proj=geos +h={HEIGHT} +lon_0=-75 +sweep=x +ellps=GRS80", (-0.16, 0.16, 41), (0.16, -0.16, 33), HEIGHT),
    "utm": ("+proj=utm +zone=33 +ellps=WGS84", (4e5, 4.01e5, 21), (5.2e6, 5.1995e6, 11), 1),
    "sinusoidal": ("+proj=sinu +R=6371007.181", (-2.2e7, 2.2e7, 45), (-1e7, 1e7, 21), 1),
    "paris": ("+proj=lcc +lat_1=46.8 +lat_0=46.8 +lon_0=0 +k_0=0.99987742 +x_0=600000 +y_0=2200000 +a=6378249.2 "
              "+b=6356515 +pm=paris", (5e5, 7e5, 11), (2.1e6, 2.3e6, 11), 1),
}  # fmt: skip


def _plane(mapping: dict[str, Any], x: Any, y: Any, about: dict[str, dict[str, Any]], **coords: Any) -> xr.Dataset:
    values = np.arange(len(y) * len(x), dtype="f4").reshape(len(y), len(x))
    return xr.Dataset(
        {"v": (("y", "x"), values, {"grid_mapping": "crs"}), "crs": ((), 0, mapping)},
        {"x": ("x", x, about["x"]), "y": ("y", y, about["y"]), **coords},
    )


def _centres(name: str) -> tuple[Any, Any]:
    x, y = (np.linspace(*ends) for ends in PROJECTED[name][1:3])
    return (x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2


def _datasets() -> Iterator[tuple[str, xr.Dataset]]:
    named = {side: {"standard_name": f"projection_{side}_coordinate"} for side in ("x", "y")}
    x, y = _centres("lambert")
    yield "lambert", _plane(LAMBERT, x / 1000, y / 1000, {side: {**a, "units": "km"} for side, a in named.items()})
    yield "goes", _plane(GOES, *_centres("goes"), {side: {**a, "units": "rad"} for side, a in named.items()})
    plain: dict[str, dict[str, Any]] = {"x": {}, "y": {}}
    for name, code in (("utm", 32633), ("paris", 27572)):
        yield name, _plane(_wkt(code), *_centres(name), plain)
    sinusoidal = {"crs_wkt": pyproj.CRS.from_proj4(PROJECTED["sinusoidal"][0]).to_wkt()}
    yield "sinusoidal", _plane(sinusoidal, *_centres("sinusoidal"), plain)
    yield "degrees", _plane(_wkt(4326), np.arange(5.5, 15), np.arange(49.5, 40, -1), plain)
    rotated = _plane(ROTATED, np.arange(-20, 21.0), np.arange(-15, 16.0), plain)
    names = {"x": "grid_longitude", "y": "grid_latitude"}
    for side, name in names.items():
        rotated[side].attrs = {"standard_name": name, "units": "degrees"}
    yield "rotated", rotated
    turned = _plane(
        {**_wkt(32633), "GeoTransform": "400000 800 600 5200000 600 -800"}, np.arange(8), np.arange(6), plain
    )
    yield "turned", turned.drop_vars(["x", "y"])
    yield "nonsense", _plane({"grid_mapping_name": "my_own_projection"}, np.arange(4.0), np.arange(3.0), named)
    beyond = {"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": 200.0}
    yield "beyond", _plane(beyond, np.arange(4.0), np.arange(3.0), named)
    yield "lying", _plane(_wkt(32633), np.array([1.0, np.nan, 1.0, 5.0]), np.arange(3.0), named)
    yield "icon", _icon()
    for name, start in (("ugrid", 1), ("ugrid_from_0", 0)):
        yield name, _ugrid(start)
    yield "stations", _stations()


def _wkt(code: int) -> dict[str, str]:
    return {"crs_wkt": pyproj.CRS.from_epsg(code).to_wkt()}


def _icon() -> xr.Dataset:
    """Triangles of 2 degrees about their centres, all over the earth, in radians."""
    random = np.random.default_rng(6)
    lon, lat = random.uniform(-180, 180, 500), np.rad2deg(np.arcsin(random.uniform(-0.99, 0.99, 500)))
    turns = np.deg2rad([90, 210, 330])
    away = np.stack([2 * np.cos(turns), 2 * np.sin(turns)])
    vertices = {"clon": lon[:, None] + away[0], "clat": lat[:, None] + away[1]}
    about = {"units": "radian"}
    return xr.Dataset(
        {
            "t": (("time", "cell"), random.random((3, 500), "f4"), {"coordinates": "clon clat", "units": "K"}),
            **{f"{name}_vertices": (("cell", "nv"), np.deg2rad(values)) for name, values in vertices.items()},
        },
        {
            "clon": ("cell", np.deg2rad(lon), {**about, "standard_name": "longitude", "bounds": "clon_vertices"}),
            "clat": ("cell", np.deg2rad(lat), {**about, "standard_name": "latitude", "bounds": "clat_vertices"}),
        },
    )


NODES = np.array([[170, 0], [180, 0], [190, 0], [170, 10], [180, 10], [190, 10], [175, 20]], dtype=float)
FACES = [[0, 1, 4, 3], [1, 2, 5, 4], [3, 4, 6]]


def _ugrid(start: int) -> xr.Dataset:
    connectivity = np.full((3, 4), -999, "i4")
    for row, face in zip(connectivity, FACES, strict=True):
        row[: len(face)] = np.array(face) + start
    about = {"cf_role": "face_node_connectivity", "_FillValue": np.int32(-999), **({"start_index": 1} if start else {})}
    topology = {
        "cf_role": "mesh_topology", "topology_dimension": 2, "node_coordinates": "node_x node_y",
        "face_node_connectivity": "faces",
    }  # fmt: skip
    return xr.Dataset(
        {
            "mesh": ((), 0, topology),
            "faces": (("face", "most"), connectivity, about),
            "v": (("time", "face"), np.arange(6.0).reshape(2, 3), {"mesh": "mesh", "location": "face"}),
            "w": (("node",), np.arange(7.0), {"mesh": "mesh", "location": "node"}),
            "node_x": ("node", NODES[:, 0], {"standard_name": "longitude", "units": "degrees_east"}),
            "node_y": ("node", NODES[:, 1], {"standard_name": "latitude", "units": "degrees_north"}),
        }
    )


def _stations() -> xr.Dataset:
    values = np.arange(12.0).reshape(3, 4)
    return xr.Dataset(
        {"t": (("time", "station"), values, {"units": "K"}), "alone": (("time",), np.arange(3.0))},
        {
            "time": ("time", np.arange(3), {"units": "hours since 2001-01-01"}),
            "lon": ("station", [5.0, 6.5, np.nan, 9e36], {"units": "degrees_east"}),
            "lat": ("station", [50.0, 51.5, 3.0, 4.0], {"units": "degrees_north"}),
        },
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("mapped")
    for name, dataset in _datasets():
        dataset.to_netcdf(made / f"{name}.nc", engine="h5netcdf")
    return made


@pytest.fixture(scope="module")
def look(folder: Path) -> Callable[[str], Explorer]:
    return lambda name: Explorer(AppServer((str(folder),)), str(folder / f"{name}.nc"))


def _check_places(found: Any, lon: Any, lat: Any) -> None:
    """Compare with places; NaN: there is none."""
    is_place = np.isfinite(lon) & np.isfinite(lat)
    np.testing.assert_array_equal(np.isfinite(found["lon"]), is_place)
    np.testing.assert_array_equal(np.isfinite(found["lat"]), is_place)
    points = to_sphere(found["lon"][is_place].astype("f8"), found["lat"][is_place].astype("f8"))
    assert np.abs(points - to_sphere(lon[is_place], lat[is_place])).max() < 1e-6


@pytest.mark.parametrize("name", PROJECTED)
def test_projected_fields(look: Callable[[str], Explorer], name: str) -> None:
    api = look(name)
    about = api.variable("v")["map"]
    assert (about["kind"], about["y"], about["x"], about["lon"]) == ("grid", "y", "x", None)
    text, *ends, scale = PROJECTED[name]
    x, y = np.meshgrid(*(np.linspace(*each) * scale for each in ends))
    lon, lat = pyproj.Proj(text)(x, y, inverse=True, errcheck=False)
    if name == "sinusoidal":  # beyond the outline of the earth
        outside = np.abs(x) > np.pi * 6371007.181 * np.cos(y / 6371007.181) * (1 + 1e-9)
        assert outside.any()
        lon, lat = np.where(outside, np.nan, lon), np.where(outside, np.nan, lat)
    lon, lat = (np.where(np.isfinite(values), values, np.nan) for values in (lon, lat))
    found = api.picture("geometry", variable="v")
    _check_places(found.arrays, lon, lat)
    assert found.arrays["lon"].dtype == ("f8" if name == "utm" else "f4")
    if name == "goes":
        assert 0.1 < np.isnan(found.arrays["lon"]).mean() < 0.5
    part = api.picture("geometry", variable="v", box=[2, 8, 1, 9], rows=3, columns=3)
    rows, columns = [2, 4, 6, 8], [1, 4, 7, 9]
    _check_places(part.arrays, lon[np.ix_(rows, columns)], lat[np.ix_(rows, columns)])


def test_a_rotated_pole(look: Callable[[str], Explorer]) -> None:
    turned = pyproj.Proj("+proj=ob_tran +o_proj=longlat +o_lon_p=0 +o_lat_p=39.25 +lon_0=18 +R=1")
    lon, lat = turned(*np.deg2rad(np.meshgrid(np.arange(-20.5, 21), np.arange(-15.5, 16))), inverse=True)
    _check_places(look("rotated").picture("geometry", variable="v").arrays, lon, lat)


def test_plain_degrees_under_other_names(look: Callable[[str], Explorer]) -> None:
    api = look("degrees")
    assert api.variable("v")["map"] == {"kind": "axes", "y": "y", "x": "x", "lon": "x", "lat": "y", "is_global": False}
    found = api.picture("geometry", variable="v")
    np.testing.assert_allclose(found.arrays["lon_edges"], np.arange(5, 16))
    np.testing.assert_allclose(found.arrays["lat_edges"], np.arange(50, 39, -1))


def test_an_image_that_is_turned(look: Callable[[str], Explorer]) -> None:
    columns, rows = np.meshgrid(np.arange(9), np.arange(7))
    x, y = 400000 + 800 * columns + 600 * rows, 5200000 + 600 * columns - 800 * rows
    lon, lat = pyproj.Proj("+proj=utm +zone=33 +ellps=WGS84")(x, y, inverse=True)
    _check_places(look("turned").picture("geometry", variable="v").arrays, lon, lat)


def test_what_is_no_projection(look: Callable[[str], Explorer]) -> None:
    for name, message in (
        ("nonsense", "pyproj does not understand it"),
        ("beyond", "pyproj cannot compute with it"),
        ("lying", None),
    ):
        api = look(name)
        assert api.variable("v")["map"] is None
        notes = [note["text"] for note in api.json("archive")["notes"]]
        assert (not notes) if message is None else (message in notes[0])
        assert "along 'y' and 'x'" in api.refusal("geometry", variable="v")
        assert api.picture("field", variable="v").header["shape"] == [3, 4]


def test_without_pyproj(look: Callable[[str], Explorer], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(projected_grid, "import_before_fork", missing)
    api = look("utm")
    assert api.variable("v")["map"] is None
    (note,) = api.json("archive")["notes"]
    assert note == {
        "path": "crs",
        "text": "its fields are drawn by position: grid mappings need pyproj. Try `pip install 'insitu[serve]'`",
    }
    assert "need pyproj" in api.refusal("geometry", variable="v")
    assert look("icon").variable("t")["map"]["kind"] == "cells"


def test_cells_of_icon(look: Callable[[str], Explorer], folder: Path) -> None:
    api = look("icon")
    assert api.variable("t")["map"] == {
        "kind": "cells", "y": None, "x": "cell", "lon": "clon", "lat": "clat", "is_global": False
    }  # fmt: skip
    with xr.open_dataset(folder / "icon.nc", engine="h5netcdf") as truth:
        truth.load()
    lon, lat = np.rad2deg(truth.clon_vertices.values), np.rad2deg(truth.clat_vertices.values)
    every = np.arange(500)
    for fields, cells in (
        ({}, every),
        ({"box": [0, 1, 40, 90]}, every[40:90]),
        ({"rows": 4, "columns": 10, "index": {"time": 2}}, 6 + 13 * np.arange(39)),
        ({"rows": 10, "columns": 10, "statistic": "mean", "over": "time"}, 2 + 5 * np.arange(100)),
    ):
        field, place = api.picture("field", variable="t", **fields), api.picture("geometry", variable="t", **fields)
        cells = np.minimum(cells, 496 if len(cells) == 39 else 499)
        values = truth.t.mean("time") if "statistic" in fields else truth.t[2 if "index" in fields else 0]
        np.testing.assert_allclose(field.arrays["values"], values.values[None, cells], rtol=1e-6)
        assert field.header["shape"] == place.header["shape"] == [1, len(cells)]
        assert (field.header["y"], field.header["x"]["dim"]) == (None, "cell")
        np.testing.assert_array_equal(place.arrays["cells"], cells)
        np.testing.assert_array_equal(place.arrays["offsets"], 3 * np.arange(len(cells) + 1))
        _check_places(place.arrays, lon[cells].ravel(), lat[cells].ravel())
    section = api.picture("field", variable="t", y="time", x="cell")
    np.testing.assert_array_equal(section.arrays["values"], truth.t.values)
    line = api.picture("line", variable="t", dim="time", index={"cell": 7})
    np.testing.assert_array_equal(line.arrays["values"], truth.t.values[:, 7])
    with xr.open_dataset(io.BytesIO(api.ask("download", variable="t").body), engine="h5netcdf") as found:
        np.testing.assert_array_equal(found.t, truth.t[0])
    rows = api.ask("download", variable="t", format="csv", box=[0, 1, 3, 5]).body.decode().splitlines()
    assert rows == ["cell,t", *(f"{at},{truth.t.values[0, at]!s}" for at in (3, 4))]


@pytest.mark.parametrize("name", ["ugrid", "ugrid_from_0"])
def test_faces_of_a_mesh(look: Callable[[str], Explorer], name: str) -> None:
    api = look(name)
    assert api.variable("v")["map"]["kind"] == "cells"
    found = api.picture("geometry", variable="v")
    assert found.arrays["offsets"].tolist() == [0, 4, 8, 11]
    nodes = NODES[np.concatenate(FACES)]
    _check_places(found.arrays, nodes[:, 0], nodes[:, 1])
    nodes = api.picture("geometry", variable="w")
    assert nodes.arrays["offsets"].tolist() == list(range(8))
    _check_places(nodes.arrays, NODES[:, 0], NODES[:, 1])


def test_stations_of_which_some_are_nowhere(look: Callable[[str], Explorer]) -> None:
    api = look("stations")
    assert api.variable("t")["map"]["kind"] == "cells"
    assert api.variable("alone")["map"] is None
    found = api.picture("geometry", variable="t")
    np.testing.assert_array_equal(found.arrays["lon"], np.float32([5, 6.5, np.nan, np.nan]))
    np.testing.assert_array_equal(found.arrays["lat"], np.float32([50, 51.5, np.nan, np.nan]))
    assert api.picture("field", variable="t", index={"time": 1}).arrays["values"].tolist() == [[4, 5, 6, 7]]


BALL = pyproj.Geod("+a=1 +b=1")
POLYGON = [[-20.0, 40.0], [30.0, 35.0], [45.0, 62.0], [5.0, 68.0]]


def _inside(lon: Any, lat: Any, polygon: Any) -> Any:
    path = pytest.importorskip("matplotlib.path", reason="no Matplotlib here").Path
    points = np.stack([lon, lat], axis=-1)
    found = path(np.array([*polygon, polygon[0]]), closed=True).contains_points(points.reshape(-1, 2))
    return found.reshape(points.shape[:-1])


def test_regions_of_a_rotated_grid(look: Callable[[str], Explorer]) -> None:
    """Cells of a rotated grid are as large as the cosine of their latitude on it."""
    api, rlon, rlat = look("rotated"), np.arange(-20, 21.0), np.arange(-15, 16.0)
    values = np.arange(rlat.size * rlon.size).reshape(rlat.size, rlon.size)
    weights = np.broadcast_to(np.cos(np.deg2rad(rlat))[:, None], values.shape)
    found = api.picture("region", variable="v", box=[2, 30, 3, 20])
    expected = np.average(values[2:30, 3:20], weights=weights[2:30, 3:20])
    assert found.arrays["values"] == pytest.approx(expected, rel=1e-4)
    assert found.header["weights"] == "areas between the corners of cells"
    turned = pyproj.Proj("+proj=ob_tran +o_proj=longlat +o_lon_p=0 +o_lat_p=39.25 +lon_0=18 +R=1")
    inside = _inside(*turned(*np.deg2rad(np.meshgrid(rlon, rlat)), inverse=True), POLYGON)
    for shift in (0, 360):  # wherever longitudes begin
        polygon = [[lon + shift, lat] for lon, lat in POLYGON]
        found = api.picture("region", variable="v", polygon=polygon, axes="map")
        assert found.header["cells"] == int(inside.sum()) > 100
        assert found.arrays["values"] == pytest.approx(np.average(values[inside], weights=weights[inside]), rel=1e-4)
    assert "the centre of no cell" in api.refusal(
        "region", variable="v", polygon=[[100, -10], [101, -10], [100, -9]], axes="map"
    )


def test_regions_of_cells(look: Callable[[str], Explorer], folder: Path) -> None:
    with xr.open_dataset(folder / "icon.nc", engine="h5netcdf") as truth:
        truth.load()
    lon, lat = np.rad2deg(truth.clon_vertices.values), np.rad2deg(truth.clat_vertices.values)
    areas = np.array([abs(BALL.polygon_area_perimeter(*each)[0]) for each in zip(lon, lat, strict=True)])
    polygon = [[150, -40], [230, -50], [215, 45], [160, 60]]
    centres = np.rad2deg(truth.clon.values) % 360, np.rad2deg(truth.clat.values)
    inside = _inside(*centres, polygon)
    found = look("icon").picture("region", variable="t", polygon=polygon, axes="map", along="time")
    assert found.header["cells"] == int(inside.sum()) > 20
    expected = np.average(truth.t.values[:, inside].astype("f8"), weights=areas[inside], axis=1)
    np.testing.assert_allclose(found.arrays["values"], expected, rtol=1e-5)
    np.testing.assert_array_equal(found.arrays["high"], truth.t.values[:, inside].max(axis=1))
    faces = look("ugrid").picture("region", variable="v", polygon=[[165, 4], [178, 4], [178, 6], [165, 6]], axes="map")
    assert (faces.header["cells"], faces.arrays["values"].tolist()) == (1, [0.0])
    stations = look("stations").picture("region", variable="t", box=[0, 1, 0, 2], along="time")
    assert stations.arrays["values"].tolist() == [0.5, 4.5, 8.5]
    assert stations.header["weights"] == "every cell counts the same"
