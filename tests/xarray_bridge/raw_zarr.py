"""A Zarr group of raw chunks with arrays of several types and shapes, and virtual arrays of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from insitu.lazy_array import LazyArray

TYPES = ("f4", "i2", "?", "M8[ns]", "c8", "U3")
SHAPES = ((3, 4, 5), (4, 4), (4, 4, 4), (6,), (), (0, 3), (2, 1, 3))


def make_values(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return values with a gap, where the type has one."""
    numbers = np.arange(int(np.prod(shape))) * 7 % 23 - 5
    if dtype == "U3":
        return numbers.astype(dtype).reshape(shape)
    values = (numbers > 3 if dtype == "?" else numbers).astype(dtype)
    if values.size > 3 and values.dtype.kind in "fcM":
        values[3] = np.nan if values.dtype.kind != "M" else "NaT"
    return values.reshape(shape)


def write(path: Path) -> Path:
    """Write the group, with two chunks along each dimension."""
    variables, encoding = {}, {}
    for shape in filter(None, SHAPES):
        for dtype in TYPES:
            name = name_of(dtype, shape)
            variables[name] = [f"d{n}_{length}" for n, length in enumerate(shape)], make_values(dtype, shape)
            chunks = tuple(max(-(-length // 2), 1) for length in shape)
            encoding[name] = {"chunks": chunks, "compressors": None}
    xr.Dataset(variables).to_zarr(path, zarr_format=2, consolidated=False, encoding=encoding)
    return path


def name_of(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype[:2].replace('?', 'b')}_{'x'.join(map(str, shape))}"


def virtual(ds: xr.Dataset, dtype: str = "f4", shape: tuple[int, ...] = (3, 4, 5)) -> Any:
    """Return a virtual array with these values, of which none are kept yet."""
    found = ds[name_of(dtype, shape or (6,))].variable._data
    assert isinstance(found, LazyArray)
    assert found.dtype == make_values(dtype, shape).dtype
    fresh = LazyArray(found.array, found.context)
    return fresh if shape else fresh[0].copy()
