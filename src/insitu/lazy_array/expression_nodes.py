"""A virtual array with its steps as the nodes that travel to a server, and nodes as a virtual array.

Both sides use the same operations: a server builds the tree with `expressions.combine`, as NumPy's
functions do here, so types, broadcasting and errors are those of a tree that was built here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.node_table import (
    Argument,
    ArrayNode,
    ConstantRef,
    Expression,
    MembersRef,
    Node,
    NodeRef,
    OperationNode,
    StepNode,
)
from insitu.errors import InsituError, ModelError, UnsupportedError
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.expressions import combine
from insitu.lazy_array.steps import (
    ITSELF,
    Apply,
    Cast,
    CombineWithNumber,
    Errors,
    FillNull,
    IsNull,
    Not,
    Round,
    Step,
    Where,
)
from insitu.lazy_array.windows import TakeWindows
from insitu.model import VirtualArray
from insitu.model.elementwise import OPERATIONS, UFUNCS, Members

__all__ = ["build_expression", "expression_of"]

Shape = tuple[int, ...]
MAX_DIMENSIONS = 32
"""What `np.broadcast_shapes` can do."""
CheckNode = Callable[[int, Shape], None]
"""Raises an error if a node of such a shape must not be built."""


def expression_of(array: DeferredValues) -> Expression:
    """Return a virtual array and its steps as nodes; what is one object becomes one node."""
    writer = _NodeWriter()
    writer.write(array)
    return Expression(tuple(writer.arrays), tuple(writer.constants), tuple(writer.nodes))


class _NodeWriter:
    """Nodes of one expression, as they are collected."""

    def __init__(self) -> None:
        self.arrays: list[VirtualArray] = []
        self.constants: list[npt.NDArray[Any]] = []
        self.nodes: list[Node] = []
        self._known: dict[tuple[int, ...], int] = {}
        """By the identities of an array and of its steps so far, the number of the node."""
        self._numbers: dict[Any, int] = {}
        """By the type, shape and content of an array in memory, its number."""

    def write(self, array: DeferredValues) -> int:
        """Add an array and its steps; return the number of the last node."""
        key: tuple[int, ...] = (id(array.array),)
        if key not in self._known:
            self.arrays.append(array.array)
            self._add(key, ArrayNode(len(self.arrays) - 1))
        for step in array.steps:
            before, key = self._known[key], (*key, id(step))
            if key not in self._known:
                self._add(key, self._node(step, before))
        return self._known[key]

    def _add(self, key: tuple[int, ...], node: Node) -> None:
        self.nodes.append(node)
        self._known[key] = len(self.nodes) - 1

    def _node(self, step: Step, of: int) -> Node:
        match step:
            case Apply(operation, arguments):
                return OperationNode(operation, tuple(self._argument(a, of) for a in arguments), step.errors)
            case Cast(to, errors):
                return StepNode("cast", of, {"to": to, "errors": errors})
            case FillNull(value, to):
                return StepNode("fill_null", of, {"value": _scalar(value), "to": to})
            case Where(condition, other, to):
                kept = condition[tuple(slice(None) if stride else slice(0, 1) for stride in condition.strides)]
                shown = ConstantRef(self._constant(kept))
                return StepNode("where", of, {"condition": shown, "other": _scalar(other), "to": to})
            case Round(decimals):
                return StepNode("round", of, {"decimals": decimals})
            case CombineWithNumber(ufunc, number):
                # A ufunc outside of the table has no name that a server knows, and is refused there.
                name = UFUNCS.get(ufunc, ufunc.__name__)
                return StepNode("combine", of, {"operation": name, "number": _scalar(number)})
            case IsNull():
                return StepNode("is_null", of)
            case Not():
                return StepNode("not", of)
            case TakeWindows():
                raise UnsupportedError(
                    "servers do not compute windows (rolling, coarsen)", hint="load() the reduced windows first"
                )

    def _argument(self, argument: Any, of: int) -> Argument:
        if argument is ITSELF:
            return NodeRef(of)
        if isinstance(argument, DeferredValues):
            return NodeRef(self.write(argument))
        if isinstance(argument, Members):
            return MembersRef(self._constant(argument.values))
        if isinstance(argument, np.ndarray):
            return ConstantRef(self._constant(argument))
        number: Argument = argument
        return number

    def _constant(self, values: npt.NDArray[Any]) -> int:
        key = values.dtype, values.shape, hashlib.sha256(values.tobytes()).digest()
        if key not in self._numbers:
            self.constants.append(values)
            self._numbers[key] = len(self.constants) - 1
        return self._numbers[key]


def _scalar(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) else value


def build_expression(
    expression: Expression, arrays: Sequence[LazyArray], check: CheckNode, errors: Callable[[str, Errors], Errors]
) -> LazyArray:
    """Return the virtual array that an expression describes.

    Parameters
    ----------
    expression
        Its constants and nodes.
    arrays
        Its arrays.
    check
        Is called before each node is built.
    errors
        Returns how floating-point errors of an operation are treated, given what the expression says.

    Raises
    ------
    ModelError
        If types or shapes do not fit each other, or there are too many operations.
    """
    built: list[LazyArray] = []
    for number, node in enumerate(expression.nodes):
        try:
            built.append(_build_node(node, number, expression.constants, arrays, built, check, errors))
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
    arrays: Sequence[LazyArray],
    built: Sequence[LazyArray],
    check: CheckNode,
    errors: Callable[[str, Errors], Errors],
) -> LazyArray:
    match node:
        case ArrayNode(array):
            check(number, arrays[array].shape)
            return arrays[array]
        case OperationNode(operation, references, settings):
            arguments = [_resolve(reference, constants, built) for reference in references]
            shapes = [np.shape(a) for a in arguments if not isinstance(a, Members | None)]
            if max(map(len, shapes)) > MAX_DIMENSIONS:
                raise ModelError(f"node {number} of the expression has more than {MAX_DIMENSIONS} dimensions")
            check(number, np.broadcast_shapes(*shapes))
            made = combine(operation, *arguments, errors=errors(operation, settings))
            if made is NotImplemented:
                raise ModelError(f"node {number} of the expression: {operation} has too many operations before it")
            result: LazyArray = made
            return result
        case StepNode(_, of):
            check(number, built[of].shape)
            return _with_step(built[of], _step_of(node, built[of].shape, constants, errors))


def _resolve(reference: Argument, constants: Sequence[npt.NDArray[Any]], built: Sequence[LazyArray]) -> Any:
    match reference:
        case NodeRef(number):
            return built[number]
        case ConstantRef(number):
            return constants[number]
        case MembersRef(number):
            return Members(constants[number])
    return reference


def _step_of(
    node: StepNode, shape: Shape, constants: Sequence[npt.NDArray[Any]], errors: Callable[[str, Errors], Errors]
) -> Step:
    settings = node.settings
    match node.step:
        case "cast":
            return Cast(settings["to"], errors("astype", settings["errors"]))
        case "fill_null":
            return FillNull(settings["value"], settings["to"])
        case "where":
            condition = np.asarray(constants[settings["condition"].number], bool)
            return Where(np.broadcast_to(condition, shape), settings["other"], settings["to"])
        case "round":
            return Round(settings["decimals"])
        case "combine":
            ufunc: Any = OPERATIONS[settings["operation"]]
            return CombineWithNumber(ufunc, settings["number"])
    return IsNull() if node.step == "is_null" else Not()


def _with_step(array: LazyArray, step: Step) -> LazyArray:
    """Return an array with one more step, after trying it on no values: it may not fit the type."""
    example = np.empty((0,) * array.ndim, array.dtype)
    moved = Where(np.empty(example.shape, bool), step.other, step.to) if isinstance(step, Where) else step
    assert not isinstance(moved, Apply)
    if moved.apply(example).dtype != step.dtype(array.dtype):
        raise TypeError(f"{type(step).__name__} is not done to values of {array.dtype}")
    return array.then(step)
