"""The ASGI application: routes of all capabilities, with logging and counting of responses.

The routes of larger capabilities have modules of their own; `/scan` and the state of the server are
answered here.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib import resources

import cbor2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from insitu import __version__
from insitu.active.wire_group import group_to_wire
from insitu.archive import Archive
from insitu.codecs.libraries import isolation
from insitu.errors import InsituError
from insitu.scanning.scan_cache import settings as scan_settings
from insitu.server.authentication import Credentials, TokenError, authenticate
from insitu.server.batch import answer_sibling, batch_routes
from insitu.server.error_responses import RequestError, RequestTooLargeError, error_response, json_error_response
from insitu.server.explorer.api_routes import explorer_routes, open_first_archive
from insitu.server.explorer.guarded_app import GuardedApp
from insitu.server.jobs import BatchRequest, parse_scan_request
from insitu.server.reductionist.routes import reductionist_routes
from insitu.server.request_body import read_body
from insitu.server.requested_arrays import add_login, storage_options
from insitu.server.settings import Settings
from insitu.server.worker import Worker
from insitu.server.zarr_view import zarr_routes
from insitu.sources.access_policy import set_access_policy

__all__ = ["ROUTE_FACTORIES", "create_app", "from_environment", "openapi_document"]

access_log = logging.getLogger("insitu.access")
error_log = logging.getLogger("insitu.serve")
MAX_SCAN_REQUEST_BYTES = 1 << 20
"""Largest body of a request for metadata."""
SCAN_BYTES = 32 << 20
"""Bytes that are counted for a scan: metadata of one archive."""


def scan_routes(worker: Worker) -> list[BaseRoute]:
    """Return the route `/scan`: the metadata of an archive, with the location of every chunk."""

    async def answer(request: Request) -> Response:
        try:
            who = authenticate(request.headers, worker.tokens.current())
            body = await read_body(request, worker)
            kind = request.headers.get("content-type", "")
            if len(body) > MAX_SCAN_REQUEST_BYTES:
                raise RequestTooLargeError(
                    f"a request for metadata must not be larger than {MAX_SCAN_REQUEST_BYTES} bytes: send a URL "
                    "and options only"
                )
            data = await worker.run(SCAN_BYTES, lambda deadline: _scan_to_wire(worker, body, kind, who))
        except InsituError as error:
            return error_response(error)
        return Response(data, media_type="application/cbor-seq")

    return [Route("/scan", answer, methods=["POST"])]


def _scan_to_wire(worker: Worker, body: bytes, kind: str, who: Credentials) -> bytes:
    url, group, options = parse_scan_request(body, kind)
    chosen = storage_options(worker, BatchRequest((), options), who)
    worker.roots.check(url, chosen)
    add_login(chosen, url, who)
    place = worker.roots.local_copy(url)

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

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if not settings.archives:
            set_access_policy(state.roots)
            scan_settings.enabled = False  # archives are cached by client, in memory
        isolation.allows_in_process = False
        first = asyncio.ensure_future(open_first_archive(state))
        await state.siblings.listen(partial(answer_sibling, state))
        try:
            yield
        finally:
            first.cancel()
            state.close()
            set_access_policy(None)
            isolation.allows_in_process = True
            scan_settings.enabled = True

    factories = EXPLORE_FACTORIES if settings.archives else ROUTE_FACTORIES
    routes = [*_status_routes(state), *(route for make in factories for route in make(state))]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error_response, Exception: _internal_error_response},
    )
    app.router.redirect_slashes = False
    return RequestLogMiddleware(GuardedApp(app, loopback_only=bool(settings.archives)), state)


def from_environment() -> ASGIApp:
    """Return the application of a worker process, with the settings in its environment."""
    return create_app(Settings.from_environment())


def _status_routes(worker: Worker) -> list[BaseRoute]:
    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        full = worker.admission.waiting >= worker.limits.queue
        status = {"ready": not (worker.closing or full), "waiting": worker.admission.waiting}
        return JSONResponse(status, 200 if status["ready"] else 503)

    async def metrics(request: Request) -> Response:
        try:
            authenticate(request.headers, worker.tokens.current())
        except TokenError as error:
            return error_response(error)
        worker.update_gauges()
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
    """Return `openapi.json`, which describes all routes, with the version of insitu filled in."""
    document = json.loads(resources.files(__package__).joinpath("openapi.json").read_bytes())
    document["info"]["version"] = __version__
    return json.dumps(document).encode()


async def _http_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_error_response(error.status_code, str(error.detail), headers=dict(error.headers or {}))


async def _internal_error_response(request: Request, error: Exception) -> Response:
    return json_error_response(500, "internal server error: the log of the server says more")


class RequestLogMiddleware:
    """Middleware that times, counts and logs every request, without its headers and its query.

    An unexpected exception is logged and becomes a plain 500.
    """

    def __init__(self, app: ASGIApp, worker: Worker) -> None:
        self.app, self.worker = app, worker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = _normalise_path(scope["path"])
        scope = {**scope, "path": path, "raw_path": path.encode("utf-8", "replace")}
        began, status, sent = time.perf_counter(), 0, 0

        async def count_and_send(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, count_and_send)
        except Exception:
            error_log.exception("unexpected exception in %s %s", scope["method"], path)
            if status != 500:
                raise  # the response has begun: end the connection, so that the client sees that it is incomplete
        finally:
            seconds = time.perf_counter() - began
            self.worker.metrics.record_response(_route_label(path), status, seconds, sent)
            self.worker.update_gauges()  # the request for /metrics may go to another worker
            client = (scope.get("client") or ("-",))[0]
            shown = "".join(letter if letter.isprintable() else "?" for letter in path[:200])
            access_log.info("%s %s %s %d %d bytes %.4f s", client, scope["method"], shown, status, sent, seconds)


def _normalise_path(path: str) -> str:
    """Return a path with one leading slash and no trailing one: clients join URLs by hand."""
    rest = path.lstrip("/")
    return "/" + (rest if rest.startswith("zarr") else rest.rstrip("/"))


def _route_label(path: str) -> str:
    parts = path.strip("/").split("/")
    if parts[0] == "keepdims":
        parts = parts[1:]
    name = "/".join(parts[:2]) if parts and parts[0] == "v2" else (parts[0] if parts else "")
    name = name or "explorer"  # the page itself
    return "openapi" if name == "openapi.json" else name
