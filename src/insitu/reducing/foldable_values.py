"""`Foldable`: values that are reduced to partials, box by box, and `StoredValues`, those of a virtual array.

Weighted, grouped and portioned reductions take any `Foldable`, so they work alike for stored arrays
and for expressions (`insitu.lazy_array.reduce_boxes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from insitu.model import Selection, VirtualArray
from insitu.reading import ReadContext
from insitu.reading.request_cost import is_far
from insitu.reducing.partial_fields import Partial
from insitu.reducing.reductions import Reduction
from insitu.reducing.stream import fold_chunks
from insitu.reducing.whole_blocks import HasShape, longest_chunks, read_values

__all__ = ["Box", "Foldable", "StoredValues", "tile_borders"]

Box = tuple[slice, ...]


class Foldable(HasShape, Protocol):
    """Values that can be reduced to partials, box by box: stored ones, or those of an expression."""

    @property
    def name(self) -> str:
        """What they are called in messages and in the names of tasks."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element as it is read."""

    @property
    def is_far(self) -> bool:
        """Whether a request to their storage takes long."""

    @property
    def engine(self) -> Any:
        """What runs large reductions of them: see `insitu.engines`; None: this process."""

    def chunk_lengths(self, axes: Sequence[int]) -> list[int]:
        """Return the length of the longest chunk along each of some axes."""

    def chunk_borders(self, axis: int) -> npt.NDArray[np.int64]:
        """Return where chunks begin along an axis, and its end, in ascending order."""

    def fold_box(self, box: Box, axes: tuple[int, ...], reduction: Reduction) -> Partial:
        """Return the partial of a box, with length 1 along each reduced axis."""

    def read_box(self, box: Box, room: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values of a box, in `room` or elsewhere."""

    def for_workers(self) -> Self:
        """Return the same values without what cannot leave this process: open sources, counters."""


@dataclass(frozen=True, slots=True)
class StoredValues:
    """The values of a virtual array, folded chunk by chunk."""

    array: VirtualArray
    context: ReadContext
    known: npt.NDArray[Any] | None = None
    """The values, if they were kept from an earlier use."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self.array.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.array.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.array.dtype.itemsize

    @property
    def is_far(self) -> bool:
        """Whether a request to the storage takes long."""
        return is_far(self.array.sources)

    @property
    def name(self) -> str:
        """Name of the variable."""
        return self.context.name or "values"

    @property
    def engine(self) -> Any:
        """What runs large reductions; values that are known stay in this process."""
        return self.context.engine if self.known is None else None

    def chunk_lengths(self, axes: Sequence[int]) -> list[int]:
        """Return the length of the longest chunk along each of some axes."""
        return longest_chunks(self.array, axes)

    def chunk_borders(self, axis: int) -> npt.NDArray[np.int64]:
        """Return where chunks begin along an axis, and its end."""
        return tile_borders(self.array, axis)

    def fold_box(self, box: Box, axes: tuple[int, ...], reduction: Reduction) -> Partial:
        """Return the partial of a box, with length 1 along each reduced axis."""
        known = None if self.known is None else self.known[box]
        with self.context.open_sources() as opened:
            return fold_chunks(self.array, Selection.of(box, self.shape), axes, reduction, opened, known)

    def read_box(self, box: Box, room: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values of a box, in `room`."""
        with self.context.open_sources() as opened:
            return read_values(self.array, Selection.of(box, self.shape), opened, room)

    def for_workers(self) -> StoredValues:
        """Return the same values without open sources and counters."""
        how = self.context
        return StoredValues(self.array, ReadContext(how.name, how.storage_options, block_bytes=how.block_bytes))


def tile_borders(array: VirtualArray, axis: int) -> npt.NDArray[np.int64]:
    """Return where the chunks of all tiles begin along an axis, and its end, in ascending order."""
    begins = [
        tile.axis_of(axis).begin(np.arange(tile.axis_of(axis).count)) + origin
        for tile, origin in zip(array.tiles, array.origins[:, axis].tolist(), strict=True)
    ]
    return np.unique(np.concatenate([*begins, np.array([0, array.shape[axis]], np.int64)]))
