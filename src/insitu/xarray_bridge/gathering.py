"""Expansion of CF's compression by gathering: data that are kept for points of a grid only (those on land, say).

A list variable holds the places of the points in the grid (CF 1.12, section 8.2): with the attribute
`compress = "lat lon"` the number 363 stands for row 363 // nlon and column 363 % nlon. Expanded, variables have the
dimensions of the grid, and missing values at other places. Only the list is read: places without a point are
absent, chunks stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray

from insitu.combining.align import take_elements
from insitu.errors import FormatError, SelectionError
from insitu.lazy_array.duck_array import LazyArray
from insitu.model import VirtualArray, concatenate
from insitu.scanning.member import Variable
from insitu.xarray_bridge.backend_array import find_lazy_array

__all__ = ["expand_gathered"]


def expand_gathered(dataset: xarray.Dataset, dim: str | None, sizes: Mapping[str, int] | None) -> xarray.Dataset:
    """Return a dataset with gathered dimensions expanded: see `ds.insitu.expand_gathered`."""
    lists = {
        str(name): str(variable.attrs["compress"]).split()
        for name, variable in dataset.variables.items()
        if isinstance(variable.attrs.get("compress"), str) and variable.ndim == 1
    }
    chosen = [name for name in lists if dim in (None, name, dataset.variables[name].dims[0])]
    if not chosen:
        raise SelectionError(
            "no variable has the attribute compress" if dim is None else f"nothing is gathered along {dim!r}",
            hint=f"Gathered are: {', '.join(lists)}" if lists else None,
        )
    for name in chosen:
        dataset = _expand(dataset, name, lists[name], sizes or {})
    return dataset


def _expand(dataset: xarray.Dataset, name: str, dims: list[str], given: Mapping[str, int]) -> xarray.Dataset:
    """Return a dataset with one gathered dimension expanded."""
    (gathered,) = dataset.variables[name].dims
    shape = [_length(dataset, own, given) for own in dims]
    index = _places(dataset, name, shape)
    made: dict[Hashable, xarray.Variable] = {
        key: _expand_variable(variable, variable.dims.index(gathered), index, dims, shape)
        for key, variable in dataset.variables.items()
        if gathered in variable.dims and key != name
    }
    coords = {key: variable for key, variable in made.items() if key in dataset.coords}
    # All data variables anew: so they keep their order.
    data = {key: made.get(key, dataset.variables[key]) for key in dataset.data_vars if key != name}
    return dataset.drop_vars([name, *coords, *data]).assign_coords(coords).assign(data)


def _length(dataset: xarray.Dataset, dim: str, given: Mapping[str, int]) -> int:
    """Return the length of a dimension of the grid."""
    if dim in given:
        return int(given[dim])
    if dim not in dataset.sizes:
        raise SelectionError(
            f"how long {dim!r} is, a dimension of the grid, no variable says", hint=f'Give sizes={{"{dim}": …}}'
        )
    label = dataset.variables.get(dim)
    before = None if label is None else label.encoding.get("original_shape")
    if before is not None and tuple(before) != label.shape:  # type: ignore[union-attr]
        raise SelectionError(f"{dim!r} was cut after opening", hint="Expand first, then select")
    return dataset.sizes[dim]


def _places(dataset: xarray.Dataset, name: str, shape: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return for each place of the grid the number of its point, -1 for none."""
    points = np.asarray(dataset.variables[name].values)
    index = np.full(math.prod(shape), -1, np.int64)
    whole = points.dtype.kind in "iu" or (points.dtype.kind == "f" and bool((points == np.floor(points)).all()))
    places = points.astype(np.int64) if whole else np.zeros(0, np.int64)
    if not whole or ((places < 0) | (places >= len(index))).any():
        raise FormatError(f"the list variable {name!r} has values that are no places in a grid of {tuple(shape)}")
    index[places] = np.arange(len(places))
    if (index >= 0).sum() != len(places):
        raise FormatError(f"the list variable {name!r} names a place twice")
    return index


def _expand_variable(
    variable: xarray.Variable, axis: int, index: npt.NDArray[np.int64], dims: Sequence[str], shape: Sequence[int]
) -> xarray.Variable:
    lazy = find_lazy_array(variable)
    data: Any = variable.data if lazy is None else lazy.array if lazy.is_stored else lazy
    own = tuple(map(str, variable.dims))
    flat = take_elements(Variable(own, data), axis, index).data
    new = (*own[:axis], *dims, *own[axis + 1 :])
    if isinstance(flat, VirtualArray):
        assert lazy is not None
        data = LazyArray(_split_dimension(flat, axis, dims, shape), lazy.context)
    else:
        data = flat.reshape((*flat.shape[:axis], *shape, *flat.shape[axis + 1 :]))
    encoding = {key: value for key, value in variable.encoding.items() if key in ("units", "calendar", "source")}
    return xarray.Variable(new, data, variable.attrs, encoding)


def _split_dimension(array: VirtualArray, axis: int, dims: Sequence[str], shape: Sequence[int]) -> VirtualArray:
    """Return an array one dimension of which is split into several, row by row."""
    if len(shape) == 1:
        return array
    length = shape[-1]
    rows = []
    for number in range(math.prod(shape[:-1])):
        span = slice(number * length, (number + 1) * length)
        rows.append(array[tuple(span if d == axis else slice(None) for d in range(array.ndim))])
    for at in range(len(shape) - 2, -1, -1):  # the innermost first
        count = shape[at]
        widened = [row.expand_dims(axis, dims[at]) for row in rows]
        rows = [concatenate(widened[first : first + count], axis) for first in range(0, len(widened), count)]
    (whole,) = rows
    return whole
