"""Do scans and values of NetCDF-3 files made by others agree with netCDF4 (as xarray shows it) and
with scipy?
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import xarray
from equality import different_attributes, different_values

import insitu
from insitu.errors import InsituError
from real_files import parameters

FILES = parameters("netcdf3")

REFUSED = {"bad_cdf5_begin.nc": "overlaps variable"}  # netCDF refuses it too


@pytest.mark.parametrize("path", FILES)
def test_netcdf4_agrees(path: Path) -> None:
    if path.name in REFUSED:
        with pytest.raises(InsituError, match=REFUSED[path.name]):
            insitu.scan(path, decode=False)
        return
    group = insitu.scan(path, decode=False)
    with xarray.open_dataset(path, engine="netcdf4", decode_cf=False, cache=False) as oracle:
        assert group.arrays.keys() == oracle.variables.keys()
        assert not different_attributes(group.attributes, oracle.attrs, strict=True)
        assert set(group.unlimited) == oracle.encoding.get("unlimited_dims", set())
        for name, variable in oracle.variables.items():
            array = group.arrays[str(name)]
            assert (array.dims, array.shape) == (variable.dims, variable.shape)
            assert array.dtype.newbyteorder("=") == variable.dtype
            assert not different_attributes(array.attributes, variable.attrs, strict=True)
            assert not different_values(insitu.read(group, str(name), decode=False), variable.values)


@pytest.mark.parametrize("path", FILES)
def test_scipy_agrees(path: Path) -> None:
    if path.read_bytes()[3] == 5:
        pytest.skip("scipy takes CDF-5 for CDF-1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            oracle = scipy.io.netcdf_file(path, "r", mmap=False, maskandscale=False)
    except (ValueError, TypeError, KeyError, UnicodeDecodeError):
        pytest.skip("scipy does not read it")
    with oracle:
        group = insitu.scan(path, decode=False)
        for name, array in group.arrays.items():
            reference = oracle.variables.get(name)
            if reference is None or reference.data is None:
                continue
            expected = np.asarray(reference.data)
            if expected.size == array.size:
                assert not different_values(insitu.read(group, name, decode=False), expected.reshape(array.shape)), name
