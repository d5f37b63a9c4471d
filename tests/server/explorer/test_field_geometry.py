"""Where cells lie on the earth: positions compared with pyproj, values with xarray.

Modules: server/explorer/cell_corners.py, server/explorer/cell_geometry.py, server/explorer/find_map.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from insitu.server.explorer.cell_corners import edges_of_axis, polygon_areas, to_sphere
from server.explorer.client import AppServer, Explorer

pyproj = pytest.importorskip("pyproj")
pytestmark = pytest.mark.servers

LON = {"units": "degrees_east", "standard_name": "longitude"}
LAT = {"units": "degrees_north", "standard_name": "latitude"}
ROTATED = {
    "grid_mapping_name": "rotated_latitude_longitude",
    "grid_north_pole_latitude": 39.25,
    "grid_north_pole_longitude": -162.0,
}
FOLDED = [[0, 1, 2, 3], [1, 2, 3, 0], [3, 2, 1, 0], [0, 2, 1, 3]]
"""Vertices as CF has them, beginning elsewhere, clockwise, and crossing."""


def _rotated_place(x: Any, y: Any) -> tuple[Any, Any]:
    crs = pyproj.CRS.from_cf(ROTATED)
    return pyproj.Transformer.from_crs(crs, crs.source_crs, always_xy=True).transform(x, y)


def _tilted(rlon: Any, rlat: Any, order: list[int] | None = None) -> dict[str, Any]:
    """Longitudes and latitudes of a rotated grid, with bounds if their order is given."""
    lon, lat = _rotated_place(*np.meshgrid(rlon, rlat))
    about = {"lon": (("y", "x"), lon, dict(LON)), "lat": (("y", "x"), lat, dict(LAT))}
    if order is not None:
        edges = edges_of_axis(rlon), edges_of_axis(rlat)
        corners = _rotated_place(*np.meshgrid(*edges))
        for name, values in zip(("lon", "lat"), corners, strict=True):
            counterclockwise = [values[:-1, :-1], values[:-1, 1:], values[1:, 1:], values[1:, :-1]]
            about[f"{name}_bnds"] = (("y", "x", "nv"), np.stack([counterclockwise[one] for one in order], axis=-1))
            about[name][2]["bounds"] = f"{name}_bnds"
    return about


RLON, RLAT = np.arange(-20, 24, 0.5), np.arange(-22, 20, 0.5)


def _datasets() -> Iterator[tuple[str, xr.Dataset]]:
    random = np.random.default_rng(3)
    lon, lat = np.arange(0, 360, 15.0), np.arange(-87.5, 90, 5)
    axes = {"lon": ("lon", lon, LON), "lat": ("lat", lat, LAT), "time": ("time", np.arange(3))}
    values = random.random((3, len(lat), len(lon)), "f4")
    data = {
        "tas": (("time", "lat", "lon"), values),
        "turned": (("lon", "lat"), values[0].T.copy()),
        "zonal": (("time", "lat"), values[:, :, 0].copy()),
    }
    yield "axes", xr.Dataset(data, axes)
    other = {
        "lon": ("lon", np.arange(100, 260, 4.0) - 360 * (np.arange(100, 260, 4.0) > 180), LON),
        "lat": ("lat", np.linspace(90, -90, 19), LAT),
    }
    yield "date_line", xr.Dataset({"v": (("lat", "lon"), random.random((19, 40)))}, other)
    plane = random.random((len(RLAT), len(RLON)))
    for number, order in enumerate([None, *FOLDED]):
        about = _tilted(RLON, RLAT, order)
        coords = {name: about.pop(name) for name in ("lon", "lat")}
        yield f"tilted_{number}", xr.Dataset({"v": (("y", "x"), plane), **about}, coords)
    turned = _tilted(RLON, RLAT)
    coords = {name: (("x", "y"), values.T.copy(), attributes) for name, (_, values, attributes) in turned.items()}
    yield "turned", xr.Dataset({"v": (("t", "y", "x"), plane[None])}, coords)
    moving = {name: (("t", "y", "x"), np.stack([v, v + 1]), a) for name, (_, v, a) in turned.items()}
    yield "moving", xr.Dataset({"v": (("t", "y", "x"), np.stack([plane, plane]))}, moving)


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Explorer]:
    folder = tmp_path_factory.mktemp("lying")
    for name, dataset in _datasets():
        dataset.to_netcdf(folder / f"{name}.nc", engine="h5netcdf")
    return lambda name: Explorer(AppServer((str(folder),)), str(folder / f"{name}.nc"))


def _distance(lon: Any, lat: Any, true_lon: Any, true_lat: Any) -> Any:
    """Degrees between places."""
    return np.rad2deg(
        np.linalg.norm(to_sphere(lon, lat) - to_sphere(np.asarray(true_lon), np.asarray(true_lat)), axis=-1)
    )


def test_axes(look: Callable[[str], Explorer]) -> None:
    api = look("axes")
    assert api.variable("tas")["map"] == {
        "kind": "axes", "y": "lat", "x": "lon", "lon": "lon", "lat": "lat", "is_global": True
    }  # fmt: skip
    assert api.variable("zonal")["map"] is None
    assert api.variable("lon")["map"] is None
    found = api.picture("geometry", variable="tas")
    assert (found.header["kind"], found.header["shape"]) == ("axes", [36, 24])
    np.testing.assert_allclose(found.arrays["lon_edges"], np.arange(-7.5, 360, 15))
    np.testing.assert_allclose(found.arrays["lat_edges"], np.arange(-90, 91, 5))
    part = api.picture("geometry", variable="tas", box=[6, 36, 3, 24], rows=7, columns=5)
    field = api.picture("field", variable="tas", box=[6, 36, 3, 24], rows=7, columns=5)
    assert part.header["shape"] == field.header["shape"] == [6, 5]
    assert part.header["sampling"] == field.header["sampling"]
    np.testing.assert_allclose(part.arrays["lon_edges"], [37.5, 112.5, 187.5, 262.5, 337.5, 352.5])
    np.testing.assert_allclose(part.arrays["lat_edges"], [-60, -35, -10, 15, 40, 65, 90])
    assert "along 'lat' and 'time'" in api.refusal("geometry", variable="zonal")


def test_texts_are_no_latitudes(tmp_path: Path) -> None:
    coords = {"lat": ("lat", np.array(["a", "b", "c"]), LAT), "lon": ("lon", np.arange(4.0), LON)}
    xr.Dataset({"v": (("lat", "lon"), np.eye(3, 4))}, coords).to_netcdf(tmp_path / "texts.nc", engine="netcdf4")
    api = Explorer(AppServer((str(tmp_path),)), str(tmp_path / "texts.nc"))
    assert api.variable("v")["map"] is None
    field = api.picture("field", variable="v")
    np.testing.assert_array_equal(field.arrays["values"], np.eye(3, 4))
    assert field.header["y"]["labels"] == ["a", "b", "c"]
    region = api.picture("region", variable="v", box=[0, 3, 0, 4])
    assert region.header["weights"] == "every cell counts the same"
    assert region.arrays["values"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("longitudes", "is_global"),
    [
        (np.linspace(0, 360, 13), True),  # the first meridian twice
        (np.linspace(-180, 180, 13), True),
        (np.arange(15, 360, 30), True),  # centres
        (np.arange(0, 360, 30)[::-1], True),
        ((np.arange(0, 360, 30) + 180) % 360 - 180, True),
        (np.arange(0, 330, 30), False),  # one is missing
        ((np.arange(150, 211, 5) + 180) % 360 - 180, False),  # across the date line
        (np.arange(350, 380, 5) % 360, False),
        (np.array([12.5]), False),
    ],
)
def test_which_longitudes_go_around_the_earth(tmp_path: Path, longitudes: Any, is_global: bool) -> None:
    coords = {"lat": ("lat", [-10.0, 0, 10], LAT), "lon": ("lon", longitudes, LON)}
    values = np.arange(3.0 * len(longitudes)).reshape(3, -1)
    xr.Dataset({"v": (("lat", "lon"), values)}, coords).to_netcdf(tmp_path / "v.nc", engine="h5netcdf")
    api = Explorer(AppServer((str(tmp_path),)), str(tmp_path / "v.nc"))
    assert api.variable("v")["map"]["is_global"] == is_global
    edges = api.picture("geometry", variable="v").arrays["lon_edges"]
    if len(longitudes) > 1:
        centres = (edges[1:] + edges[:-1]) / 2
        np.testing.assert_allclose((centres - longitudes + 180) % 360, 180, atol=1e-6)
        assert np.abs(np.diff(edges)).max() < 31  # no cell goes around the earth


def test_the_other_way_round(look: Callable[[str], Explorer]) -> None:
    """Longitudes along the rows are drawn where they lie, too."""
    found = look("axes").picture("geometry", variable="turned", y="lon", x="lat")
    assert (found.header["kind"], found.header["shape"]) == ("grid", [24, 36])
    lon, lat = np.meshgrid(np.arange(-7.5, 360, 15), np.arange(-90, 91, 5), indexing="ij")
    assert _distance(found.arrays["lon"], found.arrays["lat"], lon, lat).max() < 1e-4


def test_the_date_line_and_descending_latitudes(look: Callable[[str], Explorer]) -> None:
    api = look("date_line")
    assert not api.variable("v")["map"]["is_global"]
    found = api.picture("geometry", variable="v")
    np.testing.assert_allclose(found.arrays["lon_edges"], np.arange(98, 260, 4))
    np.testing.assert_allclose(found.arrays["lat_edges"], [90, *np.arange(85, -90, -10), -90])


@pytest.mark.parametrize("name", [*(f"tilted_{number}" for number in range(5)), "turned", "moving"])
def test_corners_of_a_curvilinear_grid(look: Callable[[str], Explorer], name: str) -> None:
    api = look(name)
    y, x = "xy" if name == "turned" else "yx"
    assert api.variable("v")["map"] == {
        "kind": "grid", "y": y, "x": x, "lon": "lon", "lat": "lat", "is_global": False
    }  # fmt: skip
    exact = name.removeprefix("tilted_") in "1234"
    edges = edges_of_axis(RLON), edges_of_axis(RLAT)
    for box, steps in (([0, 84, 0, 88], (1, 1)), ([10, 71, 5, 88], (1, 1)), ([10, 71, 5, 88], (4, 7))):
        rows, columns = -(-(box[1] - box[0]) // steps[0]), -(-(box[3] - box[2]) // steps[1])
        found = api.picture("geometry", variable="v", y="y", x="x", box=box, rows=rows, columns=columns)
        at = [
            np.unique(np.append(np.arange(*ends, step), ends[1]))
            for ends, step in zip((box[:2], box[2:]), steps, strict=True)
        ]
        true = _rotated_place(*np.meshgrid(edges[0][at[1]], edges[1][at[0]]))
        missed = _distance(found.arrays["lon"], found.arrays["lat"], *true)
        # Between centres, a corner is off by what the grid bends within a cell.
        assert missed.shape == (len(at[0]), len(at[1]))
        assert missed.max() < (2e-5 if exact else 0.05 if steps != (1, 1) else 0.005), (name, box)


def test_coordinates_that_move_with_time(look: Callable[[str], Explorer]) -> None:
    first, second = (look("moving").picture("geometry", variable="v", index={"t": t}).arrays["lat"] for t in (0, 1))
    assert 0.9 < np.median(second - first) < 1.1


def test_areas_of_polygons() -> None:
    """An octant is an eighth of the sphere; cells are what pyproj says, of either direction."""
    octant = to_sphere(np.array([0.0, 90.0, 0.0]), np.array([0.0, 0.0, 90.0]))
    assert polygon_areas(octant) == pytest.approx(np.pi / 2)
    lon, lat = np.array([10.0, 20.0, 24.0, 12.0]), np.array([40.0, 41.0, 50.0, 52.0])
    area, _ = pyproj.Geod("+a=1 +b=1").polygon_area_perimeter(lon, lat)
    assert polygon_areas(to_sphere(lon, lat)) == pytest.approx(area, rel=1e-6)
    assert polygon_areas(to_sphere(lon, lat)[::-1]) == pytest.approx(area, rel=1e-6)
