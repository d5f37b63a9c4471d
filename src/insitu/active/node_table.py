"""Nodes of an expression: stored arrays, operations, steps, and what they refer to.

A node refers only to nodes before it; the last one is the result. `wire_expression` sends and
receives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Argument",
    "ArrayNode",
    "ConstantRef",
    "Errors",
    "Expression",
    "MembersRef",
    "Node",
    "NodeRef",
    "OperationNode",
    "StepNode",
    "merge_equal_nodes",
]

Errors = tuple[tuple[str, str], ...]
"""Settings of `np.errstate`."""


@dataclass(frozen=True, slots=True)
class NodeRef:
    """The result of an earlier node."""

    number: int


@dataclass(frozen=True, slots=True)
class ConstantRef:
    """An array that is part of the expression."""

    number: int


@dataclass(frozen=True, slots=True)
class MembersRef:
    """An array as the set that `is_in` looks into."""

    number: int


Argument = NodeRef | ConstantRef | MembersRef | bool | int | float | complex | np.generic | None


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """A stored array."""

    array: int


@dataclass(frozen=True, slots=True)
class OperationNode:
    """An operation of the table."""

    operation: str
    arguments: tuple[Argument, ...]
    errors: Errors = ()


@dataclass(frozen=True, slots=True)
class StepNode:
    """A step that is no operation of the table: a null test, a mask, a cast, a rounding."""

    step: str
    of: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """`to` (a type), `value`, `other`, `number` (numbers), `condition` (a `ConstantRef`),
    `decimals`, `operation`, `errors`.
    """


Node = ArrayNode | OperationNode | StepNode


@dataclass(frozen=True, slots=True)
class Expression:
    """Stored arrays, constants and nodes; the last node is the result."""

    arrays: tuple[Any, ...]
    """Virtual arrays; of an expression that was received, what it says about each."""
    constants: tuple[npt.NDArray[Any], ...]
    nodes: tuple[Node, ...]


def merge_equal_nodes(nodes: Sequence[Node], arrays: Sequence[int]) -> list[Node]:
    """Return nodes without repetition: those that do the same to the same become one.

    Parameters
    ----------
    nodes
        The nodes.
    arrays
        For each array of the nodes the number of the array that it is equal to.
    """
    merged: list[Node] = []
    known: dict[Any, int] = {}
    numbers: list[int] = []
    for node in nodes:
        moved = _renumber(node, arrays, numbers)
        number = known.setdefault(_content(moved), len(merged))
        if number == len(merged):
            merged.append(moved)
        numbers.append(number)
    return merged


def _renumber(node: Node, arrays: Sequence[int], numbers: Sequence[int]) -> Node:
    match node:
        case ArrayNode(array):
            return ArrayNode(arrays[array])
        case StepNode(_, of):
            return replace(node, of=numbers[of])
        case OperationNode(_, arguments):
            moved = (NodeRef(numbers[a.number]) if isinstance(a, NodeRef) else a for a in arguments)
            return replace(node, arguments=tuple(moved))


def _content(node: Node) -> Any:
    """Return a key that only nodes have in common that do the same; 1, 1.0 and True are not the same."""
    match node:
        case OperationNode(operation, arguments, errors):
            return operation, tuple(_content_of_number(argument) for argument in arguments), errors
        case StepNode(step, of, settings):
            return step, of, tuple((name, _content_of_number(value)) for name, value in settings.items())
    return node


def _content_of_number(value: Any) -> Any:
    return type(value), getattr(value, "dtype", None), repr(value)
