"""Does a damaged field ever have other values than ecCodes gives, in a process beside this one?

ecCodes reads behind the end of some damaged fields. Its process fills freed memory with a pattern,
so that what it finds there is not what our decoder found.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import insitu
from insitu.errors import InsituError
from insitu.sources import MemorySource

eccodes = pytest.importorskip("eccodes")
pytest.importorskip("imagecodecs")

MUTANTS = 6
"""Of each seed."""
GAP = 1e30
PROGRAM = """
import os, signal, struct, sys
answers = os.fdopen(os.dup(1), "wb")
null = os.open(os.devnull, os.O_WRONLY)
os.dup2(null, 1)
os.dup2(null, 2)
import eccodes, numpy
while len(head := sys.stdin.buffer.read(8)) == 8:
    raw = sys.stdin.buffer.read(*struct.unpack("<Q", head))
    if hasattr(signal, "alarm"):
        signal.alarm(60)
    try:
        handle = eccodes.codes_new_from_message(raw)
        eccodes.codes_set(handle, "missingValue", 1e30)
        values = numpy.asarray(eccodes.codes_get_values(handle), float).tobytes()
        eccodes.codes_release(handle)
    except Exception:
        values = b""
    answers.write(struct.pack("<Q", len(values)) + values)
    answers.flush()
"""


class Oracle:
    """ecCodes in a process of its own, which is started anew when a message has ended it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def values(self, message: bytes) -> Any:
        """Return the values of a message; None if it is refused, or ends the process."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "MALLOC_PERTURB_": "165"},
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(struct.pack("<Q", len(message)) + message)
        self.process.stdin.flush()
        head = self.process.stdout.read(8)
        if len(head) < 8:
            self.end()
            return None
        found = np.frombuffer(self.process.stdout.read(*struct.unpack("<Q", head)))
        return np.where(found == GAP, np.nan, found) if found.size else None

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = None


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    found = Oracle()
    yield found
    found.end()


def written(sample: str, packing: str, bits: int, gaps: bool, constant: bool) -> bytes:
    handle = eccodes.codes_grib_new_from_samples(sample)
    try:
        values = np.cumsum(np.random.default_rng(1).normal(0, 1, eccodes.codes_get_size(handle, "values"))) + 300
        if constant:
            values[...] = 273.5
        if packing != "grid_ieee":
            eccodes.codes_set(handle, "bitsPerValue", bits)
        eccodes.codes_set(handle, "packingType", packing)
        if gaps:
            eccodes.codes_set(handle, "missingValue", GAP)
            eccodes.codes_set(handle, "bitmapPresent", 1)
            values[np.random.default_rng(2).permutation(values.size)[:17]] = GAP
        eccodes.codes_set_values(handle, values)
        return bytes(eccodes.codes_get_message(handle))
    except eccodes.CodesInternalError as problem:
        pytest.skip(f"this ecCodes does not write it: {problem}")
    finally:
        eccodes.codes_release(handle)


def headers_of_data(message: bytes) -> list[int]:
    """Where the representation, the bitmap and the beginning of the data lie."""
    found: list[int] = []
    if message[7] == 2:
        at = 16
        while message[at : at + 4] != b"7777":
            size = int.from_bytes(message[at : at + 4], "big")
            if message[at + 4] >= 5:
                found += range(at + 5, at + min(size, 49))
            at += size
        return found
    at = 8 + int.from_bytes(message[8:11], "big")
    for _ in range(1 + bool(message[15] & 0x40)):
        at += int.from_bytes(message[at : at + 3], "big")
        found += range(at + 3, at + 40)
    return found


def read_values(message: bytes) -> Any:
    """Return the values of the field as insitu reads them; None if it refuses the message."""
    source = MemorySource(message)
    try:
        group = insitu.scan(source, decode=False)
        (values,) = (
            insitu.read(array, decode=False)
            for array in group.arrays.values()
            if (codecs := array.tiles[0].encodings[0].codecs) and codecs[0].configuration["var"] == "values"
        )
    except InsituError:
        return None
    return values.reshape(-1)


@pytest.mark.parametrize(
    ("sample", "packing", "bits", "gaps", "constant"),
    [
        ("regular_ll_pl_grib2", "grid_simple", 12, False, True),
        ("regular_ll_pl_grib2", "grid_simple", 12, True, True),
        ("regular_ll_pl_grib2", "grid_simple", 7, True, False),
        ("regular_ll_pl_grib2", "grid_complex", 12, True, False),
        ("regular_ll_pl_grib2", "grid_complex_spatial_differencing", 12, False, False),
        ("regular_ll_pl_grib2", "grid_ccsds", 12, True, False),
        ("regular_ll_pl_grib2", "grid_png", 12, False, False),
        ("regular_ll_pl_grib2", "grid_jpeg", 12, True, False),
        ("regular_ll_pl_grib2", "grid_ieee", 32, True, False),
        ("regular_ll_pl_grib2", "grid_simple_log_preprocessing", 12, False, True),
        ("regular_ll_pl_grib2", "grid_second_order", 12, False, False),
        ("sh_pl_grib2", "spectral_complex", 16, False, False),
        ("regular_ll_pl_grib1", "grid_simple", 1, True, False),
        ("regular_ll_pl_grib1", "grid_simple", 6, True, False),
        ("regular_ll_pl_grib1", "grid_simple", 12, False, False),
        ("regular_ll_pl_grib1", "grid_second_order", 12, True, False),
        ("sh_pl_grib1", "spectral_complex", 16, False, False),
    ],
)
def test_values_are_those_of_ecCodes_or_refused(
    oracle: Oracle, sample: str, packing: str, bits: int, gaps: bool, constant: bool
) -> None:
    seed = written(sample, packing, bits, gaps, constant)
    np.testing.assert_array_equal(read_values(seed), oracle.values(seed).astype(np.float32))
    random = np.random.default_rng([bits, gaps, constant, *packing.encode(), seed[7]])
    places = headers_of_data(seed)
    for number in range(MUTANTS):
        mutant = bytearray(seed)
        changes = [(int(random.choice(places)), 1 << int(random.integers(8))) for _ in range(1 + number % 2)]
        for place, flip in changes:
            mutant[place] ^= flip
        found = read_values(bytes(mutant))
        if found is None or (wanted := oracle.values(bytes(mutant))) is None:
            continue
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(found, wanted.astype(np.float32), err_msg=str(changes))
