"""Regions that are drawn on the page in a real browser, compared with xarray."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import xarray as xr

from server.explorer.page import ExplorerPage
from server.serving import Server

pytestmark = [pytest.mark.browser, pytest.mark.servers, pytest.mark.slow]

SHAPE = (24, 40)


@pytest.fixture
def picture(open_page: Callable[..., ExplorerPage], explored: Server, folder: Path) -> ExplorerPage:
    page = open_page(explored.url, f"#url={quote(f'{folder}/maps/*.nc')}&variable=tas")
    page.wait_for_picture()
    return page


def _weighted(maps: xr.Dataset, part: xr.DataArray) -> xr.DataArray:
    return part.astype("f8").weighted(np.cos(np.deg2rad(maps.lat.astype("f8")))).mean(("lat", "lon"))


def _mean(page: ExplorerPage, region: int) -> float:
    cell = page.find(f"tr[data-region='{region}'] td[data-value]").first
    return float(cell.get_attribute("data-value") or "nan")


def test_boxes_and_points_as_lines_of_one_plot(picture: ExplorerPage, maps: xr.Dataset) -> None:
    picture.find("[data-mode=box]").click()
    picture.find(".surface").scroll_into_view_if_needed()
    picture.draw(picture.place(5, 8, *SHAPE), picture.place(14, 21, *SHAPE))
    picture.find("tr[data-region='0']").wait_for()
    box = json.loads(picture.state["regions"])[0]["box"]
    assert box == [5, 15, 8, 22]
    series = _weighted(maps, maps.tas[:, 5:15, 8:22])
    assert _mean(picture, 0) == pytest.approx(float(series.mean()), rel=1e-9)
    picture.find("[data-mode=point]").click()
    picture.click(10, 30, *SHAPE)
    picture.find("tr[data-region='1']").wait_for()
    assert _mean(picture, 1) == pytest.approx(float(maps.tas[:, 10, 30].mean()), rel=1e-6)
    assert picture.find(".regions .u-series").count() == 3  # time and two lines
    picture.find("tr[data-region='0']").scroll_into_view_if_needed()
    with picture.page.expect_download() as download:
        picture.find("tr[data-region='0'] button", has_text="CSV").click()
    rows = list(csv.reader(Path(download.value.path()).read_text().splitlines()))
    assert [float(row[1]) for row in rows[1:]] == pytest.approx(series.values.tolist(), rel=1e-12)
    picture.find("button[aria-label='Remove region 1']").click()
    picture.find("tr[data-region='1']").wait_for(state="detached")
    assert _mean(picture, 0) == pytest.approx(float(maps.tas[:, 10, 30].mean()), rel=1e-6)


def test_a_polygon_by_clicks_and_from_a_link(picture: ExplorerPage, maps: xr.Dataset) -> None:
    picture.find("[data-mode=polygon]").click()
    for row, column in ((4, 10), (4, 30), (20, 20)):
        picture.click(row, column, *SHAPE)
    picture.find(".surface").press("Escape")
    picture.find("tr[data-region='0']").wait_for()
    polygon = json.loads(picture.state["regions"])[0]["polygon"]
    expected = [[maps.lon.values[column], maps.lat.values[row]] for row, column in ((4, 10), (4, 30), (20, 20))]
    np.testing.assert_allclose(polygon, expected, atol=0.3)  # a pixel
    mean = _mean(picture, 0)
    picture.page.reload()
    picture.find("tr[data-region='0']").wait_for()
    assert _mean(picture, 0) == mean
    picture.find("polygon.region").wait_for(state="attached")  # the numbers may come before the picture
