"""xarray's tests of computing do get virtual arrays where they put in NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from conformance.virtual_numbers import to_virtual, virtual_numbers
from insitu.expressions.chunk_grid import stored_chunks
from insitu.lazy_array import LazyArray

PUT_IN = {
    "Variable": "xr.Variable(('x', 'y'), values)._data",
    "DataArray": "xr.DataArray(values).variable._data",
    "a coordinate": "xr.DataArray(values, coords={'c': (('dim_0', 'dim_1'), values)}).c.variable._data",
    "Dataset": "xr.Dataset({'a': (('x', 'y'), values)}).a.variable._data",
    "a list": "xr.Dataset({'a': (('x', 'y'), values.tolist())}).a.variable._data",
    "set": "(ds := xr.Dataset()).__setitem__('a', (('x', 'y'), values)) or ds.a.variable._data",
}


def put_in(how: str, values: np.ndarray, module: str) -> Any:
    return eval(PUT_IN[how], {"xr": xr, "values": values, "__name__": module})


@pytest.mark.parametrize("how", PUT_IN)
def test_numbers_of_tests_become_virtual(how: str) -> None:
    values = np.arange(15.0).reshape(5, 3)
    assert isinstance(put_in(how, values, "xarray.tests.test_any"), np.ndarray)
    with virtual_numbers():
        made = put_in(how, values, "xarray.tests.test_any")
        assert isinstance(put_in(how, values, "another.module"), np.ndarray)
    assert isinstance(made, LazyArray)
    np.testing.assert_array_equal(made, values)


@pytest.mark.parametrize("dtype", ["f4", ">i2", "?", "c16", "M8[ns]", "m8[s]"])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (0, 3), (4, 3, 2)])
def test_two_chunks_along_each_dimension(shape: tuple[int, ...], dtype: str) -> None:
    values = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
    made = to_virtual(values)
    assert made.dtype == values.dtype
    assert [len(cut) for cut in stored_chunks(made.node)] == [min(max(length, 1), 2) for length in shape]
    np.testing.assert_array_equal(np.asarray(made), values)
