"""Chunk tables of TIFF images: offsets and lengths of strips or tiles.

The file has a column of offsets and one of byte counts, with a row for each strip or tile, band
after band if the bands are stored apart. The tile of the model has the axes y, x, band, in the
order in which pixels are stored, and shows them as band, y, x. Strips are clipped at the bottom,
tiles are padded. Contiguous strips of an uncompressed image are one cell, which the reader cuts as
it likes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.formats.tiff.image import STRIP_COUNTS, STRIP_OFFSETS, TILE_COUNTS, TILE_OFFSETS, TiffImage
from insitu.model import UNWRITTEN, Axis, Columns, Encoding, Source, Tile

__all__ = ["tile_of"]

LAYOUT = (2, 0, 1)
"""Of the dimensions band, y, x among the axes y, x, band."""
FAR = 1 << 62
"""Offsets behind it are behind the end of any file; sums of two do not overflow."""


def tile_of(image: TiffImage, source: Source, size: int, fill: bytes | None, shift: int = 0) -> Tile:
    """Return the grid of an image's strips or tiles.

    Parameters
    ----------
    image
        How it is stored.
    source, size
        The file, and its size.
    fill
        One pixel of a tile that was never written; None: zero.
    shift
        Bytes to add to the offsets of the directory: images of a stack share one.
    """
    known = image.memory.get(fill)
    if known is None:
        known = image.memory[fill] = _grid_and_encodings(image, fill)
    axes, encodings, grid = known
    offset, length = _offsets_and_lengths(image, grid)
    # A strip or tile without a place was never written.
    sparse = int(offset.min()) <= 0 or int(length.min()) <= 0
    written = (offset > 0) & (length > 0) if sparse else None
    if shift:
        offset = offset + shift
    if written is not None:
        offset, length = np.where(written, offset, 0), np.where(written, length, 0)
    if int((offset + length).max()) > size:
        is_beyond_end = offset + length > size
        what = f"{int(is_beyond_end.sum())} of {is_beyond_end.size} strips or tiles lie behind the end of the file"
        image.directory.fail(what, "StripOffsets")
    if not image.tiled and not image.codecs and written is None and _is_contiguous(offset, length):
        axes = (Axis.regular(image.height, image.height), *axes[1:])
        offset, length = offset[:1], length.sum(axis=0, keepdims=True)
        grid = tuple(axis.count for axis in axes)
    if written is None and len(encodings) == 1:
        return Tile(axes, encodings, Columns.of_stored(grid, source, offset, length), layout=LAYOUT)
    number: npt.NDArray[Any] = np.asarray(0)
    if len(encodings) > 1:
        number = np.zeros((grid[0], 1, 1), np.int8)
        number[-1] = 1
    state = np.asarray(0) if written is None else np.where(written, 0, UNWRITTEN)
    chunks = Columns(grid, (source,), state, offset, length, encoding=number)
    return Tile(axes, encodings, chunks, layout=LAYOUT)


def _grid_and_encodings(
    image: TiffImage, fill: bytes | None
) -> tuple[tuple[Axis, ...], tuple[Encoding, ...], tuple[int, ...]]:
    """Return the axes, the encodings of strips or tiles (the last row may have its own), and the
    shape of the grid.
    """
    rows, columns = image.block
    axes = (
        Axis.regular(image.height, rows, padded=image.tiled),
        Axis.regular(image.width, columns),
        Axis.regular(image.bands, 1 if image.planar else image.bands),
    )
    encodings: tuple[Encoding, ...] = (Encoding(image.dtype, image.codecs, fill=fill),)
    if image.last_codecs != image.codecs:
        encodings = (*encodings, Encoding(image.dtype, image.last_codecs, fill=fill))
    return axes, encodings, tuple(axis.count for axis in axes)


def _offsets_and_lengths(
    image: TiffImage, grid: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return offset and length of each strip or tile, by row, column and band."""
    tags = image.directory
    offsets = tags.numbers(TILE_OFFSETS if TILE_OFFSETS in tags.entries else STRIP_OFFSETS)
    counts = tags.numbers(TILE_COUNTS if TILE_COUNTS in tags.entries else STRIP_COUNTS)
    total = grid[0] * grid[1] * grid[2]
    if offsets is None or offsets.size < total or offsets.dtype.kind not in "iu":
        tags.fail(
            f"{0 if offsets is None else offsets.size} offsets of strips or tiles, {total} are needed", "StripOffsets"
        )
    if offsets.dtype.kind == "i" and offsets[:total].size and int(offsets[:total].min()) < 0:
        tags.fail("a strip or tile has a negative offset", "StripOffsets")
    if counts is not None and not offsets[:total].all():
        common = min(counts.size, total)
        lost = int(((offsets[:common] == 0) & (counts[:common] > 0)).sum())
        if lost:
            tags.fail(f"{lost} of {total} strips or tiles have a length, but no offset", "StripOffsets")
    # Only now: a hostile header may declare more strips than memory has room for.
    expected = _uncompressed_sizes(image, grid) if image.compression == "none" else None
    if (
        expected is not None
        and (counts is None or counts.size < total)
        and (counts is None or counts.dtype.kind in "iu")
    ):
        # Where nothing is compressed, counts that are left out can be computed.
        computed = np.broadcast_to(expected, grid).transpose(2, 0, 1).reshape(-1)
        counts = computed if counts is None else np.concatenate([counts.astype(np.int64), computed[counts.size :]])
    if counts is None or counts.size < total or counts.dtype.kind not in "iu":
        tags.fail(
            f"{0 if counts is None else counts.size} byte counts of strips or tiles, {total} are needed",
            "StripByteCounts",
        )
    offset, length = (_to_grid(column[:total], grid) for column in (offsets, counts))
    if expected is not None:
        # Byte counts of uncompressed strips are often wrong: all left at zero, or not clipped at the
        # bottom.
        length = np.minimum(length, expected) if length.any() else np.broadcast_to(expected, grid)
    return offset, length


def _to_grid(column: npt.NDArray[Any], grid: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return a column of the file (band after band) as an array over rows, columns and bands,
    limited to `FAR`.
    """
    if column.dtype.itemsize == 8 and int(column.max()) > FAR:
        column = np.minimum(column, FAR)
    wide = column.astype(np.int64)
    return wide.reshape(grid) if grid[2] == 1 else wide.reshape(grid[2], grid[0], grid[1]).transpose(1, 2, 0)


def _uncompressed_sizes(image: TiffImage, grid: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the bytes of each uncompressed strip or tile, by row of the grid."""
    rows = image.block[0]
    heights = np.full(grid[0], rows, np.int64)
    if not image.tiled:
        heights[-1] = image.height - (grid[0] - 1) * rows
    return np.asarray(image.stored_bytes(heights), np.int64).reshape(-1, 1, 1)


def _is_contiguous(offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64]) -> bool:
    """Return whether the strips of each band follow each other without a gap."""
    return bool((offset[1:] == offset[:-1] + length[:-1]).all())
