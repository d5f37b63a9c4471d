"""Expressions as servers get them: their stored arrays with the servers next to each, and the entries of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from insitu.active.placement import Placement
from insitu.active.wire_array import array_to_wire
from insitu.active.wire_expression import expression_to_wire
from insitu.errors import UnsupportedError
from insitu.expressions.formula_text import formula
from insitu.expressions.nodes import Expression, Stored, is_stored, iterate_nodes, stored_arrays, without_moves
from insitu.model import VirtualArray

__all__ = ["Leaf", "expression_entry", "leaves_of", "name_of", "server_of"]


def server_of(expression: Expression) -> Any:
    """Return the servers of an expression: those of any of its stored arrays, best of one that requires them; None if
    there are none.
    """
    node = without_moves(expression)
    nodes = [node] if isinstance(node, Stored) else iterate_nodes([node])
    if all(node.context.active is None for node in nodes if isinstance(node, Stored)):
        return None  # as nearly always: parts need not be cut out to see whether they have sources
    servers = [stored.context.active for stored in stored_arrays(expression) if stored.context.active is not None]
    return next((server for server in servers if server.required), servers[0] if servers else None)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A stored array, the servers next to its data, and how its data is opened."""

    array: VirtualArray
    name: str
    placements: tuple[Placement, ...]
    token: str | None = field(default=None, repr=False)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)


def leaves_of(expression: Expression) -> list[Leaf]:
    """Return the stored arrays that an expression consists of, with their servers."""
    found = []
    for stored in stored_arrays(expression):
        active, name = stored.context.active, stored.context.name or "an array"
        if active is None:
            known = server_of(expression)
            other = "" if known is None else known.url
            raise UnsupportedError(
                f"{name} is not read by the server {other}, which has the other arrays",
                hint="Open all arrays of an expression with active=, or load() the small ones",
            )
        found.append(Leaf(stored.array, name, active.placements, active.token, stored.context.storage_options))
    return found


def name_of(expression: Expression) -> str | None:
    """Return what an expression is called in messages: the variable, or the formula."""
    return expression.context.name if is_stored(expression) else formula(expression)


def expression_entry(expression: Expression) -> dict[str, Any]:
    """Return the entry of a job that has an expression: the location of every chunk, or its nodes."""
    stored = without_moves(expression)
    if isinstance(stored, Stored):
        return {"array": array_to_wire(stored.array)}
    return {"expression": expression_to_wire(expression)}
