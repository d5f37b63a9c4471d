"""A Chromium, an archive whose files differ, and a server over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

from script_modules import load_script
from server.explorer.page import ExplorerPage
from server.serving import Server, serving
from waiting import LONG

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>{{7*7}}'


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files that differ in chunks, codecs and packing; and a file of odd variables."""
    made: Path = tmp_path_factory.mktemp("explored")
    for number, (chunks, options, scale) in enumerate(
        [
            ((2, 12, 20), {"zlib": True}, 0.01),
            ((1, 24, 40), {}, 0.005),
            ((4, 8, 40), {"zlib": True, "shuffle": False}, 0.02),
        ]
    ):
        _write_maps(made / "maps" / f"maps_{number}.nc", 4 * number, chunks, options, scale)
    _write_odd(made / "odd.nc")
    return made


def _write_maps(path: Path, first: int, chunks: tuple[int, ...], options: dict[str, Any], scale: float) -> None:
    path.parent.mkdir(exist_ok=True)
    random = np.random.default_rng(first)
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", 4), ("lat", 24), ("lon", 40)):
            file.createDimension(name, size)
        time = file.createVariable("time", "i4", ("time",))
        time.units = "days since 2001-02-26"
        time[:] = np.arange(first, first + 4)
        for name, units, values in (
            ("lat", "degrees_north", np.linspace(-69, 69, 24)), ("lon", "degrees_east", np.linspace(0, 351, 40))
        ):  # fmt: skip
            axis = file.createVariable(name, "f4", (name,))
            axis.units = units
            axis[:] = values
        tas = file.createVariable("tas", "i2", ("time", "lat", "lon"), chunksizes=chunks, fill_value=-32768, **options)
        tas.setncatts(
            {
                "units": "K",
                "long_name": "Air temperature",
                "scale_factor": scale,
                "add_offset": 280.0,
                "comment": HOSTILE,
            }
        )
        values = 280 + 20 * np.cos(np.deg2rad(np.linspace(-69, 69, 24)))[:, None] + random.normal(0, 3, (4, 24, 40))
        tas[:] = np.ma.masked_where(np.broadcast_to(np.arange(40) < 3, values.shape), values)


def _write_odd(path: Path) -> None:
    with netCDF4.Dataset(path, "w") as file:
        file.title = HOSTILE
        file.createDimension("station", 7)
        file.createDimension("hour", 300)
        names = file.createVariable("name", str, ("station",))
        names[:] = np.array([f"station <b>{at}</b>" for at in range(7)], object)
        file.createVariable("answer", "i4", ())[...] = 42
        level = file.createVariable("level", "f8", ("hour",))
        level.units = "m"
        level[:] = np.sin(np.arange(300) / 20)
        gaps = file.createVariable("gaps", "f4", ("station", "hour"), chunksizes=(1, 100), zlib=True)
        gaps[0:3, 0:150] = 1.5
        group = file.createGroup("model/run")
        group.createDimension("k", 5)
        group.createVariable("depth", "f4", ("k",))[:] = np.arange(5)


@pytest.fixture(scope="session")
def maps(folder: Path) -> Iterator[xr.Dataset]:
    """What xarray reads from the maps."""
    with xr.open_mfdataset(
        str(folder / "maps" / "*.nc"), engine="netcdf4", data_vars="minimal", compat="override", coords="minimal"
    ) as found:
        yield found.load()


@pytest.fixture(scope="module")
def explored(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([folder], tmp_path_factory.mktemp("log") / "serve.log") as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser. For one module only: Playwright's loop runs in this thread, and other tests have theirs."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here (pip install 'insitu[test]')")
    program = load_script("browser").find_browser()
    if program is None:
        pytest.skip("no Chromium here (python scripts/browser.py install)")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., ExplorerPage]]:
    """Open pages of the explorer; at the end none of them may have raised an error or left its origin."""
    opened: list[ExplorerPage] = []

    def open_one(address: str, state: str = "", **options: Any) -> ExplorerPage:
        context = chromium.new_context(
            viewport={"width": 1280, "height": 900}, permissions=["clipboard-read", "clipboard-write"], **options
        )
        context.set_default_timeout(1000 * LONG)
        page = ExplorerPage(context.new_page(), address)
        opened.append(page)
        page.go(state)
        return page

    yield open_one
    for page in opened:
        page.page.context.close()
        assert page.errors == []
        assert page.elsewhere == []
