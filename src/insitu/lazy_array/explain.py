"""The plan of an evaluation or reduction: blocks, chunks, bytes fetched and decoded, and where it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from insitu.lazy_array.boxes import BoxMemory, iterate_boxes
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.evaluate import BOX_BYTES
from insitu.lazy_array.formula_text import formula, stored_arrays
from insitu.lazy_array.options import options
from insitu.lazy_array.reduce_boxes import NEEDS_ALL_VALUES, REDUCED_BYTES
from insitu.lazy_array.reduce_on_server import reason_to_compute_here, server_of
from insitu.lazy_array.representation import format_bytes
from insitu.model import Tile, byte_ranges
from insitu.model.cell_counts import count_table
from insitu.sources.redaction import redact_url

__all__ = ["Explanation", "StoredPart", "explain"]


@dataclass(frozen=True, slots=True)
class StoredPart:
    """What is read of one stored array."""

    name: str
    chunks: int
    """Chunks that are fetched and decoded."""
    bytes_fetched: int
    """Their stored bytes."""
    bytes_decoded: int
    """Their bytes once they are decoded, about."""
    files: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the values of an array, or a reduction of it, come about; its text is for people."""

    formula: str
    reduction: str | None
    """The statistic; None: all values are wanted."""
    shape: tuple[int, ...]
    """Of the result."""
    dtype: np.dtype[np.generic]
    """Of what is read or computed, before a reduction."""
    blocks: int
    """Blocks that are computed one after another, some at a time; 1 if values are only read."""
    block_bytes: int
    """Bytes of the largest."""
    parts: tuple[StoredPart, ...]
    server: str | None
    """The server next to the data where it runs; None: here."""
    reason: str | None = None
    """Why it runs here, although a server was named."""

    @property
    def chunks(self) -> int:
        """Chunks that are fetched and decoded."""
        return sum(part.chunks for part in self.parts)

    @property
    def bytes_fetched(self) -> int:
        """Their stored bytes."""
        return sum(part.bytes_fetched for part in self.parts)

    @property
    def bytes_decoded(self) -> int:
        """Their bytes once they are decoded, about."""
        return sum(part.bytes_decoded for part in self.parts)

    def __repr__(self) -> str:
        result = " × ".join(map(str, self.shape)) or "one value"
        lines = [
            self.formula if self.reduction is None else f"{self.reduction} of {self.formula}",
            f"  result: {result}, of {self.dtype} values",
            f"  in {_count(self.blocks, 'block')} of at most {format_bytes(self.block_bytes)}",
            *(
                f"  reads {part.name}: {_count(part.chunks, 'chunk')} of {_count(part.files, 'file')}, "
                f"{format_bytes(part.bytes_fetched)} fetched, {format_bytes(part.bytes_decoded)} decoded"
                for part in self.parts
            ),
        ]
        if self.server is None:
            lines.append(f"  runs here: {format_bytes(self.bytes_fetched)} are fetched")
            lines += [f"  not on the server: {self.reason}"] if self.reason else []
        else:
            lines.append(f"  runs on the server {redact_url(self.server)}: only the result travels")
        return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def explain(array: DeferredValues, reduction: str | None = None, axes: Sequence[int] | None = None) -> Explanation:
    """Return how the values of a virtual array or expression come about, without reading any.

    Parameters
    ----------
    array
        The array.
    reduction
        Name of a statistic that is taken of it; None: its values are wanted.
    axes
        Along which; None: all.
    """
    gone = range(array.ndim) if axes is None else axes
    shape = array.shape if reduction is None else tuple(n for axis, n in enumerate(array.shape) if axis not in gone)
    sizes = _block_sizes(array, reduction)
    parts = tuple(_explain_stored(stored) for stored in stored_arrays(array))
    largest = max(sizes, default=0) * array.dtype.itemsize
    active, reason = server_of(array), reason_to_compute_here(array)
    server = None if active is None or reduction is None or reason is not None else active.url
    return Explanation(formula(array), reduction, shape, array.dtype, len(sizes), largest, parts, server, reason)


def _block_sizes(array: DeferredValues, reduction: str | None) -> list[int]:
    """Return the elements of each block; values that are only read are one block."""
    if (reduction is None and not array.steps) or reduction in NEEDS_ALL_VALUES:
        return [array.size]
    memory = BoxMemory(BOX_BYTES if reduction is None else min(REDUCED_BYTES, options.block_bytes))
    return [math.prod(part.stop - part.start for part in box) for box in iterate_boxes(array, memory=memory)]


def _explain_stored(array: DeferredValues) -> StoredPart:
    """Return what is read of one array; a chunk that several of its cells show counts once."""
    columns = [np.stack(part) for part in byte_ranges(array.array)]
    ranges = np.unique(np.concatenate(columns, axis=1), axis=1) if columns else np.zeros((3, 0), np.int64)
    decoded = sum(_decoded_bytes(tile) for tile in array.array.tiles)
    files = len(np.unique(ranges[0]))
    return StoredPart(array.access.name or "array", ranges.shape[1], int(ranges[2].sum()), decoded, files)


def _decoded_bytes(tile: Tile) -> int:
    """Return the bytes of all stored chunks of a tile; those of the cells without one are left out by their share."""
    elements = math.prod(int(np.maximum(axis.show(np.arange(axis.count)).stored, 1).sum()) for axis in tile.axes)
    cells = math.prod(tile.chunks.shape)
    stored = count_table(tile.chunks).stored
    return round(elements * max(encoding.dtype.itemsize for encoding in tile.encodings) * stored / max(cells, 1))
