"""The routes `/reduce` and `/read`: many reductions, or many reads, in one request.

A batch is prepared first: metadata is scanned, every source is checked against the roots, the
memory is estimated. Then it waits for admission. Then it streams a sequence of CBOR items, one or
more for each array; the last item says that the response is complete. An error after the first item
is an item too, because the status has been sent by then.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import cbor2
import numpy as np
import numpy.typing as npt
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from insitu.active.wire import dtype_to_wire, values_to_wire
from insitu.cancellation import Deadline, check_deadline
from insitu.errors import InsituError, StaleSourceError
from insitu.model import Selection, VirtualArray
from insitu.model.selection import Stride
from insitu.reading import ChunkCache, ReadContext, ReadStatistics, execute, plan_read
from insitu.reducing import Reduction
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce import axes_of_dims, compute_statistics, normalise_axes
from insitu.reducing.stream import fold_chunks
from insitu.reducing.weighted_and_grouped import grouped_statistics, weighted_statistics
from insitu.server.authentication import Credentials, authenticate
from insitu.server.client_cache import ClientCache, can_be_cached
from insitu.server.client_source_pools import RequestSources
from insitu.server.declared_cost import (
    BLOCK_BYTES,
    PREPARATION_BYTES,
    SMALL_BODY_BYTES,
    block_bytes,
    body_cost,
    declared_cost,
    job_cost,
)
from insitu.server.error_responses import error_response, public_message
from insitu.server.jobs import BatchJob, BatchRequest, parse_batch
from insitu.server.request_body import read_body
from insitu.server.roots import refers_outside_error
from insitu.server.worker import Worker
from insitu.sources.access_policy import RefusedError
from insitu.sources.address import scheme_of
from insitu.sources.http.login import basic_auth_header

__all__ = ["add_login", "batch_routes", "storage_options"]

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
    cost: int
    kept: bool
    """Whether its decoded chunks go through the cache."""


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
        return max(task.cost for task in self.tasks)


def batch_routes(worker: Worker) -> list[BaseRoute]:
    """Return the routes `/reduce` and `/read`."""

    def route(reducing: bool, produce: Produce) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                who = authenticate(request.headers, worker.tokens.current())
                body = await read_body(request, worker)
                kind = request.headers.get("content-type", "")

                cost = await _body_cost(worker, body, kind)

                async def begin() -> AsyncIterator[bytes]:
                    batch, ready = await worker.run(
                        cost,
                        lambda deadline: _prepare_if_small(
                            worker, parse_batch(body, kind, reducing=reducing), who, reducing
                        ),
                    )
                    if ready is None:  # its tables take more memory than was admitted so far
                        more = cost + declared_cost(batch, worker.limits)
                        ready = await worker.run(more, lambda deadline: _prepare_batch(worker, batch, who, reducing))
                    return await worker.stream(ready.cost, lambda deadline: _stream_pieces(produce(ready, deadline)))

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


async def _body_cost(worker: Worker, body: bytes, kind: str) -> int:
    """Return the memory that a body takes once decoded; a large body is examined on a thread."""
    if len(body) <= SMALL_BODY_BYTES:
        return body_cost(body, kind, worker.limits)
    return await worker.run(PREPARATION_BYTES, lambda deadline: body_cost(body, kind, worker.limits))


def storage_options(worker: Worker, batch: BatchRequest, who: Credentials) -> dict[str, Any]:
    """Return how to open sources:
    the server's own options by URL prefix, else the client's credentials, else anonymously.
    """
    options: dict[str, Any] = {**worker.settings.storage_options, **batch.options}
    if who.name is not None:
        options |= {"key": who.name, "secret": who.secret}
        options.pop("anon", None)
    else:
        options["anon"] = True
    return options


def add_login(options: dict[str, Any], url: str, who: Credentials) -> None:
    """Add the client's credentials for the web server in its own URL.

    A server that only the references of an archive name does not get them.
    """
    if who.name is not None and scheme_of(url) in ("http", "https"):
        parts = urlsplit(url)
        login = {"headers": {"Authorization": basic_auth_header(who.name, who.secret or "")}}
        options.setdefault(f"{parts.scheme}://{parts.netloc}/", login)


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
    tasks = []
    for job in batch.jobs:
        check_deadline()
        if job.table is None:
            assert job.url is not None
            assert job.variable is not None
            worker.roots.check(job.url, options)
            add_login(options, job.url, who)
            place, whose = worker.roots.local_copy(job.url), f"{who.digest} {sorted(batch.options.items())}"
            array = worker.scans.array(place, job.variable, decoded=job.decode, options=options, who=whose)
        else:
            array = job.array()
            for source in (source for tile in array.tiles for source in _listed_sources(tile.chunks.sources)):
                add_login(options, source.url, who)
        for url in {source.url for tile in array.tiles for source in _listed_sources(tile.chunks.sources)}:
            with _report_archive_on_refusal(job):
                worker.roots.check(url, options)
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
    return PreparedBatch(tuple(tasks), options, ClientCache(worker.cache, who, batch.options) if batch.cache else None)


@contextmanager
def _report_archive_on_refusal(job: BatchJob) -> Iterator[None]:
    """Turn a refused source into an error that names the client's archive,
    not what the archive refers to.
    """
    try:
        yield
    except RefusedError:
        if job.url is None:
            raise
        raise refers_outside_error(job.url) from None


def _listed_sources(sources: Any) -> Any:
    """Return the sources that can be listed.

    Those of Zarr keys are computed; they are checked when they are opened.
    """
    return sources if isinstance(sources, (tuple, list)) else ()


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
        with RequestSources(ready.options, deadline, worker.roots.local_copy, worker.limits.fresh) as opened:
            for number, task in enumerate(ready.tasks):
                opened.cache = ready.cache if task.kept else None
                with _report_archive_on_refusal(task.job):
                    found = _reduce_job(worker, task, opened, tally)
                name = "partial" if task.job.partial else "values"
                yield cbor2.dumps(
                    {"job": number, name: {key: values_to_wire(np.asarray(v)) for key, v in found.items()}}
                )
        yield _final_item(tally, len(ready.tasks))
    finally:
        worker.record_reads(tally)


def _reduce_job(
    worker: Worker, task: PreparedJob, opened: RequestSources, tally: ReadStatistics
) -> dict[str, npt.NDArray[Any]]:
    job, array = task.job, task.array
    query = ReductionQuery(job.methods, job.axes, task.selection, job.rules, job.keepdims)
    context = ReadContext(job.variable, sources=opened, tally=tally, block_bytes=block_bytes(worker.limits))
    if job.weights is not None:
        return weighted_statistics(array, job.weights, query, context)
    if job.groups is not None:
        return grouped_statistics(array, job.groups, query, context)
    if job.partial:
        along = normalise_axes(job.axes, len(task.selection.result_shape))
        reduction = Reduction(job.methods, array.dtype, job.rules)
        return dict(fold_chunks(array, task.selection, along, reduction, context))
    return compute_statistics(array, query, context)


def _read_batch(worker: Worker, ready: PreparedBatch, deadline: Deadline) -> Iterator[bytes]:
    tally = ReadStatistics()
    try:
        with RequestSources(ready.options, deadline, worker.roots.local_copy, worker.limits.fresh) as opened:
            for number, task in enumerate(ready.tasks):
                opened.cache = ready.cache if task.kept else None
                shape = list(task.selection.result_shape)
                head = cbor2.dumps(
                    {"job": number, "dtype": dtype_to_wire(_to_little_endian(task.array.dtype)), "shape": shape}
                )
                with _report_archive_on_refusal(task.job):
                    for values in _read_blocks(task, opened, tally):
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
            outer = _slice_axis(outer, leading, at, at + 1)
        for begin in range(0, length, step):
            yield _slice_axis(outer, number, begin, min(begin + step, length))


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


def _slice_axis(selection: Selection, number: int, begin: int, end: int) -> Selection:
    chosen = selection.selectors[number]
    if isinstance(chosen, Stride):
        part: Any = Stride(chosen.start + chosen.step * begin, chosen.step, end - begin)
    else:
        assert isinstance(chosen, np.ndarray)
        part = chosen[begin:end]
    return Selection(selection.shape, (*selection.selectors[:number], part, *selection.selectors[number + 1 :]))
