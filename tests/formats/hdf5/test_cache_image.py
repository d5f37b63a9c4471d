"""Metadata in a cache image replaces the bytes of the file.

Modules: formats/hdf5/datasets/arrays.py, formats/hdf5/structures/checksum.py,
formats/hdf5/structures/superblock_extension.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import insitu
from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.datasets.arrays import _heap_codec
from insitu.formats.hdf5.structures.checksum import lookup3
from insitu.formats.hdf5.structures.datatype import Datatype
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.superblock_extension import read_cache_image
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.scheduler import ExactRanges, run
from insitu.sources import MemorySource


def _number(value: int, width: int = 8) -> bytes:
    return value.to_bytes(width, "little")


def _image(entries: list[tuple[int, bytes, int]]) -> bytes:
    body = b""
    for address, data, parents in entries:
        counts = bytes(4) + _number(parents, 2)
        body += (
            bytes([5, 1, 1, 0]) + counts + bytes(4) + _number(address) + _number(len(data)) + bytes(8 * parents) + data
        )
    head = b"MDCI\0\0" + _number(22 + len(body)) + _number(len(entries), 4)
    return head + body + _number(lookup3(head + body), 4)


def _file(entries: list[tuple[int, bytes, int]], size: int = 400_000) -> tuple[ReadCache, FileContext, bytes]:
    image = _image(entries)
    data = bytearray(size)
    data[300 : 300 + len(image)] = image
    window = ReadCache(MemorySource(bytes(data)))
    return window, FileContext(window.url, window.size), b"\0" + _number(300) + _number(len(image))


def test_entries_are_laid_over_the_file() -> None:
    window, file, message = _file([(10, b"near", 0), (200_000, b"far away", 2)])
    source = window.source  # the bytes live as long as it does
    assert window.fetch([[(199_990, 30)]])[0][0] == bytes(30)
    run(read_cache_image(file, message), window)
    assert window.peek_many([(8, 8)]) == [b"\0\0near\0\0"]
    assert window.peek_many([(199_998, 12)]) == [b"\0\0far away\0\0"]
    assert window.fetch([ExactRanges([(200_004, 6)])]) == [[b"away\0\0"]]
    assert source.read(10, 4) == bytes(4)
    assert not file.has_heaps_in_cache_image


def test_values_in_such_heaps_are_refused_by_name() -> None:
    window, file, message = _file([(10, b"GCOL", 0)])
    run(read_cache_image(file, message), window)
    with pytest.raises(UnsupportedError, match="cache"):
        _heap_codec(file, Datatype("text", 16, np.dtype(object)))


@pytest.mark.parametrize(("place", "value"), [(0, 99), (310, 200), (330, 255)])
def test_damage(place: int, value: int) -> None:
    window, file, message = _file([(10, b"near", 0)])
    data = bytearray(window.source.read(0, window.size))
    if place == 0:
        message = bytes([value]) + message[1:]
    data[place] = value
    with pytest.raises(FormatError):
        run(read_cache_image(file, message), ReadCache(MemorySource(bytes(data))))


def test_a_file_of_the_library(corpus: Path) -> None:
    (path,) = (corpus / "hdf5").rglob("h5clear_mdc_image.h5")
    arrays = insitu.scan(path, decode=False).arrays
    assert arrays
    for name in arrays:
        assert insitu.read(path, name, decode=False).size
