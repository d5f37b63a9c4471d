"""Parsers of messages raise an error of ours for any bytes, however short: fields are
bounds-checked.

Modules: formats/hdf5/structures/dataspace.py, formats/parsing/fields.py
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from insitu.errors import FormatError, InsituError
from insitu.formats.hdf5.structures.dataspace import parse_dataspace
from insitu.formats.hdf5.structures.datatype import parse_datatype
from insitu.formats.hdf5.structures.fill_value import parse_fill, parse_old_fill
from insitu.formats.hdf5.structures.layout import parse_layout
from insitu.formats.hdf5.structures.links import parse_link
from insitu.formats.hdf5.structures.pipeline import parse_filters
from insitu.formats.hdf5.structures.stored_selection import parse_selection
from insitu.formats.parsing.fields import check_length, take_bytes, take_uint

PARSERS: dict[str, Callable[[bytes], Any]] = {
    "dataspace": lambda body: parse_dataspace(body, 8),
    "datatype": parse_datatype,
    "fill value": parse_fill,
    "old fill value": parse_old_fill,
    "layout": lambda body: parse_layout(body, 8, 8),
    "link": lambda body: parse_link(body, 8),
    "filters": parse_filters,
    "selection": lambda body: parse_selection(bytes([2, 0, 0, 0, 1 + len(body) % 3, 0, 0, 0]) + body, 0),
}


@pytest.mark.parametrize("name", PARSERS)
def test_any_bytes(name: str) -> None:
    parse, chance = PARSERS[name], random.Random(name)
    refused = 0
    for number in range(4000):
        # Small numbers are versions, classes and counts that are valid: they lead deeper into a
        # parser.
        body = bytes(chance.choice((0, 1, 2, 3, 8, 16, chance.randrange(256))) for _ in range(number % 72))
        try:
            parse(body)
        except InsituError:
            refused += 1
    assert refused > 100


def test_fields() -> None:
    assert take_uint(b"\x01\x02\x03", 1, 2, "thing") == 0x0302
    assert take_bytes(b"abc", 1, 2, "thing") == b"bc"
    check_length(b"abc", 3, "thing")
    for read in (take_uint, take_bytes):
        with pytest.raises(FormatError, match="the thing is cut off: it has 3 bytes, at least 4"):
            read(b"abc", 2, 2, "thing")
