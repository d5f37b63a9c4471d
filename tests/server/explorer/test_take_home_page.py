"""What is taken from the page in a real browser: animations, pictures, code for regions."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import xarray as xr

from server.explorer.page import ExplorerPage
from server.serving import Server

pytestmark = [pytest.mark.browser, pytest.mark.servers, pytest.mark.slow]

Open = Callable[..., ExplorerPage]


def test_an_animation_along_time(open_page: Open, explored: Server, folder: Path, maps: xr.Dataset) -> None:
    image = pytest.importorskip("PIL.Image", reason="no Pillow here")
    page = open_page(
        explored.url,
        f"#url={quote(f'{folder}/maps/*.nc')}&variable=tas&lines=none&map=greys&index=%7B%22time%22%3A3%7D",
    )
    page.wait_for_picture()
    page.find(".caption", has_text="One range").wait_for()
    low, high = (float(page.find(f"input[name={name}]").input_value()) for name in ("low", "high"))
    box = page.find(".surface").bounding_box()
    picture = page.find(".picture").bounding_box()
    with page.page.expect_download() as download:
        page.find("[data-save=gif]").click()
    page.find("[data-save=gif]", has_text="GIF").wait_for()
    assert page.state["index"] == '{"time":3}'  # as before
    with image.open(io.BytesIO(Path(download.value.path()).read_bytes())) as found:
        assert found.n_frames == maps.sizes["time"] == 12
        brightness = []
        for number in (0, 7):
            found.seek(number)
            left, top = box["x"] - picture["x"], box["y"] - picture["y"] + 44
            pixels = np.asarray(found.convert("L")).astype(float)
            y, x = top + box["height"] * (1 - 12.5 / 24), left + box["width"] * 20.5 / 40
            brightness.append(pixels[int(y), int(x)])
    values = maps.tas[[0, 7], 12, 20].values
    assert low < values.mean() < high
    # All frames have one range of colours: the higher value is the brighter one.
    assert (brightness[0] > brightness[1]) == (values[0] > values[1])


def test_the_command_of_a_region(
    open_page: Open, explored: Server, folder: Path, maps: xr.Dataset, tmp_path: Path
) -> None:
    regions = quote('[{"box":[4,20,5,30]}]')
    page = open_page(explored.url, f"#url={quote(f'{folder}/maps/*.nc')}&variable=tas&regions={regions}")
    page.wait_for_picture()
    page.find("tr[data-region='0']").wait_for()
    subprocess.run(page.copy_snippet("curl, regions"), shell=True, check=True, cwd=tmp_path)
    part = maps.tas[:, 4:20, 5:30].astype("f8")
    expected = part.weighted(np.cos(np.deg2rad(maps.lat.astype("f8")))).mean(("lat", "lon"))
    with xr.open_dataset(tmp_path / "region_1.nc") as found:
        np.testing.assert_allclose(found["mean"], expected, rtol=1e-12)


def test_a_token_of_a_notebook_leaves_the_address(open_page: Open, explored: Server, folder: Path) -> None:
    page = open_page(explored.url, f"#token=se%2Fcret&url={quote(f'{folder}/maps/*.nc')}&variable=tas")
    page.wait_for_picture()
    assert "cret" not in page.page.url
    assert page.state["variable"] == "tas"
    assert page.page.evaluate("() => sessionStorage.getItem('insitu-token')") == "se/cret"
