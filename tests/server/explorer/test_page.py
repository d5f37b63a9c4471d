"""The explorer's page in a real browser. What it shows is compared with xarray and h5py."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import h5py
import numpy as np
import pytest
import xarray as xr

from forked_commands import CODE, run_command, write_program
from script_modules import load_script
from server.explorer.conftest import HOSTILE
from server.explorer.page import ExplorerPage, number_in
from server.serving import Server, serving, wait_for_server
from waiting import LONG

pytestmark = [pytest.mark.browser, pytest.mark.servers, pytest.mark.slow]

Open = Callable[..., ExplorerPage]
SHAPE = (24, 40)
CLIENTS = Path(__file__).parents[3] / ".clients"


def _link(url: Path | str, **state: object) -> str:
    parts = {"url": url, **state}
    texts = {key: value if isinstance(value, str | Path) else json.dumps(value) for key, value in parts.items()}
    return "#" + "&".join(f"{key}={quote(str(value))}" for key, value in texts.items())


@pytest.fixture
def pattern(folder: Path) -> str:
    return f"{folder}/maps/*.nc"


@pytest.fixture
def picture(open_page: Open, explored: Server, pattern: str) -> ExplorerPage:
    """The page with the mosaic's temperature."""
    page = open_page(explored.url, _link(pattern, variable="tas"))
    page.wait_for_picture()
    return page


def _shown(page: ExplorerPage, row: int, column: int) -> float:
    return number_in(page.hover(row, column, *SHAPE))


def test_from_the_listing_to_the_picture_of_a_mosaic(
    open_page: Open, explored: Server, folder: Path, maps: xr.Dataset
) -> None:
    page = open_page(explored.url)
    page.find(".entries a", has_text=str(folder)).click()
    page.find(".entries a", has_text="odd.nc").wait_for()
    page.find(".entries a", has_text="maps").click()
    page.find(".entries a", has_text="maps_2.nc").wait_for()
    page.find("a", has_text="as one dataset").click()
    page.wait_for_picture()
    assert page.state["variable"] == "tas"  # the one that makes a picture is shown first
    assert page.find("h1").inner_text().startswith("Air temperature")
    assert _shown(page, 5, 30) == pytest.approx(float(maps.tas[0, 5, 30]), rel=1e-6)
    assert float(page.exact().split()[0]) == pytest.approx(float(maps.tas[0, 5, 30]), rel=1e-8)
    assert float(page.find(".readout .value").get_attribute("title") or "nan") == float(maps.tas[0, 5, 30])


def test_searching_by_name(open_page: Open, explored: Server) -> None:
    page = open_page(explored.url)
    page.find("#search").fill("maps_1")
    page.find(".entries a", has_text="maps_1.nc").wait_for()
    assert page.find(".entries a").count() == 1


def test_moving_a_slider(picture: ExplorerPage, maps: xr.Dataset) -> None:
    assert picture.find(".slider .label").input_value() == "2001-02-26"
    picture.find("input[name=time]").focus()
    for _ in range(6):
        picture.page.keyboard.press("ArrowRight")
    picture.wait_for_picture()
    assert picture.find(".slider .label").input_value() == "2001-03-04"
    assert picture.find("input[name=time]").get_attribute("aria-valuetext") == "2001-03-04"
    picture.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('2001-03-04')")
    for row, column in ((0, 39), (12, 3), (23, 20)):
        assert _shown(picture, row, column) == pytest.approx(float(maps.tas[6, row, column]), rel=1e-6)


def test_an_exact_value_that_comes_late(picture: ExplorerPage) -> None:
    waiting: list[Any] = []

    def hold(route: Any) -> None:
        waiting.append(route)

    picture.page.route("**/api/point?**", hold)
    with picture.page.expect_request("**/api/point?**"):
        picture.hover(0, 39, *SHAPE)
    picture.hover(12, 3, *SHAPE)
    with suppress(Exception):  # it was given up
        waiting[0].continue_()
    picture.page.wait_for_timeout(300)
    readout = picture.find(".readout")
    assert (readout.get_attribute("data-y"), readout.get_attribute("data-x")) == ("12", "3")


def test_playing(picture: ExplorerPage) -> None:
    picture.find("button.play").click()
    picture.page.wait_for_function("() => Number(document.querySelector('input[name=time]').value) >= 3")
    picture.find("button.play").click()
    assert picture.find("button.play").get_attribute("aria-pressed") == "false"


def test_a_date_that_is_typed(picture: ExplorerPage, maps: xr.Dataset) -> None:
    label = picture.find(".slider .label")
    label.fill("2001-03-05 16:00")
    label.press("Enter")
    picture.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('2001-03-06')")
    assert picture.find("input[name=time]").input_value() == "8"
    assert _shown(picture, 5, 30) == pytest.approx(float(maps.tas[8, 5, 30]), rel=1e-6)
    label.fill("someday")
    label.press("Enter")
    assert label.get_attribute("aria-invalid") == "true"


def test_pictures_are_fetched_while_others_are_shown(picture: ExplorerPage) -> None:
    """Once round, every picture is asked for once, ahead of its turn; at the end it stops."""
    picture.find("input[name=loop]").uncheck()
    picture.find("select[aria-label='Speed of playing']").select_option("60")
    before = len([url for url in picture.requests if "/field?" in url])
    picture.find("button.play").click()
    picture.page.wait_for_function("() => document.querySelector('input[name=time]').value === '11'")
    picture.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('2001-03-09')")
    picture.find("button.play[aria-pressed=false]").wait_for()
    requests = [url for url in picture.requests if "/field?" in url][before:]
    assert len(requests) == len({*requests}) == 11
    assert {"speed": "60", "once": "1"}.items() <= picture.state.items()
    picture.page.wait_for_function("() => location.hash.includes('11')")


@pytest.fixture
def plain_map(open_page: Open, explored: Server, pattern: str) -> ExplorerPage:
    """The same without lines."""
    page = open_page(explored.url, f"{_link(pattern, variable='tas')}&lines=none")
    page.wait_for_picture()
    return page


def test_missing_values_are_seen(plain_map: ExplorerPage) -> None:
    """They are transparent, so that the hatching behind shows; the others are painted."""
    picture = plain_map
    assert picture.hover(4, 1, *SHAPE) == "missing"
    alpha = picture.page.evaluate(
        """() => { const canvas = document.querySelector('canvas.raster');
        const pixel = (x) => canvas.getContext('2d').getImageData(x, canvas.height / 2, 1, 1).data;
        return [1, 20].map((column) => pixel(canvas.width * (column + 0.5) / 40)[3]); }"""
    )
    assert alpha == [0, 255]
    assert "7.5 % missing" in picture.find(".caption").inner_text()  # 3 of 40 columns


def _limits(page: ExplorerPage) -> list[float]:
    return [float(page.find(f"input[name={name}]").input_value()) for name in ("low", "high")]


def test_one_range_of_colours_for_all_times(picture: ExplorerPage, maps: xr.Dataset) -> None:
    picture.find(".caption", has_text="One range of colours for all 12 positions along time").wait_for()
    whole = np.nanpercentile(maps.tas.values, [2, 98])
    assert _limits(picture) == pytest.approx(whole, rel=1e-4)
    picture.find("input[name=time]").fill("7")
    picture.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('2001-03-05')")
    assert _limits(picture) == pytest.approx(whole, rel=1e-4)
    picture.unfold()
    picture.find("select[aria-label='Automatic limits of the colours']").select_option("extremes")
    assert _limits(picture) == pytest.approx([np.nanmin(maps.tas), np.nanmax(maps.tas)], rel=1e-4)
    picture.find("select[aria-label='Pictures that share the range of the colours']").select_option("picture")
    one = maps.tas[7].values
    picture.page.wait_for_function("() => !document.querySelector('.caption').textContent.includes('One range')")
    assert _limits(picture) == pytest.approx([np.nanmin(one), np.nanmax(one)], rel=1e-4)
    assert {"range": "picture", "limits": "extremes"}.items() <= picture.state.items()
    picture.find("input[name=low]").fill("270")
    picture.find("input[name=low]").press("Enter")
    picture.find("input[name=time]").fill("3")
    picture.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('2001-03-01')")
    assert _limits(picture) == pytest.approx([270, np.nanmax(maps.tas[3])], rel=1e-4)  # what is typed stays


def test_colours_follow_the_values(plain_map: ExplorerPage, maps: xr.Dataset) -> None:
    """The colour of a pixel is that of temperatures at its share of the range that the controls show."""
    picture = plain_map
    picture.find(".caption", has_text="One range").wait_for()
    low, high = _limits(picture)
    field = maps.tas[0].values
    assert [low, high] == pytest.approx(np.nanpercentile(maps.tas.values, [2, 98]), rel=1e-3)
    row, column = np.argwhere(field > high)[0]
    pixel = picture.page.evaluate(
        """([row, column]) => { const canvas = document.querySelector('canvas.raster');
        const [x, y] = [canvas.width * (column + 0.5) / 40, canvas.height * (1 - (row + 0.5) / 24)];
        return [...canvas.getContext('2d').getImageData(x, y, 1, 1).data]; }""",
        [int(row), int(column)],
    )
    assert pixel == [232, 250, 91, 255]  # the last colour of cmocean's "thermal"


def test_zooming_by_a_box_and_back(picture: ExplorerPage, maps: xr.Dataset) -> None:
    picture.find("[data-mode=zoom]").click()
    picture.find(".surface").scroll_into_view_if_needed()
    picture.draw(picture.place(17, 10, *SHAPE), picture.place(6, 29, *SHAPE))
    picture.page.wait_for_function("() => location.hash.includes('box')")
    assert json.loads(picture.state["box"]) == [6, 18, 10, 30]
    picture.wait_for_picture()
    picture.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('12 × 20 cells')")
    x, y = picture.place(3, 4, 12, 20)
    picture.page.mouse.move(x, y)
    picture.page.wait_for_function("() => document.querySelector('.readout').dataset.y === '9'")
    assert picture.find(".readout").get_attribute("data-x") == "14"
    assert number_in(picture.find(".readout .value").inner_text()) == pytest.approx(float(maps.tas[0, 9, 14]), rel=1e-6)
    picture.find(".surface").focus()
    picture.page.keyboard.press("Escape")
    picture.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('24 × 40 cells')")
    assert "box" not in picture.state


@pytest.mark.parametrize("statistic", ["mean", "max", "std"])
def test_statistics_over_a_dimension(picture: ExplorerPage, maps: xr.Dataset, statistic: str) -> None:
    picture.find("select[aria-label='Statistic over time']").select_option(statistic)
    picture.page.wait_for_function(
        "(name) => document.querySelector('.caption').textContent.includes(name)", arg=f"{statistic} over time"
    )
    picture.wait_for_picture()
    expected = getattr(maps.tas, statistic)("time")
    for row, column in ((2, 7), (20, 33)):
        assert _shown(picture, row, column) == pytest.approx(float(expected[row, column]), rel=2e-6)


def test_choosing_other_axes(picture: ExplorerPage, maps: xr.Dataset) -> None:
    picture.find("select[aria-label='Vertical axis']").select_option("time")
    picture.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('12 × 40 cells')")
    picture.wait_for_picture()
    assert picture.state["y"] == "time"
    assert picture.hover(7, 21, 12, 40)
    assert number_in(picture.find(".readout .value").inner_text()) == pytest.approx(float(maps.tas[7, 0, 21]), rel=1e-6)


def test_a_line_through_a_clicked_point(picture: ExplorerPage, maps: xr.Dataset) -> None:
    picture.click(11, 25, *SHAPE)
    picture.find(".u-over").wait_for()
    assert json.loads(picture.state["point"]) == [11, 25]
    box = picture.find(".u-over").bounding_box()
    picture.find(".u-over").hover(position={"x": box["width"] * 5 / 11, "y": box["height"] / 2})
    legend = picture.find(".u-legend .u-value")
    picture.page.wait_for_function(
        "() => document.querySelectorAll('.u-legend .u-value')[0].textContent.startsWith('2001')"
    )
    assert legend.nth(0).inner_text() == "2001-03-03"
    assert number_in(legend.nth(1).inner_text()) == pytest.approx(float(maps.tas[5, 11, 25]), rel=1e-5)
    picture.find(".card[aria-label='Line plot'] .chip", has_text="lon").click()
    picture.find("h3", has_text="Along lon").wait_for()
    assert picture.state["line"] == "lon"


def test_the_histogram(picture: ExplorerPage, maps: xr.Dataset) -> None:
    text = picture.find(".card[aria-label='Histogram'] p").inner_text().replace("\u202f", "")
    field = maps.tas[0].values
    assert f"{np.isfinite(field).sum()} values" in text
    assert f"{np.isnan(field).sum()} missing" in text
    low, high = text.split(": ")[1].split(", mean")[0].split(" to ")
    assert [number_in(low), number_in(high)] == pytest.approx([np.nanmin(field), np.nanmax(field)], rel=1e-5)
    assert number_in(text.split("mean ")[1]) == pytest.approx(np.nanmean(field), rel=1e-5)


def test_a_range_of_colours_by_hand(picture: ExplorerPage) -> None:
    low = picture.find("input[name=low]")
    low.fill("285")
    low.press("Enter")
    picture.page.wait_for_function("() => location.hash.includes('low=285')")
    low.fill("warm")
    low.press("Enter")
    assert low.get_attribute("aria-invalid") == "true"
    picture.find("button", has_text="Auto").nth(1).click()  # the first one is about light and dark
    picture.page.wait_for_function("() => !location.hash.includes('low')")


def test_a_link_shows_the_same(picture: ExplorerPage, open_page: Open, explored: Server, maps: xr.Dataset) -> None:
    picture.find("input[name=time]").fill("9")
    picture.find("select[aria-label='Colour map']").select_option("magma")
    picture.click(3, 30, *SHAPE)
    picture.find(".u-over").wait_for()
    other = open_page(explored.url, picture.page.url.removeprefix(f"{explored.url}/"))
    other.wait_for_picture()
    assert other.find("select[aria-label='Colour map']").input_value() == "magma"
    assert other.find(".slider .label").input_value() == "2001-03-07"
    assert float(other.exact().split()[0]) == pytest.approx(float(maps.tas[9, 3, 30]), rel=1e-7)
    same = "() => { const canvas = document.querySelector('canvas.raster'); return canvas.toDataURL(); }"
    assert other.page.evaluate(same) == picture.page.evaluate(same)


def test_the_keyboard_alone(picture: ExplorerPage, maps: xr.Dataset) -> None:
    surface = picture.find(".surface")
    surface.focus()
    picture.page.keyboard.press("ArrowRight")
    picture.page.keyboard.press("Shift+ArrowUp")
    shown = picture.find(".readout")
    row, column = (int(shown.get_attribute(f"data-{side}") or -1) for side in "yx")
    assert (row, column) == (22, 21)  # from the middle (12, 20): one to the right, ten to the north
    spoken = picture.find(".visually-hidden[aria-live=polite]").first.inner_text()
    assert number_in(spoken) == pytest.approx(float(maps.tas[0, row, column]), rel=1e-6)
    picture.page.keyboard.press("Enter")
    picture.find(".u-over").wait_for()
    assert json.loads(picture.state["point"]) == [22, 21]
    picture.page.keyboard.press("]")
    picture.page.wait_for_function("() => document.querySelector('input[name=time]').value === '1'")


def test_a_click_on_a_chunk(open_page: Open, explored: Server, folder: Path, pattern: str) -> None:
    """File, offset, length and filter mask are what h5py says."""
    page = open_page(explored.url, _link(pattern, variable="tas", view="chunks"))
    page.wait_for_picture()
    box = page.find(".surface").bounding_box()
    # Time runs across, latitudes run down here: time 9 lies in the third file, latitude 17 in its third row of chunks.
    page.page.mouse.click(box["x"] + box["width"] * 9.5 / 12, box["y"] + box["height"] * 17.5 / 24)
    fact = page.find("[data-fact=Offset]")
    fact.wait_for()
    with h5py.File(folder / "maps" / "maps_2.nc") as file:
        stored = file["tas"].id.get_chunk_info_by_coord((0, 16, 0))
    assert int(fact.inner_text().replace("\u202f", "")) == stored.byte_offset
    assert number_in(page.find("[data-fact=Length]").inner_text().replace("\u202f", "")) == stored.size
    assert page.find("[data-fact=File]").inner_text() == str(folder / "maps" / "maps_2.nc")
    assert int(page.find("[data-fact='Filter mask']").inner_text()) == stored.filter_mask
    assert "zlib" in page.find("[data-fact=Codecs]").inner_text()
    assert "0.02" in page.find("[data-fact=Packing]").inner_text()
    assert json.loads(page.state["cell"]) == {"time": 9, "lat": 17, "lon": 0}


def test_unwritten_cells_look_different(open_page: Open, explored: Server, folder: Path) -> None:
    page = open_page(explored.url, _link(folder / "odd.nc", variable="gaps", view="chunks"))
    page.wait_for_picture()
    assert "6 stored" in page.find(".caption").inner_text()
    assert "15 never written" in page.find(".caption").inner_text()
    distinct = page.page.evaluate(
        """() => { const canvas = document.querySelector('canvas.raster');
        const colours = (left) => {
          const image = canvas.getContext('2d').getImageData(canvas.width * left + 8, canvas.height * 0.01 + 4, 30, 12);
          return new Set(new Uint32Array(image.data.buffer)).size; };
        return [colours(0.1), colours(0.8)]; }"""
    )
    assert distinct[0] == 1  # one plain colour
    assert distinct[1] > 2  # hatched
    box = page.find(".surface").bounding_box()
    page.page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.95)
    page.find("[data-fact=State]", has_text="never written").wait_for()


def _run_python(code: str, folder: Path) -> xr.DataArray:
    """Execute a snippet in a process of its own, and return `field`."""
    target = folder / "snippet.nc"
    done = run_command([], code=f"{code}\nfield.to_netcdf({str(target)!r})")
    assert done.returncode == 0, done.stderr
    with xr.open_dataarray(target, engine="netcdf4") as found:
        return found.load()


def test_the_copied_python_snippet(picture: ExplorerPage, maps: xr.Dataset, tmp_path: Path) -> None:
    picture.find("input[name=time]").fill("5")
    picture.find("[data-mode=zoom]").click()
    picture.find(".surface").scroll_into_view_if_needed()
    picture.draw(picture.place(17, 10, *SHAPE), picture.place(6, 29, *SHAPE))
    picture.page.wait_for_function("() => location.hash.includes('box')")
    field = _run_python(picture.copy_snippet("Python"), tmp_path)
    xr.testing.assert_equal(field, maps.tas[5, 6:18, 10:30].rename("tas"))


def test_the_copied_snippet_of_a_statistic(picture: ExplorerPage, maps: xr.Dataset, tmp_path: Path) -> None:
    picture.find("select[aria-label='Statistic over time']").select_option("max")
    picture.find("code", has_text=".max(").wait_for()
    field = _run_python(picture.copy_snippet("Python"), tmp_path)
    np.testing.assert_array_equal(field.values, maps.tas.max("time").values)


@pytest.mark.parametrize("name", ["Command line", "curl"])
def test_the_copied_commands(
    open_page: Open, explored: Server, folder: Path, maps: xr.Dataset, tmp_path: Path, name: str
) -> None:
    if name == "curl" and shutil.which("curl") is None:
        pytest.skip("no curl here")
    page = open_page(
        explored.url, _link(folder / "maps" / "maps_1.nc", variable="tas", index={"time": 2}, box=[3, 9, 5, 25])
    )
    page.wait_for_picture()
    command = page.copy_snippet(name)
    scripts = tmp_path / "bin"
    scripts.mkdir()
    write_program(scripts / "insitu")
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"}
    subprocess.run(command, shell=True, check=True, timeout=LONG, cwd=tmp_path, env=environment, capture_output=True)
    with xr.open_dataset(tmp_path / "field.nc", engine="netcdf4") as found:
        np.testing.assert_array_equal(np.squeeze(found.tas.values), maps.tas[6, 3:9, 5:25].values)


def test_the_zarr_snippet(open_page: Open, explored: Server, pattern: str, maps: xr.Dataset, tmp_path: Path) -> None:
    page = open_page(explored.url, _link(pattern, variable="tas", index={"time": 7}, box=[3, 9, 5, 25]))
    page.wait_for_picture()
    code = page.copy_snippet("xarray over /zarr")
    address = code.split('"')[1]
    assert address.startswith(f"{explored.url}/zarr/")
    # fsspec, by which xarray opens addresses, needs aiohttp for that: here obstore opens it.
    store = f"ObjectStore(HTTPStore.from_url({address!r}, client_options={{'allow_http': True}}), read_only=True)"
    imports = "from obstore.store import HTTPStore\nfrom zarr.storage import ObjectStore\n"
    field = _run_python(imports + code.replace(f'"{address}"', store), tmp_path)
    np.testing.assert_array_equal(field.values, maps.tas[7, 3:9, 5:25].values)


def test_downloads(picture: ExplorerPage, maps: xr.Dataset, tmp_path: Path) -> None:
    picture.find("input[name=time]").fill("3")
    picture.wait_for_picture()
    saved = {}
    for name in ("NetCDF", "CSV", "PNG"):
        with picture.page.expect_download() as download:
            picture.find(".export button", has_text=name).click()
        saved[name] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[name])
    with xr.open_dataset(saved["NetCDF"], engine="netcdf4") as found:
        np.testing.assert_array_equal(np.squeeze(found.tas.values), maps.tas[3].values)
    with saved["CSV"].open(newline="") as lines:
        _, *rows = csv.reader(lines)
    expected = maps.tas[3].stack(cell=("lat", "lon"))
    np.testing.assert_array_equal([[float(text) for text in row[:2]] for row in rows], [*expected.cell.values])
    np.testing.assert_array_equal([float(row[2] or "nan") for row in rows], expected.values)
    assert saved["PNG"].read_bytes().startswith(b"\x89PNG")
    assert len(saved["PNG"].read_bytes()) > 10_000


def test_texts_scalars_and_vectors(open_page: Open, explored: Server, folder: Path) -> None:
    page = open_page(explored.url, _link(folder / "odd.nc", variable="name"))
    page.find("td.value", has_text="station <b>6</b>").wait_for()
    page.find("a[data-variable=answer]").click()
    page.find(".scalar", has_text="42").wait_for()
    page.find("a[data-variable=level]").click()
    page.find(".u-over").wait_for()
    page.find("td.value").first.wait_for()
    assert page.find("td.value").count() == 200
    page.find("button", has_text="Next").click()
    page.page.wait_for_function("() => document.querySelectorAll('td.value').length === 100")
    last = page.find("td.value").last.inner_text()
    assert float(last) == pytest.approx(np.sin(299 / 20))
    page.find("a[data-variable='model/run/depth']").click()
    page.find("h1", has_text="depth").wait_for()


def test_hostile_texts_stay_texts(open_page: Open, explored: Server, folder: Path, pattern: str) -> None:
    page = open_page(explored.url, _link(pattern, variable="tas", view="attributes"))
    page.find("td", has_text="onerror").wait_for()
    assert page.find("tr", has_text="comment").locator("td").inner_text() == HOSTILE
    page.go(_link(folder / "odd.nc", group="/"))
    page.page.reload()
    page.find("td", has_text="onerror").wait_for()
    assert page.find("main img").count() == 0
    assert page.page.evaluate("() => window.hacked === undefined")
    policy = explored.get("/").headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_bad_token(open_page: Open, folder: Path, pattern: str, tmp_path: Path, maps: xr.Dataset) -> None:
    with serving([folder], tmp_path / "log", "--token", "right-one") as guarded:
        page = open_page(guarded.url, _link(pattern, variable="tas"))
        page.find("dialog #token").fill("wrong-one")
        page.find("dialog button").click()
        page.find("dialog .note", has_text="does not accept").wait_for()
        page.find("dialog #token").fill("right-one")
        page.find("dialog button").click()
        page.wait_for_picture()
        assert _shown(page, 5, 30) == pytest.approx(float(maps.tas[0, 5, 30]), rel=1e-6)
        assert "right-one" not in page.page.url
        assert not [url for url in page.requests if "right-one" in url]
        texts = page.page.evaluate(
            "() => [JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie]"
        )
        assert "right-one" not in texts[0] + texts[2]
        assert "right-one" in texts[1]
        assert "right-one" not in page.copy_snippet("curl")


def test_a_server_that_stops_and_comes_back(
    open_page: Open, folder: Path, pattern: str, tmp_path: Path, maps: xr.Dataset
) -> None:
    with serving([folder], tmp_path / "log") as running:
        page = open_page(running.url, _link(pattern, variable="tas"))
        page.wait_for_picture()
        assert not page.find("#banner").is_visible()
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(LONG)
        page.find("input[name=time]").fill("8")
        page.find("#banner", has_text="The server does not answer").wait_for()
        page.find(".error-box", has_text="does not answer").wait_for()
        port = running.url.rpartition(":")[2]
        command = [sys.executable, "-c", CODE, "serve", str(folder), "--port", port]
        with open(tmp_path / "second", "wb") as log:
            again = Server(running.url, subprocess.Popen(command, stderr=log, stdout=log), tmp_path / "second")
        try:
            wait_for_server(again)
            page.find("#banner").wait_for(state="hidden")
            page.find(".error-box").wait_for(state="detached")
            page.wait_for_picture()
            page.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('2001-03-06')")
            assert _shown(page, 5, 30) == pytest.approx(float(maps.tas[8, 5, 30]), rel=1e-6)
        finally:
            again.close()
            again.process.terminate()
            again.process.wait(LONG)


def test_what_was_superseded_is_aborted(picture: ExplorerPage, maps: xr.Dataset) -> None:
    """Requests that hang are aborted by the next one, and the last one is shown."""
    waiting = []

    def hold(route: object) -> None:
        if "%22time%22%3A11" in route.request.url:  # type: ignore[attr-defined]
            route.continue_()  # type: ignore[attr-defined]
        else:
            waiting.append(route)

    picture.page.route("**/explorer/api/field*", hold)
    for at in (3, 5, 11):
        picture.find("input[name=time]").fill(str(at))
        picture.page.wait_for_timeout(60)
    picture.page.wait_for_function("() => document.querySelector('.caption').textContent.includes('2001-03-09')")
    assert len(waiting) == 2
    assert len([url for url in picture.aborted if "/field" in url]) == 2
    assert _shown(picture, 5, 30) == pytest.approx(float(maps.tas[11, 5, 30]), rel=1e-6)


def test_an_unchanged_picture_is_not_sent_again(picture: ExplorerPage) -> None:
    statuses = []
    picture.page.on("response", lambda response: statuses.append(response.status) if "/field" in response.url else None)
    with picture.page.expect_response(lambda response: "/field" in response.url) as first:
        picture.find("input[name=time]").fill("1")
    assert first.value.header_value("etag")
    address = first.value.url
    status = picture.page.evaluate(
        "async ([url, etag]) => (await fetch(url, {headers: {'If-None-Match': etag}, cache: 'no-store'})).status",
        [address, first.value.header_value("etag")],
    )
    assert status == 304


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", ["values", "chunks", "attributes"])
def test_on_small_screens(open_page: Open, explored: Server, pattern: str, theme: str, view: str) -> None:
    """Nothing is wider than the screen, and colours follow the system."""
    shown = {"regions": [{"box": [2, 9, 3, 12]}], "point": [3, 4]} if view == "values" else {}
    page = open_page(explored.url, _link(pattern, variable="tas", view=view, **shown), color_scheme=theme)
    for width in (390, 900):  # a phone, and a tablet, whose page has a list of variables beside the picture
        page.page.set_viewport_size({"width": width, "height": 800})
        page.page.reload()
        page.find("#panel > *").wait_for()
        if view != "attributes":
            page.wait_for_picture()
        if view == "values":
            page.find(".region-table").wait_for()
            if width == 390:
                page.unfold()  # the browser remembers it
                surface, bar = page.find(".surface").bounding_box(), page.find(".colour-bar").bounding_box()
                assert bar["y"] > surface["y"] + surface["height"]
                assert surface["width"] > 0.6 * width
        assert page.page.evaluate("() => document.documentElement.scrollWidth") <= width
    background = page.page.evaluate("() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(background) > 600) == (theme == "light")


def test_every_control_has_a_name(picture: ExplorerPage) -> None:
    picture.click(11, 25, *SHAPE)
    picture.find(".u-over").wait_for()
    picture.unfold()
    nameless = picture.page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, a[href], [role=application], [role=img]')]
        .filter((found) => found.offsetParent !== null || found.tagName === 'svg')
        .filter((found) => !(found.getAttribute('aria-label') || found.textContent.trim()
          || found.closest('label')?.textContent.trim()
          || (found.id && document.querySelector(`label[for="${found.id}"]`))))
        .map((found) => found.outerHTML.slice(0, 120))"""
    )
    assert nameless == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("where", ["listing", "archive", "values", "chunks", "attributes", "table"])
def test_axe_finds_no_serious_fault(
    open_page: Open, explored: Server, folder: Path, pattern: str, theme: str, where: str
) -> None:
    axe = CLIENTS / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("no axe-core: install it with python scripts/clients.py install")
    states = {
        "listing": "",
        "archive": _link(pattern),
        "table": _link(folder / "odd.nc", variable="name"),
    } | {view: _link(pattern, variable="tas", view=view) for view in ("values", "chunks", "attributes")}
    page = open_page(explored.url, states[where], color_scheme=theme, bypass_csp=True)
    if where in ("values", "chunks", "archive"):
        page.wait_for_picture()
        if where == "values":
            page.unfold()
    else:
        page.find(".entries a, #panel > *").first.wait_for()
    page.page.add_script_tag(path=axe)
    found = page.page.evaluate("async () => (await axe.run()).violations")
    serious = {
        fault["id"]: [node["html"][:120] for node in fault["nodes"]]
        for fault in found
        if fault["impact"] in ("serious", "critical")
    }
    assert serious == {}


def test_in_firefox(explored: Server, pattern: str, maps: xr.Dataset, tmp_path: Path) -> None:
    """A person moves the pointer, the slider and a box there, too; see `tour_firefox.mjs`."""
    firefox, node = load_script("browser").find_firefox(), shutil.which("node")
    if firefox is None or node is None or not (CLIENTS / "node_modules" / "puppeteer-core").is_dir():
        pytest.skip(
            "no Firefox, or no puppeteer-core: python scripts/browser.py install; python scripts/clients.py install"
        )
    script = Path(shutil.copy(Path(__file__).parent / "tour_firefox.mjs", CLIENTS / f"tour-{os.getpid()}.mjs"))
    try:
        run = subprocess.run(
            [node, script, firefox, explored.url + _link(pattern, variable="tas"), *map(str, SHAPE)],
            capture_output=True,
            text=True,
            timeout=2 * LONG,
            env={**os.environ, "HOME": str(tmp_path)},
        )
    finally:
        script.unlink()
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert seen["errors"] == []
    assert seen["agent"].startswith("firefox")
    assert number_in(seen["hovered"]) == pytest.approx(float(maps.tas[0, 5, 30]), rel=1e-6)
    assert float(seen["exact"].split()[0]) == pytest.approx(float(maps.tas[0, 5, 30]), rel=1e-8)
    assert number_in(seen["later"]) == pytest.approx(float(maps.tas[6, 5, 30]), rel=1e-6)
    assert seen["colours"] > 20
    assert seen["box"] == [6, 18, 10, 30]
    assert number_in(seen["line"]) == pytest.approx(float(maps.tas[5, 11, 25]), rel=1e-5)
    assert seen["chunks"] > 3


def test_what_is_wrong_is_said(open_page: Open, explored: Server, folder: Path) -> None:
    page = open_page(explored.url, _link("/etc/passwd"))
    page.find(".error-box").wait_for()
    page.go(_link(folder / "odd.nc", variable="nothing"))
    page.page.reload()
    page.find(".error-box", has_text="no variable nothing").wait_for()


def test_links_that_are_mistyped_do_no_harm(open_page: Open, explored: Server, pattern: str) -> None:
    link = (
        _link(pattern, variable="tas")
        + "&index={bad&box=[1,2]&point=[9999,9999]&over=time&low=x&view=nonsense&y=nothing&%E0%A4%A"
    )
    page = open_page(explored.url, link)
    page.wait_for_picture()
    assert "24 × 40 cells" in page.find(".caption").inner_text()


def test_a_variable_without_values_says_so(open_page: Open, tmp_path: Path) -> None:
    empty = xr.Dataset({"v": (("time", "lat"), np.zeros((0, 3), "f4"))})
    empty.to_netcdf(tmp_path / "empty.nc", engine="h5netcdf")
    with serving([tmp_path], tmp_path / "serve.log") as running:
        page = open_page(running.url, _link(str(tmp_path / "empty.nc"), variable="v"))
        page.find("[role=status]", has_text="its dimension time has length 0").wait_for()
        assert ".isel" not in page.find("pre").inner_text()
