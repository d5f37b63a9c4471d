"""Joining of expressions: the same operations on joined operands.

Files of one archive are preprocessed by the same formula. Joined they are that formula of the joined
arrays, so nothing is read. Expressions of different operations do not join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from insitu.expressions.moves import broadcast
from insitu.expressions.nodes import (
    Broadcast,
    Constant,
    Expression,
    Operation,
    Stored,
    iterate_nodes,
    make_operation,
    without_moves,
)
from insitu.model import concatenate
from insitu.reading import ReadContext
from insitu.sources.storage_options import options_for

__all__ = ["join_expressions"]


class _DifferentError(Exception):
    """The expressions are not of the same operations."""


def join_expressions(expressions: Sequence[Expression], axis: int) -> Expression | None:
    """Return expressions joined along an axis; None if their operations differ."""
    try:
        return _Joining(expressions, axis).run()
    except _DifferentError:
        return None


class _Joining:
    """Expressions that are joined node by node, in the order of the first one's nodes."""

    def __init__(self, expressions: Sequence[Expression], axis: int) -> None:
        self.expressions = [without_moves(expression) for expression in expressions]
        self.axis = axis
        self.lengths = [expression.shape[axis] for expression in expressions]
        self.has_broadcast = any(length != 1 for length in self.lengths)
        """Whether what has length 1 along the axis is broadcast."""
        self.joined: dict[tuple[int, ...], Expression] = {}
        """By the identities of nodes, what they are together."""

    def run(self) -> Expression:
        orders = [
            [node for node in iterate_nodes([expression], into_windows=False) if node is without_moves(node)]
            for expression in self.expressions
        ]
        if len({len(order) for order in orders}) > 1:
            raise _DifferentError
        for nodes in zip(*orders, strict=True):
            self.joined[tuple(map(id, nodes))] = self._join(nodes)
        return self.joined[tuple(map(id, self.expressions))]

    def _find(self, nodes: Sequence[Expression]) -> Expression:
        found = self.joined.get(tuple(id(without_moves(node)) for node in nodes))
        if found is None:
            raise _DifferentError
        return found

    def _join(self, nodes: Sequence[Expression]) -> Expression:
        first, axis = nodes[0], self.axis
        if any(type(node) is not type(first) for node in nodes):
            raise _DifferentError
        if self.has_broadcast and first.shape[axis] == 1 and all(node is first for node in nodes):
            return first
        if isinstance(first, Operation):
            return self._join_operations(nodes)  # type: ignore[arg-type]
        whole = [_lengthen(node, axis, length) for node, length in zip(nodes, self.lengths, strict=True)]
        if isinstance(first, Stored):
            arrays = [node for node in whole if isinstance(node, Stored)]
            return Stored(concatenate([node.array for node in arrays], axis), join_contexts(arrays))
        if isinstance(first, Constant):
            return self._join_constants([node for node in nodes if isinstance(node, Constant)])
        if isinstance(first, Broadcast):
            of = self._find([node.of for node in nodes if isinstance(node, Broadcast)])
            return broadcast(of, (*first.shape[:axis], sum(self.lengths), *first.shape[axis + 1 :]))
        raise _DifferentError

    def _join_operations(self, nodes: Sequence[Operation]) -> Expression:
        first = nodes[0]
        about = first.function, first.dtype, first.errors, len(first.given)
        if any((node.function, node.dtype, node.errors, len(node.given)) != about for node in nodes):
            raise _DifferentError
        given = []
        for operands in zip(*(node.given for node in nodes), strict=True):
            if all(isinstance(operand, Expression) for operand in operands):
                given.append(self._find(operands))
            elif all(_same(operand, operands[0]) for operand in operands):
                given.append(operands[0])
            else:
                raise _DifferentError
        return make_operation(first.function, given, first.dtype, first.errors)

    def _join_constants(self, nodes: Sequence[Constant]) -> Expression:
        axis, first = self.axis, nodes[0]
        if self.has_broadcast and first.shape[axis] == 1 and all(_same(node.values, first.values) for node in nodes):
            return first
        shape = np.broadcast_shapes(*((*node.shape[:axis], 1, *node.shape[axis + 1 :]) for node in nodes))
        parts = [
            np.broadcast_to(node.values, (*shape[:axis], length, *shape[axis + 1 :]))
            for node, length in zip(nodes, self.lengths, strict=True)
        ]
        return Constant(np.concatenate(parts, axis), first.context)


def _lengthen(node: Expression, axis: int, length: int) -> Expression:
    """Return a node that is not broadcast along an axis."""
    if node.shape[axis] == length or isinstance(node, Constant):
        return node
    return without_moves(broadcast(node, (*node.shape[:axis], length, *node.shape[axis + 1 :])))


def join_contexts(arrays: Sequence[Stored]) -> ReadContext:
    """Return how to read several arrays that became one."""
    first = arrays[0].context
    keep_alive = tuple({id(part): part for array in arrays for part in array.context.keep_alive}.values())
    if all(array.context.storage_options == first.storage_options for array in arrays):
        return first if len(keep_alive) == len(first.keep_alive) else replace(first, keep_alive=keep_alive)
    how: dict[str, Any] = {}
    for array in arrays:
        for source in array.array.sources:
            how[source.url] = options_for(source.url, array.context.storage_options)
    return replace(first, storage_options=how, keep_alive=keep_alive)


def _same(one: Any, other: Any) -> bool:
    """Return whether two constants are the same, type and all."""
    if isinstance(one, (np.ndarray, np.generic)):
        return (
            type(one) is type(other)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    return one is other or (
        type(one) is type(other) and isinstance(one, (bool, int, float, complex, str)) and one == other
    )
