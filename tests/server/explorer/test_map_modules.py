"""Projections and tables of cells of the page's maps: run by Node, compared with pyproj."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.explorer.page_modules import run_module

RADIUS = 500.0  # pixels
SIZE = (900, 700)
PLACES = {
    "London": (-0.13, 51.51), "Quito": (-78.47, -0.18), "Cape Horn": (-67.29, -55.98), "Cape Agulhas": (20.0, -34.83),
    "Suva": (178.44, -18.14), "Anadyr": (177.51, 64.73), "Apia": (-171.77, -13.83), "Alert": (-62.35, 82.5),
    "McMurdo": (166.67, -77.85), "Reykjavik": (-21.94, 64.15), "Tokyo": (139.69, 35.69), "Perth": (115.86, -31.95),
}  # fmt: skip
CENTRES = [(0, 0), (175.5, 30), (-120, -50)]


def _pyproj(name: str, lon: float, lat: float) -> str:
    """The projection with a place in the middle of the picture."""
    return {
        "plate": f"+proj=eqc +lon_0={lon}",
        "mercator": f"+proj=merc +lon_0={lon}",
        "equal-earth": f"+proj=eqearth +lon_0={lon}",
        # The scale is half that of pyproj: the equator has the radius 1.
        "north": f"+proj=stere +lat_0=90 +lon_0={lon} +k_0=0.5",
        "south": f"+proj=stere +lat_0=-90 +lon_0={lon} +k_0=0.5",
        "globe": f"+proj=ortho +lon_0={lon} +lat_0={lat}",
    }[name] + f" +R={RADIUS}"


@pytest.mark.parametrize("centre", CENTRES)
@pytest.mark.parametrize("name", ["plate", "mercator", "equal-earth", "north", "south", "globe"])
def test_places_are_those_of_pyproj(tmp_path: Path, name: str, centre: tuple[float, float]) -> None:
    pyproj = pytest.importorskip("pyproj", reason="no pyproj here")
    code = f"""(() => {{
        const size = {{ width: {SIZE[0]}, height: {SIZE[1]} }};
        const map = new module.MapProjection("{name}", {json.dumps(centre)}, {RADIUS}, size);
        return {json.dumps(list(PLACES.values()))}.map(([lon, lat]) => {{
            const point = map.project(lon, lat);
            return point && [point, map.invert(point)];
        }});
    }})()"""
    found = run_module(tmp_path, "projections.js", code)
    oracle = pyproj.Proj(_pyproj(name, *centre))
    x0, y0 = oracle(*centre)
    shown = 0
    for (lon, lat), pair in zip(PLACES.values(), found, strict=True):
        cosine = np.sin(np.deg2rad(lat)) * {"north": 1, "south": -1}.get(name, 0)
        if name == "globe":
            phi, phi0, away = np.deg2rad([lat, centre[1], lon - centre[0]])
            cosine = np.sin(phi) * np.sin(phi0) + np.cos(phi) * np.cos(phi0) * np.cos(away)
        if cosine < 0:
            assert pair is None
            continue
        shown += 1
        x, y = oracle(lon, lat)
        (left, top), inverse = pair
        assert [left - SIZE[0] / 2, SIZE[1] / 2 - top] == pytest.approx([x - x0, y - y0], abs=1e-6)
        assert np.mod(inverse[0] - lon + 180, 360) - 180 == pytest.approx(0, abs=1e-6)
        assert inverse[1] == pytest.approx(lat, abs=1e-6)
    assert shown >= 4


@pytest.mark.parametrize("name", ["plate", "mercator", "equal-earth", "north", "south", "globe"])
def test_a_map_that_is_dragged_holds_the_place_under_the_pointer(tmp_path: Path, name: str) -> None:
    code = f"""(() => {{
        const lat = {json.dumps({"north": 70, "south": -70}.get(name, 20))};
        const map = new module.MapProjection("{name}", [170, lat], 900, {{ width: 900, height: 700 }});
        const place = map.invert([400, 330]);
        const moved = map.movedTo(place, [430, 350]);
        return [place, moved.invert([430, 350]), map.centre, moved.centre];
    }})()"""
    before, after, old, new = run_module(tmp_path, "projections.js", code)
    turn = (np.array(after) - before + 180) % 360 - 180
    np.testing.assert_allclose(turn, 0, atol=1e-6)
    assert old != new


def _table(tmp_path: Path, name: str, centre: list[float], lon: Any, lat: Any, scale: float = 40) -> Any:
    """What pixels show: pairs of a longitude and a latitude, and the entry of the table."""
    (tmp_path / "code.json").write_text(json.dumps([np.asarray(lon).tolist(), np.asarray(lat).tolist()]))
    code = f"""(() => {{
        const [lon, lat] = JSON.parse(fs.readFileSync("code.json"));
        const size = {{ width: 300, height: 160 }};
        const map = new projections.MapProjection("{name}", {json.dumps(centre)}, {scale}, size);
        const {{ cells, width, height }} = module.tableOfAxes(map, 1, Float32Array.from(lon), Float64Array.from(lat));
        return Array.from(cells, (cell, at) => [cell, map.invert([(at % width) + 0.5, Math.floor(at / width) + 0.5])]);
    }})()"""
    code = f'await (async () => {{ const projections = await import("./page/projections.js"); return {code}; }})()'
    return run_module(tmp_path, "cell_table.js", code)


@pytest.mark.parametrize("name", ["plate", "mercator", "equal-earth", "north", "south", "globe"])
@pytest.mark.parametrize(
    ("lon", "lat"),
    [
        (np.arange(0, 361, 7.5), np.linspace(-90, 90, 25)),
        (np.arange(-180, 181, 7.5), np.linspace(90, -90, 25)),
        (np.arange(160, 230, 5), np.array([-40, -38, -30, -11, 0, 5.0])),
        (np.arange(20, -30, -2.0), np.array([70, 60, 30.0])),
    ],
    ids=["0-360", "descending", "date line", "region"],
)
def test_every_pixel_shows_the_cell_that_it_lies_in(
    tmp_path: Path, name: str, lon: np.ndarray[Any, Any], lat: np.ndarray[Any, Any]
) -> None:
    outside = 0
    for entry, place in _table(tmp_path, name, [178.0, 12.0], lon, lat):
        if place is None:
            assert entry == 0
            outside += 1
            continue
        low, high = min(lon), max(lon)
        at_lon = low + (place[0] - low) % 360
        inside = at_lon <= high and lat.min() <= place[1] <= lat.max()
        assert (entry >= 2) == inside
        if not inside:
            continue
        row, column = divmod(entry - 2, len(lon) - 1)
        assert min(lat[row : row + 2]) - 1e-9 <= place[1] <= max(lat[row : row + 2]) + 1e-9
        assert min(lon[column : column + 2]) - 1e-6 <= at_lon <= max(lon[column : column + 2]) + 1e-6
    assert outside > 0


def test_longitudes_all_around_have_no_seam(tmp_path: Path) -> None:
    """Borders of 32 bits end a little before they begin again."""
    lon = np.linspace(-0.05, 359.95, 3601)
    lon[-1] -= 2e-5
    entries = _table(tmp_path, "plate", [359.95, 0], lon, [-80, 80], scale=40)
    assert {place is not None and abs(place[1]) < 80 for entry, place in entries if entry < 2} <= {False}


@pytest.mark.parametrize(
    ("name", "bounds", "centre"),
    [
        ("plate", (0, 360, -90, 90), (180, 0)),
        ("globe", (0, 360, -90, 90), (0, 20)),
        ("north", (0, 360, -90, 90), (0, 90)),
        ("mercator", (-10, 30, 40, 60), (10, None)),
        ("globe", (-10, 30, 40, 60), (10, None)),
        ("south", (100, 140, -80, -60), (120, None)),
    ],
)
def test_all_of_a_region_is_in_view(
    tmp_path: Path, name: str, bounds: tuple[float, ...], centre: tuple[float, float | None]
) -> None:
    west, east, south, north = bounds
    code = f"""(() => {{
        const fit = module.fitBounds("{name}", {{ west: {west}, east: {east}, south: {south}, north: {north} }});
        const size = {{ width: 100 * fit.width, height: 100 * fit.height }};
        const map = new module.MapProjection("{name}", fit.centre, 100, size);
        const [west, east] = [{west} + 0.01, {east} - 0.01];
        const corners = [[west, {south}], [east, {north}], [(west + east) / 2, {north}], [west, {north}]];
        return [fit, corners.map(([lon, lat]) => map.project(lon, lat))];
    }})()"""
    fit, points = run_module(tmp_path, "projections.js", code)
    assert (fit["centre"][0] - centre[0]) % 360 == pytest.approx(0)
    assert centre[1] is None or fit["centre"][1] == pytest.approx(centre[1])
    for point in points:
        if point is not None:
            assert -0.5 <= point[0] <= 100 * fit["width"] + 0.5
            assert -0.5 <= point[1] <= 100 * fit["height"] + 0.5


@pytest.mark.parametrize("name", ["plate", "mercator", "equal-earth", "north", "south", "globe"])
@pytest.mark.parametrize("centre", [(0.0, 0.0), (178.0, 35.0)])
def test_cells_with_corners_lie_where_pyproj_puts_them(tmp_path: Path, name: str, centre: tuple[float, float]) -> None:
    """A grid of all the earth around a rotated pole: cells over poles and date line, and none left out."""
    pyproj = pytest.importorskip("pyproj", reason="no pyproj here")
    pole = {"grid_north_pole_latitude": 40.0, "grid_north_pole_longitude": 15.0}
    rotated = pyproj.CRS.from_cf({"grid_mapping_name": "rotated_latitude_longitude", **pole})
    to_rotated = pyproj.Transformer.from_crs("EPSG:4326", rotated, always_xy=True)
    columns, rows = np.linspace(-180, 180, 61), np.linspace(-90, 90, 31)
    lon, lat = to_rotated.transform(*np.meshgrid(columns, rows), direction="INVERSE")
    (tmp_path / "corners.json").write_text(json.dumps([lon.ravel().tolist(), lat.ravel().tolist()]))
    code = f"""await (async () => {{
        const {{ MapProjection }} = await import("./page/projections.js");
        const {{ CornerGeometry }} = await import("./page/cell_geometry.js");
        const [lon, lat] = JSON.parse(fs.readFileSync("corners.json")).map((list) => Float64Array.from(list));
        const header = {{ kind: "grid", shape: [30, 60], sampling: {{ step: [1, 1] }} }};
        const geometry = new CornerGeometry({{ header, arrays: {{ lon, lat }} }});
        const map = new MapProjection("{name}", {json.dumps(centre)}, 60, {{ width: 400, height: 200 }});
        const {{ cells }} = geometry.table(map, 1);
        const place = (at) => map.invert([(at % 400) + 0.5, Math.floor(at / 400) + 0.5]);
        const places = Array.from(cells, (cell, at) => [cell, place(at)]);
        return [places, geometry.middle(12, 7), geometry.bounds];
    }})()"""
    places, middle, bounds = run_module(tmp_path, "cell_table.js", code)
    assert [entry for entry, place in places if (place is None) != (entry == 0)] == []
    inside = [(entry, *place) for entry, place in places if place is not None]
    entries, lons, lats = np.array(inside).T
    assert np.mean(entries < 2) < 0.002  # corners at the edge of a globe
    x, y = to_rotated.transform((lons + 180) % 360 - 180, lats)
    expected_row, expected_column = ((np.array(y) + 90) // 6).astype(int), ((np.array(x) + 180) // 6).astype(int) % 60
    row, column = np.divmod(entries.astype(int) - 2, 60)
    away = np.abs(column - expected_column)
    near = (np.abs(row - expected_row) <= 1) & ((np.minimum(away, 60 - away) <= 1) | (np.abs(y) > 80))
    exact = (row == expected_row) & (column == expected_column)
    # Edges of cells are straight lines between their corners here.
    assert np.mean(near) > 0.995
    assert np.mean(exact) > 0.9
    expected = to_rotated.transform(columns[7] + 3, rows[12] + 3, direction="INVERSE")
    np.testing.assert_allclose(middle, expected, atol=0.2)
    assert bounds == {"west": -180, "east": 180, "south": -90, "north": 90}


def _cells_table(tmp_path: Path, name: str, lon: Any, lat: Any, offsets: Any, step: int = 1) -> Any:
    """What pixels show of cells that do not lie in rows, and their places."""
    arrays = [np.asarray(numbers).tolist() for numbers in (lon, lat, offsets)]
    (tmp_path / "cells.json").write_text(json.dumps(arrays))
    code = f"""await (async () => {{
        const {{ MapProjection }} = await import("./page/projections.js");
        const {{ toGeometry }} = await import("./page/cell_geometry.js");
        const [lon, lat, offsets] = JSON.parse(fs.readFileSync("cells.json")).map((list) => Float64Array.from(list));
        const header = {{ kind: "cells", shape: [1, offsets.length - 1], sampling: {{ step: [1, {step}] }} }};
        const geometry = toGeometry({{ header, arrays: {{ lon, lat, offsets }} }});
        const map = new MapProjection("{name}", [100, 30], 60, {{ width: 300, height: 160 }});
        const {{ cells }} = geometry.table(map, 1);
        return Array.from(cells, (cell, at) => [cell, map.invert([(at % 300) + 0.5, Math.floor(at / 300) + 0.5])]);
    }})()"""
    return run_module(tmp_path, "cell_table.js", code)


def _to_sphere(lon: Any, lat: Any) -> np.ndarray[Any, Any]:
    lon, lat = np.deg2rad(lon), np.deg2rad(lat)
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)


@pytest.mark.parametrize("name", ["plate", "equal-earth", "north", "globe"])
def test_triangles_all_over_the_earth(tmp_path: Path, name: str) -> None:
    """As ICON has them: every pixel shows the triangle that its place lies in, also at the poles and the date line."""
    spatial = pytest.importorskip("scipy.spatial")
    number = np.arange(600) + 0.5
    polar, around = np.arccos(1 - 2 * number / 600), np.pi * (1 + 5**0.5) * number
    points = np.stack([np.cos(around) * np.sin(polar), np.sin(around) * np.sin(polar), np.cos(polar)], -1)
    hull = spatial.ConvexHull(points)
    corners = points[hull.simplices]
    lon, lat = np.rad2deg(np.arctan2(corners[..., 1], corners[..., 0])), np.rad2deg(np.arcsin(corners[..., 2]))
    found = _cells_table(tmp_path, name, lon.ravel(), lat.ravel(), np.arange(len(corners) + 1) * 3)
    entries = np.array([entry for entry, place in found if place is not None])
    places = _to_sphere(*np.array([place for _, place in found if place is not None]).T)
    assert np.mean(entries < 2) < 0.005
    expected = np.argmax(places @ (hull.equations[:, :3] / -hull.equations[:, 3:]).T, axis=1)
    assert np.mean(entries - 2 == expected) > 0.9  # edges are straight lines here
    near = [
        len(set(hull.simplices[one]) & set(hull.simplices[other]))
        for one, other in zip(entries - 2, expected, strict=True)
    ]
    assert np.mean(np.array(near) >= 1) > 0.985


@pytest.mark.parametrize("name", ["plate", "globe"])
def test_points_are_drawn_around_their_places(tmp_path: Path, name: str) -> None:
    random = np.random.default_rng(5)
    lon, lat = random.uniform(40, 160, 300), random.uniform(-40, 80, 300)
    found = _cells_table(tmp_path, name, lon, lat, np.arange(301))
    shown = {entry - 2 for entry, _ in found if entry >= 2}
    assert len(shown) > 200
    points = _to_sphere(lon, lat)
    away = [
        np.rad2deg(np.arccos(np.clip(points[entry - 2] @ _to_sphere(*place), -1, 1)))
        for entry, place in found
        if entry >= 2 and (name == "plate" or abs(place[0] - 100) + abs(place[1] - 30) < 60)
    ]
    assert max(away) < 8  # 3.5 pixels, at 60 pixels for each radian, in the middle of a globe


def test_cells_that_stand_for_others_are_drawn_larger(tmp_path: Path) -> None:
    lon = [[at, at + 2, at + 2, at] for at in range(60, 140, 4)]
    lat = [[20, 20, 22, 22]] * 20
    few, many = (
        sum(
            entry >= 2
            for entry, _ in _cells_table(tmp_path, "plate", np.ravel(lon), np.ravel(lat), np.arange(21) * 4, step)
        )
        for step in (1, 4)
    )
    assert many > 3 * few > 0
