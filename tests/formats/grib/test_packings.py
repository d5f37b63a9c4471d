"""Are the values of every packing that is undone here ecCodes' own, to the bit?"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from insitu.codecs.form import octets
from insitu.codecs.grib_sections import parts_of
from insitu.codecs.grib_values import values_of

eccodes = pytest.importorskip("eccodes")
pytest.importorskip("imagecodecs")

POINTS = 16 * 31
GAP = 1e30
PACKINGS = [
    "grid_simple", "grid_complex", "grid_complex_spatial_differencing", "grid_ccsds", "grid_jpeg", "grid_png", "grid_ieee",
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
    found = values_of(parts_of(octets(message)), count)
    assert found is not None
    np.testing.assert_array_equal(found, expected(message))


def rough(seed: int, size: int = POINTS) -> Any:
    """A walk with jumps: groups of many widths."""
    random = np.random.default_rng(seed)
    steps = random.normal(0, 1, size) * np.repeat(10.0 ** random.integers(-3, 3, -(-size // 16)), 16)[:size]
    return np.cumsum(steps) + random.normal(0, 500)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("bits", [1, 5, 8, 9, 12, 16, 17, 24])
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
    assert parts_of(octets(message)).packing[47] == order
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


def packed(bits: int, groups: list[tuple[int, int, list[int]]], missing: int, order: int = 0, extra: bytes = b"") -> bytes:  # fmt: skip
    """Complex packing written here, on a grid of its own: each group a reference, a width and its numbers."""
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
    head = struct.pack(">IHfHHBBBBIIIBBIBIB", count, template, 3.5, 1, 2, bits, 0, 1, missing, 0, 0, len(groups), 0, 6, 0, 1, len(groups[-1][2]), 9)  # fmt: skip
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
