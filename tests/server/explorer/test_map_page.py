"""Maps on the explorer's page in a real browser: places compared with pyproj, values with xarray."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import xarray as xr

from server.explorer.page import ExplorerPage, number_in
from server.serving import Server, serving

pytestmark = [pytest.mark.browser, pytest.mark.servers, pytest.mark.slow]

Open = Callable[..., ExplorerPage]
# Cape Town, Cape Horn, Auckland, Reykjavik, Seoul, Alert: none of them at the border of a cell.
PLACES = [(18.42, -33.92), (-67.29, -55.98), (174.76, -36.85), (-21.94, 64.15), (126.98, 37.57), (-62.35, 82.5)]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fields that are larger than a picture, and one of all the earth whose values are its cells."""
    folder: Path = tmp_path_factory.mktemp("earth")
    lat, lon = np.linspace(-88.5, 88.5, 60), np.arange(2, 360, 4.0)
    numbers = np.arange(60 * 90.0).reshape(60, 90)
    coords = {"lat": ("lat", lat, {"units": "degrees_north"}), "lon": ("lon", lon, {"units": "degrees_east"})}
    xr.Dataset({"cell": (("lat", "lon"), numbers)}, coords).to_netcdf(folder / "coarse.nc", engine="h5netcdf")
    coarse = coords
    lat, lon = np.linspace(89.9, -89.9, 900), np.linspace(-179.95, 179.95, 3600)
    values = (np.arange(900)[:, None] * 3600.0 + np.arange(3600)).astype("f4")
    coords = {"lat": ("lat", lat, {"units": "degrees_north"}), "lon": ("lon", lon, {"units": "degrees_east"})}
    xr.Dataset({"cell": (("lat", "lon"), values)}, coords).to_netcdf(folder / "fine.nc", engine="h5netcdf")
    bands = np.stack([numbers / 100, 60 - numbers / 200, np.full_like(numbers, 7)])
    bands[1, 40, :10] = np.nan
    coords = {"lat": ("lat", np.linspace(-88.5, 88.5, 60), {"units": "degrees_north"}), "lon": coarse["lon"]}
    xr.Dataset({"cell": (("band", "lat", "lon"), bands)}, coords).to_netcdf(folder / "bands.nc", engine="h5netcdf")
    return folder


@pytest.fixture(scope="module")
def server(archive: Path) -> Iterator[Server]:
    with serving([archive], archive / "serve.log") as running:
        yield running


def _link(file: Path, **state: object) -> str:
    parts = {"url": str(file), "variable": "cell", **state}
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in parts.items()}
    return "#" + "&".join(f"{key}={quote(value)}" for key, value in texts.items())


def _fields(page: ExplorerPage) -> int:
    return sum("/api/field?" in url for url in page.requests)


def _hover(page: ExplorerPage, left: float, top: float) -> tuple[int, int] | None:
    """Row and column under a point, as shares of the picture."""
    page.find(".surface").scroll_into_view_if_needed()
    box = page.find(".surface").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] * left, box["y"] + box["height"] * top)
    # Moves are handed over with the next frame.
    page.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    if page.find(".crosshair").is_hidden():
        return None
    shown = page.find(".readout")
    return int(shown.get_attribute("data-y") or -1), int(shown.get_attribute("data-x") or -1)


def _size(page: ExplorerPage) -> tuple[float, float]:
    box: dict[str, Any] = page.find(".surface").bounding_box()
    return box["width"], box["height"]


PROJECTIONS = {
    "plate": ("+proj=eqc +lon_0=180", (2 * np.pi, np.pi)),
    "equal-earth": ("+proj=eqearth +lon_0=180", None),
    "mercator": ("+proj=merc +lon_0=180", (2 * np.pi, 2 * np.pi)),
    "north": ("+proj=stere +lat_0=90 +lon_0=0 +k_0=0.5", (2, 2)),
    "south": ("+proj=stere +lat_0=-90 +lon_0=0 +k_0=0.5", (2, 2)),
    "globe": ("+proj=ortho +lat_0=20 +lon_0=0", (2, 2)),
}


def test_the_value_under_the_pointer_is_that_of_the_place(open_page: Open, server: Server, archive: Path) -> None:
    """Cities and capes, projected by pyproj: the pointer there reads the cell that they lie in."""
    pyproj = pytest.importorskip("pyproj", reason="no pyproj here")
    page = open_page(server.url, _link(archive / "coarse.nc"))
    page.wait_for_picture()
    for name, (projection, extent) in PROJECTIONS.items():
        page.find("select[aria-label=Projection]").select_option(name)
        project = pyproj.Proj(f"{projection} +R=1")
        extent = extent or (2 * project(359.999999, 0)[0], 2 * project(180, 90)[1])
        width, height = _size(page)
        scale = min(width / extent[0], height / extent[1])
        read = 0
        for lon, lat in PLACES:
            x, y = project(lon, lat)
            if not np.isfinite(x) or (np.hypot(x, y) > 1 and name in ("north", "south")):
                continue
            _hover(page, 0.5 + x * scale / width, 0.5 - y * scale / height)
            page.page.wait_for_function(
                "([y, x]) => document.querySelector(`.readout[data-y='${y}'][data-x='${x}']`)",
                arg=[int((lat + 90) // 3), int(lon % 360 // 4)],
            )
            read += 1
        assert read >= 2
        assert _hover(page, 0.003, 0.003) is None or name in ("plate", "mercator")


def test_dragging_and_zooming_ask_for_nothing_while_all_values_are_there(
    open_page: Open, server: Server, archive: Path
) -> None:
    page = open_page(server.url, _link(archive / "coarse.nc"))
    page.wait_for_picture()
    requests = _fields(page)
    width, height = _size(page)
    box = page.find(".surface").bounding_box()
    middle = (box["x"] + width / 2, box["y"] + height / 2)
    before = _hover(page, 0.51, 0.51)
    page.draw(middle, (middle[0] + width / 4, middle[1]))
    page.page.wait_for_function("() => location.hash.includes('centre=')")
    assert json.loads(page.state["centre"])[0] == pytest.approx(90, abs=0.6)
    assert _hover(page, 0.76, 0.51) == before
    assert _hover(page, 0.1, 0.51) is not None  # what left at one side came in at the other one
    _hover(page, 0.76, 0.51)
    for _ in range(3):
        page.page.mouse.wheel(0, -200)
    page.page.wait_for_function("() => Number(new URLSearchParams(location.hash.slice(1)).get('zoom')) > 3")
    assert _hover(page, 0.76, 0.51) == before
    assert _fields(page) == requests
    page.find(".surface").press("Escape")
    page.page.wait_for_function("() => !location.hash.includes('zoom=')")
    assert _hover(page, 0.51, 0.51) == before


def test_finer_values_come_after_a_zoom_and_a_link_restores_them(
    open_page: Open, server: Server, archive: Path
) -> None:
    page = open_page(server.url, _link(archive / "fine.nc"))
    page.wait_for_picture()
    assert "mean of" in page.find(".caption").inner_text()
    _hover(page, 0.8015, 0.3)  # the middle of a cell
    for _ in range(5):
        page.page.mouse.wheel(0, -240)
    page.page.wait_for_function("() => Number(new URLSearchParams(location.hash.slice(1)).get('zoom')) > 15")
    page.wait_for_picture()
    page.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('Every value')")
    requests = _fields(page)
    row, column = _hover(page, 0.8015, 0.3) or (-1, -1)
    assert number_in(page.find(".readout .value").inner_text()) == row * 3600 + column
    begin = json.loads(page.state["centre"])
    for key, sign in (("a", "!="), ("d", "==")):  # there and back, within what came; the link follows the map's rest
        page.find(".surface").press(key)
        page.page.wait_for_function(
            "([longitude, sign]) => { const centre = new URLSearchParams(location.hash.slice(1)).get('centre');"
            " return (Math.abs(JSON.parse(centre)[0] - longitude) < 1e-3) === (sign === '=='); }",
            arg=[begin[0], sign],
        )
    other = open_page(server.url, page.page.url.removeprefix(f"{server.url}/"))
    other.page.wait_for_function("() => document.querySelector('.caption')?.textContent.includes('Every value')")
    assert _hover(other, 0.8015, 0.3) == _hover(page, 0.8015, 0.3)
    page.find("button", has_text="Show all").click()
    page.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('mean of')")
    assert _fields(page) == requests


def test_a_composite_lies_on_the_map(open_page: Open, server: Server, archive: Path) -> None:
    """Its colours and words are those of the bands of the cell under the pointer, in every projection."""
    limits = {"low": 0, "high": 60, "lines": "none"}
    page = open_page(server.url, _link(archive / "bands.nc", rgb=[1, 0, 2], **limits))
    with xr.open_dataset(archive / "bands.nc", engine="h5netcdf") as dataset:
        bands = dataset.cell.values
    for projection in ("plate", "globe"):
        page.find("select[aria-label=Projection]").select_option(projection)
        page.wait_for_picture()
        for left, top in ((0.52, 0.3), (0.6, 0.55), (0.4, 0.62)):
            found = _hover(page, left, top)
            assert found is not None
            red, green, blue = bands[[1, 0, 2], found[0], found[1]]
            words = page.find(".readout .value").inner_text()
            assert [number_in(part) for part in words.split(",")] == pytest.approx([red, green, blue], rel=1e-5)
            pixel = page.page.evaluate(
                """([x, y]) => { const canvas = document.querySelector('canvas.raster');
                return [...canvas.getContext('2d').getImageData(canvas.width * x, canvas.height * y, 1, 1).data]; }""",
                [left, top],
            )
            assert pixel == pytest.approx([255 * red / 60, 255 * green / 60, 255 * blue / 60, 255], abs=1.5)
    page.find("input[name=composite]").uncheck()
    page.find(".readout", has_text="Move over").wait_for()
    assert "rgb" not in page.state


def test_coastlines_are_drawn_and_saved(open_page: Open, server: Server, archive: Path) -> None:
    """Lines change the picture on the screen; a mask covers land, and the north pole is ocean."""
    page = open_page(server.url, _link(archive / "coarse.nc", projection="globe", lines="none", mask="land"))
    page.wait_for_picture()
    pixels = """() => { const canvas = document.querySelector('canvas.raster');
        const at = (x, y) => [...canvas.getContext('2d').getImageData(canvas.width * x, canvas.height * y, 1, 1).data];
        const land = getComputedStyle(document.documentElement).getPropertyValue('--land').trim();
        return [at(0.5, 0.5), at(0.42, 0.86), [1, 3, 5].map((digit) => parseInt(land.slice(digit, digit + 2), 16)),
          canvas.toDataURL()]; }"""
    page.page.wait_for_function(
        f"() => {{ const [sahara, , land] = ({pixels})(); return sahara.slice(0, 3).join() === land.join(); }}"
    )
    _, ocean, land, before = page.page.evaluate(pixels)
    assert ocean[:3] != land
    page.unfold()
    page.find("input[name=coasts]").check()
    page.page.wait_for_function(f"(before) => ({pixels})()[3] !== before", arg=before)
    assert page.state["lines"] == "coasts"
    with page.page.expect_download() as download:
        page.find(".export button", has_text="PNG").click()
    assert len(Path(download.value.path()).read_bytes()) > 30_000


def test_two_fingers_zoom(open_page: Open, server: Server, archive: Path) -> None:
    page = open_page(server.url, _link(archive / "coarse.nc"), has_touch=True)
    page.wait_for_picture()
    page.page.evaluate(
        """() => { const surface = document.querySelector('.surface');
        const box = surface.getBoundingClientRect();
        surface.setPointerCapture = () => {};
        const send = (type, id, x) => surface.dispatchEvent(new PointerEvent(type, { pointerId: id, bubbles: true,
          clientX: box.left + x, clientY: box.top + box.height / 2, button: 0, pointerType: 'touch' }));
        send('pointerdown', 1, 200); send('pointerdown', 2, 260);
        for (const apart of [40, 70, 90]) { send('pointermove', 1, 230 - apart); send('pointermove', 2, 230 + apart); }
        send('pointerup', 1, 140); send('pointerup', 2, 320); }"""
    )
    page.page.wait_for_function("() => location.hash.includes('zoom=')")
    assert float(page.state["zoom"]) == pytest.approx(3, rel=0.01)


def test_the_keyboard_moves_the_cross_hair_and_the_map(open_page: Open, server: Server, archive: Path) -> None:
    page = open_page(server.url, _link(archive / "coarse.nc", projection="north"))
    page.wait_for_picture()
    surface = page.find(".surface")
    surface.focus()
    rows = []
    # From the pole, which many cells meet at, to the south.
    for key in ("Shift+ArrowDown", "Shift+ArrowDown", "ArrowDown", "ArrowDown"):
        surface.press(key)
        rows.append(int(page.find(".readout").get_attribute("data-y") or -1))
    assert rows[1] < 59
    assert rows[3] < rows[1]
    surface.press("d")
    surface.press("+")
    page.page.wait_for_function("() => location.hash.includes('centre=') && location.hash.includes('zoom=1.6')")
    page.find("select[aria-label=Projection]").select_option("none")
    page.wait_for_picture()
    assert page.state["projection"] == "none"
    assert "centre" not in page.state
    assert page.find(".axis-title").count() >= 2


def test_a_rotated_grid_lies_where_pyproj_puts_it(open_page: Open, tmp_path: Path) -> None:
    """The pointer at a city reads the cell that holds it; a region follows the grid, contour lines too."""
    pyproj = pytest.importorskip("pyproj", reason="no pyproj here")
    pole = {"grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0}
    mapping = {"grid_mapping_name": "rotated_latitude_longitude", **pole}
    to_grid = pyproj.Transformer.from_crs("EPSG:4326", pyproj.CRS.from_cf(mapping), always_xy=True)
    rlon, rlat = np.arange(-20, 20.1, 2), np.arange(-16, 16.1, 2)
    lon, lat = to_grid.transform(*np.meshgrid(rlon, rlat), direction="INVERSE")
    numbers = np.arange(rlat.size * rlon.size, dtype="f8").reshape(rlat.size, rlon.size)
    dims = ("rlat", "rlon")
    xr.Dataset(
        {"cell": (dims, numbers, {"coordinates": "lon lat", "grid_mapping": "pole"}), "pole": ((), 0, mapping)},
        {
            "rlon": ("rlon", rlon, {"standard_name": "grid_longitude", "units": "degrees"}),
            "rlat": ("rlat", rlat, {"standard_name": "grid_latitude", "units": "degrees"}),
            "lon": (dims, lon, {"units": "degrees_east", "standard_name": "longitude"}),
            "lat": (dims, lat, {"units": "degrees_north", "standard_name": "latitude"}),
        },
    ).to_netcdf(tmp_path / "rotated.nc", engine="h5netcdf")
    with serving([tmp_path], tmp_path / "serve.log") as running:
        regions = [{"box": [4, 9, 6, 12]}]
        page = open_page(running.url, _link(tmp_path / "rotated.nc", contours="cell", regions=regions))
        page.wait_for_picture()
        page.find("path.contour").first.wait_for(state="attached")
        assert page.find("polygon.region").count() == 1
        ticks = page.page.evaluate(
            """() => [...document.querySelectorAll('.axes .axis text')].map((text) =>
              [text.textContent, Number(text.getAttribute('x')), Number(text.getAttribute('y'))])"""
        )
        # The scale is read from the labels beside the map.
        places = {text: (left, top) for text, left, top in ticks}
        (west, east), (south, north) = (places["0°"][0], places["20° E"][0]), (places["40° N"][1], places["60° N"][1])
        for city in [(2.35, 48.86), (12.5, 41.9), (24.94, 60.17), (-3.7, 40.42)]:
            x, y = to_grid.transform(*city)
            left, top = west + city[0] / 20 * (east - west), south + (city[1] - 40) / 20 * (north - south)
            width, height = _size(page)
            _hover(page, left / width, top / height)
            page.page.wait_for_function(
                "([y, x]) => document.querySelector(`.readout[data-y='${y}'][data-x='${x}']`)",
                arg=[round((y + 16) / 2), round((x + 20) / 2)],
            )
            assert "° N" in page.find(".readout").inner_text()


def _mean(page: ExplorerPage, region: int) -> float:
    cell = page.find(f"tr[data-region='{region}'] td[data-value]").first
    return float(cell.get_attribute("data-value") or "nan")


def _draw(page: ExplorerPage, begin: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw a box between two points, as shares of the picture."""
    page.find(".surface").scroll_into_view_if_needed()
    box = page.find(".surface").bounding_box()
    page.draw(
        (box["x"] + box["width"] * begin[0], box["y"] + box["height"] * begin[1]),
        (box["x"] + box["width"] * end[0], box["y"] + box["height"] * end[1]),
    )


def test_a_box_across_the_seam_of_the_longitudes(open_page: Open, server: Server, archive: Path) -> None:
    """It holds the cells that it shows, not those on the other side of the earth."""
    page = open_page(server.url, _link(archive / "coarse.nc", centre=[0, 0]))
    page.wait_for_picture()
    page.find("[data-mode=box]").click()
    _draw(page, (0.4, 0.3), (0.6, 0.5))
    page.find("tr[data-region='0']").wait_for()
    region = json.loads(page.state["regions"])[0]
    (west, north), (east, south) = region["polygon"][0], region["polygon"][2]
    assert (west, east, north, south) == pytest.approx((-36, 36, 36, 0), abs=0.5)
    with xr.open_dataset(archive / "coarse.nc", engine="h5netcdf") as dataset:
        near = dataset.cell.assign_coords(lon=(dataset.lon + 180) % 360 - 180).sortby("lon")
        part = near.sel(lat=slice(south, north), lon=slice(west, east))
        expected = float(part.weighted(np.cos(np.deg2rad(part.lat))).mean())
    assert _mean(page, 0) == pytest.approx(expected, rel=1e-9)
    assert page.find("polygon.region").count() == 1
    page.find("[data-mode=zoom]").click()  # there is no box of elements to zoom to: the map goes there
    _draw(page, (0.45, 0.3), (0.55, 0.4))
    page.page.wait_for_function("() => location.hash.includes('zoom=10')")
    assert "box" not in page.state


def test_regions_of_cells_that_do_not_lie_in_rows(open_page: Open, tmp_path: Path) -> None:
    """A polygon, a box and a point on a map of stations, along time; also across the date line and around a pole."""
    random = np.random.default_rng(3)
    lon, lat = random.uniform(-180, 180, 400), random.uniform(-85, 85, 400)
    values = random.normal(280, 9, (3, 400))
    xr.Dataset(
        {"cell": (("time", "station"), values, {"coordinates": "lon lat"})},
        {"lon": ("station", lon, {"units": "degrees_east"}), "lat": ("station", lat, {"units": "degrees_north"})},
    ).to_netcdf(tmp_path / "stations.nc", engine="h5netcdf")
    with serving([tmp_path], tmp_path / "serve.log") as running:
        page = open_page(running.url, _link(tmp_path / "stations.nc", centre=[180, 0]))
        page.wait_for_picture()
        page.find("[data-mode=polygon]").click()
        box = page.find(".surface").bounding_box()
        for left, top in ((0.4, 0.3), (0.6, 0.3), (0.55, 0.7)):
            page.page.mouse.click(box["x"] + box["width"] * left, box["y"] + box["height"] * top)
        page.find(".surface").press("Escape")
        page.find("tr[data-region='0']").wait_for()
        path = pytest.importorskip("matplotlib.path", reason="no Matplotlib here")
        polygon = np.array(json.loads(page.state["regions"])[0]["polygon"])
        middle = polygon[:, 0].mean()
        near = middle + (lon - middle + 180) % 360 - 180
        inside = path.Path(polygon).contains_points(np.stack([near, lat], axis=1))
        assert inside.sum() > 5
        assert _mean(page, 0) == pytest.approx(values[:, inside].mean(), rel=1e-9)
        page.find("select[aria-label=Projection]").select_option("north")
        page.wait_for_picture()
        page.find("[data-mode=box]").click()
        _draw(page, (0.3, 0.3), (0.7, 0.7))
        page.find("tr[data-region='1']").wait_for()
        # A square of 0.4 of the width of the hemisphere, in stereographic units.
        radius = np.tan(np.deg2rad(90 - lat) / 2)
        x, y = radius * np.sin(np.deg2rad(lon)), radius * np.cos(np.deg2rad(lon))
        assert _mean(page, 1) == pytest.approx(values[:, (np.abs(x) < 0.4) & (np.abs(y) < 0.4)].mean(), rel=1e-3)


def test_finer_values_come_on_both_sides_of_the_seam(open_page: Open, server: Server, archive: Path) -> None:
    page = open_page(server.url, _link(archive / "fine.nc", centre=[180, 10], zoom=16))
    page.page.wait_for_function("() => document.querySelector('.caption')?.textContent.includes('Every value')")
    columns = set()
    for left in (0.4, 0.6):
        row, column = _hover(page, left, 0.5) or (-1, -1)
        assert number_in(page.find(".readout .value").inner_text()) == row * 3600 + column
        columns.add(column > 1800)
    assert columns == {True, False}
