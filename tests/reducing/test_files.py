"""The public functions, on files: the same as xarray gives for what netCDF4 reads."""

from __future__ import annotations

from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.reading import ReadContext, ReadStatistics
from insitu.reducing import ReductionQuery, compute_statistics


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reducing") / "file.nc"
    random = np.random.default_rng(3)
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", 30), ("y", 40), ("x", 50)):
            file.createDimension(name, length)
        values = random.normal(280, 10, (30, 40, 50)).astype("f4")
        values[random.random(values.shape) < 0.1] = np.nan
        how = {"zlib": True, "shuffle": True, "chunksizes": (7, 16, 20)}
        file.createVariable("chunked", "f4", ("time", "y", "x"), fill_value=np.float32(np.nan), **how)[:] = values
        file.createVariable("contiguous", "f8", ("time", "y", "x"), fill_value=False)[:] = values
        file.createVariable("half", "i2", ("time", "y", "x"), fill_value=np.int16(5), **how)[:10] = 3
        file.createVariable("scalar", "f4", ())[...] = 7
    return path


@pytest.mark.parametrize("name", ["chunked", "contiguous", "half", "scalar"])
def test_like_xarray(path: Path, name: str) -> None:
    array = insitu.scan(path, decode=False).arrays[name]
    with xr.open_dataset(path, mask_and_scale=False) as dataset:
        variable = dataset[name].variable.load()
    for axes in [None] if name == "scalar" else [None, 0, (1, 2), (2, 0)]:
        dims = None if axes is None else [variable.dims[axis] for axis in np.atleast_1d(axes)]
        found = compute_statistics(array, ReductionQuery.of(["mean", "min", "max", "count", "sum", "std"], axes))
        for method, value in found.items():
            expected = getattr(variable, method)(dims).values
            np.testing.assert_allclose(value, expected, rtol=1e-5, err_msg=method)
            assert value.dtype == expected.dtype


def test_a_selection(path: Path) -> None:
    array = insitu.scan(path, decode=False).arrays["chunked"]
    with xr.open_dataset(path, mask_and_scale=False) as dataset:
        values = dataset["chunked"].values[3, ::-2, 10:45]
    tally = ReadStatistics()
    query = ReductionQuery.of("max", 0, np.s_[3, ::-2, 10:45], keepdims=True)
    found = compute_statistics(array, query, ReadContext("chunked", tally=tally))["max"]
    np.testing.assert_array_equal(found, np.nanmax(values, 0, keepdims=True))
    assert 0 < tally.chunks <= 9
    both = compute_statistics(array, ReductionQuery.of(["median", "quantile"], selection=np.s_[3], q=0.5))
    np.testing.assert_allclose(both["median"], both["quantile"])
