"""Tables of the colour maps of cmocean for the explorer's page: page/vendor/cmocean.js.

    python scripts/colour_tables.py FOLDER

FOLDER is an unpacked wheel of cmocean. Each map becomes a line through few of its 256 colours that
leaves none of them by more than two of 255 levels. The result is committed: nobody but a maintainer
runs this.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "insitu" / "server" / "explorer" / "page" / "vendor" / "cmocean.js"
NAMES = ("thermal", "haline", "solar", "ice", "oxy", "deep", "dense", "algae", "matter", "turbid", "speed", "amp",
         "tempo", "rain", "phase", "topo", "balance", "delta", "curl", "diff")  # fmt: skip
TOLERANCE = 2.0

Colours = npt.NDArray[Any]


def choose_knots(colours: Colours, tolerance: float = TOLERANCE) -> list[int]:
    """Return the positions of colours between which straight lines come close to all others (Douglas and Peucker)."""
    knots = {0, len(colours) - 1}
    pending = [(0, len(colours) - 1)]
    while pending:
        first, last = pending.pop()
        if last - first < 2:
            continue
        share = np.linspace(0, 1, last - first + 1)[:, None]
        line = colours[first] + share * (colours[last] - colours[first])
        distance = np.abs(line - colours[first : last + 1]).max(axis=1)
        worst = int(distance.argmax())
        if distance[worst] > tolerance:
            knots.add(first + worst)
            pending += [(first, first + worst), (first + worst, last)]
    return sorted(knots)


def format_table(colours: Colours) -> str:
    """Return knots as text: two hexadecimal digits of the position, six of the colour."""
    rounded = np.round(colours)
    parts = []
    for position in choose_knots(rounded):
        red, green, blue = (int(level) for level in rounded[position])
        parts.append(f"{position:02x}{red:02x}{green:02x}{blue:02x}")
    return " ".join(parts)


def read_colours(folder: Path, name: str) -> Colours:
    """Return 256 colours of a map, with levels up to 255; some maps have more."""
    levels = 255 * np.loadtxt(folder / "cmocean" / "rgb" / f"{name}-rgb.txt")
    return levels[np.round(np.linspace(0, len(levels) - 1, 256)).astype(int)]


def build(folder: Path) -> str:
    """Return the module."""
    (about,) = folder.glob("cmocean-*.dist-info")
    licence = next(about.rglob("LICENSE*")).read_text(encoding="utf-8").strip()
    notice = "\n".join(f"// {line}".rstrip() for line in licence.splitlines())
    tables = "\n".join(f'  {name}: "{format_table(read_colours(folder, name))}",' for name in NAMES)
    version = about.name.removesuffix(".dist-info").replace("-", " ")
    return (
        f"// Colour maps of {version}, made by scripts/colour_tables.py: knots of position and colour.\n"
        f"//\n{notice}\n\nexport const CMOCEAN = {{\n{tables}\n}};\n"
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    TARGET.write_text(build(Path(sys.argv[1])), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size:,} bytes")
