"""Differences from xarray and NumPy that stay, each with its reason; docs/limits.md lists them by name.

A difference that no entry names is a failure. Each entry has a program that shows it, so that an
entry which is no longer true is noticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["KNOWN_DIFFERENCES", "KnownDifference", "name_of"]


@dataclass(frozen=True)
class KnownDifference:
    """A class of differences."""

    name: str
    reason: str
    statement: str
    """What a statement of the program matches."""
    problem: str
    """What the description of the difference matches."""
    example: tuple[int, str]
    """An archive, and a program that shows the difference."""


KNOWN_DIFFERENCES = (
    KnownDifference(
        "quantiles by a number of Python",
        "NumPy rounds q to float32 for values of float32; here q and the result are float64, as xarray has them.",
        r"np\.(nan)?(quantile|percentile)\(x, [\d.]+,",
        r"dtype float64, not float(32|16)",
        (0, "x = ds['a'].data\nx = np.nanquantile(x, 0.7, axis=0)"),
    ),
    KnownDifference(
        "empty slices backwards",
        "Coordinates that label no dimension are lazy arrays of xarray, which take slice(-7, None, -1) of 6 "
        "elements for all of them; xarray itself has the fault until values are loaded.",
        r"slice\(-\d+, (None|-?\d+), -\d\)",
        r"conflicting sizes for dimension|sizes \{|shape \(",
        (0, "x = ds['gaps']\nx = x.isel(time=slice(-30, None, -1))"),
    ),
)


def name_of(program: str, problem: str) -> str | None:
    """Return the name of the known difference that this is, if it is one."""
    for known in KNOWN_DIFFERENCES:
        if re.search(known.statement, program) and re.search(known.problem, problem):
            return known.name
    return None
