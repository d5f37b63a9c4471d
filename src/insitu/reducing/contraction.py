"""`numpy.einsum` of expressions, box by box of the largest: products that have more elements than any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.expressions.boxes import iterate_boxes
from insitu.expressions.evaluate import read_all
from insitu.expressions.moves import select_box
from insitu.expressions.nodes import Expression
from insitu.reducing.expression_values import reduction_memory

__all__ = ["contract"]

Values = npt.NDArray[Any]


def contract(
    operands: Sequence[Expression | Values],
    known: Sequence[Values | None],
    labels: Sequence[str],
    result_labels: str,
    largest: int,
    dtype: np.dtype[Any],
) -> Values:
    """Return a sum of products, added in boxes that no option changes: so the bits are the same every time.

    Parameters
    ----------
    operands, labels
        Expressions and arrays in memory, and the label of each of their axes.
    known
        Values of each, if they were kept from an earlier use.
    result_labels, dtype
        Of the result.
    largest
        Which operand the boxes lie in: an expression.
    """
    lengths: dict[str, int] = {}
    for operand, names in zip(operands, labels, strict=True):
        for name, length in zip(names, operand.shape, strict=True):
            lengths[name] = max(lengths.get(name, 1), length)
    total = np.zeros([lengths[name] for name in result_labels], dtype)
    whole: Any = operands[largest]
    sources = [operand if values is None else values for operand, values in zip(operands, known, strict=True)]
    for box in iterate_boxes(whole, reduction_memory()):
        check_deadline()
        where = {name: part for name, part, n in zip(labels[largest], box, whole.shape, strict=True) if n > 1}
        parts = [_read_part(source, names, where) for source, names in zip(sources, labels, strict=True)]
        place = tuple(where.get(name, slice(None)) for name in result_labels)
        with np.errstate(invalid="ignore", over="ignore"):
            total[place] += np.einsum(f"{','.join(labels)}->{result_labels}", *parts, dtype=dtype)
    return total


def _read_part(source: Expression | Values, names: str, where: dict[str, slice]) -> Values:
    """Return the part of an operand that belongs to a box, in C order; a length of 1 is broadcast."""
    box = tuple(
        where.get(name, slice(0, n)) if n > 1 else slice(0, n) for name, n in zip(names, source.shape, strict=True)
    )
    values = read_all([select_box(source, box)], once=True)[0] if isinstance(source, Expression) else source[box]
    return np.require(values, None, ("C", "A"))
