"""Are the values of every packing that is undone here ecCodes' own, to the bit?

Modules: formats/grib/codecs/image_packing.py, formats/grib/codecs/packed_sections.py
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from codecs_encoded import grey_png
from insitu.codecs.buffer_spec import as_octets
from insitu.errors import CodecError, UnsupportedError
from insitu.formats.grib.codecs.image_packing import unpack_image
from insitu.formats.grib.codecs.packed_sections import split_sections
from insitu.formats.grib.codecs.packings import values_of

eccodes = pytest.importorskip("eccodes")
pytest.importorskip("imagecodecs")

POINTS = 16 * 31
GAP = 1e30
PACKINGS = [
    "grid_simple", "grid_complex", "grid_complex_spatial_differencing", "grid_ccsds", "grid_jpeg", "grid_png",
    "grid_ieee",
]  # fmt: skip


def written(packing: str, bits: int, values: Any, **keys: Any) -> bytes:
    """A message of GRIB 2 by ecCodes."""
    handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
    try:
        for key, value in {"bitsPerValue": bits, "packingType": packing, **keys}.items():
            eccodes.codes_set(handle, key, value)
        if (values == GAP).any():
            eccodes.codes_set(handle, "missingValue", GAP)
            eccodes.codes_set(handle, "bitmapPresent", 1)
        eccodes.codes_set_values(handle, values)
        return bytes(eccodes.codes_get_message(handle))
    except eccodes.CodesInternalError as problem:
        pytest.skip(f"this ecCodes does not write it: {problem}")
    finally:
        eccodes.codes_release(handle)


def expected(message: bytes) -> Any:
    handle = eccodes.codes_new_from_message(message)
    try:
        eccodes.codes_set(handle, "missingValue", GAP)
        values = eccodes.codes_get_values(handle)
    finally:
        eccodes.codes_release(handle)
    values[values == GAP] = np.nan
    return values


def same(message: bytes, count: int = POINTS) -> None:
    found = values_of(split_sections(as_octets(message)), count)
    assert found is not None
    np.testing.assert_array_equal(found, expected(message))


def rough(seed: int, size: int = POINTS) -> Any:
    """A walk with jumps: groups of many widths."""
    random = np.random.default_rng(seed)
    steps = random.normal(0, 1, size) * np.repeat(10.0 ** random.integers(-3, 3, -(-size // 16)), 16)[:size]
    return np.cumsum(steps) + random.normal(0, 500)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("bits", [0, 1, 5, 8, 9, 12, 16, 17, 24])
@pytest.mark.parametrize("gaps", [False, True])
def test_bits_and_bitmaps(packing: str, bits: int, gaps: bool) -> None:
    values = rough(bits)
    if gaps:
        values[np.random.default_rng(1).random(POINTS) < 0.3] = GAP
    same(written(packing, 32 if packing == "grid_ieee" else bits, values))


@pytest.mark.parametrize("packing", PACKINGS[:-1])
def test_one_value_everywhere(packing: str) -> None:
    same(written(packing, 12, np.full(POINTS, 273.16)))


@pytest.mark.parametrize("order", [1, 2])
def test_orders_of_differences(order: int) -> None:
    message = written("grid_complex_spatial_differencing", 14, rough(order), orderOfSpatialDifferencing=order)
    assert split_sections(as_octets(message)).packing[47] == order
    same(message)


@pytest.mark.parametrize("decimal", [-23, -7, 6, 7, 8, 16, 25])
@pytest.mark.parametrize("edition", [1, 2])
def test_decimal_scales_that_are_no_exact_powers(decimal: int, edition: int) -> None:
    handle = eccodes.codes_grib_new_from_samples(f"regular_ll_pl_grib{edition}")
    eccodes.codes_set(handle, "bitsPerValue", 16)
    eccodes.codes_set_values(handle, rough(3))
    eccodes.codes_set(handle, "decimalScaleFactor", decimal)
    message = bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    same(message)


def packed(bits: int, groups: list[tuple[int, int, list[int]]], missing: int, order: int = 0,
    extra: bytes = b"") -> bytes:  # fmt: skip
    """Complex packing written here, on a grid of its own: each group a reference, a width and its
    numbers.
    """
    count = sum(len(numbers) for _, _, numbers in groups)
    message = bytearray(written("grid_simple", 8, rough(0), Ni=POINTS, Nj=1)) if count == POINTS else bytearray()
    assert message, "the groups make up the grid of the sample"

    def row(width: int, numbers: list[int]) -> str:
        text = "".join(f"{number:0{width}b}" for number in numbers) if width else ""
        return text + "0" * (-len(text) % 8)

    stream = row(bits, [group[0] for group in groups]) + row(6, [group[1] for group in groups])
    stream += row(9, [len(group[2]) for group in groups])
    values = "".join(f"{number:0{width}b}" for _, width, numbers in groups if width for number in numbers)
    stream += values + "0" * (-len(values) % 8)
    data = extra + int(stream, 2).to_bytes(len(stream) // 8, "big")
    template = 3 if order else 2
    head = struct.pack(">IHfHHBBBBIIIBBIBIB", count, template, 3.5, 1, 2, bits, 0, 1, missing, 0, 0, len(groups), 0, 6,
        0, 1, len(groups[-1][2]), 9)  # fmt: skip
    head += bytes((order, 2)) if order else b""
    at = 16
    while message[at + 4] != 5:
        at += int.from_bytes(message[at : at + 4], "big")
    body = bytes(message[16:at]) + (len(head) + 5).to_bytes(4, "big") + b"\5" + head + b"\0\0\0\6\6\xff"
    body += (len(data) + 5).to_bytes(4, "big") + b"\7" + data + b"7777"
    return bytes(message[:8]) + (len(body) + 16).to_bytes(8, "big") + body


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("missing", [0, 1, 2])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_groups_with_missing_values(seed: int, missing: int, order: int) -> None:
    random = np.random.default_rng(seed)
    bits, groups, left = int(random.integers(2, 20)), [], POINTS
    while left:
        length, width = min(left, int(random.integers(1, 40))), int(random.integers(0, 18))
        top = (1 << width) - 1
        numbers = random.integers(0, top + 1, length)
        numbers[random.random(length) < 0.2] = top
        numbers[random.random(length) < 0.1] = max(top - 1, 0)
        reference = int(random.choice([(1 << bits) - 1, (1 << bits) - 2, random.integers(0, 1 << bits)]))
        groups.append((reference, width, numbers.tolist()))
        left -= length
    extra = random.bytes(2 * (order + 1)) if order else b""
    same(packed(bits, groups, missing, order, extra))


def is_same_or_left_to_eccodes(message: bytes) -> bool:
    """Compare the values with ecCodes' own; return whether they were decoded here."""
    found = values_of(split_sections(as_octets(message)), POINTS)
    if found is not None:
        np.testing.assert_array_equal(found, expected(message))
    return found is not None


@pytest.mark.parametrize("bits", [0, 1, 2, 8, 24, 30, 31, 32])
@pytest.mark.parametrize("missing", [0, 1, 2])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_groups_of_every_width_and_references_of_every_width(bits: int, missing: int, order: int) -> None:
    """`bitsPerValue` is the width of the references: 0 does not mean one value, and the groups may
    mark missing values.
    """
    for widest in (0, 1, 8, 30, 31, 32):
        random = np.random.default_rng(widest)
        groups, left = [], POINTS
        while left:
            length, width = min(left, int(random.integers(1, 40))), int(random.choice([0, min(1, widest), widest]))
            top = (1 << width) - 1
            numbers = random.integers(0, top + 1, length)
            numbers[random.random(length) < 0.2] = top
            numbers[random.random(length) < 0.1] = max(top - 1, 0)
            reference = int(random.choice([(1 << bits) - 1, max((1 << bits) - 2, 0), random.integers(0, 1 << bits)]))
            groups.append((reference, width, numbers.tolist()))
            left -= length
        extra = random.bytes(2 * (order + 1)) if order else b""
        decoded_here = is_same_or_left_to_eccodes(packed(bits, groups, missing, order, extra))
        assert decoded_here or (missing and max(bits, widest) > 30)


def test_missing_values_without_references(grib_file: Any) -> None:
    """One group of width 0 and reference 0, in which all numbers are missing: NaN, not the
    reference value.
    """
    message = packed(0, [(0, 0, [0] * 100), (0, 1, [0, 1] * ((POINTS - 100) // 2))], 1)
    found = grib_file(message)
    assert np.isnan(found[:100]).all()
    np.testing.assert_array_equal(found, expected(message).astype(found.dtype))


@pytest.fixture
def grib_file(tmp_path: Any) -> Any:
    """Return what `insitu.read` finds in a file of one message."""
    import insitu

    def read(message: bytes) -> Any:
        (tmp_path / "a.grib2").write_bytes(message)
        group = insitu.scan(tmp_path / "a.grib2", decode=False)
        (name,) = [name for name, array in group.arrays.items() if array.size == POINTS and array.ndim == 2]
        return insitu.read(group, name, decode=False).reshape(-1)

    return read


@pytest.mark.parametrize("bits", [0, 1, 2, 7, 8, 15, 16, 24, 25, 31, 32])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_first_edition(bits: int, gaps: bool, constant: bool) -> None:
    values = np.full(POINTS, 273.16) if constant else rough(bits)
    if gaps:
        values[np.random.default_rng(1).random(POINTS) < 0.3] = GAP
    handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib1")
    eccodes.codes_set(handle, "bitsPerValue", bits)
    if gaps:
        eccodes.codes_set(handle, "missingValue", GAP)
        eccodes.codes_set(handle, "bitmapPresent", 1)
    eccodes.codes_set_values(handle, values)
    message = bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    same(message)


@pytest.mark.parametrize("packing", ["grid_simple", "grid_ccsds", "grid_png"])
@pytest.mark.parametrize("bits", [25, 30, 31, 32])
@pytest.mark.parametrize("gaps", [False, True])
def test_wide_numbers(packing: str, bits: int, gaps: bool) -> None:
    """Wide JPEG 2000 is left out: ecCodes ends the process when it writes 32 bits."""
    values = rough(bits)
    if gaps:
        values[np.random.default_rng(1).random(POINTS) < 0.3] = GAP
    is_same_or_left_to_eccodes(written(packing, bits, values))


@pytest.mark.parametrize("packing", PACKINGS[:-1])
@pytest.mark.parametrize("gaps", [False, True])
def test_one_value_with_scales(packing: str, gaps: bool) -> None:
    """Fields of one value with scale factors in their header: ecCodes applies them in complex
    packing only.
    """
    values = np.full(POINTS, 273.16)
    if gaps:
        values[np.random.default_rng(1).random(POINTS) < 0.3] = GAP
    message = bytearray(written(packing, 12, values))
    at = 16
    while message[at + 4] != 5:
        at += int.from_bytes(message[at : at + 4], "big")
    message[at + 15 : at + 19] = struct.pack(">HH", 2, 3)
    is_same_or_left_to_eccodes(bytes(message))


def test_no_groups_at_all(grib_file: Any) -> None:
    """ecCodes takes such a field for one value, and so it is read."""
    message = bytearray(packed(0, [(0, 0, [0] * POINTS)], 0))
    at = 16
    while message[at + 4] != 5:
        at += int.from_bytes(message[at : at + 4], "big")
    message[at + 31 : at + 35] = bytes(4)
    found = grib_file(bytes(message))
    np.testing.assert_array_equal(found, expected(bytes(message)).astype(found.dtype))


@pytest.mark.parametrize("bits", [8, 12, 16, 20])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_stream_that_ends_too_early_is_an_error(bits: int, part: float) -> None:
    """Memory that the decoder never wrote was taken for numbers of more than one byte."""
    message = written("grid_ccsds", bits, rough(bits))
    parts = split_sections(as_octets(message))
    short = parts._replace(data=parts.data[: int(parts.data.size * part)])
    with pytest.raises(CodecError, match="ends after"):
        values_of(short, POINTS)


def test_a_field_that_is_wider_than_libpng_reads_is_not_called_damaged() -> None:
    """GRIB has fields of one row; libpng stops at a million columns."""
    found = unpack_image(41, b"", as_octets(grey_png(1000, bytes(1) + bytes(range(250)) * 4)), 8, 1000)
    assert found is not None
    assert found[:3].tolist() == [0, 1, 2]
    with pytest.raises(UnsupportedError, match="this one has 1 and 1,000,001"):
        unpack_image(41, b"", as_octets(grey_png(1_000_001, bytes(1_000_002))), 8, 1_000_001)
    with pytest.raises(CodecError, match="damaged"):
        unpack_image(41, b"", as_octets(grey_png(1000, bytes(10))), 8, 1000)
