"""Fill values of variable-length, compound and array types."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t

sys.path.insert(0, str(Path(__file__).parents[2] / "fixtures"))

from hdf5_property import fill_with

import insitu
from insitu.errors import ModelError
from insitu.model import Codec, Encoding, Inline, Stored

NUMBERS = np.array([1, 2, 3], "<i2")
TEXT = ctypes.create_string_buffer(b"never")


def _make(file: h5py.File, name: str, kind: Any, fill: bytes, *, deflate: bool = False) -> h5py.Dataset:
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk((2,))
    if deflate:
        plist.set_shuffle()
        plist.set_deflate(4)
    fill_with(plist, kind, np.frombuffer(fill, "u1").copy())
    h5d.create(file.id, name.encode(), kind, h5s.create_simple((5,)), dcpl=plist)
    return file[name]


def _record() -> tuple[Any, bytes]:
    """A text, a sequence and a number, as they lie in memory."""
    kind = h5t.create(h5t.COMPOUND, 28)
    kind.insert(b"text", 0, h5t.py_create(h5py.string_dtype(), logical=True))
    kind.insert(b"numbers", 8, h5t.vlen_create(h5t.STD_I16LE))
    kind.insert(b"one", 24, h5t.STD_I32LE)
    pointers = (ctypes.addressof(TEXT), len(NUMBERS), NUMBERS.ctypes.data)
    return kind, b"".join(number.to_bytes(8, "little") for number in pointers) + (7).to_bytes(4, "little")


def _plain(values: Any) -> list[Any]:
    return [
        (str(np.asarray(t).item() if not isinstance(t, bytes) else t.decode()), n.tolist(), int(o))
        for t, n, o in values
    ]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_values_of_varying_length_inside_of_others(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "x.h5"
    kind, fill = _record()
    with h5py.File(path, "w", libver=libver) as file:
        _make(file, "records", kind, fill, deflate=True)
        _make(file, "arrays", h5t.array_create(kind, (2,)), fill * 2)
    with h5py.File(path) as file:
        for name in ("records", "arrays"):
            expected = _plain(file[name][...].reshape(-1))
            assert _plain(insitu.read(path, name, decode=False).reshape(-1)) == expected
            assert expected[0] == ("never", [1, 2, 3], 7)


@pytest.mark.parametrize("deflate", [False, True])
def test_an_array_type_whose_elements_are_filled_each_with_its_own(tmp_path: Path, deflate: bool) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        kind = h5t.array_create(h5t.STD_I16BE, (3,))
        dataset = _make(file, "x", kind, np.array([5, 6, 7], ">i2").tobytes(), deflate=deflate)
        dataset[2:4] = [[1, 2, 3], [4, 5, 6]]
        expected = dataset[...]
    array = insitu.scan(path, decode=False).arrays["x"]
    np.testing.assert_array_equal(insitu.read(array, decode=False), expected)
    (tile,) = array.tiles
    assert [type(tile.chunks[cell, 0]) for cell in range(3)] == [Inline, Stored, Inline]


def test_texts_of_a_fill_value_end_where_they_say(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    text = h5t.C_S1.copy()
    text.set_size(4)
    text.set_strpad(h5t.STR_SPACEPAD)
    kind = h5t.create(h5t.COMPOUND, 5)
    kind.insert(b"text", 0, text)
    kind.insert(b"one", 4, h5t.STD_I8LE)
    with h5py.File(path, "w") as file:
        _make(file, "x", kind, b"ab  \x07")
    assert insitu.scan(path, decode=False).arrays["x"].fill_value["text"] == b"ab"


def test_a_fill_value_that_is_cut_off_is_told() -> None:
    description = {
        "kind": "record",
        "type": {"kind": "sequence", "base": {"kind": "plain", "dtype": "<i2"}, "dims": []},
    }
    encoding = Encoding(np.dtype(object), (Codec("hdf5_vlen", description),), fill=b"\xff\xff\xff\x7f\x01\x00")
    with pytest.raises(ModelError, match="truncated"):
        encoding.fill_value()
