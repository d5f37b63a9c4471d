"""Pictures of the explorer's page for README and docs: docs/pictures/explorer-*.png and views-*.jpg.

    python scripts/page_pictures.py [NAME…]

The page is shown by a headless Chromium over the demonstration's archive, over files of every kind of grid
(`view_archive.py`), and over real files of the corpus where it is there (INSITU_CORPUS, ../shared/corpus):
their pictures are left as they are otherwise. A picture of a view shows it in both themes, and on a phone.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "examples" / "demo")]

from browser import find_browser  # noqa: E402
from PIL import Image  # noqa: E402
from sample_archive import make_archive  # noqa: E402
from view_archive import make_view_archive  # noqa: E402

from server import run_server  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
CORPUS = Path(os.environ.get("INSITU_CORPUS", ROOT.parent / "shared" / "corpus"))
MOST_BYTES = 200_000
ARCHIVE = "archive/*.nc"


@dataclass(frozen=True)
class Shot:
    """One picture: the state of the page over a file of the corpus, or over the demonstration's archive."""

    name: str
    state: dict[str, Any]
    corpus: str | None = None
    size: tuple[int, int] = (1280, 940)
    theme: str = "light"


GRIB = "grib/ecmwf+cfgrib/era5-levels-members.grib"
SATELLITE = "hdf5/NCAS-CMS+PyActiveStorage/tests/test_data/obs4MIPS_CERES-EBAF_L3B_Ed2-8_rlut.nc"
CELL = {"time": 130, "lat": 20, "lon": 0}
SHOTS = (
    Shot("explorer-values", {"variable": "tas", "index": {"time": 196}, "point": [62, 42]}, size=(1280, 1290)),
    Shot("explorer-chunks", {"variable": "tas", "view": "chunks", "colour": "codec", "cell": CELL}, size=(1280, 1180)),
    Shot(
        "explorer-dark",
        {"variable": "tas", "statistic": "std", "over": ["time"], "map": "magma"} | {"projection": "globe"},
        size=(1280, 1100),
        theme="dark",
    ),
    Shot("explorer-phone", {"variable": "pr", "index": {"time": 30}, "map": "cividis"}, size=(390, 860)),
    Shot("explorer-grib", {"variable": "t", "index": {"isobaricInhPa": 1}}, corpus=GRIB),
    Shot("explorer-satellite", {"variable": "rlut", "box": [40, 140, 30, 200], "map": "inferno"}, corpus=SATELLITE),
)


@dataclass(frozen=True)
class ViewShot:
    """One view of the page, over one of the files of `view_archive.py`."""

    name: str
    file: str
    """Empty: the demonstration's archive."""
    state: dict[str, Any]
    listed: str = ""
    """A folder within that of the files, which is listed instead."""


REGIONS = [
    {"polygon": [[-25, 15], [20, 15], [20, 35], [-25, 35]], "axes": "map"},
    {"polygon": [[95, -20], [150, -20], [125, 15]], "axes": "map"},
    {"point": [54, 20]},
]
VIEWS = (
    ViewShot("plate", "levels", {"variable": "ta", "point": [50, 75]}),
    ViewShot("mercator", "curvilinear", {"variable": "thetao", "projection": "mercator"}),
    ViewShot("equal-earth", "swath", {"variable": "tb", "projection": "equal-earth"}),
    ViewShot("north", "curvilinear", {"variable": "thetao", "projection": "north"}),
    ViewShot("south", "mesh", {"variable": "t_2m", "projection": "south"}),
    ViewShot("globe", "disc", {"variable": "tb", "projection": "globe", "centre": [-70, 15]}),
    ViewShot("rotated", "rotated", {"variable": "tas", "lines": "coasts,borders,graticule"}),
    ViewShot("mesh", "mesh", {"variable": "t_2m", "centre": [15, 45], "zoom": 6, "index": {"time": 1}}),
    ViewShot("stations", "stations", {"variable": "tas", "point": [0, 60]}),
    ViewShot("mask", "levels", {"variable": "ta", "projection": "equal-earth", "mask": "land", "steps": 10}),
    ViewShot("arrows", "levels", {"variable": "ta", "index": {"plev": 4}, "arrows": "ua|va", "contours": "ua"}),
    ViewShot("formula", "levels", {"variable": "=ta - 250", "projection": "equal-earth"}),
    ViewShot("regions", "levels", {"variable": "ta", "regions": REGIONS}),
    ViewShot("section", "levels", {"variable": "ta", "y": "plev", "x": "lat", "statistic": "mean", "over": ["lon"]}),
    ViewShot("hovmoeller", "levels", {"variable": "ta", "y": "time", "x": "lon", "index": {"lat": 50}}),
    ViewShot("axes", "curvilinear", {"variable": "thetao", "projection": "none"}),
    ViewShot("flags", "levels", {"variable": "zone"}),
    ViewShot("composite", "bands", {"variable": "reflectance", "rgb": [0, 1, 2]}),
    ViewShot("chunks", "", {"variable": "tas", "view": "chunks", "colour": "codec"}),
    ViewShot("attributes", "levels", {"variable": "ta", "view": "attributes"}),
    ViewShot("listing", "", {}, listed="views"),
)
LAYOUTS = [((1280, 1250), "light"), ((1280, 1250), "dark"), ((390, 1250), "light"), ((390, 1250), "dark")]
"""Windows and themes that each view is drawn in, side by side."""
SCALE = 0.55
QUALITY = 72


def draw(names: list[str]) -> None:
    """Draw the pictures with these names, or all."""
    from playwright.sync_api import sync_playwright

    program = find_browser()
    if program is None:
        sys.exit("no Chromium: python scripts/browser.py install")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="insitu-") as made:
        folder = Path(made)
        (folder / "archive").mkdir()
        make_archive(folder / "archive")
        with run_server(folder, folder / "server.log") as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program)
            for shot in SHOTS:
                if names and shot.name not in names:
                    continue
                url = _place(shot, folder)
                if url is None:
                    print(f"{shot.name}: no corpus here")
                    continue
                _draw_one(browser, server.url, shot, url)
            make_view_archive(folder / "views")
            for view in VIEWS:
                if not names or f"views-{view.name}" in names:
                    _draw_view(browser, server.url, view, folder)
            browser.close()


def _place(shot: Shot, folder: Path) -> str | None:
    """Return what to open; a file of the corpus is copied beside the archive."""
    if shot.corpus is None:
        return str(folder / ARCHIVE)
    if not (CORPUS / shot.corpus).is_file():
        return None
    return str(shutil.copyfile(CORPUS / shot.corpus, folder / Path(shot.corpus).name))


def _draw_one(browser: Any, address: str, shot: Shot, url: str) -> None:
    target = PICTURES / f"{shot.name}.png"
    with _take(browser, address, {"url": url, **shot.state}, shot.size, shot.theme, str(Path(url).parent)) as image:
        image.quantize(256).save(target, optimize=True)
    _check_size(target)


def _draw_view(browser: Any, address: str, view: ViewShot, folder: Path) -> None:
    """Draw a view in all layouts, into one picture."""
    url = folder / "views" / f"{view.file}.nc" if view.file else folder / ARCHIVE
    place = {"folder": str(folder / view.listed)} if view.listed else {"url": str(url)}
    images = [
        _take(browser, address, {**place, **view.state}, size, theme, hide=str(folder)) for size, theme in LAYOUTS
    ]
    sheet = Image.new("RGB", (sum(image.width for image in images), images[0].height))
    left = 0
    for image in images:
        sheet.paste(image, (left, 0))
        left += image.width
    target = PICTURES / f"views-{view.name}.jpg"
    small = sheet.resize((round(sheet.width * SCALE), round(sheet.height * SCALE)), Image.Resampling.LANCZOS)
    small.save(target, quality=QUALITY, optimize=True)
    _check_size(target)


def _take(
    browser: Any, address: str, parts: dict[str, Any], size: tuple[int, int], theme: str, hide: str
) -> Image.Image:
    """Return what a window shows of a state of the page, without the name of a folder of this machine."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in parts.items()}
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
    page = context.new_page()
    page.goto(f"{address}/#{'&'.join(f'{key}={quote(value)}' for key, value in texts.items())}")
    page.locator("[aria-busy=false] canvas, .attributes, .entries").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)  # the last requests are drawn
    name = Path(str(parts.get("url", ""))).name
    page.locator(".crumb").first.evaluate("(crumb, name) => { crumb.textContent = name; }", name)
    page.evaluate(
        """(hidden) => { const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) walker.currentNode.data = walker.currentNode.data.replaceAll(hidden, "/data"); }""",
        hide,
    )
    taken = page.screenshot()
    context.close()
    return Image.open(io.BytesIO(taken)).convert("RGB")


def _check_size(target: Path) -> None:
    size = target.stat().st_size
    print(f"{target.relative_to(ROOT)}: {size:,} bytes")
    if size > MOST_BYTES:
        sys.exit(f"{target.name} is larger than {MOST_BYTES:,} bytes: make its window smaller")


if __name__ == "__main__":
    draw(sys.argv[1:])
