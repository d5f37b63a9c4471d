"""The fixed table of element-wise operations that expressions consist of.

Each has the name and the meaning of a function of NumPy. What travels to a server is such a name,
never code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ARGUMENT_COUNTS", "FUNCTIONS", "OPERATIONS", "UFUNCS", "Members", "is_in", "result_type"]

_NAMES = (
    # Arithmetic.
    "add", "subtract", "multiply", "true_divide", "floor_divide", "remainder", "fmod", "power", "float_power",
    "negative", "positive", "absolute", "fabs", "sign", "reciprocal", "square", "sqrt", "cbrt", "hypot", "copysign",
    "maximum", "minimum", "fmax", "fmin", "heaviside",
    # Exponentials and logarithms.
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp", "logaddexp2",
    # Angles.
    "sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2", "sinh", "cosh", "tanh", "arcsinh", "arccosh",
    "arctanh", "deg2rad", "rad2deg", "degrees", "radians",
    # Rounding.
    "floor", "ceil", "trunc", "rint",
    # Comparison and logic.
    "greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "logical_and", "logical_or",
    "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift",
    "isnan", "isfinite", "isinf", "isnat", "signbit",
    # Complex numbers.
    "conjugate",
)  # fmt: skip

UFUNCS: dict[np.ufunc, str] = {getattr(np, name): name for name in _NAMES}
"""NumPy's function: the name of the operation."""


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The members of a set, as one argument of an operation: they do not follow its dimensions."""

    values: npt.NDArray[Any]


def is_in(values: Any, members: Members) -> Any:
    """Return which values are among the members."""
    return np.isin(values, members.values)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": np.where,
    "clip": np.clip,
    "round": np.round,
    "is_in": is_in,
    "real": np.real,
    "imag": np.imag,
}
"""Operations that are no ufuncs."""
OPERATIONS: dict[str, Callable[..., Any]] = {name: getattr(np, name) for name in _NAMES} | FUNCTIONS
"""All operations by name."""
ARGUMENT_COUNTS: dict[str, int] = {
    **{name: getattr(np, name).nin for name in _NAMES},
    "where": 3,
    "clip": 3,
    "round": 2,
    "is_in": 2,
    "real": 1,
    "imag": 1,
}
"""How many arguments an operation takes."""


def result_type(name: str, types: Sequence[Any]) -> np.dtype[Any]:
    """Return the type of the result, as NumPy has it for arrays.

    Parameters
    ----------
    name
        Of the operation.
    types
        For each argument the type of an array, or a number, which is weak if it is one of Python.

    Raises
    ------
    TypeError
        If NumPy does not do this to such types.
    """
    if all(isinstance(given, np.dtype) and given.metadata is None for given in types):
        return _type_of_arrays(name, *types)
    examples = [np.empty((0,), given) if isinstance(given, np.dtype) else given for given in types]
    result: np.dtype[Any] = np.asarray(OPERATIONS[name](*examples)).dtype
    return result


@lru_cache
def _type_of_arrays(name: str, *types: np.dtype[Any]) -> np.dtype[Any]:
    return np.asarray(OPERATIONS[name](*[np.empty((0,), given) for given in types])).dtype
