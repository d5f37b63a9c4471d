"""Is what a header declares compared with the bytes that are there, before anything is decoded?

Modules: formats/grib/codecs/codec.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import insitu
from insitu.errors import CodecError
from insitu.formats.grib.codecs import codec

from .conftest import find_section

eccodes = pytest.importorskip("eccodes")
pytest.importorskip("imagecodecs")

GAP = 1e30


def written(sample: str, packing: str, bits: int, *, constant: bool = False, gaps: bool = False) -> bytes:
    """A message by ecCodes."""
    handle = eccodes.codes_grib_new_from_samples(sample)
    try:
        values = np.cumsum(np.random.default_rng(1).normal(0, 1, eccodes.codes_get_size(handle, "values"))) + 300
        if packing != "grid_ieee":
            eccodes.codes_set(handle, "bitsPerValue", bits)
        eccodes.codes_set(handle, "packingType", packing)
        if constant:
            values[...] = 273.16
        if gaps:
            eccodes.codes_set(handle, "missingValue", GAP)
            eccodes.codes_set(handle, "bitmapPresent", 1)
            values[np.random.default_rng(2).permutation(values.size)[:17]] = GAP
        eccodes.codes_set_values(handle, values)
        return bytes(eccodes.codes_get_message(handle))
    finally:
        eccodes.codes_release(handle)


def shortened(message: bytes, number: int, count: int) -> bytes:
    """The message without the last bytes of a section; its lengths say so."""
    at = find_section(message, number)
    size = int.from_bytes(message[at : at + 4], "big")
    body = message[:at] + (size - count).to_bytes(4, "big") + message[at + 4 : at + size - count] + message[at + size :]
    return body[:8] + len(body).to_bytes(8, "big") + body[16:]


def changed(message: bytes, at: int, value: int) -> bytes:
    return message[:at] + bytes((value,)) + message[at + 1 :]


@pytest.fixture
def refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes, str], None]:
    """See that the field of a message is refused, each time, before ecCodes is asked for it."""

    def check(message: bytes, why: str) -> None:
        monkeypatch.setattr(codec, "decode_in_subprocess", lambda *arguments: pytest.fail("ecCodes was asked"))
        (tmp_path / "a.grib").write_bytes(message)
        (array,) = insitu.open_dataset(tmp_path / "a.grib").data_vars.values()
        for _ in range(2):
            with pytest.raises(CodecError, match=why):
                array.load()

    return check


@pytest.mark.parametrize("packing", ["grid_simple", "grid_simple_log_preprocessing"])
@pytest.mark.parametrize("bits", [1, 2, 16, 64])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_constant_field_that_declares_bits(refuse: Any, packing: str, bits: int, gaps: bool) -> None:
    """ecCodes reads as many bits behind the end of the message: memory of others would become
    values.
    """
    message = written("regular_ll_pl_grib2", packing, 12, constant=True, gaps=gaps)
    at = find_section(message, 5) + 19
    assert message[at] == 0
    refuse(changed(message, at, bits), "but its header declares")


@pytest.mark.parametrize(
    ("sample", "packing"),
    [
        ("regular_ll_pl_grib2", "grid_simple"),
        ("regular_ll_pl_grib2", "grid_simple_log_preprocessing"),
        ("regular_ll_pl_grib2", "grid_ieee"),
        ("regular_ll_pl_grib2", "grid_complex"),
        ("regular_ll_pl_grib2", "grid_complex_spatial_differencing"),
        ("sh_pl_grib2", "spectral_complex"),
        ("sh_pl_grib2", "spectral_simple"),
    ],
)
@pytest.mark.parametrize("count", [1, 30])
def test_data_that_is_too_short(refuse: Any, sample: str, packing: str, count: int) -> None:
    message = written(sample, packing, 16)
    refuse(shortened(message, 7, count), "but its header declares|exceed the data")


@pytest.mark.parametrize("change", [(15, 0x7F), (11, 0x7F), (11, 0xFF)])
def test_data_that_is_too_short_for_a_header_that_ecCodes_reads(refuse: Any, change: tuple[int, int]) -> None:
    """Scales that no double holds, and references that are no numbers, are left to ecCodes."""
    message = shortened(written("regular_ll_pl_grib2", "grid_complex", 12), 7, 30)
    at = find_section(message, 5) + change[0]
    refuse(changed(changed(message, at, change[1]), at + 1, 0xFF), "exceed the data")


@pytest.mark.parametrize("packing", ["grid_simple", "grid_simple_log_preprocessing", "grid_ccsds"])
def test_a_bitmap_that_is_too_short(refuse: Any, packing: str) -> None:
    message = written("regular_ll_pl_grib2", packing, 12, gaps=True)
    refuse(shortened(message, 6, 1), "too few for")


@pytest.mark.parametrize("packing", ["grid_simple", "grid_complex", "grid_ccsds", "grid_ieee"])
def test_a_bitmap_with_more_points_than_values(refuse: Any, packing: str) -> None:
    message = written("regular_ll_pl_grib2", packing, 12, gaps=True)
    at = find_section(message, 6) + 6
    while message[at] == 0xFF:
        at += 1
    refuse(changed(message, at, message[at] | (message[at] + 1)), "the message holds")


@pytest.mark.parametrize("bits", [1, 2, 4, 6])
def test_spare_bits_of_the_first_edition_are_no_value(refuse: Any, bits: int) -> None:
    """The data is filled up to whole bytes: one point more in the bitmap would take what fills it
    for a value.
    """
    message = written("regular_ll_pl_grib1", "grid_simple", bits, gaps=True)
    bitmap = 8 + int.from_bytes(message[8:11], "big")
    bitmap += int.from_bytes(message[bitmap : bitmap + 3], "big")
    data = bitmap + int.from_bytes(message[bitmap : bitmap + 3], "big")
    assert message[data + 3] & 0x0F >= bits  # there is room for one more
    at = next(place for place in range(bitmap + 6, data) if message[place] != 0xFF)
    refuse(changed(message, at, message[at] | (message[at] + 1)), "the message holds")


@pytest.mark.parametrize("bits", [6, 12])
def test_bits_of_the_first_edition_that_no_value_has(refuse: Any, bits: int) -> None:
    message = written("regular_ll_pl_grib1", "grid_simple", bits)
    data = 8 + int.from_bytes(message[8:11], "big")
    data += int.from_bytes(message[data : data + 3], "big")
    refuse(changed(message, data + 3, message[data + 3] | 0x0F), "the message holds")


def test_harmonics_of_the_first_edition_that_are_too_short(refuse: Any) -> None:
    message = written("sh_pl_grib1", "spectral_complex", 16)
    data = 8 + int.from_bytes(message[8:11], "big")
    data += int.from_bytes(message[data : data + 3], "big")
    size = int.from_bytes(message[data : data + 3], "big") - 40
    body = message[:data] + size.to_bytes(3, "big") + message[data + 3 : data + size] + b"7777"
    refuse(body[:4] + len(body).to_bytes(3, "big") + body[7:], "but its header declares")


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("gaps", [False, True])
def test_packing_of_second_order_that_reads_behind_its_end(tmp_path: Path, edition: int, gaps: bool) -> None:
    """Only the data tells how long it must be: what lies behind it does not become values."""
    message = written(f"regular_ll_pl_grib{edition}", "grid_second_order", 12, gaps=gaps)
    (tmp_path / "a.grib").write_bytes(message)
    assert np.isfinite(insitu.open_dataset(tmp_path / "a.grib").to_dataarray().load()).mean() > 0.9
    if edition == 2:
        short = shortened(message, 7, 40)
    else:
        data = len(message) - 4
        size = int.from_bytes(message[4:7], "big") - 40
        at = 8 + int.from_bytes(message[8:11], "big")
        for _ in range(1 + gaps):
            at += int.from_bytes(message[at : at + 3], "big")
        assert at < data
        body = message[:at] + (size - at - 4).to_bytes(3, "big") + message[at + 3 : size - 4] + b"7777"
        short = body[:4] + size.to_bytes(3, "big") + body[7:]
    (tmp_path / "a.grib").write_bytes(short)
    (array,) = insitu.open_dataset(tmp_path / "a.grib").data_vars.values()
    with pytest.raises(CodecError, match=r"ends before the last value|cannot decode"):
        array.load()
