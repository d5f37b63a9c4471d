"""Does netCDF read the same from headers that no writer makes: gaps, wrong sizes, trailing bytes,
any mix of types?

The files are made here byte by byte, by the grammar of the specification, so that padding and
places are ours to choose.
"""

from __future__ import annotations

import math
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

import netCDF4
import numpy as np
import pytest

import insitu
from insitu.errors import FormatError
from insitu.reading import ReadStatistics

TYPES = {
    1: "i1", 2: "S1", 3: ">i2", 4: ">i4", 5: ">f4", 6: ">f8", 7: "u1", 8: ">u2", 9: ">u4", 10: ">i8", 11: ">u8",
}  # fmt: skip


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


@dataclass
class Made:
    """A variable to be written."""

    name: str
    dims: list[int]
    code: int
    record: bool
    nbytes: int
    attributes: bytes
    vsize: int
    begin: int = 0


@dataclass
class Writer:
    """A file of one version, and of numbers that chance chooses."""

    version: int
    chance: random.Random
    records: int = 3
    dims: list[tuple[str, int]] = field(default_factory=list)
    variables: list[Made] = field(default_factory=list)
    attributes: bytes = b""

    def count(self, number: int) -> bytes:
        return struct.pack(">q" if self.version == 5 else ">i", number)

    def name(self, text: str) -> bytes:
        return self.count(len(text.encode())) + _padded(text.encode())

    def listed(self, tag: int, parts: list[bytes]) -> bytes:
        return struct.pack(">i", tag if parts else 0) + self.count(len(parts)) + b"".join(parts)

    @property
    def types(self) -> list[int]:
        return list(TYPES) if self.version == 5 else [1, 2, 3, 4, 5, 6]

    def some_attributes(self) -> bytes:
        parts = []
        for number in range(self.chance.choice([0, 0, 1, 3])):
            code, many = self.chance.choice(self.types), self.chance.choice([0, 1, 1, 2, 3])
            values = (np.arange(many) + self.chance.randrange(97, 120)).astype("u1" if code == 2 else TYPES[code])
            parts.append(
                self.name(f"attribute {number}")
                + struct.pack(">i", code)
                + self.count(many)
                + _padded(values.tobytes())
            )
        return self.listed(12, parts)

    def add(self, name: str, dims: list[int], code: int) -> None:
        record = bool(dims) and self.dims[dims[0]][1] == 0
        inner = [self.dims[number][1] for number in (dims[1:] if record else dims)]
        nbytes = math.prod(inner) * np.dtype(TYPES[code]).itemsize
        vsize = len(_padded(bytes(nbytes)))
        if self.chance.random() < 0.1:
            vsize = self.chance.choice([0, 4, -1, 2**31 - 1])
        self.variables.append(Made(name, dims, code, record, nbytes, self.some_attributes(), vsize))

    def header(self) -> bytes:
        variables = [
            self.name(v.name) + self.count(len(v.dims)) + b"".join(map(self.count,
            v.dims)) + v.attributes + struct.pack(">i", v.code)
            + self.count(v.vsize) + struct.pack(">i" if self.version == 1 else ">q", v.begin)
            for v in self.variables
        ]  # fmt: skip
        return (
            b"CDF" + bytes([self.version]) + self.count(self.records)
            + self.listed(10, [self.name(name) + self.count(length) for name, length in self.dims])
            + self.attributes + self.listed(11, variables)
        )  # fmt: skip

    def file(self, gaps: bool = True) -> bytes:
        self.attributes = self.attributes or self.some_attributes()
        size = at = len(self.header())
        for variable in self.variables:
            if not variable.record:
                at += self.chance.choice([0, 0, 8]) if gaps else 0
                variable.begin = at
                at += len(_padded(bytes(variable.nbytes)))
        at += self.chance.choice([0, 0, 16]) if gaps else 0
        first, own = at, [variable for variable in self.variables if variable.record]
        for variable in own:
            variable.begin = at
            at += len(_padded(bytes(variable.nbytes)))
        stride = own[0].nbytes if len(own) == 1 else at - first
        rest = first - size + stride * self.records * bool(own) + (self.chance.choice([0, 0, 3, 8]) if gaps else 0)
        return self.header() + self.chance.randbytes(rest)


def _agrees(path: Path) -> None:
    group = insitu.scan(path, decode=False)
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        assert list(group.arrays) == list(file.variables)
        for actual, reference in [(group, file), *((group.arrays[name], file[name]) for name in file.variables)]:
            assert list(actual.attributes) == reference.ncattrs()
            for name in reference.ncattrs():
                expected, found = reference.getncattr(name), actual.attributes[name]
                assert type(found) is type(expected)
                np.testing.assert_array_equal(found, expected)
        for name, variable in file.variables.items():
            array = group.arrays[name]
            assert (array.dims, array.shape) == (variable.dimensions, variable.shape)
            found = insitu.read(group, name, decode=False)
            assert found.tobytes() == np.asarray(variable[...]).astype(found.dtype).tobytes()


@pytest.mark.parametrize("seed", range(120))
def test_netcdf_reads_the_same(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    writer = Writer(chance.choice([1, 2, 5]), chance, chance.choice([0, 1, 2, 7]))
    names = ["x", "größe", "y z", "a.b", "a+b", "海"]
    writer.dims = [(name, chance.randint(1, 5)) for name in chance.sample(names, chance.randint(0, 3))]
    if chance.random() < 0.8:
        writer.dims.insert(chance.randint(0, len(writer.dims)), ("time", 0))
    unlimited = [number for number, (_, length) in enumerate(writer.dims) if not length]
    fixed = [number for number, (_, length) in enumerate(writer.dims) if length]
    for number in range(chance.choice([0, 1, 1, 2, 3, 6])):
        dims = chance.sample(fixed, chance.randint(0, len(fixed)))
        lead = unlimited if chance.random() < 0.6 else []
        writer.add(f"é{number}", lead + dims, chance.choice(writer.types))
    (tmp_path / "a.nc").write_bytes(writer.file())
    _agrees(tmp_path / "a.nc")


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("inner", [1, 3])
@pytest.mark.parametrize("alone", [True, False])
def test_padding_of_records(tmp_path: Path, code: int, inner: int, alone: bool) -> None:
    """The records of a sole variable are not padded to four bytes, those of several are, whatever
    their type.
    """
    for version in (1, 2, 5) if code < 7 else (5,):
        writer = Writer(version, random.Random(code), 5, [("time", 0), ("x", inner)])
        writer.add("own", [0, 1], code)
        if not alone:
            writer.add("other", [0], 1)
        (tmp_path / "a.nc").write_bytes(writer.file(gaps=False))
        _agrees(tmp_path / "a.nc")


def _records(tmp_path: Path, declared: int, there: int) -> Path:
    writer = Writer(2, random.Random(0), there, [("time", 0), ("x", 4)])
    writer.add("a", [0, 1], 5)
    writer.add("b", [0], 3)
    data = bytearray(writer.file(gaps=False))
    data[4:8] = writer.count(declared)
    (tmp_path / "a.nc").write_bytes(data)
    return tmp_path / "a.nc"


def test_fewer_records_than_there_is_room_for(tmp_path: Path) -> None:
    """Those that the header counts: a writer may be at the next one."""
    path = _records(tmp_path, 3, 5)
    assert insitu.scan(path, decode=False).details.dims["time"] == 3
    _agrees(path)


def test_more_records_than_there_are(tmp_path: Path) -> None:
    """NetCDF makes up zeros; nothing here does."""
    path = _records(tmp_path, 9, 5)
    with netCDF4.Dataset(path) as file:
        assert file["b"][5:].tolist() == [0] * 4
    with pytest.raises(FormatError, match="counts too many records"):
        insitu.scan(path, decode=False)


def test_one_record_of_many_costs_a_block(tmp_path: Path) -> None:
    def fetched(inner: int) -> int:
        writer = Writer(2, random.Random(0), 3000, [("time", 0), ("x", inner)])
        writer.add("a", [0, 1], 5)
        writer.add("b", [0, 1], 5)
        (tmp_path / "a.nc").write_bytes(writer.file(gaps=False))
        tally = ReadStatistics()
        insitu.read(tmp_path / "a.nc", "a", np.s_[1500, :1], tally=tally, decode=False)
        return tally.bytes_fetched

    assert fetched(4) <= 64 << 10
    assert fetched(1024) == 4


def test_nothing_but_attributes(tmp_path: Path) -> None:
    for dims in ([], [("time", 0), ("x", 4)]):
        writer = Writer(1, random.Random(3), 0, dims)
        (tmp_path / "a.nc").write_bytes(writer.file())
        _agrees(tmp_path / "a.nc")
        group = insitu.scan(tmp_path / "a.nc", decode=False)
        assert group.details.dims == dict(dims)


@pytest.mark.parametrize("lead", [[0], []])
def test_variables_that_overlap_what_fills_another_up(tmp_path: Path, lead: list[int]) -> None:
    """Two bytes further, the data of the first would still end before the second begins."""
    writer = Writer(2, random.Random(0), 3, [("time", 0), ("x", 3)])
    writer.add("a", [*lead, 1], 3)
    writer.add("b", [*lead, 1], 3)
    path = tmp_path / "a.nc"
    path.write_bytes(writer.file(gaps=False))
    _agrees(path)
    data, begin = path.read_bytes(), struct.pack(">q", writer.variables[0].begin)
    assert data.count(begin) == 1
    path.write_bytes(data.replace(begin, struct.pack(">q", writer.variables[0].begin + 2)))
    with pytest.raises(OSError, match="Unknown file format"):
        netCDF4.Dataset(path)
    with pytest.raises(FormatError, match="variable 'b' overlaps variable 'a'"):
        insitu.scan(path, decode=False)
