"""Wire format of virtual arrays: the location of every chunk, and how it is encoded.

Only what reading and reducing need is sent: shapes, chunk grids, tables, encodings, packings,
sources. A thousand chunks take about 3 KB. Incoming tables are checked for everything that the
model assumes of its own, so that a bad table is an error and never a wrong value.
"""

from __future__ import annotations

import math
from codecs import lookup
from collections.abc import Container, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.wire import (
    MAX_AXES,
    MAX_ELEMENTS,
    check_length,
    check_plain,
    check_shape,
    dtype_from_wire,
    dtype_to_wire,
    get_field,
    integers_from_wire,
    integers_to_wire,
    values_from_wire,
    values_to_wire,
)
from insitu.cancellation import check_deadline
from insitu.errors import ModelError
from insitu.model import Axis, Codec, Columns, Encoding, Source, Tile, VirtualArray
from insitu.model.packing import IDENTITY, PACKING_COLUMNS, PLAIN_NUMBER_TYPES, PackingKind, Packings
from insitu.model.time_units import NANOSECONDS, RESOLUTIONS

__all__ = ["MAX_CODECS", "MAX_CONFIGURATION_CHARS", "array_from_wire", "array_to_wire"]

MAX_ENCODINGS = 1 << 16
MAX_CODECS = 64
"""HDF5 has up to 32; a chain of thousands would be an attack."""
MAX_CONFIGURATION_CHARS = 64 << 10
"""Longest description of the codecs of a chunk: decoders are cached by it."""
LARGEST = float(1 << 62)
"""Positions and lengths along an axis are smaller."""
_COLUMNS = ("source", "offset", "length", "filter_mask", "encoding", "packing")


def array_to_wire(array: VirtualArray) -> dict[str, Any]:
    """Return a virtual array in wire format: the locations of its chunks, without its
    attributes.
    """
    fill = None if array.fill_value is None else values_to_wire(np.asarray(array.fill_value, array.dtype))
    sources: dict[Source, int] = {}
    tiles = [_tile_to_wire(tile, sources) for tile in array.tiles]
    return {
        "shape": list(array.shape),
        "dtype": dtype_to_wire(array.dtype),
        "fill": fill,
        "origins": integers_to_wire(array.origins),
        "tiles": tiles,
        "sources": [[s.url, s.size, s.etag, s.modified, s.optional] for s in sources],
    }


def array_from_wire(data: Any, most: int = MAX_ELEMENTS) -> VirtualArray:
    """Return the array that `array_to_wire` wrote; an error if its tables are not consistent."""
    lengths = get_field(data, "shape", list)
    if len(lengths) > MAX_AXES:
        raise ModelError(f"an array must have at most {MAX_AXES} axes")
    shape = tuple(check_length(length) for length in lengths)
    dtype = dtype_from_wire(get_field(data, "dtype"))
    if math.prod(shape) * max(dtype.itemsize, 1) >= 1 << 63:
        raise ModelError("an array must have fewer than 2**63 bytes")
    sources = tuple(_source_from_wire(row) for row in get_field(data, "sources", list))
    tiles = tuple(_tile_from_wire(tile, sources, most) for tile in get_field(data, "tiles", list))
    origins = integers_from_wire(get_field(data, "origins"), most)
    if origins.shape != (len(tiles), len(shape)):
        raise ModelError(f"origins of shape {origins.shape} do not fit {len(tiles)} tiles in {len(shape)} dimensions")
    for tile, origin in zip(tiles, origins.tolist(), strict=True):
        if len(tile.shape) != len(shape) or any(
            o < 0 or o + n > whole for o, n, whole in zip(origin, tile.shape, shape, strict=True)
        ):
            raise ModelError("the table of the array is damaged: a tile lies outside of the array")
    dims = tuple(f"dim_{i}" for i in range(len(shape)))
    return VirtualArray(shape, dtype, dims, tiles, origins, fill_value=_fill_from_wire(get_field(data, "fill"), dtype))


def _fill_from_wire(data: Any, dtype: np.dtype[Any]) -> Any:
    if data is None:
        return None
    found = values_from_wire(data)
    if found.size != 1 or not np.can_cast(found.dtype, dtype, "same_kind"):
        raise ModelError(f"the fill value must be one value of {dtype}, not {found.size} of {found.dtype}")
    return found.reshape(())[()]


def _source_from_wire(row: Any) -> Source:
    if not isinstance(row, list) or len(row) != 5:
        raise ModelError("a source must be a list of URL, size, ETag, modification time, and whether it may be missing")
    url, size, etag, modified, optional = row
    if not isinstance(url, str) or not isinstance(etag, (str, type(None))):
        raise ModelError("the URL of a source must be a string, and its ETag a string or null")
    if modified is not None and not (isinstance(modified, (int, float)) and abs(modified) < LARGEST):
        raise ModelError("the modification time of a source must be a number or null")
    return Source(url, None if size is None else check_length(size), etag, modified, bool(optional))


def _tile_to_wire(tile: Tile, sources: dict[Source, int]) -> dict[str, Any]:
    shape = tuple(tile.chunks.shape)
    located = tile.chunks.locate(np.ix_(*(np.arange(count) for count in shape)))
    source = np.asarray(located.source)
    pool = tile.chunks.sources
    used, at = np.unique(source[source >= 0], return_inverse=True)
    numbers = np.array([sources.setdefault(pool[n], len(sources)) for n in used.tolist()] or [0], np.int64)
    known = source.astype(np.int64)
    known[source >= 0] = numbers[at.reshape(-1)]
    columns = {
        name: integers_to_wire(np.asarray(getattr(located, name)).reshape(shape))
        for name in ("offset", "length", "filter_mask", "encoding", "packing")
    }
    return {
        "grid": list(shape),
        "axes": [_axis_to_wire(axis) for axis in tile.axes],
        "encodings": [_encoding_to_wire(encoding) for encoding in tile.encodings],
        "packings": None if tile.packings.identity else _packings_to_wire(tile.packings),
        "layout": list(tile.dimensions),
        "source": integers_to_wire(known.reshape(shape)),
        "inline": bytes(located.inline),
        **columns,
    }


def _tile_from_wire(data: Any, sources: tuple[Source, ...], most: int) -> Tile:
    check_deadline()
    grid = check_shape(get_field(data, "grid", list))
    if len(get_field(data, "axes", list)) > MAX_AXES or len(get_field(data, "encodings", list)) > MAX_ENCODINGS:
        raise ModelError(f"a tile must have at most {MAX_AXES} axes and {MAX_ENCODINGS} encodings")
    if math.prod(grid) > most:
        raise ModelError(f"a table of {math.prod(grid)} chunks is larger than the limit of {most}")
    columns = {name: integers_from_wire(get_field(data, name), most) for name in _COLUMNS}
    if any(column.shape != grid for column in columns.values()):
        raise ModelError(f"the columns of a table do not fit a grid of {grid}")
    encodings = tuple(_encoding_from_wire(encoding) for encoding in data["encodings"])
    stated = get_field(data, "packings")
    packings = IDENTITY if stated is None else _packings_from_wire(stated)
    inline = get_field(data, "inline", bytes)
    _check_columns(columns, len(encodings), len(packings), len(inline))
    axes = tuple(_axis_from_wire(axis, most) for axis in data["axes"])
    layout = tuple(check_length(axis) for axis in get_field(data, "layout", list))
    if len(set(layout)) != len(layout) or any(axis >= len(axes) for axis in layout):
        raise ModelError("the layout of a tile names axes that it does not have")
    if any(axis.length != 1 for i, axis in enumerate(axes) if i not in layout):
        raise ModelError("an axis that is not in the layout of a tile must have length 1")
    return Tile(axes, encodings, Columns(grid, sources, **columns, inline=inline), packings, layout)


def _check_columns(columns: Mapping[str, npt.NDArray[np.int64]], encodings: int, packings: int, inline: int) -> None:
    """Raise an error if the columns of a table do not fulfil what the model
    assumes of its own tables.
    """
    bounds = {
        "source": (-3, None),
        "offset": (0, None),
        "length": (-1, None),
        "filter_mask": (0, None),
        "encoding": (0, encodings),
        "packing": (0, packings),
    }
    for name, (low, high) in bounds.items():
        column = columns[name]
        if column.size and (column.min() < low or (high is not None and column.max() >= high)):
            raise ModelError(f"column {name} of a table has numbers outside of its range")
    within = columns["source"] == -3
    # Not offset + length, which may exceed 64 bits.
    if (columns["offset"][within] > inline - columns["length"][within]).any():
        raise ModelError("an inline chunk lies outside of the inline bytes")


def _axis_to_wire(axis: Axis) -> Any:
    if axis.cells is None:
        return [axis.length, axis.size, axis.padded]
    return {name: integers_to_wire(column) for name, column in zip(axis.cells._fields, axis.cells, strict=True)}


def _axis_from_wire(data: Any, most: int) -> Axis:
    if isinstance(data, list):
        if len(data) != 3:
            raise ModelError("a regular axis must be a list of length, size, and whether it is padded")
        length, size, padded = data
        return Axis.regular(check_length(length), check_length(size), bool(padded))
    extent, skip, step, stored = (
        integers_from_wire(get_field(data, name), most) for name in ("extent", "skip", "step", "stored")
    )
    if extent.ndim != 1 or any(c.shape not in ((1,), extent.shape) for c in (skip, step, stored)):
        raise ModelError("the columns of an axis differ in length")
    # In floating point, too: the products and sums may exceed 64 bits.
    reach = np.abs(step.astype(np.float64)) * (extent - 1)
    if (reach >= LARGEST).any() or extent.sum(dtype=np.float64) >= LARGEST:
        raise ModelError("a cell shows elements that its chunk does not have")
    last = skip + step * (extent - 1)
    room = np.maximum(stored, 1)
    shown = extent > 0
    bad = (extent < 0) | (stored < 0) | (shown & ((skip < 0) | (skip >= room) | (last < 0) | (last >= room)))
    if bad.any():
        raise ModelError("a cell shows elements that its chunk does not have")
    return Axis.irregular(extent, skip, step, stored)


def _encoding_to_wire(encoding: Encoding) -> dict[str, Any]:
    return {
        "dtype": dtype_to_wire(encoding.dtype),
        "codecs": [[codec.name, dict(codec.configuration)] for codec in encoding.codecs],
        "order": None if encoding.order is None else list(encoding.order),
        "fill": encoding.fill,
    }


def _encoding_from_wire(data: Any) -> Encoding:
    codecs = []
    for codec in get_field(data, "codecs", list):
        if not isinstance(codec, list) or [type(item) for item in codec] != [str, dict]:
            raise ModelError("a codec must be a list of name and configuration")
        codecs.append(Codec(codec[0], check_plain(codec[1])))
    if len(codecs) > MAX_CODECS or len(repr(codecs)) > MAX_CONFIGURATION_CHARS:
        raise ModelError(
            f"a chunk must have at most {MAX_CODECS} codecs, described in at most {MAX_CONFIGURATION_CHARS} characters"
        )
    axes = get_field(data, "order", list, type(None))
    order = None if axes is None else tuple(check_length(axis) for axis in axes)
    fill = get_field(data, "fill", bytes, type(None))
    return Encoding(dtype_from_wire(get_field(data, "dtype")), tuple(codecs), order, fill)


def _packings_to_wire(packings: Packings) -> dict[str, Any]:
    kinds = []
    for kind in packings.kinds:
        entries = asdict(kind)
        entries["missing"] = [values_to_wire(np.asarray(value)) for value in kind.missing]
        kinds.append(entries)
    return {
        "kinds": kinds,
        "missing_types": list(packings.missing_types),
        **{name: values_to_wire(np.asarray(getattr(packings, name), kind)) for name, kind in PACKING_COLUMNS.items()},
    }


_KIND_FIELDS = frozenset(field.name for field in fields(PackingKind))


def _packings_from_wire(data: Any) -> Packings:
    kinds = tuple(_packing_kind_from_wire(kind) for kind in get_field(data, "kinds", list))
    columns = {name: _packing_column_from_wire(get_field(data, name), kind) for name, kind in PACKING_COLUMNS.items()}
    types = get_field(data, "missing_types", list)
    for name in types:
        _check_number_type(name, PLAIN_NUMBER_TYPES, "biufcmMSUV", 8)
    rows, wide = columns["kind"].shape, columns["missing"].shape
    if (
        len(rows) != 1
        or any(columns[name].shape != rows for name in ("scale", "offset", "epoch"))
        or len(wide) != 2
        or wide[:1] != rows
        or columns["missing_type"].shape != wide
    ):
        raise ModelError("the columns of a packing differ in length")
    if rows[0] and (columns["kind"].min() < 0 or columns["kind"].max() >= len(kinds)):
        raise ModelError("a packing refers to a kind that does not exist")
    if columns["missing_type"].size and columns["missing_type"].max() >= len(types):
        raise ModelError("a packing refers to a type that does not exist")
    return Packings(kinds=kinds, missing_types=tuple(types), **columns)


def _packing_kind_from_wire(data: Any) -> PackingKind:
    missing = tuple(_missing_from_wire(value) for value in get_field(data, "missing", list))
    if set(data) - _KIND_FIELDS:
        raise ModelError(f"a packing must have no entries but {', '.join(sorted(_KIND_FIELDS))}")
    kind = PackingKind(**{**data, "missing": missing})
    if not isinstance(kind.unsigned, (bool, type(None))):
        raise ModelError("the entry 'unsigned' of a packing must be true, false or null")
    for name in _KIND_FIELDS - {"missing", "unsigned"}:
        if not isinstance(getattr(kind, name), (str, type(None))):
            raise ModelError(f"the entry {name!r} of a packing must be text or null")
    for dtype in (kind.masked, kind.scaled):
        if dtype is not None:
            _check_number_type(dtype, (), "biufcmMOSU", 1 << 20)
    for number in (kind.scale_dtype, kind.offset_dtype):
        if number is not None:
            _check_number_type(number, PLAIN_NUMBER_TYPES, "iuf")
    if kind.dtype is not None:
        dtype_from_wire(kind.dtype)
    if kind.charset is not None:
        try:
            lookup(kind.charset)
        except LookupError:
            raise ModelError(f"there is no encoding of text {kind.charset[:40]!r}") from None
    _check_times(kind)
    return kind


def _check_number_type(name: Any, names: Container[str], kinds: str, most: int = 32) -> None:
    """Raise an error unless `name` is one of these names, or a type of such a kind of at most so
    many bytes.
    """
    if isinstance(name, str) and name in names:
        return
    dtype = dtype_from_wire(name)
    if dtype.kind not in kinds or dtype.fields is not None or not 0 < dtype.itemsize <= most:
        raise ModelError(f"a packing must not have numbers of {dtype}")


def _check_times(kind: PackingKind) -> None:
    """Raise an error unless the units of times are known ones."""
    if kind.unit is None or kind.epoch is not None:
        return
    units = (kind.base, kind.base if kind.fine is None else kind.fine)
    if kind.unit not in NANOSECONDS or not set(units) <= set(RESOLUTIONS):
        raise ModelError(f"times cannot have the units {kind.unit!r}, {kind.base!r} and {kind.fine!r}")
    if kind.dtype is None or dtype_from_wire(kind.dtype).kind not in "mM":
        raise ModelError(f"times cannot have the type {kind.dtype!r}")


def _missing_from_wire(data: Any) -> Any:
    found = values_from_wire(data)
    if found.size != 1:
        raise ModelError(f"a missing value must be one value, not {found.size}")
    return found.reshape(())[()]


def _packing_column_from_wire(data: Any, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    found = values_from_wire(data)
    if found.dtype.newbyteorder("=") != np.dtype(kind):
        raise ModelError(f"a column of packings must be of {np.dtype(kind)}, not {found.dtype}")
    return found.astype(kind)
