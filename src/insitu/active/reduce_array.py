"""Statistics of an array: by a server next to the data if one is given, else on this machine.

Plain (`reduce_array`), weighted (`weigh_array`) and grouped (`group_array`). All take the same
objects: what to compute (`ReductionQuery`), how to read (`ReadContext`), and the server.
"""

from __future__ import annotations

from dataclasses import replace

from insitu.active.client import Active
from insitu.active.piecewise import GroupedPieces, Results, WeightedPieces
from insitu.model import Selection, VirtualArray
from insitu.reading import ReadContext
from insitu.reducing.grouped_statistics import Groups, grouped_statistics
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce import compute_statistics
from insitu.reducing.weighted_statistics import Weights, weighted_statistics

__all__ = ["group_array", "reduce_array", "weigh_array"]


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
        As for `insitu.reducing.weighted_statistics.weighted_statistics`.
    active
        As for `reduce_array`.
    """
    if active is None:
        return weighted_statistics(array, weights, query, context)
    context = context or ReadContext()
    query = replace(query, selection=Selection.of(query.selection, array.shape))

    selected = array[query.selection]
    found = active.reduce_pieces(WeightedPieces(selected.shape, query, weights), selected, context)
    return weighted_statistics(array, weights, query, context) if found is None else found


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
        As for `insitu.reducing.grouped_statistics.grouped_statistics`.
    active
        As for `reduce_array`.
    """
    if active is None:
        return grouped_statistics(array, groups, query, context)
    context = context or ReadContext()
    query = replace(query, selection=Selection.of(query.selection, array.shape))

    selected = array[query.selection]
    found = active.reduce_pieces(GroupedPieces(selected.shape, selected.dtype, query, groups), selected, context)
    return grouped_statistics(array, groups, query, context) if found is None else found
