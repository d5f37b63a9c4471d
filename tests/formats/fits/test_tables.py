"""Are the columns of binary tables, and of tables of text, what astropy shows?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

import insitu
from damaged_bytes import count_refused, flip, read_all
from insitu.errors import CodecError, FormatError

RAGGED = [np.arange(3), np.arange(0), np.arange(5) + 10, np.array([7])]


def _written(tmp_path: Path, *columns: fits.Column, ascii: bool = False, cards: dict[str, Any] | None = None) -> Path:
    """A file with a table; `cards` are put into its header as they are, as astropy would scale the
    values by them.
    """
    path = tmp_path / "a.fits"
    unit = (fits.TableHDU if ascii else fits.BinTableHDU).from_columns(columns, name="T")
    for number in range(len(cards or {})):
        unit.header[f"ROOM{number}"] = number
    fits.HDUList([fits.PrimaryHDU(), unit]).writeto(path, overwrite=True)
    data = path.read_bytes()
    for number, (name, value) in enumerate((cards or {}).items()):
        place = data.index(f"ROOM{number}   =".encode())
        data = data[:place] + f"{name:8}= {value:>20}".ljust(80).encode() + data[place + 80 :]
    path.write_bytes(data)
    return path


def _objects(rows: list[Any]) -> np.ndarray[Any, Any]:
    values = np.empty(len(rows), object)
    values[:] = rows
    return values


@pytest.mark.parametrize("pointer", ["P", "Q"])
@pytest.mark.parametrize("letter", ["B", "I", "J", "K", "E", "D", "C", "M", "L"])
def test_values_of_varying_length(tmp_path: Path, pointer: str, letter: str) -> None:
    kind = {"B": "u1", "I": "i2", "J": "i4", "K": "i8", "E": "f4", "D": "f8", "C": "c8", "M": "c16", "L": "?"}[letter]
    column = fits.Column("V", f"{pointer}{letter}()", array=_objects([row.astype(kind) for row in RAGGED]))
    path = _written(tmp_path, fits.Column("N", "J", array=np.arange(4)), column)
    group = insitu.scan(path, decode=False)
    actual = insitu.read(group, "T/V", decode=False)
    with fits.open(path) as file:
        expected = file["T"].data["V"]
        for own, other in zip(actual, expected, strict=True):
            assert own.dtype == np.asarray(other).dtype.newbyteorder("=")
            np.testing.assert_array_equal(own, other)
    np.testing.assert_array_equal(insitu.read(group, "T/V", np.s_[2:3], decode=False)[0], RAGGED[2].astype(kind))
    assert insitu.read(group, "T/N", decode=False).tolist() == [0, 1, 2, 3]


def test_texts_of_varying_length_and_scaled_ones(tmp_path: Path) -> None:
    path = _written(
        tmp_path,
        fits.Column("S", "PA()", array=_objects(["one", "", "three "])),
        fits.Column("U", "PI()", array=_objects([np.array(row, "i2") for row in ([1, -400], [], [32767])])),
        fits.Column("F", "PI()", array=_objects([np.array(row, "i2") for row in ([3], [4, -5], [])])),
        cards={"TZERO2": 32768, "TSCAL3": 0.5, "TZERO3": 3.0},
    )
    assert insitu.read(path, "T/S", decode=False).tolist() == ["one", "", "three"]
    # By hand: astropy 8 fails on the unsigned ones, and then on the whole table.
    assert [row.tolist() for row in insitu.read(path, "T/U", decode=False)] == [[32769, 32368], [], [65535]]
    assert insitu.read(path, "T/U", decode=False)[0].dtype == np.uint16
    assert [row.tolist() for row in insitu.read(path, "T/F", decode=False)] == [[4.5], [5.0, 0.5], []]


def test_many_rows_of_varying_length_take_few_requests(tmp_path: Path) -> None:
    rows = [np.arange(n % 7, dtype="i4") + n for n in range(5000)]
    path = _written(tmp_path, fits.Column("V", "PJ()", array=_objects(rows)))
    actual = insitu.read(path, "T/V", decode=False)
    assert all(np.array_equal(own, row) for own, row in zip(actual, rows, strict=True))


@pytest.mark.parametrize("length", [10**6, -5])
def test_a_row_that_points_astray_is_refused(tmp_path: Path, length: int) -> None:
    path = _written(tmp_path, fits.Column("V", "PJ()", array=_objects([row.astype("i4") for row in RAGGED])))
    data = bytearray(path.read_bytes())
    with fits.open(path) as file:
        begin = file["T"].fileinfo()["datLoc"]
    data[begin : begin + 4] = length.to_bytes(4, "big", signed=True)
    path.write_bytes(data)
    with pytest.raises(CodecError, match="points"):
        insitu.read(path, "T/V", decode=False)


def test_bits_logical_values_texts_and_shapes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = _written(
        tmp_path,
        fits.Column("BITS", "11X", array=random.integers(0, 2, (6, 11)).astype(bool)),
        fits.Column("FLAG", "L", array=[True, False, True, True, False, False]),
        fits.Column("FLAGS", "3L", array=random.integers(0, 2, (6, 3)).astype(bool)),
        fits.Column("TEXT", "8A", array=["a", "bc ", "", "defghijk", " x", "y"]),
        fits.Column("TEXTS", "12A", dim="(4,3)", array=np.array([["ab", "cd", "ef"]] * 6)),
        fits.Column("CUBE", "12J", dim="(4,3)", array=random.integers(0, 99, (6, 3, 4))),
        fits.Column("COMPLEX", "2M", array=random.random((6, 2)) + 1j),
        fits.Column("U4", "J", bzero=2**31, array=random.integers(0, 2**32, 6).astype("u4")),
        fits.Column("SCALED", "I", array=np.arange(6)),
        cards={"TSCAL9": 0.1, "TZERO9": 5.0},
    )
    group = insitu.scan(path, decode=False)
    with insitu.open_dataset(path, group="T") as opened, fits.open(path) as file:
        table = file["T"].data
        for name in ("BITS", "FLAG", "FLAGS", "CUBE", "COMPLEX", "U4"):
            np.testing.assert_array_equal(insitu.read(group, f"T/{name}", decode=False), table[name])
            assert insitu.read(group, f"T/{name}", decode=False).dtype.kind == np.asarray(table[name]).dtype.kind
        for name in ("TEXT", "TEXTS"):
            assert (
                np.char.decode(insitu.read(group, f"T/{name}", decode=False), "latin-1").tolist()
                == table[name].tolist()
            )
        np.testing.assert_allclose(opened["SCALED"].values, table["SCALED"])


def test_tables_of_text(tmp_path: Path) -> None:
    path = _written(
        tmp_path,
        fits.Column("I2", "I4", array=[1, -22, 333]),
        fits.Column("I4", "I9", array=[10**8, -5, 0]),
        fits.Column("I8", "I20", array=[10**18, -(10**18), 3]),
        fits.Column("F", "F10.3", array=[1.5, -2.25, 1000.125], unit="m"),
        fits.Column("E", "E15.6", array=[1.5e30, -2e-30, 0]),
        fits.Column("D", "D23.15", array=[np.pi, -1e-100, 1e100]),
        fits.Column("S", "A7", array=["one", "", "seven77"]),
        fits.Column("SCALED", "F8.2", array=[3.0, 5.0, 7.0]),
        ascii=True,
        cards={"TSCAL8": 2.0, "TZERO8": 1.0},
    )
    group = insitu.scan(path, decode=False)
    assert group.groups["T"].arrays["F"].attributes["units"] == "m"
    with fits.open(path) as file, insitu.open_dataset(path, group="T") as opened:
        table = file["T"].data
        for name in ("I2", "I4", "I8", "F", "E", "D"):
            actual = insitu.read(group, f"T/{name}", decode=False)
            np.testing.assert_array_equal(actual, table[name])
            assert actual.dtype == np.asarray(table[name]).dtype
        assert insitu.read(group, "T/S", decode=False).tolist() == [text.encode() for text in table["S"]]
        np.testing.assert_allclose(opened["SCALED"].values, table["SCALED"])


def test_numbers_that_a_table_of_text_leaves_out(tmp_path: Path) -> None:
    columns = [fits.Column("I", "I6", null="***", array=[1, 2, 3]), fits.Column("F", "F6.2", array=[1.5, 2.5, 3.5])]
    path = _written(tmp_path, *columns, ascii=True)
    data = bytearray(path.read_bytes())
    with fits.open(path) as file:
        begin, width = file["T"].fileinfo()["datLoc"], file["T"].header["NAXIS1"]
    data[begin + width : begin + width + 6] = b"   ***"
    data[begin + 2 * width + 6 : begin + 3 * width] = b" " * (width - 6)
    path.write_bytes(data)
    with insitu.open_dataset(path, group="T") as opened:
        np.testing.assert_array_equal(opened["I"].values, [1, np.nan, 3])
        np.testing.assert_array_equal(opened["F"].values, [1.5, 2.5, np.nan])
    data[begin : begin + 6] = b"  noise"[:6]
    path.write_bytes(data)
    with pytest.raises(CodecError, match="not hold a number"):
        insitu.read(path, "T/I", decode=False)


def test_tables_of_text_that_were_cut_off_or_flipped(tmp_path: Path) -> None:
    columns = [fits.Column("I", "I6", array=[1, 2, 3]), fits.Column("S", "A5", array=["a", "b", "c"])]
    data = _written(tmp_path, *columns, ascii=True).read_bytes()
    random = np.random.default_rng(1)
    places = random.integers(2880, len(data), 150).tolist()
    assert count_refused(flip(data, places, (0x01, 0x80, 0xFF)), read_all)
    (tmp_path / "b.fits").write_bytes(data[: len(data) - 2870])
    with pytest.raises(FormatError):
        insitu.scan(tmp_path / "b.fits", decode=False)
