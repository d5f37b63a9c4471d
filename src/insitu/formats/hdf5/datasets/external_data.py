"""Virtual arrays of datasets whose data lies in external files.

External data files messages: format specification 3.0, IV.A.2.h. The bytes of the dataset are those
of the segments, one after the other. A file that is shorter than its segment is continued with
zeros, as the HDF5 library does.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from insitu.errors import FormatError, NotFoundError, UnsupportedError
from insitu.formats.hdf5.datasets.arrays import array_details, dataset_encoding
from insitu.formats.hdf5.datasets.objects import Dataset
from insitu.formats.hdf5.datasets.virtual_sources import PlacedArray, assemble, place_mapping
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.stored_selection import StoredSelection
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.sibling_files import SiblingFiles
from insitu.model import ArrayDetails, Axis, Columns, Encoding, Source, Tile, VirtualArray
from insitu.sources.protocol import ByteSource

__all__ = ["external_array"]


class _SourceSegment(NamedTuple):
    """Some bytes of the dataset, as they are cut: where they lie, or nowhere (zeros)."""

    source: ByteSource | None
    offset: int
    length: int


class _StoredRun(NamedTuple):
    """Some bytes of the dataset: where they lie, or nowhere (zeros), or what they are."""

    source: Source | None
    offset: int
    length: int
    data: bytes | None = None


def external_array(
    siblings: SiblingFiles,
    window: ReadCache,
    file: FileContext,
    dataset: Dataset,
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    attributes: dict[str, Any],
) -> VirtualArray:
    """Return the virtual array of a dataset whose data lies in other files; see `virtual_array`."""
    encoding = dataset_encoding(file, dataset)
    if encoding.dtype.hasobject or dataset.filters:
        raise UnsupportedError(
            "variable-length values and filters are not supported in external storage", structure="external files"
        )
    if shape != dataset.space.shape:
        raise UnsupportedError(
            f"a dataset of shape {dataset.space.shape} in external storage is not supported on dimensions of {shape}"
        )
    details = array_details(dataset, shape)
    details = dataclasses.replace(
        details, notes={**details.notes, "external": [segment.name for segment in dataset.segments]}
    )
    total = math.prod(shape) * dataset.datatype.size
    size = dataset.datatype.size // math.prod(dataset.datatype.shape)
    runs = _align_to_elements(_source_segments(siblings, window, dataset, total), size) or [_StoredRun(None, 0, 0)]
    return _array_of_runs(runs, encoding, (*shape, *dataset.datatype.shape), dims, attributes, details, size)


def _array_of_runs(
    runs: list[_StoredRun],
    encoding: Encoding,
    whole: tuple[int, ...],
    dims: tuple[str, ...],
    attributes: dict[str, Any],
    details: ArrayDetails,
    size: int,
) -> VirtualArray:
    """Return the virtual array whose bytes are those of some runs, one after the other.

    Parameters
    ----------
    runs
        Where the bytes are; each of whole elements.
    encoding
        Of all of them.
    whole
        The shape.
    dims, attributes, details
        Of the array.
    size
        Of an element as it is stored.
    """
    if len(runs) == 1:
        pieces = [PlacedArray(_run_array(runs[0], whole, encoding), (0,) * len(whole))]
    else:
        pieces = _pieces_of_runs(runs, whole, encoding, size)
    tiles, origins = assemble(pieces, len(whole))
    fill = encoding.fill_value()
    return VirtualArray(whole, encoding.dtype, dims, tiles, origins, attributes, fill, details)


def _pieces_of_runs(runs: list[_StoredRun], whole: tuple[int, ...], encoding: Encoding, size: int) -> list[PlacedArray]:
    """Several runs: of whole rows each where they are such, else of elements."""
    row = math.prod(whole[1:]) * size
    rows = all(run.length % row == 0 for run in runs)
    step = row if rows else size
    pieces, at = [], 0
    for run in runs:
        count = run.length // step
        shape = (count, *whole[1:]) if rows else (count,)
        pieces.append(PlacedArray(_run_array(run, shape, encoding), (at,) + (0,) * (len(shape) - 1)))
        at += count
    if rows:
        return pieces
    tiles, origins = assemble(pieces, 1)
    flat = VirtualArray((at,), encoding.dtype, ("element",), tiles, origins)
    return list(place_mapping(StoredSelection("all"), StoredSelection("all"), flat, whole, 0))


def _align_to_elements(parts: list[_SourceSegment], size: int) -> list[_StoredRun]:
    """Return parts as runs of whole elements.

    An element that lies in several files is read now, and becomes a run of its own.
    """
    runs: list[_StoredRun] = []
    cut_element = b""
    for source, begin, length in parts:
        offset, end = begin, begin + length
        if cut_element:
            offset = min(end, begin + size - len(cut_element))
            cut_element += _read_padded(source, begin, offset - begin)
            if len(cut_element) < size:
                continue
            runs.append(_StoredRun(None, 0, size, cut_element))
            cut_element = b""
        rest = (end - offset) % size
        if end - rest > offset:
            runs.append(_StoredRun(None if source is None else source.describe(), offset, end - rest - offset))
        cut_element = _read_padded(source, end - rest, rest)
    return runs


def _read_padded(source: ByteSource | None, offset: int, length: int) -> bytes:
    data = b"" if source is None or not length else source.read(offset, length)
    return data.ljust(length, b"\0")


def _source_segments(siblings: SiblingFiles, window: ReadCache, dataset: Dataset, total: int) -> list[_SourceSegment]:
    """Where the bytes of a dataset are."""
    parts: list[_SourceSegment] = []
    remaining = total
    for segment in dataset.segments:
        if not remaining:
            break
        length = remaining if segment.size is None else min(segment.size, remaining)
        opened = siblings.open_sibling(window, segment.name)
        if opened is None:
            raise NotFoundError(f"the external file {segment.name!r}, which holds the data, is missing", url=window.url)
        known = max(0, min(length, opened.size - segment.offset))
        if known:
            parts.append(_SourceSegment(opened.source, segment.offset, known))
        if length > known:
            parts.append(_SourceSegment(None, 0, length - known))
        remaining -= length
    if remaining:
        raise FormatError(
            f"the external files hold {total - remaining} bytes, but {total} are needed", structure="external files"
        )
    return parts


def _run_array(run: _StoredRun, shape: tuple[int, ...], encoding: Encoding) -> VirtualArray:
    axes = tuple(Axis.regular(length, max(length, 1)) for length in shape)
    grid = tuple(axis.count for axis in axes)
    if run.data is not None:
        table = Columns.of_inline(grid, run.data)
    elif run.source is None or 0 in grid:
        encoding = Encoding(encoding.dtype, encoding.codecs)
        table = Columns.of_unwritten(grid)
    else:
        one = (1,) * len(grid)
        columns = np.zeros(one, np.int8), np.full(one, run.offset), np.full(one, run.length)
        table = Columns(grid, (run.source,), *columns)
    return VirtualArray.of(Tile(axes, (encoding,), table), dims=[f"axis_{axis}" for axis in range(len(shape))])
