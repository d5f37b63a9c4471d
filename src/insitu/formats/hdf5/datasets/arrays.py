"""Virtual arrays of HDF5 datasets: axes, encoding and chunk table."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.datasets.objects import Dataset
from insitu.formats.hdf5.structures.attribute_values import end_record_texts
from insitu.formats.hdf5.structures.chunk_rows import is_ascending
from insitu.formats.hdf5.structures.datatype import Datatype
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.layout import ChunkedLayout, CompactLayout, ContiguousLayout
from insitu.formats.hdf5.structures.pipeline import Filter, filter_codec
from insitu.formats.hdf5.structures.type_description import describe_type, needs_element_decoder
from insitu.model import (
    INLINE,
    UNWRITTEN,
    ArrayDetails,
    Axis,
    ChunkTable,
    Codec,
    Columns,
    Encoding,
    Source,
    SparseTable,
    Tile,
    VirtualArray,
    scatter,
)

__all__ = ["array_details", "dataset_encoding", "virtual_array"]

INLINE_LIMIT = 16 << 20
CELLS_LIMIT = 1 << 22
FORMS_LIMIT = 64
"""Shapes of one description that are kept: those of an unlimited dimension in the files of an archive."""


def virtual_array(
    file: FileContext,
    source: Source,
    dataset: Dataset,
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    attributes: dict[str, Any],
) -> VirtualArray:
    """Return the virtual array of a dataset.

    Parameters
    ----------
    file, source
        Where it lies.
    dataset
        What the file says of it.
    shape
        Its shape; larger than the dataset's own where an unlimited dimension is longer than the
        dataset.
    dims
        Names, also for the axes that an array datatype adds.
    attributes
        What to show.
    """
    known = dataset.described.forms if dataset.described is not None else {}
    form = known.get(shape)
    if form is None:
        form = _array_form(file, dataset, shape)
        if not dataset.datatype.is_variable_length and not dataset.datatype.has_nested_variable_length:
            if len(known) >= FORMS_LIMIT:
                known.clear()
            known[shape] = form  # of varying length, the encoding says where in this file heaps begin
    encoding = form.encodings[0]
    table = _build_table(file, source, dataset, form.grid, form.shape, form.shift)
    if dataset.fill.state == "per element" and _has_gaps(table):
        table = _fill_gaps(dataset, table, form.chunk_size, form.shift)
    details = form.details
    if dataset.problems:
        details = replace(details, unread_attributes=dict(dataset.problems))
    tile = Tile(form.axes, form.encodings, table)
    # Not `VirtualArray.of`, which finds out again what is known here.
    return VirtualArray(form.shape, encoding.dtype, dims, (tile,), form.origins, attributes, form.fill, details)


class _ArrayForm(NamedTuple):
    """What is the same of all arrays of one description and shape."""

    shape: tuple[int, ...]
    axes: tuple[Axis, ...]
    grid: tuple[int, ...]
    encodings: tuple[Encoding]
    shift: int
    """Codecs beside the filters."""
    chunk_size: int
    """Elements of a chunk, which may be arrays."""
    origins: npt.NDArray[np.int64]
    fill: Any
    details: ArrayDetails


def _array_form(file: FileContext, dataset: Dataset, shape: tuple[int, ...]) -> _ArrayForm:
    datatype, layout = dataset.datatype, dataset.layout
    details = _details_without_problems(dataset, shape)
    if dataset.space.null:
        shape, layout = (0,), ContiguousLayout(None, 0)
    shape = (*shape, *datatype.shape)
    encoding = dataset_encoding(file, dataset)
    chunk = shape
    if isinstance(layout, ChunkedLayout):
        if layout.element != datatype.size:
            raise FormatError(f"the layout has elements of {layout.element} bytes, the datatype {datatype.size}")
        chunk = (*layout.chunk, *datatype.shape)
    axes, grid = _regular_axes(shape, chunk)
    shift = len(encoding.codecs) - len(dataset.filters)
    count = math.prod(chunk) // math.prod(datatype.shape)
    return _ArrayForm(
        shape, axes, grid, (encoding,), shift, count, _no_offset(len(shape)), encoding.fill_value(), details
    )


@lru_cache(maxsize=64)
def _no_offset(rank: int) -> npt.NDArray[np.int64]:
    """The corner of a tile that is the whole array."""
    origins = np.zeros((1, rank), np.int64)
    origins.flags.writeable = False
    return origins


def _has_gaps(table: ChunkTable) -> bool:
    return isinstance(table, SparseTable) or (
        isinstance(table, Columns) and bool((np.asarray(table.source) == UNWRITTEN).any())
    )


def _fill_gaps(dataset: Dataset, table: ChunkTable, count: int, shift: int) -> ChunkTable:
    """Return a table whose gaps are filled by an inline chunk.

    Used if the fill value differs from element to element of an array type.
    """
    data, total = dataset.fill.value, math.prod(table.shape)
    if data is None or len(data) * count > INLINE_LIMIT or total > CELLS_LIMIT:
        raise UnsupportedError(
            "unwritten chunks of an array type are not supported if its fill value differs from element to element",
            structure="fill value",
        )
    found = table.locate(list(np.indices(table.shape).reshape(len(table.shape), -1)))
    gaps = np.broadcast_to(found.source, (total,)) == UNWRITTEN
    skipped = (1 << len(dataset.filters)) - 1 << shift

    def replace_gaps(column: npt.NDArray[Any], of_gaps: int) -> npt.NDArray[Any]:
        return np.where(gaps, np.int64(of_gaps), column).reshape(table.shape)

    return Columns(
        table.shape,
        table.sources,
        replace_gaps(found.source, INLINE),
        replace_gaps(found.offset, 0),
        replace_gaps(found.length, len(data) * count),
        replace_gaps(found.filter_mask, skipped),
        inline=data * count,
    )


@lru_cache(maxsize=4096)
def _regular_axes(shape: tuple[int, ...], chunk: tuple[int, ...]) -> tuple[tuple[Axis, ...], tuple[int, ...]]:
    """Return the axes of an array that is cut into chunks of one shape, and its grid."""
    axes = tuple(Axis.regular(length, max(size, 1)) for length, size in zip(shape, chunk, strict=True))
    return axes, tuple(axis.count for axis in axes)


def array_details(dataset: Dataset, shape: tuple[int, ...]) -> ArrayDetails:
    """Return what the file stores about a dataset beside its attributes."""
    details = _details_without_problems(dataset, shape)
    if dataset.problems:
        details = replace(details, unread_attributes=dict(dataset.problems))
    return details


def _details_without_problems(dataset: Dataset, shape: tuple[int, ...]) -> ArrayDetails:
    layout, own = dataset.layout, dataset.space
    null = bool(own.null)
    chunk = layout.chunk if isinstance(layout, ChunkedLayout) else None
    stored = own.shape if not null and shape != own.shape else None
    return _plain_details(dataset.datatype, chunk, dataset.fill.state, null, stored)


# As for encodings: a few for all variables of an archive.
@lru_cache(maxsize=1024)
def _plain_details(
    datatype: Datatype, chunk: tuple[int, ...] | None, fill: str, null: bool, stored: tuple[int, ...] | None
) -> ArrayDetails:
    notes: dict[str, Any] = {}
    if datatype.kind == "time":
        notes["time"] = f"{8 * datatype.size} bits"  # of seconds since 1970, if the writer means what UNIX does
    elif datatype.kind == "opaque" and datatype.note:
        notes["tag"] = datatype.note
    elif datatype.kind == "string":
        notes["padding"] = datatype.padding
    if fill == "undefined":
        notes["fill"] = "undefined"
    return ArrayDetails(
        chunks=chunk,
        is_chunking_known=True,
        enumeration=None if datatype.names is None else dict(datatype.names),
        charset=datatype.charset if datatype.kind in ("string", "text") else None,
        varying="sequence" if datatype.kind == "sequence" else None,
        reference=datatype.note if datatype.kind == "reference" else None,
        element_shape=tuple(datatype.shape),
        stored_shape=stored,
        is_null=null,
        notes=notes,
    )


def dataset_encoding(file: FileContext, dataset: Dataset) -> Encoding:
    """Return the encoding of the chunks of a dataset."""
    if dataset.datatype.is_variable_length or dataset.datatype.has_nested_variable_length:
        codecs = tuple(filter_codec(item, dataset.datatype.size) for item in dataset.filters)
        return Encoding(dataset.datatype.dtype, (_heap_codec(file, dataset.datatype), *codecs), fill=dataset.fill.value)
    fill = None if dataset.fill.state == "per element" else dataset.fill.value
    return _plain_encoding(dataset.datatype, dataset.filters, fill)


# Variables of an archive share a few encodings. A datatype is hashed by identity, which works
# because the message cache returns the same object.
@lru_cache(maxsize=1024)
def _plain_encoding(datatype: Datatype, filters: tuple[Filter, ...], fill: bytes | None) -> Encoding:
    codecs = tuple(filter_codec(item, datatype.size) for item in filters)
    if fill is not None:
        if len(fill) != datatype.size:
            raise FormatError(f"the fill value has {len(fill)} bytes, but elements have {datatype.size}")
        size = datatype.size // math.prod(datatype.shape)
        fill = fill[:size]  # an array datatype: one fill value has all its elements, and they are alike
        if datatype.number is not None:
            from insitu.formats.hdf5.codecs.odd_numbers import convert_numbers

            fill = convert_numbers(fill, dict(datatype.number), datatype.dtype).tobytes()
        elif datatype.members:
            from insitu.formats.hdf5.codecs.records import decode_records

            fill = decode_records(fill, {"type": describe_type(datatype)}).tobytes()
        elif datatype.texts:
            fill = end_record_texts(fill, datatype)
        if not any(fill):
            fill = None
    if datatype.members:
        codecs = (Codec("hdf5_record", {"type": describe_type(datatype)}), *codecs)
    elif datatype.number is not None:
        codecs = (Codec("hdf5_number", dict(datatype.number)), *codecs)
    if datatype.texts:
        codecs = (Codec("hdf5_text", {"texts": [list(text) for text in datatype.texts]}), *codecs)
    return Encoding(datatype.dtype, codecs, fill=fill)


def _heap_codec(file: FileContext, datatype: Datatype) -> Codec:
    """Elements of varying length: records that point into global heaps."""
    if file.has_heaps_in_cache_image:
        file.refuse("the variable-length values lie in a metadata cache image, which is not supported for data")
    widths = {
        "offset_size": file.offset_size,
        **({"length_size": file.length_size} if file.length_size != 8 else {}),
        **({"base_address": file.base} if file.base else {}),
    }
    text = datatype.kind == "text"
    base = datatype.base
    if needs_element_decoder(datatype):
        return Codec("hdf5_vlen", {"kind": "record", "type": describe_type(datatype), **widths})
    dtype = np.dtype("S1") if base is None else base.dtype
    configuration = {"kind": "string" if text else "sequence", "base": dtype.str, "charset": datatype.charset}
    return Codec("hdf5_vlen", {**configuration, **widths})


def _build_table(
    file: FileContext, source: Source, dataset: Dataset, grid: tuple[int, ...], shape: tuple[int, ...], shift: int
) -> ChunkTable:
    """Where the chunks lie; `shift`: how many codecs there are beside the filters."""
    layout, size = dataset.layout, dataset.datatype.size
    own = dataset.space.shape
    if dataset.space.null or 0 in grid:
        return Columns.of_unwritten(grid)
    if isinstance(layout, ChunkedLayout):
        return _chunk_table(source, dataset, grid, shift)
    if shape[: len(own)] != own:
        raise UnsupportedError(
            f"a dataset of shape {own} that is not chunked is not supported on a dimension that grew to {shape}"
        )
    length = math.prod(own) * size
    if isinstance(layout, CompactLayout):
        if len(layout.data) < length:
            raise FormatError(f"the compact data has {len(layout.data)} bytes, but {length} are needed")
        return Columns.of_inline(grid, layout.data[:length])
    assert isinstance(layout, ContiguousLayout)
    if layout.address is None:
        return Columns.of_unwritten(grid)
    if layout.size is not None and layout.size < length:
        file.fail(f"has {layout.size} bytes, but {length} are needed", layout.address, "contiguous data")
    offset, _ = file.range(layout.address, length, "contiguous data")
    return Columns.of_stored(grid, source, offset, length)


def _chunk_table(source: Source, dataset: Dataset, grid: tuple[int, ...], shift: int) -> ChunkTable:
    rows = dataset.chunks
    if rows is None:
        raise FormatError("the chunk index of this dataset was not read")
    if rows.whole is not None and math.prod(rows.grid) == math.prod(grid):
        offset, length, mask = (column if isinstance(column, int) else column.reshape(grid) for column in rows.whole)
        if shift:
            mask = np.left_shift(mask, shift, dtype=np.int64)
        return Columns.of_stored(grid, source, offset, length, mask, narrow=True)
    index, offset, length, mask = rows.columns()
    if not len(offset):
        return Columns.of_unwritten(grid)
    extra = len(grid) - index.shape[1]
    if extra:  # axes of an array datatype: one cell each
        index = np.concatenate([index, np.zeros((len(index), extra), index.dtype)], axis=1)
    if shift:
        mask = mask << shift  # codecs of our own come before the filters, and are never skipped
    if len(offset) == math.prod(grid) and _is_c_order(index, grid):
        # The usual file: nothing has to be moved, and of many small variables that is much of the
        # work.
        masks = mask if isinstance(mask, int) else mask.reshape(grid)
        return Columns.of_stored(grid, source, offset.reshape(grid), length.reshape(grid), masks)
    if _is_sorted(dataset) and not is_ascending(index):
        # The library would look in the wrong branch and give the fill value; the right place is
        # unknown.
        raise FormatError(
            "the chunk index is damaged: its keys are out of order, or one occurs twice", structure="chunk index"
        )
    table = scatter(grid, (source,), index, offset, length, mask)
    if _count_written(table) != len(offset):
        raise FormatError("the chunk index is damaged: two chunks have the same place", structure="chunk index")
    return table


def _count_written(table: Columns | SparseTable) -> int:
    """How many chunks a table has."""
    if isinstance(table, SparseTable):
        return len(table.number)
    return int(np.count_nonzero(np.broadcast_to(table.source, table.shape) >= 0))


def _is_sorted(dataset: Dataset) -> bool:
    """Whether the chunk index gives its keys in order.

    A version 2 B-tree does not: records of its inner nodes come first.
    """
    return isinstance(dataset.layout, ChunkedLayout) and dataset.layout.index == "btree_v1"


def _is_c_order(index: npt.NDArray[Any], grid: tuple[int, ...]) -> bool:
    """Whether rows are all the cells of a grid, in C order."""
    number: Any = 0
    for axis, count in enumerate(grid):
        if count > 1:
            number = number * count + index[:, axis].astype(np.int64)
    return isinstance(number, int) or bool((number == np.arange(len(index))).all())
