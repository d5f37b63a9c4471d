"""Batches of a read plan: fetches and decodes chunks on threads and hands them to a sink.

The rows of a plan are cut into batches of neighbours. A batch is one task: the bytes of a source
are fetched in as few requests as possible, and each chunk is decoded once. Tasks run on threads
(the decoders release the GIL); a plan of one batch runs in the calling thread. The first error
stops the rest. A `ChunkSink` decides what becomes of a chunk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.codecs.chain import Decoder, prepare
from insitu.codecs.chunk_batch import take_chunks
from insitu.errors import InsituError, NotFoundError
from insitu.model import ABSENT, INLINE, UNWRITTEN, Encoding
from insitu.reading.cache import ChunkCache, PartialChunkCache
from insitu.reading.chunk_sink import ChunkSink
from insitu.reading.fetch import fetch_rows
from insitu.reading.plan import ReadPlan
from insitu.reading.read_statistics import ReadStatistics
from insitu.reading.request_cost import has_remote_sources
from insitu.reading.source_pool import SourcePool
from insitu.reading.task_batches import MIN_BATCH_BYTES, cut_batches
from insitu.reading.thread_pools import run_tasks
from insitu.sources import ByteSource, MemorySource
from insitu.sources.protocol import ReadsInto

__all__ = ["DIRECT_READ_BYTES", "NO_SOURCE", "PlanExecution", "run_executions"]

CACHED_ROWS = 64
"""Maximal number of rows that the thread of the caller takes from the cache of chunks."""
DIRECT_READ_BYTES = 64 << 10
"""Uncompressed chunks from this size on are read straight into the output.

Smaller ones are fetched with neighbours.
"""

NO_SOURCE = MemorySource(b"", "none")
"""Source of chunks whose values are known without any bytes."""


class PlanExecution:
    """One execution of a plan."""

    def __init__(
        self,
        plan: ReadPlan,
        sink: ChunkSink,
        opened: SourcePool,
        name: str | None,
        tally: ReadStatistics,
        cache: ChunkCache | None = None,
    ) -> None:
        self.plan = plan
        self.grids = plan.tile_plans
        self.sink = sink
        self.opened = opened
        self.name = name
        self.tally = tally
        self.cache = cache if cache is not None else opened.cache
        self.stopped = threading.Event()

    def run_without_bytes(self) -> None:
        """Hand over the rows without bytes to fetch: Absent, Unwritten and Inline cells."""
        for number, (grid, rows) in enumerate(zip(self.grids, self.plan.without_bytes, strict=True)):
            located = grid.locations
            for row, position in zip(rows.tolist(), grid.positions(rows), strict=True):
                check_deadline()
                source = int(located.source[row])
                encoding, packing = grid.encodings[int(located.encoding[row])], grid.packings[int(located.packing[row])]
                if source == ABSENT:
                    self.sink.fill(number, position, self.plan.array.absent_value(), None)
                elif source == UNWRITTEN:
                    self.sink.fill(number, position, encoding.fill_value(), packing)
                elif source == INLINE:
                    begin = int(located.offset[row])
                    data = memoryview(located.inline)[begin : begin + int(located.length[row])]
                    try:
                        decoder = prepare(encoding, grid.chunk_shape(position), int(located.filter_mask[row]))
                        self.sink.decode_one(number, position, decoder, data, None, packing)
                    except InsituError as problem:
                        touched = self.plan.tiles[number]
                        cells = tuple(int(part.cell[i]) for part, i in zip(touched.parts, position, strict=True))
                        raise problem.with_context(variable=self.name, chunk=cells) from problem.__cause__

    def batches(self) -> Iterator[tuple[int, int]]:
        """Return ranges of rows, one for each task; rows that the cache has are left to the caller's thread."""
        plan, cache = self.plan, self.cache
        count = len(plan.row)
        if 1 < count <= CACHED_ROWS and isinstance(cache, PartialChunkCache):
            urls = [plan.sources[number].url for number in plan.source.tolist()]
            if cache.was_cached(list(zip(urls, plan.offset.tolist(), strict=True))):
                return iter([(0, count)])
        return cut_batches(plan)

    def rows_by_source(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of rows of a batch that lie in one source, until the execution is stopped."""
        borders: list[int] = []
        if len(self.plan.sources) > 1:
            borders = (np.flatnonzero(np.diff(self.plan.source[begin:end])) + begin + 1).tolist()
        for rows in zip([begin, *borders], [*borders, end], strict=True):
            if self.stopped.is_set():
                return
            check_deadline()
            yield rows

    def run_batch(self, begin: int, end: int) -> None:
        """Fetch and decode some rows."""
        for first, last in self.rows_by_source(begin, end):
            about = self.plan.sources[self.plan.source[first]]
            try:
                with self.opened.acquire(about) as source:
                    self._decode(first, last, source)
            except NotFoundError as problem:
                if not about.optional or problem.is_dead_redirect:
                    raise problem.with_context(
                        variable=self.name, url=about.url, **self._error_context(first)
                    ) from problem.__cause__
                self._fill_unwritten(first, last)
            except InsituError as problem:
                raise problem.with_context(
                    variable=self.name, url=about.url, **self._error_context(first)
                ) from problem.__cause__

    def _decode(self, begin: int, end: int, source: ByteSource) -> None:
        """Fetch and decode some rows of one source."""
        plan = self.plan
        offset, length = plan.offset[begin:end], plan.length[begin:end]
        try:
            if self.cache is not None and self._needs_cache(begin, end, self.cache):
                self._decode_cached(begin, end, source, self.cache)
                return
            if self._read_into_place(begin, end, source):
                return
            started = perf_counter()
            data, requests, fetched = fetch_rows(source, offset, length)
            fetch_seconds = perf_counter() - started
            decoded = self.hand_over(begin, end, data, source)
        except InsituError as problem:
            raise problem.with_context(**self._error_context(begin)) from problem.__cause__
        self.tally.add(requests, fetched, decoded, len(offset), fetch_seconds, perf_counter() - started - fetch_seconds)

    def hand_over(
        self,
        begin: int,
        end: int,
        data: Sequence[memoryview],
        source: ByteSource,
        prepare_chunk: Callable[[Encoding, tuple[int, ...], int], Decoder] = prepare,
    ) -> int:
        """Give the bytes of some rows to the sink; return the number of bytes that were decoded."""
        plan, at = self.plan, 0
        offset, length = plan.offset[begin:end], plan.length[begin:end]
        try:
            shared = _find_shared_rows(offset, length)
            any_shared = bool(shared.any())
            decoded = 0
            for number, here in _rows_by_tile(plan.tile[begin:end], len(self.grids)):
                grid, rows = self.grids[number], plan.row[begin:end][here]
                located, last, chunk = grid.locations, None, None
                takes_many = self.sink.unpacks_many if grid.packed else self.sink.takes_many
                if takes_many and not any_shared and grid.axes is not None:
                    for group in grid.group_similar_rows(rows):
                        check_deadline()
                        decoder = prepare_chunk(grid.encodings[group.encoding], group.shape, group.mask)
                        decoded += decoder.nbytes * len(group.rows)
                        at = int(here[group.rows[0]])
                        mine = take_chunks(data, here[group.rows])
                        try:
                            self.sink.decode_many(number, group, decoder, mine, source)
                        except InsituError as problem:
                            at = int(here[group.rows[problem.place.pop("number", 0)]])
                            raise
                    continue
                columns = zip(
                    here.tolist(),
                    grid.positions(rows),
                    located.encoding[rows].tolist(),
                    located.filter_mask[rows].tolist(),
                    located.packing[rows].tolist(),
                    strict=True,
                )
                for at, position, encoding, mask, packing in columns:
                    if self.stopped.is_set():
                        return decoded
                    check_deadline()
                    decoder = prepare_chunk(grid.encodings[encoding], grid.chunk_shape(position), mask)
                    if not shared[at]:
                        decoded += decoder.nbytes
                        self.sink.decode_one(number, position, decoder, data[at], source, grid.packings[packing])
                        continue
                    key = (offset[at], length[at], encoding, mask, decoder.stored)
                    if key != last or chunk is None:
                        chunk, last = self.decode_shared(decoder, data[at], source), key
                        decoded += decoder.nbytes
                    self.sink.chunk(number, position, grid.spread(position, chunk), grid.packings[packing])
        except InsituError as problem:
            raise problem.with_context(**self._error_context(begin + at)) from problem.__cause__
        return decoded

    def decode_shared(self, decoder: Decoder, data: memoryview, source: ByteSource) -> npt.NDArray[Any]:
        """Return a decoded chunk that several cells need."""
        return decoder(data, None, source.read_many)

    def _needs_cache(self, begin: int, end: int, cache: ChunkCache) -> bool:
        """Return whether some rows of one source go through the cache."""
        if not isinstance(cache, PartialChunkCache):
            return True
        plan = self.plan
        grids = [self.grids[number] for number in set(plan.tile[begin:end].tolist())]
        if not all(grid.needs_parts_only for grid in grids):
            return False
        url = plan.sources[plan.source[begin]].url
        chunk_bytes = max(grid.stored_bytes for grid in grids)
        return cache.is_wanted(url, plan.offset[begin:end].tolist(), chunk_bytes, len(plan.offset))

    def _decode_cached(self, begin: int, end: int, source: ByteSource, cache: ChunkCache) -> None:
        """Do the same with a cache: only chunks that it does not have are fetched and decoded."""
        plan, about = self.plan, source.describe()
        jobs = []
        for at in range(begin, end):
            number, row = int(plan.tile[at]), plan.row[at : at + 1]
            grid = self.grids[number]
            encoding, mask = int(grid.locations.encoding[row][0]), int(grid.locations.filter_mask[row][0])
            (position,) = grid.positions(row)
            decoder = prepare(grid.encodings[encoding], grid.chunk_shape(position), mask)
            key = (about, int(plan.offset[at]), int(plan.length[at]), grid.encodings[encoding], mask, decoder.stored)
            jobs.append((number, position, decoder, key, grid.packings[int(grid.locations.packing[row][0])]))
        missing = np.array([key not in cache for _, _, _, key, _ in jobs], bool)
        started = perf_counter()
        data: Sequence[memoryview] = []
        requests = fetched = decoded = 0
        if missing.any():
            data, requests, fetched = fetch_rows(
                source, plan.offset[begin:end][missing], plan.length[begin:end][missing], keep=True
            )
        fetch_seconds = perf_counter() - started
        here = dict(zip((np.flatnonzero(missing) + begin).tolist(), data, strict=True))
        together: list[memoryview] = []
        in_groups = self.sink.depends_on_order and all(
            decoder.records is None and not decoder.dtype.hasobject for _, _, decoder, _, _ in jobs
        )
        for at, (number, position, decoder, key, packing) in enumerate(jobs, begin):
            if self.stopped.is_set():
                return
            check_deadline()
            made = False

            def make(decoder: Decoder = decoder, at: int = at) -> npt.NDArray[Any]:
                nonlocal made
                made = True
                one = slice(at, at + 1)
                # A chunk that was in the cache a moment ago may have been evicted since.
                chunk = (
                    here[at] if at in here else fetch_rows(source, plan.offset[one], plan.length[one], keep=True)[0][0]
                )
                return decoder(chunk, None, source.read_many)

            try:
                chunk = cache.get(key, make)
            except InsituError as problem:
                raise problem.with_context(**self._error_context(at)) from problem.__cause__
            decoded += decoder.nbytes if made else 0
            if in_groups:
                together.append(decoder.to_stored_bytes(chunk))
            else:
                self.sink.chunk(number, position, self.grids[number].spread(position, chunk), packing)
        if in_groups:
            self.hand_over(begin, end, together, source, lambda *how: prepare(*how).for_decoded_chunks)
        self.tally.add(requests, fetched, decoded, end - begin, fetch_seconds, perf_counter() - started - fetch_seconds)

    def _read_into_place(self, begin: int, end: int, source: ByteSource) -> bool:
        """Read uncompressed chunks straight to their place.

        Return False if that is impossible or not worthwhile.
        """
        plan = self.plan
        length = plan.length[begin:end]
        number = int(plan.tile[begin])
        grid = self.grids[number]
        if (
            grid.axes is None
            or not any(encoding.raw for encoding in grid.encodings)  # cheap checks first
            or not self.sink.takes_many
            or grid.packed
            or length.min() < DIRECT_READ_BYTES
            or not isinstance(source, ReadsInto)
        ):
            return False
        if (plan.tile[begin:end] != number).any():
            return False
        groups = list(grid.group_similar_rows(plan.row[begin:end]))
        decoders = [prepare(grid.encodings[group.encoding], group.shape, group.mask) for group in groups]
        if any(decoder.steps or decoder.back is not None or decoder.dtype.hasobject for decoder in decoders):
            return False
        if any((length[group.rows] != decoder.nbytes).any() for group, decoder in zip(groups, decoders, strict=True)):
            return False  # the decoder raises the error
        started = perf_counter()
        for group, decoder in zip(groups, decoders, strict=True):
            if not self.sink.read_into_place(
                number, group, decoder, plan.offset[begin:end][group.rows].tolist(), source
            ):
                return False
        self.tally.add(end - begin, int(length.sum()), int(length.sum()), end - begin, perf_counter() - started, 0.0)
        return True

    def _fill_unwritten(self, begin: int, end: int) -> None:
        """Fill the chunks of an optional object that does not exist: they are Unwritten."""
        cells, chunks = [], []
        for at in range(begin, end):
            check_deadline()
            number, row = int(self.plan.tile[at]), self.plan.row[at]
            grid = self.grids[number]
            encoding, mask = grid.encodings[int(grid.locations.encoding[row])], int(grid.locations.filter_mask[row])
            (position,) = grid.positions(np.array([row]))
            cells.append((number, position, encoding.fill_value(), grid.packings[int(grid.locations.packing[row])]))
            decoder = prepare(encoding, grid.chunk_shape(position), mask)
            if self.sink.depends_on_order and decoder.records is None and not decoder.dtype.hasobject:
                values = np.full(decoder.nbytes // decoder.dtype.itemsize, cells[-1][2], decoder.dtype)
                chunks.append(values.view(np.uint8).data)
        # Grouped as if they existed: values from an earlier use do not say whether their chunks did.
        if len(chunks) == len(cells):
            self.hand_over(begin, end, chunks, NO_SOURCE, lambda *how: prepare(*how).for_decoded_chunks)
            return
        for cell in cells:
            self.sink.fill(*cell)

    def _error_context(self, at: int) -> dict[str, Any]:
        """Return the context of an error in a row: chunk, offset, length."""
        plan = self.plan
        touched, row = plan.tiles[plan.tile[at]], plan.row[at]
        position = touched.rows_of_axes(np.array([row]))
        return {
            "chunk": tuple(int(part.cell[i[0]]) for part, i in zip(touched.parts, position, strict=True)),
            "offset": int(plan.offset[at]),
            "length": int(plan.length[at]) if plan.length[at] >= 0 else None,
        }


def run_executions(runs: Sequence[PlanExecution]) -> None:
    """Run the batches of some plans concurrently.

    The first error or interrupt cancels the rest and waits for running ones.
    """
    tasks = []
    for run in runs:
        run.run_without_bytes()
        tasks += [partial(run.run_batch, begin, end) for begin, end in run.batches()]

    def stop() -> None:
        for run in runs:
            run.stopped.set()

    if _is_little_work(runs):
        for task in tasks:
            task()
        return
    run_tasks(tasks, any(has_remote_sources(run.plan.sources) for run in runs), stop)


def _is_little_work(runs: Sequence[PlanExecution]) -> bool:
    """Return whether this thread has read everything from local files before another one would have started."""
    nbytes = 0
    for run in runs:
        if has_remote_sources(run.plan.sources) or (run.plan.length < 0).any():
            return False
        nbytes += int(run.plan.length.sum())
    return nbytes <= MIN_BATCH_BYTES


def _rows_by_tile(tiles: npt.NDArray[np.int32], count: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each tile of a batch with its rows."""
    if count == 1:
        yield 0, np.arange(len(tiles))
        return
    for number in np.unique(tiles).tolist():
        yield number, np.flatnonzero(tiles == number)


def _find_shared_rows(offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return for each row whether a neighbour has the same bytes."""
    same = np.zeros(len(offset) + 1, bool)
    same[1:-1] = (np.diff(offset) == 0) & (np.diff(length) == 0)
    return same[1:] | same[:-1]
