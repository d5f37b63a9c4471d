"""A variable that some files lack makes xarray merge; what all files have must stay virtual, and
equal to xarray's.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from insitu.lazy_array.duck_array import LazyArray
from insitu.xarray_bridge import open_mfdataset


def write(folder: Path, dtype: str) -> list[str]:
    """Six files of different lengths, one after another; the second and the fifth lack the height."""
    rng = np.random.default_rng(5)
    paths, begin = [], 0
    for number, length in enumerate((3, 5, 2, 4, 6, 3)):
        time = np.arange(begin, begin + length)
        begin += length
        values = rng.integers(-90, 90, (length, 4, 5)).astype(dtype)
        variables: dict[str, Any] = {"t": (("time", "y", "x"), values, {"units": "K"})}
        if number not in (1, 4):
            variables["height"] = (("y", "x"), np.arange(20.0).reshape(4, 5))
        encoding = {"t": {"zlib": bool(number % 2), "chunksizes": (1 + number % 2, 4, 5)}}
        path = str(folder / f"{number}.nc")
        xr.Dataset(variables, {"time": time}).to_netcdf(path, engine="netcdf4", encoding=encoding)
        paths.append(path)
    return paths


def merge_with_xarray(paths: list[str], **options: Any) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_mfdataset(paths, engine="netcdf4", **options) as dataset:
            return dataset.load()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64", "uint8"])
@pytest.mark.parametrize("join", ["outer", "left", "right", "inner"])
def test_what_all_files_have_stays_virtual(tmp_path: Path, dtype: str, join: str) -> None:
    paths = write(tmp_path, dtype)
    found = open_mfdataset(paths, join=join, compat="no_conflicts", data_vars="all")
    expected = merge_with_xarray(paths, join=join, compat="no_conflicts", data_vars="all")
    if found.t.size:
        assert isinstance(found.t.variable._data, LazyArray)
    assert found.t.dtype == expected.t.dtype
    xr.testing.assert_identical(found.load(), expected)


def test_pieces_of_it(tmp_path: Path) -> None:
    paths = write(tmp_path, "float32")
    found = open_mfdataset(paths, join="outer", compat="no_conflicts", data_vars="all")
    expected = merge_with_xarray(paths, join="outer", compat="no_conflicts", data_vars="all")
    for time in (slice(2, 9), slice(None, None, -3), [1, 22, 4, 4]):
        np.testing.assert_array_equal(found.t.isel(time=time, x=[4, 0]), expected.t.isel(time=time, x=[4, 0]))
    np.testing.assert_array_equal(found.t.max("time"), expected.t.max("time"))


def test_labels_that_two_parts_have_are_compared(tmp_path: Path) -> None:
    paths = [*write(tmp_path, "float64"), str(tmp_path / "again.nc")]
    with xr.open_dataset(paths[0], engine="netcdf4") as first:
        first[["t"]].isel(time=slice(0, 2)).to_netcdf(paths[-1], engine="netcdf4")
    options: dict[str, Any] = {"join": "outer", "compat": "no_conflicts", "data_vars": "all"}
    xr.testing.assert_identical(open_mfdataset(paths, **options).load(), merge_with_xarray(paths, **options))
    (first[["t"]].isel(time=slice(0, 2)) + 1).to_netcdf(paths[-1], engine="netcdf4", mode="w")
    with pytest.raises(ValueError, match="conflicting values for variable 't'"):
        open_mfdataset(paths, **options)
