"""The ASGI application: routes of all capabilities.

The routes of larger capabilities have modules of their own; `/scan` and the state of the server are
answered here.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib import resources

import cbor2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from insitu import __version__
from insitu.active.wire_group import group_to_wire
from insitu.archive import Archive
from insitu.codecs.libraries import isolation
from insitu.errors import InsituError
from insitu.process_options import options
from insitu.reducing.statistics import STATISTICS
from insitu.server.access import AccessMiddleware, get_client
from insitu.server.authentication import Credentials
from insitu.server.batch import batch_routes
from insitu.server.error_responses import RequestError, error_response, json_error_response
from insitu.server.explorer.api_routes import explorer_routes, open_first_archive
from insitu.server.explorer.guarded_app import GuardedApp
from insitu.server.jobs import parse_scan_request
from insitu.server.process_end import end_with_parent
from insitu.server.reductionist.routes import reductionist_routes
from insitu.server.reloading import follow_reloads
from insitu.server.request_body import SMALL_REQUEST_BYTES, read_body
from insitu.server.request_log import RequestLogMiddleware
from insitu.server.request_spans import open_spans
from insitu.server.requested_arrays import archive_options
from insitu.server.scanned_archives import SCAN_BYTES
from insitu.server.settings import Settings
from insitu.server.worker import CANCEL_SECONDS, Worker
from insitu.server.zarr_view import zarr_routes
from insitu.sources.access_policy import set_access_policy

__all__ = ["ROUTE_FACTORIES", "create_app", "from_environment", "openapi_document"]

STUCK_SECONDS = 5.0
"""Seconds without room, in which no request ends, after which a worker says that it is not ready."""
GAUGE_SECONDS = 5.0
"""Seconds after which the gauges of a worker are set again."""
SWITCH_SECONDS = 0.001
"""Seconds after which a thread that computes in Python lets another one go on, if one waits (Python's own: 0.005).

The event loop waits so long several times for each request while a thread decodes a large message.
"""


def scan_routes(worker: Worker) -> list[BaseRoute]:
    """Return the route `/scan`: the metadata of an archive, with the location of every chunk."""

    async def answer(request: Request) -> Response:
        try:
            who = get_client(request)
            body = await read_body(request, worker, SMALL_REQUEST_BYTES)
            kind = request.headers.get("content-type", "")
            data = await worker.run(SCAN_BYTES, lambda deadline: _scan_to_wire(worker, body, kind, who))
        except InsituError as error:
            return error_response(error)
        return Response(data, media_type="application/cbor-seq")

    return [Route("/scan", answer, methods=["POST"])]


def _scan_to_wire(worker: Worker, body: bytes, kind: str, who: Credentials) -> bytes:
    url, group, options = parse_scan_request(body, kind)
    chosen = archive_options(worker, url, who, options)
    place = worker.copies.checked_path(url, chosen)

    def make() -> bytes:
        found = Archive.open(place, many=False, group=group, errors="warn", storage_options=chosen).tree
        return cbor2.dumps({"group": group_to_wire(found, worker.roots.public_url)}) + cbor2.dumps({"done": 1})

    data: bytes = worker.scans.get((who.digest, sorted(options.items()), url, group), place, make)
    if len(data) > worker.limits.memory // 4:
        raise RequestError("the metadata of this archive is larger than the memory of the server allows: name a group")
    return data


ROUTE_FACTORIES: list[Callable[[Worker], Sequence[BaseRoute]]] = [
    reductionist_routes,
    batch_routes,
    scan_routes,
    zarr_routes,
    explorer_routes,
]
"""Functions that make the routes of one capability each; append to add a capability."""
EXPLORE_FACTORIES = [zarr_routes, explorer_routes]
"""Those of `insitu explore`. It opens whatever an archive refers to, so it takes no arrays from clients."""


def create_app(settings: Settings, worker: Worker | None = None) -> ASGIApp:
    """Return the server as an ASGI application. Once started, this process reads from the roots
    only.

    Parameters
    ----------
    settings
        Roots, tokens and limits.
    worker
        The state of the worker process; a new one if not given.
    """
    state = worker if worker is not None else Worker(settings)
    spans = open_spans()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if not settings.archives:
            set_access_policy(state.roots)
            options.scan_cache = False  # archives are cached by client, in memory
        isolation.allows_in_process = False
        if state.owns_process:
            follow_reloads(state)
        first = asyncio.ensure_future(open_first_archive(state))
        watch = asyncio.ensure_future(state.replies.run())
        gauges = asyncio.ensure_future(_refresh_gauges(state))
        try:
            yield
        finally:
            first.cancel()
            watch.cancel()
            gauges.cancel()
            await state.finish_requests()
            state.close()
            if spans is not None:
                spans.close()
            set_access_policy(None)
            isolation.allows_in_process = True
            options.scan_cache = True

    factories = EXPLORE_FACTORIES if settings.archives else ROUTE_FACTORIES
    routes = [*_status_routes(state), *(route for make in factories for route in make(state))]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error_response, Exception: _internal_error_response},
    )
    app.router.redirect_slashes = False
    in_notebook = settings.in_notebook and bool(settings.tokens)
    guarded = GuardedApp(
        AccessMiddleware(app, state),
        loopback_only=bool(settings.archives) and not in_notebook,
        shares_zarr=not settings.archives,
        in_notebook=in_notebook,
    )
    return RequestLogMiddleware(guarded, state, spans)


async def _refresh_gauges(worker: Worker) -> None:
    """Set the gauges again and again: whichever worker is asked for metrics reads those of all."""
    while True:
        worker.update_gauges()
        worker.metrics.set_process_gauges()
        await asyncio.sleep(GAUGE_SECONDS)


def from_environment() -> ASGIApp:
    """Return the application of a worker process, with the settings in its environment."""
    settings = Settings.from_environment()
    logging.captureWarnings(True)
    end_with_parent(settings.grace + 2 * CANCEL_SECONDS)
    worker = Worker(settings)
    worker.owns_process = True
    sys.setswitchinterval(SWITCH_SECONDS)
    return create_app(settings, worker)


def _status_routes(worker: Worker) -> list[BaseRoute]:
    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        full = worker.admission.waiting >= worker.limits.queue or worker.admission.stuck_seconds > STUCK_SECONDS
        status = {"ready": not (worker.closing or full), "waiting": worker.admission.waiting}
        return JSONResponse(status, 200 if status["ready"] else 503)

    async def metrics(request: Request) -> Response:
        worker.update_gauges()
        worker.metrics.set_process_gauges()
        return Response(worker.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(request: Request) -> Response:
        return Response(openapi_document(), media_type="application/json")

    return [
        Route("/health", health),
        Route("/ready", ready),
        Route("/metrics", metrics),
        Route("/openapi.json", openapi),
        Route("/.well-known/reductionist-schema", openapi),
    ]


@cache
def openapi_document() -> bytes:
    """Return `openapi.json`, which describes all routes, with the version of insitu and the names of statistics."""
    document = json.loads(resources.files(__package__).joinpath("openapi.json").read_bytes())
    document["info"]["version"] = __version__
    job = document["components"]["schemas"]["ReduceJob"]["properties"]
    job["methods"]["items"]["enum"] = list(STATISTICS)
    return json.dumps(document).encode()


async def _http_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_error_response(error.status_code, str(error.detail), headers=dict(error.headers or {}))


async def _internal_error_response(request: Request, error: Exception) -> Response:
    return json_error_response(500, "internal server error: the log of the server says more")
