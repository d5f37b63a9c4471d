"""Do damaged TIFF, FITS and NetCDF-3 files give what a reference reader gives, or an error of ours?

Bytes of headers and tables are changed by fixed seeds. What is read must be what a reference reader
shows, or what the whole file holds (damage to something that we do not need); other values would be
made up. The reference readers run in a process of their own.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference_readers import MOST_BYTES, read_by_reference

import insitu
from insitu.errors import InsituError
from insitu.formats.netcdf3.header import read_header
from real_files import FILES
from waiting import LONG

MUTANTS = 8
"""Of each file."""
LARGEST = 100_000
"""Bytes of the files that are damaged."""
NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)


def header_places(path: Path) -> list[int]:
    """Return the places of bytes that say what the other bytes mean."""
    data = path.read_bytes()
    if path.suffix == ".nc":
        return list(range(read_header(data, len(data), lambda offset, length: data[offset : offset + length]).size))
    if path.suffix == ".fits":
        cards = [
            at for at in range(0, len(data), 80) if data[at + 8 : at + 10] == b"= " and data[at : at + 80].isascii()
        ]
        return [place for at in cards for place in range(at, at + 30)]
    tifffile = pytest.importorskip("tifffile")
    places = set(range(8))
    with tifffile.TiffFile(path) as file:
        for page in file.pages:
            size = 20 if file.is_bigtiff else 12
            places |= set(range(page.offset, page.offset + size * len(page.tags)))
            for tag in (page.tags.get(code) for code in (258, 273, 279, 324, 325, 339)):
                places |= set(range(tag.valueoffset, tag.valueoffset + min(tag.valuebytecount, 64))) if tag else set()
    return sorted(place for place in places if place < len(data))


def mutate(data: bytes, places: list[int], chance: random.Random) -> bytes:
    """Return the bytes of a file with something changed: a bit, a byte, a number, or its end."""
    worse, at, way = bytearray(data), chance.choice(places), chance.randrange(6)
    if way < 3:
        worse[at] ^= 1 << chance.randrange(8)
    elif way == 3:
        width, order = chance.choice((1, 2, 4)), chance.choice(("little", "big"))
        worse[at : at + width] = (chance.choice(NUMBERS) & ((1 << 8 * width) - 1)).to_bytes(width, order)  # type: ignore[arg-type]
    elif way == 4:
        worse[at] = chance.choice(b"0123456789TF -") if data.startswith(b"SIMPLE") else chance.randrange(256)
    else:
        del worse[chance.randrange(len(worse)) :]
    return bytes(worse)


def read_ours(path: Path, format_name: str) -> dict[str, Any]:
    """Return what we read, by the names of `reference_readers`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = insitu.scan(path, decode=False, errors="warn", format=format_name)
    found: dict[str, Any] = {}
    for name, array in group.all_arrays():
        if array.size * 8 <= MOST_BYTES:
            try:
                found[name] = insitu.read(group, name, decode=False)
            except InsituError:
                continue
            attributes = array.attributes
            if format_name == "fits" and "scale_factor" in attributes:  # as astropy applies it
                found[name] = found[name] * attributes["scale_factor"] + attributes["add_offset"]
    if format_name == "tiff":
        return (
            {"band_data": found["band_data"].reshape(-1, *found["band_data"].shape[-3:])[0]}
            if "band_data" in found
            else {}
        )
    return _by_unit(found, group.details.notes["units"]) if format_name == "fits" else found


def _by_unit(found: dict[str, Any], units: list[str]) -> dict[str, Any]:
    """Return images and columns of FITS by the numbers of their units."""
    seen: Counter[str] = Counter()
    numbered: dict[str, Any] = {}
    for number, unit in enumerate(units):
        seen[unit] += 1
        own = unit.replace("/", "_") + (f"_{seen[unit]}" if seen[unit] > 1 else "")
        for name, values in found.items():
            if name == own or name.startswith(f"{own}/"):
                numbered[f"{number}{name.removeprefix(own)}"] = values
    return numbered


def is_equal(actual: Any, expected: Any, format_name: str) -> bool:
    """Whether the values are the same; astropy scales in other types, and drops axes."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.dtype.kind == "O":
        return actual.shape == expected.shape and all(map(np.array_equal, actual.flat, expected.flat))
    if format_name == "fits" and actual.size == expected.size:
        actual = actual.reshape(expected.shape)
        if actual.dtype.kind in "fc":
            return bool(np.allclose(actual, expected, equal_nan=True))
    return np.array_equal(actual, expected, equal_nan=actual.dtype.kind in "fc" and expected.dtype.kind in "fc")


@pytest.mark.parametrize("format_name", ["netcdf3", "fits", "tiff"])
def test_what_is_read_was_there(tmp_path: Path, format_name: str) -> None:
    whole: dict[Path, dict[str, Any]] = {}
    origin: dict[Path, Path] = {}
    for path in sorted((FILES / format_name).iterdir()):
        if path.stat().st_size > LARGEST:
            continue
        whole[path] = read_ours(path, format_name)
        places, chance = header_places(path), random.Random(path.name)
        for number in range(MUTANTS):
            mutant = tmp_path / f"{path.stem}-{number}{path.suffix}"
            mutant.write_bytes(mutate(path.read_bytes(), places, chance))
            origin[mutant] = path
    verdicts: Counter[str] = Counter()
    wrong: list[str] = []
    with np.errstate(all="ignore"):
        for mutant, expected in zip(origin, read_by_reference(format_name, origin, LONG), strict=True):
            try:
                actual = read_ours(mutant, format_name)
            except InsituError:
                verdicts["refused"] += 1
                continue
            verdicts["read"] += bool(actual)
            verdicts["compared"] += bool(expected)
            for name, values in actual.items():
                known = [found[name] for found in (*expected, whole[origin[mutant]]) if name in found]
                if known and not any(is_equal(values, other, format_name) for other in known):
                    wrong.append(f"{mutant.name}: {name} {values.shape} {values.dtype}")
    assert not wrong
    assert min(verdicts["refused"], verdicts["read"], verdicts["compared"]) > len(whole) / 2
