"""Are all objects of a global heap collection found?"""

from __future__ import annotations

import random

import pytest

from insitu.errors import FormatError
from insitu.formats.hdf5.codecs import global_heap
from insitu.formats.hdf5.codecs.global_heap import collection_size, parse_collection


def _collection(objects: dict[int, bytes], size: int = 4096, width: int = 8) -> bytes:
    data = b"GCOL" + bytes([1, 0, 0, 0]) + size.to_bytes(width, "little") + bytes(8 - width)
    for number, value in objects.items():
        data += number.to_bytes(2, "little") + bytes(6) + len(value).to_bytes(width, "little") + bytes(8 - width)
        data += value + bytes(-len(value) % 8)
    return data.ljust(size, b"\0")


@pytest.mark.parametrize("width", [4, 8])
def test_objects(width: int) -> None:
    objects = {1: b"one", 2: b"", 7: b"exactly8", 40: b"x" * 1000}
    data = _collection(objects, width=width)
    assert collection_size(data[:16], width) == 4096
    assert parse_collection(data, width) == objects


def test_full_to_the_end() -> None:
    objects = {1: b"x" * 32}
    assert parse_collection(_collection(objects, size=64)) == objects


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GCOL",
        b"JUNK" + bytes(100),
        _collection({1: b"x"})[:100],
        _collection({}, size=8),
        b"GCOL\1\0\0\0" + (64).to_bytes(8, "little") + b"\1\0" + bytes(6) + (1 << 60).to_bytes(8, "little") + bytes(40),
    ],
)
def test_damaged(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_collection(data)


@pytest.mark.skipif(global_heap.metadata is None, reason="the C extension was not built")
@pytest.mark.parametrize("width", [2, 4, 8])
def test_the_compiled_parser_finds_the_same(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(data: bytes) -> dict[int, bytes] | str:
        try:
            return parse_collection(data, width)
        except FormatError as problem:
            return problem.message

    chance = random.Random(width)
    sound = _collection({number: bytes(chance.randrange(40)) for number in range(1, 60)}, width=width)
    copies = [sound]
    for _ in range(300):
        damaged = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(16, 2000)] = chance.randrange(256)
        copies.append(bytes(damaged))
    compiled = [outcome(data) for data in copies]
    assert global_heap.metadata.collection_objects(sound, width) == compiled[0]
    monkeypatch.setattr(global_heap, "metadata", None)
    assert compiled == [outcome(data) for data in copies]
    assert any(isinstance(found, str) for found in compiled)
