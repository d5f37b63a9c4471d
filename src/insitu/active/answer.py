"""Statistics of expressions: by the servers next to their stored arrays, or on this machine.

Pieces of an expression whose arrays lie at one server are reduced there, under the same credentials;
a piece that combines arrays of several servers by the one that has most of its bytes, if it can read
the others. What the servers cannot do is computed here, after a warning or, with
`active_required=True`, an error that names the expression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from insitu.active.client import Active
from insitu.active.distribute import Distribution
from insitu.active.remote_expression import expression_entry, name_of, server_of
from insitu.active.transport import ServerError
from insitu.active.wire_folding import query_to_wire
from insitu.errors import InsituError, ModelError, SourceError, UnsupportedError
from insitu.expressions.nodes import Expression, Stored, is_stored, stored_arrays
from insitu.model import Selection, VirtualArray, normalise_axes
from insitu.reading import ReadContext
from insitu.reducing import reduce_expression as here
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.fold_portions import Folding, PlainFolding, Results
from insitu.reducing.query import ReductionQuery
from insitu.reducing.statistics import STATISTICS

__all__ = ["answer", "answer_array", "answer_folding", "reason_to_compute_here"]

REFUSALS = (ServerError, SourceError, UnsupportedError, ModelError)
"""Errors of a server, or on the way to it, after which an expression is computed here."""
Values = npt.NDArray[Any]


def answer(expression: Expression, query: ReductionQuery, known: Values | None = None) -> Results:
    """Return statistics of an expression.

    Parameters
    ----------
    expression, query, known
        As for `insitu.reducing.reduce_expression.reduce_expression`.
    """
    # Of a scalar, no axes are all of them.
    scalar_query = replace(query, axes=None) if not expression.ndim and not is_stored(expression) else query
    found = _ask_servers(expression, lambda servers: _reduce_there(servers, scalar_query))
    return here.reduce_expression(expression, query, known) if found is None else found


def _reduce_there(servers: Distribution, query: ReductionQuery) -> Results:
    expression, methods = servers.expression, query.methods
    if query.unchanged_statistics(expression.ndim):
        raise UnsupportedError("a reduction along no axis is not sent to a server: the values are read")
    unknown = [method for method in methods if method not in STATISTICS or not STATISTICS[method].is_plain]
    if unknown or expression.dtype.kind not in "biufcmM":
        raise UnsupportedError(
            f"servers do not compute {', '.join(unknown) or 'statistics'} of {expression.dtype} values"
        )
    along = None if query.axes is None else normalise_axes(query.axes, expression.ndim)
    query = replace(query, selection=..., axes=along)
    in_portions = tuple(method for method in methods if STATISTICS.can_stream(method, expression.dtype))
    found: Results = {}
    if in_portions:
        with here.open_values(expression) as values:
            found |= servers.reduce(PlainFolding(values, replace(query, methods=in_portions)))
    if rest := tuple(method for method in methods if method not in found):
        found |= servers.reduce_at_once(query_to_wire(replace(query, methods=rest)))
    return {method: found[method] for method in methods}


def answer_array(
    array: VirtualArray, query: ReductionQuery, context: ReadContext | None = None, active: Active | None = None
) -> Results:
    """Return statistics of a selection of a stored array.

    Parameters
    ----------
    array, query
        The array, and which statistics of which selection.
    context, active
        How it is read, and the servers next to it.
    """
    how = replace(context or ReadContext(), active=active)
    return answer(Stored(array, how, Selection.of(query.selection, array.shape)), query)


def answer_folding(
    expression: Expression, make: Callable[[ExpressionValues], Folding], known: Values | None = None
) -> Results:
    """Return the results of a reduction of an expression that is done in portions: of groups, say, or with weights.

    Parameters
    ----------
    expression, make, known
        As for `insitu.reducing.reduce_expression.fold_expression`.
    """

    def ask(servers: Distribution) -> Results:
        with here.open_values(expression) as values:
            return servers.reduce(make(values))

    found = _ask_servers(expression, ask)
    return here.fold_expression(expression, make, known) if found is None else found


def _ask_servers(expression: Expression, ask: Callable[[Distribution], Results]) -> Results | None:
    """Return what servers answer; None if there are none, or they cannot: then a warning was issued."""
    active = server_of(expression)
    if active is None:
        return None
    try:
        return ask(Distribution(expression, active.required))
    except REFUSALS as problem:
        name, arrays = name_of(expression), [stored.array for stored in stored_arrays(expression)]
        active.fall_back(problem.with_context(variable=name), name, *arrays)
        return None


def reason_to_compute_here(expression: Expression) -> str | None:
    """Return why an expression cannot be sent to its servers; None if it can, or there is no server."""
    if server_of(expression) is None:
        return None
    try:
        if not all(owner.servers for _, owner in Distribution(expression).parts()):
            return "a part of it is next to no server"
        expression_entry(expression)
    except InsituError as problem:
        return str(problem)
    return None
