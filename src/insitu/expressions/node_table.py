"""An expression as a table: stored arrays, constants, and operations that refer to rows before them.

The last row is the result. `insitu.active.wire_expression` sends and receives tables, `build_expression` makes
them of expressions, and expressions of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.expressions.nodes import Errors

__all__ = [
    "Argument",
    "ArrayNode",
    "ConstantRef",
    "MembersRef",
    "Node",
    "NodeRef",
    "NodeTable",
    "OperationNode",
]


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


Argument = NodeRef | ConstantRef | MembersRef | str | bool | int | float | complex | np.generic | None


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """A stored array."""

    array: int


@dataclass(frozen=True, slots=True)
class OperationNode:
    """An operation."""

    operation: str
    """Its name in `insitu.model.elementwise`, or one that `build_expression` knows."""
    arguments: tuple[Argument, ...]
    errors: Errors = ()
    to: np.dtype[Any] | None = None
    """Type of the result, if the operation does not say it."""


Node = ArrayNode | OperationNode


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Stored arrays, constants and nodes; the last node is the result."""

    arrays: tuple[Any, ...]
    """What it says about each."""
    constants: tuple[npt.NDArray[Any], ...]
    nodes: tuple[Node, ...]
