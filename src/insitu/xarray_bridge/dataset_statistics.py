"""Statistics of all numeric variables of a dataset: several at once, histograms, approximate quantiles (t-digest).

Each array is read once, in one pass over the chunks.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray

from insitu.errors import UnsupportedError
from insitu.lazy_array.numpy_reductions import can_stream, reduce_lazy_array
from insitu.reducing.query import ReductionQuery, squeeze_axes
from insitu.reducing.reductions import Reduction, ReductionRules
from insitu.reducing.sketches import check_edges
from insitu.reducing.statistics import STATISTICS
from insitu.xarray_bridge.backend_array import duck_array
from insitu.xarray_bridge.template_dataset import (
    call_method,
    dims_of_variable,
    fill_template,
    make_template,
    reducible_lazy_array,
)

__all__ = ["histogram", "quantile", "statistics"]

KINDS = "biuf"


def statistics(
    dataset: xarray.Dataset, methods: Sequence[str] | str, dim: Any, how: Mapping[str, Any]
) -> xarray.Dataset:
    """Return several statistics of each variable; see `InsituAccessor.stats`."""
    names = [methods] if isinstance(methods, str) else list(methods)
    if unknown := set(how) - {option for method in _plain_names() for option in STATISTICS[method].options}:
        raise TypeError(f"unexpected keyword argument(s): {', '.join(sorted(unknown))}")
    result: dict[str, Any] = {}
    for name, variable in dataset.data_vars.items():
        if variable.dtype.kind in KINDS:
            for method, values in _statistics_of(variable.variable, names, dim, how).items():
                result[f"{name}_{method}"] = values
    left = {str(d) for variable in result.values() for d in variable.dims}
    coords = {name: coord for name, coord in dataset.coords.items() if set(map(str, coord.dims)) <= left}
    return xarray.Dataset(result, coords=coords)


def _statistics_of(
    variable: xarray.Variable, methods: Sequence[str], dim: Any, how: Mapping[str, Any]
) -> dict[str, xarray.Variable]:
    dims = dims_of_variable(dim, variable)
    left = tuple(name for name in variable.dims if name not in dims)
    data = duck_array(variable)
    if data is not None and data.size and set(methods) <= set(_plain_names()):
        axes = tuple(variable.get_axis_num(name) for name in dims)
        if all(can_stream(data.dtype, method) for method in methods):
            found = reduce_lazy_array(data, ReductionQuery.of(methods, axes, **how))
            return {method: xarray.Variable(left, values) for method, values in found.items()}
    options = {method: STATISTICS[method].options if method in STATISTICS else () for method in methods}
    return {
        method: call_method(variable, method, dims, {name: how[name] for name in options[method] if name in how})
        for method in methods
    }


def _plain_names() -> list[str]:
    """Return the names of statistics that need no option, of one value for each element of the result."""
    return STATISTICS.names(lambda statistic: statistic.is_plain and statistic.required is None)


def histogram(dataset: xarray.Dataset, edges: Any, dim: Any = None, weights: Any = None) -> xarray.Dataset:
    """Return counts between edges; see `InsituAccessor.histogram`."""
    if weights is not None:
        raise UnsupportedError("histograms do not support weights", hint="Load the values and use numpy.histogram")
    borders = check_edges(edges)
    made = {}
    for name, variable in dataset.data_vars.items():
        if variable.dtype.kind in KINDS:
            dims = dims_of_variable(dim, variable.variable)
            found = _compute(variable.variable, "histogram", dims, ReductionRules(edges=borders))
            kept_dims = [d for d in variable.dims if d not in dims]
            made[name] = xarray.Variable([*kept_dims, "bin"], np.moveaxis(found, 0, -1))
    sides = np.array(borders)
    coords: dict[Hashable, Any] = {
        "bin": ("bin", (sides[:-1] + sides[1:]) / 2),
        "bin_left": ("bin", sides[:-1]),
        "bin_right": ("bin", sides[1:]),
    }
    there = {d for variable in made.values() for d in variable.dims}
    coords |= {name: coord for name, coord in dataset.coords.items() if set(coord.dims) <= there and name not in coords}
    return xarray.Dataset(made, coords)


def quantile(
    dataset: xarray.Dataset, q: Any, dim: Any = None, *, skipna: bool | None = None, keep_attrs: bool | None = None
) -> xarray.Dataset:
    """Return approximate quantiles by t-digests; see `InsituAccessor.quantile`."""
    names = [name for name, variable in dataset.data_vars.items() if variable.dtype.kind in KINDS]
    template = make_template(dataset, names)
    result = template.quantile(q, dim, skipna=skipna, keep_attrs=keep_attrs)
    values = {}
    for name in names:
        variable = dataset.variables[name]
        dims = dims_of_variable(dim, variable)
        if not dims and variable.dims:  # xarray leaves it as it is
            values[name] = np.asarray(variable.values)
            continue
        found = _compute(
            variable, "tdigest", dims, ReductionRules(skipna, q=np.asarray(q, np.float64) if np.ndim(q) else q)
        )
        order = [*(["quantile"] if np.ndim(q) else []), *(d for d in variable.dims if d not in dims)]
        values[name] = found.transpose([order.index(d) for d in result[name].dims])
    return fill_template(result, dataset, values)


def _compute(variable: xarray.Variable, method: str, dims: list[Hashable], rules: ReductionRules) -> npt.NDArray[Any]:
    axes = tuple(variable.dims.index(name) for name in dims)
    lazy = reducible_lazy_array(variable, KINDS)
    if lazy is not None:
        return reduce_lazy_array(lazy, ReductionQuery((method,), axes, rules=rules))[method]
    values = np.asarray(variable.values)
    reduction = Reduction((method,), values.dtype, rules)
    return squeeze_axes(reduction.of_values(values, axes)[method], axes, values.ndim)
