"""Estimates of the memory that the body of a request takes, made before it is decoded and expanded."""

from __future__ import annotations

from insitu.active.message_decoder import MAX_ITEMS
from insitu.server.error_responses import RequestTooLargeError
from insitu.server.jobs import BatchRequest
from insitu.server.settings import Limits

__all__ = ["PREPARATION_BYTES", "body_cost", "declared_cost", "max_items"]

PREPARATION_BYTES = 1 << 20
"""Bytes that are counted for the preparation of a request, in addition to its body."""
ITEM_BYTES = 72
"""Bytes of the smallest decoded item of a body:
an empty list, and the reference to it in another list.
"""
ELEMENT_BYTES = 32
"""Bytes for a number of a column, with temporary copies."""


def max_items(limits: Limits) -> int:
    """Return how many items the body of a request may have."""
    return min(MAX_ITEMS, limits.memory // (2 * ITEM_BYTES))


def body_cost(body: bytes, items: int) -> int:
    """Return about how many bytes the body of a request takes once its items are decoded."""
    return PREPARATION_BYTES + len(body) + ITEM_BYTES * items


def declared_cost(batch: BatchRequest, limits: Limits) -> int:
    """Return about how many bytes the columns of a batch take once expanded;
    an error if that is too much.
    """
    cost = ELEMENT_BYTES * batch.declared
    if cost > limits.memory // 2:
        raise RequestTooLargeError(
            f"tables and selections of {batch.declared} numbers are larger than the memory of this server allows"
        )
    return cost
