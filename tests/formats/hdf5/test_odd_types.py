"""Types without a NumPy equivalent read as in h5py.

Modules: formats/hdf5/codecs/fixed_text.py, formats/hdf5/codecs/odd_numbers.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from damaged_bytes import count_refused, flip_each, read_all, written_to


def assert_equal_values(actual: Any, wanted: Any) -> None:
    """Assert that values are the same, however deep; texts may be bytes."""
    if isinstance(wanted, bytes):
        wanted = wanted.decode()
    if isinstance(wanted, np.ndarray) and wanted.dtype.names is not None:
        for name in wanted.dtype.names:
            assert_equal_values(actual[name], wanted[name])
    elif isinstance(wanted, np.ndarray) and wanted.dtype == object:
        assert actual.shape == wanted.shape
        for one, other in zip(actual.reshape(-1), wanted.reshape(-1), strict=True):
            assert_equal_values(one, other)
    else:
        np.testing.assert_array_equal(actual, wanted)


def assert_reads_like_h5py(path: Path) -> None:
    group = insitu.scan(path, decode=False)
    with h5py.File(path) as file:
        for name, dataset in file.items():
            assert_equal_values(insitu.read(group, name, decode=False), dataset[...])


@pytest.mark.parametrize("options", [{}, {"chunks": (2,), "compression": "gzip", "shuffle": True}])
def test_varying_lengths_inside_of_others(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "x.h5"
    text, numbers = h5py.string_dtype(), h5py.vlen_dtype("<i4")
    deep = np.dtype([("name", text), ("n", "<i4"), ("fixed", "S5"), ("list", numbers), ("pair", text, (2,))])
    inner = np.dtype([("in", [("t", text), ("x", "<f8")]), ("y", "<u1")])
    with h5py.File(path, "w") as file:
        records = np.zeros(3, deep)
        for number in range(3):
            pair = ["p" * number, "é"]
            records[number] = (f"name {number}", number, b"abc", np.arange(number, dtype="<i4"), pair)
        file.create_dataset("records", data=records, dtype=deep, **options)
        nested = np.zeros(2, inner)
        nested[0] = (("first", 1.5), 2)
        nested[1] = (("", 2.5), 3)
        file.create_dataset("nested", data=nested, dtype=inner, **options)
        lists = file.create_dataset("lists", (3,), h5py.vlen_dtype(h5py.vlen_dtype("<i4")), **options)
        for number in range(3):
            rows = np.empty(number + 1, object)
            rows[:] = [np.arange(n, dtype="<i4") for n in range(number + 1)]
            lists[number] = rows
        points = np.dtype([("a", "<i2"), ("b", "<f4")])
        spots = file.create_dataset("spots", (2,), h5py.vlen_dtype(points), **options)
        spots[0] = np.array([(1, 2.5), (3, 4.5)], points)
        file.create_dataset("texts", (3,), np.dtype((text, (2,))), **options)[...] = [["a", "b"], ["", "c"], ["d", ""]]
    assert_reads_like_h5py(path)


def test_damaged_heaps_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.array([("text", 1)], [("s", h5py.string_dtype()), ("n", "<i4")])
    good = path.read_bytes()
    begin = good.index(b"GCOL")
    places = [*range(begin, begin + 40), *range(begin + 40, begin + 60, 3)]
    assert count_refused(flip_each(good, places, (0x81,)), written_to(path, read_all))


def test_never_written_records_are_empty(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    record = np.dtype([("s", h5py.string_dtype()), ("n", "<i4"), ("v", h5py.vlen_dtype("i2"))])
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (4,), record, chunks=(2,))
        file.create_dataset("sequences", (4,), h5py.vlen_dtype("i2"), chunks=(2,))[0] = [1, 2]
    values = insitu.read(path, "x", decode=False)
    assert values["s"].tolist() == [""] * 4
    assert values["n"].tolist() == [0] * 4
    assert [part.tolist() for part in values["v"]] == [[]] * 4
    assert [part.tolist() for part in insitu.read(path, "sequences", decode=False)] == [[1, 2], [], [], []]


def _integer(size: int, precision: int, offset: int, signed: bool, big: bool) -> h5py.h5t.TypeID:
    base = {(1, True): h5py.h5t.STD_I8LE, (2, True): h5py.h5t.STD_I16LE, (4, True): h5py.h5t.STD_I32LE}
    base |= {(2, False): h5py.h5t.STD_U16LE, (8, True): h5py.h5t.STD_I64LE}
    kind = base[size, signed].copy()
    kind.set_precision(precision)
    kind.set_offset(offset)
    kind.set_order(h5py.h5t.ORDER_BE if big else h5py.h5t.ORDER_LE)
    return kind


@pytest.mark.parametrize("case", [(2, 12, 0), (2, 12, 4), (4, 17, 0), (4, 9, 20), (8, 50, 3), (1, 3, 2)])
@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_integers_of_fewer_bits(tmp_path: Path, case: tuple[int, int, int], big: bool, packed: bool) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_chunk((5,))
        if packed:
            create.set_filter(h5py.h5z.FILTER_NBIT, 0)
        kind = _integer(*case, signed=True, big=big)
        dataset = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((12,)), create)
        half = 1 << (case[1] - 1)
        values = np.array([0, 1, -1, half - 1, -half, 2, -2, 3, -3, half // 2, -(half // 2), 0], np.int64)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values.clip(-half, half - 1))
    assert_reads_like_h5py(path)


@pytest.mark.parametrize(
    ("base", "size", "precision", "fields", "bias"),
    [
        (h5py.h5t.IEEE_F32BE, 4, 27, (26, 20, 6, 7, 13), 31),
        (h5py.h5t.IEEE_F32LE, 2, 16, (15, 7, 8, 0, 7), 127),  # bfloat16
        (h5py.h5t.IEEE_F32LE, 1, 8, (7, 3, 4, 0, 3), 7),
        (h5py.h5t.IEEE_F64LE, 8, 41, (40, 30, 10, 5, 25), 511),
    ],
)
def test_floats_of_other_bits(
    tmp_path: Path, base: h5py.h5t.TypeID, size: int, precision: int, fields: tuple[int, ...], bias: int
) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        kind = base.copy()
        kind.set_fields(*fields)
        kind.set_precision(precision)
        kind.set_size(size)
        kind.set_ebias(bias)
        dataset = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((9,)))
        values = np.array([0, 1, -1, 0.5, -2.25, 3.0, 6.5, np.inf, -np.inf], np.float64)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    assert_reads_like_h5py(path)


def test_references_are_bytes_with_a_name(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10)
        file["objects"] = np.array([file["x"].ref, file.ref], h5py.ref_dtype)
        regions = file.create_dataset("regions", (2,), h5py.regionref_dtype)
        regions[0] = file["x"].regionref[2:5]
        file["mixed"] = np.array([(file["x"].ref, 3)], [("r", h5py.ref_dtype), ("n", "<i4")])
        file["x"].attrs["r"] = file.ref
        address = h5py.h5o.get_info(file["x"].id).addr
    group = insitu.scan(path, decode=False)
    assert group.arrays["objects"].details.reference == "object"
    assert group.arrays["regions"].details.reference == "region"
    assert int.from_bytes(insitu.read(group, "objects", decode=False)[0].tobytes(), "little") == address
    assert insitu.read(group, "regions", decode=False).dtype.kind == "V"
    assert insitu.read(group, "mixed", decode=False)["n"].tolist() == [3]


def test_committed_types_and_several_scales(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    create = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    create.set_userblock(1024)
    create.set_sizes(4, 4)
    h5py.h5f.create(str(path).encode(), h5py.h5f.ACC_TRUNC, create).close()
    with h5py.File(path, "r+") as file:
        file["kind"] = np.dtype([("a", "<i2"), ("b", "<f8")])
        file.create_dataset("x", (3,), file["kind"], data=np.array([(1, 2.0)] * 3, file["kind"].dtype))
        file["first"], file["second"] = np.arange(3), np.arange(3.0)
        for name in ("first", "second"):
            file[name].make_scale(name)
            file["x"].dims[0].attach_scale(file[name])
        file.create_dataset("texts", data=["a", "bc"], chunks=(1,))
    group = insitu.scan(path, decode=False)
    assert "kind" not in group.arrays
    assert group.arrays["x"].dims == ("second",)
    with h5py.File(path) as file:
        for name in ("x", "first", "texts"):
            assert_equal_values(insitu.read(group, name, decode=False), file[name][...])


def _raw(file: h5py.File, name: str, kind: Any, data: bytes) -> None:
    """A dataset with these bytes."""
    count = len(data) // kind.get_size()
    made = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple((count,)))
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.frombuffer(data, f"V{kind.get_size()}").copy(), kind)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_the_byte_order_of_a_vax(tmp_path: Path, libver: str) -> None:
    """Words of two bytes, the highest first; what older versions of the message say of it, the
    library takes for big-endian.
    """
    path = tmp_path / "x.h5"
    data = np.random.default_rng(0).integers(0, 255, 64, "u1").tobytes()
    with h5py.File(path, "w", libver=libver) as file:
        for name, base in (("single", h5py.h5t.IEEE_F32LE), ("double", h5py.h5t.IEEE_F64LE)):
            kind = base.copy()
            kind.set_order(h5py.h5t.ORDER_VAX)
            _raw(file, name, kind, data)
    with h5py.File(path) as file:
        for name in ("single", "double"):
            expected = np.empty(len(data) // (4 if name == "single" else 8))
            dataset = h5py.h5d.open(file.id, name.encode())
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, expected, h5py.h5t.NATIVE_DOUBLE)
            np.testing.assert_array_equal(insitu.read(path, name, decode=False), expected)


def test_floats_that_only_a_long_double_can_hold(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    kind = h5py.h5t.IEEE_F64LE.copy()
    kind.set_ebias(500)
    with h5py.File(path, "w") as file:
        _raw(file, "x", kind, np.random.default_rng(0).integers(0, 255, 80, "u1").tobytes())
    assert_reads_like_h5py(path)
    assert insitu.scan(path, decode=False).arrays["x"].dtype == np.longdouble


def test_texts_padded_with_blanks_in_attributes_and_of_one_byte(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    kinds = {}
    for size in (1, 4):
        kinds[size] = h5py.h5t.C_S1.copy()
        kinds[size].set_size(size)
        kinds[size].set_strpad(h5py.h5t.STR_SPACEPAD)
    record = h5py.h5t.create(h5py.h5t.COMPOUND, 6)
    record.insert(b"text", 0, kinds[4])
    record.insert(b"letter", 5, kinds[1])
    with h5py.File(path, "w") as file:
        _raw(file, "x", kinds[1], b"a b ")
        attribute = h5py.h5a.create(file["x"].id, b"record", record, h5py.h5s.create_simple((1,)))
        attribute.write(np.array([b"ab   "[:5] + b" "], "V6"), mtype=record)
    assert_reads_like_h5py(path)
    value = insitu.scan(path, decode=False).arrays["x"].attributes["record"]
    assert (value["text"], value["letter"]) == (b"ab", b"")


def test_one_sequence_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (), h5py.vlen_dtype("<f4"))[()] = np.array([1.5, 2.5], "f4")
    assert insitu.read(path, "x", decode=False).item().tolist() == [1.5, 2.5]
