"""`DeferredValues`: an expression whose values are computed when they are needed.

This is the state of a `LazyArray` without its NumPy and xarray interfaces. Loading, showing and
dispatching need no more, so their modules lie below `duck_array` and never import it.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from insitu.expressions.nodes import Expression, Stored, is_stored, without_moves
from insitu.model import VirtualArray
from insitu.process_options import options
from insitu.reading import ReadContext

__all__ = ["DeferredValues", "PostponedExpression"]

Values = npt.NDArray[Any]


class PostponedExpression(Protocol):
    """An expression that is made when somebody asks for it: see `insitu.lazy_array.at_once`."""

    def make(self) -> Expression:
        """Return the expression, the same one every time."""


class DeferredValues:
    """An expression, and whether it may be written to.

    Parameters
    ----------
    source
        An expression, or a stored array.
    context
        How the stored array is read.
    """

    __slots__ = ("_at_hand", "_is_bare", "_source", "dtype", "is_view", "shape")

    def __init__(self, source: VirtualArray | Expression, context: ReadContext | None = None) -> None:
        node = source if isinstance(source, Expression) else Stored(source, context or ReadContext())
        self._source: Expression | PostponedExpression = node
        self._at_hand: Values | None = None
        """The values, if they were computed at once."""
        self._is_bare = False
        self.shape: tuple[int, ...] = node.shape
        """Elements along each dimension."""
        self.dtype: np.dtype[Any] = node.dtype
        """Type of the values."""
        self.is_view = False
        """Whether NumPy would show the memory of another array here. Such an array cannot be written to."""

    @classmethod
    def of_values(cls, source: Expression | PostponedExpression, values: Values) -> Self:
        """Return an array whose values are at hand: nobody writes to them."""
        made = cls.__new__(cls)
        made._source, made._at_hand, made._is_bare, made.is_view = source, values, False, False
        made.shape, made.dtype = values.shape, values.dtype
        return made

    @classmethod
    def bare(cls, node: Expression) -> Self:
        """Return an array whose values are not looked for: what is made of it is an expression."""
        made = cls(node)
        made._is_bare = True
        return made

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError("only a LazyArray can be indexed")

    @property
    def node(self) -> Expression:
        """The expression."""
        if not isinstance(self._source, Expression):
            self._source = self._source.make()
        return self._source

    @node.setter
    def node(self, node: Expression) -> None:
        self._source, self._at_hand, self.shape, self.dtype = node, None, node.shape, node.dtype

    @property
    def source(self) -> Expression | PostponedExpression:
        """The expression, or how it is made."""
        return self._source

    def find_at_hand(self) -> Values | None:
        """Return the values if they were computed at once, or read and kept; nobody may write to them."""
        if self._at_hand is not None:
            return self._at_hand
        node = self._source
        if self._is_bare or not isinstance(node, Expression) or node.key is None:
            return None
        cache = node.context.values
        return None if cache is None else cache.get(node.key)

    @property
    def repeated_value(self) -> Values | None:
        """The values, if they are at hand and the same one everywhere by construction."""
        values = self._at_hand
        return None if values is None or not values.size or any(values.strides) else values

    @property
    def is_stored(self) -> bool:
        """Whether its values are only read: nothing is computed."""
        return is_stored(self.node)

    @property
    def array(self) -> VirtualArray:
        """The stored array that it is."""
        stored = without_moves(self.node)
        if not isinstance(stored, Stored):
            raise AttributeError("an array that is computed has no stored array of its own")
        return stored.array

    @property
    def context(self) -> ReadContext:
        """How it is read."""
        return self.node.context

    @property
    def read_limit(self) -> int:
        """Bytes up to which it is read where its values are needed: above, it becomes a Dask array."""
        return options.read_limit if self.context.read_limit is None else self.context.read_limit

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
        """Bytes of all values, once they are read."""
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize
