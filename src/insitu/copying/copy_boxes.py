"""Reading, encoding and writing of the boxes of an array; chunks that pass through are moved as they are.

Boxes are read one after another, each by all cores, while the objects of the box before are encoded and written on
threads of their own. With an engine, a box is a task that does all of it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.copying.encode import ObjectEncoder, checksum_values
from insitu.copying.journal import Finished, Journal
from insitu.copying.object_writers import ObjectWriter
from insitu.copying.sweeps import Sweep
from insitu.copying.target_arrays import TargetArray, source_grid
from insitu.engines.engine_protocol import Engine
from insitu.errors import error_context
from insitu.expressions.boxes import Box, BoxMemory
from insitu.expressions.evaluate import box_reader
from insitu.expressions.nodes import Expression
from insitu.lru import LruCache
from insitu.reading import PartialChunkCache
from insitu.reading.source_pool import SourcePool
from insitu.reading.thread_pools import count_cores
from insitu.reading.zarr_store.byte_span import ALL_BYTES
from insitu.reading.zarr_store.stored_chunks import StoredRange, read_stored
from insitu.sources.threads import gather

__all__ = ["PASSED_THROUGH", "BoxCopier", "copy_array", "encoding_threads", "pass_through"]

TASK_BYTES = 1 << 20
"""Bytes of values that one task encodes, at least: a task for each small object would take longer than its work."""
MOVED_BYTES = 8 << 20
"""Bytes of chunks that are moved together."""
MOVED_CHUNKS = 256
PASSED_THROUGH = -1.0
"""In the place of an error: the bytes of the object are those of the source."""
SUBMITTED = 64
"""Boxes that an engine has at a time."""

Count = Callable[[int], None]
"""Called with bytes of values that are done."""


@contextmanager
def encoding_threads() -> Iterator[Executor]:
    """Give threads that encode and write, one for each core."""
    with ThreadPoolExecutor(count_cores(), "insitu-copy") as pool:
        yield pool


class _StraddlingChunks(PartialChunkCache):
    """Keeps each chunk of which a box needs a part only: the plan says that there is room."""

    def is_wanted(self, url: str, offsets: Sequence[int], chunk_bytes: int, chunks: int) -> bool:
        """Return True."""
        super().is_wanted(url, offsets, chunk_bytes, chunks)
        return True


@dataclass(frozen=True, slots=True, eq=False)
class BoxCopier:
    """Copies boxes of one array. It travels to other processes."""

    array: TargetArray
    number: int
    """Of the array in the journal."""
    writer: ObjectWriter

    def encode(
        self, values: npt.NDArray[Any], corner: Sequence[int], objects: Sequence[tuple[Any, Box]]
    ) -> Iterator[Finished]:
        """Encode and write objects of a box whose values are read, one after another."""
        array = self.array
        encoder: ObjectEncoder = array.encoder
        repacking = array.form.repacking
        for cell, box in objects:
            check_deadline()
            place = (slice(p.start - c, p.stop - c) for p, c in zip(box, corner, strict=True))
            inside: tuple[Any, ...] = (*place, ...)  # an array, also of one text
            part = values[inside]
            error = 0.0
            if repacking is not None:
                with error_context(variable=array.path):
                    part, error = repacking.pack(part)
            part = part.astype(array.form.dtype, copy=False)
            if array.extension is not None:
                part = array.extension.complete(part, box)
            data = encoder(part)
            self.writer.put(array.key(cell), data)
            checksums = google_crc32c.value(data), checksum_values(part)
            yield Finished(self.number, array.number(cell), len(data), *checksums, error)

    def copy_box(self, node: Expression, box: Box, objects: Sequence[tuple[Any, Box]]) -> list[Finished]:
        """Read, encode and write a box: the task of an engine."""
        values = _reader(node, 0)(box)
        return list(self.encode(values, [part.start for part in box], objects))


def _reader(node: Expression, cache_bytes: int) -> Callable[[Box], npt.NDArray[Any]]:
    """Return what reads boxes; with room for them, chunks of which a box needs a part are kept for the next ones."""
    chunks = _StraddlingChunks(LruCache(cache_bytes, lambda chunk: chunk.nbytes), cache_bytes)
    read = box_reader(node, BoxMemory(1 << 62, chunks=cache_bytes), chunks=chunks)
    if not cache_bytes:
        return read
    grid = source_grid(node)

    def read_in_pieces(box: Box) -> npt.NDArray[Any]:
        pieces = list(grid.cut_box(box, node.shape))
        if len(pieces) == 1:
            return read(box)
        values = np.empty([part.stop - part.start for part in box], node.dtype)
        for piece in pieces:
            place = tuple(slice(p.start - b.start, p.stop - b.start) for p, b in zip(piece, box, strict=True))
            values[place] = read(piece)
        return values

    return read_in_pieces


def copy_array(
    copier: BoxCopier,
    node: Expression,
    sweep: Sweep,
    journal: Journal,
    pool: Executor,
    count: Count,
    engine: Engine | None = None,
) -> None:
    """Copy the boxes of an array that are not finished.

    Parameters
    ----------
    copier
        What encodes and writes.
    node
        What is read.
    sweep
        The boxes.
    journal
        Notes what is finished.
    pool
        Threads that encode.
    count
        Is told how many bytes are done.
    engine
        Where boxes are copied; None: here.
    """
    array = copier.array
    finished = journal.of_array(copier.number)
    todo = _unfinished_boxes(array, sweep, finished, count)
    if engine is not None:
        _copy_by_engine(copier, node, todo, journal, count, engine)
        return
    read = _reader(node, sweep.cache_bytes)
    pending: list[Future[None]] = []
    try:
        for box, objects in todo:
            values = read(box)
            _wait_for(pending)  # two boxes are in memory: see `sweeps.AT_ONCE`
            corner = [part.start for part in box]
            pending = [
                pool.submit(_encode_group, copier, values, corner, some, journal, count)
                for some in _group(array, objects)
            ]
            del values
        _wait_for(pending)
    finally:
        for future in pending:
            future.cancel()
        wait(pending)


def _encode_group(
    copier: BoxCopier,
    values: npt.NDArray[Any],
    corner: Sequence[int],
    objects: Sequence[tuple[Any, Box]],
    journal: Journal,
    count: Count,
) -> None:
    """Encode and write some objects, and note those that are finished, also if a later one fails."""
    done: list[Finished] = []
    try:
        for record in copier.encode(values, corner, objects):
            done.append(record)
    finally:
        journal.add(done)
    count(sum(_box_bytes(copier.array, box) for _, box in objects))


def _wait_for(futures: Sequence[Future[None]]) -> None:
    """Wait for tasks; raise the error of one that failed."""
    for future in futures:
        future.result()


def _unfinished_boxes(
    array: TargetArray, sweep: Sweep, finished: dict[int, Finished], count: Count
) -> Iterator[tuple[Box, list[tuple[Any, Box]]]]:
    for box in sweep.boxes(array.shape):
        objects, known = [], 0
        for cell, inside in array.objects_in(box):
            if array.number(cell) in finished:
                known += _box_bytes(array, inside)
            else:
                objects.append((cell, inside))
        if known:
            count(known)
        if objects:
            yield box, objects


def _box_bytes(array: TargetArray, box: Box) -> int:
    itemsize = array.itemsize
    for part in box:
        itemsize *= part.stop - part.start
    return itemsize


def _group(array: TargetArray, objects: Sequence[tuple[Any, Box]]) -> Iterator[list[tuple[Any, Box]]]:
    """Yield objects in groups that are worth a task."""
    group: list[tuple[Any, Box]] = []
    nbytes = 0
    for one in objects:
        group.append(one)
        nbytes += _box_bytes(array, one[1])
        if nbytes >= TASK_BYTES:
            yield group
            group, nbytes = [], 0
    if group:
        yield group


def _copy_by_engine(
    copier: BoxCopier,
    node: Expression,
    todo: Iterator[tuple[Box, list[tuple[Any, Box]]]],
    journal: Journal,
    count: Count,
    engine: Engine,
) -> None:
    """Copy boxes as tasks of an engine; no two of them write one object."""
    name = f"copy-{copier.array.path}"
    while True:
        batch = list(itertools.islice(todo, SUBMITTED))
        if not batch:
            return
        futures = [engine.submit(f"{name}-{_token()}", copier.copy_box, node, box, objects) for box, objects in batch]
        engine.flush()
        problem: Exception | None = None
        for future, (_, objects) in zip(futures, batch, strict=True):
            try:
                journal.add(future.result())
            except Exception as error:  # the others' results are kept first
                problem = problem or error
                continue
            count(sum(_box_bytes(copier.array, box) for _, box in objects))
        if problem is not None:
            raise problem


def _token() -> str:
    import uuid

    return uuid.uuid4().hex


def pass_through(copier: BoxCopier, journal: Journal, pool: Executor, count: Count, storage_options: Any) -> None:
    """Move the chunks of an array as they are stored."""
    array = copier.array
    through = array.through
    assert through is not None
    finished = journal.of_array(copier.number)
    with SourcePool(storage_options) as sources:
        pending: deque[Future[list[Finished]]] = deque()
        try:
            for cells in _batches(array, finished, count):
                while len(pending) > 2 * count_cores():
                    journal.add(pending.popleft().result())
                pending.append(pool.submit(_move, copier, cells, sources, count))
            while pending:
                journal.add(pending.popleft().result())
        finally:
            for future in pending:
                future.cancel()
            wait(pending)


def _batches(array: TargetArray, finished: dict[int, Finished], count: Count) -> Iterator[list[tuple[int, ...]]]:
    """Yield the chunks that were written and are not finished, in groups that are moved together."""
    assert array.through is not None
    each = max(array.through.array.array.nbytes // max(array.through.array.count, 1), 1)
    many = max(min(MOVED_BYTES // each, MOVED_CHUNKS), 1)
    batch: list[tuple[int, ...]] = []
    for cell in array.through.cells():
        if array.number(cell) in finished:
            count(each)
            continue
        batch.append(cell)
        if len(batch) == many:
            yield batch
            batch = []
    if batch:
        yield batch


def _move(copier: BoxCopier, cells: list[tuple[int, ...]], sources: SourcePool, count: Count) -> list[Finished]:
    array = copier.array
    assert array.through is not None
    check_deadline()
    found = array.through.locate(cells)
    data: list[bytes | None] = [None if isinstance(where, StoredRange) else where for where in found]
    by_source: dict[Any, list[int]] = {}
    for row, where in enumerate(found):
        if isinstance(where, StoredRange):
            by_source.setdefault(where.source, []).append(row)

    def read(rows: list[int], _: object) -> list[bytes | None]:
        return read_stored([(found[row], ALL_BYTES) for row in rows], sources)  # type: ignore[misc]

    groups = list(by_source.values())
    for rows, parts in zip(groups, gather(read, groups) if len(groups) > 1 else [read(rows, None) for rows in groups]):
        for row, part in zip(rows, parts, strict=True):
            data[row] = part
    done = []
    each = max(array.through.array.array.nbytes // max(array.through.array.count, 1), 1)
    for cell, chunk in zip(cells, data, strict=True):
        if chunk is not None:
            copier.writer.put(array.key(cell), chunk)
            done.append(
                Finished(
                    copier.number, array.number(cell), len(chunk), google_crc32c.value(bytes(chunk)), 0, PASSED_THROUGH
                )
            )
        count(each)
    return done
