"""Messages made by ecCodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

eccodes = pytest.importorskip("eccodes")


class Makes:
    """Makes messages from ecCodes' samples."""

    def __call__(self, sample: str = "regular_ll_pl_grib2", values: Any = None, **keys: Any) -> bytes:
        """One message; without values: what the sample holds, made different by the keys."""
        handle = eccodes.codes_grib_new_from_samples(sample)
        try:
            for key, value in keys.items():
                eccodes.codes_set(handle, key, value)
            if values is None:
                size = eccodes.codes_get_size(handle, "values")
                values = np.random.default_rng(abs(hash(str(keys))) % 2**32).normal(280, 10, size)
            eccodes.codes_set_values(handle, np.asarray(values, np.float64))
            return bytes(eccodes.codes_get_message(handle))
        finally:
            eccodes.codes_release(handle)


@pytest.fixture
def make() -> Makes:
    return Makes()


def find_section(message: bytes | bytearray, number: int) -> int:
    """Where a section of a GRIB 2 message begins, or the next one that is there."""
    at = 16
    while message[at + 4] < number:
        at += int.from_bytes(message[at : at + 4], "big")
    return at


def together(*messages: bytes) -> bytes:
    """GRIB 2 messages that agree in sections 1 to 3, as one message of several fields."""
    first = messages[0]
    body = first[16:-4]
    for message in messages[1:]:
        body += message[find_section(message, 4) : -4]
    return first[:8] + (len(body) + 20).to_bytes(8, "big") + body + b"7777"
