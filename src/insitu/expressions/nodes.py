"""The nodes that expressions consist of: stored arrays, values in memory, operations, windows, moves.

Nodes are frozen and compared by identity: what is one object is read and computed once. Each knows its shape
and type. Operands of an operation have as many dimensions as the result, with length 1 where they are
broadcast, so a selection of the result is one of each operand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from insitu.expressions.window_statistics import Window
from insitu.model import Selection, VirtualArray
from insitu.model.elementwise import Members
from insitu.model.selection import Selector, Stride
from insitu.reading import ReadContext
from insitu.reading.value_cache import KeptKey

__all__ = [
    "CAST",
    "Broadcast",
    "Constant",
    "Errors",
    "Expression",
    "Move",
    "Moved",
    "Operand",
    "Operation",
    "Stored",
    "WindowsOf",
    "is_stored",
    "iterate_nodes",
    "make_operation",
    "stored_arrays",
    "to_rows",
    "without_moves",
]

Values = npt.NDArray[Any]
Shape = tuple[int, ...]
Errors = tuple[tuple[str, str], ...]
"""Settings of `np.errstate`."""
CAST = "astype"
"""The operation that gives another type; its second operand is the order in memory, as for `numpy.ndarray.astype`."""
MOST_MOVES = 16
"""How many moves one after another are remembered."""


class Move(Protocol):
    """A structural operation, as those of `moves`."""

    def of_values(self, values: Values) -> Values:
        """Return values after the operation."""


class Expression:
    """What all nodes have: shape, type, how it is read, and the key of kept values."""

    __slots__ = ("__weakref__", "_chunk_sizes", "_key")

    shape: Shape
    dtype: np.dtype[Any]

    @property
    def context(self) -> ReadContext:
        """How its main stored array is read."""
        return self.operands[0].context

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all values, once they are computed."""
        return self.size * self.dtype.itemsize

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The expressions that it is computed from."""
        return ()

    @property
    def key(self) -> KeptKey | None:
        """Of its values in the cache, once they were kept."""
        return getattr(self, "_key", None)

    def make_key(self) -> KeptKey:
        """Return the key of its values; what is kept under it goes with the node."""
        if self.key is None:
            assert self.context.values is not None, "there is no cache"
            object.__setattr__(self, "_key", self.context.values.new_key())
        return self._key  # type: ignore[attr-defined, no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_rows, (to_rows(self),)


@dataclass(frozen=True, slots=True, eq=False)
class Stored(Expression):
    """A stored array, or a part of one that is cut out when that is needed: most parts are read once, and then it
    is not.
    """

    whole: VirtualArray
    context: ReadContext = field(default_factory=ReadContext, repr=False)
    selection: Selection | None = None
    """What is selected of it; None: all."""
    shape: Shape = field(init=False)
    _cut: VirtualArray | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        shape = self.whole.shape if self.selection is None else self.selection.result_shape
        object.__setattr__(self, "shape", shape)

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """Type of the values."""
        return self.whole.dtype

    @property
    def array(self) -> VirtualArray:
        """The array, or the part as an array of its own, the same one every time."""
        if self.selection is None:
            return self.whole
        if self._cut is None:
            object.__setattr__(self, "_cut", self.whole[self.selection])
        assert self._cut is not None
        return self._cut

    @property
    def is_cut(self) -> bool:
        """Whether it is an array of its own by now."""
        return self.selection is None or self._cut is not None

    @property
    def is_box(self) -> bool:
        """Whether it is a box of the array that it was selected from, or all of it: every element in order."""
        return self.selection is None or all(map(_is_run, self.selection.selectors))

    @property
    def request(self) -> tuple[VirtualArray, Any]:
        """What to read: the array, or the part of the one that it was selected from, which a cache that reads ahead
        follows.
        """
        return self.whole, ... if self.selection is None else self.selection

    @property
    def identity(self) -> tuple[int, int]:
        """The same for arrays that are read from the same place."""
        return id(self.whole), id(self.selection)


def _is_run(selector: Selector) -> bool:
    """Return whether a selector takes elements that lie one after the other, in order."""
    if isinstance(selector, Stride):
        return selector.step == 1
    return isinstance(selector, np.ndarray) and bool(len(selector)) and bool((np.diff(selector) == 1).all())


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expression):
    """Values in memory."""

    values: Values = field(repr=False)
    context: ReadContext = field(default_factory=ReadContext, repr=False)

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """Elements along each dimension."""
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """Type of the values."""
        return self.values.dtype


Operand = Expression | bool | int | float | complex | np.generic | Members | str | None
"""Numbers of Python stay what they are: NumPy lets them take the type of the array beside them."""


@dataclass(frozen=True, slots=True, eq=False)
class Operation(Expression):
    """An element-wise operation."""

    function: str
    """Its name in `insitu.model.elementwise`, or `CAST`."""
    given: tuple[Operand, ...]
    """Its operands: expressions of as many dimensions, and numbers."""
    shape: Shape
    dtype: np.dtype[Any]
    context: ReadContext = field(repr=False)
    errors: Errors = field(default=(), repr=False)
    """How NumPy was to treat floating-point errors when the operation was asked for."""

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The expressions that it is computed from."""
        return tuple(operand for operand in self.given if isinstance(operand, Expression))

    def with_operands(self, made: Mapping[int, Expression]) -> Operation:
        """Return the operation of what became of its operands, by their identities."""
        given = [made[id(operand)] if isinstance(operand, Expression) else operand for operand in self.given]
        return make_operation(self.function, given, self.dtype, self.errors)


def make_operation(
    function: str, given: Sequence[Operand], dtype: np.dtype[Any], errors: Errors = (), shape: Shape | None = None
) -> Operation:
    """Return an operation; how it is read is as its largest operand is.

    Parameters
    ----------
    function, given, dtype, errors
        As for `Operation`.
    shape
        Of the result, if it is known.
    """
    arrays = [operand for operand in given if isinstance(operand, Expression)]
    if shape is None:
        shape = arrays[0].shape if len(arrays) == 1 else np.broadcast_shapes(*(array.shape for array in arrays))
    main = arrays[0] if len(arrays) == 1 else max(arrays, key=lambda one: (not isinstance(one, Constant), one.size))
    return Operation(function, tuple(given), shape, dtype, main.context, errors)


@dataclass(frozen=True, slots=True, eq=False)
class Broadcast(Expression):
    """An expression with as many dimensions, repeated along those of length 1."""

    of: Expression
    shape: Shape

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """Type of the values."""
        return self.of.dtype

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The expressions that it is computed from."""
        return (self.of,)


Place = tuple[str, int]
"""What a dimension of windows is: see `windows`."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowsOf(Expression):
    """Windows over an expression (`rolling`, `coarsen`), shown as new dimensions, or a statistic of each.

    Dimensions of the expression that the result does not have are of length 1, or have one window.
    """

    of: Expression
    along: dict[int, Window]
    """By dimension of the expression."""
    layout: tuple[Place, ...]
    """What each dimension of the result is: see `windows`."""
    dtype: np.dtype[Any]
    method: str | None = None
    """Of `window_statistics.METHODS`; None: the elements are shown."""
    ddof: int = 0
    errors: Errors = field(default=(), repr=False)
    least: int = 0
    """With fewer values that are not missing in a window, its statistic is missing."""

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """Elements along each dimension."""
        return tuple(self._length(*place) for place in self.layout)

    def _length(self, kind: str, axis: int) -> int:
        if kind == "new":
            return 1
        if kind == "shown":
            return len(self.along[axis].offsets)
        return len(self.along[axis].starts) if axis in self.along else self.of.shape[axis]

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The expressions that it is computed from."""
        return (self.of,)


@dataclass(frozen=True, slots=True, eq=False)
class Moved(Expression):
    """An expression after a structural operation (a selection, a transposition), and what it was before it: values that
    were kept of that are used for this, too.
    """

    of: Expression
    move: Move
    direct: Expression
    """The same with the move done to each of its arrays."""
    moves: int = 1
    """How many moves one after another it is the last of."""

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """Elements along each dimension."""
        return self.direct.shape

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """Type of the values."""
        return self.direct.dtype

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The expressions that it is computed from."""
        return (self.direct,)

    @staticmethod
    def remember(of: Expression, move: Move, direct: Expression) -> Expression:
        """Return a moved expression, with what it was before if something may be kept of that."""
        moves = of.moves + 1 if isinstance(of, Moved) else 1
        if of.context.values is None or moves > MOST_MOVES or isinstance(of, Constant):
            return direct
        return Moved(of, move, direct, moves)


def without_moves(expression: Expression) -> Expression:
    """Return an expression whose last moves were done to its arrays."""
    return expression.direct if isinstance(expression, Moved) else expression


def is_stored(expression: Expression) -> bool:
    """Return whether an expression is only read: nothing is computed."""
    return isinstance(without_moves(expression), Stored)


def iterate_nodes(
    roots: Iterable[Expression], known: Iterable[int] = (), *, into_windows: bool = True
) -> Iterator[Expression]:
    """Yield all nodes of some expressions, each once, after those that it is computed from.

    No function calls itself here: an expression may have hundreds of operations within each other.

    Parameters
    ----------
    roots
        The expressions.
    known
        Identities of nodes that are left out, with what only they need.
    into_windows
        Whether the expressions that windows lie in are among them.
    """
    seen = set(known)
    for root in roots:
        waiting: list[tuple[Expression, bool]] = [(root, False)]
        while waiting:
            node, is_ready = waiting.pop()
            if is_ready:
                yield node
            elif id(node) not in seen:
                seen.add(id(node))
                waiting.append((node, True))
                if into_windows or not isinstance(node, WindowsOf):
                    waiting.extend((operand, False) for operand in reversed(node.operands))


def stored_arrays(expression: Expression) -> list[Stored]:
    """Return the stored arrays that an expression consists of, each once; not those that carry their values."""
    found: dict[tuple[int, int], Stored] = {}
    for node in iterate_nodes([expression]):
        if isinstance(node, Stored):
            found.setdefault(node.identity, node)
    # Not `array.sources`, which makes an object of each: of 166,440 files that takes a second.
    return [stored for stored in found.values() if any(len(tile.chunks.sources) for tile in stored.array.tiles)]


@dataclass(frozen=True, slots=True)
class _Number:
    """The row of an operand."""

    number: int


def to_rows(expression: Expression, with_contexts: bool = True) -> list[tuple[Any, ...]]:
    """Return the nodes of an expression as rows of their types and fields: nodes within nodes, pickled as they are,
    would be as many calls within each other.

    Parameters
    ----------
    expression
        The expression.
    with_contexts
        Whether the rows say how it is read, too.
    """
    rows: list[tuple[Any, ...]] = []
    numbers: dict[int, _Number] = {}
    for node in iterate_nodes([expression]):
        if isinstance(node, Moved):
            numbers[id(node)] = numbers[id(node.direct)]
            continue
        numbers[id(node)] = _Number(len(rows))
        row = [type(node), *(_field_of_row(value, numbers) for value in _fields(node))]
        rows.append(tuple(row if with_contexts else [value for value in row if not isinstance(value, ReadContext)]))
    return rows


def _fields(node: Expression) -> tuple[Any, ...]:
    match node:
        case Stored():
            return node.array, node.context
        case Constant():
            return node.values, node.context
        case Operation():
            return node.function, node.given, node.shape, node.dtype, node.context, node.errors
        case Broadcast():
            return node.of, node.shape
        case WindowsOf():
            return node.of, node.along, node.layout, node.dtype, node.method, node.ddof, node.errors, node.least
    raise AssertionError(f"{type(node)} is no node of its own")


def _field_of_row(value: Any, numbers: dict[int, _Number]) -> Any:
    if isinstance(value, tuple):
        return tuple(_field_of_row(part, numbers) for part in value)
    return numbers[id(value)] if isinstance(value, Expression) else value


def _from_rows(rows: Sequence[tuple[Any, ...]]) -> Expression:
    """Return the expression that `to_rows` has written."""
    made: list[Expression] = []

    def resolve(value: Any) -> Any:
        if isinstance(value, tuple) and any(isinstance(part, _Number) for part in value):
            return tuple(map(resolve, value))
        return made[value.number] if isinstance(value, _Number) else value

    for kind, *fields in rows:
        made.append(kind(*map(resolve, fields)))
    return made[-1]
