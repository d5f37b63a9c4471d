"""What is written of a combined dataset is what it held, whatever its files were packed with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.combining.merge_attributes import common_items


def test_a_packing_is_kept_whole_or_not_at_all() -> None:
    one = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9, "zlib": True}
    assert common_items([one, dict(one)]) == one
    assert common_items([one, {**one, "scale_factor": 0.25}]) == {"zlib": True}
    assert common_items([one, {"dtype": "i2", "_FillValue": -9, "zlib": True}]) == {"zlib": True}
    assert common_items([{"dtype": "i2"}, {"dtype": "i2", "add_offset": 1.0}]) == {}


@pytest.mark.parametrize("scales", [(0.5, 0.25), (0.5, 0.5)])
def test_to_netcdf_of_files_packed_differently(tmp_path: Path, scales: tuple[float, float]) -> None:
    for number, scale in enumerate(scales):
        made = xr.Dataset({"v": ("x", np.arange(4) * 0.75 + number)}, {"x": np.arange(4) + 4 * number})
        packing = {"dtype": "i2", "scale_factor": scale, "_FillValue": -9}
        made.to_netcdf(tmp_path / f"{number}.nc", engine="netcdf4", encoding={"v": packing})
    combined = insitu.open_mfdataset([tmp_path / "0.nc", tmp_path / "1.nc"])
    combined.to_netcdf(tmp_path / "all.nc", engine="netcdf4")
    with xr.open_dataset(tmp_path / "all.nc", engine="netcdf4") as written:
        np.testing.assert_array_equal(written.v.values, combined.v.values)
