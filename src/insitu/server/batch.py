"""The routes `/reduce` and `/read`: many reductions, or many reads, in one request.

A batch is prepared first: metadata is scanned, every source is checked against the roots, the
memory is estimated. Then it waits for admission. Then it streams a sequence of CBOR items, one or
more for each array; the last item says that the response is complete. An error after the first item
is an item too, because the status has been sent by then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import cbor2
import numpy as np
import numpy.typing as npt
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from insitu.active.message_decoder import MAX_ITEMS
from insitu.active.wire import dtype_to_wire, values_to_wire
from insitu.cancellation import Deadline, check_deadline
from insitu.errors import InsituError, StaleSourceError
from insitu.reading import ChunkCache, ReadContext, ReadStatistics
from insitu.server.access import get_client
from insitu.server.authentication import Credentials
from insitu.server.client_cache import ClientCache
from insitu.server.client_source_pools import RequestSources
from insitu.server.error_responses import RequestTooLargeError, error_response, public_message
from insitu.server.job_memory import BLOCK_BYTES
from insitu.server.jobs import BatchRequest, parse_batch
from insitu.server.request_body import SMALL_REQUEST_BYTES, count_body_items, read_body
from insitu.server.requested_arrays import find_array, storage_options
from insitu.server.roots import report_archive_on_refusal
from insitu.server.run_job import PreparedJob, prepare_job, read_job, reduce_job
from insitu.server.settings import Limits
from insitu.server.worker import Worker

__all__ = ["batch_routes"]

PIECE_BYTES = 1 << 20
"""Largest piece of a response that is sent at a time."""
PREPARATION_BYTES = 1 << 20
"""Bytes that are counted for the preparation of a request, in addition to its body."""
ITEM_BYTES = 72
"""Bytes of the smallest decoded item of a body:
an empty list, and the reference to it in another list.
"""
ELEMENT_BYTES = 32
"""Bytes for a number of a column, with temporary copies."""
MEDIA_TYPE = "application/cbor-seq"

AnswerJob = Callable[[int, PreparedJob, ReadContext], Iterator[bytes]]
"""Makes the items of a job, given its number and how it is read."""


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch that is ready to run."""

    tasks: tuple[PreparedJob, ...]
    options: dict[str, Any] = field(repr=False)
    cache: ChunkCache | None

    @property
    def cost(self) -> int:
        """Bytes that the batch holds:
        those of its largest job, because jobs run one after the other.
        """
        return max(task.memory.nbytes for task in self.tasks)


def batch_routes(worker: Worker) -> list[BaseRoute]:
    """Return the routes `/reduce` and `/read`."""

    def route(answer_job: AnswerJob, *, reducing: bool) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                who = get_client(request)
                body = await read_body(request, worker)
                kind = request.headers.get("content-type", "")

                async def begin() -> AsyncIterator[bytes]:
                    ready = await _prepare(worker, body, kind, who, reducing)
                    # Of values that are read, a block, its copy, and chunks that lie in two blocks.
                    paused_bytes = ready.cost if reducing else min(ready.cost, 4 * BLOCK_BYTES)
                    return await worker.stream(
                        ready.cost,
                        paused_bytes,
                        lambda deadline: _stream_pieces(_answer_batch(worker, ready, deadline, answer_job)),
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
        Route("/reduce", route(_reduce_items, reducing=True), methods=["POST"]),
        Route("/read", route(_read_items, reducing=False), methods=["POST"]),
    ]


async def _prepare(worker: Worker, body: bytes, kind: str, who: Credentials, reducing: bool) -> PreparedBatch:
    """Return the batch in a body, ready to run."""
    most = _max_items(worker.limits)
    items = min(len(body), most)  # at most: a byte may be an empty list
    if len(body) > SMALL_REQUEST_BYTES:  # counting is cheaper than keeping so much memory from others
        items = await worker.run(PREPARATION_BYTES, lambda deadline: count_body_items(body, kind, most))
    cost = _body_cost(body, items)

    def parse_and_prepare(deadline: Deadline) -> tuple[BatchRequest, PreparedBatch | None]:
        parsed = parse_batch(body, kind, reducing=reducing, most=most)
        # Else its tables take more memory than was admitted so far.
        is_small = _declared_cost(parsed, worker.limits) <= PREPARATION_BYTES
        return parsed, _prepare_batch(worker, parsed, who) if is_small else None

    batch, ready = await worker.run(cost, parse_and_prepare)
    if ready is None:
        more = cost + _declared_cost(batch, worker.limits)
        ready = await worker.run(more, lambda deadline: _prepare_batch(worker, batch, who))
    return ready


def _max_items(limits: Limits) -> int:
    """Return how many items the body of a request may have."""
    return min(MAX_ITEMS, limits.memory // (2 * ITEM_BYTES))


def _body_cost(body: bytes, items: int) -> int:
    """Return about how many bytes the body of a request takes once its items are decoded."""
    return PREPARATION_BYTES + len(body) + ITEM_BYTES * items


def _declared_cost(batch: BatchRequest, limits: Limits) -> int:
    """Return about how many bytes the columns of a batch take once expanded;
    an error if that is too much.
    """
    cost = ELEMENT_BYTES * batch.declared
    if cost > limits.memory // 2:
        raise RequestTooLargeError(
            f"tables and selections of {batch.declared} numbers are larger than the memory of this server allows"
        )
    return cost


def _prepare_batch(worker: Worker, batch: BatchRequest, who: Credentials) -> PreparedBatch:
    options = storage_options(worker, batch.options, who)
    whose = f"{who.digest} {sorted(batch.options.items())}"
    tasks = []
    for job in batch.jobs:
        check_deadline()
        arrays = [find_array(worker, request, options, who, whose) for request in job.arrays]
        tasks.append(prepare_job(worker.limits, job, arrays, worker.cache.max_bytes // 2))
    cache = ClientCache(worker.cache, who, batch.options) if batch.cache else None
    return PreparedBatch(tuple(tasks), options, cache)


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


def _answer_batch(worker: Worker, ready: PreparedBatch, deadline: Deadline, answer_job: AnswerJob) -> Iterator[bytes]:
    """Yield the items of all jobs, one job after the other, and the last one."""
    tally = ReadStatistics()
    try:
        with RequestSources(ready.options, deadline, worker.copies, worker.limits.fresh) as opened:
            context = ReadContext(sources=opened, tally=tally)
            for number, task in enumerate(ready.tasks):
                opened.cache = ready.cache if task.is_cached else None
                deadline.threads = task.memory.threads
                archive = next((request.url for request in task.job.arrays if request.url is not None), None)
                with report_archive_on_refusal(archive):
                    yield from answer_job(number, task, context)
        yield _final_item(tally, len(ready.tasks))
    finally:
        worker.record_reads(tally)


def _reduce_items(number: int, task: PreparedJob, context: ReadContext) -> Iterator[bytes]:
    found, warned = reduce_job(task, context)
    name = "partial" if task.job.partial else "values"
    item = {"job": number, name: {key: values_to_wire(np.asarray(v)) for key, v in found.items()}}
    yield cbor2.dumps({**item, "warnings": warned} if warned else item)


def _read_items(number: int, task: PreparedJob, context: ReadContext) -> Iterator[bytes]:
    dtype = dtype_to_wire(_to_little_endian(task.dtype))
    head = cbor2.dumps({"job": number, "dtype": dtype, "shape": list(task.shape)})
    for values in read_job(task, context):
        check_deadline()
        # Only with the first block: an error before it can still be sent as a status.
        yield head + cbor2.dumps(_block_payload(values))
        head = b""
    yield head + cbor2.dumps({"job": number, "end": True})


def _to_little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")


def _block_payload(values: npt.NDArray[Any]) -> Any:
    """Return a block as bytes in C order, little-endian; as a list if it holds objects."""
    if values.dtype.hasobject:
        return values_to_wire(values)["items"]
    return np.ascontiguousarray(values).astype(_to_little_endian(values.dtype), copy=False).tobytes()
