"""Attributes of a TIFF image.

Text tags, and GDAL's XML metadata (scale, offset, units, statistics).

They are shown as rioxarray shows them.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import numpy as np

from insitu.formats.tiff.directory import Directory
from insitu.formats.tiff.georeferencing import POINT, RASTER_TYPE
from insitu.formats.unreadable import InsituWarning
from insitu.sources.object_store.xml_check import declares_doctype

__all__ = ["TAGS", "attributes_of", "colours_of_indices", "frames_of", "nodata_of"]

GDAL_METADATA, GDAL_NODATA = 42112, 42113
DESCRIPTION, COLOUR_MAP, STK_PLANES = 270, 320, 33629
TEXTS = {
    # tag: the name that GDAL gives it
    269: "TIFFTAG_DOCUMENTNAME", 270: "TIFFTAG_IMAGEDESCRIPTION", 305: "TIFFTAG_SOFTWARE", 306: "TIFFTAG_DATETIME",
    315: "TIFFTAG_ARTIST",
    316: "TIFFTAG_HOSTCOMPUTER", 33432: "TIFFTAG_COPYRIGHT",
}  # fmt: skip
NUMBERS = {
    282: "TIFFTAG_XRESOLUTION",
    283: "TIFFTAG_YRESOLUTION",
    280: "TIFFTAG_MINSAMPLEVALUE",
    281: "TIFFTAG_MAXSAMPLEVALUE",
}
RESOLUTION_UNIT = 296
UNITS = {1: "1 (unitless)", 2: "2 (pixels/inch)", 3: "3 (pixels/cm)"}
TAGS = (GDAL_METADATA, GDAL_NODATA, RESOLUTION_UNIT, COLOUR_MAP, *TEXTS, *NUMBERS)
MOST_XML = 16 << 20
MOST_COLOURS = 1 << 16
# Shown by other means: rioxarray leaves these out too.
UNWANTED = ("_FillValue", "missing_value", "fill_value", "nodata", "nodatavals", "is_tiled", "res")


def attributes_of(tags: Directory, bands: int, dtype: np.dtype[Any], keys: Mapping[int, Any]) -> dict[str, Any]:
    """Return the attributes of an image; `keys` are its GeoTIFF keys."""
    found: dict[str, Any] = {}
    if RASTER_TYPE in keys:
        found["AREA_OR_POINT"] = "Point" if keys[RASTER_TYPE] == POINT else "Area"
    for tag, name in TEXTS.items():
        text = tags.text(tag)
        if text:
            found[name] = text
    for tag, name in NUMBERS.items():
        value = tags.value(tag)
        if value is not None and value.size and value.dtype.kind in "iuf":
            # libtiff keeps fractions as single floats, and GDAL shows eight digits.
            found[name] = _number(f"{np.float32(value[0]):.8g}")
    unit = tags.value(RESOLUTION_UNIT)
    if unit is not None and unit.size and unit.dtype.kind in "iu" and int(unit[0]) in UNITS:
        found[RESOLUTION_NAME] = UNITS[int(unit[0])]
    items = _parse_gdal_items(tags)
    found.update({name: _parse_text(text) for name, text in items.get((None, ""), {}).items()})
    found.update({name: _parse_text(text) for name, text in items.get((0, ""), {}).items()})
    for name in UNWANTED:
        found.pop(name, None)
    nodata = nodata_of(tags, dtype)
    if nodata is not None:
        found["_FillValue"] = nodata
    found.update(_packing(items, bands))
    descriptions = _each_band(items, "description", bands)
    if any(descriptions):
        found["long_name"] = descriptions[0] if len(set(descriptions)) == 1 else descriptions
    units = _each_band(items, "unittype", bands)
    if any(units):
        found["units"] = units[0] if bands == 1 else units
    return found


RESOLUTION_NAME = "TIFFTAG_RESOLUTIONUNIT"


def _parse_gdal_items(tags: Directory) -> dict[tuple[int | None, str], dict[str, str]]:
    """Return GDAL's metadata: by band (None: of the image) and role, name → text."""
    text = tags.text(GDAL_METADATA)
    if not text:
        return {}
    root, problem = None, f"{len(text)} characters" if len(text) > MOST_XML else "it declares a document type"
    # No document type: entities would be expanded without a bound.
    if len(text) <= MOST_XML and not declares_doctype(text.strip()):
        try:
            root = ElementTree.fromstring(text.strip())
        except (ElementTree.ParseError, ValueError) as error:
            problem = str(error)
    if root is None:
        warnings.warn(
            f"left out: the GDAL metadata of an image (scale, offset, units and others) cannot be read: {problem}",
            InsituWarning,
            stacklevel=2,
        )
        return {}
    found: dict[tuple[int | None, str], dict[str, str]] = {}
    for item in root.iter("Item"):
        name, sample, role = item.get("name"), item.get("sample"), item.get("role", "")
        if name is None or item.get("domain"):
            continue
        band = int(sample) if sample is not None and sample.isdecimal() else None
        found.setdefault((band, role), {})[name] = _unescape(item.text or "")
    return found


def _unescape(text: str) -> str:
    """Return the text of an item, which GDAL has always escaped twice; the parser undid it once."""
    if "&" not in text:
        return text
    plain = {"lt": "<", "gt": ">", "amp": "&", "apos": "'", "quot": '"'}

    def character(found: re.Match[str]) -> str:
        if found[1] in plain:
            return plain[found[1]]
        number = int(found[2], 16) if found[2] else int(found[3])
        return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else found[0]

    return re.sub(r"&(lt|gt|amp|apos|quot|#x([0-9a-fA-F]{1,6})|#([0-9]{1,7}));", character, text)


def _packing(items: dict[tuple[int | None, str], dict[str, str]], bands: int) -> dict[str, Any]:
    """Return scale and offset, where there are any: one for all bands, else one for each."""
    found: dict[str, Any] = {}
    for role, name, neutral in (("scale", "scale_factor", 1.0), ("offset", "add_offset", 0.0)):
        numbers = [_float(text, neutral) for text in _each_band(items, role, bands)]
        if len(set(numbers)) > 1:
            found["scales" if role == "scale" else "offsets"] = numbers
        elif numbers[0] != neutral:
            found[name] = numbers[0]
    return found


def _each_band(items: dict[tuple[int | None, str], dict[str, str]], role: str, bands: int) -> list[str | None]:
    # A text of its own for each of a million bands would be as long as the file says: count only
    # what is there.
    found: list[str | None] = [None] * bands
    for (band, kind), texts in items.items():
        if kind == role and band is not None and band < bands:
            found[band] = next(iter(texts.values()))
    return found


def _float(text: str | None, default: float) -> float:
    try:
        return default if text is None else float(text)
    except ValueError:
        return default


def _parse_text(text: str) -> Any:
    """Return a text as rioxarray shows it: a number, an array of those in braces, or the text."""
    if text.startswith("{") and text.endswith("}"):
        try:
            return np.array([float(part) for part in text.strip("{}").split(",")])
        except ValueError:
            return text
    return _number(text)


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def frames_of(tags: Directory) -> int:
    """Return the number of images that follow each other though only the first has a directory.

    ImageJ, MetaMorph and tifffile write large stacks so.
    """
    planes = tags.entries.get(STK_PLANES)
    if planes is not None:  # a table of MetaMorph's, with a row for each
        return planes.number
    text = tags.text(DESCRIPTION) or ""
    if text.startswith("ImageJ="):
        found = re.search(r"^images=(\d{1,9})\s*$", text, re.MULTILINE)
        return int(found[1]) if found else 1
    if text.startswith('{"shape":') and len(text) < MOST_XML:
        found = re.match(r'\{"shape": \[([\d, ]+)\].*"truncated": true', text)
        lengths = [int(part) for part in found[1].split(",")] if found else []
        return math.prod(lengths) // max(_pixels(tags), 1) if lengths else 1
    return 1


def _pixels(tags: Directory) -> int:
    """Samples of one image."""
    return math.prod(tags.number(tag, 1) for tag in (256, 257, 277))


def colours_of_indices(tags: Directory) -> list[tuple[int, int, int]]:
    """Return the palette: red, green and blue (0 to 255) of each pixel value.

    Empty if there is none.
    """
    table = tags.value(COLOUR_MAP)
    if table is None or table.dtype.kind != "u" or table.size % 3 or not 0 < table.size <= 3 * MOST_COLOURS:
        return []
    # 16 bits each, but some writers put 8: as libtiff tells them apart.
    eight = table.astype(np.int64) // 256 if int(table.max()) >= 256 else table.astype(np.int64)
    return [(int(r), int(g), int(b)) for r, g, b in eight.reshape(3, -1).T]


def nodata_of(tags: Directory, dtype: np.dtype[Any]) -> Any:
    """Return the nodata value in the type of the pixels.

    None if there is none, or the type cannot hold it.
    """
    text = tags.text(GDAL_NODATA)
    if not text or not re.fullmatch(r"[-+0-9.#eEnaifNAIFQD]+", text.strip()):
        return None
    # Visual C++ used to write 1.#INF and 1.#QNAN.
    number = _number(
        re.sub(
            r"1\.#(INF|QNAN|IND).*", lambda found: found[1].replace("QNAN", "NAN").replace("IND", "NAN"), text.strip()
        )
    )
    if isinstance(number, str):
        return None
    native = dtype.newbyteorder("=")
    with np.errstate(all="ignore"):
        if native.kind in "iu":
            limits = np.iinfo(native)
            whole = number == number and abs(number) != float("inf") and int(number) == number
            return native.type(int(number)) if whole and limits.min <= number <= limits.max else None
        if native.kind in "fc":
            return native.type(number)
    return None
