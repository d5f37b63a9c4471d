"""Grouped reductions in one pass: `ds.insitu.groupby`, `groupby_bins` and `resample`.

xarray reduces group after group, so a chunk that several groups share is decoded for each of them,
and a server is asked for each. Here xarray only decides which elements make which group and what
the result looks like, and every array is read once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray

from insitu.active.answer import answer_folding
from insitu.lazy_array.duck_array import LazyArray
from insitu.process_options import options
from insitu.reducing.grouped_statistics import GroupedFolding, Groups
from insitu.reducing.query import ReductionQuery
from insitu.reducing.statistics import STATISTICS
from insitu.xarray_bridge.template_dataset import (
    add_other_variables,
    call_method,
    fill_template,
    make_template,
    named_dims,
    reducible_lazy_array,
)

__all__ = ["Grouped"]

Grouping = Callable[[xarray.Dataset], Any]


class Grouped:
    """Reductions of groups: those of xarray's groupby, with its arguments and its results.

    Parameters
    ----------
    dataset
        What is grouped.
    grouping
        Groups a dataset as xarray does.
    """

    def __init__(self, dataset: xarray.Dataset, grouping: Grouping) -> None:
        self._dataset = dataset
        self._grouping = grouping
        self._whole = grouping(dataset)

    def __repr__(self) -> str:
        return f"<insitu: {self._whole!r}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in STATISTICS or not STATISTICS[name].groups:  # medians, quantiles, map: xarray's own
            return getattr(self._whole, name)

        def reduce_groups(dim: Any = None, **how: Any) -> xarray.Dataset:
            return self._reduce(name, dim, how)

        reduce_groups.__doc__ = f"The {name} of each group; see `xarray.Dataset.groupby`."
        return reduce_groups

    def __dir__(self) -> list[str]:
        return [
            *STATISTICS.names(lambda statistic: statistic.groups),
            *(name for name in dir(self._whole) if not name.startswith("_")),
        ]

    def _reduce(self, method: str, dim: Any, how: dict[str, Any]) -> xarray.Dataset:
        along = self._along()
        known = {*STATISTICS[method].options, "keep_attrs"}
        names = [
            name
            for name, variable in self._dataset.data_vars.items()
            if along in variable.dims and reducible_lazy_array(variable.variable) is not None
        ]
        dims = [along] if dim is None else named_dims(dim, self._dataset.dims)
        if along is None or not names or along not in dims or set(how) - known or self._has_crossing_coordinate(along):
            found: xarray.Dataset = call_method(self._whole, method, dim, how)
            return found
        template = make_template(self._dataset, names, [along])
        groups = self._grouping(template)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of the template's zeros
            result = call_method(groups, method, dim, how)
        first = self._first(template, along)
        values = {}
        for name in names:
            variable = self._dataset.variables[name]
            lazy = reducible_lazy_array(variable)
            assert lazy is not None
            values[name] = self._values(lazy, variable, result[name].variable, method, dims, first, along, how)
        made = fill_template(result, self._dataset, values)

        def reduce_others(rest: xarray.Dataset) -> xarray.Dataset:
            # xarray goes through these for every group, so what is not grouped at all is read once.
            read = rest.assign({n: v.load() for n, v in rest.data_vars.items() if v.nbytes <= options.block_bytes})
            others: xarray.Dataset = call_method(self._grouping(read), method, dim, how)
            return others

        return add_other_variables(made, self._dataset, names, reduce_others)

    def _along(self) -> Hashable | None:
        """Return the one dimension that is grouped; None if there is not one."""
        groups = self._whole.groups
        dims = {dim for grouper in self._whole.groupers for dim in grouper.group.dims}
        return next(iter(dims)) if len(dims) == 1 and groups and next(iter(dims)) in self._dataset.dims else None

    def _has_crossing_coordinate(self, along: Hashable) -> bool:
        """Return whether a coordinate lies along the grouped dimension and another."""
        return any(along in coord.dims and coord.ndim > 1 for coord in self._dataset.coords.values())

    def _first(self, template: xarray.Dataset, along: Hashable) -> xarray.DataArray:
        """Return for each element of the result the first element of its group.

        NaN where the group is empty.
        """
        numbers = xarray.Dataset({"_": (along, np.arange(template.sizes[along], dtype=np.float64))}, template.coords)
        found: xarray.DataArray = self._grouping(numbers).min()["_"]
        return found

    def _values(
        self,
        lazy: LazyArray,
        variable: xarray.Variable,
        shown: xarray.Variable,
        method: str,
        dims: list[Any],
        first: xarray.DataArray,
        along: Hashable,
        how: dict[str, Any],
    ) -> npt.NDArray[Any]:
        places = {int(number): place for place, number in enumerate(first.values.reshape(-1)) if number == number}
        codes = np.full(variable.sizes[along], -1, np.int64)
        for members in self._whole.groups.values():
            at = np.arange(len(codes))[members]
            if len(at):
                codes[at] = places[int(at.min())]
        axes = [variable.dims.index(name) for name in dims if name in variable.dims]
        axis = variable.dims.index(along)
        groups = Groups(axis, codes, first.size)
        rules = {name: value for name, value in how.items() if name != "keep_attrs"}
        query = ReductionQuery.of(method, axes, **rules)
        found = answer_folding(lazy.node, lambda values: GroupedFolding(values, query, groups))[method]
        dims_left = [name for name in variable.dims if name == along or name not in dims]
        found = np.moveaxis(found, dims_left.index(along), 0).reshape(
            *first.shape, *found.shape[: dims_left.index(along)], *found.shape[dims_left.index(along) + 1 :]
        )
        order = [*first.dims, *(name for name in dims_left if name != along)]
        turned = found.transpose([order.index(name) for name in shown.dims])
        empty = np.isnan(first.values)
        if not empty.any():
            return turned
        # A place without any element has what xarray puts there, as it put it into the template.
        lengths = dict(zip(order, found.shape, strict=True))
        repeated = np.broadcast_to(shown.values, [lengths[name] for name in shown.dims])
        hole = np.broadcast_to(empty.reshape(*empty.shape, *[1] * (len(order) - empty.ndim)), found.shape)
        return np.where(hole.transpose([order.index(name) for name in shown.dims]), repeated, turned)
