"""A route of the explorer's API about one archive: open it, check the ETag, compute, cancel if the client goes.

An API is a function that prepares a task: it checks the query and plans, cheaply. The task says how
much memory it holds and does the work. An answer that the client has already is not computed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from insitu import __version__
from insitu.cancellation import Deadline
from insitu.errors import InsituError, StaleSourceError
from insitu.reading import ReadContext, ReadStatistics
from insitu.server.access import get_client
from insitu.server.authentication import Credentials
from insitu.server.client_cache import ClientCache
from insitu.server.client_source_pools import RequestSources
from insitu.server.error_responses import error_response
from insitu.server.explorer.api_answer import ApiAnswer
from insitu.server.explorer.api_query import ApiQuery
from insitu.server.explorer.forecast_view import open_forecast_view, split_view
from insitu.server.explorer.opened_archives import ArchiveOpener, OpenedArchive
from insitu.server.roots import report_archive_on_refusal
from insitu.server.scanned_archives import SCAN_BYTES
from insitu.server.settings import Limits
from insitu.server.worker import Worker

__all__ = [
    "CLIENT_CLOSED",
    "ApiTask",
    "ArchiveRequest",
    "Prepare",
    "answer_response",
    "archive_route",
    "run_while_connected",
]

NOT_MODIFIED = 304
CLIENT_CLOSED = 499
"""Status in the log for a client that has gone, as web servers have it."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    """A request about an archive."""

    archive: OpenedArchive
    query: ApiQuery
    limits: Limits


@dataclass(frozen=True, slots=True)
class ApiTask:
    """What is to be done for a request."""

    work: Callable[[ReadContext], ApiAnswer]
    """Computes the answer; the context has the sources, the cache and the deadline of the request."""
    cost: int = 1 << 20
    """Bytes that it holds."""
    caches_chunks: bool = True
    """Whether the chunks that it decodes are kept for later requests."""


Prepare = Callable[[ArchiveRequest], ApiTask]
"""Checks a request and plans its task, without reading values."""


def archive_route(worker: Worker, name: str, prepare: Prepare) -> Route:
    """Return the route `/explorer/api/NAME`, whose field `url` names an archive.

    Parameters
    ----------
    worker
        The state of the worker process.
    name
        Last part of the path.
    prepare
        What is answered.
    """
    opener = ArchiveOpener(worker)

    async def compute(request: Request, client: Credentials, query: ApiQuery) -> Response:
        url = query.require("url")
        view, stored = split_view(url)
        archive = await worker.run(SCAN_BYTES, lambda deadline: opener.open(stored, client))
        if view is not None:
            archive = await worker.run(SCAN_BYTES, partial(_open_view, worker, archive, client, view))
        etag = make_etag(archive.version, name, sorted(query.items()))
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=NOT_MODIFIED, headers={"ETag": etag})
        task = await worker.run(1 << 20, lambda deadline: prepare(ArchiveRequest(archive, query, worker.limits)))
        answer = await worker.run(task.cost, lambda deadline: _run(worker, task, archive, client, deadline))
        return answer_response(answer, etag)

    async def respond(request: Request) -> Response:
        try:
            client = get_client(request)
            query = ApiQuery(request.query_params.multi_items())
            try:
                return await run_while_connected(request, compute(request, client, query))
            except StaleSourceError:
                worker.scans.forget()  # an archive changed since it was scanned here: scan it again
                return await run_while_connected(request, compute(request, client, query))
        except InsituError as error:
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED)

    return Route(f"/explorer/api/{name}", respond, methods=["GET"])


def _run(worker: Worker, task: ApiTask, archive: OpenedArchive, client: Credentials, deadline: Deadline) -> ApiAnswer:
    with _read_context(worker, archive, client, deadline, task.caches_chunks) as context:
        return task.work(context)


def _open_view(
    worker: Worker, archive: OpenedArchive, client: Credentials, view: str, deadline: Deadline
) -> OpenedArchive:
    with _read_context(worker, archive, client, deadline) as context:
        return open_forecast_view(archive, view, context)


@contextmanager
def _read_context(
    worker: Worker, archive: OpenedArchive, client: Credentials, deadline: Deadline, caches_chunks: bool = True
) -> Iterator[ReadContext]:
    """Give how a client's request reads the sources of an archive."""
    tally = ReadStatistics()
    try:
        with (
            report_archive_on_refusal(archive.url),
            RequestSources(archive.options, deadline, worker.copies, worker.limits.fresh) as opened,
        ):
            opened.cache = ClientCache(worker.cache, client, {}) if caches_chunks else None
            yield ReadContext(sources=opened, tally=tally)
    finally:
        worker.record_reads(tally)


def make_etag(*parts: object) -> str:
    """Return the ETag of an answer that depends on these parts only."""
    text = json.dumps([__version__, *parts], default=str)
    return f'"{hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]}"'


def answer_response(answer: ApiAnswer, etag: str) -> Response:
    """Return an answer as a response."""
    headers = {"ETag": etag}
    if answer.file_name is not None:
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(answer.file_name)}"
    return Response(answer.body, headers=headers, media_type=answer.media_type)


async def run_while_connected(request: Request, work: Awaitable[Result]) -> Result:
    """Return the result of some work; if the client disconnects, cancel it and raise ClientDisconnect."""
    task = asyncio.ensure_future(work)

    async def wait_for_disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watch = asyncio.ensure_future(wait_for_disconnect())
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return await task
    finally:
        task.cancel()
        watch.cancel()
