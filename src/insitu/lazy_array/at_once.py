"""Operations whose operands are at hand: what is small and was read is computed at once, as in memory.

To make the nodes of an operation, and to find what they are computed from, takes ten times as long as to compute a
hundred values. So the expression is made only if somebody asks for it: a reduction, a server, a text. Values, types
and views are those of the expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.expressions.element_operations import KINDS, MAX_OPERATIONS, count_operations, current_errors
from insitu.expressions.moves import StructuralMove
from insitu.expressions.nodes import Expression
from insitu.expressions.point_selection import TooManyPointsError
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.scanning.member import in_memory

__all__ = ["AT_ONCE_BYTES", "Postponed", "call_at_once", "move_at_once"]

Values = npt.NDArray[Any]

AT_ONCE_BYTES = 4 << 20
"""Bytes of all operands of an operation that is computed at once, and of its result: more are computed when they are
needed, without values in between, in boxes and by several threads.
"""
WIDEST = 16
"""Bytes of an element of a result, at most."""
MOST_POSTPONED = 32
"""How many operations within each other are postponed: to make them takes as many calls within each other."""
REFUSALS = (ArithmeticError, LookupError, TypeError, ValueError, Warning)
"""What NumPy may raise: the expression then raises it where it always does."""


class Postponed:
    """An operation on virtual arrays, of which the expression is made when somebody asks for it.

    Parameters
    ----------
    function
        Returns the array that has the expression, or values.
    arguments
        Its arguments: virtual arrays and others.
    operations
        How many operations that are at most.
    compute
        Returns the values, given those of the arguments: they are carried where there is no expression.
    """

    __slots__ = ("_arguments", "_compute", "_errors", "_function", "_kind", "_made", "depth", "operations")

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        operations: int = 0,
        compute: Callable[..., Any] | None = None,
    ) -> None:
        self._function, self._compute, self._errors = function, compute, current_errors()
        self.operations = operations
        """How many operations it has at most, those of its arguments included."""
        self._made: Expression | None = None
        self._arguments: list[Any] = []
        self._kind: type[DeferredValues] = DeferredValues
        self.depth = 1
        arrays = [given for given in arguments if isinstance(given, DeferredValues)]
        others = sum(given.repeated_value is None for given in arrays)
        for given in arguments:
            if isinstance(given, DeferredValues):
                self._kind = type(given)
                if others and given.repeated_value is not None:  # xarray makes such arrays to choose from them
                    self._arguments.append(given.repeated_value)
                    continue
                given = given.source
                if isinstance(given, Postponed):
                    if given.depth >= MOST_POSTPONED:
                        given = given.make()
                    else:
                        self.depth = max(self.depth, given.depth + 1)
            self._arguments.append(given)

    def make(self) -> Expression:
        """Return the expression, the same one every time."""
        if self._made is None:
            arguments = [given.make() if isinstance(given, Postponed) else given for given in self._arguments]
            arrays = [self._kind.bare(given) if isinstance(given, Expression) else given for given in arguments]
            with np.errstate(**dict(self._errors)):  # type: ignore[arg-type]
                try:
                    found = self._function(*arrays)
                except TooManyPointsError:
                    found = NotImplemented
                if found is NotImplemented and self._compute is not None:
                    values = [np.asarray(given) if isinstance(given, DeferredValues) else given for given in arrays]
                    found = self._compute(*values)
            if not isinstance(found, DeferredValues):
                carried = in_memory(np.asarray(found))
                assert carried is not None, "numbers can be carried"
                found = self._kind(carried)
            self._made, self._arguments = found.node, []
        return self._made


def call_at_once(
    compute: Callable[..., Any],
    make: Callable[..., Any],
    arguments: Sequence[Any],
    shape: tuple[int, ...] | None = None,
) -> Any:
    """Return an operation of values at hand as a virtual array; None if it is not for small values at hand.

    Parameters
    ----------
    compute
        Returns the values of the result, given those of the arguments.
    make
        Returns the same as a virtual array that was not computed.
    arguments
        Virtual arrays, arrays in memory, numbers.
    shape
        Of the result; None: that of the arguments, broadcast.
    """
    inputs: list[Any] = []
    operands: list[Any] = []
    kind: type[DeferredValues] | None = None
    together: tuple[int, ...] = ()
    nbytes, operations = 0, 1
    for argument in arguments:
        if isinstance(argument, DeferredValues):
            values = argument.find_at_hand()
            if values is None:
                return None
            kind = type(argument)
            operations += _count_operations(argument)
        elif type(argument) is np.ndarray:
            values = argument
            argument = np.array(values) if values.nbytes <= AT_ONCE_BYTES else None  # an operand is a snapshot
        elif argument is None or isinstance(argument, (bool, int, float, complex, np.generic)):
            inputs.append(argument)
            operands.append(argument)
            continue
        else:
            return None
        nbytes += values.nbytes
        if nbytes > AT_ONCE_BYTES or values.dtype.kind not in KINDS:
            return None
        if shape is None and together != values.shape:
            together = values.shape if not together else np.broadcast_shapes(together, values.shape)
        inputs.append(values)
        operands.append(argument)
    if (
        kind is None
        or operations >= MAX_OPERATIONS
        or math.prod(together if shape is None else shape) * WIDEST > AT_ONCE_BYTES
    ):
        return None
    try:
        found = np.asarray(compute(*inputs))
    except REFUSALS:
        return None
    if found.dtype.kind not in KINDS:
        return None
    found.flags.writeable = False
    return kind.of_values(Postponed(make, operands, operations, compute), found)


def _count_operations(array: DeferredValues) -> int:
    """Return how many operations an array has at most: what is used several times may be counted as often."""
    source = array.source
    return source.operations if isinstance(source, Postponed) else count_operations([array.node])


def move_at_once(move: StructuralMove, make: Callable[[Any], Any], array: DeferredValues) -> Any:
    """Return values at hand after a structural operation as a virtual array; None if they are not at hand, or would be
    copied and are not small.

    Parameters
    ----------
    move
        The operation.
    make
        Returns the same as a virtual array that was not computed, given one.
    array
        The array.
    """
    values = array.find_at_hand()
    if values is None or values.dtype.kind not in KINDS or not (move.makes_view or values.nbytes <= AT_ONCE_BYTES):
        return None
    try:
        found = move.of_values(values)
    except REFUSALS:
        return None
    found.flags.writeable = False
    made = array.of_values(Postponed(make, [array], _count_operations(array), move.of_values), found)
    made.is_view = move.makes_view
    return made
