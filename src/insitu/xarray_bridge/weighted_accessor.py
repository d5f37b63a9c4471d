"""Weighted statistics in one pass, here or next to the data: `ds.insitu.weighted`.

Plain xarray's `weighted(...)` asks for products instead: `lazy_array.einsum` recognises them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray

from insitu.active.answer import answer_folding
from insitu.reducing.query import ReductionQuery
from insitu.reducing.statistics import STATISTICS
from insitu.reducing.weighted_statistics import WeightedFolding, Weights
from insitu.xarray_bridge.template_dataset import (
    add_other_variables,
    call_method,
    fill_template,
    make_template,
    named_dims,
    reducible_lazy_array,
)

__all__ = ["Weighted"]


class Weighted:
    """Weighted reductions: those of xarray's `weighted`, with its arguments and its results."""

    def __init__(self, dataset: xarray.Dataset, weights: xarray.DataArray) -> None:
        self._dataset = dataset
        self._whole = dataset.weighted(weights)  # which checks them
        self._weights = weights

    def __repr__(self) -> str:
        return f"<insitu: {self._whole!r}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._methods():
            raise AttributeError(name)

        def reduce_weighted(dim: Any = None, **how: Any) -> xarray.Dataset:
            return self._reduce(name, dim, how)

        reduce_weighted.__doc__ = f"The weighted {name}; see `xarray.Dataset.weighted`."
        return reduce_weighted

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._methods()]

    def _methods(self) -> list[str]:
        """Return the names of the statistics that have a weighted form, in xarray too."""
        return STATISTICS.names(lambda statistic: statistic.weighted and hasattr(self._whole, str(statistic.xarray)))

    def _reduce(self, method: str, dim: Any, how: dict[str, Any]) -> xarray.Dataset:
        dataset, weights = self._dataset, self._weights
        dims = named_dims(dim, dataset.dims)
        same = all(d in dataset.dims and d in dims and _is_aligned(dataset, weights, d) for d in weights.dims)
        names = [
            name
            for name, variable in dataset.data_vars.items()
            if reducible_lazy_array(variable.variable) is not None and set(weights.dims) <= set(variable.dims)
        ]
        if not same or not names or not weights.dims or set(how) - {"skipna", "keep_attrs"}:
            found: xarray.Dataset = call_method(self._whole, method, dim, how)
            return found
        template = make_template(dataset, names)
        short = weights.isel({d: slice(0, 1) for d in weights.dims}).copy()
        short.data = np.ones(short.shape, weights.dtype)
        result = call_method(template.weighted(short), method, dim, how)
        values = {}
        for name in names:
            variable = dataset.variables[name]
            lazy = reducible_lazy_array(variable)
            assert lazy is not None
            axes = [variable.dims.index(d) for d in dims if d in variable.dims]
            factor: Weights = {tuple(variable.dims.index(d) for d in weights.dims): weights.values}
            query = ReductionQuery.of(method, axes, skipna=how.get("skipna"))
            fold = partial(WeightedFolding, query=query, weights=factor)
            taken = answer_folding(lazy.node, fold)[method]
            dims_left = [d for d in variable.dims if d not in dims]
            values[name] = taken.transpose([dims_left.index(d) for d in result[name].dims])
        made = fill_template(result, dataset, values)
        return add_other_variables(
            made, dataset, names, lambda rest: call_method(rest.weighted(weights), method, dim, how)
        )


def _is_aligned(dataset: xarray.Dataset, weights: xarray.DataArray, dim: Any) -> bool:
    if dim in weights.indexes and dim in dataset.indexes:
        return bool(weights.indexes[dim].equals(dataset.indexes[dim]))
    return bool(weights.sizes[dim] == dataset.sizes[dim])
