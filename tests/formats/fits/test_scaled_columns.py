"""TSCAL, TZERO and TNULL in columns of every type: one number, several numbers, a varying count."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

import insitu

ROWS = 4
TYPES = {"B": "u1", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4", "D": ">f8", "C": ">c8", "M": ">c16"}
NULL = 3


def stored_values(letter: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    values = random.integers(4, 100, shape)
    if letter in "CM":
        return np.asarray(values + 1j * random.integers(-50, 50, shape)).astype(TYPES[letter])
    return values.astype(TYPES[letter])


def write_table(path: Path, columns: list[tuple[str, str, list[bytes], dict[str, float]]], heap: bytes = b"") -> None:
    """Write stored values as they are: astropy would unscale them first."""
    head = fits.Header()
    width = sum(len(cells[0]) for _, _, cells, _ in columns)
    for key, value in {"XTENSION": "BINTABLE", "BITPIX": 8, "NAXIS": 2, "NAXIS1": width, "NAXIS2": ROWS}.items():
        head[key] = value
    head["PCOUNT"], head["GCOUNT"], head["TFIELDS"] = len(heap), 1, len(columns)
    for number, (name, form, _, cards) in enumerate(columns, 1):
        head[f"TTYPE{number}"], head[f"TFORM{number}"] = name, form
        for key, value in cards.items():
            head[f"{key}{number}"] = value
    data = b"".join(cells[row] for row in range(ROWS) for _, _, cells, _ in columns) + heap
    first = fits.Header([("SIMPLE", True), ("BITPIX", 8), ("NAXIS", 0), ("EXTEND", True)])
    path.write_bytes(first.tostring().encode() + head.tostring().encode() + data + bytes(-len(data) % 2880))


def open_table(path: Path) -> Any:
    (group,) = insitu.scan(path, decode=False).groups
    return insitu.open_dataset(path, group=group)


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("repeat", [1, 3])
@pytest.mark.parametrize(("scale", "zero"), [(1.0, 0.0), (2.5, 10.0), (1.0, 1.0), (-0.1, 0.0)])
def test_columns_of_one_length(tmp_path: Path, letter: str, repeat: int, scale: float, zero: float) -> None:
    values = stored_values(letter, (ROWS, repeat), 1)
    cells = [row.tobytes() for row in values]
    write_table(tmp_path / "a.fits", [("v", f"{repeat}{letter}", cells, {"TSCAL": scale, "TZERO": zero})])
    found = open_table(tmp_path / "a.fits")["v"].values.reshape(ROWS, repeat)
    plain = values.astype(values.dtype.newbyteorder("="))
    # The standard (4.0, section 7.3.2): scale and zero of complex numbers have no imaginary part.
    expected = plain if (scale, zero) == (1, 0) else plain.astype(np.result_type(plain, np.float64)) * scale + zero
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    if letter == "K" and (scale, zero) != (1, 0):
        return  # astropy fails: a local variable has no value
    with warnings.catch_warnings(), fits.open(tmp_path / "a.fits") as file:
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)  # it drops the imaginary part
        reference = np.asarray(file[1].data["v"]).reshape(ROWS, repeat)
    np.testing.assert_array_equal(found.real if reference.dtype.kind != "c" else found, reference)


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("cards", [{}, {"TSCAL": 2.5, "TZERO": 10.0}, {"TZERO": 32768}, {"TNULL": NULL},
    {"TSCAL": 2.5, "TNULL": NULL}])  # fmt: skip
def test_columns_of_varying_length(tmp_path: Path, letter: str, cards: dict[str, float]) -> None:
    """TSCAL, TZERO and TNULL belong to the values in the heap (section 7.3.5); astropy does not
    apply them there.
    """
    heap, cells, rows = b"", [], []
    for row in range(ROWS):
        values = stored_values(letter, (row,), row)
        values[:1] = NULL
        cells.append(np.array([row, len(heap)], ">i4").tobytes())
        heap += values.tobytes()
        rows.append(values.astype(values.dtype.newbyteorder("=")))
    write_table(tmp_path / "a.fits", [("v", f"1P{letter}(3)", cells, cards)], heap)
    found = open_table(tmp_path / "a.fits")["v"].values
    scale, zero = cards.get("TSCAL", 1), cards.get("TZERO", 0)
    for stored, value in zip(rows, found, strict=True):
        expected = stored
        if letter == "I" and cards == {"TZERO": 32768}:  # unsigned
            expected = (stored.astype("i4") + 32768).astype("u2")
        elif (scale, zero) != (1, 0):
            expected = stored.astype(np.result_type(stored, np.float64)) * scale + zero
        if "TNULL" in cards and letter in "BIJK":
            expected = np.where(stored == NULL, np.nan, expected.astype(float))
        assert value.dtype == expected.dtype
        np.testing.assert_array_equal(value, expected)


def test_complex_columns_are_saved(tmp_path: Path) -> None:
    cells = [row.tobytes() for row in stored_values("C", (ROWS, 2), 0)]
    write_table(tmp_path / "a.fits", [("v", "2C", cells, {"TSCAL": 2.0, "TZERO": 1.0})])
    actual = open_table(tmp_path / "a.fits")
    for target in ("a.json", "a.insitu"):
        actual.insitu.save(tmp_path / target)
        np.testing.assert_array_equal(insitu.open_dataset(tmp_path / target)["v"].values, actual["v"].values)
