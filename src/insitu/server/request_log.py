"""Middleware that gives every request its id, and times, counts, logs and traces it.

Headers and queries are not logged: they may hold secrets.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import ExitStack
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from insitu.server.error_responses import StoppingError, error_response
from insitu.server.request_context import STOPPING, TRANSPORT, RequestFacts, current_request, request_id
from insitu.server.request_spans import RequestSpans
from insitu.server.worker import Worker

__all__ = ["RequestLogMiddleware"]

access_log = logging.getLogger("insitu.access")
serve_log = logging.getLogger("insitu.serve")


class RequestLogMiddleware:
    """Middleware around the whole application.

    An unexpected exception is logged and becomes a plain 500. A request that is cancelled because the
    server stops is answered by 503; if its response has begun, the connection is closed in the middle
    of it, so that the client sees that it is incomplete.
    """

    def __init__(self, app: ASGIApp, worker: Worker, spans: RequestSpans | None) -> None:
        self.app, self.worker, self.spans = app, worker, spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given, path = scope, _normalise_path(scope["path"])
        scope = {**scope, "path": path, "raw_path": path.encode("utf-8", "replace")}
        headers, route, method = Headers(scope=scope), _route_label(path), scope["method"]
        reply = self.worker.replies.add(scope.get(TRANSPORT))
        request = RequestFacts(request_id(headers.get("x-request-id")), reply=reply)
        client = (scope.get("client") or ("-",))[0]
        began, status, sent = time.perf_counter(), 0, 0

        async def count_and_send(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                added = (b"x-request-id", request.id.encode())
                message = {**message, "headers": [*message.get("headers", ()), added]}
            elif message["type"] == "http.response.body":
                sent += len(message.get("body", b""))
            await send(message)
            self.worker.replies.record(reply, len(message.get("body", b"")))

        with ExitStack() as stack:
            stack.callback(current_request.reset, current_request.set(request))
            span: Any = None
            if self.spans is not None:
                about = {"http.request.method": method, "http.route": route, "client.address": client}
                span = stack.enter_context(self.spans.request(f"{method} {route}", headers, about))
            self.worker.open_requests += 1
            try:
                await self.app(scope, receive, count_and_send)
            except asyncio.CancelledError:
                # A request may have come after those that were told: our own process cancels only when it stops.
                if not (given.get(STOPPING) or self.worker.owns_process):
                    raise
                await self._answer_cancelled(scope, receive, count_and_send, begun=status != 0)
            except Exception:
                serve_log.exception("unexpected exception in %s %s", method, path)
                if status != 500:
                    raise  # the response has begun: end the connection, so that the client sees it
            finally:
                self.worker.open_requests -= 1
                reply.is_complete = True
                seconds = time.perf_counter() - began
                self.worker.metrics.record_response(route, status, seconds, sent)
                self.worker.update_gauges()  # the request for /metrics may go to another worker
                shown = "".join(letter if letter.isprintable() else "?" for letter in path[:200])
                facts = {
                    "client": client,
                    "method": method,
                    "route": route,
                    "path": shown,
                    "archive": request.archive,
                    "status": status,
                    "bytes": sent,
                    "milliseconds": round(seconds * 1000, 3),
                }
                access_log.info(
                    *("%s %s %s %d %d bytes %.4f s", client, method, shown, status, sent, seconds),
                    extra={"facts": facts},
                )
                if self.spans is not None:
                    outcome = {
                        "http.response.status_code": status,
                        "http.response.body.size": sent,
                        "insitu.archive": request.archive,
                        "insitu.request_id": request.id,
                    }
                    self.spans.end(span, status, outcome)

    async def _answer_cancelled(self, scope: Scope, receive: Receive, send: Send, *, begun: bool) -> None:
        """Tell the client that the server stops, if its response has not begun."""
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        if begun:
            serve_log.warning("the server stops: a response is cut off")
            return
        await error_response(StoppingError())(scope, receive, send)


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
