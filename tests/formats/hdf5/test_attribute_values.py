"""Attributes have the values that netCDF4 shows.

Modules: formats/hdf5/datasets/object_attributes.py, formats/hdf5/structures/attribute_messages.py,
formats/hdf5/structures/btree_v2.py, formats/hdf5/structures/fractal_heap.py,
formats/hdf5/structures/nested_values.py, formats/hdf5/structures/type_description.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import insitu
from insitu.errors import FormatError
from insitu.formats import InsituWarning


def _assert_same_value(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected), (actual, expected)
    np.testing.assert_array_equal(actual, expected)
    assert getattr(actual, "dtype", None) == getattr(expected, "dtype", None)


VALUES = {
    "int8": np.int8(3),
    "array": np.arange(3, dtype="i2"),
    "one": np.array([1.5]),
    "text": "été",
    "empty text": "",
    "texts": ["a", "bb", "ü", ""],
    "uint64": np.uint64(2**63),
    "float32": np.float32(1e20),
    "nothing": np.array([], "f4"),
}


@pytest.mark.parametrize("count", [1, 40], ids=["compact", "dense"])
def test_netcdf(tmp_path: Path, scan, count) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        variable = file.createVariable("v", "f4", ("x",))
        for target in (file, variable):
            for number in range(count):
                for name, value in VALUES.items():
                    target.setncattr(f"{name} {number}", value)
            target.setncattr_string("varying", "length")
    group = scan(path)
    with netCDF4.Dataset(path) as file:
        for actual, reference in ((group.attributes, file), (group.arrays["v"].attributes, file["v"])):
            assert list(actual) == reference.ncattrs()  # in the order of creation
            for name in reference.ncattrs():
                _assert_same_value(actual[name], reference.getncattr(name))


@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
@pytest.mark.parametrize("more", [0, 30])
def test_h5py(tmp_path: Path, scan, libver, more) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=libver) as file:
        dataset = file.create_dataset("x", (2,), "f4")
        attributes = dataset.attrs
        attributes["text"] = "é"
        attributes["texts"] = ["a", "b"]
        attributes["fixed"] = np.bytes_(b"abc")
        attributes["fixed array"] = np.array([b"ab", b"c"])
        attributes["big endian"] = np.arange(3, dtype=">i4")
        attributes["bool"] = True
        attributes["half"] = np.float16(0.5)
        attributes["large"] = np.arange(3000, dtype="f8")
        attributes["reference"] = dataset.ref
        for number in range(more):
            attributes[f"more {number}"] = number
    found = scan(path).arrays["x"].attributes
    assert found["text"] == "é"
    assert found["texts"] == ["a", "b"]
    assert found["fixed"] == "abc"
    assert found["fixed array"] == ["ab", "c"]
    assert found["big endian"].dtype == np.dtype("i4")
    assert found["bool"] == 1
    np.testing.assert_array_equal(found["large"], np.arange(3000.0))
    assert found["reference"] == "/x"
    assert len(found) == 9 + more
    with h5py.File(path) as file:
        for name in found.keys() - {"reference"}:
            value = file["x"].attrs[name]
            value = value.decode() if isinstance(value, bytes) else value
            assert np.array_equal(
                np.asarray(found[name]).astype("O"),
                np.asarray(value).astype("U" if np.asarray(value).dtype.kind in "SO" else "O").astype("O"),
            )


def test_hidden_ones_stay_hidden(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("y", 3)
        file.createDimension("x", 3)
        file.createVariable("x", "f4", ("x",)).units = "m"
        file.createVariable("y", "f4", ("y", "x")).units = "m"
        file.createVariable("c", "S1", ("x",), fill_value=b"-")
    group = scan(path)
    assert group.attributes == {}
    assert group.arrays["x"].attributes == {"units": "m"}
    assert group.arrays["y"].attributes == {"units": "m"}
    assert group.arrays["c"].attributes == {"_FillValue": b"-"}


def test_what_is_remembered_cannot_be_changed(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.attrs["numbers"] = np.arange(3)
        file.attrs["texts"] = np.array([b"a", b"b"])
    first = scan(path).attributes
    first["numbers"][0] = 99
    first["texts"].append("c")
    second = scan(path).attributes
    assert second["numbers"].tolist() == [0, 1, 2]
    assert second["texts"] == ["a", "b"]


def test_a_type_that_is_not_read_is_told(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    wide = h5py.h5t.STD_I64LE.copy()
    wide.set_size(16)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (1,), "f4")
        h5py.h5a.create(dataset.id, b"odd", wide, h5py.h5s.create(h5py.h5s.SCALAR))
    with pytest.warns(InsituWarning, match="attribute 'odd' of x: integers of"):
        array = scan(path).arrays["x"]
    assert "odd" not in array.attributes
    assert "integers of" in array.details.unread_attributes["odd"]


def test_attributes_that_are_left_out_are_named(tmp_path: Path) -> None:
    """In variables, groups and the file; by whichever way it is opened; other attributes are there."""
    path = tmp_path / "x.h5"
    wide = h5py.h5t.STD_I64LE.copy()
    wide.set_size(16)
    record = h5py.h5t.create(h5py.h5t.COMPOUND, 20)
    record.insert(b"n", 0, wide)
    record.insert(b"m", 16, h5py.h5t.STD_I32LE)
    scalar = h5py.h5s.create(h5py.h5s.SCALAR)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("g/x", data=np.arange(2.0))
        dataset.attrs["units"] = "m"
        for thing, name in ((dataset, b"one"), (file["g"], b"two"), (file, b"three")):
            h5py.h5a.create(thing.id, name, wide, scalar)
        h5py.h5a.create(dataset.id, b"record", record, scalar)
        h5py.h5a.create(dataset.id, b"nowhere", h5py.h5t.STD_REF_OBJ, h5py.h5s.create(h5py.h5s.NULL))
    for errors in ("raise", "warn"):
        with pytest.warns(InsituWarning) as caught:
            group = insitu.scan(path, errors=errors, decode=False)
        named = {str(warning.message).split(":")[1] for warning in caught}
        assert named == {
            " attribute 'one' of g/x", " attribute 'record' of g/x", " attribute 'nowhere' of g/x",
            " attribute 'two' of g", " attribute 'three' of the root",
        }  # fmt: skip
        assert group.array("g/x").attributes == {"units": "m"}
    for way in (insitu.open_dataset, insitu.open_mfdataset):
        with pytest.warns(InsituWarning) as caught:
            assert way(path, group="g").x.attrs == {"units": "m"}
        assert any("attribute 'one' of x" in str(warning.message) for warning in caught)


def test_values_of_varying_length_inside_of_others(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    text = h5py.string_dtype()
    record = np.dtype([("s", text), ("n", "i4")])
    several = np.dtype([("names", text, (2,)), ("v", h5py.vlen_dtype("f4"))])
    values = np.empty(2, several)
    values["names"] = [["a", "b"], ["c", "dd"]]
    values["v"][0], values["v"][1] = np.arange(3, dtype="f4"), np.arange(0, dtype="f4")
    nested = np.empty(2, object)
    nested[0], nested[1] = np.array(["x", "yz"], object), np.array([], object)
    with h5py.File(path, "w") as file:
        file.attrs.create("one", np.array(("a", 1), record), dtype=record)
        file.attrs.create("two", np.array([("a", 1), ("bcd", 2)], record), dtype=record)
        file.attrs.create("several", values, dtype=several)
        file.attrs.create("nested", nested, dtype=h5py.vlen_dtype(text))
    attributes = scan(path).attributes
    assert attributes["one"].tolist() == ("a", 1)
    assert attributes["two"].tolist() == [("a", 1), ("bcd", 2)]
    assert attributes["several"]["names"].tolist() == [["a", "b"], ["c", "dd"]]
    assert [part.tolist() for part in attributes["several"]["v"]] == [[0, 1, 2], []]
    assert [part.tolist() for part in attributes["nested"]] == [["x", "yz"], []]


def test_one_heap_object_used_again_and_again_is_damage(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.attrs.create("texts", ["a" * 30_000, *["b"] * 2000], dtype=h5py.string_dtype())
    data = path.read_bytes()
    first = data.index((30_000).to_bytes(4, "little"))
    path.write_bytes(data[:first] + data[first : first + 16] * 2001 + data[first + 16 * 2001 :])
    with pytest.raises(FormatError, match="again and again"):
        scan(path)


def test_a_name_ends_before_its_last_byte(tmp_path: Path, scan) -> None:
    """The library takes all but the last byte of a name, whatever that is: it should be a zero."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.attrs["name"] = 5
    data = path.read_bytes()
    path.write_bytes(data.replace(b"name\0", b"name\4"))
    with h5py.File(path) as file:
        assert list(file.attrs) == ["name"]
    assert dict(scan(path).attributes) == {"name": 5}
