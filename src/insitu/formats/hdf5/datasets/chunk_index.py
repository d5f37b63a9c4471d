"""Reader of chunk indexes: the location of every chunk of a chunked dataset.

All index types (format specification 3.0, VII) give the same rows: place in the grid, offset,
length and filter mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from insitu.formats.hdf5.structures.chunk_rows import ChunkRows
from insitu.formats.hdf5.structures.dataspace import Dataspace
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.layout import ChunkedLayout
from insitu.formats.parsing.scheduler import Walk

if TYPE_CHECKING:
    from insitu.formats.hdf5.structures.fixed_array import Elements

__all__ = ["chunk_grid", "read_chunks"]

BATCH = 1 << 16
"""Elements decoded at once."""


@lru_cache(maxsize=1024)
def chunk_grid(shape: tuple[int, ...], chunk: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of chunks along each axis."""
    return tuple(-(-length // size) for length, size in zip(shape, chunk, strict=True))


def read_chunks(file: FileContext, layout: ChunkedLayout, space: Dataspace, filters: int) -> Walk[ChunkRows]:
    """Return all written chunks of a dataset.

    Parameters
    ----------
    file
        The file.
    layout
        How it is cut, and where the index lies.
    space
        Its extent.
    filters
        How many filters its pipeline has.
    """
    if len(layout.chunk) != len(space.shape):
        file.fail(f"has chunks of shape {layout.chunk}, but the dataset has shape {space.shape}", 0, "data layout")
    rows = ChunkRows(file, chunk_grid(space.shape, layout.chunk))
    address = layout.address
    if address is None or 0 in space.shape:
        return rows
    # A file has one or two of these indexes, and the compiled parser reads most of them: their readers are imported
    # where they are needed.
    if layout.index == "btree_v1":
        from insitu.formats.hdf5.structures.btree_v1 import read_chunk_tree

        yield from read_chunk_tree(file, address, layout.chunk, rows)
    elif layout.index == "single":
        _add_single(file, layout, rows, address)
    elif layout.index == "implicit":
        _add_implicit(file, layout, space, rows, address)
    elif layout.index == "btree_v2":
        yield from _read_btree_v2(file, layout, rows, address)
    elif layout.index == "fixed_array":
        from insitu.formats.hdf5.structures.fixed_array import read_fixed_array

        expected = math.prod(_largest_grid(layout, space))
        elements = yield from read_fixed_array(file, address, expected)
        _add_numbered(file, layout, space, rows, elements, None)
    else:
        unlimited = [axis for axis, limit in enumerate(space.limits) if limit is None]
        if len(unlimited) != 1:
            file.fail(
                f"is an extensible array, but the dataset has {len(unlimited)} unlimited axes instead of one",
                address,
                "chunk index",
            )
        from insitu.formats.hdf5.structures.extensible_array import read_extensible_array

        elements = yield from read_extensible_array(file, address)
        _add_numbered(file, layout, space, rows, elements, unlimited[0])
    if layout.unfiltered_edges and filters:
        _mark_unfiltered_edges(layout, space, rows, filters)
    return rows


def _add_single(file: FileContext, layout: ChunkedLayout, rows: ChunkRows, address: int) -> None:
    length = layout.nbytes if layout.single_size is None else layout.single_size
    rows.add(
        np.zeros((1, len(layout.chunk)), np.int64),
        np.array([address], np.uint64),
        np.array([length], np.int64),
        np.array([layout.single_mask], np.uint32),
        "single chunk index",
    )


def _largest_grid(layout: ChunkedLayout, space: Dataspace) -> tuple[int, ...]:
    """Return the chunk grid of the maximum shape, by which elements are numbered.

    An unlimited axis counts with its current length.
    """
    limits = tuple(
        length if limit is None else max(length, limit) for length, limit in zip(space.shape, space.limits, strict=True)
    )
    return chunk_grid(limits, layout.chunk)


def _add_implicit(file: FileContext, layout: ChunkedLayout, space: Dataspace, rows: ChunkRows, address: int) -> None:
    """Chunks one behind the other (VII.B), unfiltered, all allocated."""
    grid = _largest_grid(layout, space)
    count, size = math.prod(grid), layout.nbytes
    file.range(address, count * size, "implicit chunk index")
    numbers = np.arange(count, dtype=np.uint64)
    index = np.stack(np.unravel_index(numbers.astype(np.int64), grid), axis=1)
    rows.add(index, np.uint64(address) + numbers * np.uint64(size), np.full(count, size), None, "implicit chunk index")


def _read_btree_v2(file: FileContext, layout: ChunkedLayout, rows: ChunkRows, address: int) -> Walk[None]:
    """Version 2 B-tree: record type 10 (address, place) or 11 (address, size, mask, place)."""
    from insitu.formats.hdf5.structures.btree_v2 import read_tree

    width, rank = file.offset_size, len(layout.chunk)

    def decode(table: npt.NDArray[np.uint8], kind: int) -> None:
        rest = table.shape[1] - 8 * rank - width
        if (kind == 10 and rest != 0) or (kind == 11 and not 5 <= rest <= 12):
            file.fail(f"has records of {table.shape[1]} bytes", address, "chunk B-tree")
        records = table.view(_record_dtype(width, rest, rank)).reshape(-1)
        places = rows.places(records["place"], (1,) * rank)
        # Narrow integers compare faster. Places beyond the grid are clipped to one number there, so
        # the stored ones are compared if that fails.
        if places is not None and not _is_ascending(places) and not _is_ascending(records["place"]):
            # The library would look in the wrong branch and give the fill value; the right place is
            # unknown.
            file.fail("has records out of order, or one twice", address, "chunk B-tree")
        _add_records(file, layout, rows, places, records, "chunk B-tree")

    yield from read_tree(file, address, (10, 11), decode, exact=True)


def _is_ascending(places: npt.NDArray[Any]) -> bool:
    """Whether records of nodes of one level are in lexicographic order, without duplicates."""
    later, earlier = places[1:], places[:-1]
    decided = np.zeros(len(later), bool)
    for axis in range(places.shape[1]):
        if (~decided & (later[:, axis] < earlier[:, axis])).any():
            return False
        decided |= later[:, axis] > earlier[:, axis]
    return bool(decided.all())


@lru_cache(maxsize=64)
def _record_dtype(width: int, rest: int, rank: int) -> np.dtype[Any]:
    """Return the dtype of a record of a chunk index.

    An address; with filters the stored size and the mask; in some indexes the place in the grid.
    """
    fields: dict[str, tuple[Any, int]] = {"address": (f"<u{width}", 0)}
    if rest:
        # The size has rest - 4 bytes: read 4 or 8, and cut off what belongs to the next field.
        fields["size"] = ("<u8" if rest >= 8 else "<u4", width)
        fields["mask"] = ("<u4", width + rest - 4)
    if rank:
        fields["place"] = (("<u8", (rank,)), width + rest)
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype(
        {"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": width + rest + 8 * rank}
    )


def _add_records(
    file: FileContext,
    layout: ChunkedLayout,
    rows: ChunkRows,
    places: npt.NDArray[Any] | None,
    records: npt.NDArray[Any],
    structure: str,
) -> None:
    """Add records of any index to the rows."""
    if places is None:
        file.fail("has chunks outside the dataset", layout.address or 0, structure)
    address = records["address"].astype(np.uint64)
    names = records.dtype.names or ()
    if "size" not in names:
        rows.add(places, address, np.full(len(records), layout.nbytes, np.int64), None, structure)
        return
    assert records.dtype.fields is not None
    width = records.dtype.fields["mask"][1] - records.dtype.fields["size"][1]
    length = records["size"].astype(np.uint64) & np.uint64((1 << 8 * width) - 1)
    if (length >> np.uint64(62)).any():
        file.fail("has chunks of impossible size", layout.address or 0, structure)
    rows.add(places, address, length.astype(np.int64), records["mask"], structure)


def _add_numbered(
    file: FileContext,
    layout: ChunkedLayout,
    space: Dataspace,
    rows: ChunkRows,
    elements: Elements,
    unlimited: int | None,
) -> None:
    """Add elements that are numbered in C order of the largest grid.

    The unlimited axis, if there is one, varies slowest.
    """
    grid = _largest_grid(layout, space)
    order = list(range(len(grid)))
    if unlimited:
        order.insert(0, order.pop(unlimited))
    width = file.offset_size
    for numbers, table in _iterate_batches(elements):
        rest = table.shape[1] - width
        if rest and not 5 <= rest <= 12:
            file.fail(f"has elements of {table.shape[1]} bytes", layout.address or 0, "chunk index")
        records = table.view(_record_dtype(width, rest, 0)).reshape(-1)
        used = records["address"] != file.undefined  # what was never written
        if not used.all():
            records, numbers = records[used], numbers[used]
        index = np.empty((len(numbers), len(grid)), np.int64)
        for axis in reversed(order[1:]):
            numbers, index[:, axis] = np.divmod(numbers, min(max(grid[axis], 1), 1 << 62))
        index[:, order[0]] = numbers
        _add_records(file, layout, rows, index, records, "chunk index")


def _iterate_batches(elements: Elements) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]]:
    """Runs of elements put together, so that many small ones cost no more than few large ones."""
    start = 0
    while start < len(elements):
        end, count = start, 0
        while end < len(elements) and (count < BATCH or end == start):
            count += len(elements[end][1])
            end += 1
        batch_elements = elements[start:end]
        numbers = [np.arange(first, first + len(table)) for first, table in batch_elements]
        yield np.concatenate(numbers), np.concatenate([table for _, table in batch_elements])
        start = end


def _mark_unfiltered_edges(layout: ChunkedLayout, space: Dataspace, rows: ChunkRows, filters: int) -> None:
    """Chunks that reach over the edge were stored without filters: say so in their masks."""
    whole = np.array([length // size for length, size in zip(space.shape, layout.chunk, strict=True)])
    everything = np.uint32((1 << filters) - 1)
    for number, index in enumerate(rows.index):
        partial = (index >= whole).any(axis=1)
        if not partial.any():
            continue
        mask = rows.mask[number] if len(rows.mask[number]) else np.zeros(len(index), np.uint32)
        rows.mask[number] = np.where(partial, everything, mask).astype(np.uint32)
