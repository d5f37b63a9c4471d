"""The compiled parser of metadata finds what the parser in Python finds, in sound and damaged files.

Modules: formats/hdf5/structures/btree_v1.py, formats/hdf5/structures/messages.py
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from numcodecs.jenkins import jenkins_lookup3

from insitu.errors import InsituError
from insitu.formats import scan_format
from insitu.formats.hdf5.structures import compiled_metadata
from insitu.formats.hdf5.structures.btree_v1 import _first_elements
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.messages import Message
from insitu.sources import MemorySource
from real_files import parameters

metadata = compiled_metadata.metadata
pytestmark = pytest.mark.skipif(metadata is None, reason="the C extension was not built")
WIDTHS = 8 << 8 | 8


def _write_netcdf(path: Path, number: int = 0) -> bytes:
    """A file with attributes and links in heaps, some of them in trees of two levels."""
    with netCDF4.Dataset(path, "w") as file:
        for index in range(40):
            file.setncattr(f"attribute_{index}", f"a text, {index + number}")
        file.createDimension("time", None)
        file.createDimension("x", 4)
        for name in ("time", "x", *(f"v{index}" for index in range(40))):
            dims = (name,) if name in ("time", "x") else ("time", "x")
            variable = file.createVariable(name, "f4", dims, zlib=True, chunksizes=(2, 4)[: len(dims)])
            for index in range(12):
                variable.setncattr(f"a{index}", np.arange(3.0) + index if index % 3 else f"text {index}")
            variable[:] = np.ones((7, 4)[: len(dims)]) if name != "x" else np.arange(4)
    return path.read_bytes()


def _write_old(path: Path) -> bytes:
    with h5py.File(path, "w", libver="earliest", userblock_size=512) as file:
        file["a"] = np.arange(20)
        file.create_dataset("b", data=np.ones((9, 9)), chunks=(3, 4), compression="gzip")
        for index in range(12):
            file["b"].attrs[f"a{index}"] = "x" * 50 * index
    return path.read_bytes()


def _describe(data: bytes) -> Any:
    """All that a scan finds, or the error that it gives."""
    try:
        tree = scan_format(MemorySource(data, "x"), errors="keep")
    except InsituError as problem:
        return type(problem), str(problem)
    found: list[Any] = []
    for path, group in tree.walk():
        found.append((path, repr(dict(group.attributes)), repr(group.details), repr(group.problems)))
        for name, array in group.arrays.items():
            tables = [
                (tile.axes, repr(tile.encodings), repr([column.tolist() for column in _columns(tile.chunks)]))
                for tile in array.tiles
            ]
            about = (array.shape, str(array.dtype), array.dims, repr(dict(array.attributes)), repr(array.details))
            found.append((path, name, about, tables))
    return found


def _columns(table: Any) -> list[Any]:
    if not 0 < np.prod(table.shape) < 10_000:
        return []
    places = table.locate([axis.reshape(-1) for axis in np.indices(table.shape)])
    return [places.source, places.offset, places.length, places.filter_mask]


def _describe_without(monkeypatch: pytest.MonkeyPatch, data: bytes) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(compiled_metadata, "metadata", None)
        return _describe(data)


@pytest.mark.parametrize("path", parameters("hdf5"))
def test_files_of_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stat().st_size > 4 << 20:
        pytest.skip("describing every cell of more than 4 MiB takes long; smaller files have all structures")
    data = path.read_bytes()
    assert _describe(data) == _describe_without(monkeypatch, data)


def test_all_of_a_small_file_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = _write_netcdf(tmp_path / "x.nc")
    answers: dict[str, list[bool]] = {}

    def counted(name: str, compiled: Any) -> Any:
        def call(*given: Any) -> Any:
            found = compiled(*given)
            answers.setdefault(name, []).append(found is not None)
            return found

        return call

    for name in ("header_messages", "heap_objects", "attribute_bodies", "full_leaf"):
        monkeypatch.setattr(metadata, name, counted(name, getattr(metadata, name)))
    assert len(data) < 256 << 10
    scan_format(MemorySource(data))
    objects = 43
    assert {name: len(found) for name, found in answers.items()} == {
        "header_messages": objects,
        "heap_objects": 1,
        "attribute_bodies": objects,
        "full_leaf": objects - 1,
    }
    assert all(all(found) for found in answers.values())


@pytest.mark.parametrize("write", [_write_netcdf, _write_old])
def test_damaged_files(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write(tmp_path / "x.h5")
    chance = random.Random(write.__name__)
    refused = 0
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 8])):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        found = _describe(bytes(data))
        refused += isinstance(found, tuple)
        assert found == _describe_without(monkeypatch, bytes(data))
    assert refused


def test_wrong_fields_are_not_followed(tmp_path: Path) -> None:
    """Every field that leads somewhere is checked, even where the checksum fits."""
    whole = bytearray(_write_netcdf(tmp_path / "x.nc"))
    chance = random.Random(1)
    starts = [at for at in range(len(whole)) if whole[at : at + 4] in (b"OHDR", b"BTHD", b"FRHP", b"FHIB", b"BTIN")]
    trees = [at for at in starts if whole[at : at + 4] == b"BTHD"]
    heaps = [at for at in starts if whole[at : at + 4] == b"FRHP"]
    for _ in range(3000):
        data = bytearray(whole)
        start = chance.choice(starts)
        length = {b"BTHD": 38, b"FRHP": 146}.get(bytes(data[start : start + 4]), chance.choice([60, 120, 512]))
        at = start + chance.randrange(4, length - 4)
        data[at : at + 2] = chance.choice([b"\xff\xff", b"\0\0", b"\1\0", chance.randbytes(2)])
        fitting = metadata.lookup3(bytes(data[start : start + length - 4]))
        data[start + length - 4 : start + length] = fitting.to_bytes(4, "little")
        head = bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        metadata.header_messages(head, 0, WIDTHS, start, Message)
        for kind in (5, 8):
            metadata.heap_objects(head, 0, WIDTHS, chance.choice(heaps), chance.choice(trees), kind)
        body = chance.choice([b"\0\0", b"\0\1\0\0"]) + b"".join(
            chance.choice(places).to_bytes(8, "little") for places in (heaps, trees)
        )
        plain = Message(12, 0, chance.randbytes(chance.randrange(40)), 5)
        metadata.attribute_bodies(head, 0, WIDTHS, [Message(21, 0, body, 0), plain], b"REFERENCE_LIST")


def _attribute(name: bytes, version: int = 3) -> bytes:
    head = bytes([version, 0]) + (len(name) + 1).to_bytes(2, "little") + bytes(4)
    return head + (b"\0" if version == 3 else b"") + name + b"\0"


def test_attribute_bodies() -> None:
    def bodies(*messages: Any) -> Any:
        return metadata.attribute_bodies(b"", 0, WIDTHS, list(messages), b"LIST")

    one, two, three = _attribute(b"one"), _attribute(b"LISTS", 1), _attribute(b"LIS", 2)
    in_header = [Message(12, 0, three, 7), Message(12, 0, one, 2), Message(1, 0, b"", 0), Message(12, 0, two, 2)]
    assert bodies(*in_header) == (one, two, three)
    assert bodies(*in_header, Message(12, 0, _attribute(b"LIST"), 3), Message(12, 0, _attribute(b"LIST\0x", 1), 3)) == (
        one,
        two,
        three,
    )
    assert bodies() == ()
    assert bodies(Message(21, 0, bytes(2) + b"\xff" * 16, 0)) == ()  # there is no heap
    for odd in (b"", _attribute(b"x", 4), _attribute(b"name")[:-3]):
        assert bodies(Message(12, 0, odd, 0)) is None
    assert bodies(Message(12, 2, one, 0)) is None  # shared
    assert bodies(Message(21, 0, bytes(10), 0)) is None


def test_full_leaf(tmp_path: Path) -> None:
    grid, chunk = (2, 3), (5, 7)
    keys = _first_elements(grid, chunk)

    def node(count: int = 6, keys: Any = keys, closing: int = 99, address: int = 64, size: int = 10) -> bytes:
        rows = [
            np.array([size, 0], "<u4").tobytes() + key.tobytes() + np.uint64(address + 10 * number).tobytes()
            for number, key in enumerate(keys)
        ]
        last = np.array([0, 0], "<u4").tobytes() + np.array([closing, 0, 0], "<u8").tobytes()
        return b"TREE\1\0" + count.to_bytes(2, "little") + b"\xff" * 16 + b"".join(rows) + last

    file = FileContext("x", 200)
    found = compiled_metadata.full_leaf(file, node(), grid, chunk)
    assert found is not None
    assert found[0].tolist() == [64, 74, 84, 94, 104, 114]
    assert found[1].tolist() == [10] * 6
    assert found[2] == 0
    for bad in (
        node(count=5),
        node(keys=keys[::-1]),
        node(keys=keys + np.uint64(1)),
        node(closing=0),
        node(address=150),
        node(size=1000),
        node()[:-1],
        b"TREE\1\1" + node()[6:],
        b"",
    ):
        assert compiled_metadata.full_leaf(file, bad, grid, chunk) is None
    assert compiled_metadata.full_leaf(file, node(), (3, 2), chunk) is None
    assert compiled_metadata.full_leaf(FileContext("x", 200, base=100), node(), grid, chunk) is None


def test_checksum() -> None:
    chance = random.Random(0)
    for length in range(80):
        data = chance.randbytes(length)
        assert metadata.lookup3(data) == jenkins_lookup3(data, 0)


def test_none_is_counted() -> None:
    """One build serves every Python from 3.11 on, and there None has a count of references."""
    before = sys.getrefcount(None)
    for _ in range(10_000):
        metadata.header_messages(b"", 0, WIDTHS, 0, Message)
        metadata.heap_objects(b"", 0, WIDTHS, 0, 0, 8)
        metadata.full_leaf(b"", 0, 8, 0, 64, (1,), (1,))
    assert abs(sys.getrefcount(None) - before) < 5_000


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError):
        metadata.header_messages(b"", 0, WIDTHS, 0)
    with pytest.raises(TypeError):
        metadata.header_messages(b"", 0, WIDTHS, 0, dict)
    with pytest.raises(ValueError, match="1 to 8 bytes"):
        metadata.header_messages(b"", 0, 0, 0, Message)
    with pytest.raises(ValueError, match="record types"):
        metadata.heap_objects(b"", 0, WIDTHS, 0, 0, 9)
    for messages in ([()], [1], (), [(12, 0, "text", 0)], [("x", 0, b"", 0)]):
        with pytest.raises(TypeError):
            metadata.attribute_bodies(b"", 0, WIDTHS, messages, b"")
    with pytest.raises(ValueError, match="rank"):
        metadata.full_leaf(b"", 0, 8, 0, 64, (1,), (1, 1))
    assert metadata.header_messages(b"", 0, WIDTHS, 1 << 70, Message) is None
