"""How long until the explorer shows the first picture of a large archive, in a real browser?

    python bench/explorer.py [--quick] [--case cog|ocean|days|saved|chunks|years] [--rounds N]

The clock starts when the browser goes to the address, and ends when the picture with its axes is on
the screen. Before that the server (`insitu explore`) has started and the browser shows an empty
page. `from the command` starts with the command, `a line` with a click on a point. `first` is with no
scan kept on disk, `second` with a new server and a new browser that find the scan of the first time,
`slider` moves to another position in an open page. It needs Playwright and a Chromium:
`python scripts/browser.py`.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

import machine
from archives import folder
from explorer_archives import daily_files, large_cog, ocean_model, ten_years
from table import arguments

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

READY = "() => document.querySelector(':is(.field-view, .chunk-view)[aria-busy=false] .axes .frame')"
"""True when the picture that was asked for is drawn."""
SECONDS = 120


@dataclass(frozen=True)
class Case:
    """An archive, and the states of the page that are timed."""

    title: str
    make: Callable[[Path, bool], None]
    name: str
    url: str
    """Behind the path of the archive."""
    variable: str
    moves: str | None
    """A dimension whose slider is moved."""
    view: str = "values"
    point: tuple[int, int] | None = None
    """A row and a column whose line is drawn."""


def saved_days(path: Path, quick: bool) -> None:
    """The ten thousand files as an insitu store."""
    import insitu

    days = _made(CASES["days"], quick)
    insitu.Archive.open(f"{days}/*.nc").save(path)


def ten_million_chunks(path: Path, quick: bool) -> None:
    """An insitu store of one variable with 10,000,000 chunks of ten files."""
    from insitu.model import UNWRITTEN, Axis, Codec, Columns, Encoding, Source, Tile, VirtualArray, VirtualGroup
    from insitu.references import save

    grid = (250, 400) if quick else (2500, 4000)
    length = np.random.default_rng(0).integers(100, 5000, grid)
    source = np.arange(grid[0])[:, None] * 10 // grid[0] + np.zeros(grid, np.int64)
    source[grid[0] // 3, grid[1] // 2] = UNWRITTEN
    offset = np.cumsum(length.ravel()).reshape(grid)
    table = Columns(grid, tuple(Source(f"/nowhere/{n}.nc") for n in range(10)), source, offset, length)
    axes = tuple(Axis.regular(count * 10, 10) for count in grid)
    tile = Tile(axes, (Encoding(np.dtype("<i2"), (Codec("zlib", {"level": 4}),)),), table)
    save(VirtualGroup(arrays={"v": VirtualArray.of(tile, dims=("y", "x"))}), path)


CASES = {
    "cog": Case("COG of 100,000 × 100,000 pixels with overviews", large_cog, "large.tif", "", "band_data", None),
    "ocean": Case("ocean model: 24 × 40 × 1,000 × 1,200, 4.6 GB", ocean_model, "ocean.nc", "", "thetao", "depth"),
    "days": Case("10,000 files of a day each, by pattern", daily_files, "days", "/*.nc", "tas", "time"),
    "saved": Case("the 10,000 files as an insitu store", saved_days, "days.insitu", "", "tas", "time"),
    "years": Case("ten files of a year of daily maps", ten_years, "years", "/*.nc", "tas", "time", point=(20, 50)),
    "chunks": Case("10,000,000 chunks, their picture", ten_million_chunks, "chunks.insitu", "", "v", None, "chunks"),
}


def _made(case: Case, quick: bool) -> Path:
    path = folder() / f"explorer{'-quick' if quick else ''}" / case.name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"part-{os.getpid()}-{path.name}")
        started = time.perf_counter()
        case.make(part, quick)
        part.rename(path)
        print(f"  wrote {path.name} in {time.perf_counter() - started:.1f} s", file=sys.stderr)
    return path


@contextmanager
def exploring(url: str, cache: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`insitu explore` with a folder for its scans: its address and its process."""
    command = [sys.executable, "-c", "from insitu.cli import app; app()", "explore", url, "--no-browser"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        assert process.stdout is not None
        address = next((line.strip() for line in process.stdout if line.startswith("http")), "")
        if not address:
            raise RuntimeError(f"insitu explore {url} ended without an address")
        yield address, process
    finally:
        process.terminate()
        process.wait(30)


@dataclass
class Times:
    """Seconds of each round."""

    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)
    slider: list[float] = field(default_factory=list)
    command: list[float] = field(default_factory=list)
    line: list[float] = field(default_factory=list)
    whole_line: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


def measure(case: Case, url: str, launch: Callable[[], Any], times: Times) -> None:
    """Run one round of a case."""
    cache = Path(tempfile.mkdtemp(prefix="insitu-bench-"))
    try:
        for seconds in (times.first, times.second):
            browser = launch()
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto("about:blank")
            begin = time.perf_counter()
            with exploring(url, cache) as (address, process):
                started = time.perf_counter() - begin
                seconds.append(_time_picture(page, f"{address.rstrip('/')}/{_state(case, url)}"))
                if seconds is times.second:
                    times.command.append(started + seconds[-1])
                if seconds is times.second and case.point:
                    _time_line(page, case.point, times)
                if seconds is times.second and case.moves:
                    times.slider.append(_time_move(page, case))
                times.memory.append(_peak_memory(process.pid))
                browser.close()
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def _state(case: Case, url: str) -> str:
    parts = {"url": url, "variable": case.variable, **({"view": case.view} if case.view != "values" else {})}
    return "#" + "&".join(f"{key}={quote(value)}" for key, value in parts.items())


def _time_picture(page: Any, address: str) -> float:
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_function(READY, timeout=1000 * SECONDS)
    return time.perf_counter() - start


def _time_move(page: Any, case: Case) -> float:
    """Move the slider of a dimension by one step, until the new picture is there."""
    index = page.evaluate("() => JSON.parse(new URLSearchParams(location.hash.slice(1)).get('index') || '{}')")
    target = {**index, case.moves: int(index.get(case.moves, 0)) + 7}
    start = time.perf_counter()
    with page.expect_response(lambda answer: "/api/field" in answer.url):
        page.evaluate(
            "(index) => { const parts = location.hash.slice(1).split('&').filter((part) => !part.startsWith('index='));"
            " location.hash = '#' + [...parts, 'index=' + encodeURIComponent(JSON.stringify(index))].join('&'); }",
            target,
        )
    page.wait_for_function(READY, timeout=1000 * SECONDS)
    return time.perf_counter() - start


def _time_line(page: Any, point: tuple[int, int], times: Times) -> None:
    """Choose a point, until its line is there: every n-th value of it, and all of them."""
    start = time.perf_counter()
    page.evaluate("(point) => { location.hash += '&point=' + encodeURIComponent(JSON.stringify(point)); }", list(point))
    page.wait_for_selector("[aria-label='Line plot'] .uplot", timeout=1000 * SECONDS)
    times.line.append(time.perf_counter() - start)
    page.wait_for_selector("[aria-label='Line plot'][aria-busy=false] .uplot", timeout=1000 * SECONDS)
    times.whole_line.append(time.perf_counter() - start)


def _peak_memory(process: int) -> float:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024.0
    return 0.0


def main() -> None:
    """Run all cases, and print one table."""
    options = arguments(__doc__)
    try:
        from browser import find_browser
        from playwright.sync_api import sync_playwright
    except ImportError as problem:
        sys.exit(f"the explorer cannot be measured without a browser: {problem}. pip install playwright")
    program = find_browser()
    if program is None:
        sys.exit("the explorer cannot be measured without a browser: python scripts/browser.py")
    print(machine.describe())
    rows = []
    with sync_playwright() as playwright:
        for name in options.case or CASES:
            case, times = CASES[name], Times()
            url = f"{_made(case, options.quick)}{case.url}"
            for number in range(options.rounds):
                measure(case, url, lambda: playwright.chromium.launch(executable_path=program), times)
                print(
                    f"  round {number + 1}: {name} {times.first[-1]:.2f} s, again {times.second[-1]:.2f} s",
                    file=sys.stderr,
                )
            rows.append((case.title, times))
    print("\n## the explorer: seconds until the first picture, in Chromium\n")
    print(
        "| | first (median) | least | second (median) | least | from the command | another position "
        "| a line | all of it | server's memory |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for title, times in rows:
        more = [
            f"{statistics.median(seconds):.2f}" if seconds else ""
            for seconds in (times.command, times.slider, times.line, times.whole_line)
        ]
        cells = [
            f"{of:.2f}" for seconds in (times.first, times.second) for of in (statistics.median(seconds), min(seconds))
        ]
        print(f"| {title} | {' | '.join(cells)} | {' | '.join(more)} | {max(times.memory) / 1e6:.0f} MB |")
    print(
        "\nFrom the address to the picture with its axes; the server runs already, the browser shows an empty page. "
        "First: nothing is known of the archive; second: its scan is on disk, server and browser are new; "
        "from the command: the same, with the start of the server."
    )


if __name__ == "__main__":
    main()
