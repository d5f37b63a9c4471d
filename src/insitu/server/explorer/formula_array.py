"""Formulas in place of variables: a path that begins with `=` is computed of the variables that it names.

Everywhere that the explorer's API takes the path of a variable it takes a formula, too, as in
`variable==tas - 273.15`. Functions here read, reduce and estimate both alike: a stored array is the
simplest expression.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError
from insitu.expressions.build_formula import NamedExpression, build_formula, python_of_formula
from insitu.expressions.chunk_grid import tile_borders
from insitu.expressions.cost import Cost, cost
from insitu.expressions.element_operations import KINDS
from insitu.expressions.evaluate import read_all
from insitu.expressions.moves import select_elements
from insitu.expressions.nodes import Expression, Stored
from insitu.expressions.parse_formula import Call, Formula, Name, Number
from insitu.forking import cached_property
from insitu.model import Selection, VirtualArray
from insitu.reading import ReadContext, read_array

__all__ = [
    "FormulaArray",
    "ShownArray",
    "borders_along",
    "estimate_values",
    "group_of_array",
    "read_values",
    "select_values",
]

SAME_UNITS = ("add", "subtract", "minimum", "maximum", "fmin", "fmax", "where", "fillna", "hypot")
"""Operations whose operands have the units of the result."""
OWN_UNITS = ("negative", "positive", "absolute", "fabs", "floor", "ceil", "trunc", "rint", "round", "clip")
"""Operations that leave the units of their first operand."""
NO_UNITS = (
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "equal",
    "not_equal",
    "isnull",
    "isfinite",
    "isinf",
    "sign",
)


@dataclass(eq=False)
class FormulaArray:
    """What a formula computes of the variables of an archive, described as a variable is."""

    text: str
    """As it was typed, without the `=`."""
    formula: Formula
    leaves: Mapping[str, tuple[str, VirtualArray]]
    """By name in the formula, the path and the array of a variable."""
    group: str
    """Path of the group in which coordinates are looked for."""
    dims: tuple[str, ...] = field(init=False)
    shape: tuple[int, ...] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)
    encoding: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = self.bind(ReadContext())
        self.dims, self.shape, self.dtype = named.dims, named.expression.shape, named.expression.dtype
        if self.dtype.kind not in KINDS:
            raise ModelError(f"the formula {self.text[:100]!r} gives no numbers, but values of type {self.dtype}")

    def bind(self, context: ReadContext) -> NamedExpression:
        """Return the expression, whose arrays are read in a context."""

        def find(name: str) -> NamedExpression | None:
            if name not in self.leaves:
                return None
            path, array = self.leaves[name]
            return NamedExpression(array.dims, Stored(array, context.of_variable(path)))

        with np.errstate(all="ignore"):  # a division by zero is seen in the picture
            return build_formula(self.formula, find)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """What is known of the values: the formula, and their units, where these follow from it."""
        units = _units(self.formula, {name: array.attributes.get("units") for name, (_, array) in self.leaves.items()})
        return {"long_name": self.text, **({"units": units} if isinstance(units, str) else {})}

    @property
    def python(self) -> str:
        """Python code of the formula, in which `ds` is the dataset (a tree, for variables of groups)."""

        def variable(name: str) -> str:
            if name not in self.leaves:
                return f"np.{name}"
            group, _, last = self.leaves[name][0].rpartition("/")
            return f"tree[{f'{group}/{last}'!r}]" if group else f"ds[{last!r}]"

        return python_of_formula(self.formula, variable)


ShownArray = VirtualArray | FormulaArray
"""What the explorer shows: a variable as it is stored, or a formula."""


def group_of_array(path: str, array: ShownArray) -> str:
    """Return the path of the group in which the coordinates of a variable or a formula are looked for."""
    return array.group if isinstance(array, FormulaArray) else path.rpartition("/")[0]


def select_values(array: ShownArray, key: Any, context: ReadContext | None = None) -> Expression:
    """Return what is selected of an array as an expression."""
    context = context or ReadContext()
    chosen = Selection.of(key, array.shape)
    if isinstance(array, VirtualArray):
        return Stored(array, context, chosen)
    return select_elements(array.bind(context).expression, chosen)


def estimate_values(array: ShownArray, key: Any) -> Cost:
    """Return what it takes to read, or to compute, a selection of an array."""
    return cost(select_values(array, key))


def read_values(array: ShownArray, key: Any, context: ReadContext) -> npt.NDArray[Any]:
    """Return a selection of an array."""
    if isinstance(array, VirtualArray):
        return read_array(array, key, context)
    return read_all([select_values(array, key, context)], once=True)[0]


def borders_along(array: ShownArray, dim: str) -> npt.NDArray[np.int64]:
    """Return the borders of chunks along a dimension; of a formula, those of all its variables."""
    if isinstance(array, VirtualArray):
        return tile_borders(array, array.dims.index(dim))
    found = [tile_borders(leaf, leaf.dims.index(dim)) for _, leaf in array.leaves.values() if dim in leaf.dims]
    return np.unique(np.concatenate(found)) if found else np.array([], np.int64)


ANY_UNITS = ""
"""The units of nan, which is missing in any."""


def _units(formula: Formula, units: Mapping[str, Any]) -> Any:
    """Return the units of a formula; None where they are unknown."""
    match formula:
        case Number():
            return None
        case Name(text):
            return units.get(text) if text in units else ANY_UNITS if text == "nan" else None
        case Call(function, arguments):
            return _units_of_call(function, [_units(argument, units) for argument in arguments])
    raise AssertionError(f"unknown node {type(formula)}")


def _units_of_call(function: str, given: Sequence[Any]) -> Any:
    if function in NO_UNITS:
        return "1"
    if function in OWN_UNITS:
        return given[0]
    if function == "true_divide":
        return "1" if given[0] == given[1] and isinstance(given[0], str) else None
    if function in SAME_UNITS:
        known = [one for one in given[function == "where" :] if one != ANY_UNITS]
        return known[0] if known and all(one == known[0] for one in known) else None
    return None
