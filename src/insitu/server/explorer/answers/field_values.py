"""`api/field`: a two-dimensional field, sampled to the size of the screen, with the coordinates of its sides."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.model import VirtualArray
from insitu.reading import ReadContext
from insitu.reading.thread_pools import count_cores
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce_expression import reduce_expression
from insitu.server.error_responses import RequestTooLargeError
from insitu.server.explorer.api_answer import ApiAnswer, binary_answer
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest
from insitu.server.explorer.field_query import FieldQuery, parse_field_query
from insitu.server.explorer.field_sampling import Sampling, distinct, sample_field
from insitu.server.explorer.flag_meanings import flags_of
from insitu.server.explorer.formula_array import FormulaArray, estimate_values, read_values, select_values
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.shown_values import kind_of, long_name_of, to_number_array, units_of, value_range
from insitu.server.explorer.side_labels import describe_side, selection_text
from insitu.server.explorer.written_chunks import WrittenChunks, find_written_chunks
from insitu.server.settings import Limits

__all__ = [
    "MAX_DECODED_BYTES",
    "PicturePlan",
    "check_memory",
    "decoding_budget",
    "find_written",
    "plan_picture",
    "prepare_field",
    "read_field",
    "read_plane",
    "slab_bytes",
]

BUDGET_BYTES = 256 << 20
"""Bytes that the chunks of one picture may decode to."""
REDUCTION_BUDGET_BYTES = 2 << 30
"""Bytes that the chunks of a statistic may decode to: it streams."""
MAX_DECODED_BYTES = 64 << 30
"""Bytes that one picture may decode where it cannot be sampled more coarsely."""
SLAB_BYTES = 32 << 20
"""Bytes of values that are averaged at a time."""
MAX_SLABS = 4
"""So many times as many are, if that is what a row of chunks holds."""
VALUE_COPIES, STATISTIC_COPIES = 3, 6
"""How many times the values of a slab are held: as read, as numbers, and what is known of each."""
PIXEL_BYTES = 40
"""Bytes for a pixel: sum, count, mean, the answer."""
MAX_PIXELS = 4096
"""Rows and columns that a picture has at most."""


def prepare_field(request: ArchiveRequest) -> ApiTask:
    """Return the task of `api/field`."""
    plan = plan_picture(request)
    level, sampling, written = plan.level, plan.sampling, plan.written
    cost = check_memory(level, sampling, request.limits, written)

    def work(context: ReadContext) -> ApiAnswer:
        named = replace(context, name=level.path)
        if written is None:
            values = read_field(level, sampling, named, slab_bytes(request.limits))
        else:
            key = level.select(sampling.y.positions, sampling.x.positions)
            y, x = level.sides
            assert y is not None
            values = to_number_array(written.read_plane(key, (y, x), named))
        return _field_answer(request.archive, plan, values, context)

    key = level.select(sampling.y.selector, sampling.x.selector)
    decoded = estimate_values(level.array, key).bytes_decoded if written is None else written.decoded_bytes(key)
    if decoded > _most_bytes(request):
        raise RequestTooLargeError(
            f"this picture needs {decoded:,} bytes of decoded chunks, more than {_most_bytes(request):,}"
        )
    # What fills more than half of the cache would push out what other clients look at.
    fits_cache = decoded <= request.limits.cache // 2
    return ApiTask(work, cost, caches_chunks=fits_cache)


@dataclass(frozen=True, slots=True)
class PicturePlan:
    """What is read for the picture of a field."""

    field: FieldQuery
    level: FieldQuery
    """The field itself, or an overview of it."""
    sampling: Sampling
    """Which elements of the level are read."""
    shrink: tuple[float, float]
    """Rows and columns of the field that an element of the level covers."""
    written: WrittenChunks | None
    """The chunks that are read, if these are only those that were written."""

    @property
    def edges(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Where pixels begin, and where the last one ends, in rows and columns of the field."""
        box, (y, x) = self.field.box, (self.sampling.y, self.sampling.x)
        rows = np.asarray(box.top + (y.edges - y.start) * self.shrink[0], np.float64)
        columns = np.asarray(box.left + (x.edges - x.start) * self.shrink[1], np.float64)
        return rows, columns

    @property
    def cells(self) -> npt.NDArray[np.int64]:
        """Of a field that is one row of cells: those that are read."""
        side = self.sampling.x
        return np.arange(side.start, side.start + side.length) if side.positions is None else side.positions

    def describe_sampling(self) -> dict[str, Any]:
        """Return for JSON how many of the values are looked at."""
        sampling, shrink = self.sampling, self.shrink
        return {
            "method": sampling.method if shrink == (1.0, 1.0) else "overview",
            "step": [sampling.y.step * shrink[0], sampling.x.step * shrink[1]],
            "share": sampling.share,
        }


def plan_picture(request: ArchiveRequest) -> PicturePlan:
    """Return what is read for the picture that a query asks for."""
    field = parse_field_query(request.archive, request.query)
    pixels: tuple[int, int] = (
        request.query.number("rows", 600, 1, MAX_PIXELS),
        request.query.number("columns", 800, 1, MAX_PIXELS),
    )
    how = request.query.choice("sampling", ("auto", "mean", "nearest"), "auto")
    if how == "auto" and (kind_of(field.array) != "number" or flags_of(field.array.attributes)):
        how = "nearest"
    if field.y is None:  # as many cells as there are pixels: means of neighbours in the file would lie nowhere
        pixels, how = (1, pixels[0] * pixels[1]), "nearest"
    most = _most_bytes(request)
    # To find out what was written, an array is listed: more than a small picture is worth.
    written = find_written(request.archive, field, request.limits) if most == MAX_DECODED_BYTES else None
    if written is not None:
        field = replace(field, array=written.array)
    level, sampling, shrink = plan_field(request.archive, field, pixels, how, request.limits, written, most)
    if written is not None and (sampling.method != "nearest" or sampling.share < 1):
        written = None  # the usual way is as good
    return PicturePlan(field, level, sampling, shrink, written)


def _most_bytes(request: ArchiveRequest) -> int:
    """Return how many bytes the chunks of a picture may decode to, as the client wants it."""
    return request.query.number("most_bytes", MAX_DECODED_BYTES, 1, MAX_DECODED_BYTES)


def find_written(archive: OpenedArchive, field: FieldQuery, limits: Limits) -> WrittenChunks | None:
    """Return which chunks of a field were written, if all of them would be too much for one picture."""
    box = field.box
    whole = estimate_values(field.array, field.select(slice(box.top, box.bottom), slice(box.left, box.right)))
    is_large = (
        field.statistic is None and field.y is not None and whole.bytes_decoded > min(BUDGET_BYTES, limits.memory // 2)
    )
    return find_written_chunks(archive, field.path, field.array) if is_large else None


def decoding_budget(field: FieldQuery, limits: Limits) -> int:
    """Return the bytes that the chunks of a field may decode to before it is sampled."""
    return min(BUDGET_BYTES if field.statistic is None else REDUCTION_BUDGET_BYTES, limits.memory // 2)


def plan_field(
    archive: OpenedArchive,
    field: FieldQuery,
    pixels: tuple[int, int],
    how: str,
    limits: Limits,
    written: WrittenChunks | None = None,
    most: int = MAX_DECODED_BYTES,
) -> tuple[FieldQuery, Sampling, tuple[float, float]]:
    """Return the level that is read, how it is sampled, and how many elements of the field one of its elements covers.

    The level is the field itself, or an overview of it if the archive has one and the field is too large.
    """
    budget = min(decoding_budget(field, limits), most)

    def sample(level: FieldQuery, method: str) -> Sampling | None:
        return sample_field(level.array, level.sides, level.select, level.box, pixels, method, budget, written)

    sampling = sample(field, "mean" if how == "auto" else how)
    if sampling is not None:
        return field, sampling, (1.0, 1.0)
    # The smallest overview that still has an element for each pixel; else the largest.
    overviews = (
        sorted(_overviews(archive, field), key=lambda level: math.prod(level.box.shape)) if how == "auto" else []
    )
    for level in overviews:
        if (level.box.shape[0] >= pixels[0] and level.box.shape[1] >= pixels[1]) or level is overviews[-1]:
            sampling = sample(level, "mean")
            if sampling is not None:
                shrink = tuple(a / b for a, b in zip(field.box.shape, level.box.shape, strict=True))
                return level, sampling, (shrink[0], shrink[1])
            break
    if how == "mean":
        raise RequestTooLargeError(
            f"the means of this field need more than {budget >> 20} MiB of decoded chunks: draw a smaller box, "
            "or ask for sampling=nearest"
        )
    sampling = sample(field, "nearest")
    assert sampling is not None
    key = field.select(sampling.y.selector, sampling.x.selector)
    read = estimate_values(field.array, key).bytes_decoded if written is None else written.decoded_bytes(key)
    if read > MAX_DECODED_BYTES:
        raise RequestTooLargeError(
            f"this picture needs {read / 1e9:,.0f} GB of decoded chunks even if it shows only a few of them, and this "
            f"server decodes up to {MAX_DECODED_BYTES >> 30} GiB for one: draw a smaller box, or reduce less at once"
        )
    return field, sampling, (1.0, 1.0)


def _overviews(archive: OpenedArchive, field: FieldQuery) -> Iterator[FieldQuery]:
    """Yield the same field in the overviews of its image, which are groups next to it; a formula has none."""
    if isinstance(field.array, FormulaArray):
        return
    group, name = field.group, field.path.rpartition("/")[2]
    for path in archive.members:
        parent, _, last = path.rpartition("/")
        if parent != group or not last.startswith("overview_") or name not in archive.members[path].variables:
            continue
        array = archive.array(f"{path}/{name}")
        full = field.array
        others = [(dim, size) for dim, size in zip(full.dims, full.shape, strict=True) if dim not in (field.y, field.x)]
        sizes = dict(zip(array.dims, array.shape, strict=True))
        if array.dims != full.dims or any(sizes[dim] != size for dim, size in others):
            continue
        level = replace(field, path=f"{path}/{name}", array=array)
        yield replace(level, box=field.box.shrink(field.shape, level.shape))


def check_memory(field: FieldQuery, sampling: Sampling, limits: Limits, written: WrittenChunks | None = None) -> int:
    """Return the bytes that a field holds while it is read; an error if that is more than the limits allow."""
    array, rows, columns = field.array, sampling.y.selector, sampling.x.selector
    pixels = elements = sampling.y.count * sampling.x.count
    if sampling.method == "mean":
        count = min(_slab_rows(field, sampling, slab_bytes(limits)), sampling.y.length)
        rows, elements = slice(sampling.y.start, sampling.y.start + count), count * sampling.x.length
    if written is not None:  # one chunk after another
        rows, columns = slice(0, 1), slice(0, 1)
    weight = estimate_values(array, field.select(rows, columns))
    if weight.chunk > limits.chunk:
        raise RequestTooLargeError(
            f"a chunk of {weight.chunk:,} bytes is larger than the limit of this server, {limits.chunk:,} bytes"
        )
    computed = weight.bytes_per_element if isinstance(array, FormulaArray) else 0
    copies = VALUE_COPIES if field.statistic is None else STATISTIC_COPIES
    values = elements * (max(array.dtype.itemsize, 8) * copies + computed)
    # So many threads read a local file, each of them one chunk at a time.
    nbytes = values + pixels * PIXEL_BYTES + weight.plan + (count_cores() + 1) * weight.chunk
    if nbytes > limits.memory:
        raise RequestTooLargeError("the picture needs more memory than this server allows: draw a smaller box")
    return nbytes


def slab_bytes(limits: Limits) -> int:
    """Return the bytes of values that are averaged at a time."""
    return min(SLAB_BYTES, limits.memory // 32)


def read_field(field: FieldQuery, sampling: Sampling, context: ReadContext, slab: int) -> npt.NDArray[Any]:
    """Return the numbers of a field, one for each pixel, y before x; NaN: missing.

    `slab` is the number of bytes that means are taken of at a time.
    """
    if sampling.method == "mean":
        return _block_means(field, sampling, context, slab)
    values = read_plane(field, sampling.y.selector, sampling.x.selector, context)
    numbers = to_number_array(values)
    for axis, side in enumerate((sampling.y, sampling.x)):
        if side.positions is not None and len(side.positions) != numbers.shape[axis]:
            found = distinct(side.positions)
            numbers = numbers.take(np.searchsorted(found, side.positions), axis)
    return numbers


def read_plane(field: FieldQuery, rows: Any, columns: Any, context: ReadContext) -> npt.NDArray[Any]:
    """Return these rows and columns of a field, y before x."""
    array, selection = field.array, field.select(rows, columns)
    if field.statistic is not None:
        left = [dim for dim in array.dims if dim not in field.index]
        axes = tuple(left.index(dim) for dim in field.over)
        query = ReductionQuery.of(field.statistic, axes)
        values = reduce_expression(select_values(array, selection, context), query)[field.statistic]
    else:
        values = read_values(array, selection, context)
    y, x = field.sides
    if y is None:
        return values[None, :]
    return values if y < x else values.T


def _block_means(field: FieldQuery, sampling: Sampling, context: ReadContext, slab: int) -> npt.NDArray[Any]:
    """Return the mean of each block, missing values left out, reading the field in slabs of rows."""
    y, x = sampling.y, sampling.x
    # The rows of a block may lie in two slabs, so that sums and counts are gathered, not means. `np.add.reduceat` adds
    # up runs of any length, also the shorter one at the end, without copying them into blocks of one shape.
    sums = np.zeros((y.count, x.count))
    counts = np.zeros((y.count, x.count), np.int64)
    columns = np.arange(x.count) * x.step
    dtype: np.dtype[Any] | None = None
    for begin, end in _slabs(field, sampling, slab):
        check_deadline()
        part = to_number_array(read_plane(field, slice(begin, end), x.selector, context))
        dtype = part.dtype
        is_finite = np.isfinite(part)
        rows = (np.arange(begin, end) - y.start) // y.step
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        if is_finite.all():  # most fields have no gaps: they need no copy without them, and no counting
            added = np.add.reduceat(part, columns, axis=1, dtype=np.float64)
            number = np.broadcast_to(np.diff(np.append(columns, x.length)), added.shape)
        else:
            added = np.add.reduceat(np.where(is_finite, part, 0), columns, axis=1, dtype=np.float64)
            number = np.add.reduceat(is_finite, columns, axis=1, dtype=np.int64)
        sums[rows[first]] += np.add.reduceat(added, first, axis=0)
        counts[rows[first]] += np.add.reduceat(number, first, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts
    return means.astype(dtype or np.float64)


def _slab_rows(field: FieldQuery, sampling: Sampling, slab: int) -> int:
    """Return how many rows are averaged at a time: whole chunks where that is possible, so that each is
    decoded once.
    """
    row = max(sampling.x.length * max(field.array.dtype.itemsize, 8), 1)
    count = max(slab // row, 1)
    tiles = field.array.tiles if isinstance(field.array, VirtualArray) else ()
    side, _ = field.sides
    axis = tiles[0].axis_of(side) if tiles and side is not None else None
    if axis is None or not axis.is_regular:
        return count
    if count >= axis.size:
        return count // axis.size * axis.size
    # A row of chunks that is only a little larger is taken as a whole; of a larger one, parts, though each chunk is
    # then decoded for several slabs.
    return axis.size if axis.size * row <= MAX_SLABS * slab else count


def _slabs(field: FieldQuery, sampling: Sampling, slab: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each slab, and the row behind its last."""
    side, count = sampling.y, _slab_rows(field, sampling, slab)
    for begin in range(side.start // count * count, side.start + side.length, count):
        yield max(begin, side.start), min(begin + count, side.start + side.length)


def _field_answer(
    archive: OpenedArchive, plan: PicturePlan, values: npt.NDArray[Any], context: ReadContext
) -> ApiAnswer:
    field, written = plan.field, plan.written
    sides: dict[str, Any] = {}
    arrays = {"values": values}
    # Positions in an overview become positions in the field: the middle of what an element of the overview covers.
    for name, dim, edges in zip("yx", (field.y, field.x), plan.edges, strict=True):
        if dim is None:
            sides[name] = None
            continue
        centres = (edges[:-1] + edges[1:] - 1) / 2 if field.y is not None else plan.cells.astype(np.float64)
        sides[name], arrays[name] = describe_side(archive, field.path, field.array, dim, centres, context)
    box, array = field.box, field.array
    header = {
        "shape": list(values.shape),
        **sides,
        "box": [box.top, box.bottom, box.left, box.right],
        "sampling": plan.describe_sampling(),
        "range": value_range(values),
        "missing": int(np.count_nonzero(np.isnan(values))),
        "kind": kind_of(array),
        "units": units_of(array),
        "long_name": long_name_of(array, field.path),
        "text": _field_text(archive, field, context),
        "written": None,
    }
    if written is not None:
        key = field.select(slice(box.top, box.bottom), slice(box.left, box.right))
        header["written"] = {
            "chunks": len(written.cells),
            "cells": written.total,
            "here": written.count(key),
            "first": written.first_position(),
        }
    return binary_answer(header, arrays)


def _field_text(archive: OpenedArchive, field: FieldQuery, context: ReadContext) -> str:
    """Return what is selected and reduced, in words."""
    selected = selection_text(archive, field.path, field.array, field.index, context)
    reduced = f"{field.statistic} over {', '.join(field.over)}" if field.statistic is not None else ""
    return ", ".join(part for part in (selected, reduced) if part)
