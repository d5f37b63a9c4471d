"""VirtualArray: an array described by the places of its chunks, and read only on demand.

It is a mosaic of tiles, nearly always one: boxes that do not overlap, each a grid of cells. Where
no tile lies, the array is Absent. Every structural operation (slice, take, transpose, expand,
broadcast) makes a new mosaic and reads nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError
from insitu.model.axis import Axis, Indices, clip_stride
from insitu.model.cf_attributes import MOVED_BY_DECODING
from insitu.model.chunks import Columns
from insitu.model.description import describe_array
from insitu.model.encoding import Encoding
from insitu.model.format_details import ArrayDetails
from insitu.model.packing import Packing
from insitu.model.selection import Selection, Selector, Stride, selector_bounds
from insitu.model.source import Source
from insitu.model.tile import Tile, distinct_sources

__all__ = ["VirtualArray"]

NO_DETAILS = ArrayDetails()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VirtualArray:
    """An array whose chunks are described, not loaded."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """Type of the values that reading gives, after CF decoding."""
    dims: tuple[str, ...]
    tiles: tuple[Tile, ...]
    origins: Indices
    """(tiles, dimensions): the lower corner of each tile."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fill_value: Any = None
    """Value of Absent places, of type `dtype`; None: NaN or NaT where the type has one."""
    details: ArrayDetails = NO_DETAILS
    """What the format says about the array beyond its attributes."""
    encoding: Mapping[str, Any] = field(default_factory=dict)
    """What xarray calls the encoding: the CF attributes that decoding consumed, and how the file
    stores the variable.
    """
    _upper_corners: npt.NDArray[np.int64] | None = field(default=None, init=False, repr=False)
    _only_chunk: tuple[Tile | None] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.dims) != len(self.shape):
            raise ModelError(f"{len(self.dims)} dimension names {self.dims} for the shape {self.shape}")
        if self.origins.shape != (len(self.tiles), len(self.shape)):
            raise ModelError(
                f"origins of shape {self.origins.shape} do not fit {len(self.tiles)} tiles in {len(self.shape)} "
                "dimensions"
            )

    def __repr__(self) -> str:
        return describe_array(self)

    @classmethod
    def of(
        cls,
        tile: Tile,
        *,
        dims: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        fill_value: Any = None,
        details: ArrayDetails = NO_DETAILS,
    ) -> VirtualArray:
        """Return the array that consists of one tile."""
        dtypes = {encoding.dtype for encoding in tile.encodings}
        dtype = dtypes.pop() if len(dtypes) == 1 else shared_dtype([*dtypes])
        shape = tile.shape
        return cls(
            shape=shape,
            dtype=dtype,
            dims=tuple(dims),
            tiles=(tile,),
            origins=np.zeros((1, len(shape)), np.int64),
            attributes=dict(attributes or {}),
            fill_value=fill_value,
            details=details,
        )

    @classmethod
    def from_values(
        cls,
        values: npt.NDArray[Any],
        *,
        dims: Sequence[str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        details: ArrayDetails = NO_DETAILS,
    ) -> VirtualArray:
        """Return an array that carries its values with it, as one inline chunk.

        Parameters
        ----------
        values
            Elements of fixed size; objects cannot be carried.
        dims
            Names of the dimensions; by default `dim_0`, `dim_1`, ….
        attributes, details
            As for the class.

        Examples
        --------
        >>> VirtualArray.from_values(np.arange(3), dims=("x",)).shape
        (3,)
        """
        if values.dtype.hasobject or not values.dtype.itemsize:
            raise ModelError(f"values of {values.dtype} cannot be stored inline: their elements have no fixed size")
        axes, grid, names = _whole_axes(values.shape)
        table = Columns.of_inline(grid, values.tobytes()) if values.size else Columns.of_unwritten(grid)
        tile = Tile(axes, (Encoding(values.dtype),), table)
        return cls.of(tile, dims=names if dims is None else dims, attributes=attributes, details=details)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(map(int, self.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of all values, once read."""
        return self.size * self.dtype.itemsize

    @property
    def sources(self) -> tuple[Source, ...]:
        """The archive objects that hold its chunks, each once."""
        return distinct_sources(self.tiles)

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Type of the stored values: one that holds those of all files."""
        return shared_dtype([encoding.dtype for tile in self.tiles for encoding in tile.encodings])

    def stored_attributes(self, packing: Packing | None = None) -> dict[str, Any]:
        """Return the attributes as a file has them, including those that decoding moved to the
        encoding.

        Parameters
        ----------
        packing
            That of all cells, if they have one: what it says and not all files said is there, too.
        """
        found = dict(self.attributes)
        found |= {key: self.encoding[key] for key in MOVED_BY_DECODING if key in self.encoding and key not in found}
        if packing is not None and not packing.identity:
            from insitu.model.packing_attributes import restore_packing_attributes  # reading needs none of it

            found |= restore_packing_attributes(found, packing, self.stored_dtype)
        stored = {encoding.dtype.kind for tile in self.tiles for encoding in tile.encodings}
        if self.dtype == bool and "b" not in stored:
            found["dtype"] = "bool"
        elif self.dtype.kind == "m" and "units" in found:  # without it xarray takes the numbers for numbers
            found["dtype"] = str(self.dtype)
        return found

    def absent_value(self) -> Any:
        """Return the value of Absent places; raise ModelError if the type has none."""
        if self.fill_value is not None:
            return self.fill_value
        if self.dtype.kind in "fc":
            return self.dtype.type(np.nan)
        if self.dtype.kind in "mM":
            return np.array("NaT", self.dtype)[()]
        if self.dtype.kind == "O":
            return np.nan
        raise ModelError(
            f"no file covers some places of the array, and {self.dtype} has no value that means absent",
            hint="Give a fill_value, or use a float type",
        )

    def upper_corners(self) -> npt.NDArray[np.int64]:
        """Return the upper corner of each tile (exclusive), as an array of (tiles, dimensions)."""
        if self._upper_corners is None:  # cached: there may be ten thousand tiles, and every selection needs them
            shapes = [tile.shape for tile in self.tiles]
            corners = self.origins + np.array(shapes, np.int64).reshape(self.origins.shape)
            object.__setattr__(self, "_upper_corners", corners)
            return corners
        return self._upper_corners

    def find_only_chunk(self) -> Tile | None:
        """Return the tile of an array that is one written chunk or a box of one; None if it is anything else."""
        if self._only_chunk is None:  # cached: every reduction of values that were kept asks for it
            object.__setattr__(self, "_only_chunk", (self._look_for_only_chunk(),))
        assert self._only_chunk is not None
        return self._only_chunk[0]

    def _look_for_only_chunk(self) -> Tile | None:
        if len(self.tiles) != 1:
            return None
        tile = self.tiles[0]
        if not isinstance(tile.chunks, Columns) or tile.dimensions != tuple(range(len(tile.axes))):
            return None
        is_one = tile.shape == self.shape and all(axis.count == 1 and axis.is_contiguous for axis in tile.axes)
        return tile if is_one and tile.chunks.source.item(0) >= 0 else None

    def __getitem__(self, key: Any) -> VirtualArray:
        """Select by integers and slices, or orthogonally by index arrays. Reads nothing."""
        selection = Selection.of(key, self.shape)
        array = self._apply_strides([s if isinstance(s, Stride) else Stride(s, 1, 1) if isinstance(s, int) else None
                              for s in selection.selectors])  # fmt: skip
        for dimension, selector in enumerate(selection.selectors):
            if isinstance(selector, np.ndarray):
                array = array.take(dimension, selector)
        for dimension in reversed([d for d, s in enumerate(selection.selectors) if isinstance(s, int)]):
            array = array.drop(dimension)
        return array

    def _apply_strides(self, strides: Sequence[Stride | None]) -> VirtualArray:
        """Slice along several dimensions at once."""
        wanted = {d: s for d, s in enumerate(strides) if s is not None and s != Stride(0, 1, self.shape[d])}
        if not wanted:
            return self
        shape = tuple(wanted[d].length if d in wanted else length for d, length in enumerate(self.shape))
        tiles, origins = list(self.tiles), self.origins.copy()
        if len(tiles) > 1:
            touched = self.touched_tiles(strides)
            tiles, origins = [self.tiles[i] for i in touched], origins[touched]
        keep = []
        for i, tile in enumerate(tiles):
            for dimension, stride in wanted.items():
                inner, at = clip_stride(stride, int(origins[i, dimension]), tile.shape[dimension])
                tile = tile.cut(dimension, inner)
                origins[i, dimension] = at
            tiles[i] = tile
            # An empty array keeps its tile, and with it the encoding.
            if 0 not in tile.shape or (len(tiles) == 1 and tile.shape == shape):
                keep.append(i)
        return replace(self, shape=shape, tiles=tuple(tiles[i] for i in keep), origins=origins[keep])

    def touched_tiles(self, selectors: Sequence[Selector | None]) -> npt.NDArray[np.intp]:
        """Return the numbers of the tiles that selectors may touch, by bounding box; None selects everything.

        An index array, or a wide step, may still take nothing of them.
        """
        if len(self.tiles) == 1:  # as of one file: the test would take a third of an estimate
            return np.zeros(1, np.intp)
        near, far = self.origins, self.upper_corners()
        touched = np.ones(len(self.tiles), bool)
        for dimension, selector in enumerate(selectors):
            if selector is not None:
                low, high = selector_bounds(selector)
                touched &= (near[:, dimension] <= high) & (far[:, dimension] > low)
        return np.flatnonzero(touched)

    def take(self, dimension: int, indices: npt.ArrayLike) -> VirtualArray:
        """Select elements along one dimension by index; -1 gives Absent. Reads nothing."""
        index = np.asarray(indices, np.int64)
        shape = (*self.shape[:dimension], len(index), *self.shape[dimension + 1 :])
        if len(index) and (index.min() < -1 or index.max() >= self.shape[dimension]):
            raise ModelError(f"indices must lie between -1 and {self.shape[dimension] - 1} along dimension {dimension}")
        if len(self.tiles) == 1 and self.tiles[0].shape == self.shape:
            return replace(self, shape=shape, tiles=(self.tiles[0].take(dimension, index),))
        # Between two borders of tiles along this dimension, a tile covers either everything or
        # nothing.
        borders = np.unique(np.concatenate([self.origins[:, dimension], self.upper_corners()[:, dimension]]))
        part = np.where(index < 0, -1, np.searchsorted(borders, index, side="right"))
        begins = np.flatnonzero(np.diff(part, prepend=-2))
        tiles, origins = [], []
        near, far = self.origins[:, dimension], self.upper_corners()[:, dimension]
        for begin, end in zip(begins, np.append(begins, len(index))[1:], strict=True):
            if index[begin] < 0:
                continue
            for i in np.flatnonzero((near <= index[begin]) & (far > index[begin])):
                tiles.append(self.tiles[i].take(dimension, index[begin:end] - near[i]))
                origin = self.origins[i].copy()
                origin[dimension] = begin
                origins.append(origin)
        table = np.array(origins, np.int64).reshape(len(tiles), self.ndim)
        return replace(self, shape=shape, tiles=tuple(tiles), origins=table)

    def drop(self, dimension: int) -> VirtualArray:
        """Remove a dimension of length 1."""
        return replace(
            self,
            shape=_drop_item(self.shape, dimension),
            dims=_drop_item(self.dims, dimension),
            tiles=tuple(tile.drop(dimension) for tile in self.tiles),
            origins=np.delete(self.origins, dimension, axis=1),
        )

    def transpose(self, *order: int) -> VirtualArray:
        """Reorder the dimensions; reverse them if no order is given."""
        axes = order or tuple(reversed(range(self.ndim)))
        if sorted(axes) != list(range(self.ndim)):
            raise ModelError(f"{axes} is not an order of {self.ndim} dimensions")
        return replace(
            self,
            shape=tuple(self.shape[d] for d in axes),
            dims=tuple(self.dims[d] for d in axes),
            tiles=tuple(tile.transpose(axes) for tile in self.tiles),
            origins=self.origins[:, list(axes)],
        )

    def expand_dims(self, dimension: int, name: str, length: int = 1) -> VirtualArray:
        """Insert a new dimension along which the values repeat."""
        return replace(
            self,
            shape=(*self.shape[:dimension], length, *self.shape[dimension:]),
            dims=(*self.dims[:dimension], name, *self.dims[dimension:]),
            tiles=tuple(tile.expand(dimension, length) for tile in self.tiles),
            origins=np.insert(self.origins, dimension, 0, axis=1),
        )

    def broadcast_to(self, shape: Sequence[int], dims: Sequence[str] | None = None) -> VirtualArray:
        """Broadcast as NumPy does: new dimensions in front, lengths of 1 repeated."""
        shape = tuple(shape)
        extra = len(shape) - self.ndim
        if extra < 0 or any(have not in (1, want) for have, want in zip(self.shape, shape[extra:], strict=True)):
            raise ModelError(f"an array of shape {self.shape} cannot be broadcast to {shape}")
        array = self
        names = tuple(dims) if dims is not None else tuple(f"dim_{i}" for i in range(extra)) + self.dims
        for dimension in reversed(range(extra)):
            array = array.expand_dims(0, names[dimension])
        tiles = array.tiles
        for dimension, length in enumerate(shape):
            if array.shape[dimension] != length:
                tiles = tuple(tile.broadcast(dimension, length) for tile in tiles)
        return replace(array, shape=shape, dims=names, tiles=tiles)

    def split(self, limit: int | None = None) -> VirtualArray:
        """Split large uncompressed cells: see `Tile.split`."""
        tiles = tuple(tile.split() if limit is None else tile.split(limit) for tile in self.tiles)
        return replace(self, tiles=tiles)


def _drop_item(items: tuple[Any, ...], position: int) -> tuple[Any, ...]:
    return items[:position] + items[position + 1 :]


def shared_dtype(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the common type of several types: NumPy's promotion, object where it has none."""
    native = {dtype.newbyteorder("=") for dtype in dtypes}
    if len(native) == 1:
        return native.pop()
    kinds = {dtype.kind for dtype in native}
    if kinds & set("SU") and len(kinds) > 1:
        return np.dtype(object)  # NumPy would turn numbers into text; xarray keeps them
    try:
        return np.result_type(*native)
    except TypeError:  # structures of different fields, times with numbers
        return np.dtype(object)


@lru_cache(maxsize=256)
def _whole_axes(shape: tuple[int, ...]) -> tuple[tuple[Axis, ...], tuple[int, ...], tuple[str, ...]]:
    """Return axes of one cell each, the grid, and names for the dimensions."""
    axes = tuple(Axis.regular(length, max(length, 1)) for length in shape)
    return axes, tuple(axis.count for axis in axes), tuple(f"dim_{i}" for i in range(len(shape)))
