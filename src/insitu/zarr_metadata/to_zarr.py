"""Describe a virtual array as one Zarr array, or explain why Zarr cannot hold it.

A Zarr array has one chunk shape, one chain of codecs and one packing; its chunks begin at the
array's corner and are stored in full size. A mosaic that happens to be like that can be described;
for any other the error gives the reason, with the files that differ. Cells are checked block by
block, in the order of Zarr's grid, so an array of any size can be written in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from insitu.cancellation import check_deadline
from insitu.errors import UnsupportedError
from insitu.model import (
    ABSENT,
    INLINE,
    UNWRITTEN,
    Axis,
    ChunkLocations,
    Codec,
    Encoding,
    Packing,
    Source,
    Tile,
    VirtualArray,
)

__all__ = ["ZarrArraySpec", "to_zarr_spec", "without_encoder_settings"]

CELLS_PER_BLOCK = 1 << 16
"""Cells that are checked together."""

_ENCODER_SETTINGS: Mapping[str, frozenset[str]] = {
    "zlib": frozenset({"level"}),
    "gzip": frozenset({"level"}),
    "deflate": frozenset({"level"}),
    "zstd": frozenset({"level", "checksum"}),
    "bz2": frozenset({"level"}),
    "lz4": frozenset({"acceleration"}),
    "blosc": frozenset({"clevel", "cname", "shuffle", "blocksize", "typesize"}),
    "blosc2": frozenset({"clevel", "cname", "shuffle", "blocksize", "typesize"}),
}
"""Options of the encoder that a decoder does not need, such as compression levels."""


def without_encoder_settings(encoding: Encoding, filter_mask: int = 0) -> Encoding:
    """Return the encoding without options of the encoder and skipped filters; equal ones decode
    equally.
    """
    codecs = []
    for position, codec in enumerate(encoding.codecs):
        if filter_mask >> position & 1:
            continue
        name = codec.name.removeprefix("numcodecs.")
        idle = _ENCODER_SETTINGS.get(name, frozenset())
        codecs.append(Codec(name, {key: value for key, value in codec.configuration.items() if key not in idle}))
    return replace(encoding, codecs=tuple(codecs))


@dataclass(slots=True, eq=False)
class ZarrArraySpec:
    """A virtual array as a Zarr array, and what was found in its cells so far."""

    array: VirtualArray
    tile: Tile
    chunks: tuple[int, ...]
    """Shape of a chunk, by dimension."""
    grid: tuple[int, ...]
    """Chunks along each dimension."""
    cuts: tuple[tuple[int, ...] | None, ...] = ()
    """Chunk lengths of the irregular dimensions, for a rectilinear grid; None: regular. Empty: all
    are.
    """
    seen: dict[tuple[int, int, int], Source | None] = field(default_factory=dict)
    """Combinations of encoding, filter mask and packing in the cells, each with an example file."""
    unwritten: int = 0
    """Number of unwritten cells so far."""
    absent: bool = False

    @property
    def count(self) -> int:
        """Number of chunks of the grid."""
        count = 1
        for length in self.grid:
            count *= length
        return count

    def blocks(self, size: int = CELLS_PER_BLOCK) -> Iterator[tuple[int, ChunkLocations]]:
        """Yield the cells in C order of the grid, in blocks: the number of the first, and all
        locations.

        Raises
        ------
        UnsupportedError
            If one Zarr array cannot hold the cells together.
        """
        for begin in range(0, self.count, size):
            check_deadline()
            rows = self._locate(np.arange(begin, min(begin + size, self.count)))
            self._look(rows)
            yield begin, rows

    def _locate(self, numbers: Any) -> ChunkLocations:
        by_dimension = np.unravel_index(numbers, self.grid) if self.grid else ()
        index = [np.zeros(len(numbers), np.int64)] * len(self.tile.axes)
        for dimension, axis in enumerate(self.tile.dimensions):
            index[axis] = by_dimension[dimension]
        return self.tile.chunks.locate(index)

    def _look(self, rows: ChunkLocations) -> None:
        source = np.asarray(rows.source)
        self.unwritten += int(np.count_nonzero(source == UNWRITTEN))
        self.absent = self.absent or bool((source == ABSENT).any())
        # Above the bits of the codecs lies a mark, which Zarr cannot say.
        codecs = max(len(encoding.codecs) for encoding in self.tile.encodings)
        skipped = np.asarray(rows.filter_mask, np.int64) & (1 << codecs) - 1
        columns = [np.asarray(column) for column in (rows.encoding, skipped, rows.packing)]
        if all(column.size == 0 or (column[0] == column[-1] and (column == column[0]).all()) for column in columns):
            kinds = [0] if len(source) else []
        else:
            _, kinds = np.unique(np.stack(columns), axis=1, return_index=True)  # type: ignore[assignment]
            kinds = [int(k) for k in kinds]
        has_bytes = (source >= 0) | (source == INLINE)
        for at in kinds:
            key = (int(columns[0][at]), int(columns[1][at]), int(columns[2][at]))
            if key in self.seen:
                continue
            same = has_bytes & (columns[0] == key[0]) & (columns[1] == key[1]) & (columns[2] == key[2])
            if not same.any():
                continue
            first_source = int(source[np.flatnonzero(same)[0]])
            self.seen[key] = self.tile.chunks.sources[first_source] if first_source >= 0 else None
            self._compare(key)

    def _compare(self, key: tuple[int, int, int]) -> None:
        """Raise `UnsupportedError` if a cell is encoded or packed differently from the first one."""
        first = next(iter(self.seen))
        if key == first:
            return
        tile = self.tile
        one = without_encoder_settings(tile.encodings[first[0]], first[1])
        other = without_encoder_settings(tile.encodings[key[0]], key[1])
        if one != other:
            raise UnsupportedError(
                f"its files are encoded differently: {_file_name(self.seen[first])} as {_describe_encoding(one)}, "
                f"{_file_name(self.seen[key])} as {_describe_encoding(other)}"
            )
        if tile.packings[first[2]].key != tile.packings[key[2]].key:
            raise UnsupportedError(
                f"its files are packed differently (scale_factor, add_offset, missing values or units): "
                f"{_file_name(self.seen[first])} and {_file_name(self.seen[key])}"
            )

    @property
    def encoding(self) -> Encoding:
        """The encoding of the chunks, in the order of the dimensions; valid when all cells were
        checked.
        """
        number, mask, _ = next(iter(self.seen), (0, 0, 0))
        encoding = self.tile.encodings[number]
        if not self.seen:  # no chunk has an order
            return replace(encoding, order=None)
        if mask:
            encoding = without_encoder_settings(encoding, mask)
        return replace(encoding, order=_stored_axis_order(encoding.order, self.tile))

    @property
    def packing(self) -> Packing:
        """How the values of the array are decoded (CF); Zarr holds the stored ones."""
        _, _, row = next(iter(self.seen), (0, 0, 0))
        return self.tile.packings[row]


def to_zarr_spec(array: VirtualArray, *, rectilinear: bool = False) -> ZarrArraySpec:
    """Return a virtual array described as a Zarr array.

    Parameters
    ----------
    array
        The array.
    rectilinear
        Whether chunks may have different lengths along a dimension (V3, zarr-python 3.2 or later).

    Raises
    ------
    UnsupportedError
        If Zarr cannot hold it. The message is the reason.
    """
    if len(array.tiles) != 1 or array.tiles[0].shape != array.shape:
        if not array.tiles:
            raise UnsupportedError("no file holds any part of it")
        raise UnsupportedError(
            f"it is a mosaic of {len(array.tiles)} grids that are cut differently, or that leave gaps: "
            + ", ".join(_file_name(next(iter(tile.chunks.sources), None)) for tile in array.tiles[:3])
        )
    tile = array.tiles[0]
    cuts = tuple(_rectilinear_lengths(tile.axes[axis]) if rectilinear else None for axis in tile.dimensions)
    chunks = tuple(
        max(cuts[dimension] or ())
        if cuts[dimension]
        else _regular_length(tile.axes[axis], array.dims[dimension], array.shape[dimension])
        for dimension, axis in enumerate(tile.dimensions)
    )
    for number, axis in enumerate(tile.axes):
        if number not in tile.dimensions:
            shown = axis.show(np.arange(axis.count))
            if axis.count != 1 or int(shown.stored[0]) > 1:
                raise UnsupportedError("it is a slice that takes a part of each chunk")
    grid = tuple(axis.count for axis in (tile.axes[number] for number in tile.dimensions))
    return ZarrArraySpec(array, tile, chunks, grid, cuts if any(cuts) else ())


def _rectilinear_lengths(axis: Axis) -> tuple[int, ...] | None:
    """Return the chunk lengths of an axis for a rectilinear grid; None if that is not needed or not
    possible.
    """
    if axis.count <= 1 or (axis.is_regular and axis.padded):
        return None
    shown = axis.show(np.arange(axis.count))
    if shown.skip.any() or (shown.step != 1).any() or (shown.extent[:-1] != shown.stored[:-1]).any():
        return None
    return tuple(shown.stored.tolist()) if (shown.stored > 0).all() else None


def _regular_length(axis: Axis, dim: str, length: int) -> int:
    """Return the chunk length of a regular axis, or raise why it is not regular."""
    if axis.is_regular:
        if axis.padded or axis.count <= 1:
            return axis.size if axis.padded else max(length, 1)
        raise UnsupportedError(f"along {dim!r} the last chunk is stored shorter than the others")
    if axis.count == 0:
        return 1
    shown = axis.show(np.arange(axis.count))
    if (shown.stored <= 1).all() and (shown.extent == 1).all():
        return 1
    if (shown.stored == 0).any() or ((shown.step == 0) & (shown.extent > 1)).any():
        raise UnsupportedError(f"along {dim!r} values are repeated, not stored")
    if shown.skip.any() or ((shown.step != 1) & (shown.extent > 1)).any():
        raise UnsupportedError(f"along {dim!r} it is a slice that cuts through chunks")
    if axis.count == 1:
        return int(shown.stored[0])
    if (shown.stored != shown.stored[0]).any():
        at = int(np.flatnonzero(shown.stored != shown.stored[0])[0])
        raise UnsupportedError(
            f"along {dim!r} chunks have different lengths: {int(shown.stored[0])} at first, "
            f"{int(shown.stored[at])} from element {int(axis.begin(np.array([at]))[0])} on"
        )
    at = int(np.flatnonzero(shown.extent != shown.stored)[0])
    raise UnsupportedError(
        f"along {dim!r} a chunk of {int(shown.stored[at])} shows only {int(shown.extent[at])} elements "
        f"(at {int(axis.begin(np.array([at]))[0])}), and it is not the last"
    )


def _stored_axis_order(order: tuple[int, ...] | None, tile: Tile) -> tuple[int, ...] | None:
    """Return a chunk's axis order in terms of the array's dimensions, not of the tile's axes."""
    dimension_of = {axis: dimension for dimension, axis in enumerate(tile.dimensions)}
    # The encoding orders only the axes that the chunks have; others have length 1 and go anywhere.
    stored = [np.ones(1) if axis.is_regular else axis.show(np.arange(axis.count)).stored for axis in tile.axes]
    for has in ([bool(column.any()) for column in stored], [bool(column.all()) for column in stored]):
        real = [number for number in range(len(tile.axes)) if has[number]]
        if order is None or len(order) == len(real):
            break
    else:
        raise UnsupportedError("some of its chunks have a dimension that others repeat along")
    stored_axes = [real[i] for i in order] if order is not None else real
    by_storage = [dimension_of[axis] for axis in stored_axes if axis in dimension_of]
    rest = [dimension for dimension in range(len(tile.dimensions)) if dimension not in by_storage]
    return (*rest, *by_storage)


def _file_name(source: Source | None) -> str:
    return "data kept inline" if source is None else source.url


def _describe_encoding(encoding: Encoding) -> str:
    names = "+".join(codec.name for codec in encoding.codecs) or "uncompressed"
    order = "" if encoding.order is None else f" in axis order {encoding.order}"
    return f"{encoding.dtype.str if not encoding.dtype.hasobject else 'text'} {names}{order}"
