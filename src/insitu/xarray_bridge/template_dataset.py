"""Template datasets: what a result of xarray looks like, found with a tiny copy of the dataset.

xarray's own code runs on a dataset with a length of 1 along most dimensions. Names, dimensions and
their order, coordinates, attributes and types of the result are then xarray's by construction. The
values are computed elsewhere and filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray

from insitu.lazy_array.duck_array import LazyArray
from insitu.model import normalise_axes
from insitu.reducing.reductions import Reduction, ReductionRules
from insitu.reducing.statistics import STATISTICS
from insitu.xarray_bridge.backend_array import duck_array

__all__ = [
    "add_other_variables",
    "call_method",
    "dims_of_variable",
    "fill_template",
    "make_template",
    "named_dims",
    "reducible_lazy_array",
]


def named_dims(dim: Any, every: Iterable[Hashable]) -> list[Hashable]:
    """Return the dimensions that an argument `dim` of xarray names; None and `...` name every one."""
    return list(every) if dim is None or dim is ... else [dim] if isinstance(dim, str) else list(dim)


def dims_of_variable(dim: Any, variable: xarray.Variable) -> list[Hashable]:
    """Return those of the named dimensions that a variable has."""
    return [name for name in named_dims(dim, variable.dims) if name in variable.dims]


def call_method(target: Any, method: str, dim: Any, how: Mapping[str, Any]) -> Any:
    """Return a statistic as xarray computes it, by its own method or, where it has none, by `reduce`.

    Parameters
    ----------
    target
        A variable, or a dataset with groups or weights.
    method
        Name of a statistic.
    dim, how
        The arguments of xarray's method.
    """
    statistic = STATISTICS.get(method)
    if statistic is None or statistic.xarray is not None:
        return getattr(target, method if statistic is None else str(statistic.xarray))(dim, **how)

    def reduce(values: Any, axis: int | tuple[int, ...] | None = None, **options: Any) -> npt.NDArray[Any]:
        array = np.asarray(values)
        axes = normalise_axes(axis, array.ndim)
        return Reduction((method,), array.dtype, ReductionRules(**options)).of_values(array, axes)[method].squeeze(axes)

    only_numbers = {} if isinstance(target, xarray.Variable) else {"numeric_only": True}
    return target.reduce(reduce, dim, **only_numbers, **how)


def reducible_lazy_array(variable: xarray.Variable, kinds: str = "biuf") -> LazyArray | None:
    """Return the virtual array or expression behind a variable, if it can be reduced piece by piece."""
    array = duck_array(variable)
    fits = array is not None and array.size and array.dtype.kind in kinds
    return array if fits else None


def make_template(
    dataset: xarray.Dataset, names: Collection[Hashable], full: Collection[Hashable] = ()
) -> xarray.Dataset:
    """Return a template of a dataset: some variables as zeros, and the coordinates.

    They have length 1 along all dimensions but those in `full`.
    """
    short = dataset[list(names)].isel({dim: slice(0, 1) for dim in dataset.dims if dim not in full})
    for name in names:
        variable = short.variables[name]
        variable.data = np.zeros(variable.shape, variable.dtype)
    return short


def fill_template(
    template: xarray.Dataset, dataset: xarray.Dataset, values: Mapping[Hashable, npt.NDArray[Any]]
) -> xarray.Dataset:
    """Return the result of a template with real values, and coordinates of full length.

    Parameters
    ----------
    template
        What xarray made.
    dataset
        What the template was made from.
    values
        For each data variable, in the order of the result's dimensions.
    """
    data = {}
    for name, variable in template.data_vars.items():
        found = values[name].astype(variable.dtype, copy=False)
        data[name] = (variable.dims, found, variable.attrs)
    lengths = {dim: length for dims, found, _ in data.values() for dim, length in zip(dims, found.shape, strict=True)}
    coords: dict[Hashable, Any] = {}
    for name, coord in template.coords.items():
        whole = all(template.sizes[dim] == lengths.get(dim, template.sizes[dim]) for dim in coord.dims)
        coords[name] = coord.variable if whole else dataset.coords[name].variable
    return xarray.Dataset(data, coords, template.attrs)


def add_other_variables(
    made: xarray.Dataset,
    dataset: xarray.Dataset,
    names: Collection[Hashable],
    compute: Callable[[xarray.Dataset], xarray.Dataset],
) -> xarray.Dataset:
    """Return the result for some variables of a dataset with that for the others.

    Parameters
    ----------
    made, names
        The result, and the variables that it is for.
    dataset
        What was reduced.
    compute
        Returns the result of xarray for the others.
    """
    rest = dataset.drop_vars(names)
    if not rest.data_vars:
        return made
    others = compute(rest)
    whole = made.assign({name: others[name] for name in rest.data_vars if name in others})  # not text
    whole = whole[[name for name in dataset.data_vars if name in whole]]
    whole.attrs = dict(made.attrs)
    return whole
