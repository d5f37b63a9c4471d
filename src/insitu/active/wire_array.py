"""Wire format of virtual arrays: the location of every chunk, and how it is encoded.

Only what reading and reducing need is sent: shapes, chunk grids, tables, encodings, packings,
sources. A thousand chunks take about 3 KB. Incoming tables are checked for everything that the
model assumes of its own, so that a bad table is an error and never a wrong value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.wire import (
    MAX_ELEMENTS,
    check_length,
    dtype_from_wire,
    dtype_to_wire,
    integers_from_wire,
    integers_to_wire,
    values_from_wire,
    values_to_wire,
)
from insitu.cancellation import check_deadline
from insitu.errors import InsituError, ModelError
from insitu.model import Axis, Codec, Columns, Encoding, Source, Tile, VirtualArray
from insitu.model.packing import IDENTITY, PackingKind, Packings

__all__ = ["MAX_CODECS", "MAX_CONFIGURATION_CHARS", "array_from_wire", "array_to_wire"]

MAX_AXES = 64
"""The limit of NumPy."""
MAX_ENCODINGS = 1 << 16
MAX_CODECS = 64
"""HDF5 has up to 32; a chain of thousands would be an attack."""
MAX_CONFIGURATION_CHARS = 64 << 10
"""Longest description of the codecs of a chunk: decoders are cached by it."""


def array_to_wire(array: VirtualArray) -> dict[str, Any]:
    """Return a virtual array in wire format: the locations of its chunks, without its attributes."""
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
    try:
        shape = tuple(check_length(length) for length in data["shape"])
        dtype = dtype_from_wire(data["dtype"])
        if len(shape) > MAX_AXES or math.prod(shape) * max(dtype.itemsize, 1) >= 1 << 63:
            raise ModelError(f"an array must have at most {MAX_AXES} axes and 2**63 bytes")
        sources = tuple(_source_from_wire(row) for row in data["sources"])
        tiles = tuple(_tile_from_wire(tile, sources, most) for tile in data["tiles"])
        origins = integers_from_wire(data["origins"], most).reshape(len(tiles), len(shape))
        fill = None if data["fill"] is None else values_from_wire(data["fill"]).reshape(())[()]
        for tile, origin in zip(tiles, origins.tolist(), strict=True):
            if len(tile.shape) != len(shape) or any(
                o < 0 or o + n > whole for o, n, whole in zip(origin, tile.shape, shape, strict=True)
            ):
                raise ModelError("the table of the array is damaged: a tile lies outside of the array")
        dims = tuple(f"dim_{i}" for i in range(len(shape)))
        return VirtualArray(shape, dtype, dims, tiles, origins, fill_value=fill)
    except InsituError:
        raise
    except (TypeError, ValueError, KeyError, IndexError, OverflowError, AttributeError) as problem:
        raise ModelError(f"not a virtual array: {type(problem).__name__}: {problem}") from problem


def _source_from_wire(row: Any) -> Source:
    url, size, etag, modified, optional = row
    if not isinstance(url, str) or not isinstance(etag, (str, type(None))):
        raise ModelError("the URL of a source must be a string, and its ETag a string or null")
    if not isinstance(modified, (int, float, type(None))):
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
    grid = tuple(check_length(count) for count in data["grid"])
    if len(data["axes"]) > MAX_AXES or len(data["encodings"]) > MAX_ENCODINGS:
        raise ModelError(f"a tile must have at most {MAX_AXES} axes and {MAX_ENCODINGS} encodings")
    if math.prod(grid) > most:
        raise ModelError(f"a table of {math.prod(grid)} chunks is larger than the limit of {most}")
    columns = {name: integers_from_wire(data[name], most) for name in ("source", "offset", "length", "filter_mask", "encoding", "packing")}  # fmt: skip
    encodings = tuple(_encoding_from_wire(encoding) for encoding in data["encodings"])
    packings = IDENTITY if data["packings"] is None else _packings_from_wire(data["packings"])
    inline = bytes(data["inline"])
    _check_columns(columns, len(encodings), len(packings), len(inline))
    axes = tuple(_axis_from_wire(axis, most) for axis in data["axes"])
    layout = tuple(check_length(axis) for axis in data["layout"])
    if len(set(layout)) != len(layout) or any(axis >= len(axes) for axis in layout):
        raise ModelError("the layout of a tile names axes that it does not have")
    if any(axis.length != 1 for i, axis in enumerate(axes) if i not in layout):
        raise ModelError("an axis that is not in the layout of a tile must have length 1")
    return Tile(axes, encodings, Columns(grid, sources, **columns, inline=inline), packings, layout)


def _check_columns(columns: Mapping[str, npt.NDArray[np.int64]], encodings: int, packings: int, inline: int) -> None:
    """Raise an error if the columns of a table do not fulfil what the model
    assumes of its own tables.
    """
    for name, low, high in (
        ("source", -3, None), ("offset", 0, None), ("length", -1, None), ("filter_mask", 0, None),
        ("encoding", 0, encodings), ("packing", 0, packings),
    ):  # fmt: skip
        column = columns[name]
        if column.size and (column.min() < low or (high is not None and column.max() >= high)):
            raise ModelError(f"column {name} of a table has numbers outside of its range")
    within = columns["source"] == -3
    if within.any() and (np.broadcast_to(columns["offset"] + columns["length"], within.shape)[within] > inline).any():
        raise ModelError("an inline chunk lies outside of the inline bytes")


def _axis_to_wire(axis: Axis) -> Any:
    if axis.cells is None:
        return [axis.length, axis.size, axis.padded]
    return {name: integers_to_wire(column) for name, column in zip(axis.cells._fields, axis.cells, strict=True)}


def _axis_from_wire(data: Any, most: int) -> Axis:
    if isinstance(data, list):
        length, size, padded = data
        return Axis.regular(check_length(length), check_length(size), bool(padded))
    extent, skip, step, stored = (integers_from_wire(data[name], most) for name in ("extent", "skip", "step", "stored"))
    if extent.ndim != 1 or any(c.shape not in ((1,), extent.shape) for c in (skip, step, stored)):
        raise ModelError("the columns of an axis differ in length")
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
    for name, configuration in data["codecs"]:
        if not isinstance(name, str) or not isinstance(configuration, dict):
            raise ModelError("a codec must be a list of name and configuration")
        codecs.append(Codec(name, configuration))
    if len(codecs) > MAX_CODECS or len(repr(codecs)) > MAX_CONFIGURATION_CHARS:
        raise ModelError(
            f"a chunk must have at most {MAX_CODECS} codecs, described in at most {MAX_CONFIGURATION_CHARS} characters"
        )
    order = None if data["order"] is None else tuple(check_length(axis) for axis in data["order"])
    fill = None if data["fill"] is None else bytes(data["fill"])
    return Encoding(dtype_from_wire(data["dtype"]), tuple(codecs), order, fill)


def _packings_to_wire(packings: Packings) -> dict[str, Any]:
    kinds = []
    for kind in packings.kinds:
        fields = asdict(kind)
        fields["missing"] = [values_to_wire(np.asarray(value)) for value in kind.missing]
        kinds.append(fields)
    return {
        "kinds": kinds,
        "missing_types": list(packings.missing_types),
        **{name: values_to_wire(getattr(packings, name)) for name in _PACKING_COLUMNS},
    }


_PACKING_COLUMNS = {"kind": np.int32, "scale": np.float64, "offset": np.float64, "missing": np.uint64, "missing_type": np.int32, "epoch": np.int64}  # fmt: skip


def _packings_from_wire(data: Any) -> Packings:
    kinds = []
    for fields in data["kinds"]:
        missing = tuple(values_from_wire(value).reshape(())[()] for value in fields["missing"])
        kinds.append(PackingKind(**{**fields, "missing": missing}))
    columns = {name: values_from_wire(data[name]).astype(kind) for name, kind in _PACKING_COLUMNS.items()}
    types = tuple(str(name) for name in data["missing_types"])
    rows = len(columns["kind"])
    wide = columns["missing"].shape
    if (
        any(len(columns[name]) != rows for name in _PACKING_COLUMNS)
        or len(wide) != 2
        or columns["missing_type"].shape != wide
    ):
        raise ModelError("the columns of a packing differ in length")
    if rows and (columns["kind"].min() < 0 or columns["kind"].max() >= len(kinds)):
        raise ModelError("a packing refers to a kind that does not exist")
    if columns["missing_type"].size and columns["missing_type"].max() >= len(types):
        raise ModelError("a packing refers to a type that does not exist")
    return Packings(kinds=tuple(kinds), missing_types=types, **columns)
