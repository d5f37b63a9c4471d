"""An expression as the table that travels to a server, and a table as an expression.

Both sides use the same operations: a server builds the tree with `element_operations.combine`, as NumPy's functions do
here, so types, broadcasting and errors are those of a tree that was built here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import InsituError, ModelError, UnsupportedError
from insitu.expressions.element_operations import cast, combine, fill_null, is_null, mask
from insitu.expressions.moves import broadcast
from insitu.expressions.node_table import (
    Argument,
    ArrayNode,
    ConstantRef,
    MembersRef,
    Node,
    NodeRef,
    NodeTable,
    OperationNode,
)
from insitu.expressions.nodes import (
    CAST,
    Broadcast,
    Constant,
    Errors,
    Expression,
    Moved,
    Operation,
    Stored,
    iterate_nodes,
    make_operation,
    without_moves,
)
from insitu.model import VirtualArray
from insitu.model.elementwise import OPERATIONS, Members

__all__ = ["build_expression", "table_of"]

Shape = tuple[int, ...]
MAX_DIMENSIONS = 32
"""What `np.broadcast_shapes` can do."""


def table_of(expression: Expression, describe: Callable[[VirtualArray], Any]) -> NodeTable:
    """Return an expression as a table; what is one object, or does the same to the same, becomes one row.

    Parameters
    ----------
    expression
        The expression.
    describe
        Returns what the table says about an array; equal ones become one.

    Raises
    ------
    UnsupportedError
        If it has windows.
    """
    writer = _TableWriter(describe)
    for node in iterate_nodes([_without_broadcasts(expression)]):
        writer.write(node)
    return NodeTable(tuple(writer.arrays), tuple(writer.constants), tuple(writer.nodes))


def _without_broadcasts(expression: Expression) -> Expression:
    """Return an expression in which stored arrays are broadcast, and not what is computed of them."""
    made: dict[int, Expression] = {}
    order = list(iterate_nodes([expression]))
    if not any(isinstance(node, Broadcast) for node in order):
        return expression
    for node in order:
        match node:
            case Moved(_, _, direct):
                made[id(node)] = made[id(direct)]
            case Broadcast(of, shape):
                made[id(node)] = _push_broadcast(made[id(of)], shape)
            case Operation():
                made[id(node)] = node.with_operands(made)
            case _:
                made[id(node)] = node
    return made[id(expression)]


def _push_broadcast(expression: Expression, shape: Shape) -> Expression:
    """Return an operation one of whose stored arrays has a shape."""
    path: list[tuple[Operation, int]] = []
    node = without_moves(expression)
    while isinstance(node, Operation):
        stored = [n for n, given in enumerate(node.given) if isinstance(given, Expression)]
        at = next((n for n in stored if not isinstance(node.given[n], Constant)), stored[0])
        path.append((node, at))
        node = without_moves(node.given[at])  # type: ignore[arg-type]
    found = broadcast(node, shape)
    for operation, at in reversed(path):
        given = [found if n == at else part for n, part in enumerate(operation.given)]
        found = make_operation(operation.function, given, operation.dtype, operation.errors)
    return found


class _TableWriter:
    """The table of one expression, as its rows are collected."""

    def __init__(self, describe: Callable[[VirtualArray], Any]) -> None:
        self._describe = describe
        self.arrays: list[Any] = []
        self.constants: list[npt.NDArray[Any]] = []
        self.nodes: list[Node] = []
        self._references: dict[int, Argument] = {}
        """By identity of a node, what names it."""
        self._known: dict[Any, int] = {}
        """By the identity of a stored array, or the content of a constant or row, its number."""

    def write(self, node: Expression) -> None:
        """Add a node, after those that it is computed from."""
        match node:
            case Moved(_, _, direct):
                self._references[id(node)] = self._references[id(direct)]
            case Constant(values):
                self._references[id(node)] = ConstantRef(self._constant(values))
            case Stored():
                if node.identity not in self._known:
                    self._known[node.identity] = self._add(ArrayNode(self._array(node.array)))
                self._references[id(node)] = NodeRef(self._known[node.identity])
            case Operation(function, given):
                if function == CAST:
                    row = OperationNode(CAST, (self._argument(given[0]),), node.errors, node.dtype)
                else:
                    row = OperationNode(function, tuple(map(self._argument, given)), node.errors)
                self._references[id(node)] = NodeRef(self._add(row))
            case _:
                raise UnsupportedError(
                    "servers do not compute windows (rolling, coarsen)", hint="load() the reduced windows first"
                )

    def _add(self, node: Node) -> int:
        """Return the number of a row; 1, 1.0 and True are not the same."""
        key: Any = node
        if isinstance(node, OperationNode):
            given = [(type(one), getattr(one, "dtype", None), repr(one)) for one in node.arguments]
            key = node.operation, tuple(given), node.errors, node.to
        number = self._known.setdefault(key, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number

    def _array(self, array: VirtualArray) -> int:
        described = self._describe(array)
        if described not in self.arrays:
            self.arrays.append(described)
        return self.arrays.index(described)

    def _argument(self, operand: Any) -> Argument:
        if isinstance(operand, Expression):
            return self._references[id(operand)]
        if isinstance(operand, Members):
            return MembersRef(self._constant(operand.values))
        number: Argument = operand
        return number

    def _constant(self, values: npt.NDArray[Any]) -> int:
        key = values.dtype, values.shape, hashlib.sha256(values.tobytes()).digest()
        if key not in self._known:
            self.constants.append(values)
            self._known[key] = len(self.constants) - 1
        return self._known[key]


def build_expression(
    table: NodeTable, arrays: Sequence[Expression], errors: Callable[[str, Errors], Errors]
) -> Expression:
    """Return the expression that a table describes.

    Parameters
    ----------
    table
        Its constants and nodes.
    arrays
        Its arrays.
    errors
        Returns how floating-point errors of an operation are treated, given what the table says.

    Raises
    ------
    ModelError
        If types or shapes do not fit each other, or there are too many operations.
    """
    built: list[Expression] = []
    for number, node in enumerate(table.nodes):
        try:
            built.append(_build_node(node, number, table.constants, arrays, built, errors))
        # What NumPy raises if it does not do an operation to such types, shapes or numbers.
        except (TypeError, ValueError, OverflowError) as problem:
            if isinstance(problem, InsituError):
                raise
            raise ModelError(f"node {number} of the expression: {str(problem)[:200]}") from None
    return built[-1]


def _build_node(
    node: Node,
    number: int,
    constants: Sequence[npt.NDArray[Any]],
    arrays: Sequence[Expression],
    built: Sequence[Expression],
    errors: Callable[[str, Errors], Errors],
) -> Expression:
    if isinstance(node, ArrayNode):
        return arrays[node.array]
    arguments = [_resolve(argument, constants, built) for argument in node.arguments]
    if node.operation in SPECIAL:
        return SPECIAL[node.operation](arguments[0], arguments[1:], node.to, errors(node.operation, node.errors))
    shapes = [
        a.shape if isinstance(a, Expression) else np.shape(a) for a in arguments if not isinstance(a, Members | None)
    ]
    if max(map(len, shapes)) > MAX_DIMENSIONS:
        raise ModelError(f"node {number} of the expression has more than {MAX_DIMENSIONS} dimensions")
    made = combine(node.operation, *arguments, errors=errors(node.operation, node.errors))
    if made is None:
        raise ModelError(f"node {number} of the expression: {node.operation} has too many operations before it")
    return made


def _resolve(argument: Argument, constants: Sequence[npt.NDArray[Any]], built: Sequence[Expression]) -> Any:
    match argument:
        case NodeRef(number):
            return built[number]
        case ConstantRef(number):
            return constants[number]
        case MembersRef(number):
            return Members(constants[number])
    return argument


def _check_result(example: npt.NDArray[Any], expression: Expression, what: str, to: np.dtype[Any]) -> None:
    if example.dtype != to:
        raise TypeError(f"{what} is not done to values of {expression.dtype}")


def _cast(of: Expression, _: Sequence[Any], to: Any, errors: Errors) -> Expression:
    _check_result(np.empty(0, of.dtype).astype(to), of, "a cast", to)
    return cast(of, to, errors)


def _is_null(of: Expression, _: Sequence[Any], to: Any, errors: Errors) -> Expression:
    (np.isnat if of.dtype.kind in "mM" else np.isnan)(np.empty(0, of.dtype))
    return is_null(of)


def _not(of: Expression, _: Sequence[Any], to: Any, errors: Errors) -> Expression:
    return make_operation("logical_not", (of,), np.logical_not(np.empty(0, of.dtype)).dtype)


def _fill_null(of: Expression, given: Sequence[Any], to: Any, errors: Errors) -> Expression:
    value = np.asarray(given[0], to)[()]
    _is_null(of, (), to, errors)
    _check_result(np.where([], value, np.empty(0, of.dtype)), of, "fill_null", to)
    return fill_null(of, value, to)


def _mask(of: Expression, given: Sequence[Any], to: Any, errors: Errors) -> Expression:
    condition, other = np.asarray(given[0], bool), given[1]
    np.empty(0, of.dtype).astype(to), np.asarray(other, to)  # raise now what they would raise later
    return mask(of, np.broadcast_to(condition, of.shape), other, to)


def _round(of: Expression, given: Sequence[Any], to: Any, errors: Errors) -> Expression:
    _check_result(np.round(np.empty(0, of.dtype), given[0]), of, "round", of.dtype)
    return make_operation("round", (of, given[0]), of.dtype)


def _combine_in_place(of: Expression, given: Sequence[Any], to: Any, errors: Errors) -> Expression:
    operation, number = given
    example = np.empty(0, of.dtype)
    OPERATIONS[operation](example, number, out=example, casting="same_kind")
    made = combine(operation, of, number, errors=())
    if made is None:
        raise TypeError(f"{operation} has too many operations before it")
    return made if made.dtype == of.dtype else cast(made, of.dtype)


Special = Callable[[Expression, Sequence[Any], Any, Errors], Expression]
SPECIAL: dict[str, Special] = {
    CAST: _cast,
    "is_null": _is_null,
    "not": _not,
    "fill_null": _fill_null,
    "mask": _mask,
    "round_to": _round,
    "combine": _combine_in_place,
}
"""Operations of the wire beside those of the table: a cast, and what stands for several."""
