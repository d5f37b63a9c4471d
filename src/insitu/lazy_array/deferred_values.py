"""`DeferredValues`: an expression whose values are computed when they are needed.

This is the state of a `LazyArray` without its NumPy and xarray interfaces. Loading, showing and
dispatching need no more, so their modules lie below `duck_array` and never import it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from insitu.expressions.nodes import Expression, Stored, is_stored, without_moves
from insitu.model import VirtualArray
from insitu.process_options import options
from insitu.reading import ReadContext

__all__ = ["DeferredValues"]


class DeferredValues:
    """An expression, and whether it may be written to.

    Parameters
    ----------
    source
        An expression, or a stored array.
    context
        How the stored array is read.
    """

    __slots__ = ("is_view", "node")

    def __init__(self, source: VirtualArray | Expression, context: ReadContext | None = None) -> None:
        self.node = source if isinstance(source, Expression) else Stored(source, context or ReadContext())
        self.is_view = False
        """Whether NumPy would show the memory of another array here. Such an array cannot be written to."""

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError("only a LazyArray can be indexed")

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
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self.node.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.node.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.node.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.node.size

    @property
    def nbytes(self) -> int:
        """Bytes of all values, once they are read."""
        return self.node.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.node.dtype.itemsize
