"""Reductions of expressions by a server next to the data: the tree travels, and the result comes back.

A server takes an expression if all its stored arrays were opened with that server, and with the same
credentials. A large one is sent in several requests, whose partial results are merged here. If the
server cannot evaluate it, the caller computes it here, after a warning or, with
`active_required=True`, an error that names the expression.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.client import (
    CONCURRENT_REQUESTS,
    REMOTE_METHODS,
    Active,
    Credentials,
    arrays_from_wire,
    credentials_for,
    rules_to_wire,
)
from insitu.active.request_pieces import chunk_borders, count_requests, cut_axis, merge_pieces
from insitu.active.transport import ServerError
from insitu.active.wire import values_to_wire
from insitu.active.wire_expression import expression_to_wire
from insitu.errors import InsituError, ModelError, SourceError, UnsupportedError
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.expression_nodes import expression_of
from insitu.lazy_array.formula_text import formula, stored_arrays
from insitu.lazy_array.structural_moves import SelectEach
from insitu.reducing.partial_fields import Partial
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce import UNCHANGED_WITHOUT_AXES, normalise_axes, squeeze_axes
from insitu.reducing.reductions import STREAMED, Reduction
from insitu.reducing.weighted_and_grouped import Groups, Weights
from insitu.sources.redaction import redact_url

__all__ = ["group_on_server", "reason_to_compute_here", "reduce_on_server", "server_of", "weigh_on_server"]

Results = dict[str, npt.NDArray[Any]]
REFUSALS = (ServerError, SourceError, UnsupportedError, ModelError)
"""Errors of a server, or on the way to it, after which an expression is computed here."""


def server_of(array: DeferredValues) -> Active | None:
    """Return the server of an array or expression: that of any of its stored arrays, best of one that
    requires it.
    """
    servers = [stored.access.active for stored in stored_arrays(array) if stored.access.active is not None]
    return next((server for server in servers if server.required), servers[0] if servers else None)


def reason_to_compute_here(array: DeferredValues) -> str | None:
    """Return why an expression cannot be sent to its server; None if it can, or there is no server."""
    active = server_of(array)
    if active is None:
        return None
    try:
        _check_arrays(active, array)
        expression_to_wire(expression_of(array))
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
    return _with_fallback(array, lambda active: _Request(active, array).statistics(query))


def weigh_on_server(array: DeferredValues, weights: Weights, query: ReductionQuery) -> Results | None:
    """Return weighted statistics of an expression, as `reduce_on_server`."""
    return _with_fallback(array, lambda active: _Request(active, array).weighted_statistics(weights, query))


def group_on_server(array: DeferredValues, groups: Groups, query: ReductionQuery) -> Results | None:
    """Return statistics of the groups of an expression, as `reduce_on_server`."""
    return _with_fallback(array, lambda active: _Request(active, array).grouped_statistics(groups, query))


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


def _check_arrays(active: Active, array: DeferredValues) -> Credentials:
    """Return the credentials for all arrays of an expression; an error if they are not for one server."""
    found: tuple[str, Credentials] | None = None
    for stored in stored_arrays(array):
        if not stored.array.sources:
            continue  # its values travel with it
        name = stored.access.name or "an array"
        if stored.access.active is None or (stored.access.active.url, stored.access.active.token) != (
            active.url,
            active.token,
        ):
            raise UnsupportedError(
                f"{name} is not read by the server {redact_url(active.url)}, which has the other arrays",
                hint="Open all arrays of an expression with the same active=, or load() the small ones",
            )
        credentials = credentials_for(stored.array, stored.access.storage_options)
        if found is not None and found[1] != credentials:
            raise UnsupportedError(
                f"{found[0]} and {name} need different storage options, and a request to a server has one",
                hint="load() one of them first",
            )
        found = name, credentials
    return ({}, None) if found is None else found[1]


@dataclass(frozen=True, slots=True)
class _Request:
    """An expression on its way to a server."""

    active: Active
    array: DeferredValues

    def statistics(self, query: ReductionQuery) -> Results:
        """Return statistics: of one request, or merged from several."""
        array, along = self.array, normalise_axes(query.axes, self.array.ndim)
        if not along and array.ndim and any(method in UNCHANGED_WITHOUT_AXES for method in query.methods):
            raise UnsupportedError("a reduction along no axis is not sent to a server: the values are read")
        unknown = [method for method in query.methods if method not in REMOTE_METHODS]
        if unknown or array.dtype.kind not in "biufcmM":
            raise UnsupportedError(f"servers do not compute {', '.join(unknown) or 'statistics'} of {array.dtype}")
        many = count_requests([stored.array for stored in stored_arrays(array)])
        merged = [m for m in query.methods if many > 1 and m in STREAMED and array.dtype.kind in STREAMED[m].kinds]
        found: Results = {}
        if merged:
            reduction = Reduction(tuple(merged), array.dtype, query.rules)
            found = reduction.finalise(self._partial(along, reduction, many), _size(array, along))
            if not query.keepdims:
                found = {name: squeeze_axes(values, along, array.ndim) for name, values in found.items()}
        rest = [method for method in query.methods if method not in found]
        if rest:
            how = {"axes": list(along), "keepdims": query.keepdims, **rules_to_wire(query.rules)}
            found |= self._ask(array, {"methods": rest, **how}, "values")
        return {method: found[method] for method in query.methods}

    def weighted_statistics(self, weights: Weights, query: ReductionQuery) -> Results:
        """Return weighted statistics."""
        factors = {
            ",".join(map(str, [key] if isinstance(key, int) else key)): values_to_wire(np.asarray(numbers, np.float64))
            for key, numbers in weights.items()
        }
        return self._ask(self.array, {**self._how(query), "weights": factors}, "values")

    def grouped_statistics(self, groups: Groups, query: ReductionQuery) -> Results:
        """Return statistics of groups."""
        labels = {"axis": groups.axis, "codes": values_to_wire(groups.codes), "count": groups.count}
        return self._ask(self.array, {**self._how(query), "groups": labels}, "values")

    def _how(self, query: ReductionQuery) -> dict[str, Any]:
        axes = None if query.axes is None else list(normalise_axes(query.axes, self.array.ndim))
        return {"methods": list(query.methods), "axes": axes, **rules_to_wire(query.rules)}

    def _partial(self, along: tuple[int, ...], reduction: Reduction, many: int) -> Partial:
        """Return the partial of the expression, from several requests."""
        array = self.array
        cut = cut_axis(array.array)
        pieces = [
            (begin, _slice_axis(array, cut, begin, end))
            for begin, end in pairwise(chunk_borders(array.array, cut, many))
        ]
        how = {"methods": list(reduction.methods), "axes": list(along), "answer": "partial"}

        def ask(piece: tuple[int, DeferredValues]) -> Partial:
            return self._ask(piece[1], {**how, **rules_to_wire(reduction.rules)}, "partial")

        with ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool:
            found = list(pool.map(ask, pieces))
        begins, shapes = [begin for begin, _ in pieces], [piece.shape for _, piece in pieces]
        return merge_pieces(found, begins, shapes, array.shape, along, cut, reduction)

    def _ask(self, array: DeferredValues, how: Mapping[str, Any], name: str) -> Results:
        credentials = _check_arrays(self.active, array)
        job = {"expression": expression_to_wire(expression_of(array)), **how}
        item = self.active.ask("reduce", [job], credentials)[0]
        _issue_warnings(item.get("warnings", []) if isinstance(item, dict) else [])
        return arrays_from_wire(item, name)


def _size(array: DeferredValues, axes: Sequence[int]) -> int:
    return math.prod(array.shape[axis] for axis in axes)


def _slice_axis(array: DeferredValues, axis: int, begin: int, end: int) -> DeferredValues:
    keys = tuple(slice(begin, end) if i == axis else slice(None) for i in range(array.ndim))
    return SelectEach(array.shape, keys).whole(array)


def _issue_warnings(messages: Any) -> None:
    """Issue the warnings of NumPy that the evaluation on the server would have issued here."""
    for message in messages if isinstance(messages, list) else []:
        what, operation = (str(part)[:100] for part in message)
        warnings.warn(f"{what} encountered in {operation}", RuntimeWarning, stacklevel=2)
