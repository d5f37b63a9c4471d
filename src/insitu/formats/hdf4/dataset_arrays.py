"""Virtual arrays of HDF4 datasets.

A dataset in one piece is one cell; in blocks of whole rows, one cell for each block; in chunks, one
for each chunk. Data in other pieces is kept as bytes, if it is small.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf4.data_storage import ChunkedData, DataRanges
from insitu.formats.parsing.sibling_files import sibling_urls
from insitu.model import INLINE, UNWRITTEN, Axis, ChunkTable, Columns, Encoding, Source, Tile, VirtualArray, scatter
from insitu.sources.listing import local_path

__all__ = ["ScientificDataset", "array_of", "has_partial_rows"]

MOST_CELLS = 1 << 22
"""Most cells of a grid whose chunks are stored in several ways."""


class ScientificDataset(NamedTuple):
    """One scientific dataset (SDS)."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attributes: dict[str, Any]
    stored: DataRanges | ChunkedData | None
    """None: never written."""
    unlimited: bool
    default_fill: bytes
    """The library's own fill value, where there is no `_FillValue`."""

    def is_bare_scale(self, name: str) -> bool:
        """Return whether it only carries the attributes of a dimension, without labels."""
        return self.dims == (name,) and self.stored is None


def has_partial_rows(stored: DataRanges, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Return whether blocks of an uncompressed dataset hold parts of rows, or some were never
    written.
    """
    row = math.prod(shape[1:]) * dtype.itemsize
    if stored.codec is not None or not row or not stored.ranges:
        return False
    return stored.has_holes or (len(stored.ranges) > 1 and any(length % row for _, length in stored.ranges))


def array_of(dataset: ScientificDataset, source: Source, url: str) -> VirtualArray:
    """Return the array of a dataset of the file at `url`."""
    stored, fill = dataset.stored, _fill(dataset)
    if isinstance(stored, ChunkedData):
        tile = _chunked_tile(dataset, stored, fill, source)
    else:
        tile = _contiguous_tile(dataset, stored, fill, source, url)
    return VirtualArray.of(tile, dims=dataset.dims, attributes=dataset.attributes)


def _chunked_tile(dataset: ScientificDataset, stored: ChunkedData, fill: bytes, source: Source) -> Tile:
    dtype = dataset.dtype
    axes = tuple(Axis.regular(n, cut) for n, cut in zip(dataset.shape, stored.chunk, strict=True))
    grid = tuple(axis.count for axis in axes)
    fill = stored.fill if len(stored.fill) == dtype.itemsize else fill
    kinds = list(dict.fromkeys(stored.codecs)) or [None]
    encodings = tuple(Encoding(dtype, (kind,) if kind else (), fill=fill) for kind in kinds)
    if len(kinds) == 1 and not stored.joined:
        return Tile(axes, encodings, scatter(grid, (source,), stored.cells, stored.offset, stored.length))
    if math.prod(grid) > MOST_CELLS:
        raise UnsupportedError(
            f"a grid of {grid} chunks that are stored in several ways is too large", structure="chunked element"
        )
    columns = [np.full(grid, first, np.int64) for first in (UNWRITTEN, 0, 0, 0)]
    numbers = {kind: number for number, kind in enumerate(kinds)}
    places, inline = np.zeros(len(stored.codecs), np.int64), b""
    offset, length = stored.offset.copy(), stored.length.copy()
    for row, data in stored.joined.items():
        places[row], offset[row], length[row] = INLINE, len(inline), len(data)
        inline += data
    if (stored.cells >= np.array(grid)).any() or (stored.cells < 0).any():
        raise FormatError("a chunk lies outside the shape of its dataset", structure="chunk table")
    kind_of = np.array([numbers[codec] for codec in stored.codecs], np.int64)
    for column, values in zip(columns, (places, offset, length, kind_of), strict=True):
        column[tuple(stored.cells.T)] = values
    state, offset, length, kind = columns
    table = Columns(grid, (source,), state, offset, length, encoding=kind, inline=inline)
    return Tile(axes, encodings, table)


def _contiguous_tile(
    dataset: ScientificDataset, stored: DataRanges | None, fill: bytes, source: Source, url: str
) -> Tile:
    """Return a tile of one cell, or of one for each block of whole rows."""
    shape, dtype = dataset.shape, dataset.dtype
    axes = tuple(Axis.regular(length, max(length, 1)) for length in shape)
    grid = tuple(axis.count for axis in axes)
    if stored is None or not stored.size or 0 in grid:
        return Tile(axes, (Encoding(dtype, fill=fill),), Columns.of_unwritten(grid))
    codecs = (stored.codec,) if stored.codec else ()
    encodings = (Encoding(dtype, codecs, fill=fill),)
    nbytes = math.prod(shape) * dtype.itemsize
    chunks: ChunkTable
    if stored.joined is not None:
        if not codecs and len(stored.joined) < nbytes:
            raise FormatError(
                f"{len(stored.joined)} bytes of data, the dataset needs {nbytes}", structure="linked blocks"
            )
        chunks = Columns.of_inline(grid, stored.joined if codecs else stored.joined[:nbytes])
        return Tile(axes, encodings, chunks)
    if stored.other_file is not None:
        source = Source(_resolve_beside(url, stored.other_file))
    if len(stored.ranges) == 1:
        offset, length = stored.ranges[0]
        if not codecs and length < nbytes:
            raise FormatError(
                f"{length} bytes of data, the dataset needs {nbytes}", offset=offset, structure="HDF4 data"
            )
        return Tile(axes, encodings, Columns.of_stored(grid, source, offset, length if codecs else nbytes))
    row = math.prod(shape[1:]) * dtype.itemsize
    lengths = np.array([length for _, length in stored.ranges], np.int64)
    if not shape or (lengths % row).any() or lengths.sum() != nbytes:
        raise UnsupportedError("linked blocks that do not hold whole rows are not supported", structure="linked blocks")
    along = (-1, *(1,) * (len(shape) - 1))
    axes = (Axis.irregular(lengths // row, stored=lengths // row), *axes[1:])
    offsets = np.array([offset for offset, _ in stored.ranges], np.int64).reshape(along)
    grid = tuple(axis.count for axis in axes)
    return Tile(axes, encodings, Columns(grid, (source,), np.asarray(0), offsets, lengths.reshape(along)))


def _resolve_beside(url: str, name: str) -> str:
    """Return the URL of a file beside this one.

    A name must not lead to other places of this machine.
    """
    leaf = name if local_path(url) is None else name.replace("\\", "/").rpartition("/")[2]
    places = sibling_urls(url, leaf)
    if not places:
        raise UnsupportedError(
            f"the data lies in a file of another folder, which is not allowed: {name!r}", structure="external element"
        )
    return places[0]


def _fill(dataset: ScientificDataset) -> bytes:
    declared, dtype = dataset.attributes.get("_FillValue"), dataset.dtype
    if isinstance(declared, str) and dtype.kind == "S":
        declared = declared.encode("utf-8", "replace")
    if declared is None or isinstance(declared, str) or np.size(declared) != 1:
        return dataset.default_fill
    return np.asarray(declared).astype(dtype).tobytes()
