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
