"""Element-wise steps after reading: null tests, filling, casting, masking, rounding.

xarray asks `isnan(a)`, `~mask`, `where(mask, 0, a)` on its way to a sum or a count, and
`where(mask, a, nan)` for every `ds.where`. Each such step is kept beside the virtual array and
applied to the values once they are read. A reduction that knows the pattern never applies it at
all. Steps work on each element alone, so every structural operation can be done before them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Cast", "CombineWithNumber", "FillNull", "IsNull", "Not", "Round", "Step", "Where", "is_null"]

Move = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""A structural operation, for an array of the same shape."""


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

    def dtype(self, before: np.dtype[Any]) -> np.dtype[Any]:
        """Type of the result."""
        return self.to

    def apply(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values after the step."""
        return values.astype(self.to, copy=False)

    def after_move(self, move: Move) -> Cast:
        """Return the step after a structural operation on the array."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Where:
    """Another value where a condition does not hold."""

    condition: npt.NDArray[np.bool_]
    """Of the array's shape (a broadcast view costs nothing)."""
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
        return Where(move(self.condition), self.other, self.to)


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


Step = IsNull | Not | FillNull | Cast | Where | CombineWithNumber | Round


def apply_steps(steps: tuple[Step, ...], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values after some steps."""
    for step in steps:
        values = step.apply(values)
    return values
