"""Element-wise operations on expressions: arithmetic, null tests, filling, masking, casting.

An operation reads nothing. Only what NumPy would refuse raises at once. What does not fit (objects, large arrays
in memory, very many operations) gives no expression: the caller computes on the values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.expressions.moves import add_dimensions, broadcast
from insitu.expressions.nodes import (
    CAST,
    Constant,
    Errors,
    Expression,
    Operation,
    WindowsOf,
    is_stored,
    iterate_nodes,
    make_operation,
    without_moves,
)
from insitu.model.elementwise import Members, result_type

__all__ = [
    "CONSTANT_BYTES",
    "KINDS",
    "MAX_OPERATIONS",
    "cast",
    "combine",
    "count_operations",
    "current_errors",
    "fill_null",
    "find_filled",
    "find_null_tested",
    "find_operand",
    "is_incomplete",
    "is_null",
    "mask",
]

CONSTANT_BYTES = 64 << 20
"""Bytes of an array in memory that an expression takes along."""
MAX_OPERATIONS = 200
"""Operations of an expression: with more, the values are computed."""
KINDS = "biufcmM"
"""Kinds of types that operands may have."""


def current_errors() -> Errors:
    """Return how NumPy treats floating-point errors now."""
    return _select_errors(*np.geterr().items())


@lru_cache
def _select_errors(*settings: tuple[str, str]) -> Errors:
    return tuple((kind, how) for kind, how in settings if how in ("ignore", "warn", "raise"))


def is_incomplete(dtype: np.dtype[Any]) -> bool:
    """Return whether a type has no length or unit yet (`str`, `"M8"`): NumPy derives it from what is cast."""
    return not dtype.itemsize or (dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic")


def combine(function: str, *inputs: Any, errors: Errors | None = None) -> Expression | None:
    """Return an operation of expressions and others; None if that is not possible.

    Parameters
    ----------
    function
        Its name in `insitu.model.elementwise`.
    inputs
        Its operands: expressions, arrays in memory, numbers; at least one is an expression.
    errors
        How NumPy is to treat floating-point errors; by default as it does now.
    """
    if not all(map(_fits, inputs)) or count_operations(inputs) >= MAX_OPERATIONS:
        return None
    arrays = [given for given in inputs if isinstance(given, (Expression, np.ndarray))]
    types = [given.dtype if isinstance(given, (Expression, np.ndarray)) else given for given in inputs]
    dtype = result_type(function, types)
    if dtype.kind not in KINDS:
        return None
    shape = arrays[0].shape if len(arrays) == 1 else np.broadcast_shapes(*(given.shape for given in arrays))
    nodes = [Constant(_without_repetition(given)) if isinstance(given, np.ndarray) else given for given in inputs]
    operands = [add_dimensions(given, len(shape)) if isinstance(given, Expression) else given for given in nodes]
    made = make_operation(function, operands, dtype, current_errors() if errors is None else errors)
    return broadcast(made, shape)


def _fits(given: Any) -> bool:
    """Return whether an operand can be a part of an expression."""
    if given is None or isinstance(given, (bool, int, float, complex, Members)):
        return True
    if isinstance(given, (Expression, np.generic)):
        return given.dtype.kind in KINDS
    if type(given) is not np.ndarray or given.dtype.kind not in KINDS:
        return False
    return _without_repeats(given).nbytes <= CONSTANT_BYTES


def _without_repeats(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return values with length 1 where they are broadcast."""
    return values[tuple(slice(None) if stride else slice(0, 1) for stride in values.strides)]


def _without_repetition(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of values, with length 1 where they are broadcast."""
    copied = np.array(_without_repeats(values))
    copied.flags.writeable = False
    return copied


def count_operations(inputs: Any) -> int:
    """Return how many operations some expressions have together; one that is used several times counts once."""
    roots = [given for given in inputs if isinstance(given, Expression) and not is_stored(given)]
    return sum(isinstance(node, (Operation, WindowsOf)) for node in iterate_nodes(roots)) if roots else 0


def cast(expression: Expression, dtype: np.dtype[Any], errors: Errors = (), order: str = "K") -> Expression:
    """Return an expression in another type.

    Parameters
    ----------
    expression, dtype
        What to cast, and to which type.
    errors
        How NumPy is to treat floating-point errors.
    order
        How the values are to lie in memory, as for `numpy.ndarray.astype`.
    """
    return make_operation(CAST, (expression, order), dtype, errors)


def is_null(expression: Expression) -> Expression:
    """Return which elements are NaN or NaT."""
    return make_operation("isnat" if expression.dtype.kind in "mM" else "isnan", (expression,), np.dtype(bool))


def fill_null(expression: Expression, value: Any, dtype: np.dtype[Any]) -> Expression:
    """Return an expression with one value in place of the missing ones.

    Parameters
    ----------
    expression
        The expression.
    value
        A scalar of the type of the result.
    dtype
        That type.
    """
    scalar: Any = np.asarray(value, dtype)[()]
    return make_operation("where", (is_null(expression), scalar, expression), dtype)


def mask(expression: Expression, condition: npt.NDArray[np.bool_], other: Any, dtype: np.dtype[Any]) -> Expression:
    """Return an expression with another value where a condition, which broadcasts to its shape, does not hold."""
    condition_node = add_dimensions(Constant(_without_repetition(condition)), expression.ndim)
    scalar: Any = np.asarray(other, dtype)[()]
    same = expression if expression.dtype == dtype else cast(expression, dtype)
    return make_operation("where", (condition_node, same, scalar), dtype)


# What an expression is, for reductions that know a shorter way.


def find_operand(expression: Expression, *functions: str) -> Expression | None:
    """Return the first operand of an expression that is one of some operations; None if it is not."""
    found = without_moves(expression)
    if not isinstance(found, Operation) or found.function not in functions:
        return None
    return found.operands[0]


def find_null_tested(expression: Expression) -> Expression | None:
    """Return the expression whose missing values an expression tells; None if it is no null test."""
    return find_operand(expression, "isnan", "isnat")


def find_filled(expression: Expression) -> tuple[Expression, Any] | None:
    """Return the expression whose missing values are filled, and the value; None if it is nothing of that kind."""
    found = without_moves(expression)
    if not isinstance(found, Operation) or found.function != "where":
        return None
    test, value, of = found.given
    if not isinstance(test, Expression) or not isinstance(of, Expression) or isinstance(value, Expression):
        return None
    tested = find_null_tested(test)
    return None if tested is None or without_moves(tested) is not without_moves(of) else (of, value)
