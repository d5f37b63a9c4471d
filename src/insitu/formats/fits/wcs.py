"""World coordinates (WCS) of single FITS image axes.

Only axes that do not depend on others have coordinates: coordinate = CRVAL + CDELT · (pixel −
CRPIX), pixels counted from 1, with no other axis in it ("Representations of World Coordinates in
FITS", Greisen and Calabretta 2002). Logarithmic axes are written out too. Of the sky, longitude and
latitude depend on each other by a projection: no coordinates of an axis can be given, the keywords
stay in the attributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError
from insitu.formats.fits.header_units import HeaderDataUnit

__all__ = ["AxisScale", "axis_scale"]

FRAMES = ("LSR", "HEL", "OBS", "GEO", "SOU", "GAL")
"""Reference frames of velocities in older conventions; these suffixes are no algorithms."""


@dataclass(frozen=True, slots=True)
class AxisScale:
    """The coordinates of one axis."""

    kind: str
    """CTYPE, e.g. FREQ."""
    unit: str
    value: float
    """At the reference pixel."""
    step: float
    reference: float
    logarithmic: bool = False

    def values(self, length: int) -> npt.NDArray[np.float64]:
        """Return the coordinates of all pixels."""
        offset = self.step * (np.arange(1, length + 1) - self.reference)
        if self.logarithmic:
            return np.asarray(self.value * np.exp(offset / self.value), np.float64)
        return np.asarray(self.value + offset, np.float64)

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the coordinates."""
        return {name: text for name, text in (("long_name", self.kind), ("units", self.unit)) if text}


def axis_scale(unit: HeaderDataUnit, axis: int) -> AxisScale | None:
    """Return the scale of an axis (counted from 1).

    None if it has none, if it depends on another axis, or if its cards are damaged.
    """
    try:
        return _axis_scale(unit, axis)
    except FormatError:
        return None


def _axis_scale(unit: HeaderDataUnit, axis: int) -> AxisScale | None:
    cards, number = unit.cards, axis
    if not any(f"{word}{number}" in cards for word in ("CRVAL", "CRPIX", "CDELT", "CTYPE")):
        return None
    kind = str(unit.card(f"CTYPE{number}") or "").strip()
    algorithm = kind[5:8] if len(kind) > 4 and kind[4] == "-" else ""
    if kind.startswith("VELO-") and algorithm in FRAMES:
        algorithm = ""
    if algorithm not in ("", "LOG"):
        return None
    axes = range(1, max(len(unit.axes), unit.whole("WCSAXES", 0, most=99)) + 1)
    if any(unit.number_of(f"CROTA{other}", 0.0) for other in axes):
        return None
    for other in axes:
        if other != number and any(
            unit.number_of(f"{word}{a}_{b}", 0.0)
            for word in ("PC", "CD")
            for a, b in ((number, other), (other, number))
        ):
            return None
    diagonal = unit.number_of(f"PC{number}_{number}", 1.0)
    step = unit.number_of(f"CDELT{number}", 1.0) * diagonal
    if f"CD{number}_{number}" in cards:
        step = unit.number_of(f"CD{number}_{number}", 1.0)
    value = unit.number_of(f"CRVAL{number}", 0.0)
    if not step or (algorithm == "LOG" and not value):
        return None
    return AxisScale(
        kind=kind,
        unit=str(unit.card(f"CUNIT{number}") or "").strip(),
        value=value,
        step=step,
        reference=unit.number_of(f"CRPIX{number}", 0.0),
        logarithmic=algorithm == "LOG",
    )
