"""Do the chunks of a dataset lie where h5py says that they lie?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from insitu.model import Inline, Stored, Unwritten

__all__ = ["chunk_problem"]

Row = tuple[tuple[int, ...], int, int, int]
"""Cell, offset, size and filter mask of a chunk."""


def chunk_problem(reference: h5py.Dataset, array: Any) -> str:
    """Say what differs from `get_chunk_info` (or `get_offset` for contiguous data); "" if nothing
    does.
    """
    if not len(array.tiles):
        return "" if 0 in reference.shape else "no tile"
    if reference.is_virtual or reference.external:
        return ""
    tile = array.tiles[0]
    if reference.chunks is None:
        return _contiguous(reference, tile)
    grid = tuple(-(-length // size) for length, size in zip(reference.shape, reference.chunks, strict=True))
    if tile.chunks.shape[: len(grid)] != grid:
        return f"grid {tile.chunks.shape}, not {grid}"
    expected = _rows(reference)
    if isinstance(expected, str):
        return expected
    if not expected:
        corner = [] if 0 in grid else [tile.chunks[(0,) * len(tile.chunks.shape)]]
        written = [state for state in corner if not isinstance(state, Unwritten | Inline)]
        return f"{written[0]} although nothing is written" if written else ""
    if _turned(reference):
        return _by_content(reference, tile, grid)
    return _by_place(reference, tile, expected, grid)


def _contiguous(reference: h5py.Dataset, tile: Any) -> str:
    if tile.chunks.shape and int(np.prod(tile.chunks.shape)) != 1:
        return ""
    state, offset, size = (
        tile.chunks[(0,) * len(tile.chunks.shape)],
        reference.id.get_offset(),
        reference.id.get_storage_size(),
    )
    if not isinstance(state, Stored):
        return ""
    if offset is None:
        # Of compact data, references into heaps are read from where they stand in the header.
        in_heap = reference.id.get_create_plist().get_layout() == h5py.h5d.COMPACT and tile.encodings[0].dtype.hasobject
        return f"{state} although nothing is allocated" if reference.size and not in_heap else ""
    # A damaged message may claim more bytes than the dataset has.
    if state.offset != offset or state.length > size:
        return f"contiguous data at {state.offset}, {state.length} bytes, not {offset}, {size}"
    return ""


def _rows(reference: h5py.Dataset) -> list[Row] | str:
    """Every chunk inside the dataset's extent."""
    found: list[Any] = []
    try:
        reference.id.chunk_iter(found.append)
    except RuntimeError as error:
        return f"h5py: {error}"
    rows = []
    for info in found:
        if all(first < length for first, length in zip(info.chunk_offset, reference.shape, strict=True)):
            cell = tuple(first // size for first, size in zip(info.chunk_offset, reference.chunks, strict=True))
            rows.append((cell, info.byte_offset, info.size, info.filter_mask))
    return rows


def _turned(reference: h5py.Dataset) -> bool:
    """Whether the dataset may have an extensible array with its axes turned round.

    Where one axis is unlimited and it is not the first, the array counts the chunks along it
    slowest. The library (2.0) forgets to turn the axes back when it lists chunks, and gives
    coordinates outside of the dataset; reading is right.
    """
    return reference.maxshape.count(None) == 1 and reference.maxshape[0] is not None


def _own_codecs(reference: h5py.Dataset, tile: Any) -> int:
    """Steps of decoding that come before the file's filters (where values lie, which bits count):
    bits of the mask that it does not have.
    """
    return len(tile.encodings[0].codecs) - reference.id.get_create_plist().get_nfilters()


def _by_content(reference: h5py.Dataset, tile: Any, grid: tuple[int, ...]) -> str:
    """Compare the bytes that lie there with those that the library reads as that chunk."""
    with Path(reference.file.filename).open("rb") as file:
        for cell in np.ndindex(grid):
            state = tile.chunks[(*cell, *(0,) * (len(tile.chunks.shape) - len(grid)))]
            corner = tuple(number * size for number, size in zip(cell, reference.chunks, strict=True))
            try:
                mask, data = reference.id.read_direct_chunk(corner)
            except RuntimeError:
                if isinstance(state, Stored):
                    return f"chunk {cell} is written, but not for h5py"
                continue
            if isinstance(state, Inline):
                continue
            if not isinstance(state, Stored):
                return f"chunk {cell} is {state}"
            file.seek(state.offset)
            whole = (1 << reference.id.get_create_plist().get_nfilters()) - 1
            found = state.filter_mask >> _own_codecs(reference, tile) & whole
            unfiltered = (
                found == whole and len(data) == int(np.prod(reference.chunks)) * reference.id.get_type().get_size()
            )
            if (found != mask & whole and not unfiltered) or file.read(state.length) != data:
                return f"chunk {cell} at {state.offset}, {state.length} bytes, mask {state.filter_mask}: other bytes"
    return ""


def _by_place(reference: h5py.Dataset, tile: Any, expected: list[Row], grid: tuple[int, ...]) -> str:
    more = len(tile.chunks.shape) - len(grid)  # axes of an array type: one cell each
    index = np.array([(*cell, *(0,) * more) for cell, *_ in expected], "i8").reshape(len(expected), len(grid) + more)
    located = tile.chunks.locate([index[:, axis] for axis in range(index.shape[1])])
    if (np.asarray(located.source) == -3).all():
        return ""  # kept inline: no place in the file to compare
    columns = np.array([row[1:] for row in expected], "i8")
    found = (located.offset, located.length, np.asarray(located.filter_mask) >> _own_codecs(reference, tile))
    actual = np.stack([np.broadcast_to(column, len(expected)) for column in found], 1).astype("i8")
    bits = (1 << reference.id.get_create_plist().get_nfilters()) - 1  # others say nothing
    columns[:, 2] &= bits
    actual[:, 2] &= bits
    # The library can be told not to filter partial edge chunks: a property of the dataset there, a
    # full mask here.
    last = np.array(reference.shape) // np.array(reference.chunks)
    partial = (index[:, : len(grid)] >= last).any(axis=1)
    actual[partial & (actual[:, 2] == bits) & (columns[:, 2] == 0), 2] = 0
    bad = np.flatnonzero((actual != columns).any(axis=1) | (np.asarray(located.source) < 0))
    if bad.size:
        cell = expected[bad[0]][0]
        return (
            f"{len(bad)} of {len(expected)} chunks, {cell}: offset, size, mask {actual[bad[0]]}, not {columns[bad[0]]}"
        )
    total = int(np.prod(grid))
    if total <= 1_000_000:
        cells = np.indices((*grid, *(1,) * more)).reshape(len(grid) + more, -1)
        written = int((np.broadcast_to(tile.chunks.locate(list(cells)).source, total) >= 0).sum())
        if written != len(expected):
            return f"{written} chunks written, not {len(expected)}"
    return ""
