"""Tables of strips that other readers take: signed offsets, and too few byte counts."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import insitu
from insitu.errors import FormatError

tifffile = pytest.importorskip("tifffile")
rasterio = pytest.importorskip("rasterio")

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
VALUES = np.arange(64 * 40, dtype="u2").reshape(64, 40)
OFFSETS, COUNTS, SIGNED, UNSIGNED_LONG, LONG8, SIGNED_LONG8 = 273, 279, 9, 4, 16, 17


def edit_entry(path: Path, tag: int, change: dict[str, Any]) -> None:
    """Change type or count of one entry of the first directory."""
    data = bytearray(path.read_bytes())
    big = data[2] == 43
    (place,) = struct.unpack_from("<Q" if big else "<I", data, 8 if big else 4)
    (count,) = struct.unpack_from("<Q" if big else "<H", data, place)
    head, size = (8, 20) if big else (2, 12)
    for number in range(count):
        at = place + head + size * number
        if struct.unpack_from("<H", data, at)[0] == tag:
            if "kind" in change:
                struct.pack_into("<H", data, at + 2, change["kind"])
            if "count" in change:
                struct.pack_into("<Q" if big else "<I", data, at + 4, change["count"])
    path.write_bytes(data)


@pytest.mark.parametrize(("big", "kind"), [(True, SIGNED_LONG8), (False, SIGNED)])
def test_signed_offsets(tmp_path: Path, big: bool, kind: int) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VALUES, bigtiff=big, rowsperstrip=16)
    edit_entry(path, OFFSETS, {"kind": kind})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with rasterio.open(path) as file:
            expected = file.read(1)
    group = insitu.scan(path, decode=False)
    (name,) = group.arrays.keys() - {"band", "x", "y", "spatial_ref"}
    np.testing.assert_array_equal(insitu.read(group, name, decode=False).reshape(expected.shape), expected)
    np.testing.assert_array_equal(expected, VALUES)


def test_too_few_byte_counts(tmp_path: Path) -> None:
    """Where nothing is compressed they can be computed; rasterio shows zeros there. Else they are
    missed by name.
    """
    for compression in (None, "zlib"):
        path = tmp_path / "a.tif"
        tifffile.imwrite(path, VALUES, rowsperstrip=16, compression=compression)
        edit_entry(path, COUNTS, {"count": 3})
        if compression:
            with pytest.raises(FormatError, match="3 byte counts of strips or tiles, 4 are needed"):
                insitu.scan(path, decode=False)
            continue
        group = insitu.scan(path, decode=False)
        (name,) = group.arrays.keys() - {"band", "x", "y", "spatial_ref"}
        np.testing.assert_array_equal(insitu.read(group, name, decode=False).reshape(VALUES.shape), VALUES)


def set_places(path: Path, tag: int, number: int, value: int) -> None:
    """Change one number in a table of the first directory (little-endian, 32 bits)."""
    with tifffile.TiffFile(path) as file:
        found = file.pages[0].tags[tag]
        place, size = found.valueoffset, {3: 2, 4: 4}[int(found.dtype)]
    data = bytearray(path.read_bytes())
    data[place + number * size : place + (number + 1) * size] = value.to_bytes(size, "little")
    path.write_bytes(data)


def rename_tags(path: Path, tags: dict[int, int]) -> None:
    """Give entries of the first directory other numbers."""
    data = bytearray(path.read_bytes())
    (place,) = struct.unpack_from("<I", data, 4)
    for number in range(struct.unpack_from("<H", data, place)[0]):
        at = place + 2 + 12 * number
        (tag,) = struct.unpack_from("<H", data, at)
        struct.pack_into("<H", data, at, tags.get(tag, tag))
    path.write_bytes(data)


FORMS: dict[str, dict[str, Any]] = {
    "strips": {"rowsperstrip": 16},
    "tiles": {"tile": (16, 16)},
    "compressed strips": {"rowsperstrip": 16, "compression": "zlib"},
    "compressed tiles": {"tile": (16, 16), "compression": "zlib"},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lost", ["offsets", "both"])
def test_an_image_without_its_table_is_refused(tmp_path: Path, form: str, lost: str) -> None:
    """Rasterio and tifffile refuse it, too; it was read as zeros."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VALUES, metadata=None, **FORMS[form])
    rename_tags(path, {273: 274, 324: 326} if lost == "offsets" else {273: 274, 279: 280, 324: 326, 325: 327})
    with pytest.raises(rasterio.errors.RasterioIOError), rasterio.open(path):
        pass
    with pytest.raises(tifffile.TiffFileError):
        tifffile.imread(path)
    with pytest.raises(FormatError, match="0 offsets of strips or tiles"):
        insitu.scan(path, decode=False)


@pytest.mark.parametrize("form", FORMS)
def test_a_length_without_an_offset_is_refused(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VALUES, metadata=None, **FORMS[form])
    set_places(path, 324 if "tile" in form else OFFSETS, 1, 0)
    if "compressed" in form:  # rasterio takes the header of the file for pixels that are not compressed
        with rasterio.open(path) as file, pytest.raises(rasterio.errors.RasterioIOError):
            file.read()
    with pytest.raises(FormatError, match=r"1 of [0-9]+ strips or tiles have a length, but no offset"):
        insitu.scan(path, decode=False)
    # Neither of them: never written, as in every sparse file of GDAL.
    set_places(path, 325 if "tile" in form else COUNTS, 1, 0)
    with rasterio.open(path) as file:
        expected = file.read()
    np.testing.assert_array_equal(insitu.read(insitu.scan(path, decode=False), "band_data", decode=False), expected)


@pytest.mark.parametrize("form", FORMS)
def test_an_offset_without_a_length_was_never_written(tmp_path: Path, form: str) -> None:
    """As in rasterio, unless no strip has a length: then the writer has left them out."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VALUES, metadata=None, **FORMS[form])
    set_places(path, 325 if "tile" in form else COUNTS, 1, 0)
    with rasterio.open(path) as file:
        expected = file.read()
    assert (expected != VALUES).any()
    np.testing.assert_array_equal(insitu.read(insitu.scan(path, decode=False), "band_data", decode=False), expected)


@pytest.mark.parametrize("tag", [256, 257, 259, 262, 277, 278])
@pytest.mark.parametrize("count", [0, 3])
def test_several_numbers_in_place_of_one(tmp_path: Path, tag: int, count: int) -> None:
    """The number would be read elsewhere: three do not fit in the row of the directory."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VALUES, metadata=None, rowsperstrip=16, planarconfig=1, photometric="minisblack")
    edit_entry(path, tag, {"count": count})
    with pytest.raises(FormatError, match=rf"tag {tag} holds {count} numbers in place of one|tag {tag} lies behind"):
        insitu.scan(path, decode=False)


def test_a_number_repeated_for_each_band(tmp_path: Path) -> None:
    """So did writers of old, for the compression."""
    path = tmp_path / "a.tif"
    values = np.stack([VALUES] * 3, axis=-1)
    tifffile.imwrite(path, values, metadata=None, photometric="rgb", extratags=[(65000, 3, 3, (1, 1, 1), True)])
    rename_tags(path, {259: 260, 65000: 259})
    data = bytearray(path.read_bytes())
    (place,) = struct.unpack_from("<I", data, 4)
    (number,) = struct.unpack_from("<H", data, place)
    rows = sorted(
        (bytes(data[place + 2 + 12 * i : place + 14 + 12 * i]) for i in range(number)), key=lambda row: row[1::-1]
    )
    data[place + 2 : place + 2 + 12 * number] = b"".join(rows)
    path.write_bytes(data)
    with rasterio.open(path) as file:
        expected = file.read()
    np.testing.assert_array_equal(insitu.read(insitu.scan(path, decode=False), "band_data", decode=False), expected)


@pytest.mark.parametrize(("tag", "change"), [(258, {"kind": 2051}), (339, {"count": 0}), (279, {"kind": 51971})])
def test_tags_that_cannot_be_read_are_not_left_out(tmp_path: Path, tag: int, change: dict[str, Any]) -> None:
    """With one bit for each pixel, or as integers, the values would be others."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VALUES.astype("f4"), metadata=None, rowsperstrip=16)
    insitu.scan(path, decode=False)
    edit_entry(path, tag, change)
    with pytest.raises(FormatError, match=rf"tag {tag} (has the unknown type|holds no number)"):
        insitu.scan(path, decode=False)
