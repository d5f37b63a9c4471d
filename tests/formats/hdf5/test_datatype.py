"""Every datatype becomes the dtype that h5py gives.

Modules: formats/hdf5/structures/shared_messages.py
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu
from insitu.errors import FormatError, UnsupportedError
from insitu.formats import InsituWarning
from insitu.formats.hdf5.structures.datatype import parse_datatype

PLAIN = [f"{order}{kind}" for order in "<>" for kind in ("i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16")]
COMPOUND = np.dtype([("a", "<f4"), ("b", ">i2", (2, 3)), ("s", "S5"), ("n", [("x", "i1"), ("y", "<f8")])])


@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
def test_same_as_h5py(tmp_path: Path, scan, libver) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for name in PLAIN:
            file.create_dataset(name, (2,), name)
        file.create_dataset("bool", (2,), bool)
        file.create_dataset("fixed", (2,), "S7")
        file.create_dataset("compound", (2,), COMPOUND)
        file.create_dataset(
            "padded", (2,), np.dtype({"names": ["x"], "formats": ["i2"], "offsets": [3], "itemsize": 9})
        )
        file.create_dataset("opaque", (2,), "V6")
        file.create_dataset("long", (2,), np.longdouble)
    arrays = scan(path).arrays
    with h5py.File(path) as file:
        for name, dataset in file.items():
            assert arrays[name].dtype == dataset.dtype, name
            assert arrays[name].shape == dataset.shape


def test_enumerations_texts_sequences_and_references(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("enum", (2,), h5py.enum_dtype({"low": 1, "high": -3}, "i2"))
        file.create_dataset("text", (2,), h5py.string_dtype())
        file.create_dataset("ascii", (2,), h5py.string_dtype("ascii"), chunks=(1,), compression="gzip")
        file.create_dataset("sequence", (2,), h5py.vlen_dtype("<i4"))
        file.create_dataset("reference", (2,), h5py.ref_dtype)
        file.create_dataset("region", (2,), h5py.regionref_dtype)
        file.create_dataset("array", (2,), np.dtype(("f4", (3, 4))))
        times = np.array([0, 1], "M8[s]")
        file.create_dataset("time", data=times.astype(h5py.opaque_dtype(times.dtype)))
    arrays = scan(path).arrays
    assert (arrays["enum"].dtype, arrays["enum"].details.enumeration) == (np.int16, {"low": 1, "high": -3})
    codecs = {name: array.tiles[0].encodings[0].codecs for name, array in arrays.items()}
    assert codecs["text"][0].name == "hdf5_vlen"
    assert codecs["text"][0].configuration["kind"] == "string"
    assert [codec.name for codec in codecs["ascii"]] == ["hdf5_vlen", "zlib"]
    assert codecs["ascii"][0].configuration["charset"] == "ascii"
    assert codecs["sequence"][0].configuration["base"] == "<i4"
    assert (arrays["reference"].dtype, arrays["reference"].details.reference) == (np.dtype("V8"), "object")
    assert arrays["region"].details.reference == "region"
    assert (arrays["array"].shape, arrays["array"].dtype) == ((2, 3, 4), np.float32)
    assert arrays["time"].dtype == np.dtype("M8[s]")


def test_committed_types(tmp_path: Path, scan) -> None:
    for libver in ("earliest", "latest"):
        path = tmp_path / f"{libver}.h5"
        with h5py.File(path, "w", libver=libver) as file:
            file["type"] = COMPOUND
            file.create_dataset("x", (2,), dtype=file["type"])
            file["x"].attrs.create("a", np.zeros((), COMPOUND), dtype=file["type"])
        group = scan(path)
        assert list(group.arrays) == ["x"]
        assert group.arrays["x"].dtype == COMPOUND
        assert group.arrays["x"].attributes["a"].dtype.names == COMPOUND.names


def test_what_numpy_cannot_say_is_refused_by_name(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["good"] = np.arange(3)
        wide = h5py.h5t.STD_I64LE.copy()
        wide.set_size(16)
        wide.set_precision(128)
        h5py.h5d.create(file.id, b"wide", wide, h5py.h5s.create_simple((3,)))
        record = h5py.h5t.create(h5py.h5t.COMPOUND, 16)
        record.insert(b"x", 0, wide)
        h5py.h5d.create(file.id, b"record", record, h5py.h5s.create_simple((3,)))
    with pytest.raises(UnsupportedError, match="integers of 128 bits"):
        scan(path, variables=["wide"])
    with pytest.warns(InsituWarning) as caught:
        group = scan(path, errors="warn")
    assert list(group.arrays) == ["good"]
    assert set(group.problems) == {"wide", "record"}
    assert len(caught) == 2


@pytest.mark.parametrize("tag", ["NUMPY:01", "NUMPY:,", "NUMPY:2,<f4", "NUMPY:x", "NUMPY:<M8[s],<f4"])
def test_tags_that_name_no_type_of_numpy(tmp_path: Path, scan, tag: str) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        kind = h5py.h5t.create(h5py.h5t.OPAQUE, 8)
        kind.set_tag(tag.encode())
        h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((3,)))
    assert scan(path).arrays["x"].dtype == np.dtype("V8")


def test_times_are_seconds(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for name, kind in (("little", h5py.h5t.UNIX_D32LE), ("big", h5py.h5t.UNIX_D64BE)):
            dataset = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple((3,)))
            # The library converts no times, but takes them as they are.
            dtype = np.dtype("<i4" if name == "little" else ">i8")
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, -2, 10**9], dtype), kind)
    group = scan(path)
    assert group.arrays["big"].details.notes["time"] == "64 bits"
    for name in ("little", "big"):
        assert insitu.read(group, name, decode=False).tolist() == [1, -2, 10**9]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(8),
        bytes([0x1F]) + bytes(20),
        bytes([0x10, 0, 0, 0, 4, 0, 0, 0, 30, 0, 10, 0]),  # bits beyond the number
        bytes([0x16, 2, 0, 0, 4, 0, 0, 0]) + b"name without end",
        bytes([0x19, 0, 0, 0, 16, 0, 0, 0]) * 100,  # nested without end
    ],
)
def test_damaged_messages(body: bytes) -> None:
    with pytest.raises(FormatError):
        parse_datatype(body)
