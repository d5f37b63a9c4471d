"""Are files that lie about sizes, counts and links refused, without the memory that they ask for?"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import insitu
from damaged_bytes import peak_of_reading
from insitu.errors import FormatError
from insitu.formats import InsituWarning
from insitu.sources import MemorySource

MOST_MEMORY = 64 << 20


def _big(*entries: tuple[int, int, int, int], link: int = 0, room: int = 256) -> bytes:
    """A BigTIFF with one directory: tag, type, count, value or offset of each entry."""
    rows = b"".join(struct.pack("<HHQQ", *entry) for entry in sorted(entries))
    head = struct.pack("<2sHHHQ", b"II", 43, 8, 0, 16)
    return head + struct.pack("<Q", len(entries)) + rows + struct.pack("<Q", link) + bytes(room)


IMAGE = ((256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (262, 3, 1, 1), (277, 3, 1, 1))
STRIP = ((273, 16, 1, 200), (279, 16, 1, 64))
CASES: dict[str, Callable[[], bytes]] = {
    "a strip table of 2^60": lambda: _big(*IMAGE, (273, 16, 1 << 60, 16), (279, 16, 1 << 60, 16)),
    "strips at 2^63": lambda: _big(*IMAGE, (273, 16, 1, 1 << 63), (279, 16, 1, 1 << 63)),
    "a width of 2^60": lambda: _big(*IMAGE[1:], (256, 16, 1, 1 << 60), *STRIP),
    "a height of 2^60": lambda: _big(IMAGE[0], *IMAGE[2:], (257, 16, 1, 1 << 60), (278, 4, 1, 1), *STRIP),
    "2^60 bands": lambda: _big(*IMAGE[:4], (277, 16, 1, 1 << 60), *STRIP),
    "2^32 bands apart": lambda: _big(*IMAGE[:4], (277, 4, 1, (1 << 32) - 1), (284, 3, 1, 2), *STRIP),
    "a text of 2^60": lambda: _big(*IMAGE, *STRIP, (42112, 2, 1 << 60, 16)),
    "2^60 SubIFDs": lambda: _big(*IMAGE, *STRIP, (330, 18, 1 << 60, 16)),
    "SubIFDs that are their parent": lambda: _big(*IMAGE, *STRIP, (330, 18, 1, 16)),
    "tiles of 2^31": lambda: _big(
        *IMAGE, (259, 3, 1, 8), (322, 4, 1, 1 << 31), (323, 4, 1, 1 << 31), (324, 16, 1, 200), (325, 16, 1, 64)
    ),
    "tiles of no rows": lambda: _big(*IMAGE, (322, 4, 1, 16), (323, 4, 1, 0), (324, 16, 1, 200), (325, 16, 1, 64)),
    "a chain that bites its tail": lambda: _big(*IMAGE, *STRIP, link=16),
    "a next directory at 2^60": lambda: _big(*IMAGE, *STRIP, link=1 << 60),
    "2^60 geographic keys": lambda: _big(*IMAGE, *STRIP, (34735, 3, 1 << 60, 16)),
    "65535 tags": lambda: struct.pack("<2sHHHQQ", b"II", 43, 8, 0, 16, 1 << 60) + bytes(300),
}


@pytest.mark.parametrize("case", CASES)
def test_large_numbers_cost_nothing(case: str) -> None:
    assert peak_of_reading(CASES[case]()) < MOST_MEMORY


def test_many_directories_are_followed_once() -> None:
    """Each image names all others as its SubIFDs: they are not multiplied."""
    count = 40
    size = 8 + 20 * (len(IMAGE) + len(STRIP) + 1) + 8
    places = [16 + number * size for number in range(count)]
    end = 16 + count * size
    data = bytearray(struct.pack("<2sHHHQ", b"II", 43, 8, 0, 16))
    for number in range(count):
        entries = sorted([*IMAGE, (273, 16, 1, end), (279, 16, 1, 64), (330, 18, count, end + 64)])
        link = places[number + 1] if number + 1 < count else 0
        data += struct.pack("<Q", len(entries)) + b"".join(struct.pack("<HHQQ", *entry) for entry in entries)
        data += struct.pack("<Q", link)
    data += bytes(64) + struct.pack(f"<{count}Q", *places)
    source = MemorySource(bytes(data))
    assert insitu.scan(source, decode=False).arrays["band_data"].shape == (count, 1, 8, 8)


@pytest.mark.parametrize("text", ["images=999999999", "images=65536", "images=0", "images=-1"])
def test_a_stack_that_is_not_there_is_one_image(text: str) -> None:
    description = f"ImageJ=1.53\n{text}\n".encode() + b"\0"
    data = bytearray(_big(*IMAGE, (273, 16, 1, 240), (279, 16, 1, 64), (270, 2, len(description), 310), room=0))
    data = data.ljust(310, b"\1") + description
    source = MemorySource(bytes(data))
    found: Any = insitu.read(insitu.scan(source, decode=False), "band_data", decode=False)
    np.testing.assert_array_equal(found, np.ones((1, 8, 8)))


def test_entities_are_not_expanded() -> None:
    bomb = (
        b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b '
        b'"&a;&a;&a;&a;&a;&a;">]><GDALMetadata><Item name="x">&b;</Item></GDALMetadata>\0'
    )
    data = _big(*IMAGE, (273, 16, 1, 240), (279, 16, 1, 64), (42112, 2, len(bomb), 310), room=0).ljust(310, b"\1")
    source = MemorySource(data + bomb)
    with pytest.warns(InsituWarning, match="document type"):
        assert "x" not in insitu.scan(source, decode=False).arrays["band_data"].attributes


def test_metadata_that_cannot_be_read_are_told() -> None:
    """They may hold the scale and offset of the values."""

    def attributes(text: bytes) -> Any:
        data = _big(*IMAGE, (273, 16, 1, 240), (279, 16, 1, 64), (42112, 2, len(text), 310), room=0).ljust(310, b"\1")
        return insitu.scan(MemorySource(data + text), decode=False).arrays["band_data"].attributes

    with pytest.warns(InsituWarning, match=r"GDAL metadata.*cannot be read"):
        attributes(b'<GDALMetadata><Item name="x">1\0')
    assert attributes(b'<GDALMetadata><!-- a comment --><Item name="x">1</Item></GDALMetadata>\0')["x"] == 1


def test_a_header_of_nothing() -> None:
    for data in (b"II", b"II*\0", b"II+\0\x08\0\0\0", b"MM\0*\0\0\0\0", b"II*\0\xff\xff\xff\xff"):
        with pytest.raises(FormatError):
            insitu.scan(MemorySource(data), format="tiff", decode=False)
