"""Statistics of an array: by a server next to the data if one is given, else on this machine.

Plain (`reduce_array`), weighted (`weigh_array`) and grouped (`group_array`). All take the same
objects: what to compute (`ReductionQuery`), how to read (`ReadContext`), and the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.client import Active, rules_to_wire
from insitu.active.wire import values_to_wire
from insitu.active.wire_array import array_to_wire
from insitu.model import Selection, VirtualArray
from insitu.reading import ReadContext
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce import compute_statistics
from insitu.reducing.weighted_and_grouped import Groups, Weights, grouped_statistics, weighted_statistics

__all__ = ["group_array", "reduce_array", "weigh_array"]

Results = dict[str, npt.NDArray[Any]]
"""Arrays by statistic."""


def reduce_array(
    array: VirtualArray, query: ReductionQuery, context: ReadContext | None = None, active: Active | None = None
) -> Results:
    """Return statistics of an array by name.

    Parameters
    ----------
    array, query, context
        As for `insitu.reducing.compute_statistics`.
    active
        The server next to the data. Without, or if it cannot, this machine computes.
    """
    return (compute_statistics if active is None else active.compute_statistics)(array, query, context)


def weigh_array(
    array: VirtualArray,
    weights: Weights,
    query: ReductionQuery,
    context: ReadContext | None = None,
    active: Active | None = None,
) -> Results:
    """Return weighted statistics, in float64.

    Parameters
    ----------
    array, weights, query, context
        As for `insitu.reducing.weighted_and_grouped.weighted_statistics`.
    active
        As for `reduce_array`.
    """
    if active is None:
        return weighted_statistics(array, weights, query, context)
    context = context or ReadContext()
    query = replace(query, selection=Selection.of(query.selection, array.shape))

    def job() -> dict[str, Any]:
        factors = {
            ",".join(map(str, [key] if isinstance(key, int) else key)): values_to_wire(np.asarray(numbers, np.float64))
            for key, numbers in weights.items()
        }
        return {**_job_to_wire(array, query), "weights": factors}

    return active.run_job(
        job, lambda: weighted_statistics(array, weights, query, context), array[query.selection], context
    )


def group_array(
    array: VirtualArray,
    groups: Groups,
    query: ReductionQuery,
    context: ReadContext | None = None,
    active: Active | None = None,
) -> Results:
    """Return statistics of each group along an axis, which stays, with one element per group.

    Parameters
    ----------
    array, groups, query, context
        As for `insitu.reducing.weighted_and_grouped.grouped_statistics`.
    active
        As for `reduce_array`.
    """
    if active is None:
        return grouped_statistics(array, groups, query, context)
    context = context or ReadContext()
    query = replace(query, selection=Selection.of(query.selection, array.shape))

    def job() -> dict[str, Any]:
        labels = {"axis": groups.axis, "codes": values_to_wire(groups.codes), "count": groups.count}
        return {**_job_to_wire(array, query), "groups": labels}

    return active.run_job(
        job, lambda: grouped_statistics(array, groups, query, context), array[query.selection], context
    )


def _job_to_wire(array: VirtualArray, query: ReductionQuery) -> Mapping[str, Any]:
    return {
        "array": array_to_wire(array[query.selection]),
        "methods": list(query.methods),
        "axes": None if query.axes is None else np.atleast_1d(query.axes).tolist(),
        **rules_to_wire(query.rules),
    }
