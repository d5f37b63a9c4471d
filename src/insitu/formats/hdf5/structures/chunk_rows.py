"""Table of the written chunks of a dataset, whatever index they were found through.

NumPy columns, filled batch by batch; there is no Python object per chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.formats.hdf5.structures.compiled_metadata import Cells
from insitu.formats.hdf5.structures.file import FileContext

__all__ = ["ChunkRows", "is_ascending"]


def _smallest_integer(limit: int) -> type[np.signedinteger[Any]]:
    return np.int16 if limit < 1 << 15 else np.int32 if limit < 1 << 31 else np.int64


@dataclass(slots=True)
class ChunkRows:
    """Written chunks: where in the grid, and where in the file."""

    file: FileContext
    grid: tuple[int, ...]
    """Chunks along each axis."""
    index: list[npt.NDArray[Any]] = field(default_factory=list)
    """(rows, axes): the place in the grid."""
    offset: list[npt.NDArray[Any]] = field(default_factory=list)
    """Absolute."""
    length: list[npt.NDArray[Any]] = field(default_factory=list)
    mask: list[npt.NDArray[Any]] = field(default_factory=list)
    whole: Cells | None = None
    """Instead of all these, offset, length and mask of all cells of the grid, in C order: as narrow as they can be, and
    a number where it is the same for all."""

    def places(
        self, first: npt.NDArray[np.uint64], chunk: tuple[int, ...]
    ) -> npt.NDArray[np.signedinteger[Any]] | None:
        """Return the places in the grid of chunks given by their first elements.

        None if one is not the first element of a chunk.
        """
        index = np.empty(first.shape, _smallest_integer(max(self.grid, default=0)))
        for axis, size in enumerate(chunk):
            # One axis at a time: numpy divides by a single number several times faster than by an
            # array of them.
            column = np.ascontiguousarray(first[:, axis])
            place = column // np.uint64(size)
            if (place * np.uint64(size) != column).any():
                return None
            np.minimum(place, np.uint64(self.grid[axis]), out=place)  # beyond the grid is beyond, however far
            index[:, axis] = place
        return index

    def add(
        self,
        index: npt.NDArray[Any],
        address: npt.NDArray[np.uint64],
        length: npt.NDArray[Any],
        mask: npt.NDArray[Any] | None,
        structure: str,
    ) -> bool:
        """Add rows and return whether all were kept.

        Chunks beyond the grid (of a dataset that shrank) and undefined addresses are left out.
        """
        if not len(address):
            return True
        file = self.file
        keep = address != np.uint64(file.undefined)
        for axis, count in enumerate(self.grid):
            keep &= index[:, axis] < count
        whole = bool(keep.all())
        if not whole:
            index, address, length = index[keep], address[keep], length[keep]
            mask = None if mask is None else mask[keep]
            if not len(address):
                return False
        self._check(index, address, length, structure)
        # A million rows are held twice while they are joined: as narrow as they can be.
        self.index.append(index.astype(_smallest_integer(max(self.grid, default=0)), copy=False))
        self.offset.append((address + np.uint64(file.base)).astype(np.uint32 if file.size < 1 << 32 else np.int64))
        # Copies, never views: a view would keep the whole table that it came from.
        self.length.append(length.astype(np.uint32 if int(length.max()) < 1 << 32 else np.int64))
        self.mask.append(np.zeros(0, np.uint32) if mask is None or not mask.any() else mask.astype(np.uint32))
        return whole

    def _check(
        self, index: npt.NDArray[Any], address: npt.NDArray[np.uint64], length: npt.NDArray[Any], structure: str
    ) -> None:
        """Raise if a chunk lies outside the file."""
        file = self.file
        last = int(address.max()) + file.base
        if last <= file.size:
            if last + int(length.max()) <= file.size:  # nearly always, and cheaper than adding them up
                return
            end = address + length.astype(np.uint64)
            invalid = int(np.argmax(end))
            if int(end[invalid]) + file.base <= file.size:
                return
        else:
            invalid = int(np.argmax(address))
        place = tuple(int(i) for i in index[invalid])
        file.fail(f"places chunk {place} outside the file", min(int(address[invalid]), file.size), structure)

    def columns(
        self,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any] | int]:
        """Return grid places, offsets, lengths and filter masks of all rows."""
        if self.whole is not None:
            index = np.indices(self.grid).reshape(len(self.grid), -1).T
            offset, length = (np.broadcast_to(column, len(index)) for column in self.whole[:2])
            return index, offset, length, self.whole[2]
        if not self.index:
            none = np.zeros(0, np.int64)
            return np.zeros((0, len(self.grid)), np.int64), none, none, 0
        mask: npt.NDArray[Any] | int = 0
        if any(len(part) for part in self.mask):
            for number, offset in enumerate(self.offset):
                if not len(self.mask[number]):
                    self.mask[number] = np.zeros(len(offset), np.uint32)
            mask = _concatenate(self.mask)
        else:
            self.mask[:] = self.mask[:1]
        return _concatenate(self.index), _concatenate(self.offset), _concatenate(self.length), mask


def _concatenate(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if len(parts) > 1:
        parts[:] = [np.concatenate(parts)]
    return parts[0]


def is_ascending(index: npt.NDArray[Any]) -> bool:
    """Whether rows are in lexicographic order, without duplicates."""
    # Keys of 64 bits only come here when they are damaged: a sign is enough to know.
    step = (
        np.sign(np.diff(index.astype(np.float64), axis=0))
        if index.dtype.itemsize > 4
        else np.diff(index.astype(np.int64), axis=0)
    )
    if not len(step):
        return True
    first = (step != 0).argmax(axis=1)
    return bool((np.take_along_axis(step, first[:, None], axis=1) > 0).all())
