"""Expressions as text: the formula of the variables that something is computed from."""

from __future__ import annotations

from typing import Any

import numpy as np

from insitu.expressions.element_operations import find_filled
from insitu.expressions.nodes import (
    CAST,
    Broadcast,
    Constant,
    Expression,
    Moved,
    Operation,
    Stored,
    WindowsOf,
    iterate_nodes,
    without_moves,
)
from insitu.model.elementwise import Members

__all__ = ["SYMBOLS", "formula"]

SYMBOLS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "true_divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "power": "**",
    "greater": ">",
    "greater_equal": ">=",
    "less": "<",
    "less_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "logical_and": "&",
    "logical_or": "|",
    "logical_xor": "^",
}
MAX_CHARS = 400
"""Longest text of a formula: the middle of longer ones is left out."""


def formula(expression: Expression) -> str:
    """Return an expression as a formula of the variables that it is computed from."""
    texts: dict[int, str] = {}
    for node in iterate_nodes([expression]):
        text = _text(node, texts)
        if len(text) > MAX_CHARS:  # at once: `x = x + x` would double it each time
            text = f"{text[: MAX_CHARS // 2]} … {text[-MAX_CHARS // 2 :]}"
        texts[id(node)] = text
    text = texts[id(expression)]
    return text[1:-1] if text.startswith("(") and _is_infix(without_moves(expression)) else text


def _is_infix(node: Expression) -> bool:
    return isinstance(node, Operation) and node.function in SYMBOLS and len(node.given) == 2


def _text(node: Expression, texts: dict[int, str]) -> str:
    """Return the text of a node, given those of its operands."""
    match node:
        case Stored():
            return node.context.name or "array"
        case Constant(values):
            return _operand_text(values, texts)
        case Moved(_, _, direct):
            return texts[id(direct)]
        case Broadcast(of):
            return texts[id(of)]
        case WindowsOf(of, along, _, _, method):
            lengths = "×".join(str(len(window.offsets)) for window in along.values())
            shown = f"windows({texts[id(of)]}, {lengths})"
            return shown if method is None else f"{method}({shown})"
        case Operation():
            return _operation_text(node, texts)
    raise AssertionError(f"unknown node {type(node)}")


def _operation_text(node: Operation, texts: dict[int, str]) -> str:
    given = [_operand_text(operand, texts) for operand in node.given]
    if _is_infix(node):
        return f"({given[0]} {SYMBOLS[node.function]} {given[1]})"
    match node.function:
        case function if function == CAST:
            return f"{node.dtype}({given[0]})"
        case "isnan" | "isnat":
            return f"isnull({given[0]})"
        case "logical_not" | "invert":
            return f"~{given[0]}"
        case "where" if find_filled(node) is not None:
            return f"fillna({given[2]}, {given[1]})"
        case "where" if isinstance(node.given[0], Constant):
            return f"where(mask, {given[1]}, {given[2]})"
    return f"{node.function}({', '.join(given)})"


def _operand_text(operand: Any, texts: dict[int, str]) -> str:
    if isinstance(operand, Expression):
        return texts[id(operand)]
    if isinstance(operand, Members):
        shown = [*map(str, operand.values.ravel()[:4].tolist()), *(["…"] if operand.values.size > 4 else [])]
        return f"{{{', '.join(shown)}}}"
    if isinstance(operand, np.ndarray) and operand.size != 1:
        return f"values{'×'.join(str(length) for length in operand.shape if length > 1)}"
    return str(operand.item() if isinstance(operand, (np.ndarray, np.generic)) else operand)
