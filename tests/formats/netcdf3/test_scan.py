"""Does a scan of NetCDF-3 files find every byte, whatever the version, the padding and the record
structure?

Modules: codecs/filters/struct_member.py
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import insitu
from damaged_bytes import count_refused, cut, flip_each, read_all
from insitu.errors import FormatError, VariableError
from insitu.model import Stored
from insitu.reading import ReadStatistics
from insitu.sources import CountingSource, MemorySource

FORMATS = {"NETCDF3_CLASSIC": 1, "NETCDF3_64BIT_OFFSET": 2, "NETCDF3_64BIT_DATA": 5}
CLASSIC = ["i1", "S1", "i2", "i4", "f4", "f8"]
WIDE = [*CLASSIC, "u1", "u2", "u4", "i8", "u8"]


def _values(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    if dtype == "S1":
        return np.frombuffer(bytes(97 + n % 26 for n in range(count)), "S1").reshape(shape)
    return (np.arange(count) % 120).astype(dtype).reshape(shape)


def _write(path: Path, format: str, records: int, variables: dict[str, tuple[str, tuple[str, ...]]]) -> None:
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.set_fill_off()
        for name, length in (("time", None), ("x", 5), ("y", 3)):
            file.createDimension(name, length)
        file.title = "a title"
        for name, (dtype, dims) in variables.items():
            file.createVariable(name, dtype, dims)
        file.sync()
        for name, (dtype, dims) in variables.items():
            shape = tuple({"time": records, "x": 5, "y": 3}[dim] for dim in dims)
            if 0 not in shape:
                file[name][...] = _values(dtype, shape)


def _agrees(path: Path) -> insitu.model.VirtualGroup:
    group = insitu.scan(str(path), decode=False)
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        assert list(group.arrays) == list(file.variables)
        for name, variable in file.variables.items():
            array = group.arrays[name]
            assert array.dims == variable.dimensions
            assert array.shape == variable.shape
            np.testing.assert_array_equal(insitu.read(group, name, decode=False), variable[...])
    return group


@pytest.mark.parametrize("format", FORMATS)
def test_every_type_fixed_and_record(tmp_path: Path, format: str) -> None:
    types = WIDE if format.endswith("DATA") else CLASSIC
    variables = {f"fixed_{t}": (t, ("y", "x")) for t in types} | {f"record_{t}": (t, ("time", "x")) for t in types}
    _write(tmp_path / "a.nc", format, 4, variables | {"scalar": ("f8", ()), "time": ("f8", ("time",))})
    group = _agrees(tmp_path / "a.nc")
    assert group.details.notes["version"] == FORMATS[format]
    assert group.unlimited == ("time",)
    assert group.attributes == {"title": "a title"}


_dims = st.sampled_from([(), ("x",), ("y", "x"), ("time",), ("time", "x"), ("time", "y", "x")])


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chosen=st.lists(st.tuples(st.sampled_from(WIDE), _dims), min_size=1, max_size=5),
    records=st.integers(0, 4),
    version=st.sampled_from(sorted(FORMATS)),
)
def test_any_mix_of_variables(
    tmp_path: Path, chosen: list[tuple[str, tuple[str, ...]]], records: int, version: str
) -> None:
    if not version.endswith("DATA"):
        chosen = [(dtype if dtype in CLASSIC else "i2", dims) for dtype, dims in chosen]
    _write(tmp_path / "a.nc", version, records, {f"v{n}": what for n, what in enumerate(chosen)})
    _agrees(tmp_path / "a.nc")


@pytest.mark.parametrize("dtype", ["i1", "S1", "i2", "f8"])
def test_a_sole_record_variable_is_not_padded(tmp_path: Path, dtype: str) -> None:
    _write(tmp_path / "a.nc", "NETCDF3_CLASSIC", 7, {"v": (dtype, ("time", "y"))})
    group = _agrees(tmp_path / "a.nc")
    assert group.arrays["v"].tiles[0].chunks.shape == (1, 1)  # nothing lies between its records: one run of bytes


def test_records_are_cells_by_arithmetic(tmp_path: Path) -> None:
    _write(tmp_path / "a.nc", "NETCDF3_CLASSIC", 6, {"a": ("i2", ("time", "y")), "b": ("f8", ("time", "x"))})
    array = insitu.scan(str(tmp_path / "a.nc"), decode=False).arrays["b"]
    cells = [array.tiles[0].chunks[n, 0] for n in range(6)]
    offsets = [cell.offset for cell in cells if isinstance(cell, Stored)]
    assert np.diff(offsets).tolist() == [8 + 40] * 5  # six bytes of `a`, padded to eight, and forty of `b`
    assert {cell.length for cell in cells if isinstance(cell, Stored)} == {40}


def test_a_slab_costs_its_own_bytes(tmp_path: Path) -> None:
    variables = {"a": ("f4", ("time", "y", "x")), "b": ("f8", ("time", "y", "x")), "c": ("f4", ("y", "x"))}
    _write(tmp_path / "a.nc", "NETCDF3_CLASSIC", 20, variables)
    group = insitu.scan(str(tmp_path / "a.nc"), decode=False)
    tally = ReadStatistics()
    insitu.read(group, "b", np.s_[3, 1], tally=tally, decode=False)
    assert tally.bytes_fetched == 5 * 8


@pytest.mark.parametrize("records", [1023, 1024, 5000])
def test_many_small_records_are_read_in_blocks(tmp_path: Path, records: int) -> None:
    variables = {
        "time": ("f8", ("time",)), "flag": ("i1", ("time",)), "v": ("f4", ("time", "x")), "n": ("i2", ("time", "y")),
    }  # fmt: skip
    _write(tmp_path / "a.nc", "NETCDF3_64BIT_OFFSET", records, variables)
    group = _agrees(tmp_path / "a.nc")
    cells = group.arrays["time"].tiles[0].chunks.shape[0]
    assert cells == records if records < 1024 else cells < 10
    expected = _values("f4", (records, 5))
    for selection in (np.s_[5], np.s_[::-7, 2:4], np.s_[-3:, ::2], np.s_[1000:1020]):
        np.testing.assert_array_equal(insitu.read(group, "v", selection, decode=False), expected[selection])


def test_a_last_record_without_padding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    for records in (3, 2000):
        _write(path, "NETCDF3_CLASSIC", records, {"a": ("f4", ("time",)), "b": ("i1", ("time",))})
        path.write_bytes(path.read_bytes()[:-3])
        np.testing.assert_array_equal(insitu.read(str(path), "b", decode=False), _values("i1", (records,)))
        np.testing.assert_array_equal(insitu.read(str(path), "a", decode=False), _values("f4", (records,)))


@pytest.mark.parametrize("format", FORMATS)
def test_a_stream_has_as_many_records_as_there_is_room_for(tmp_path: Path, format: str) -> None:
    path = tmp_path / "a.nc"
    _write(path, format, 6, {"a": ("f4", ("time",)), "b": ("i2", ("time", "y"))})
    data = bytearray(path.read_bytes())
    width = 8 if format.endswith("DATA") else 4
    data[4 : 4 + width] = b"\xff" * width
    path.write_bytes(data + bytes(5))  # and the beginning of a seventh
    group = insitu.scan(str(path), decode=False)
    assert group.details.dims["time"] == 6
    np.testing.assert_array_equal(insitu.read(group, "b", decode=False), _values("i2", (6, 3)))


def test_attributes_are_as_netcdf4_shows_them(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_64BIT_DATA") as file:
        file.text, file.empty, file.numbers = "grüße", "", np.array([1, 2, 3], "i2")
        file.createDimension("x", 2)
        variable = file.createVariable("v", "f4", ("x",), fill_value=-9)
        variable.scale_factor, variable.valid_range = np.float32(0.5), np.array([0.0, 9.0])
        variable.flags = np.array([1, 2**60], "u8")
        file.createVariable("c", "S1", ("x",), fill_value=b"z")
    group = insitu.scan(str(tmp_path / "a.nc"), decode=False)
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        for actual, reference in ((group, file), (group.arrays["v"], file["v"]), (group.arrays["c"], file["c"])):
            assert list(actual.attributes) == reference.ncattrs()
            for name in reference.ncattrs():
                expected, found = reference.getncattr(name), actual.attributes[name]
                assert type(found) is type(expected)
                np.testing.assert_array_equal(found, expected)
                assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)
    assert group.arrays["v"].fill_value == -9
    assert group.arrays["c"].fill_value == b"z"


def _name(count: str, name: str) -> bytes:
    return struct.pack(count, len(name)) + name.encode().ljust(-(-len(name) // 4) * 4, b"\0")


@pytest.mark.parametrize("version", [2, 5])
def test_files_larger_than_four_gibibytes(tmp_path: Path, version: int) -> None:
    """Sparse, and written by hand: offsets, and in CDF-5 lengths, that do not fit in 32 bits."""
    count = ">q" if version == 5 else ">i"
    big, begin = (2**31 if version == 5 else 2**28 + 1), 4096
    dims = [("time", 0), ("big", big), ("x", 1000)]
    end = begin + 2 * 8 * big
    variables = [
        ("a", [1], 6, begin), ("b", [1], 6, begin + 8 * big), ("r", [0, 2], 3, end), ("s", [0, 2], 3, end + 2000),
    ]  # fmt: skip
    header = b"CDF" + bytes([version]) + struct.pack(count, 6)
    header += b"\0\0\0\x0a" + struct.pack(count, len(dims))
    header += b"".join(_name(count, name) + struct.pack(count, length) for name, length in dims)
    header += bytes(4) + struct.pack(count, 0) + b"\0\0\0\x0b" + struct.pack(count, len(variables))
    for name, numbers, code, offset in variables:
        header += _name(count, name) + struct.pack(count, len(numbers))
        header += b"".join(struct.pack(count, number) for number in numbers)
        header += bytes(4) + struct.pack(count, 0) + struct.pack(">i", code) + struct.pack(count, 0)
        header += struct.pack(">q", offset)
    path = tmp_path / "large.nc"
    with path.open("wb") as file:
        file.write(header)
        file.seek(end - 24)
        file.write(np.array([1, 2, 3], ">f8").tobytes())
        file.seek(end + 5 * 4000 + 2000)
        file.write(np.arange(1000, dtype=">i2").tobytes())
    group = insitu.scan(str(path), decode=False)
    assert group.arrays["b"].nbytes == 8 * big
    assert insitu.read(group, "b", np.s_[-4:], decode=False).tolist() == [0, 1, 2, 3]
    assert insitu.read(group, "s", np.s_[5, -3:], decode=False).tolist() == [997, 998, 999]
    with netCDF4.Dataset(path) as reference:
        assert reference["b"][-3:].tolist() == [1, 2, 3]
        assert reference["s"][5, -3:].tolist() == [997, 998, 999]


def _many(path: Path, count: int) -> None:
    with scipy.io.netcdf_file(path, "w") as file:
        file.createDimension("x", 4)
        for number in range(count):
            variable = file.createVariable(f"variable_{number:05}", "f4", ("x",))
            variable.long_name = "what it is " * 20
            variable[:] = number


def test_a_long_header_takes_few_requests(tmp_path: Path) -> None:
    _many(tmp_path / "a.nc", 3000)
    counted = CountingSource(MemorySource((tmp_path / "a.nc").read_bytes()))
    group = insitu.scan(counted, decode=False)
    assert len(group.arrays) == 3000
    assert counted.batches <= 4
    assert insitu.read(str(tmp_path / "a.nc"), "variable_02999", decode=False).tolist() == [2999] * 4


def test_only_what_is_asked_for(tmp_path: Path) -> None:
    _write(
        tmp_path / "a.nc",
        "NETCDF3_CLASSIC",
        2,
        {"time": ("f8", ("time",)), "v": ("f4", ("time", "x")), "w": ("f4", ())},
    )
    assert list(insitu.scan(str(tmp_path / "a.nc"), variables=["v"], decode=False).arrays) == ["time", "v"]
    with pytest.raises(VariableError, match="time, v, w"):
        insitu.scan(str(tmp_path / "a.nc"), variables=["z"], decode=False)
    with pytest.raises(VariableError, match="no groups"):
        insitu.scan(str(tmp_path / "a.nc"), group="inner", decode=False)


def _sample(tmp_path: Path, format: str) -> bytes:
    variables = {
        "time": ("f8", ("time",)),
        "v": ("f4", ("time", "y", "x")),
        "w": ("i2", ("x",)),
        "c": ("S1", ("time", "x")),
    }
    _write(tmp_path / "sample.nc", format, 4, variables)
    return (tmp_path / "sample.nc").read_bytes()


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, format: str) -> None:
    data = _sample(tmp_path, format)
    padding = 3  # of the last character of the last record
    lengths = range(len(data) - padding)
    assert count_refused(cut(data, lengths), read_all) == len(lengths)


@pytest.mark.parametrize("format", FORMATS)
def test_flipped_bytes_do_no_harm(tmp_path: Path, format: str) -> None:
    data = _sample(tmp_path, format)
    assert count_refused(flip_each(data, range(len(data) - 4 * 100), (0x01, 0x80, 0xFF)), read_all)


def test_errors_say_where(tmp_path: Path) -> None:
    data = _sample(tmp_path, "NETCDF3_CLASSIC")
    with pytest.raises(FormatError, match="truncated within its header") as caught:
        insitu.scan(MemorySource(data[:10]), decode=False)
    assert caught.value.offset == 10
    with pytest.raises(FormatError, match="do not fit in the file"):
        insitu.scan(MemorySource(data[:12] + struct.pack(">I", 2**31) + data[16:]), decode=False)
    with pytest.warns(insitu.formats.InsituWarning, match="bytes of the variable are missing"):
        group = insitu.scan(MemorySource(data[:-40]), errors="warn", decode=False)
    assert {"w"} <= group.arrays.keys()
    assert group.problems.keys() | group.arrays.keys() == {"time", "v", "w", "c"}
