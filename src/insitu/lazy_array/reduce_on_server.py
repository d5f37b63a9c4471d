"""Reductions of expressions by the servers next to the data: the tree travels, and the result comes back.

Pieces of an expression whose arrays lie at one server are reduced there, under the same credentials;
a piece that combines arrays of several servers by the one that has most of its bytes, if it can read
the others. If the servers cannot evaluate it, the caller computes it here, after a warning or, with
`active_required=True`, an error that names the expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from insitu.active.client import Active, reduce_remotely
from insitu.active.distribute import Distribution
from insitu.active.piecewise import GroupedPieces, PiecewiseReduction, Results, WeightedPieces
from insitu.active.remote_values import Leaf
from insitu.active.transport import ServerError
from insitu.active.wire_expression import expression_to_wire
from insitu.errors import InsituError, ModelError, SourceError, UnsupportedError
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.expression_nodes import expression_of
from insitu.lazy_array.formula_text import formula, stored_arrays
from insitu.lazy_array.reduce_boxes import ExpressionValues, reduction_memory
from insitu.lazy_array.structural_moves import SelectEach
from insitu.model import Selection, VirtualArray, normalise_axes
from insitu.model.selection import Stride
from insitu.reducing.foldable_values import Foldable
from insitu.reducing.grouped_statistics import Groups
from insitu.reducing.query import ReductionQuery
from insitu.reducing.weighted_statistics import Weights

__all__ = [
    "RemoteExpression",
    "group_on_server",
    "reason_to_compute_here",
    "reduce_on_server",
    "server_of",
    "weigh_on_server",
]

REFUSALS = (ServerError, SourceError, UnsupportedError, ModelError)
"""Errors of a server, or on the way to it, after which an expression is computed here."""


def server_of(array: DeferredValues) -> Active | None:
    """Return the servers of an array or expression: those of any of its stored arrays, best of one that
    requires them.
    """
    servers = [stored.access.active for stored in stored_arrays(array) if stored.access.active is not None]
    return next((server for server in servers if server.required), servers[0] if servers else None)


def reason_to_compute_here(array: DeferredValues) -> str | None:
    """Return why an expression cannot be sent to its servers; None if it can, or there is no server."""
    if server_of(array) is None:
        return None
    try:
        values = RemoteExpression(array)
        if not all(owner.servers for _, owner in Distribution(values).parts()):
            return "a part of it is next to no server"
        values.to_wire()
    except InsituError as problem:
        return str(problem)
    return None


def reduce_on_server(array: DeferredValues, query: ReductionQuery) -> Results | None:
    """Return statistics of an expression, computed next to the data.

    None if there is no server, or if it cannot: then a warning was issued.

    Parameters
    ----------
    array
        The expression.
    query
        Statistics of the whole array.
    """
    # Of a scalar, no axes are all of them.
    query = replace(query, axes=None) if not array.ndim else query
    return _with_fallback(
        array, lambda active: reduce_remotely(RemoteExpression(array), query, required=active.required)
    )


def weigh_on_server(array: DeferredValues, weights: Weights, query: ReductionQuery) -> Results | None:
    """Return weighted statistics of an expression, as `reduce_on_server`."""
    return _in_pieces(array, WeightedPieces(array.shape, _with_plain_axes(query, array.ndim), weights))


def group_on_server(array: DeferredValues, groups: Groups, query: ReductionQuery) -> Results | None:
    """Return statistics of the groups of an expression, as `reduce_on_server`."""
    return _in_pieces(array, GroupedPieces(array.shape, array.dtype, _with_plain_axes(query, array.ndim), groups))


def _with_plain_axes(query: ReductionQuery, ndim: int) -> ReductionQuery:
    return replace(query, axes=None if query.axes is None else normalise_axes(query.axes, ndim))


def _in_pieces(array: DeferredValues, whole: PiecewiseReduction) -> Results | None:
    return _with_fallback(array, lambda active: Distribution(RemoteExpression(array), active.required).reduce(whole))


def _with_fallback(array: DeferredValues, ask: Any) -> Results | None:
    active = server_of(array)
    if active is None:
        return None
    try:
        found: Results = ask(active)
        return found
    except REFUSALS as problem:
        name = formula(array)
        active.fall_back(problem.with_context(variable=name), name, *(leaf.array for leaf in stored_arrays(array)))
        return None


@dataclass(frozen=True, slots=True)
class RemoteExpression:
    """The values of an expression, for the servers of its arrays: see `RemoteValues`."""

    array: DeferredValues

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.array.dtype

    @property
    def name(self) -> str | None:
        """The formula."""
        return formula(self.array)

    @property
    def grid(self) -> VirtualArray:
        """The array of their shape whose chunks say where pieces end."""
        return self.array.array

    def leaves(self) -> Sequence[Leaf]:
        """Return the stored arrays, with their servers; not those that carry their values."""
        found = []
        for stored in stored_arrays(self.array):
            active, name = stored.access.active, stored.access.name or "an array"
            if active is None:
                known = server_of(self.array)
                other = "" if known is None else known.url
                raise UnsupportedError(
                    f"{name} is not read by the server {other}, which has the other arrays",
                    hint="Open all arrays of an expression with active=, or load() the small ones",
                )
            found.append(Leaf(stored.array, name, active.placements, active.token, stored.access.storage_options))
        return found

    def select(self, piece: Selection) -> RemoteExpression:
        """Return a piece of the values."""
        keys = tuple(
            slice(key.start, key.start + key.length) if isinstance(key, Stride) else key for key in piece.selectors
        )
        if all(key == slice(0, n) for key, n in zip(keys, self.shape, strict=True) if isinstance(key, slice)) and all(
            isinstance(key, slice) for key in keys
        ):
            return self
        return RemoteExpression(SelectEach(self.shape, keys).whole(self.array))

    def to_wire(self) -> dict[str, Any]:
        """Return the entry of a job that has the tree."""
        return {"expression": expression_to_wire(expression_of(self.array))}

    @contextmanager
    def open(self) -> Iterator[Foldable]:
        """Return the values for reducing them on this machine."""
        yield ExpressionValues(self.array, reduction_memory())
