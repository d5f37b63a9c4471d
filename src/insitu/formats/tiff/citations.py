"""Citations of GeoTIFF keys: names and units of coordinates in free text.

GDAL writes parts as `PCS Name = a|LUnits = b`. ERDAS IMAGINE writes lines behind its copyright:
`Projection Name = a`, `Units = b`. A unit that is cited counts more than the key of the unit.
"""

from __future__ import annotations

import re
from typing import Any

from insitu.formats.tiff.units import LINEAR_SIZE, USER_DEFINED, UnitOfMeasure

__all__ = ["CITATION", "PROJECTED", "PROJECTED_CITATION", "cited_name", "cited_unit", "local_name"]

CITATION, PROJECTED, PROJECTED_CITATION = 1026, 3072, 3073
IMAGINE = "IMAGINE GeoTIFF"
_US_FOOT = 0.3048006096012192
_METRES = {
    # GDAL's sizes of units that citations name; a foot is one of the US unless more is said
    **dict.fromkeys(("meter", "m"), 1.0), **dict.fromkeys(("centimeter", "cm"), 0.01),
    **dict.fromkeys(("millimeter", "mm"), 0.001), **dict.fromkeys(("kilometer", "km"), 1000.0),
    **dict.fromkeys(("us_survey_foot", "foot", "ft"), _US_FOOT), "international_foot": 0.3048,
    **dict.fromkeys(("inches", "inch", "in"), 0.0254000508001), **dict.fromkeys(("yard", "yd"), 0.9144),
    "modified_american_foot": 0.3048122530, "clarke_foot": 0.3047972651, "indian_foot": 0.3047995142,
}  # fmt: skip


def cited_unit(keys: dict[int, Any]) -> UnitOfMeasure | None:
    """Return the unit of projected coordinates that a citation names; None if there is none."""
    numbered = isinstance(keys.get(PROJECTED), int) and keys[PROJECTED] < USER_DEFINED
    places = (CITATION,) if numbered else (CITATION, PROJECTED_CITATION)
    for place in places:
        text = keys.get(place)
        if not isinstance(text, str):
            continue
        found = re.search(r"Units = ([^\n]*)" if text.startswith(IMAGINE) else r"(?:^|\|)LUnits = ([^|]*)", text)
        if found:
            name = found[1].strip()
            plain = re.sub("feet$", "foot", name.lower())
            size = _METRES.get(plain) or _METRES.get(plain.rstrip("s")) or keys.get(LINEAR_SIZE)
            return UnitOfMeasure(name, size) if isinstance(size, float) and size > 0 and '"' not in name else None
    return None


def cited_name(keys: dict[int, Any]) -> str | None:
    """Return the name of a projected system that is described by its parts; None if there is none."""
    for place in (PROJECTED_CITATION, CITATION):
        text = keys.get(place)
        if not isinstance(text, str) or not text or text.startswith("LUnits = "):
            continue
        if text.startswith(IMAGINE):
            found = re.search(r"Projection(?: Name)? = ([^\n]*)", text) or re.search(r"\$[^\n]*\n([^\n]*)", text)
            return found[1].strip() if found else None
        return text.strip("|")
    return None


def local_name(keys: dict[int, Any]) -> str | None:
    """Return the name of local coordinates, in one line and without IMAGINE's copyright."""
    text = keys.get(CITATION)
    if not isinstance(text, str):
        return None
    return text[text.rfind("$") + 1 :].replace("\n", " ").strip() if IMAGINE in text else text.strip("|")
