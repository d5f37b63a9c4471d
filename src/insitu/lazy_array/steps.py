"""Element-wise steps after reading: null tests, filling, casting, masking, rounding.

xarray asks `isnan(a)`, `~mask`, `where(mask, 0, a)` on its way to a sum or a count, and
`where(mask, a, nan)` for every `ds.where`. Each such step is kept beside the virtual array and
applied to the values once they are read. A reduction that knows the pattern never applies it at
all. Steps work on each element alone, so every structural operation can be done before them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from insitu.lazy_array.windows import TakeWindows
from insitu.model.elementwise import OPERATIONS

__all__ = [
    "ITSELF",
    "Apply",
    "Cast",
    "CombineWithNumber",
    "FillNull",
    "IsNull",
    "Not",
    "Round",
    "Step",
    "Where",
    "is_incomplete",
    "is_null",
]


class Move(Protocol):
    """A structural operation, as of `structural_moves`."""

    def values(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values after the operation."""

    def argument(self, argument: Any) -> Any:
        """Return an argument of an operation after the structural one."""


Errors = tuple[tuple[str, str], ...]
"""Settings of `np.errstate`."""


def current_errors() -> Errors:
    """Return how NumPy treats floating-point errors now."""
    return tuple((kind, how) for kind, how in np.geterr().items() if how in ("ignore", "warn", "raise"))


def is_incomplete(dtype: np.dtype[Any]) -> bool:
    """Return whether a type has no length or unit yet (`str`, `"M8"`): NumPy derives it from what is cast."""
    return not dtype.itemsize or (dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic")


def is_null(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return which elements are NaN or NaT."""
    return np.asarray(np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values))


@dataclass(frozen=True, slots=True)
class IsNull:
    """Which elements are missing."""

    def dtype(self, before: np.dtype[Any]) -> np.dtype[Any]:
        """Type of the result."""
        return np.dtype(bool)

    def apply(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values after the step."""
        return is_null(values)

    def after_move(self, move: Move) -> IsNull:
        """Return the step after a structural operation on the array."""
        return self


@dataclass(frozen=True, slots=True)
class Not:
    """Logical not."""

    def dtype(self, before: np.dtype[Any]) -> np.dtype[Any]:
        """Type of the result."""
        return np.dtype(bool)

    def apply(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values after the step."""
        return np.asarray(np.logical_not(values))

    def after_move(self, move: Move) -> Not:
        """Return the step after a structural operation on the array."""
        return self


@dataclass(frozen=True, slots=True)
class FillNull:
    """One value in place of the missing ones."""

    value: Any
    to: np.dtype[Any]
    """Type of the result."""

    def dtype(self, before: np.dtype[Any]) -> np.dtype[Any]:
        """Type of the result."""
        return self.to

    def apply(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values after the step."""
        return np.where(is_null(values), np.asarray(self.value, self.to), values.astype(self.to, copy=False))

    def after_move(self, move: Move) -> FillNull:
        """Return the step after a structural operation on the array."""
        return self


@dataclass(frozen=True, slots=True)
class Cast:
    """Another type."""

    to: np.dtype[Any]
    errors: Errors = ()
    """How NumPy was to treat floating-point errors when the cast was asked for."""
    order: Any = "K"
    """How the values are to lie in memory, as for `numpy.ndarray.astype`."""

    def dtype(self, before: np.dtype[Any]) -> np.dtype[Any]:
        """Type of the result."""
        return self.to

    def apply(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values after the step."""
        with np.errstate(**dict(self.errors)):  # type: ignore[arg-type]
            return values.astype(self.to, self.order, copy=False)

    def after_move(self, move: Move) -> Cast:
        """Return the step after a structural operation on the array."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Where:
    """Another value where a condition does not hold."""

    condition: npt.NDArray[np.bool_]
    """It broadcasts to the array's shape."""
    other: Any
    to: np.dtype[Any]

    def dtype(self, before: np.dtype[Any]) -> np.dtype[Any]:
        """Type of the result."""
        return self.to

    def apply(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values after the step."""
        return np.where(self.condition, values.astype(self.to, copy=False), np.asarray(self.other, self.to))

    def after_move(self, move: Move) -> Where:
        """Return the step after a structural operation on the array."""
        return Where(move.argument(self.condition), self.other, self.to)


@dataclass(frozen=True, slots=True)
class CombineWithNumber:
    """Arithmetic with one number, which keeps the type.

    Encoders do this in place before they write.
    """

    ufunc: np.ufunc
    number: Any

    def dtype(self, before: np.dtype[Any]) -> np.dtype[Any]:
        """Type of the result."""
        return before

    def apply(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values after the step."""
        return np.asarray(self.ufunc(values, self.number, out=np.empty_like(values), casting="same_kind"))

    def after_move(self, move: Move) -> CombineWithNumber:
        """Return the step after a structural operation on the array."""
        return self


@dataclass(frozen=True, slots=True)
class Round:
    """Rounded to so many decimals."""

    decimals: int = 0

    def dtype(self, before: np.dtype[Any]) -> np.dtype[Any]:
        """Type of the result."""
        return before

    def apply(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values after the step."""
        return np.asarray(np.round(values, self.decimals))

    def after_move(self, move: Move) -> Round:
        """Return the step after a structural operation on the array."""
        return self


class Place(Enum):
    """Where in a list of arguments the array itself stands."""

    ITSELF = "itself"


ITSELF = Place.ITSELF


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """An operation of the array with other arrays, virtual or in memory, and numbers."""

    operation: str
    """Its name in `insitu.model.elementwise`."""
    arguments: tuple[Any, ...]
    """Each is `ITSELF`, a virtual array, an array in memory, or a number. Arrays have as many
    dimensions as the array itself, with length 1 where they are broadcast.
    """
    to: np.dtype[Any]
    errors: Errors = ()
    """How NumPy was to treat floating-point errors when the expression was built."""

    @property
    def operands(self) -> tuple[Any, ...]:
        """The virtual arrays among the arguments."""
        return tuple(argument for argument in self.arguments if hasattr(argument, "access"))

    def dtype(self, before: np.dtype[Any]) -> np.dtype[Any]:
        """Type of the result."""
        return self.to

    def apply_with(
        self, values: npt.NDArray[Any], value_of: Callable[[Any], npt.NDArray[Any]], reuse: bool
    ) -> npt.NDArray[Any]:
        """Return the values after the step.

        Parameters
        ----------
        values
            Of the array itself.
        value_of
            Gives the values of an operand.
        reuse
            Whether the memory of `values` may be written to.
        """
        given = [
            values if argument is ITSELF else value_of(argument) if hasattr(argument, "access") else argument
            for argument in self.arguments
        ]
        function = OPERATIONS[self.operation]
        with np.errstate(**dict(self.errors)):  # type: ignore[arg-type]
            if reuse and isinstance(function, np.ufunc) and self.to == values.dtype:
                return np.asarray(function(*given, out=values))
            return np.asarray(function(*given))

    def with_operands(self, change: Callable[[Any], Any]) -> Apply:
        """Return the step with its virtual arrays changed."""
        changed = (change(argument) if hasattr(argument, "access") else argument for argument in self.arguments)
        return Apply(self.operation, tuple(changed), self.to, self.errors)

    def after_move(self, move: Move) -> Apply:
        """Return the step after a structural operation on the array."""
        arguments = tuple(move.argument(argument) for argument in self.arguments)
        return Apply(self.operation, arguments, self.to, self.errors)


Step = IsNull | Not | FillNull | Cast | Where | CombineWithNumber | Round | Apply | TakeWindows
