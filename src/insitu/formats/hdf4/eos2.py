"""What does HDF-EOS2 say of the fields of an HDF4 file?

MODIS and others describe grids and swaths in a text, the attributes `StructMetadata.0` and following. Where a grid lies becomes a detail, from which the coordinates along its dimensions (`YDim:MOD_Grid`, …) are made when it
is opened; the geolocation fields of a swath are coordinates.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from insitu.formats.hdf5.conventions.eos5 import parse_grids

__all__ = ["structures"]

PARTS_LIMIT = 64
_GEOLOCATION = re.compile(r'GeoFieldName\s*=\s*"([^"]*)"')


def structures(attributes: Mapping[str, Any], names: Collection[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the grids that the text of a file describes, by name, and which of these fields are coordinates."""
    texts = [attributes.get(f"StructMetadata.{number}") for number in range(PARTS_LIMIT)]
    text = "".join(part for part in texts if isinstance(part, str))
    return parse_grids(text), tuple(sorted(set(_GEOLOCATION.findall(text)) & set(names)))
