"""`api/chunks` and `api/chunk`: the picture of an array's chunks, and one of them.

The cells of a plane are kept between requests, because a slider or a zoom asks for the same ones
again, and a saved archive would have to page millions of rows in anew.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.routing import BaseRoute

from insitu.errors import InsituError, SourceError
from insitu.lru import LruCache
from insitu.model import Inline, Stored, VirtualArray, VirtualGroup
from insitu.model.encoding_texts import codec_chain_text, packing_text
from insitu.pictures.cell_details import CellDetails, find_cell
from insitu.pictures.cell_grid import MAX_KEPT_CELLS, STATES, is_computed_object
from insitu.pictures.chunk_numbering import Numbering
from insitu.pictures.chunk_picture import COLOURS, ChunkPicture, draw_chunks
from insitu.pictures.chunk_plane import ChunkPlane
from insitu.references.list_objects import list_written_cells
from insitu.server.error_responses import public_message
from insitu.server.explorer.api_answer import ApiAnswer, binary_answer, json_answer
from insitu.server.explorer.api_query import check_dimension
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest, archive_route
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.roots import local_path
from insitu.server.worker import Worker
from insitu.sources.access_policy import public_path
from insitu.sources.address import scheme_of
from insitu.sources.redaction import redact_url

__all__ = ["chunk_routes"]

serve_log = logging.getLogger("insitu.serve")

PLANE_CACHE_BYTES = 192 << 20
"""Size of the cache of planes: two of ten million chunks."""
LEAST_PLANE_BYTES = 1 << 20
"""What a plane counts at least: it keeps the chunk tables of its array alive."""
MAX_PIXELS = 1500
"""Rows and columns of a picture."""
MAX_LISTED_CELLS = 200_000
"""Cells of a Zarr array up to which its store is listed."""
MAX_LEGEND = 40
"""Categories that are named."""
BYTES_PER_PIXEL = 160
BYTES_PER_CELL = 12
BLOCK_BYTES = 128 << 20
"""Memory of the blocks in which cells are looked up."""


def chunk_routes(worker: Worker) -> list[BaseRoute]:
    """Return the routes `chunks` and `chunk`."""
    planes: LruCache[str, ChunkPlane] = LruCache(PLANE_CACHE_BYTES, _plane_bytes, min_items=1)
    return [
        archive_route(worker, "chunks", lambda request: _prepare_picture(request, planes)),
        archive_route(worker, "chunk", _prepare_cell),
    ]


def _plane_bytes(plane: ChunkPlane) -> int:
    return max(plane.nbytes, LEAST_PLANE_BYTES)


def _prepare_picture(request: ArchiveRequest, planes: LruCache[str, ChunkPlane]) -> ApiTask:
    """Prepare the picture of the chunks of a variable."""
    query, archive = request.query, request.archive
    path = query.require("variable")
    array = archive.array(path)
    sizes = dict(zip(array.dims, array.shape, strict=True))
    plane_dims = _plane_dimensions(array, query.get("y") or None, query.get("x") or None)
    given = query.index(sizes)
    index = {number: given.get(dim, 0) for number, dim in enumerate(array.dims) if number not in plane_dims}
    colour = query.choice("colour", COLOURS, "file")
    rows, columns = (query.number(name, usual, 1, MAX_PIXELS) for name, usual in (("rows", 400), ("columns", 600)))
    cells = min(sum(math.prod(tile.chunks.shape) for tile in array.tiles), MAX_KEPT_CELLS)

    def draw(_: Any) -> ApiAnswer:
        known = _with_known_states(archive, path)
        numbering = archive.memo.get(f"chunk numbers of {path}")
        if numbering is None:
            numbering = archive.memo[f"chunk numbers of {path}"] = Numbering.of(known)
        key = repr((archive.url, archive.version, path, plane_dims, index))
        plane = planes.get_or_load(key, lambda: ChunkPlane.of(known, plane_dims, index, numbering))
        picture = draw_chunks(plane, colour, query.box(*plane.shape), rows, columns)
        return _picture_answer(picture, plane, array.dims, {array.dims[number]: at for number, at in index.items()})

    return ApiTask(draw, cost=BLOCK_BYTES + BYTES_PER_PIXEL * rows * columns + BYTES_PER_CELL * cells)


def _with_known_states(archive: OpenedArchive, path: str) -> VirtualArray:
    """Return an array with the state of every cell known, if that takes one listing: the objects of a
    Zarr store are named by a rule, and only a listing says which of them exist.
    """
    array = archive.array(path)
    key = f"listed chunks of {path}"
    if key not in archive.memo:
        computed = [tile for tile in array.tiles if is_computed_object(tile.chunks)]
        cells = sum(math.prod(tile.chunks.shape) for tile in computed)
        can_list = all(scheme_of(tile.chunks.sources[0].url) not in ("http", "https") for tile in computed)
        if computed and cells <= MAX_LISTED_CELLS and can_list:
            try:
                array = list_written_cells(VirtualGroup({"v": array}), archive.options).arrays["v"]
            except SourceError as error:  # a bucket that may be read but not listed
                serve_log.info("the objects of %s cannot be listed: %s", path, public_message(error))
        archive.memo[key] = array
    found: VirtualArray = archive.memo[key]
    return found


def _plane_dimensions(array: VirtualArray, y: str | None, x: str | None) -> tuple[int | None, int | None]:
    """Return the numbers of the dimensions of rows and columns; without names the last ones that are left."""
    for dim in (y, x):
        if dim is not None:
            check_dimension(dim, array.dims)
    column = None if x is None else array.ndim - 1 - array.dims[::-1].index(x)
    row = None if y is None else array.dims.index(y)
    rest = [number for number in range(array.ndim) if number not in (row, column)]
    if column is None and rest:
        column = rest.pop()
    if row is None and rest:
        row = rest.pop()
    return row, column


def _picture_answer(picture: ChunkPicture, plane: ChunkPlane, dims: Sequence[str], index: dict[str, int]) -> ApiAnswer:
    arrays = {name: _to_browser_type(values) for name, values in picture.arrays.items()}
    rows, columns = (None if number is None else dims[number] for number in plane.dimensions)
    some = arrays["stored" if picture.aggregated else "state"]
    header = {
        "form": "raster" if picture.aggregated else "cells",
        "aggregated": picture.aggregated,
        "shape": list(some.shape),
        "y": {"dim": rows, "size": plane.shape[0]},
        "x": {"dim": columns, "size": plane.shape[1]},
        "box": list(picture.box),
        "index": index,
        "colour": picture.colour,
        "cells": picture.cells,
        "tiles": picture.tiles,
        "share": picture.share,
        "counts": picture.counts,
        "states": list(STATES),
        "legend": _legend(picture, plane.numbering),
        "text": _picture_text(picture, [dim for dim in (rows, columns) if dim is not None], index),
    }
    return binary_answer(header, arrays)


def _to_browser_type(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers as 32 bits where they fit, else as floats: browsers have no plain 64-bit integers."""
    if values.dtype != np.int64:
        return values
    fits = not values.size or max(abs(int(values.min())), abs(int(values.max()))) < 2**31
    return values.astype(np.int32 if fits else np.float64)


def _legend(picture: ChunkPicture, numbering: Numbering) -> dict[str, Any]:
    if "value" in picture.arrays:
        values = picture.arrays["value"]
        known = values[np.isfinite(values)]
        names = ("min", "max", "low", "high")
        limits = [known.min(), known.max(), *np.percentile(known, [2, 98])] if known.size else [None] * 4
        return {
            "kind": "number",
            "unit": "B" if picture.colour == "bytes" else "",
            **dict(zip(names, limits, strict=True)),
        }
    category = picture.arrays["category"]
    numbers, counts = np.unique(category[category >= 0], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MAX_LEGEND]
    entries = [
        {"number": number, "name": _name(numbering, picture.colour, number), "count": count}
        for number, count in zip(numbers[order].tolist(), counts[order].tolist(), strict=True)
    ]
    return {
        "kind": "category",
        "categories": len(numbers),
        "entries": entries,
        "left_out": len(numbers) - len(entries),
    }


def _name(numbering: Numbering, colour: str, number: int) -> str:
    name = numbering.name(colour, number)
    return public_url(name) if colour == "file" else name


def public_url(url: str) -> str:
    """Return the name of a source for a client: without credentials, and without paths outside the roots."""
    path = local_path(url)
    if path is None or not os.path.isabs(path):
        return redact_url(url)
    return public_path(path) or "a file outside the roots of this server"


def _picture_text(picture: ChunkPicture, dims: Sequence[str], index: dict[str, int]) -> str:
    """Return a sentence that describes the picture."""
    along = " and ".join(dims) or "no dimension"
    fixed = ", ".join(f"{dim} {at:,}" for dim, at in index.items())
    words = {"computed": "named by a rule, perhaps not written", "unwritten": "never written"}
    states = ", ".join(f"{count:,} {words.get(name, name)}" for name, count in picture.counts.items() if count)
    sampled = f" ({picture.share:.1%} of them were looked at)" if picture.share < 1 else ""
    where = f" at {fixed}" if fixed else ""
    return f"{picture.cells:,} chunks along {along}{where}{sampled}: {states or 'no file covers this part'}."


def _prepare_cell(request: ArchiveRequest) -> ApiTask:
    """Prepare what is known about the chunk at one position."""
    path = request.query.require("variable")
    array = request.archive.array(path)
    index = request.query.index(dict(zip(array.dims, array.shape, strict=True)))

    def describe(_: Any) -> ApiAnswer:
        known = _with_known_states(request.archive, path)
        return json_answer(_describe_cell(known, find_cell(known, index)))

    return ApiTask(describe)


def _describe_cell(array: VirtualArray, found: CellDetails | None) -> dict[str, Any]:
    if found is None:
        return {
            "state": "absent", "text": "No file covers this place.", "cell": None, "tile": None, "grid": None,
            "file": None, "offset": None, "length": None, "range": None, "dtype": None, "codecs": [],
            "filter_mask": 0, "order": None, "chunk_shape": None, "shows": [], "decoded_bytes": None, "ratio": None,
            "packing": None, "fill": _absent_text(array),
        }  # fmt: skip
    state, name, encoding = found.state, found.state_name, found.encoding
    is_stored = isinstance(state, Stored)
    length = _stored_length(found)
    decoded = found.decoded_bytes
    mask = state.filter_mask if isinstance(state, Stored) else 0
    has_encoding = name != "absent"
    return {
        "state": name,
        "text": _cell_text(found, length),
        "cell": {dim: list(bounds) for dim, bounds in found.bounds.items()},
        "tile": found.tile_number,
        "grid": list(found.cell),
        "file": public_url(state.source.url) if isinstance(state, Stored) else None,
        "offset": state.offset if isinstance(state, Stored) else None,
        "length": length,
        "range": _range_text(state) if isinstance(state, Stored) else None,
        "dtype": encoding.dtype.str if has_encoding and not encoding.dtype.names else str(encoding.dtype),
        "codecs": [
            {"name": codec.name, "configuration": _plain(codec.configuration), "skipped": bool(mask >> bit & 1)}
            for bit, codec in enumerate(encoding.codecs)
        ]
        if has_encoding
        else [],
        "filter_mask": mask & (1 << len(encoding.codecs)) - 1,
        "order": None if encoding.order is None else list(encoding.order),
        "chunk_shape": list(found.chunk_shape),
        "shows": [
            {"dim": shown.dim, "skip": shown.skip, "step": shown.step, "extent": shown.extent, "stored": shown.stored}
            for shown in found.shows
        ],
        "decoded_bytes": decoded if has_encoding else None,
        "ratio": decoded / length if is_stored and decoded is not None and length else None,
        "packing": _packing_json(found) if has_encoding else None,
        "fill": _fill_text(array, found),
    }


def _stored_length(found: CellDetails) -> int | None:
    if isinstance(found.state, Inline):
        return len(found.state.data)
    return found.state.length if isinstance(found.state, Stored) and found.state.length >= 0 else None


def _range_text(state: Stored) -> str:
    """Return the header `Range` that fetches a chunk."""
    return f"bytes={state.offset}-{state.offset + state.length - 1 if state.length > 0 else ''}"


def _cell_text(found: CellDetails, length: int | None) -> str:
    """Return one line about a cell."""
    state, codecs = found.state, codec_chain_text(found.encoding)
    if isinstance(state, Stored):
        name = public_url(state.source.url).rstrip("/").rpartition("/")[2]
        if found.state_name == "computed":
            return f"{name}, if it was written; codecs: {codecs}"
        size = "up to the end" if length is None else f"{length:,} bytes"
        return f"{name}, {size} from {state.offset:,}; codecs: {codecs}"
    if isinstance(state, Inline):
        return f"{length:,} bytes in the table of chunks itself; codecs: {codecs}"
    if found.state_name == "unwritten":
        return "Never written: the file's fill value holds here."
    return "No file covers this place."


def _packing_json(found: CellDetails) -> dict[str, Any]:
    packing = found.packing
    return {
        "text": packing_text(packing),
        "scale": packing.scale,
        "offset": packing.offset,
        "missing": [str(value) for value in (*packing.missing, *packing.kind.missing)],
        "dtype": packing.kind.dtype,
        "units": packing.kind.unit,
    }


def _fill_text(array: VirtualArray, found: CellDetails) -> str | None:
    if found.state_name == "unwritten":
        return str(found.encoding.fill_value())
    return _absent_text(array) if found.state_name == "absent" else None


def _absent_text(array: VirtualArray) -> str | None:
    try:
        return str(array.absent_value())
    except InsituError:
        return None


def _plain(value: Any) -> Any:
    """Return a codec's configuration as JSON can hold it."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
