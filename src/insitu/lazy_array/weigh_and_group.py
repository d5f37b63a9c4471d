"""Weighted and grouped statistics of virtual arrays and expressions, on a server or on this machine."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from insitu.active.reduce_array import group_array, weigh_array
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.reduce_boxes import ExpressionValues, engine_of, reduction_memory
from insitu.lazy_array.reduce_on_server import group_on_server, weigh_on_server
from insitu.reducing.grouped_statistics import Groups, group_values
from insitu.reducing.query import ReductionQuery
from insitu.reducing.weighted_statistics import Weights, weigh_values

__all__ = ["group_lazy_array", "weigh_lazy_array"]

Results = dict[str, npt.NDArray[Any]]
"""Arrays by statistic."""


def weigh_lazy_array(array: LazyArray, weights: Weights, query: ReductionQuery) -> Results:
    """Return weighted statistics of an array with its steps; see `weighted_statistics`."""
    if not array.steps:
        return weigh_array(array.array, weights, query, array.access.read_context, array.access.active)
    found = weigh_on_server(array, weights, query)
    return weigh_values(_in_boxes(array), weights, query) if found is None else found


def group_lazy_array(array: LazyArray, groups: Groups, query: ReductionQuery) -> Results:
    """Return statistics of the groups of an array with its steps; see `grouped_statistics`."""
    if not array.steps:
        return group_array(array.array, groups, query, array.access.read_context, array.access.active)
    found = group_on_server(array, groups, query)
    return group_values(_in_boxes(array), groups, query) if found is None else found


def _in_boxes(array: LazyArray) -> ExpressionValues:
    return ExpressionValues(array, reduction_memory(), engine_of(array))
