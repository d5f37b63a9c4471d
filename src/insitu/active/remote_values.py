"""Values that servers can reduce, and their stored arrays, each with the servers next to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np

from insitu.active.placement import Placement
from insitu.active.wire_array import array_to_wire
from insitu.model import Selection, VirtualArray
from insitu.reading import ReadContext
from insitu.reducing.foldable_values import Foldable, StoredValues

__all__ = ["Leaf", "RemoteArray", "RemoteValues"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A stored array, the servers next to its data, and how its data is opened."""

    array: VirtualArray
    name: str
    placements: tuple[Placement, ...]
    token: str | None = field(default=None, repr=False)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)


class RemoteValues(Protocol):
    """Values that servers can reduce: those of a stored array, or of an expression."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""

    @property
    def name(self) -> str | None:
        """What they are called in messages."""

    @property
    def grid(self) -> VirtualArray:
        """The array of their shape whose chunks say where pieces end."""

    def leaves(self) -> Sequence[Leaf]:
        """Return the stored arrays that they are computed from; not those that carry their values."""

    def select(self, piece: Selection) -> Self:
        """Return a piece of the values."""

    def to_wire(self) -> dict[str, Any]:
        """Return the entries of a job that name them."""

    def open(self) -> AbstractContextManager[Foldable]:
        """Return the values for reducing them on this machine, within a `with` block."""


@dataclass(frozen=True, slots=True)
class RemoteArray:
    """The values of one stored array."""

    array: VirtualArray
    context: ReadContext
    placements: tuple[Placement, ...] = ()
    token: str | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.array.dtype

    @property
    def name(self) -> str | None:
        """Name of the variable."""
        return self.context.name

    @property
    def grid(self) -> VirtualArray:
        """The array."""
        return self.array

    def leaves(self) -> Sequence[Leaf]:
        """Return the array, with its servers."""
        name = self.context.name or "an array"
        return [Leaf(self.array, name, self.placements, self.token, self.context.storage_options)]

    def select(self, piece: Selection) -> RemoteArray:
        """Return a piece of the values."""
        return replace(self, array=self.array[piece])

    def to_wire(self) -> dict[str, Any]:
        """Return the entry of a job that has the location of every chunk."""
        return {"array": array_to_wire(self.array)}

    @contextmanager
    def open(self) -> Iterator[Foldable]:
        """Return the values for reducing them on this machine."""
        with self.context.open_sources() as opened:
            yield StoredValues(self.array, opened)
