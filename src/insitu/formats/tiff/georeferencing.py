"""Place of a TIFF image on the Earth: GeoTIFF keys, affine transformation, control points.

The GeoTIFF tags (OGC 19-008r4, annex B and section 7) say how pixels become coordinates: a scale
and a tie point, or a whole matrix. As in GDAL, the result is an affine transformation from the
corner of pixel (0, 0). Coordinates are those of the pixels' centres.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.formats.tiff.directory import Directory

__all__ = ["KEY_TAGS", "REVISION", "TAGS", "Affine", "affine_of", "control_points", "geo_keys"]

PIXEL_SCALE, TIE_POINTS, TRANSFORMATION = 33550, 33922, 34264
KEY_DIRECTORY, DOUBLES, ASCIIS = 34735, 34736, 34737
KEY_TAGS = (KEY_DIRECTORY, DOUBLES, ASCIIS)
TAGS = (PIXEL_SCALE, TIE_POINTS, TRANSFORMATION, *KEY_TAGS)
RASTER_TYPE, POINT = 1025, 2
REVISION = 0
"""Not a key of GeoTIFF: here stands the minor revision, 1 for GeoTIFF 1.1."""


@dataclass(frozen=True, slots=True)
class Affine:
    """x = a·column + b·row + c, y = d·column + e·row + f, of the pixels' upper left corners."""

    a: float = 1.0
    b: float = 0.0
    c: float = 0.0
    d: float = 0.0
    e: float = 1.0
    f: float = 0.0

    @property
    def rotated(self) -> bool:
        """Whether x depends on the row, or y on the column."""
        return self.b != 0 or self.d != 0

    @property
    def gdal(self) -> str:
        """The text that GDAL writes into an attribute GeoTransform."""
        return f"{float(self.c)} {float(self.a)} {float(self.b)} {float(self.f)} {float(self.d)} {float(self.e)}"

    def centres(self, width: int, height: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return coordinates x of the columns and y of the rows, at the pixels' centres."""
        # The order of operations is that of the library `affine`, so that the bits are those that
        # rioxarray shows.
        x = np.arange(width) * self.a + 0.0 * self.b + (self.a * 0.5 + self.b * 0.5 + self.c)
        y = 0.0 * self.d + np.arange(height) * self.e + (self.d * 0.5 + self.e * 0.5 + self.f)
        return x.astype(np.float64, copy=False), y.astype(np.float64, copy=False)

    def scale(self, across: float, down: float) -> Affine:
        """Return the transformation of an overview, whose pixels are so many times as large."""
        return Affine(self.a * across, self.b * down, self.c, self.d * across, self.e * down, self.f)


def affine_of(tags: Directory, keys: dict[int, Any]) -> Affine | None:
    """Return the transformation: the identity if the image has none.

    None if it has only control points.
    """
    scale, ties, matrix = (_floats(tags, tag) for tag in (PIXEL_SCALE, TIE_POINTS, TRANSFORMATION))
    if scale.size >= 2 and scale[0] and scale[1] and ties.size >= 6:
        a, e = float(scale[0]), -abs(float(scale[1]))
        found = Affine(a, 0.0, float(ties[3]) - float(ties[0]) * a, 0.0, e, float(ties[4]) - float(ties[1]) * e)
    elif matrix.size == 16:
        found = Affine(*(float(matrix[i]) for i in (0, 1, 3, 4, 5, 7)))
    elif ties.size > 6:
        return None
    else:
        return Affine()
    if keys.get(RASTER_TYPE) == POINT:  # tied at the centre of a pixel, not at its corner
        c, f = found.c - (found.a * 0.5 + found.b * 0.5), found.f - (found.d * 0.5 + found.e * 0.5)
        found = Affine(found.a, found.b, c, found.d, found.e, f)
    return found


def control_points(tags: Directory, keys: dict[int, Any]) -> str:
    """Return the control points of an image without a transformation as GeoJSON, as rioxarray does;
    empty if there are none.
    """
    ties = _floats(tags, TIE_POINTS)
    if affine_of(tags, keys) is not None or ties.size % 6:
        return ""
    half = 0.5 if keys.get(RASTER_TYPE) == POINT else 0.0
    features = [
        {
            "type": "Feature",
            "properties": {"id": str(number), "info": "", "row": row + half, "col": column + half},
            "geometry": {"type": "Point", "coordinates": [x, y, z]},
        }
        for number, (column, row, _, x, y, z) in enumerate(ties.reshape(-1, 6).tolist(), 1)
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})


def _floats(tags: Directory, tag: int) -> npt.NDArray[Any]:
    value = tags.value(tag)
    return value.astype(np.float64, copy=False) if value is not None and value.dtype.kind == "f" else _NONE


_NONE = np.zeros(0)


def geo_keys(tags: Directory) -> dict[int, Any]:
    """Return the keys of the GeoTIFF directory.

    Number → integer, text, or a float (several: a tuple).
    """
    table = tags.value(KEY_DIRECTORY)
    if table is None or table.dtype.kind != "u" or table.size < 4:
        return {}
    return dict(_keys(table.tobytes(), table.dtype.str, _floats(tags, DOUBLES).tobytes(), tags.raw(ASCIIS) or b""))


@lru_cache(maxsize=256)
def _keys(raw: bytes, kind: str, numbers: bytes, text: bytes) -> tuple[tuple[int, Any], ...]:
    """Parse the keys. Cached: the files of an archive share them."""
    table, doubles = np.frombuffer(raw, kind), np.frombuffer(numbers, np.float64)
    keys: dict[int, Any] = {}
    for key, place, count, value in (
        table[4 : 4 + 4 * int(table[3])][: (table.size - 4) // 4 * 4].reshape(-1, 4).tolist()
    ):
        if place == 0:
            keys[key] = value
        elif place == DOUBLES and value + count <= doubles.size and count:
            keys[key] = float(doubles[value]) if count == 1 else tuple(doubles[value : value + count].tolist())
        elif place == ASCIIS:
            keys[key] = text[value : value + count].rstrip(b"|\0").decode("utf-8", "replace")
    if keys and table[1] == 1:
        keys[REVISION] = int(table[2])
    return tuple(keys.items())
