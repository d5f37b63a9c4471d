"""The compiled parser of metadata finds what the parser in Python finds, in sound and damaged files, and it is the one
that reads the ordinary ones.

Modules: formats/hdf5/structures/btree_v1.py, formats/hdf5/structures/messages.py
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5p, h5s, h5t
from numcodecs.jenkins import jenkins_lookup3

from described_scan import describe_scan, difference_of_parsers, without_compiled_parser
from insitu.formats.hdf5.datasets.object_at_path import read_file_header
from insitu.formats.hdf5.datasets.objects import Dataset, ObjectTable, read_objects
from insitu.formats.hdf5.structures import compiled_metadata, object_header
from insitu.formats.hdf5.structures.btree_v1 import _first_elements
from insitu.formats.hdf5.structures.compiled_metadata import _OTHER, DATASET, GROUP, NAMED_TYPE, NOT_PLAIN
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.links import Link
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.scheduler import Walk, run
from insitu.sources import MemorySource
from real_files import parameters

metadata = compiled_metadata.metadata
pytestmark = pytest.mark.skipif(metadata is None, reason="the C extension was not built")
ROOMS = (8, 32, 64)
"""Symbols, group nodes and chunks that a node has room for, unless a file says otherwise."""


# ---- files -----------------------------------------------------------------------------------------------------------


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


def _write_narrow(path: Path, libver: str) -> bytes:
    """Addresses and lengths of four bytes."""
    plist = h5p.create(h5p.FILE_CREATE)
    plist.set_sizes(4, 4)
    access = h5p.create(h5p.FILE_ACCESS)
    if libver == "latest":
        access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    with h5py.File(h5py.h5f.create(str(path).encode(), h5py.h5f.ACC_TRUNC, plist, access)) as file:
        file["g/d"] = np.arange(7)
        file.create_dataset("c", data=np.arange(20), chunks=(3,), compression="lzf")
        file["c"].attrs["text"] = "a text"
        file["c"].attrs["texts"] = np.array(["of", "several", "lengths"], h5py.string_dtype())
        file["soft"] = h5py.SoftLink("/g/d")
    return path.read_bytes()


def _write_many_kinds(path: Path, libver: Any, order: bool) -> bytes:
    """Whatever is plain, of every version that h5py writes."""
    with h5py.File(path, "w", libver=libver, track_order=order) as file:
        file["scalar"] = 3.5
        file["nothing"] = h5py.Empty("f4")
        file.create_dataset("contiguous", data=np.arange(12.0).reshape(3, 4)).attrs["units"] = "m"
        file.create_dataset("unwritten", (5, 5), "i2", chunks=(2, 2), fillvalue=-7)
        file.create_dataset("full", data=np.arange(30).reshape(5, 6), chunks=(2, 3), compression="gzip", shuffle=True)
        file.create_dataset("grows", data=np.arange(30), chunks=(4,), maxshape=(None,), fletcher32=True)
        file.create_dataset("one", data=np.arange(6), chunks=(6,), compression="gzip")
        partly = file.create_dataset("partly", (10,), "f8", chunks=(2,), fillvalue=np.nan)
        partly[4:6] = 1.0
        file["texts"] = np.array([b"ab", b"c"])
        file["records"] = np.array([(1, 2.5)], [("a", "<i4"), ("b", "<f8")])
        creation = h5p.create(h5p.DATASET_CREATE)
        creation.set_layout(h5py.h5d.COMPACT)
        compact = h5py.h5d.create(file.id, b"compact", h5t.STD_I32BE, h5s.create_simple((4,)), dcpl=creation)
        compact.write(h5s.ALL, h5s.ALL, np.arange(4, dtype=">i4"))
        file["names"] = h5py.SoftLink("/texts")
        file["nowhere"] = h5py.SoftLink("/not/there")
        file["type"] = np.dtype("<u2")
        group = file.create_group("deep/er", track_order=order)
        for number in range(20):
            group[f"d{(7 * number) % 20:02d}"] = np.arange(number)
        for number in range(15):  # so many lie in a heap
            group.attrs[f"attribute {(4 * number) % 15}"] = "text" * number
        group.attrs["of varying length"] = ["x", "", "zz"]
        group.attrs["numbers"] = np.arange(3, dtype=">f4")
        file["x"] = np.arange(6.0)
        file["x"].make_scale("the x axis")
        file["full"].dims[1].attach_scale(file["x"])
        file["full"].attrs["empty"] = h5py.Empty("S1")
    return path.read_bytes()


ORDINARY: dict[str, Callable[[Path], bytes]] = {
    "netcdf": _write_netcdf,
    "old": _write_old,
    "narrow-earliest": lambda path: _write_narrow(path, "earliest"),
    "narrow-latest": lambda path: _write_narrow(path, "latest"),
    **{
        f"{libver}-{'ordered' if order else 'named'}": lambda path, libver=libver, order=order: _write_many_kinds(
            path, libver, order
        )
        for libver in ("earliest", ("v108", "v108"), ("v110", "v110"), "latest")
        for order in (False, True)
    },
}


# ---- both parsers ----------------------------------------------------------------------------------------------------


def _open(data: bytes) -> tuple[FileContext, ReadCache]:
    window = ReadCache(MemorySource(data, "x"))
    return FileContext("x", len(data), peek=window.peek, head=lambda: window.head), window


def _objects(data: bytes) -> ObjectTable:
    """All objects of a file."""
    file, window = _open(data)

    def walk() -> Walk[ObjectTable]:
        superblock = yield from read_file_header(file)
        objects: ObjectTable = {}
        yield from read_objects(file, [superblock.root], objects, indexed=True, deep=True)
        return objects

    return run(walk(), window)


def _facts(item: Any) -> Any:
    """All that is known of an object."""
    if not isinstance(item, Dataset):
        return repr(item)
    names = [name for name in Dataset.__slots__ if name not in ("chunks", "described")]
    chunks = (
        None
        if item.chunks is None
        else (
            item.chunks.grid,
            [
                np.broadcast_to(c, len(item.chunks.columns()[1])).tolist() if np.ndim(c) < 2 else c.tolist()
                for c in item.chunks.columns()
            ],
        )
    )
    return [repr(getattr(item, name)) for name in names], chunks


def _compiled(data: bytes) -> list[Any]:
    """What the compiled parser alone finds of a file."""
    file, window = _open(data)
    superblock = run(read_file_header(file), window)
    found = compiled_metadata.read_compiled(file, [superblock.root], [], Link, indexed=True, deep=True)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ORDINARY)
def test_object_by_object(kind: str, tmp_path: Path) -> None:
    data = ORDINARY[kind](tmp_path / "x.h5")
    found = _objects(data)
    with without_compiled_parser():
        expected = _objects(data)
    assert {address: _facts(item) for address, item in found.items()} == {
        address: _facts(item) for address, item in expected.items()
    }
    assert not difference_of_parsers(data)


@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_files_are_left_to_no_other(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing falls back in silence: one call for the file, and Python reads no header of an object."""
    data = ORDINARY[kind](tmp_path / "x.h5")
    assert len(data) < 256 << 10
    calls: list[list[Any]] = []
    compiled = metadata.read_objects  # type: ignore[union-attr]

    def counted(*given: Any) -> Any:
        calls.append(compiled(*given))
        return calls[-1]

    def refused(*_: Any) -> Any:
        raise AssertionError("an object was left to the Python parser")

    monkeypatch.setattr(metadata, "read_objects", counted)
    monkeypatch.setattr(object_header, "read_object_header", refused)
    describe_scan(data)
    (found,) = calls
    assert NOT_PLAIN not in {one[0] for one in found}


@pytest.mark.parametrize("kind", ORDINARY)
def test_beside_h5py(kind: str, tmp_path: Path) -> None:
    """Names, kinds, shapes and the places of data are those that h5py gives."""
    path = tmp_path / "x.h5"
    data = ORDINARY[kind](path)
    found = _compiled(data)
    by_address = {one[1]: one for one in found}
    objects = _objects(data)
    seen = 0
    with h5py.File(path) as file:
        base = file.userblock_size
        items: list[Any] = [file]
        file.visititems(lambda _, item: items.append(item))
        for item in items:
            address = h5py.h5o.get_info(item.id).addr
            kind_of = (
                DATASET if isinstance(item, h5py.Dataset) else GROUP if isinstance(item, h5py.Group) else NAMED_TYPE
            )
            one = by_address[address]
            assert one[0] == kind_of, item.name
            seen += 1
            if kind_of == GROUP:
                assert {link.name for link in one[2]} == set(item)
                hard = {link.name: link.address for link in one[2] if link.path is None}
                assert hard == {
                    name: h5py.h5o.get_info(item[name].id).addr
                    for name in item
                    if isinstance(item.get(name, getlink=True), h5py.HardLink)
                }
            if kind_of == DATASET:
                dataset = objects[address]
                assert isinstance(dataset, Dataset)
                assert dataset.space.shape == (item.shape or ())
                assert set(dataset.attributes) | set(dataset.problems) | {"DIMENSION_LIST", "REFERENCE_LIST"} >= set(
                    item.attrs
                )
                if item.chunks is None and item.shape is not None and item.id.get_offset() is not None:
                    assert one[3] == item.id.get_offset() - base
                if one[4] is not None:
                    offsets = compiled_metadata.to_columns(one[4], item.id.get_num_chunks())[0]
                    infos: list[Any] = []
                    item.id.chunk_iter(infos.append)
                    assert sorted(np.atleast_1d(offsets).tolist()) == sorted(info.byte_offset for info in infos)
    assert seen == len({address for address, one in by_address.items() if one[0] != _OTHER})


@pytest.mark.parametrize("path", parameters("hdf5"))
def test_files_of_others(path: Path) -> None:
    if path.stat().st_size > 4 << 20:
        pytest.skip("describing every cell of more than 4 MiB takes long; smaller files have all structures")
    assert not difference_of_parsers(path.read_bytes())


def test_what_is_not_plain_is_left_to_python(tmp_path: Path) -> None:
    """Object by object: what lies beside them is read in C."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["plain"] = np.arange(3)
        file["outside/link"] = h5py.ExternalLink("other.h5", "/x")
        file["outside/inside"] = np.arange(4)
        file["type"] = np.dtype([("a", "<i4")])
        file.create_dataset("typed", (3,), file["type"])
        file["data"] = np.array(["a", "bb"], h5py.string_dtype())
        file["large"] = np.arange(2)
        file["large"].attrs["large"] = np.zeros(9000)
        addresses = {name: h5py.h5o.get_info(file[name].id).addr for name in ("outside", "typed", "large")}
    data = path.read_bytes()
    left = {one[1] for one in _compiled(data) if one[0] == NOT_PLAIN}
    assert left == set(addresses.values())
    assert not difference_of_parsers(data)


def test_a_head_that_ends_early(tmp_path: Path) -> None:
    """Whatever lies behind the head is left to Python, which reads it."""
    data = _write_many_kinds(tmp_path / "x.h5", "earliest", True)
    whole = {address: _facts(item) for address, item in _objects(data).items()}
    for length in range(100, len(data), 997):
        file, window = _open(data)
        file.head = lambda length=length: data[:length]

        def walk(file: FileContext = file) -> Walk[ObjectTable]:
            superblock = yield from read_file_header(file)
            objects: ObjectTable = {}
            yield from read_objects(file, [superblock.root], objects, indexed=True, deep=True)
            return objects

        assert {address: _facts(item) for address, item in run(walk(), window).items()} == whole


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["netcdf", "old", "earliest-ordered", "latest-named"])
def test_damaged_files(kind: str, tmp_path: Path) -> None:
    whole = ORDINARY[kind](tmp_path / "x.h5")
    chance = random.Random(kind)
    refused = 0
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 8])):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        assert not difference_of_parsers(bytes(data))
        refused += isinstance(describe_scan(bytes(data)), tuple)
    assert refused


def _read(head: bytes, addresses: list[int], *, deep: bool = True, size: int | None = None) -> list[Any]:
    numbers = (len(head) if size is None else size, 0, 8, 8, *ROOMS)
    found: list[Any] = metadata.read_objects(head, numbers, addresses, [], True, deep, Link)  # type: ignore[union-attr]
    return found


def test_wrong_fields_are_not_followed(tmp_path: Path) -> None:
    """Every field that leads somewhere is checked, even where the checksum fits."""
    wholes = [bytearray(_write_netcdf(tmp_path / "x.nc")), bytearray(ORDINARY["latest-named"](tmp_path / "y.h5"))]
    chance = random.Random(1)
    places = {
        number: [at for at in range(len(whole)) if whole[at : at + 4] in (b"OHDR", b"BTHD", b"FRHP", b"FHIB", b"BTIN")]
        for number, whole in enumerate(wholes)
    }
    for _ in range(3000):
        number = chance.randrange(len(wholes))
        data = bytearray(wholes[number])
        start = chance.choice(places[number])
        length = {b"BTHD": 38, b"FRHP": 146}.get(bytes(data[start : start + 4]), chance.choice([60, 120, 512]))
        length = min(length, len(data) - start)
        at = start + chance.randrange(4, length - 4)
        data[at : at + 2] = chance.choice([b"\xff\xff", b"\0\0", b"\1\0", chance.randbytes(2)])
        fitting = metadata.lookup3(bytes(data[start : start + length - 4]))  # type: ignore[union-attr]
        data[start + length - 4 : start + length] = fitting.to_bytes(4, "little")
        head = bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        headers = [place for place in places[number] if wholes[number][place : place + 4] == b"OHDR"]
        assert len(_read(head, headers, size=len(data))) >= len(headers)


def _header(messages: list[tuple[int, bytes]]) -> bytes:
    """An object header of version 1."""
    body = b"".join(
        kind.to_bytes(2, "little") + len(data).to_bytes(2, "little") + bytes(4) + data for kind, data in messages
    )
    return b"\1\0" + len(messages).to_bytes(2, "little") + bytes(4) + len(body).to_bytes(4, "little") + bytes(4) + body


def _link(name: bytes, address: int) -> bytes:
    return b"\1\0" + bytes([len(name)]) + name + address.to_bytes(8, "little")


def test_links_in_a_circle() -> None:
    head = _header([(6, _link(b"a", 0)), (6, _link(b"b", 0)), (6, _link(b"c", 1 << 40))])
    found = _read(head, [0])
    assert [(one[0], one[1]) for one in found] == [(GROUP, 0), (NOT_PLAIN, 1 << 40)]
    assert [link.name for link in found[0][2]] == ["a", "b", "c"]
    assert len(_read(head, [0], deep=False)) == 1


def test_work_is_bounded() -> None:
    """Thousands of objects whose headers overlap: each alone is plain, and long."""
    size = 8 << 16 | 0x18  # read as a message: of type 0x18, with 8 bytes
    head = (b"\1\0\0\0\0\0\0\0" + size.to_bytes(4, "little") + bytes(4)) * 40_000
    addresses = [16 * number for number in range(4000)]
    assert all(one[0] == _OTHER for address in addresses[::400] for one in _read(head, [address], deep=False))
    found = _read(head, addresses, deep=False)
    assert [one[1] for one in found] == addresses
    read = sum(one[0] == _OTHER for one in found)
    assert {one[0] for one in found} == {_OTHER, NOT_PLAIN}
    assert read * size < 65 * len(head) + (1 << 20)


def test_order_of_links_and_attributes(tmp_path: Path) -> None:
    """By name as bytes, or by creation: what is the same keeps its place."""
    head = _header([(6, _link(name, 0)) for name in (b"b", "ä".encode(), b"Z", b"aa", b"a", b"\xff")])
    (found,) = _read(head, [0])
    assert [link.name for link in found[2]] == ["Z", "a", "aa", "b", "ä", "\udcff"]
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest", track_order=True) as file:
        names = [f"name {(17 * number) % 50}" for number in range(50)]
        for name in names:
            file.attrs[name] = 1
            file[name] = 1
    assert list(_objects(path.read_bytes())[48].attributes) == names  # type: ignore[union-attr]
    assert [link.name for link in _objects(path.read_bytes())[48].links] == names  # type: ignore[union-attr]


# ---- chunks, checksums, arguments ------------------------------------------------------------------------------------


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
    assert np.asarray(found[0]).tolist() == [64, 74, 84, 94, 104, 114]
    assert found[1] == 10
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


def test_filter_masks(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        dataset = file.create_dataset("d", (4,), "u1", chunks=(2,), compression="gzip")
        dataset.id.write_direct_chunk((0,), b"ab", filter_mask=1)
        dataset.id.write_direct_chunk((2,), b"cd", filter_mask=1)
    (one,) = (one for one in _compiled(path.read_bytes()) if one[0] == DATASET)
    offsets, lengths, masks = compiled_metadata.to_columns(one[4], 2)
    assert lengths == 2
    assert masks == 1
    assert [path.read_bytes()[at : at + 2] for at in np.asarray(offsets).tolist()] == [b"ab", b"cd"]
    assert not difference_of_parsers(path.read_bytes())


def test_checksum() -> None:
    chance = random.Random(0)
    for length in (*range(80), 1 << 16):
        data = chance.randbytes(length)
        assert metadata.lookup3(data) == jenkins_lookup3(data, 0)  # type: ignore[union-attr]


def test_none_is_counted() -> None:
    """One build serves every Python from 3.11 on, and there None has a count of references."""
    before = sys.getrefcount(None)
    head = _header([(6, _link(b"a", 0))])
    for _ in range(10_000):
        _read(head, [0])
        _read(b"", [0])
        metadata.full_leaf(b"", 0, 8, 0, 64, (1,), (1,))  # type: ignore[union-attr]
    assert abs(sys.getrefcount(None) - before) < 5_000


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({1: (9, 0, 8, 8, 8, 32)}, TypeError),
        ({1: (9, 0, 0, 8, *ROOMS)}, ValueError),
        ({1: (9, 0, 8, 9, *ROOMS)}, ValueError),
        ({1: (1 << 63, 0, 8, 8, *ROOMS)}, ValueError),
        ({1: (9, 1 << 64, 8, 8, *ROOMS)}, OverflowError),
        ({1: (9, 0, 8, 8, 1 << 40, 1, 1)}, ValueError),
        ({1: (2, 0, 8, 8, *ROOMS)}, ValueError),
        ({1: [9, 0, 8, 8, *ROOMS]}, ValueError),
        ({0: bytearray(9)}, TypeError),
        ({2: (0,)}, TypeError),
        ({2: ["x"]}, TypeError),
        ({2: [1 << 64]}, OverflowError),
        ({3: [-1]}, OverflowError),
        ({6: dict}, TypeError),
        ({6: 1}, TypeError),
    ],
)
def test_wrong_arguments(changes: dict[int, Any], problem: type[Exception]) -> None:
    given: list[Any] = [bytes(9), (9, 0, 8, 8, *ROOMS), [0], [], True, True, Link]
    metadata.read_objects(*given)  # type: ignore[union-attr]
    for position, value in changes.items():
        given[position] = value
    with pytest.raises(problem):
        metadata.read_objects(*given)  # type: ignore[union-attr]


def test_wrong_arguments_of_the_others() -> None:
    with pytest.raises(TypeError):
        metadata.read_objects(b"")  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="rank"):
        metadata.full_leaf(b"", 0, 8, 0, 64, (1,), (1, 1))  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="1 to 8 bytes"):
        metadata.full_leaf(b"", 0, 9, 0, 64, (1,), (1,))  # type: ignore[union-attr]
