"""Do the parts of files that are packed differently keep attributes that decode them, wherever they are written?

Modules: model/packing_attributes.py, model/time_units.py, scanning/stored_view.py, zarr_metadata/to_documents.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import UnsupportedError
from insitu.model import Packing, PackingKind
from insitu.model.packing_attributes import restore_packing_attributes

NUMBERS = np.array([[0.0, 1.0, 2.0], [3.0, np.nan, 5.0]])
DATES = np.array([["2000-01-01", "2000-01-03"], ["1999-12-31", "2000-02-01"]], "M8[ns]")
PACKINGS: dict[str, tuple[np.ndarray, dict[str, Any], dict[str, Any]]] = {
    "scale": (
        NUMBERS,
        {"dtype": "i2", "scale_factor": 0.5, "_FillValue": np.int16(-1)},
        {"dtype": "i2", "scale_factor": 0.25, "_FillValue": np.int16(-1)},
    ),
    "type of scale": (
        NUMBERS,
        {"dtype": "i2", "scale_factor": np.float32(0.5), "_FillValue": np.int16(-1)},
        {"dtype": "i2", "scale_factor": np.float32(0.25), "_FillValue": np.int16(-1)},
    ),
    "offset": (
        NUMBERS,
        {"dtype": "i2", "scale_factor": 0.5, "add_offset": 10.0, "_FillValue": np.int16(-99)},
        {"dtype": "i2", "scale_factor": 0.5, "_FillValue": np.int16(-99)},
    ),
    "none in the second": (
        NUMBERS,
        {"dtype": "i2", "scale_factor": 0.5, "_FillValue": np.int16(-1)},
        {"dtype": "f8", "_FillValue": None},
    ),
    "missing value": (NUMBERS, {"_FillValue": -1.0}, {"_FillValue": -2.0}),
    "two missing values": (
        NUMBERS,
        {"_FillValue": -1.0, "missing_value": -1.0},
        {"_FillValue": -1.0, "missing_value": -1.0},
    ),
    "sign": (
        NUMBERS,
        {"dtype": "i1", "_Unsigned": "true", "scale_factor": 0.5, "_FillValue": np.int8(-1)},
        {"dtype": "i1", "_Unsigned": "true", "scale_factor": 0.5, "_FillValue": np.int8(-2)},
    ),
    "unit of time": (DATES, {"units": "days since 2000-01-01", "dtype": "i4"}, {"units": "hours since 1999-01-01"}),
    "calendar": (
        DATES,
        {"units": "days since 1999-01-01", "calendar": "proleptic_gregorian", "dtype": "i4"},
        {"units": "days since 1998-01-01", "calendar": "standard", "dtype": "i4"},
    ),
}


def save(ds: xr.Dataset, target: Path) -> xr.Dataset:
    """Write a dataset in the way that a suffix says, and return it as another library shows it."""
    if target.suffix == ".json":
        ds.insitu.save(str(target))
        return xr.open_dataset(str(target), engine="kerchunk")
    ds.insitu.copy(target, chunks={"row": 1})
    return xr.open_zarr(target, chunks=None) if target.suffix == ".zarr" else xr.open_dataset(target, engine="netcdf4")


@pytest.mark.parametrize("name", PACKINGS)
def test_the_part_of_one_file(tmp_path: Path, name: str) -> None:
    values, *encodings = PACKINGS[name]
    for index, encoding in enumerate(encodings):
        file = xr.Dataset({"v": (("row", "x"), values, {"long_name": "v"})}, {"row": [2 * index, 2 * index + 1]})
        file.to_netcdf(tmp_path / f"{index}.nc", encoding={"v": encoding | {"chunksizes": (1, values.shape[1])}})
    whole = insitu.open_mfdataset(str(tmp_path / "?.nc"))
    for index in range(len(encodings)):
        rows = slice(2 * index, 2 * index + 2)
        expected = xr.open_dataset(tmp_path / f"{index}.nc")
        np.testing.assert_array_equal(whole.v.values[rows], expected.v.values)
        for suffix in (".json", ".zarr", ".nc"):
            part = save(whole.isel(row=rows), tmp_path / f"part{index}{suffix}")
            np.testing.assert_array_equal(part.v.values, expected.v.values)
            assert expected.v.attrs.items() <= part.v.attrs.items()


def test_reference_dates_of_other_calendars() -> None:
    packing = Packing(kind=PackingKind(dtype="|O", unit="days", epoch="days since 2000-02-30", calendar="360_day"))
    assert restore_packing_attributes({}, packing, np.dtype("i4")) == {
        "units": "days since 2000-02-30",
        "calendar": "360_day",
    }


def test_only_missing_values_that_are_not_named() -> None:
    packing = Packing(missing=(np.int16(-1), np.int16(-2), np.int16(-3)))
    stored = np.dtype("i2")
    found = restore_packing_attributes({"_FillValue": np.int16(-1)}, packing, stored)
    assert found.keys() == {"missing_value"}
    assert found["missing_value"].tolist() == [-2, -3]
    assert restore_packing_attributes({"missing_value": np.array([-1, -2, -3], "i2")}, packing, stored) == {}
    with pytest.raises(UnsupportedError, match="no attribute is left for -2, -3"):
        restore_packing_attributes({"missing_value": np.int16(-1)}, packing, stored)
