"""Statistics of an expression on this machine; a stored array is the simplest expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.expressions.boxes import Box, BoxMemory
from insitu.expressions.evaluate import box_reader
from insitu.expressions.nodes import Expression, Stored, is_stored, stored_arrays, without_moves
from insitu.model import Selection, VirtualArray, normalise_axes
from insitu.process_options import options
from insitu.reading import ReadContext
from insitu.reducing.expression_values import ExpressionValues, reduction_memory
from insitu.reducing.fold_portions import Folding, PlainFolding, Results, fold_in_portions
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce_chunks import reduce_one_chunk
from insitu.reducing.reductions import Reduction
from insitu.reducing.statistics import STATISTICS
from insitu.reducing.whole_blocks import reduce_whole_boxes

__all__ = ["compute_statistics", "fold_expression", "open_values", "reduce_expression"]


def compute_statistics(array: VirtualArray, query: ReductionQuery, context: ReadContext | None = None) -> Results:
    """Return statistics of a virtual array by name, computed chunk by chunk, in bounded memory.

    Parameters
    ----------
    array
        The array.
    query
        Which statistics, of which selection, along which axes.
    context
        How to read the values: storage options, open sources, counters.

    Returns
    -------
    dict of ndarray
        Of the types that xarray gives. Sums and means of floating-point values are accumulated in
        float64, so they may differ from xarray's in the last digits; they are the more exact ones.

    Examples
    --------
    >>> group = insitu.scan("era5.nc")  # doctest: +SKIP
    >>> query = ReductionQuery.of(["mean", "max"], axes=0, selection=np.s_[:, ::2, 100:200])  # doctest: +SKIP
    >>> compute_statistics(group.arrays["t2m"], query)["mean"]  # doctest: +SKIP
    """
    return reduce_expression(Stored(array, context or ReadContext(), Selection.of(query.selection, array.shape)), query)


def reduce_expression(
    expression: Expression,
    query: ReductionQuery,
    known: npt.NDArray[Any] | None = None,
    memory: BoxMemory | None = None,
) -> Results:
    """Return statistics of an expression.

    Parameters
    ----------
    expression
        What to reduce.
    query
        Which statistics, along which axes; its selection does not count.
    known
        The values, if they were kept from an earlier use: then nothing is read, and the results are the same to the
        last bit.
    memory
        What may be held at a time. It does not change a bit of the results.
    """
    along = normalise_axes(query.axes, expression.ndim)
    at_once = None if known is None else _reduce_known_chunk(expression, along, query, known)
    if at_once is not None:
        return at_once
    with open_values(expression, known, memory) as values:
        found: Results = {}
        if unchanged := query.unchanged_statistics(expression.ndim):
            found = dict.fromkeys(unchanged, np.array(values.read()))
        streamed = tuple(m for m in query.methods if m not in found and STATISTICS.can_stream(m, expression.dtype))
        if streamed:
            folding = PlainFolding(values, replace(query, methods=streamed, keepdims=True))
            found |= folding.finalise(fold_in_portions(folding))
        if rest := [method for method in query.methods if method not in found]:
            read = _box_reader(values)
            for method in rest:
                found[method] = reduce_whole_boxes(values, along, method, query.rules, read)
    return query.drop_axes(found, expression.ndim)


def _reduce_known_chunk(
    expression: Expression, along: tuple[int, ...], query: ReductionQuery, known: npt.NDArray[Any]
) -> Results | None:
    """Return statistics of the known values of a stored array that is one small chunk; None if it is anything else."""
    node = without_moves(expression)
    if not isinstance(node, Stored) or query.unchanged_statistics(expression.ndim):
        return None
    if not all(STATISTICS.can_stream(method, node.dtype) for method in query.methods):
        return None
    reduction = Reduction(query.methods, node.dtype, query.rules)
    # A box of one chunk is reduced as the chunk is: it need not be cut out.
    partial = reduce_one_chunk(node.whole if node.is_box else node.array, known, along, reduction)
    if partial is None:
        return None
    found = reduction.finalise(partial, math.prod(known.shape[axis] for axis in along))
    return query.drop_axes(found, expression.ndim)


def fold_expression(
    expression: Expression,
    make: Callable[[ExpressionValues], Folding],
    known: npt.NDArray[Any] | None = None,
    memory: BoxMemory | None = None,
) -> Results:
    """Return the results of a reduction that is done in portions: of groups, say, or with weights.

    Parameters
    ----------
    expression, known, memory
        As for `reduce_expression`.
    make
        Returns the reduction of its values.
    """
    with open_values(expression, known, memory) as values:
        folding = make(values)
        return folding.finalise(fold_in_portions(folding))


@contextmanager
def open_values(
    expression: Expression, known: npt.NDArray[Any] | None = None, memory: BoxMemory | None = None
) -> Iterator[ExpressionValues]:
    """Give the values of an expression for reducing them, within a `with` block."""
    memory = memory or reduction_memory()
    engine = None if known is not None else _engine_of(expression)
    if known is not None or not is_stored(expression):
        yield ExpressionValues(expression, memory, engine, known)
        return
    # Without the cache, because a reduction needs every chunk once.
    context = replace(expression.context, cache=None, values=None, owner=None)
    with context.open_sources() as opened:
        yield ExpressionValues(expression, memory, engine, known, opened)


def _engine_of(expression: Expression) -> Any:
    """Return what runs large reductions of an expression; None: this process, which alone has sources in memory, and
    open ones.
    """
    contexts = [stored.context for stored in stored_arrays(expression)]
    if any(context.keep_alive or context.sources is not None for context in contexts):
        return None
    return options.engine


def _box_reader(values: ExpressionValues) -> Any:
    """Return what reads the values of boxes, one after another."""
    if values.array is None:
        return box_reader(values.expression, values.memory, values.known)

    def read(box: Box) -> npt.NDArray[Any]:
        piece = values.select_box(box)
        return piece.read() if piece.known is None else np.array(piece.known, order="C")

    return read
