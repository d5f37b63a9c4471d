"""Execution of read plans: fills an array.

`execute` and `execute_all` execute plans in columns, `execute_few` one of a few chunks.

Chunks are decoded straight into it where they are contiguous there, else copied part by part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.cf.unpack import unpack
from insitu.codecs.chain import Decoder
from insitu.codecs.outside_values import Fetch
from insitu.codecs.thread_buffers import get_buffer
from insitu.errors import InsituError
from insitu.model import Packing
from insitu.reading.cache import ChunkCache, PartialChunkCache
from insitu.reading.chunk_sink import ChunkSink
from insitu.reading.fetch import FETCH_SLOT, read_exactly_into
from insitu.reading.fetch_and_decode import PlanExecution, run_executions
from insitu.reading.plan import ChunkPart, FewChunks, ReadPlan
from insitu.reading.read_statistics import ReadStatistics
from insitu.reading.scatter import pick, put
from insitu.reading.source_pool import SourcePool
from insitu.reading.thread_pools import run_tasks
from insitu.reading.tile_plan import ChunkGroup, Position
from insitu.sources import ByteSource
from insitu.sources.protocol import ReadsInto

__all__ = ["execute", "execute_all", "execute_few"]

TRANSIT_SLOT = 3
"""Slot of the thread's buffer for a chunk that is decoded before it is copied.

The decoders use slots 0 to 2.
"""

SHARED_BYTES = 256 << 10
"""Decoded bytes of a chunk from which on a few chunks are worth threads: smaller ones are done before
another thread has started.
"""


UNPACKED_BYTES = 1 << 20
"""Bytes of stored values that are unpacked at once, where chunks are small."""


class ArraySink(ChunkSink):
    """Sink that fills an array."""

    takes_many = True
    unpacks_many = True

    def __init__(self, plan: ReadPlan, out: npt.NDArray[Any]) -> None:
        super().__init__(plan.tile_plans)
        self.windows = [touched.window(out, plan.selection) for touched in plan.tiles]

    def fill(self, grid: int, position: Position, value: Any, packing: Packing | None) -> None:
        """Fill a cell that has no bytes with one value."""
        if packing is not None:
            value = unpack(np.asarray(value), packing)
        put(self.windows[grid], self.grids[grid].at(self.grids[grid].outside, position), value)

    def decode_one(
        self,
        grid: int,
        position: Position,
        decoder: Decoder,
        data: memoryview,
        source: ByteSource | None,
        packing: Packing | None,
    ) -> None:
        """Decode a chunk that only one cell needs, straight into the output where possible."""
        here = self.grids[grid]
        fetch = source.read_many if source is not None else None
        if here.plain and here.all_exist:
            view = self.windows[grid][(..., *here.at(here.outside, position))]
            if packing is not None or view.dtype == decoder.dtype:
                if packing is None and all(here.at(here.whole, position)):
                    decoder(data, view, fetch)
                    return
                inside = here.at(here.inside, position)
                if view.shape == _sliced_shape(inside, here.at(here.sizes, position)):
                    _decode_box(decoder, data, inside, view, packing, fetch)
                    return
        room = None if packing is None else _get_transit_room(decoder, decoder.stored)
        self.chunk(grid, position, here.spread(position, decoder(data, room, fetch)), packing)

    def decode_many(
        self, grid: int, group: ChunkGroup, decoder: Decoder, data: Sequence[memoryview], source: ByteSource
    ) -> None:
        """Decode chunks of which the same box is wanted."""
        window = self.windows[grid]
        packing = group.packing
        is_simple = decoder.records is None and decoder.back is None and not decoder.dtype.hasobject
        if packing is not None and is_simple:
            self._unpack_many(window, group, decoder, data, source, packing)
            return
        if packing is None and window.dtype == decoder.dtype:
            decoder.scatter(data, group.start, group.extent, window, group.places, source.read_many)
            return
        inside = tuple([slice(s, s + n) for s, n in zip(group.start, group.extent, strict=True)])
        for number, (chunk, place) in enumerate(zip(data, group.at, strict=True)):
            outside = tuple([slice(b, b + n) for b, n in zip(place, group.extent, strict=True)])
            try:
                values = decoder(chunk, None, source.read_many)[inside]
                put(window, outside, values if packing is None else unpack(values, packing))
            except InsituError as problem:
                raise problem.with_context(number=number) from problem.__cause__

    def _unpack_many(
        self,
        window: npt.NDArray[Any],
        group: ChunkGroup,
        decoder: Decoder,
        data: Sequence[memoryview],
        source: ByteSource,
        packing: Packing,
    ) -> None:
        """Decode small chunks side by side into a block, unpack the block, and copy it to the
        output.
        """
        extent, rest = group.extent, group.extent[1:]
        count = max(UNPACKED_BYTES // max(decoder.nbytes, 1), 1)
        for first in range(0, len(data), count):
            chunks, places = data[first : first + count], group.places[first : first + count]
            shape = (len(chunks) * extent[0], *rest)
            stored = np.empty(shape, decoder.dtype)
            beside = np.zeros_like(places)
            beside[:, 0] = np.arange(len(chunks)) * extent[0]
            try:
                decoder.scatter(chunks, group.start, extent, stored, beside, source.read_many)
            except InsituError as problem:
                raise problem.with_context(number=first + problem.place.pop("number", 0)) from problem.__cause__
            if (places == places[0] + beside).all():  # they lie side by side in the output, too
                view = window[tuple([slice(b, b + n) for b, n in zip(places[0].tolist(), shape, strict=True)])]
                unpack(stored, packing, view)
                continue
            values = unpack(stored, packing)
            for begin, place in zip(range(0, shape[0], extent[0]), places.tolist(), strict=True):
                outside = tuple([slice(b, b + n) for b, n in zip(place, extent, strict=True)])
                put(window, outside, values[begin : begin + extent[0]])

    def read_into_place(
        self, grid: int, group: ChunkGroup, decoder: Decoder, offset: Sequence[int], source: ReadsInto
    ) -> bool:
        """Read uncompressed chunks into the output, or through the thread's buffer where only a
        part is wanted.
        """
        window = self.windows[grid]
        if window.dtype != decoder.dtype:
            return False
        inside = tuple([slice(s, s + n) for s, n in zip(group.start, group.extent, strict=True)])
        for place, begin in zip(group.at, offset, strict=True):
            view = window[tuple([slice(b, b + n) for b, n in zip(place, group.extent, strict=True)])]
            if group.extent == group.shape:
                read_exactly_into(source, begin, view)
                continue
            room = get_buffer(TRANSIT_SLOT, decoder.nbytes)
            read_exactly_into(source, begin, room)
            view[...] = room.view(decoder.dtype).reshape(group.shape)[inside]
        return True

    def chunk(self, grid: int, position: Position, chunk: npt.NDArray[Any], packing: Packing | None) -> None:
        """Copy the wanted part of a decoded chunk to the output."""
        here = self.grids[grid]
        part, outside = pick(chunk, here.at(here.inside, position)), here.at(here.outside, position)
        if packing is not None:
            if here.plain:
                view = self.windows[grid][(..., *outside)]
                if view.shape == part.shape:
                    unpack(part, packing, view)
                    return
            part = unpack(part, packing)
        put(self.windows[grid], outside, part)


def _decode_box(
    decoder: Decoder,
    data: Any,
    inside: tuple[slice, ...],
    target: npt.NDArray[Any],
    packing: Packing | None,
    fetch: Fetch | None,
) -> None:
    """Decode the wanted box of a chunk into its place in the output."""
    if packing is None:
        decoder.place(data, inside, target, fetch)
        return
    room = _get_transit_room(decoder, target.shape)
    if room is None:  # what is decoded is of another type than the chunk: texts and other objects
        unpack(decoder(data, None, fetch)[inside], packing, target)
        return
    decoder.place(data, inside, room, fetch)
    unpack(room, packing, target)


def _get_transit_room(decoder: Decoder, shape: tuple[int, ...]) -> npt.NDArray[Any] | None:
    """Return memory of the thread for stored values, which are temporary; None if they need memory of their own."""
    if decoder.records is not None or decoder.dtype.hasobject or decoder.back is not None:
        return None
    return get_buffer(TRANSIT_SLOT, math.prod(shape) * decoder.dtype.itemsize).view(decoder.dtype).reshape(shape)


def _sliced_shape(inside: tuple[slice, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that slices select.

    One element may be repeated, then the output is larger.
    """
    return tuple([len(range(*picker.indices(size))) for picker, size in zip(inside, sizes, strict=True)])


def execute(
    plan: ReadPlan,
    out: npt.NDArray[Any],
    opened: SourcePool,
    name: str | None = None,
    tally: ReadStatistics | None = None,
    cache: ChunkCache | None = None,
) -> ReadStatistics:
    """Execute a plan: fill `out` with the selected values.

    Parameters
    ----------
    plan
        The plan.
    out
        Output array, of the selection's shape.
    opened
        Pool of open sources.
    name
        Name of the variable, for error messages.
    tally
        Counts requests, bytes and seconds.
    cache
        Cache of decoded chunks.
    """
    return execute_all([(plan, out, name)], opened, tally, cache)


def execute_all(
    jobs: Sequence[tuple[ReadPlan, npt.NDArray[Any], str | None]],
    opened: SourcePool,
    tally: ReadStatistics | None = None,
    cache: ChunkCache | None = None,
) -> ReadStatistics:
    """Execute several plans at once: their chunks are fetched and decoded concurrently."""
    tally = tally if tally is not None else ReadStatistics()
    runs = []
    for plan, out, name in jobs:
        if not plan.covers_output:
            try:
                out[...] = plan.array.absent_value()
            except InsituError as problem:
                raise problem.with_context(variable=name) from None
        runs.append(PlanExecution(plan, ArraySink(plan, out), opened, name, tally, cache))
    run_executions(runs)
    return tally


def execute_few(
    few: FewChunks, opened: SourcePool, tally: ReadStatistics, cache: PartialChunkCache | None = None
) -> None:
    """Execute a plan of a few chunks.

    An error does not say which chunk it concerns: a plan in columns meets the same one, and does.

    Parameters
    ----------
    few
        The plan, which has the places in the output.
    opened
        Pool of open sources.
    tally
        Counts requests, bytes and seconds.
    cache
        Cache of chunks of which parts are read.
    """
    parts = few.parts
    with opened.acquire(few.source) as source:
        if cache is not None and (cached := _find_cached(few, cache, source)):
            _take_from_cache(source, cached, cache, tally)
            if len(cached) == len(parts):
                return
            parts = [part for part in parts if not any(part is one for one in cached)]
        seconds: list[tuple[float, float]] = []
        tasks = [partial(_read_part, source, part, seconds) for part in parts]
        if max([part.decoder.nbytes for part in parts]) < SHARED_BYTES:
            for task in tasks:
                task()
        else:
            run_tasks(tasks, False, lambda: None)  # one that has begun is a single chunk, and ends soon
    count = len(parts)
    fetched, decoded = sum([part.length for part in parts]), sum([part.decoder.nbytes for part in parts])
    tally.add(count, fetched, decoded, count, sum([first for first, _ in seconds]), sum([last for _, last in seconds]))


def _read_part(source: ByteSource, part: ChunkPart, seconds: list[tuple[float, float]]) -> None:
    """Read the wanted box of a chunk; note the seconds that fetching and decoding took."""
    check_deadline()
    started = perf_counter()
    data: Any
    if isinstance(source, ReadsInto):
        data = get_buffer(FETCH_SLOT, part.length)
        read_exactly_into(source, part.offset, data)
    else:
        data = source.read(part.offset, part.length)
    fetched = perf_counter()
    _decode_box(part.decoder, data, part.inside, part.target, part.packing, source.read_many)
    seconds.append((fetched - started, perf_counter() - fetched))


def _find_cached(few: FewChunks, cache: PartialChunkCache, source: ByteSource) -> list[ChunkPart]:
    """Return the chunks that go through the cache, which takes a note of them.

    A read of whole chunks takes only those from it that are there: the second use of a small array reads all of it.
    """
    if any(part.is_whole for part in few.parts):
        about = source.describe() if cache.nbytes else None
        return [part for part in few.parts if about is not None and (about, *part.key) in cache]
    largest = max([part.decoder.nbytes for part in few.parts])
    wanted = cache.is_wanted(few.source.url, [part.offset for part in few.parts], largest, len(few.parts))
    return list(few.parts) if wanted else []


def _take_from_cache(
    source: ByteSource, parts: Sequence[ChunkPart], cache: PartialChunkCache, tally: ReadStatistics
) -> None:
    """Take the boxes from chunks in the cache, which keeps those that it does not have yet."""
    about = source.describe()
    for part in parts:
        check_deadline()

        def make(part: ChunkPart = part) -> npt.NDArray[Any]:
            started = perf_counter()
            data = source.read(part.offset, part.length)
            fetched = perf_counter()
            chunk = part.decoder(data, None, source.read_many)
            tally.add(1, part.length, part.decoder.nbytes, 0, fetched - started, perf_counter() - fetched)
            return chunk

        box = cache.get((about, *part.key), make)[part.inside]
        if part.packing is None:
            part.target[...] = box
        else:
            unpack(box, part.packing, part.target)
    tally.add(0, 0, 0, len(parts), 0.0, 0.0)
