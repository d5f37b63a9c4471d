"""Formulas, contour lines and arrows on the page in a real browser, compared with xarray."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import xarray as xr

from forked_commands import run_command
from server.explorer.page import ExplorerPage, number_in
from server.serving import Server, serving

pytestmark = [pytest.mark.browser, pytest.mark.servers, pytest.mark.slow]

Open = Callable[..., ExplorerPage]
SHAPE = (12, 18)


@pytest.fixture(scope="module")
def wind() -> xr.Dataset:
    lat, lon = np.linspace(-66, 66, 12), np.arange(18) * 20.0
    hill = np.cos(np.deg2rad(lat))[:, None] * np.sin(np.deg2rad(lon))
    dims = ("lat", "lon")
    return xr.Dataset(
        {
            "tas": (dims, 280 + 10 * hill, {"units": "K"}),
            "dew": (dims, 270 + 5 * hill, {"units": "K"}),
            "u": (dims, 3 + 0 * hill, {"units": "m s-1", "standard_name": "eastward_wind"}),
            "v": (dims, -4 + 0 * hill, {"units": "m s-1", "standard_name": "northward_wind"}),
        },
        {"lat": ("lat", lat, {"units": "degrees_north"}), "lon": ("lon", lon, {"units": "degrees_east"})},
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, wind: xr.Dataset) -> Path:
    path: Path = tmp_path_factory.mktemp("wind") / "wind.nc"
    wind.to_netcdf(path, engine="h5netcdf")
    return path


@pytest.fixture(scope="module")
def server(file: Path) -> Iterator[Server]:
    with serving([file.parent], file.parent / "serve.log") as running:
        yield running


def _link(file: Path, **state: str) -> str:
    return "#" + "&".join(f"{key}={quote(value)}" for key, value in {"url": str(file), **state}.items())


def test_a_formula_that_is_typed(open_page: Open, server: Server, file: Path, wind: xr.Dataset, tmp_path: Path) -> None:
    page = open_page(server.url, _link(file, variable="tas"))
    page.wait_for_picture()
    page.find("input[name=formula]").fill("where(lat > 0, tas - 273.15, nan)")
    page.find("input[name=formula]").press("Enter")
    page.find("h1", has_text="where(lat").wait_for()
    page.wait_for_picture()
    expected = xr.where(wind.lat > 0, wind.tas - 273.15, np.nan).transpose("lat", "lon")
    assert number_in(page.hover(9, 4, *SHAPE)) == pytest.approx(float(expected[9, 4]), rel=1e-6)
    assert page.hover(2, 4, *SHAPE) == "missing"
    code = page.copy_snippet("Python")
    target = tmp_path / "field.nc"
    done = run_command([], code=f"{code}\nfield.rename('field').to_netcdf({str(target)!r})")
    assert done.returncode == 0, done.stderr
    with xr.open_dataset(target) as found:
        np.testing.assert_array_equal(found.field.transpose("lat", "lon"), expected)
    page.find("[data-tab=chunks]").wait_for(state="detached")


def test_the_difference_of_two_variables_and_a_formula_that_is_wrong(
    open_page: Open, server: Server, file: Path, wind: xr.Dataset
) -> None:
    page = open_page(server.url, _link(file, variable="tas"))
    page.wait_for_picture()
    page.find("select[aria-label='Another variable']").select_option("dew")
    page.find("h1", has_text="tas - dew").wait_for()
    page.wait_for_picture()
    assert number_in(page.hover(5, 5, *SHAPE)) == pytest.approx(float((wind.tas - wind.dew)[5, 5]), rel=1e-6)
    page.find("input[name=formula]").fill("tas - snow")
    page.find("input[name=formula]").press("Enter")
    page.find(".error-box", has_text="there is no variable 'snow'").wait_for()
    page.find("input[name=formula]").fill("dew")
    page.find("input[name=formula]").press("Enter")
    page.page.wait_for_function("() => location.hash.includes('variable=dew')")
    page.wait_for_picture()


def test_contour_lines_and_arrows(open_page: Open, server: Server, file: Path) -> None:
    page = open_page(server.url, _link(file, variable="tas"))
    page.wait_for_picture()
    page.find("select[aria-label='Contour lines of']").select_option("dew")
    page.find("path.contour").first.wait_for(state="attached")
    levels = page.page.evaluate("() => [...document.querySelectorAll('path.contour')].map((p) => +p.dataset.level)")
    assert len(levels) >= 4
    assert 265 < min(levels) < max(levels) < 275
    page.find("select[aria-label='Arrows of']").select_option("u|v")
    page.find("path.arrow").wait_for(state="attached")
    assert int(page.find("path.arrow").get_attribute("data-count") or 0) > 20
    # 3 m/s to the east and 4 m/s to the south: to the right and, where north is up, downwards.
    x0, y0, x1, y1 = page.page.evaluate(
        "() => document.querySelector('path.arrow').getAttribute('d').match(/-?[\\d.]+/g).slice(0, 4).map(Number)"
    )
    assert (y1 - y0) / (x1 - x0) == pytest.approx(4 / 3, rel=0.05)
    assert x1 > x0
    assert "the longest is 5 m s-1" in page.find(".caption").inner_text()
    assert {"contours": "dew", "arrows": "u|v"}.items() <= page.state.items()
    page.page.reload()
    page.wait_for_picture()
    page.find("path.arrow").wait_for(state="attached")
    page.find("path.contour").first.wait_for(state="attached")
    assert json.dumps(levels) == json.dumps(
        page.page.evaluate("() => [...document.querySelectorAll('path.contour')].map((p) => +p.dataset.level)")
    )
