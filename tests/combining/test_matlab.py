"""MATLAB files are shown as MATLAB shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu import references
from insitu.errors import UnsupportedError, VariableError
from insitu.formats import InsituWarning


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
    group = insitu.scan(path, decode=False)
    with h5py.File(path) as file:
        for name in ("matrix", "truth", "text"):
            np.testing.assert_array_equal(insitu.read(group, name, decode=False), file[name][...])
    assert group.arrays["words"].details.reference == "object"
    assert "#refs#" in group.groups


DENSE = np.array([[0, 1.5, 0, 0], [2, 0, 0, 3], [0, 0, 0, 4]])


def _sparse(file: h5py.File, name: str, dense: np.ndarray, kind: str) -> None:
    """A sparse matrix as MATLAB writes it: compressed columns; of a matrix of zeros, only the
    columns.
    """
    group = file.create_group(name)
    group.attrs["MATLAB_class"], group.attrs["MATLAB_sparse"] = np.bytes_(kind), np.uint64(dense.shape[0])
    columns, rows = np.nonzero(dense.T)
    group["jc"] = np.searchsorted(columns, np.arange(dense.shape[1] + 1)).astype("u8")
    if len(rows):
        group["data"], group["ir"] = dense.T[columns, rows], rows.astype("u8")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Sparse matrices, arrays of structs, objects."""
    path = tmp_path / "odd.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        _put(file, "matrix", np.arange(6.0).reshape(2, 3), "double")
        _sparse(file, "sparse", DENSE, "double")
        _sparse(file, "truth", (DENSE > 0).astype("u1"), "logical")
        _sparse(file, "zeros", np.zeros((5, 3)), "double")
        hidden = file.create_group("#refs#")
        names = [_text(hidden, name, word) for name, word in (("a", "ann"), ("b", "bob"))]
        ages = [_put(hidden, name, [[age]], "double") for name, age in (("c", 30.0), ("d", 40.0))]
        truths = [_put(hidden, name, np.array([[flag]], "u1"), "logical") for name, flag in (("e", 1), ("f", 0))]
        mixed = [ages[0], _put(hidden, "g", np.array([[1]], "i4"), "int32")]
        when = np.array([[0xDD000000, 2, 1, 1, 1, 1]], "u4")
        inner = _put(hidden, "h", when, "datetime", MATLAB_object_decode=np.int32(3))
        people = file.create_group("people")
        people.attrs["MATLAB_class"] = np.bytes_("struct")
        fields = {"name": names, "age": ages, "tall": truths, "mixed": mixed, "born": [ages[0], inner]}
        for name, elements in fields.items():
            field = people.create_dataset(name, (2, 1), h5py.ref_dtype)
            field[...] = np.array([[one.ref] for one in elements], object)
        _put(file, "when", when, "datetime", MATLAB_object_decode=np.int32(3))
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


@pytest.mark.parametrize(("name", "dense"), [("sparse", DENSE), ("truth", DENSE > 0), ("zeros", np.zeros((5, 3)))])
def test_sparse_matrices(odd: Path, name: str, dense: np.ndarray) -> None:
    matrix = insitu.open_dataset(odd, group=name)
    assert set(matrix.coords) == {"ir", "jc"}
    assert matrix["data"].dtype == dense.dtype
    assert matrix.attrs["sparse"] == "compressed columns"
    assert matrix.attrs["shape"].tolist() == list(dense.shape)
    made = np.zeros_like(dense)
    columns = np.repeat(np.arange(dense.shape[1]), np.diff(matrix["jc"].values.astype(int)))
    made[matrix["ir"].values.astype(int), columns] = matrix["data"].values
    np.testing.assert_array_equal(made, dense)


def test_what_is_not_whole_is_shown_as_it_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    with h5py.File(path, "w") as file:
        _sparse(file, "sparse", DENSE, "double")
        del file["sparse/ir"]
        file["sparse/ir"] = np.arange(3)
        _put(file, "empty", np.array([0, 1 << 62], "u8"), "double", MATLAB_empty=np.uint8(1))
        file.create_dataset("text", (0, 3), "u2").attrs["MATLAB_class"] = np.bytes_("char")
    dataset = insitu.open_dataset(path)
    assert dataset["empty"].shape == (0,)
    assert dataset["text"].item() == ""
    assert set(insitu.open_dataset(path, group="sparse").data_vars) == {"data", "ir", "jc"}


def test_arrays_of_structs(odd: Path) -> None:
    with pytest.warns(InsituWarning, match="born"):
        people = insitu.open_datatree(odd, group="people", errors="warn")
    assert people["name"].values.tolist() == [["ann", "bob"]]
    assert people["age"].values.tolist() == [[30.0, 40.0]]
    assert people["tall"].values.tolist() == [[True, False]]
    assert set(people.children) == {"mixed", "born"}
    assert people["mixed"]["1"].dtype == np.int32
    assert insitu.open_dataset(odd, group="people/mixed")["0"].item() == 30.0


def test_objects_are_refused_by_name(odd: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"'when' is a MATLAB object of class 'datetime'.*errors=\"warn\""):
        insitu.open_dataset(odd)
    with pytest.raises(UnsupportedError, match="datetime"):
        insitu.open_datatree(odd)
    with pytest.warns(InsituWarning, match="'when' is a MATLAB object of class 'datetime'"):
        assert set(insitu.open_dataset(odd, errors="warn").variables) == {"matrix"}
    assert set(insitu.open_dataset(odd, variables=["matrix"]).variables) == {"matrix"}
    assert set(insitu.open_dataset(odd, drop_variables="when").variables) == {"matrix"}
    assert insitu.read(odd, "when", decode=False).shape == (6, 1)


def test_groups_that_only_matlab_has(path: Path) -> None:
    assert insitu.open_dataset(path, group="mixed")["1"].values.tolist() == [[5.0]]
    with pytest.raises(VariableError, match="no group"):
        insitu.open_dataset(path, group="nowhere")


def test_a_saved_scan_means_what_the_file_means(path: Path, tmp_path: Path) -> None:
    references.save(insitu.scan(path), str(tmp_path / "x.insitu"))
    again = insitu.open_dataset(tmp_path / "x.insitu").load()
    xr.testing.assert_identical(again, insitu.open_dataset(path).load())
    assert insitu.open_dataset(tmp_path / "x.insitu", group="struct")["name"].item() == "inner"


def test_a_saved_dataset_is_not_turned_again(path: Path, tmp_path: Path) -> None:
    dataset = insitu.open_dataset(path)[["matrix", "truth"]]
    for name in ("x.insitu", "x.json"):
        dataset.insitu.save(tmp_path / name)
        xr.testing.assert_identical(insitu.open_dataset(tmp_path / name).load(), dataset.load())
