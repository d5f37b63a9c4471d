"""Does a variable whose CF attributes have the wrong type leave the others alone, as in xarray?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr
from scipy.io import netcdf_file

import insitu
from insitu.errors import FormatError

VALUES = np.array([1, 2, 3, 4], "i2")


def _netcdf3(path: Path, attributes: dict[str, Any]) -> xarray.Dataset:
    with netcdf_file(path, "w") as file:
        file.createDimension("x", 4)
        for name in ("v", "other"):
            file.createVariable(name, "i2", ("x",))[:] = VALUES
        for key, value in attributes.items():
            setattr(file.variables["v"], key, value)
    return xarray.open_dataset(path, engine="scipy")


def _netcdf4(path: Path, attributes: dict[str, Any]) -> xarray.Dataset:
    with h5py.File(path, "w") as file:
        for name in ("v", "other"):
            file[name] = VALUES
        file["v"].attrs.update(attributes)
    return xarray.open_dataset(path, engine="h5netcdf", phony_dims="sort")


def _zarr(path: Path, attributes: dict[str, Any]) -> xarray.Dataset:
    group = zarr.open_group(path, mode="w", zarr_format=3)
    for name in ("v", "other"):
        group.create_array(name, data=VALUES, dimension_names=("x",))
    group["v"].attrs.update(attributes)
    return xarray.open_zarr(path, consolidated=False, chunks=None)


WRITERS: dict[str, Callable[[Path, dict[str, Any]], xarray.Dataset]] = {
    "netcdf3": _netcdf3,
    "netcdf4": _netcdf4,
    "zarr": _zarr,
}


@pytest.mark.parametrize("text", ["abc", "0.5", "nan", ""])
@pytest.mark.parametrize("key", ["scale_factor", "add_offset"])
@pytest.mark.parametrize("form", WRITERS)
def test_a_text_as_a_number_fails_when_the_variable_is_read(tmp_path: Path, form: str, key: str, text: str) -> None:
    path = tmp_path / f"a.{form}"
    with WRITERS[form](path, {key: text, "long_name": "wrong"}) as expected:
        np.testing.assert_array_equal(expected.other, VALUES)
        with pytest.raises((TypeError, ValueError)):
            expected.v.load()
    found = insitu.open_dataset(path)
    for _ in range(2):
        np.testing.assert_array_equal(found.other, VALUES)
        with pytest.raises(FormatError, match=rf"attribute {key} has the invalid value.*variable v.*mask_and_scale"):
            found.v.load()
        with pytest.raises(FormatError, match=key):
            found.v.max().load()
    assert (found.v.encoding[key], found.v.attrs) == (text, {"long_name": "wrong"})
    raw = insitu.open_dataset(path, mask_and_scale=False)
    np.testing.assert_array_equal(raw.v, VALUES)
    assert raw.v.attrs[key] == text


def test_times_are_needed_on_opening(tmp_path: Path) -> None:
    """As in xarray, which reads the first and the last."""
    attributes = {"scale_factor": "abc", "units": "days since 2000-01-01"}
    with pytest.raises((TypeError, ValueError)):
        _netcdf3(tmp_path / "a.nc", attributes)
    with pytest.raises(FormatError, match="scale_factor has the invalid value 'abc'"):
        insitu.open_dataset(tmp_path / "a.nc")


def test_many_files_and_saved_ones(tmp_path: Path) -> None:
    for number in range(2):
        _netcdf3(tmp_path / f"{number}.nc", {"scale_factor": "abc"}).close()
    files = [tmp_path / "0.nc", tmp_path / "1.nc"]
    many = insitu.open_mfdataset(files, combine="nested", concat_dim="x")
    many.insitu.save(tmp_path / "a.insitu")
    for found in (many, insitu.open_dataset(tmp_path / "a.insitu")):
        np.testing.assert_array_equal(found.other, np.tile(VALUES, 2))
        with pytest.raises(FormatError, match="scale_factor has the invalid value 'abc'"):
            found.v.load()
    np.testing.assert_array_equal(insitu.read(tmp_path / "a.insitu", "v", decode=False), np.tile(VALUES, 2))


@pytest.mark.parametrize("attributes", [{"missing_value": 2**70}, {"add_offset": 2**70}, {"scale_factor": True}])
def test_numbers_that_only_json_has(tmp_path: Path, attributes: dict[str, Any]) -> None:
    document = _write_json(tmp_path / "a.zarr", attributes)
    assert json.loads(document.read_text())["attributes"] == attributes
    with xarray.open_zarr(tmp_path / "a.zarr", consolidated=False, chunks=None) as expected:
        xarray.testing.assert_identical(insitu.open_dataset(tmp_path / "a.zarr").load(), expected.load())


def _write_json(path: Path, attributes: dict[str, Any]) -> Path:
    _zarr(path, {}).close()
    document = path / "v" / "zarr.json"
    document.write_text(json.dumps(json.loads(document.read_text()) | {"attributes": attributes}))
    return document
