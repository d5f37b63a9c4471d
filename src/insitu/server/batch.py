"""The routes `/reduce` and `/read`: many reductions, or many reads, in one request.

A batch is prepared first: metadata is scanned, every source is checked against the roots, the
memory is estimated. Then it waits for admission. Then it streams a sequence of CBOR items, one or
more for each array; the last item says that the response is complete. An error after the first item
is an item too, because the status has been sent by then.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cbor2
import numpy as np
import numpy.typing as npt
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from insitu.active.request_pieces import slice_axis
from insitu.active.wire import dtype_to_wire, values_to_wire
from insitu.cancellation import Deadline, check_deadline
from insitu.errors import InsituError, StaleSourceError
from insitu.model import Selection, VirtualArray
from insitu.reading import ChunkCache, ReadContext, ReadStatistics, execute, plan_read
from insitu.reducing.foldable_values import StoredValues
from insitu.reducing.grouped_statistics import grouped_statistics
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce import axes_of_dims, compute_statistics
from insitu.reducing.weighted_statistics import weighted_statistics
from insitu.server.access import get_client
from insitu.server.authentication import Credentials
from insitu.server.client_cache import ClientCache, can_be_cached
from insitu.server.client_source_pools import RequestSources
from insitu.server.declared_cost import (
    BLOCK_BYTES,
    PREPARATION_BYTES,
    RequestMemory,
    block_bytes,
    body_cost,
    declared_cost,
    job_cost,
    max_items,
)
from insitu.server.error_responses import error_response, public_message
from insitu.server.expression_job import PreparedExpression, prepare_expression, read_expression, reduce_expression
from insitu.server.jobs import ArrayRequest, BatchJob, BatchRequest, parse_batch
from insitu.server.request_body import SMALL_REQUEST_BYTES, count_body_items, read_body
from insitu.server.requested_arrays import find_array, report_archive_on_refusal, storage_options
from insitu.server.worker import Worker

__all__ = ["batch_routes"]

PIECE_BYTES = 1 << 20
"""Largest piece of a response that is sent at a time."""
MEDIA_TYPE = "application/cbor-seq"

Produce = Callable[["PreparedBatch", Deadline], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job with its array, its selection and its estimated cost."""

    job: BatchJob
    array: VirtualArray
    selection: Selection
    cost: RequestMemory
    kept: bool
    """Whether its decoded chunks go through the cache."""


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch that is ready to run."""

    tasks: tuple[PreparedJob | PreparedExpression, ...]
    options: dict[str, Any] = field(repr=False)
    cache: ChunkCache | None

    @property
    def cost(self) -> int:
        """Bytes that the batch holds:
        those of its largest job, because jobs run one after the other.
        """
        return max(task.cost.nbytes for task in self.tasks)


def batch_routes(worker: Worker) -> list[BaseRoute]:
    """Return the routes `/reduce` and `/read`."""

    def route(reducing: bool, produce: Produce) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                who = get_client(request)
                body = await read_body(request, worker)
                kind = request.headers.get("content-type", "")

                async def begin() -> AsyncIterator[bytes]:
                    ready = await _prepare(worker, body, kind, who, reducing)
                    # Of values that are read, a block, its copy, and chunks that lie in two blocks.
                    held = ready.cost if reducing else min(ready.cost, 4 * BLOCK_BYTES)
                    return await worker.stream(
                        ready.cost, held, lambda deadline: _stream_pieces(produce(ready, deadline))
                    )

                try:
                    pieces = await begin()
                except StaleSourceError:
                    worker.scans.forget()  # an archive changed since it was scanned here: scan it again
                    pieces = await begin()
            except InsituError as error:
                return error_response(error)
            return StreamingResponse(pieces, media_type=MEDIA_TYPE)

        return answer

    return [
        Route("/reduce", route(True, lambda ready, deadline: _reduce_batch(worker, ready, deadline)), methods=["POST"]),
        Route("/read", route(False, lambda ready, deadline: _read_batch(worker, ready, deadline)), methods=["POST"]),
    ]


async def _prepare(worker: Worker, body: bytes, kind: str, who: Credentials, reducing: bool) -> PreparedBatch:
    """Return the batch in a body, ready to run."""
    most = max_items(worker.limits)
    items = min(len(body), most)  # at most: a byte may be an empty list
    if len(body) > SMALL_REQUEST_BYTES:  # counting is cheaper than keeping so much memory from others
        items = await worker.run(PREPARATION_BYTES, lambda deadline: count_body_items(body, kind, most))
    cost = body_cost(body, items)

    def parse_and_prepare(deadline: Deadline) -> tuple[BatchRequest, PreparedBatch | None]:
        parsed = parse_batch(body, kind, reducing=reducing, most=most)
        return _prepare_if_small(worker, parsed, who, reducing)

    batch, ready = await worker.run(cost, parse_and_prepare)
    if ready is None:  # its tables take more memory than was admitted so far
        more = cost + declared_cost(batch, worker.limits)
        ready = await worker.run(more, lambda deadline: _prepare_batch(worker, batch, who, reducing))
    return ready


def _prepare_if_small(
    worker: Worker, batch: BatchRequest, who: Credentials, reducing: bool
) -> tuple[BatchRequest, PreparedBatch | None]:
    """Return a batch and its preparation,
    or None for the latter if its tables need more memory than its body.
    """
    small = declared_cost(batch, worker.limits) <= PREPARATION_BYTES
    return batch, _prepare_batch(worker, batch, who, reducing) if small else None


def _prepare_batch(worker: Worker, batch: BatchRequest, who: Credentials, reducing: bool) -> PreparedBatch:
    options = storage_options(worker, batch, who)
    whose = f"{who.digest} {sorted(batch.options.items())}"
    tasks: list[PreparedJob | PreparedExpression] = []
    for job in batch.jobs:
        check_deadline()
        if job.expression is not None:
            arrays = [find_array(worker, request, options, who, whose) for request in job.expression.arrays]
            tasks.append(prepare_expression(worker.limits, job, arrays, lambda array: _is_kept(worker, array)))
            continue
        array = find_array(worker, job, options, who, whose)
        selection = job.resolve_selection(array)
        if job.dim is not None:
            axes = axes_of_dims(array, selection, job.dim, None)
            assert not isinstance(axes, int)
            job = replace(job, axes=None if axes is None else tuple(axes))
        part = None if reducing else next(_split_selection(array, selection), selection)
        cost = job_cost(worker.limits, job, array, selection, part)
        tasks.append(
            PreparedJob(job, array, selection, cost, can_be_cached(array, selection, worker.cache.max_bytes // 2))
        )
    cache = ClientCache(worker.cache, who, batch.options) if batch.cache else None
    return PreparedBatch(tuple(tasks), options, cache)


def _is_kept(worker: Worker, array: VirtualArray) -> bool:
    """Return whether the chunks of one of several arrays may go through the cache."""
    return can_be_cached(array, Selection.of(..., array.shape), worker.cache.max_bytes // 8)


def _requests_of(task: PreparedJob | PreparedExpression) -> Sequence[ArrayRequest]:
    return (task.job,) if task.job.expression is None else task.job.expression.arrays


def _stream_pieces(items: Iterator[bytes]) -> Generator[bytes, None, None]:
    """Cut items into pieces;
    an error after the first piece becomes an item, because the status has been sent.
    """
    begun = False
    try:
        for item in items:
            for start in range(0, len(item), PIECE_BYTES):
                begun = True
                yield item[start : start + PIECE_BYTES]
    except InsituError as error:
        if not begun:
            raise
        yield cbor2.dumps({"error": {"kind": error.kind, "message": public_message(error)}})


def _final_item(tally: ReadStatistics, count: int) -> bytes:
    """Return the last item of a response: what was read for it."""
    return cbor2.dumps(
        {
            "done": count,
            "chunks": tally.chunks,
            "requests": tally.requests,
            "bytes_fetched": tally.bytes_fetched,
            "bytes_decoded": tally.bytes_decoded,
        }
    )


def _reduce_batch(worker: Worker, ready: PreparedBatch, deadline: Deadline) -> Iterator[bytes]:
    tally = ReadStatistics()
    try:
        with RequestSources(ready.options, deadline, worker.copies, worker.limits.fresh) as opened:
            for number, task in enumerate(ready.tasks):
                opened.cache = ready.cache if task.kept else None
                deadline.threads = task.cost.threads
                warned: list[list[str]] = []
                with report_archive_on_refusal(*_requests_of(task)):
                    if isinstance(task, PreparedExpression):
                        found, warned = reduce_expression(task, worker.limits, opened, tally)
                    else:
                        found = _reduce_job(worker, task, opened, tally)
                name = "partial" if task.job.partial else "values"
                item = {"job": number, name: {key: values_to_wire(np.asarray(v)) for key, v in found.items()}}
                yield cbor2.dumps({**item, "warnings": warned} if warned else item)
        yield _final_item(tally, len(ready.tasks))
    finally:
        worker.record_reads(tally)


def _reduce_job(
    worker: Worker, task: PreparedJob, opened: RequestSources, tally: ReadStatistics
) -> dict[str, npt.NDArray[Any]]:
    job, array = task.job, task.array
    query = ReductionQuery(job.methods, job.axes, task.selection, job.rules, job.keepdims)
    context = ReadContext(job.variable, sources=opened, tally=tally, block_bytes=block_bytes(worker.limits))
    if job.partial:
        selected = array[task.selection]
        whole = job.in_pieces(selected.shape, array.dtype)
        assert whole is not None
        return dict(whole.fold_piece(StoredValues(selected, context), Selection.of(..., selected.shape)))
    if job.weights is not None:
        return weighted_statistics(array, job.weights, query, context)
    if job.groups is not None:
        return grouped_statistics(array, job.groups, query, context)
    return compute_statistics(array, query, context)


def _read_batch(worker: Worker, ready: PreparedBatch, deadline: Deadline) -> Iterator[bytes]:
    tally = ReadStatistics()
    try:
        with RequestSources(ready.options, deadline, worker.copies, worker.limits.fresh) as opened:
            for number, task in enumerate(ready.tasks):
                opened.cache = ready.cache if task.kept else None
                deadline.threads = task.cost.threads
                if isinstance(task, PreparedExpression):
                    dtype, shape = task.dtype, task.shape
                    blocks = read_expression(task, worker.limits, opened, tally)
                else:
                    dtype, shape = task.array.dtype, task.selection.result_shape
                    blocks = _read_blocks(task, opened, tally)
                head = cbor2.dumps(
                    {"job": number, "dtype": dtype_to_wire(_to_little_endian(dtype)), "shape": list(shape)}
                )
                with report_archive_on_refusal(*_requests_of(task)):
                    for values in blocks:
                        deadline.check()
                        # Only with the first block: an error before it can still be sent as a
                        # status.
                        yield (
                            head + cbor2.dumps(_block_payload(values)) if head else cbor2.dumps(_block_payload(values))
                        )
                        head = b""
                yield head + cbor2.dumps({"job": number, "end": True})
        yield _final_item(tally, len(ready.tasks))
    finally:
        worker.record_reads(tally)


def _to_little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")


def _block_payload(values: npt.NDArray[Any]) -> Any:
    """Return a block as bytes in C order, little-endian; as a list if it holds objects."""
    if values.dtype.hasobject:
        return values_to_wire(values)["items"]
    return np.ascontiguousarray(values).astype(_to_little_endian(values.dtype), copy=False).tobytes()


def _read_blocks(task: PreparedJob, opened: RequestSources, tally: ReadStatistics) -> Iterator[npt.NDArray[Any]]:
    """Read the values in C order, part by part, so that only a few blocks are held at a time."""
    whole = math.prod(task.selection.result_shape)
    cache: ChunkCache | None = None
    for part in _split_selection(task.array, task.selection):
        if cache is None and opened.cache is None and math.prod(part.result_shape) < whole:
            cache = ChunkCache(2 * BLOCK_BYTES)  # for chunks that lie in two parts
        out = np.empty(part.result_shape, task.array.dtype)
        execute(plan_read(task.array, part), out, opened, task.job.variable, tally, cache)
        yield out


def _split_selection(array: VirtualArray, selection: Selection) -> Iterator[Selection]:
    """Split a selection into parts in C order:
    slabs along the first axis whose rows are small enough.
    """
    shape = selection.result_shape
    if 0 in shape:
        return
    if not shape:
        yield selection
        return
    numbers = [i for i, s in enumerate(selection.selectors) if not isinstance(s, int)]
    rows = [math.prod(shape[axis + 1 :]) * array.dtype.itemsize for axis in range(len(shape))]
    axis = next(axis for axis, row in enumerate(rows) if row <= BLOCK_BYTES or axis == len(rows) - 1)
    number, length = numbers[axis], shape[axis]
    step = _align_to_chunks(max(BLOCK_BYTES // max(rows[axis], 1), 1), array, number, rows[axis])
    for place in np.ndindex(shape[:axis]):
        outer = selection
        for leading, at in zip(numbers, place, strict=False):
            outer = slice_axis(outer, leading, at, at + 1)
        for begin in range(0, length, step):
            yield slice_axis(outer, number, begin, min(begin + step, length))


def _align_to_chunks(step: int, array: VirtualArray, dimension: int, row: int) -> int:
    """Return a step that ends at chunk borders, if the slabs are not too large:
    then each chunk is decoded once.
    """
    cut = array.tiles[0].axis_of(dimension) if array.tiles else None
    if cut is None or not cut.is_regular:
        return step
    if step < cut.size:
        return cut.size if cut.size * row <= 4 * BLOCK_BYTES else step
    return step // cut.size * cut.size
