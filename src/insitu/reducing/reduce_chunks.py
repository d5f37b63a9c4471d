"""Reduction of the chunks of one batch: each wanted part is reduced to a partial once it is
decoded.

Small parts are decoded side by side and reduced together, because a call costs more than their
values. So are parts of the same element of the result that have few values each (one time step, for
a mean over time), because merging would cost more. Values that are known from an earlier use take
the place of decoded ones, in the same groups and the same order: so their sums have the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.unpack import unpack
from insitu.codecs.chain import Decoder
from insitu.codecs.chunk_batch import take_chunks
from insitu.codecs.thread_buffers import get_buffer
from insitu.errors import CodecError
from insitu.model import Columns, Packing, VirtualArray
from insitu.model.axis import Indices
from insitu.reading.chunk_sink import ChunkSink
from insitu.reading.fetch import read_exactly_into
from insitu.reading.fetch_and_decode import DIRECT_READ_BYTES
from insitu.reading.scatter import pick
from insitu.reading.tile_plan import ChunkGroup, Position, TilePlan
from insitu.reducing.group_rows import find_runs
from insitu.reducing.kernel_statistics import CHUNK_BUFFER, ChunkKernel, Span, contiguous_span
from insitu.reducing.known_values import KnownValues
from insitu.reducing.partial_fields import Partial
from insitu.reducing.reductions import Reduction
from insitu.reducing.result_layout import TileProjection
from insitu.sources import ByteSource
from insitu.sources.protocol import ReadsInto

__all__ = ["BatchReducer", "PartialStack", "PartialsByPlace", "reduce_one_chunk"]

BLOCK_BYTES = 512 << 10
"""Small parts are reduced together, this many bytes at a time: they stay in the cache of a core. The mean of 16,200
chunks of 400 bytes takes 0.28 s of processor one by one, 0.13 s by 64 KiB, 0.085 s so, and 0.08 s by 4 MiB.
"""
STACK_BYTES = 16 << 20
"""The same for larger parts that have few values per element of the result."""
STEP_BYTES = 2 << 20
"""Larger parts are reduced in slices of about this size,
so that temporary arrays stay in the cache.
"""
FEW_VALUES = 8
"""Fewer values than this for each element of the partial are few."""
FUSED_BYTES = 32 << 10
"""Chunks of this size and larger are worth a call of the kernel."""

STACKED_ELEMENTS = 512
"""Partials of places with at most so many elements are merged many at a time: a call for each would
cost more than its elements.
"""

PartialsByPlace = dict[tuple[int, Position], Partial]
"""Partials by tile and by place in the result."""


@dataclass(frozen=True, slots=True, eq=False)
class PartialStack:
    """Partials of many equal, small places of one tile."""

    grid: int
    """Number of the tile."""
    corners: Indices
    """Where each place begins in the window of the result: a row for each."""
    partial: Partial
    """Stacked along a first axis."""


class BatchReducer(ChunkSink):
    """Sink of one batch: receives decoded or raw chunks, and reduces them.

    Parameters
    ----------
    grids, projections
        The tiles of the plan.
    reduction
        The statistics.
    known
        The values of the whole selection, if they are known: then chunks are not decoded.
    """

    takes_many = True
    unpacks_many = True
    depends_on_order = True

    def __init__(
        self,
        grids: Sequence[TilePlan],
        projections: Sequence[TileProjection],
        reduction: Reduction,
        known: KnownValues | None = None,
    ) -> None:
        super().__init__(grids)
        self.projections = projections
        self.reduction = reduction
        self.known = known
        self.chunk_kernel = ChunkKernel.of(reduction)
        self.found: PartialsByPlace = {}
        self.stacks: list[PartialStack] = []
        self.block: npt.NDArray[Any] | None = None
        self.about: tuple[Any, ...] = ()
        """What the parts in the block have in common: shape, type, tile, number of repetitions."""
        self.packing: Packing | None = None
        self.keys: list[Position] = []
        """Place in the result of each part in the block."""

    def decode_many(
        self, grid: int, group: ChunkGroup, decoder: Decoder, data: Sequence[memoryview], source: ByteSource
    ) -> None:
        """Reduce the same box of many chunks, each of which only one cell shows."""
        projection, extent = self.projections[grid], group.extent
        order = np.lexsort(projection.corners(group.places).T[::-1])  # parts of the same place together
        nbytes = math.prod(extent) * decoder.dtype.itemsize
        together = self.parts_per_step(projection, extent, nbytes)
        if decoder.is_raw and decoder.back is None and group.packing is None and decoder.nbytes >= DIRECT_READ_BYTES:
            together = 1  # as `read_into_place`, so that it does not matter where they come from
        is_large = together == 1 or (group.packing is not None and nbytes >= FUSED_BYTES)
        if is_large and self.many_by_kernel(grid, group, decoder, data, order):
            return
        if self.known is not None:
            for begin in range(0, len(order), together):
                these = order[begin : begin + together]
                self.measure_many(grid, group, these, self.known.parts(grid, group, these))
            return
        if together == 1 and decoder.is_raw:
            box = tuple([slice(begin, begin + length) for begin, length in zip(group.start, extent, strict=True)])
            for number in order.tolist():
                with _ChunkNumberContext([number]):
                    values = np.ascontiguousarray(decoder(data[number])[box])
                self.measure_many(grid, group, np.array([number]), values[None])
            return
        together = min(together, len(data))
        room = (
            get_buffer(CHUNK_BUFFER, together * nbytes).view(decoder.dtype).reshape(together * extent[0], *extent[1:])
        )
        # One after the other along the first axis: then they are one array with one more axis.
        slots = np.zeros((together, len(extent)), np.int64)
        slots[:, 0] = np.arange(together) * extent[0]
        for begin in range(0, len(order), together):
            these = order[begin : begin + together]
            with _ChunkNumberContext(these):
                chunks = take_chunks(data, these)
                decoder.scatter(chunks, group.start, extent, room, slots[: len(these)], source.read_many)
            values = room[: len(these) * extent[0]].reshape(len(these), *extent)
            self.measure_many(grid, group, these, values)

    def many_by_kernel(
        self, grid: int, group: ChunkGroup, decoder: Decoder, data: Sequence[memoryview], order: Indices
    ) -> bool:
        """Reduce chunks to one number each with the kernel; return False if that is not
        possible.
        """
        span, kernel, ndim = (
            self.span(grid, decoder, group.start, group.extent, group.shape),
            self.chunk_kernel,
            len(group.extent),
        )
        if kernel is None or span is None or not kernel.supports(decoder, group.packing):
            return False
        if self.known is None:
            partials = kernel.chunks(decoder, take_chunks(data, order), span, group.packing, ndim)
        else:
            partials = (
                kernel.values(decoder, self.known.parts(grid, group, order[n : n + 1])[0], ndim)
                for n in range(len(order))
            )
        for number, key in zip(order.tolist(), self.keys_of(grid, group.numbers[order]), strict=True):
            with _ChunkNumberContext([number]):
                partial = next(partials)
            self.add(grid, key, partial)
        return True

    def keys_of(self, grid: int, rows: Indices) -> list[Position]:
        """Return the places in the result of rows of a tile."""
        return list(map(self.projections[grid].key, self.grids[grid].positions(rows)))

    def span(
        self, grid: int, decoder: Decoder, start: Sequence[int], extent: Sequence[int], shape: Sequence[int]
    ) -> Span | None:
        """Return a box as a contiguous run of elements;
        None if it is not, or is not reduced to one number.
        """
        if self.chunk_kernel is None or any(extent[axis] != 1 for axis in self.projections[grid].kept_axes):
            return None
        span = contiguous_span(start, extent, shape)
        return None if decoder.back is not None and tuple(extent) != tuple(shape) else span

    def read_into_place(
        self, grid: int, group: ChunkGroup, decoder: Decoder, offset: Sequence[int], source: ReadsInto
    ) -> bool:
        """Reduce uncompressed chunks, read from the source into the thread's buffer."""
        box = tuple([slice(begin, begin + length) for begin, length in zip(group.start, group.extent, strict=True)])
        span = self.span(grid, decoder, group.start, group.extent, group.shape)
        for number, (key, begin) in enumerate(zip(self.keys_of(grid, group.numbers), offset, strict=True)):
            room = get_buffer(CHUNK_BUFFER, decoder.nbytes)
            read_exactly_into(source, begin, room)
            if self.chunk_kernel is not None and span is not None and decoder.dtype == self.chunk_kernel.dtype:
                self.add(grid, key, self.chunk_kernel.run(room, False, span, (), len(box)))
                continue
            values = np.ascontiguousarray(room.view(decoder.dtype).reshape(group.shape)[box])
            self.measure_many(grid, group, np.array([number]), values[None])
        return True

    def parts_per_step(self, projection: TileProjection, extent: tuple[int, ...], nbytes: int) -> int:
        """Return how many parts are reduced at once."""
        little = math.prod([extent[axis] for axis in projection.reduced]) < FEW_VALUES
        return max((STACK_BYTES if little else BLOCK_BYTES) // max(nbytes, 1), 1)

    def measure_many(self, grid: int, group: ChunkGroup, these: Indices, values: npt.NDArray[Any]) -> None:
        """Reduce some parts of a group, stacked along a first axis and sorted by their place in the
        result. Places of which there are equally many parts are reduced in one call.
        """
        projection, places = self.projections[grid], group.places[these]
        corners = projection.corners(places)
        firsts, counts = find_runs(corners)
        for count in np.unique(counts).tolist():
            begins = firsts[counts == count]
            if len(begins) == 1:
                run = slice(int(begins[0]), int(begins[0]) + count)
                partial = self.reduce_stacked(projection, values[run], places[run], group.packing, 1)
                self.add(grid, self.keys_of(grid, group.numbers[these[run.start : run.start + 1]])[0], partial)
                continue
            rows = (begins[:, None] + np.arange(count)).reshape(-1)
            block = values if len(rows) == len(values) else values[rows]
            block = block.reshape(len(begins), count, *values.shape[1:])
            partial = self.reduce_stacked(projection, block, places[rows], group.packing, 2)
            if math.prod([group.extent[axis] for axis in projection.kept_axes]) <= STACKED_ELEMENTS:
                self.stacks.append(PartialStack(grid, corners[begins], partial))
                continue
            for number, key in enumerate(self.keys_of(grid, group.numbers[these[begins]])):
                self.add(grid, key, {name: found[number] for name, found in partial.items()})

    def reduce_stacked(
        self, projection: TileProjection, values: npt.NDArray[Any], places: Indices, packing: Packing | None, ahead: int
    ) -> Partial:
        """Return the partial of stacked parts of one place (1 axis ahead of those of a part), or of
        many places with equally many parts each (2), which stay an axis.
        """
        axes = tuple([axis + ahead for axis in projection.reduced])
        if not self.reduction.positional:
            partial = self.step_in_slices(values, packing, (ahead - 1, *axes))
            return {name: found[(slice(None),) * (ahead - 1) + (0,)] for name, found in partial.items()}
        inner = [np.arange(values.shape[axis]) * stride for axis, stride in zip(axes, projection.strides, strict=True)]
        partial = self.step_in_slices(values, packing, axes, inner)
        begins = projection.begins(places).reshape(*values.shape[:ahead], *[1] * (values.ndim - ahead))
        partial = self.reduction.shift_positions(partial, begins)
        return self.reduction.collapse({name: np.moveaxis(found, ahead - 1, 0) for name, found in partial.items()})

    def fill(self, grid: int, position: Position, value: Any, packing: Packing | None) -> None:
        """Reduce a cell without stored bytes."""
        shape = [lengths[row] for lengths, row in zip(self.projections[grid].taken, position, strict=True)]
        self.part(grid, position, np.broadcast_to(np.asarray(value), shape), packing)

    def decode_one(
        self,
        grid: int,
        position: Position,
        decoder: Decoder,
        data: memoryview,
        source: ByteSource | None,
        packing: Packing | None,
    ) -> None:
        """Reduce a chunk that only one cell shows, from its stored bytes."""
        here, projection = self.grids[grid], self.projections[grid]
        inside = here.at(projection.inside, position)
        if decoder.records is not None or any(isinstance(picker, np.ndarray) for picker in inside):
            if self.known is not None:
                self.part(grid, position, self.known.part(grid, position), packing)
                return
            fetch = source.read_many if source is not None else None
            self.chunk(grid, position, here.spread(position, decoder(data, None, fetch)), packing)
            return
        shape = here.at(projection.taken, position)
        nbytes = math.prod(shape) * decoder.dtype.itemsize
        if nbytes >= FUSED_BYTES and self.alone_by_kernel(grid, position, decoder, data, packing):
            return
        small = self.parts_per_step(projection, shape, nbytes) > 1 and not self.reduction.positional
        if not small and (decoder.is_raw or self.known is not None):
            values = (
                pick(here.spread(position, decoder(data)), inside)
                if self.known is None
                else self.known.part(grid, position)
            )
            self.part(grid, position, values, packing)
            return
        if small:
            room = self.slot(grid, position, shape, decoder.dtype, packing)
            if self.known is not None:
                room[...] = self.known.part(grid, position)
                return
        else:
            room = get_buffer(CHUNK_BUFFER, nbytes).view(decoder.dtype).reshape(shape)
        if all(here.at(here.whole, position)):
            decoder(data, room.reshape(here.chunk_shape(position)))
        else:
            box = tuple([picker for picker, exists in zip(inside, here.exists, strict=True) if exists])
            target = room.reshape([n for n, exists in zip(shape, here.exists, strict=True) if exists])
            decoder.place(data, box, target)
        if not small:
            self.part(grid, position, room, packing)

    def alone_by_kernel(
        self, grid: int, position: Position, decoder: Decoder, data: memoryview, packing: Packing | None
    ) -> bool:
        """Reduce a chunk to one number with the kernel; return False if that is not possible."""
        here, projection, kernel = self.grids[grid], self.projections[grid], self.chunk_kernel
        if kernel is None or not here.all_exist or not kernel.supports(decoder, packing):
            return False
        inside, sizes = here.at(projection.inside, position), here.at(here.sizes, position)
        ranges = [picker.indices(size) for picker, size in zip(inside, sizes, strict=True)]
        if any(step != 1 for _, _, step in ranges):
            return False
        start, extent = [begin for begin, _, _ in ranges], [end - begin for begin, end, _ in ranges]
        span = self.span(grid, decoder, start, extent, sizes)
        if span is None:
            return False
        if self.known is None:
            partial = next(kernel.chunks(decoder, [data], span, packing, len(extent)))
        else:
            partial = kernel.values(decoder, self.known.part(grid, position), len(extent))
        self.add(grid, projection.key(position), partial, projection.times(position))
        return True

    def chunk(self, grid: int, position: Position, chunk: npt.NDArray[Any], packing: Packing | None) -> None:
        """Reduce a cell of a decoded chunk that several cells show."""
        inside = self.grids[grid].at(self.projections[grid].inside, position)
        values = pick(chunk, inside) if self.known is None else self.known.part(grid, position)
        self.part(grid, position, values, packing)

    def part(self, grid: int, position: Position, values: npt.NDArray[Any], packing: Packing | None) -> None:
        """Reduce the selected part of a chunk."""
        projection, reduction = self.projections[grid], self.reduction
        positions = projection.positions(position) if reduction.positional else None
        partial = self.step_in_slices(values, packing, projection.reduced, positions)
        self.add(grid, projection.key(position), partial, projection.times(position))

    def step_in_slices(
        self,
        values: npt.NDArray[Any],
        packing: Packing | None,
        axes: tuple[int, ...],
        positions: Sequence[npt.NDArray[np.int64]] | None = None,
    ) -> Partial:
        """Return the partial of stored values; many values are reduced in slices."""
        along = next((axis for axis, length in enumerate(values.shape) if length > 1), None)
        nbytes = values.size * self.reduction.dtype.itemsize  # of packed values, too: known ones are cut alike
        if nbytes <= STEP_BYTES or along is None:
            return self.reduction.step(self.unpack_values(values, packing), axes, positions)
        length, reduced = values.shape[along], along in axes
        # A slice with few values to reduce would cost more to merge than to reduce.
        least = FEW_VALUES if reduced and any(n > 1 and axis not in axes for axis, n in enumerate(values.shape)) else 1
        rows = max(STEP_BYTES * length // nbytes, least)
        if rows >= length:
            return self.reduction.step(self.unpack_values(values, packing), axes, positions)
        parts = []
        for begin in range(0, length, rows):
            slab = slice(begin, min(begin + rows, length))
            where = None
            if positions is not None:
                where = [p[slab] if axis == along else p for p, axis in zip(positions, axes, strict=True)]
            parts.append(self.step_in_slices(values[(slice(None),) * along + (slab,)], packing, axes, where))
            if reduced and len(parts) > 1:
                parts = [self.reduction.merge(*parts)]
        if reduced:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts], along) for name in parts[0]}

    def unpack_values(self, values: npt.NDArray[Any], packing: Packing | None) -> npt.NDArray[Any]:
        """Return unpacked values, in the type of the array and in C order: sums depend on the order in memory."""
        if packing is not None and self.known is None:
            values = unpack(values, packing)
        return np.require(values, self.reduction.dtype, ("C", "A"))

    def slot(
        self, grid: int, position: Position, shape: tuple[int, ...], dtype: np.dtype[Any], packing: Packing | None
    ) -> npt.NDArray[Any]:
        """Return the memory for a small part in the block."""
        projection = self.projections[grid]
        about = (shape, dtype, grid, projection.times(position))
        if (
            self.block is None
            or about != self.about
            or packing is not self.packing
            or len(self.keys) == len(self.block)
        ):
            self.flush()
            if self.block is None or about[:2] != self.about[:2]:
                together = self.parts_per_step(projection, shape, math.prod(shape) * dtype.itemsize)
                self.block = np.empty((together, *shape), dtype if self.known is None else self.reduction.dtype)
            self.about, self.packing = about, packing
        self.keys.append(projection.key(position))
        room: npt.NDArray[Any] = self.block[len(self.keys) - 1, ...]  # the Ellipsis gives a view even without axes
        return room

    def flush(self) -> None:
        """Reduce the parts in the block."""
        if self.block is None or not self.keys:
            return
        keys, self.keys = self.keys, []
        grid, times = self.about[2:]
        values = self.unpack_values(self.block[: len(keys)], self.packing)
        axes = tuple([axis + 1 for axis in self.projections[grid].reduced])
        if keys.count(keys[0]) == len(keys):  # all have the same place in the result
            partial = self.reduction.step(values, (0, *axes))
            self.add(grid, keys[0], {name: found[0] for name, found in partial.items()}, times)
            return
        partial = self.reduction.step(values, axes)
        for number, key in enumerate(keys):
            self.add(grid, key, {name: found[number] for name, found in partial.items()}, times)

    def add(self, grid: int, key: Position, partial: Partial, times: int = 1) -> None:
        """Merge a partial into that of its place."""
        if times != 1:
            partial = self.reduction.repeat(partial, times)
        before = self.found.get((grid, key))
        self.found[grid, key] = partial if before is None else self.reduction.merge(before, partial)


def reduce_one_chunk(
    array: VirtualArray, values: npt.NDArray[Any], axes: tuple[int, ...], reduction: Reduction
) -> Partial | None:
    """Return the partial of an array that is one small chunk or a box of one, given its values, without a plan: as
    `measure_many` does, which other chunks of that size get to. None if it is anything else.
    """
    tile = array.find_only_chunk()
    if tile is None or 0 in values.shape or values.dtype.kind not in "biufc":
        return None
    assert isinstance(tile.chunks, Columns)
    packed = not tile.packings.identity
    is_raw = tile.encodings[0].raw or bool(tile.chunks.filter_mask.item(0))
    many = math.prod([axis.longest_chunk for axis in tile.axes]) if is_raw else values.size
    stored = many * max(tile.encodings[0].dtype.itemsize, reduction.dtype.itemsize)
    # Larger ones are measured by the kernel, read into their place, or cut into slices.
    if stored >= min(DIRECT_READ_BYTES, STEP_BYTES, BLOCK_BYTES // 2, FUSED_BYTES if packed else DIRECT_READ_BYTES):
        return None
    positions = None
    if reduction.positional:
        strides = [math.prod(values.shape[other] for other in axes[number + 1 :]) for number in range(len(axes))]
        positions = [np.arange(values.shape[axis]) * stride for axis, stride in zip(axes, strides, strict=True)]
    stacked = np.require(values, reduction.dtype, ("C", "A"))[None]
    along = tuple(axis + 1 for axis in axes)
    partial = reduction.step(stacked, along if positions is not None else (0, *along), positions)
    return {name: found[0] for name, found in partial.items()}


class _ChunkNumberContext:
    """Adds the number of the damaged chunk to an error of a codec."""

    def __init__(self, numbers: Sequence[int] | Indices) -> None:
        self.numbers = numbers

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, problem: BaseException | None, trace: Any) -> None:
        if isinstance(problem, CodecError):
            problem.with_context(number=int(self.numbers[problem.place.pop("number", 0)]))
