"""Texts of varying length that are missing: NaN, as xarray has it, however they were opened,
combined and saved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import UnsupportedError

TEXTS = {"a": ["ab", "cdef", "XXX"], "b": ["XXX", "q", ""], "c": ["", "longer text", "XXX"], "d": ["Ä", "XXX", "é"]}
MARKS: dict[str, dict[str, str]] = {
    "a": {"_FillValue": "XXX"},
    "b": {},
    "c": {"_FillValue": ""},
    "d": {"missing_value": "XXX"},
}
NESTED: dict[str, Any] = {
    "combine": "nested",
    "concat_dim": "t",
    "data_vars": "minimal",
    "compat": "override",
    "coords": "minimal",
}


def write(path: Path, name: str, unlimited: bool = True) -> str:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None if unlimited else 3)
        how = {} if unlimited else {"chunksizes": (3,)}
        x = file.createVariable("x", str, ("t",), fill_value=MARKS[name].get("_FillValue"), **how)
        for number, text in enumerate(TEXTS[name]):
            x[number] = text
        one = file.createVariable("one", str, (), fill_value=MARKS[name].get("_FillValue"))
        one[...] = TEXTS[name][-1]
        if "missing_value" in MARKS[name]:
            x.missing_value = one.missing_value = MARKS[name]["missing_value"]
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    return {name: write(tmp_path / f"{name}.nc", name) for name in TEXTS}


def opened(function: str, path: str, **how: Any) -> xr.Dataset:
    found = insitu.open_dataset(path, **how) if function == "virtual" else xr.open_dataset(path, engine="insitu", **how)
    return found.load()


def marks(dataset: xr.Dataset) -> dict[str, dict[str, Any]]:
    return {
        str(name): {key: v.encoding[key] for key in ("_FillValue", "missing_value", "dtype") if key in v.encoding}
        for name, v in dataset.variables.items()
    }


@pytest.mark.parametrize("function", ["virtual", "engine"])
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("mask", [True, False])
def test_one_file(files: dict[str, str], name: str, function: str, mask: bool) -> None:
    with xr.open_dataset(files[name], engine="netcdf4", mask_and_scale=mask) as expected:
        found = opened(function, files[name], mask_and_scale=mask)
        xr.testing.assert_identical(found, expected.load())
        assert {name: v.dtype for name, v in found.variables.items()} == {
            name: v.dtype for name, v in expected.variables.items()
        }
        assert marks(found) == marks(expected)


@pytest.mark.parametrize("function", ["virtual", "engine"])
def test_texts_of_fixed_length(tmp_path: Path, function: str) -> None:
    path = str(tmp_path / "fixed.h5")
    with h5py.File(path, "w") as file:
        for name, key, mark in (
            ("x", "_FillValue", "XXX"),
            ("y", "_FillValue", np.bytes_(b"XXX")),
            ("z", "missing_value", "c"),
        ):
            file.create_dataset(name, data=np.array([b"ab", b"XXX", b"c"], "S3")).attrs[key] = mark
        file.create_dataset("one", data=np.bytes_(b"XXX")).attrs["_FillValue"] = "XXX"
    with xr.open_dataset(path, engine="netcdf4") as expected:
        found = opened(function, path)
        xr.testing.assert_identical(found, expected.load())
        assert marks(found) == marks(expected)


@pytest.mark.parametrize("names", ["ab", "ba", "ac", "bd", "ad", "abcd"])
def test_combined(files: dict[str, str], names: str) -> None:
    paths = [files[name] for name in names]
    with xr.open_mfdataset(paths, engine="netcdf4", **NESTED) as expected:
        found = insitu.open_mfdataset(paths, **NESTED).load()
        xr.testing.assert_identical(found, expected.load())
        assert found.x.dtype == expected.x.dtype == object


@pytest.mark.parametrize("names", ["a", "ab", "bc", "abcd"])
def test_saved_as_insitu(files: dict[str, str], names: str, tmp_path: Path) -> None:
    dataset = insitu.open_mfdataset([files[name] for name in names], **NESTED)
    dataset.insitu.save(tmp_path / "s.insitu")
    xr.testing.assert_identical(insitu.open_dataset(tmp_path / "s.insitu").load(), dataset.load())


@pytest.mark.parametrize("suffix", ["json", "parq", "icechunk"])
@pytest.mark.parametrize("name", TEXTS)
def test_saved_as_references(files: dict[str, str], name: str, suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"s.{suffix}"
    dataset = insitu.open_dataset(files[name])
    dataset.insitu.save(target)
    expected = dataset.load()
    found = insitu.open_dataset(target).load()
    for variable in ("x", "one"):
        assert found[variable].values.tolist() == pytest.approx(expected[variable].values.tolist(), nan_ok=True)


@pytest.mark.parametrize("suffix", ["json", "parq", "icechunk"])
def test_references_refuse_files_that_mark_differently(tmp_path: Path, suffix: str) -> None:
    paths = [write(tmp_path / f"{name}.nc", name, unlimited=False) for name in "ab"]
    dataset = insitu.open_mfdataset(paths, **NESTED)
    with pytest.raises(UnsupportedError, match="x"):
        dataset.insitu.save(tmp_path / f"s.{suffix}")


def test_in_memory_with_every_candidate_taken(files: dict[str, str], tmp_path: Path) -> None:
    dataset = insitu.open_dataset(files["a"])
    values = np.array(["XXX", "", np.nan, "other"], object)
    dataset = dataset.assign(own=("u", values))
    dataset.own.encoding["_FillValue"] = "XXX"  # which is one of the texts
    dataset.insitu.save(tmp_path / "s.insitu")
    assert insitu.open_dataset(tmp_path / "s.insitu").own.values.tolist()[:2] == ["XXX", ""]
    xr.testing.assert_equal(insitu.open_dataset(tmp_path / "s.insitu").own.load(), dataset.own)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("saved", [False, True])
def test_seen_as_zarr(files: dict[str, str], tmp_path: Path, zarr_format: int, saved: bool) -> None:
    place = files["a"]
    if saved:
        place = str(tmp_path / "s.insitu")
        insitu.open_dataset(files["a"])[["x"]].insitu.save(place)
    store = insitu.zarr_store(place, zarr_format=zarr_format)
    with xr.open_dataset(store, engine="zarr", consolidated=False) as found:
        assert found.x.values.tolist() == ["ab", "cdef", pytest.approx(np.nan, nan_ok=True)]


def test_zarr_refuses_files_that_mark_differently(files: dict[str, str], tmp_path: Path) -> None:
    insitu.open_mfdataset([files["a"], files["b"]], **NESTED).insitu.save(tmp_path / "s.insitu")
    store = insitu.zarr_store(tmp_path / "s.insitu")
    store.get_sync("zarr.json")
    assert "mark missing texts differently" in store.tree.problems["x"]
