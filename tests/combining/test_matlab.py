"""Does a MATLAB file show what MATLAB shows?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu


def _put(group: h5py.Group, name: str, data: Any, kind: str, **attributes: Any) -> h5py.Dataset:
    """A variable as MATLAB writes it: axes reversed, with its class."""
    made = group.create_dataset(name, data=np.asarray(data).T)
    made.attrs["MATLAB_class"] = np.bytes_(kind)
    for key, value in attributes.items():
        made.attrs[key] = value
    return made


def _text(group: h5py.Group, name: str, *rows: str) -> h5py.Dataset:
    codes = np.array([[ord(letter) for letter in row] for row in rows], "u2")
    return _put(group, name, codes, "char", MATLAB_int_decode=np.int32(2))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        _put(file, "matrix", np.arange(6.0).reshape(2, 3), "double")
        _put(file, "truth", np.array([[1, 0, 1]], "u1"), "logical", MATLAB_int_decode=np.int32(1))
        _put(file, "complex", np.array([[(1.0, 2.0)]], [("real", "f8"), ("imag", "f8")]), "double")
        _text(file, "text", "naïve")
        _text(file, "rows", "abc", "def")
        _put(file, "none", np.array([0, 3], "u8"), "double", MATLAB_empty=np.uint8(1))
        _put(file, "no_text", np.array([0, 0], "u8"), "char", MATLAB_empty=np.uint8(1))
        hidden = file.create_group("#refs#")
        words = [_text(hidden, name, word) for name, word in (("a", "one"), ("b", "three"))]
        cell = file.create_dataset("words", (2, 1), h5py.ref_dtype)
        cell[...] = np.array([[one.ref] for one in words], object)
        cell.attrs["MATLAB_class"] = np.bytes_("cell")
        mixed = file.create_dataset("mixed", (2, 1), h5py.ref_dtype)
        number = _put(hidden, "c", np.array([[5.0]]), "double")
        mixed[...] = np.array([[words[0].ref], [number.ref]], object)
        mixed.attrs["MATLAB_class"] = np.bytes_("cell")
        struct = file.create_group("struct")
        struct.attrs["MATLAB_class"] = np.bytes_("struct")
        _text(struct, "name", "inner")
        _put(struct, "value", np.array([[7]], "i4"), "int32")
        loop = hidden.create_dataset("loop", (1, 1), h5py.ref_dtype)
        loop[...] = np.array([[loop.ref]], object)
        loop.attrs["MATLAB_class"] = np.bytes_("cell")
        itself = file.create_dataset("itself", (1, 1), h5py.ref_dtype)
        itself[...] = np.array([[loop.ref]], object)
        itself.attrs["MATLAB_class"] = np.bytes_("cell")
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


def test_what_matlab_shows(path: Path) -> None:
    dataset = insitu.open_dataset(path)
    np.testing.assert_array_equal(dataset["matrix"], np.arange(6.0).reshape(2, 3))
    assert dataset["truth"].dtype == bool
    assert dataset["truth"].values.tolist() == [[True, False, True]]
    assert dataset["complex"].values.tolist() == [[1 + 2j]]
    assert dataset["text"].item() == "naïve"
    assert dataset["rows"].values.tolist() == ["abc", "def"]
    assert dataset["none"].shape == (0, 3)
    assert dataset["no_text"].item() == ""
    assert dataset["words"].values.tolist() == [["one", "three"]]
    assert not any(name.startswith("MATLAB") for name in dataset["matrix"].attrs)


def test_groups(path: Path) -> None:
    tree = insitu.open_datatree(path)
    assert set(tree.children) == {"mixed", "struct", "itself"}
    assert tree["struct/name"].item() == "inner"
    assert tree["struct/value"].values.tolist() == [[7]]
    assert tree["mixed"]["0"].item() == "one"
    assert tree["mixed"]["1"].values.tolist() == [[5.0]]


def test_a_scan_shows_what_is_stored(path: Path) -> None:
    group = insitu.scan(path)
    with h5py.File(path) as file:
        for name in ("matrix", "truth", "text"):
            np.testing.assert_array_equal(insitu.read(group, name), file[name][...])
    assert group.arrays["words"].details["reference"] == "object"
    assert "#refs#" in group.groups
