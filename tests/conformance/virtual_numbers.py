"""The numbers that xarray's tests put into its objects, as virtual arrays.

Within `virtual_numbers` every array of numbers, truth values or dates becomes a virtual array of
uncompressed chunks, two along each dimension, read with default options, when a module of xarray's
tests puts it into a `Variable`, a `DataArray` or a `Dataset`. What xarray itself makes of them
later is left alone.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import xarray as xr
import xarray.tests
from xarray.core import dataarray, variable

from insitu.lazy_array import LazyArray
from insitu.model import Axis, Columns, Encoding, Tile, VirtualArray
from insitu.reading import ReadContext
from insitu.reading.value_cache import Owner, default_value_cache
from insitu.sources.memory import MemorySource
from insitu.xarray_bridge.xarray_hooks import install_hooks

__all__ = ["to_virtual", "virtual_numbers"]

KINDS = "biufcmM"
WRITERS = ((xr.Variable, "__init__"), (xr.DataArray, "__init__"), (xr.Dataset, "__init__"), (xr.Dataset, "__setitem__"))
"""Where numbers enter xarray's objects."""


def to_virtual(values: np.ndarray) -> LazyArray:
    """Return the values as a virtual array of raw chunks, two along each dimension."""
    sizes = [max((length + 1) // 2, 1) for length in values.shape]
    axes = tuple(Axis.regular(length, size) for length, size in zip(values.shape, sizes))
    grid = tuple(axis.count for axis in axes)
    # The last chunk along a dimension is as long as the others, as in Zarr.
    padded = np.zeros([count * size for count, size in zip(grid, sizes)], values.dtype)
    padded[tuple(map(slice, values.shape))] = values
    cells = itertools.product(*(range(0, count * size, size) for count, size in zip(grid, sizes)))
    chunks = [padded[tuple(slice(at, at + size) for at, size in zip(cell, sizes))].tobytes() for cell in cells]
    source = MemorySource(b"".join(chunks))
    length = len(chunks[0]) if chunks else 0
    table = Columns.of_stored(grid, source.describe(), np.arange(len(chunks)).reshape(grid) * length, length)
    tile = Tile(axes, (Encoding(values.dtype),), table)
    cache, owner = default_value_cache(), Owner()
    context = ReadContext(name="values", cache=cache.chunks_of(owner), keep_alive=(source,), values=cache, owner=owner)
    return LazyArray(VirtualArray.of(tile, dims=[f"dim_{number}" for number in range(values.ndim)]), context)


@contextmanager
def virtual_numbers() -> Iterator[None]:
    """Let xarray's tests put virtual arrays where they put NumPy's."""
    install_hooks()
    depth = 0
    convert = variable.as_compatible_data

    def as_compatible_data(data: Any, fastpath: bool = False) -> Any:
        made = convert(data, fastpath=fastpath)
        return to_virtual(made) if depth and type(made) is np.ndarray and made.dtype.kind in KINDS else made

    def counted(method: Any) -> Any:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            entered = depth or sys._getframe(1).f_globals["__name__"].startswith("xarray.tests")
            depth += entered
            try:
                return method(*args, **kwargs)
            finally:
                depth -= entered

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module in (variable, dataarray):
            patch.setattr(module, "as_compatible_data", as_compatible_data)
        for owner, name in WRITERS:
            patch.setattr(owner, name, counted(getattr(owner, name)))
        # It asks NumPy's flags of an array whether its memory can be written to.
        patch.setattr(xarray.tests, "assert_writeable", lambda dataset: None, raising=False)
        yield
