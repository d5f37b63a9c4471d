"""Estimate of what an expression takes, made before any of it is read or computed.

The limits of a server and `explain` come from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from insitu.expressions.nodes import Expression, Operation, Stored, iterate_nodes
from insitu.model import Selection
from insitu.model.elementwise import Members
from insitu.reading.estimate import CutTasks, StoredPart, count_stored_chunks, estimate_read
from insitu.reading.request_cost import has_remote_sources

__all__ = ["Cost", "cost"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What it takes to read and compute an expression, about."""

    plan: int
    """Bytes of the plans of all reads."""
    chunk: int
    """Bytes of the largest chunk that is decoded, or of what is fetched or selected of one."""
    bytes_decoded: int
    """Bytes that all chunks decode to."""
    is_remote: bool
    """Whether a request to the storage of an array takes long."""
    operations: int
    """Elements that all operations compute together; 0: values are only read."""
    bytes_per_element: int
    """Bytes of all that is read and computed for an element of the result."""
    members: int
    """Bytes of the sets that `is_in` looks into."""
    parts: tuple[StoredPart, ...] = ()
    """What is read of each stored array, if its table was looked into; not of those that carry their values."""


def cost(expression: Expression, *, looks_into_tables: bool = False, cut: CutTasks | None = None) -> Cost:
    """Return what it takes to read and compute an expression.

    Parameters
    ----------
    expression
        The expression.
    looks_into_tables
        Whether stored chunks are counted, too. Else it is arithmetic alone: a table may have 2^40 cells.
    cut
        How a reduction cuts its plan into tasks; None: the values are read.
    """
    nodes = list(iterate_nodes([expression]))
    stored = list({node.identity: node for node in nodes if isinstance(node, Stored)}.values())
    operations = [node for node in nodes if isinstance(node, Operation)]
    reads = [estimate_read(node.whole, node.selection or Selection.of(..., node.shape)) for node in stored]
    sets = [given for node in operations for given in node.given if isinstance(given, Members)]
    return Cost(
        plan=sum(read.plan for read in reads),
        chunk=max((read.chunk for read in reads), default=0),
        bytes_decoded=sum(read.decoded for read in reads),
        is_remote=any(node.whole.tiles and has_remote_sources(node.whole.tiles[0].chunks.sources) for node in stored),
        operations=sum(node.size for node in operations),
        bytes_per_element=sum(node.dtype.itemsize for node in stored) + sum(map(_bytes_per_element, operations)),
        members=sum(members.values.nbytes for members in sets),
        parts=tuple(_count_stored(node, cut) for node in (stored if looks_into_tables else ()) if node.array.sources),
    )


def _count_stored(node: Stored, cut: CutTasks | None) -> StoredPart:
    selection = node.selection or Selection.of(..., node.shape)
    return count_stored_chunks(node.whole, selection, node.context.name or "array", cut)


def _bytes_per_element(node: Operation) -> int:
    """Return the bytes of an element of an operation, and of what it holds beside it; `is_in` sorts the values."""
    return 2 * node.dtype.itemsize + (64 if node.function == "is_in" else 8)
