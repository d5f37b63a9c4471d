"""Expressions of formulas: names become variables, whose dimensions are joined by name as xarray does it."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from insitu.errors import InsituError, ModelError
from insitu.expressions.element_operations import combine, is_null
from insitu.expressions.formula_text import SYMBOLS
from insitu.expressions.moves import AddDimension, Transpose
from insitu.expressions.nodes import Expression
from insitu.expressions.parse_formula import MAX_INTEGER, Call, Formula, Name, Number
from insitu.model.elementwise import OPERATIONS

__all__ = ["NamedExpression", "build_formula", "python_of_formula"]

MAX_DIMENSIONS = 32
CONSTANTS = {"pi": math.pi, "nan": math.nan}
"""Numbers that have names; a variable of the same name comes first."""
EXACT: dict[str, Callable[..., int]] = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul}
"""Operations that whole numbers stay whole in."""
SIGNS = {"negative": "-", "positive": "+", "invert": "~"}


@dataclass(frozen=True, slots=True)
class NamedExpression:
    """An expression with the names of its dimensions."""

    dims: tuple[str, ...]
    expression: Expression

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each dimension."""
        return dict(zip(self.dims, self.expression.shape, strict=True))


Value = NamedExpression | int | float


def build_formula(formula: Formula, find: Callable[[str], NamedExpression | None]) -> NamedExpression:
    """Return the expression of a formula.

    Parameters
    ----------
    formula
        The formula.
    find
        Returns the variable of a name; None if there is none.

    Raises
    ------
    ModelError
        If a name is unknown, types or sizes do not fit each other, or it has no variable at all.
    """
    found = _build(formula, find)
    if not isinstance(found, NamedExpression):
        raise ModelError("the formula has no variable in it", hint="Name one, as in tas - 273.15")
    return found


def _build(formula: Formula, find: Callable[[str], NamedExpression | None]) -> Value:
    match formula:
        case Number(value):
            return value
        case Name(text, at):
            found = find(text)
            if found is None and text not in CONSTANTS:
                raise ModelError(f"there is no variable {text[:100]!r} (character {at + 1} of the formula)")
            if found is not None and len(set(found.dims)) < len(found.dims):
                raise ModelError(f"{text[:100]!r} has a dimension twice: {', '.join(found.dims)}")
            return CONSTANTS[text] if found is None else found
        case Call(function, arguments, at):
            given = [_build(argument, find) for argument in arguments]
            try:
                return _combine(function, given)
            # What NumPy raises if it does not do an operation to such types or numbers.
            except (TypeError, ValueError, OverflowError, ZeroDivisionError) as problem:
                if isinstance(problem, InsituError):
                    raise
                raise ModelError(f"{function}, at character {at + 1} of the formula: {str(problem)[:200]}") from None
    raise AssertionError(f"unknown node {type(formula)}")


def _combine(function: str, given: Sequence[Value]) -> Value:
    if function in ("isnull", "fillna") or not any(isinstance(value, NamedExpression) for value in given):
        return _combine_special(function, given)
    if function == "round" and len(given) == 1:
        given = [*given, 0]
    dims, operands = _align(given)
    made = combine(function, *operands)
    if made is None:
        raise ModelError(f"{function} is not done to values of these types")
    return NamedExpression(dims, made)


def _combine_special(function: str, given: Sequence[Value]) -> Value:
    if function in ("isnull", "fillna"):
        of = given[0]
        if not isinstance(of, NamedExpression):
            raise ModelError(f"{function} is done to a variable, not to a number")
        test = NamedExpression(of.dims, is_null(of.expression))
        return test if function == "isnull" else _combine("where", [test, given[1], of])
    numbers = [value for value in given if not isinstance(value, NamedExpression)]
    with np.errstate(all="ignore"):
        # Whole numbers stay whole, and weak beside the type of a variable.
        if function in EXACT and all(type(number) is int for number in numbers):
            number: int | float = EXACT[function](*numbers)
        else:
            number = float(OPERATIONS[function](*map(float, numbers)))
    if abs(number) > (MAX_INTEGER if isinstance(number, int) else sys.float_info.max):
        raise ModelError(f"{function} of {', '.join(map(str, numbers))} is no finite number")
    return number


def _align(given: Sequence[Value]) -> tuple[tuple[str, ...], list[Expression | int | float]]:
    """Return the dimensions of all operands, in the order in which they come first, and the operands with these
    dimensions: a length of 1 where one does not have it.
    """
    sizes: dict[str, int] = {}
    for value in given:
        for dim, size in value.sizes.items() if isinstance(value, NamedExpression) else ():
            if sizes.setdefault(dim, size) != size:
                raise ModelError(
                    f"the variables of the formula do not fit: {dim!r} has the lengths {sizes[dim]} and {size}"
                )
    if len(sizes) > MAX_DIMENSIONS:
        raise ModelError(f"the formula has more than {MAX_DIMENSIONS} dimensions")
    return tuple(sizes), [
        _with_dims(value, tuple(sizes)) if isinstance(value, NamedExpression) else value for value in given
    ]


def _with_dims(named: NamedExpression, dims: tuple[str, ...]) -> Expression:
    order = tuple(named.dims.index(dim) for dim in dims if dim in named.dims)
    found = named.expression if order == tuple(range(len(order))) else Transpose(order).apply(named.expression)
    for axis, dim in enumerate(dims):
        if dim not in named.dims:
            found = AddDimension(axis).apply(found)
    return found


def python_of_formula(formula: Formula, variable: Callable[[str], str]) -> str:
    """Return Python code that computes a formula by xarray (`xr`) and NumPy (`np`).

    Parameters
    ----------
    formula
        The formula.
    variable
        Returns the code of a variable by its name.

    Examples
    --------
    >>> from insitu.expressions.parse_formula import parse_formula
    >>> python_of_formula(parse_formula("sqrt(u**2 + v**2)"), lambda name: f"ds.{name}")
    'np.sqrt((ds.u ** 2) + (ds.v ** 2))'
    """
    text = _python(formula, variable)
    return text[1:-1] if text.startswith("(") and isinstance(formula, Call) and not _ends_a_method(formula) else text


def _ends_a_method(formula: Call) -> bool:
    return formula.function not in SYMBOLS and formula.function not in SIGNS


def _python(formula: Formula, variable: Callable[[str], str]) -> str:
    if isinstance(formula, Number):
        return f"({formula.value!r})" if formula.value < 0 else repr(formula.value)
    if isinstance(formula, Name):
        return variable(formula.text)
    given = [_python(argument, variable) for argument in formula.arguments]
    inside = [python_of_formula(argument, variable) for argument in formula.arguments]
    match formula.function:
        case function if function in SYMBOLS:
            return f"({given[0]} {SYMBOLS[function]} {given[1]})"
        case function if function in SIGNS:
            return f"({SIGNS[function]}{given[0]})"
        case "isnull":
            return f"{given[0]}.isnull()"
        case "fillna":
            return f"{given[0]}.fillna({inside[1]})"
        case "where":
            return f"xr.where({', '.join(inside)})"
        case "clip" | "round" if not isinstance(formula.arguments[0], Number):
            return f"{given[0]}.{formula.function}({', '.join(inside[1:])})"
    return f"np.{formula.function}({', '.join(inside)})"
