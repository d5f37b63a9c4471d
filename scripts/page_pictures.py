"""Pictures of the explorer's page for README and docs: docs/pictures/explorer-*.png.

    python scripts/page_pictures.py [NAME…]

The page is shown by a headless Chromium over the demonstration's archive, and over real files of
the corpus where it is there (INSITU_CORPUS, ../shared/corpus): their pictures are left as they are
otherwise.
"""

from __future__ import annotations

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
            browser.close()


def _place(shot: Shot, folder: Path) -> str | None:
    """Return what to open; a file of the corpus is copied beside the archive."""
    if shot.corpus is None:
        return str(folder / ARCHIVE)
    if not (CORPUS / shot.corpus).is_file():
        return None
    return str(shutil.copyfile(CORPUS / shot.corpus, folder / Path(shot.corpus).name))


def _draw_one(browser: Any, address: str, shot: Shot, url: str) -> None:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in shot.state.items()}
    state = "&".join(f"{key}={quote(value)}" for key, value in {"url": url, **texts}.items())
    viewport = {"width": shot.size[0], "height": shot.size[1]}
    context = browser.new_context(viewport=viewport, color_scheme=shot.theme)
    page = context.new_page()
    page.goto(f"{address}/#{state}")
    page.locator("[aria-busy=false] canvas").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)  # the last requests are drawn
    target = PICTURES / f"{shot.name}.png"
    page.locator(".crumb").first.evaluate("(crumb, name) => { crumb.textContent = name; }", Path(url).parts[-1])
    page.screenshot(path=target)
    context.close()
    with Image.open(target) as image:
        image.quantize(256).save(target, optimize=True)
    size = target.stat().st_size
    print(f"{target.relative_to(ROOT)}: {size:,} bytes")
    if size > MOST_BYTES:
        sys.exit(f"{target.name} is larger than {MOST_BYTES:,} bytes: make its window smaller")


if __name__ == "__main__":
    draw(sys.argv[1:])
