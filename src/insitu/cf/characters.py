"""Join arrays of single characters into arrays of fixed-length text.

netCDF-3 and many netCDF-4 files hold text as single characters along a last dimension. The bytes of
`n` characters are the bytes of one `S<n>`, so where a cell has whole texts only its encoding
changes and nothing is read. Characters cut into several cells are read and kept inline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.errors import UnsupportedError
from insitu.model import Axis, Tile, VirtualArray

__all__ = ["stack_characters"]


def stack_characters(array: VirtualArray, values: Callable[[], NDArray[Any]] | None = None) -> VirtualArray:
    """Return the array without its last dimension: the characters along it are texts of fixed
    length.

    Parameters
    ----------
    array
        Of type `S1`, as scanned.
    values
        Reads all of it, for arrays whose texts are cut into several cells.
    """
    length = array.shape[-1]
    dtype = np.dtype(f"S{max(length, 1)}")
    shape, dims = array.shape[:-1], array.dims[:-1]
    if length == 0:
        return _from_texts(array, np.zeros(shape, dtype))
    tiles = [_to_text_tile(tile, length) for tile in array.tiles]
    if all(tile is not None for tile in tiles):
        present_tiles = tuple(tile for tile in tiles if tile is not None)
        return replace(
            array,
            shape=shape,
            dims=dims,
            dtype=dtype,
            tiles=present_tiles,
            origins=array.origins[:, :-1],
            fill_value=None,
        )
    if values is None:
        raise UnsupportedError(
            "the characters of one text lie in several chunks", hint="Open the file with concat_characters=False"
        )
    return _from_texts(array, np.ascontiguousarray(values()).view(dtype).reshape(shape))


def _to_text_tile(tile: Tile, length: int) -> Tile | None:
    """Return the tile with its characters as texts.

    None if a text is cut by the border of a cell.
    """
    last = len(tile.axes) - 1
    axis = tile.axes[last]
    if tile.dimensions[-1:] != (last,) or axis.count != 1 or axis.length != length:
        return None
    shown = axis.show(np.zeros(1, np.int64))
    if (int(shown.skip[0]), int(shown.step[0]), int(shown.stored[0])) != (0, 1, length):
        return None
    if any(encoding.order is not None and encoding.order[-1] != last for encoding in tile.encodings):
        return None
    encodings = tuple(
        replace(encoding, dtype=np.dtype(f"S{length}"), fill=None if encoding.fill is None else encoding.fill * length)
        for encoding in tile.encodings
    )
    # The axis stays, with one text along it, and no dimension names it.
    return replace(tile, axes=(*tile.axes[:-1], Axis.regular(1, 1)), encodings=encodings, layout=tile.dimensions[:-1])


def _from_texts(array: VirtualArray, texts: NDArray[Any]) -> VirtualArray:
    """Return the array with its texts inline."""
    return VirtualArray.from_values(texts, dims=array.dims[:-1], attributes=array.attributes, details=array.details)
