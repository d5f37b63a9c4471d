"""Explanations of data arrays and datasets: what it takes to read or reduce them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import xarray

from insitu.lazy_array.explain import Explanation, explain
from insitu.model.description import format_bytes
from insitu.reducing.statistics import STATISTICS
from insitu.xarray_bridge.backend_array import find_lazy_array
from insitu.xarray_bridge.template_dataset import named_dims

__all__ = ["DatasetExplanation", "explain_dataset", "explain_tree", "explain_variable"]


@dataclass(frozen=True, slots=True)
class DatasetExplanation:
    """What it takes to read or reduce the virtual variables of a dataset, one after the other."""

    variables: Mapping[str, Explanation]

    @property
    def chunks(self) -> int:
        """Chunks that are fetched and decoded."""
        return sum(one.chunks for one in self.variables.values())

    @property
    def requests(self) -> int:
        """Requests that fetch them, about; of a local file, reads."""
        return sum(one.requests for one in self.variables.values())

    @property
    def bytes_fetched(self) -> int:
        """Their stored bytes."""
        return sum(one.bytes_fetched for one in self.variables.values())

    @property
    def bytes_decoded(self) -> int:
        """Their bytes once they are decoded, about."""
        return sum(one.bytes_decoded for one in self.variables.values())

    @property
    def memory(self) -> int:
        """Bytes that are held at a time, at most, about: all results, and what the most demanding variable needs."""
        results = [one.result_bytes for one in self.variables.values()]
        return sum(results) + max(
            (one.memory - result for one, result in zip(self.variables.values(), results, strict=True)), default=0
        )

    def __repr__(self) -> str:
        total = (
            f"{len(self.variables)} variables: {self.chunks:,} chunks, {format_bytes(self.bytes_fetched)} fetched in "
            f"{self.requests:,} requests, {format_bytes(self.bytes_decoded)} decoded, "
            f"about {format_bytes(self.memory)} of memory"
        )
        return "\n".join([*map(repr, self.variables.values()), total])


def explain_variable(array: xarray.DataArray, reduction: str | None, dim: Any) -> Explanation:
    """Return how the values of a data array, or a reduction of it, come about."""
    data = find_lazy_array(array.variable)
    if data is None:
        raise ValueError(
            "the values are in memory already, or a Dask array: there is nothing to explain. Of a reduction give "
            "what is reduced, and the name of the statistic: ds.insitu.explain(ds.tas, 'mean', 'time')"
        )
    _check_reduction(reduction, dim)
    return explain(data.node, reduction, [array.get_axis_num(name) for name in named_dims(dim, array.dims)])


def explain_dataset(dataset: xarray.Dataset, reduction: str | None, dim: Any) -> DatasetExplanation:
    """Return the same of all virtual variables; of a reduction, of those data variables that have its dimensions."""
    _check_reduction(reduction, dim)
    dims = set(named_dims(dim, ()))
    if missing := [name for name in dims if name not in dataset.dims]:
        raise ValueError(f"there is no dimension {missing[0]!r}: {', '.join(map(str, dataset.dims))}")
    names = dataset.variables if reduction is None else dataset.data_vars
    chosen = [name for name in names if dims <= set(dataset[name].dims)]
    virtual = [name for name in chosen if find_lazy_array(dataset.variables[name]) is not None]
    return DatasetExplanation({str(name): explain_variable(dataset[name], reduction, dim) for name in virtual})


def explain_tree(groups: Mapping[str, xarray.Dataset], reduction: str | None, dim: Any) -> DatasetExplanation:
    """Return the same of all groups by path; of a reduction, of those that have its dimensions."""
    _check_reduction(reduction, dim)
    dims = set(named_dims(dim, ()))
    there = {path: dataset for path, dataset in groups.items() if dims <= set(dataset.dims)}
    if not there:
        raise ValueError(f"no group has the dimensions {', '.join(sorted(map(str, dims)))}")
    found: dict[str, Explanation] = {}
    for path, dataset in there.items():
        explained = explain_dataset(dataset, reduction, dim).variables
        found |= {f"{path}/{name}".lstrip("/"): one for name, one in explained.items()}
    return DatasetExplanation(found)


def _check_reduction(reduction: str | None, dim: Any) -> None:
    if dim is not None and reduction is None:
        raise ValueError("dim= needs a reduction, as in ds.insitu.explain(ds.tas, 'mean', 'time')")
    known = STATISTICS.names(lambda statistic: statistic.is_plain and not statistic.is_sketch)
    if reduction is not None and reduction not in known:
        raise ValueError(f"there is no reduction {reduction!r}: {', '.join(sorted(known))}")
