"""Virtual arrays of datasets in a set of files (family, split or multi driver).

A set is scanned as one file (`JoinedFile`), but each chunk is read from the member that holds it,
by that member's own URL. So readers of the result need to know nothing about sets. Chunks that lie
in two members are stored inline.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import UnsupportedError
from insitu.formats.hdf5.datasets.arrays import array_details, dataset_encoding, virtual_array
from insitu.formats.hdf5.datasets.external_data import SourceSegment, align_to_elements, array_of_runs
from insitu.formats.hdf5.datasets.objects import Dataset
from insitu.formats.hdf5.linked.joined_file import JoinedFile
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.layout import ContiguousLayout
from insitu.model import INLINE, ChunkTable, Columns, VirtualArray

__all__ = ["member_array"]

INLINE_LIMIT = 64 << 20
CELLS_LIMIT = 1 << 22


def member_array(
    joined: JoinedFile,
    file: FileContext,
    dataset: Dataset,
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    attributes: dict[str, Any],
) -> VirtualArray:
    """Return the virtual array of a dataset in a set of files; see `virtual_array`."""
    layout = dataset.layout
    heaped = dataset.datatype.is_variable_length or dataset.datatype.has_nested_variable_length
    seen = _relative_to_heap(joined, file) if heaped else file
    if isinstance(layout, ContiguousLayout) and layout.address is not None and not dataset.space.null:
        whole = (*shape, *dataset.datatype.shape)
        length = math.prod(dataset.space.shape) * dataset.datatype.size
        if shape == dataset.space.shape and length and (layout.size is None or layout.size >= length):
            encoding = dataset_encoding(seen, dataset)
            size = dataset.datatype.size // math.prod(dataset.datatype.shape)
            parts = [
                SourceSegment(run.member.source, run.offset, run.length)
                for run in joined.runs(layout.address + file.base, length)
            ]
            runs = align_to_elements(parts, size)
            _check_heap_file(joined, heaped, [run.source for run in runs])
            return array_of_runs(runs, encoding, whole, dims, attributes, array_details(dataset, shape), size)
    array = virtual_array(file, joined.describe(), dataset, shape, dims, attributes)
    if not len(array.tiles):
        return array
    tile = array.tiles[0]
    table = _split_by_member(joined, tile.chunks)
    used = np.unique(table.source)
    _check_heap_file(joined, heaped, [table.sources[number] for number in used.tolist() if number >= 0])
    made = VirtualArray.of(
        dataclasses.replace(tile, encodings=(dataset_encoding(seen, dataset),), chunks=table),
        dims=dims,
        attributes=attributes,
        fill_value=array.fill_value,
        details=array.details,
    )
    return made


def _relative_to_heap(joined: JoinedFile, file: FileContext) -> FileContext:
    """Return the file with addresses relative to the member that holds its global heaps."""
    if joined.heap is None:
        raise UnsupportedError(
            "variable-length values are not supported in a family of files: their heaps may lie in any member",
            hint="Join its members into one file, in their order (`cat x_*.h5 > x.h5`, or h5repart)",
        )
    moved = copy.copy(file)
    moved.base = file.base - joined.heap.start
    return moved


def _check_heap_file(joined: JoinedFile, heaped: bool, sources: list[Any]) -> None:
    if heaped and any(source != joined.heap.source.describe() for source in sources if source and joined.heap):
        raise UnsupportedError(
            "variable-length values are not supported if their references and heaps are in different files of a set",
            hint="Repack the set into one file with h5repack",
        )


def _split_by_member(joined: JoinedFile, table: ChunkTable) -> Columns:
    """A table of the set as one of its members."""
    total = math.prod(table.shape)
    if isinstance(table, Columns):
        source, offset, length = (
            np.broadcast_to(column, table.shape).reshape(-1) for column in (table.source, table.offset, table.length)
        )
        mask: npt.NDArray[Any] = table.filter_mask
        inline = bytearray(table.inline)
    else:
        if total > CELLS_LIMIT:
            raise UnsupportedError(f"a sparse grid of {table.shape} chunks is not supported in a set of files")
        found = table.locate(list(np.indices(table.shape).reshape(len(table.shape), -1)))
        source, offset, length = found.source, found.offset, found.length
        mask = np.broadcast_to(found.filter_mask, (total,)).reshape(table.shape)
        inline = bytearray()
    source, length = source.astype(np.int64), length.astype(np.int64)
    # Addresses of a split set begin at 2^63 - 1: as signed numbers they overflow.
    place = offset.astype(np.int64).view(np.uint64)
    starts = np.array([member.start for member in joined.members], np.uint64)
    member = np.maximum(np.searchsorted(starts, place, side="right").astype(np.int64) - 1, 0)
    stored = source >= 0
    inside = np.where(stored, place - starts[member], place).astype(np.int64)
    lengths = np.array([m.length for m in joined.members], np.int64)
    seams = np.flatnonzero(stored & (inside + length > lengths[member]))
    if int(length[seams].sum()) > INLINE_LIMIT:
        raise UnsupportedError(
            f"chunks that lie in two files of a set are not supported above {INLINE_LIMIT} bytes in total"
        )
    source = np.where(stored, member, source)
    for cell in seams.tolist():
        data = b"".join(joined.read_many([(int(place[cell]), int(length[cell]))]))
        source[cell], inside[cell] = INLINE, len(inline)
        inline += data
    return Columns(
        table.shape,
        tuple(member.source.describe() for member in joined.members),
        source.reshape(table.shape),
        inside.reshape(table.shape),
        length.reshape(table.shape),
        mask,
        inline=bytes(inline),
    )
