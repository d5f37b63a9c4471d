"""Are headers that lie about sizes refused, without the memory that they ask for?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import insitu
from damaged_bytes import peak_of_reading
from insitu.errors import FormatError
from insitu.sources import MemorySource

MOST_MEMORY = 64 << 20


def _header(**cards: Any) -> bytes:
    lines = []
    for name, value in cards.items():
        text = (
            ("T" if value else "F")
            if isinstance(value, bool)
            else f"'{value}'"
            if isinstance(value, str)
            else str(value)
        )
        lines.append(f"{name:8}= {text:>20}".ljust(80))
    return "".join([*lines, "END".ljust(80)]).encode().ljust(2880)


FIRST = _header(SIMPLE=True, BITPIX=8, NAXIS=0)
TABLE = {"XTENSION": "BINTABLE", "BITPIX": 8, "NAXIS": 2}
PACKED = {
    **TABLE, "NAXIS1": 8, "NAXIS2": 1, "PCOUNT": 0, "GCOUNT": 1, "TFIELDS": 1, "TTYPE1": "COMPRESSED_DATA",
    "TFORM1": "1PB(8)", "ZIMAGE": True,
    "ZCMPTYPE": "RICE_1", "ZBITPIX": 16, "ZNAXIS": 2,
}  # fmt: skip
CASES: dict[str, bytes] = {
    "an image of 2^60": _header(SIMPLE=True, BITPIX=-64, NAXIS=1, NAXIS1=1 << 60),
    "an image of 2^60 squared": _header(SIMPLE=True, BITPIX=-64, NAXIS=2, NAXIS1=1 << 60, NAXIS2=1 << 60),
    "999 axes": _header(SIMPLE=True, BITPIX=8, NAXIS=999, **{f"NAXIS{i}": 2 for i in range(1, 30)}),
    "less than no axes": _header(SIMPLE=True, BITPIX=8, NAXIS=-1),
    "axes of text": _header(SIMPLE=True, BITPIX=8, NAXIS="many"),
    "2^60 rows": FIRST + _header(**TABLE, NAXIS1=8, NAXIS2=1 << 60, PCOUNT=0, GCOUNT=1, TFIELDS=1, TFORM1="1K"),
    "rows of nothing": FIRST + _header(**TABLE, NAXIS1=0, NAXIS2=1 << 40, PCOUNT=0, GCOUNT=1, TFIELDS=1, TFORM1="0A"),
    "cells of 2^60": FIRST + _header(**TABLE, NAXIS1=8, NAXIS2=1, PCOUNT=0, GCOUNT=1, TFIELDS=1,
    TFORM1="1152921504606846976J"),
    "bits of 2^60": FIRST + _header(**TABLE, NAXIS1=8, NAXIS2=1, PCOUNT=0, GCOUNT=1, TFIELDS=1,
    TFORM1="1152921504606846976X"),
    "2^40 columns": FIRST + _header(**TABLE, NAXIS1=8, NAXIS2=1, PCOUNT=0, GCOUNT=1, TFIELDS=1 << 40),
    "a heap at 2^60": FIRST + _header(**TABLE, NAXIS1=8, NAXIS2=1, PCOUNT=1 << 60, GCOUNT=1, TFIELDS=1, TFORM1="1PJ",
    THEAP=1 << 60) + b"\x7f" * 2880,
    "cells of text as wide as the world": FIRST + _header(XTENSION="TABLE", BITPIX=8, NAXIS=2, NAXIS1=8, NAXIS2=1,
    PCOUNT=0, GCOUNT=1, TFIELDS=1, TFORM1="I99999999", TBCOL1=1) + bytes(2880),
    "tiles of 2^60": FIRST + _header(**PACKED, ZNAXIS1=1 << 60, ZNAXIS2=1, ZTILE1=1 << 60, ZTILE2=1) + bytes(2880),
    "2^60 tiles": FIRST + _header(**PACKED, ZNAXIS1=1 << 60, ZNAXIS2=1, ZTILE1=1, ZTILE2=1) + bytes(2880),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_large_numbers_cost_nothing(case: str) -> None:
    assert peak_of_reading(CASES[case]) < MOST_MEMORY


def test_a_header_without_end() -> None:
    with pytest.raises(FormatError, match="truncated within a header"):
        insitu.scan(MemorySource(FIRST.replace(b"END", b"   ")), decode=False)
    with pytest.raises(FormatError, match="no END card"):
        insitu.scan(MemorySource(FIRST.replace(b"END", b"   ") + b" " * 2880 * 4200), decode=False)


def _image(**cards: Any) -> bytes:
    numbers = np.arange(6, dtype=">i2").tobytes().ljust(2880, b"\0")
    return _header(SIMPLE=True, BITPIX=16, NAXIS=2, NAXIS1=3, NAXIS2=2, **cards) + numbers


def _table(width: int, **cards: Any) -> bytes:
    header = {**TABLE, "NAXIS1": width, "NAXIS2": 3, "PCOUNT": 0, "GCOUNT": 1, "TFIELDS": 1, "TFORM1": "1I", **cards}
    return FIRST + _header(**header) + np.arange(3 * width, dtype="u1").tobytes().ljust(2880, b"\0")


def _damage(data: bytes, text: bytes, other: bytes) -> bytes:
    assert data.count(text) == 1
    assert len(text) == len(other)
    return data.replace(text, other)


@pytest.mark.parametrize("word", ["BSCALE", "BZERO", "BLANK"])
def test_numbers_that_cannot_be_parsed_are_not_left_out(tmp_path: Path, word: str) -> None:
    """Without them the values would be others; astropy refuses such a file, too."""
    path = tmp_path / "a.fits"
    path.write_bytes(_image(**{word: 1500}))
    insitu.scan(path, decode=False)
    path.write_bytes(_damage(path.read_bytes(), b"1500", b"15 0"))
    with pytest.raises(FormatError, match=f"the value of {word} cannot be parsed"):
        insitu.scan(path, decode=False)
    path.write_bytes(_image(**{word: "many"}))
    with pytest.raises(FormatError, match=f"{word} has the invalid value 'many'"):
        insitu.scan(path, decode=False)


@pytest.mark.parametrize("word", ["TSCAL1", "TZERO1", "TNULL1"])
def test_numbers_of_columns_that_cannot_be_parsed(word: str) -> None:
    data = _table(2, **{word: 1500})
    insitu.scan(MemorySource(data), decode=False)
    with pytest.raises(FormatError, match=f"the value of {word} cannot be parsed"):
        insitu.scan(MemorySource(_damage(data, b"1500", b"1.5.")), decode=False)


def test_a_value_that_is_not_defined_is_none() -> None:
    data = _damage(_image(BZERO=1500), b"1500", b"    ")
    np.testing.assert_array_equal(insitu.read(MemorySource(data), "PRIMARY"), np.arange(6).reshape(2, 3))


def test_an_axis_with_damaged_cards_has_no_coordinates() -> None:
    data = _image(CRVAL1=1500.0, CDELT1=2.0, CRPIX1=1.0)
    assert insitu.read(MemorySource(data), "x").tolist() == [1500.0, 1502.0, 1504.0]
    group = insitu.scan(MemorySource(_damage(data, b"1500.0", b"15 0.0")), decode=False)
    assert "x" not in group.arrays
    assert group.arrays["PRIMARY"].shape == (2, 3)


def test_columns_without_a_name_have_numbers() -> None:
    data = _table(2, TTYPE1="name")
    assert "HDU1/name" in dict(insitu.scan(MemorySource(data), decode=False).all_arrays())
    damaged = insitu.scan(MemorySource(_damage(data, b"'name'", b"'name ")), decode=False)
    assert [*dict(damaged.all_arrays())] == ["HDU1/col1"]


def test_rows_are_as_wide_as_their_columns() -> None:
    assert insitu.read(MemorySource(_table(2)), "HDU1/col1", decode=False).tolist() == [1, 515, 1029]
    for width in (1, 3, 92):
        with pytest.raises(FormatError, match=f"the columns take 2 bytes, but rows have {width}"):
            insitu.scan(MemorySource(_table(width)), decode=False)


def test_the_end_of_a_header_with_a_damaged_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.fits"
    path.write_bytes(_damage(_image(), b"END ", b"END\x7f") + _table(2)[2880:])
    found = insitu.scan(path, decode=False)
    np.testing.assert_array_equal(insitu.read(found, "PRIMARY", decode=False), np.arange(6).reshape(2, 3))
    assert "HDU1/col1" in dict(found.all_arrays())
