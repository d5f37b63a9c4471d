"""Expressions as text: the formula of an array, and the stored arrays in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.steps import (
    ITSELF,
    Apply,
    Cast,
    CombineWithNumber,
    FillNull,
    IsNull,
    Not,
    Round,
    Step,
    Where,
)
from insitu.lazy_array.windows import TakeWindows, each_part, has_windows
from insitu.model.elementwise import Members

__all__ = ["formula", "stored_arrays"]

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


def formula(array: DeferredValues) -> str:
    """Return an array as a formula of the variables that it is computed from."""
    text = _text(array, {})
    if array.steps and text.startswith("(") and _is_infix(array.steps[-1]):
        text = text[1:-1]
    return text


Known = dict[int, str]
"""Texts of parts that several steps share, by identity."""


def _text(array: DeferredValues, known: Known) -> str:
    if id(array) not in known:
        text = array.access.name or "array"
        for step in array.steps:
            text = _apply_text(step, text, known)
            if len(text) > MAX_CHARS:  # at once: `x = x + x` would double it each time
                text = f"{text[: MAX_CHARS // 2]} … {text[-MAX_CHARS // 2 :]}"
        known[id(array)] = text
    return known[id(array)]


def _is_infix(step: Step) -> bool:
    return isinstance(step, Apply) and step.operation in SYMBOLS and len(step.arguments) == 2


def _apply_text(step: Step, before: str, known: Known) -> str:
    """Return the text of a step on something."""
    match step:
        case Apply():
            arguments = [
                before if argument is ITSELF else _argument_text(argument, known) for argument in step.arguments
            ]
            if _is_infix(step):
                return f"({arguments[0]} {SYMBOLS[step.operation]} {arguments[1]})"
            return f"{step.operation}({', '.join(arguments)})"
        case CombineWithNumber(ufunc, number):
            return f"{ufunc.__name__}({before}, {number})"
        case Cast(to):
            return f"{to}({before})"
        case Where():
            return f"where(mask, {before}, {step.other})"
        case FillNull(value):
            return f"fillna({before}, {value})"
        case IsNull():
            return f"isnull({before})"
        case Not():
            return f"~{before}"
        case Round(decimals):
            return f"round({before}, {decimals})"
        case TakeWindows(windows, _, method):
            lengths = "×".join(str(len(window.offsets)) for window in windows.along.values())
            shown = f"windows({_text(windows.inner, known)}, {lengths})"
            return shown if method is None else f"{method}({shown})"


def _argument_text(argument: Any, known: Known) -> str:
    if isinstance(argument, DeferredValues):
        return _text(argument, known)
    if isinstance(argument, Members):
        shown = [*map(str, argument.values.ravel()[:4].tolist()), *(["…"] if argument.values.size > 4 else [])]
        return f"{{{', '.join(shown)}}}"
    if isinstance(argument, np.ndarray) and argument.size != 1:
        return f"values{'×'.join(str(length) for length in argument.shape if length > 1)}"
    return str(argument.item() if isinstance(argument, (np.ndarray, np.generic)) else argument)


def stored_arrays(array: DeferredValues) -> Iterator[DeferredValues]:
    """Yield the stored arrays that an expression consists of, each once; not those that carry their values."""
    stored: dict[int, DeferredValues] = {}
    for part in each_part(array):
        if has_windows(part.steps) is None:
            stored.setdefault(id(part.array), part)
    return (part for part in stored.values() if part.array.sources)
