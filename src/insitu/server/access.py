"""Who may ask: one middleware lets requests in by their tokens, and counts them by the quotas.

Every path needs a client, but those that are listed as public: a route that nobody thought of is closed. A request
that is let in carries its client in the ASGI scope, where `get_client` finds it; without the middleware there is none,
and the route fails.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from insitu.server.authentication import Credentials, TokenError, Tokens, identify
from insitu.server.error_responses import error_response
from insitu.server.quotas import QuotaError, Quotas, RequestUsage
from insitu.server.request_context import current_request

__all__ = ["AccessMiddleware", "find_client", "get_client"]

serve_log = logging.getLogger("insitu.serve")
PUBLIC = frozenset(
    {"/", "/health", "/ready", "/openapi.json", "/.well-known/reductionist-schema", "/explorer/api/server"}
)
"""Paths that everybody may ask for: they say nothing about archives, clients or roots."""
PUBLIC_FOLDER = "/explorer/page/"
"""The files of the explorer's page."""
PREFLIGHT_FOLDERS = ("/zarr/", "/zarr2/")
"""Where a browser may ask, without a token, what another website may send."""
UNCOUNTED = frozenset({"/metrics"})
"""Paths that need a client and cost next to nothing."""
REFUSALS = frozenset({"request", "slow", "too-large", "busy", "stopping", "refused", "token", "quota"})
"""Kinds of errors of requests that did not run: they are not counted."""
CLIENT = "insitu.client"
"""Key in the ASGI scope of the credentials that the client has for the storage."""


def get_client(request: HTTPConnection) -> Credentials:
    """Return the credentials for the storage of the client that was let in."""
    found: Credentials = request.scope[CLIENT]
    return found


def find_client(request: HTTPConnection) -> Credentials | None:
    """Return the credentials of the client that asks for something public; None if it would not be let in elsewhere."""
    found: Credentials | None = request.scope.get(CLIENT)
    return found


class GivesAccess(Protocol):
    """A worker: its quotas (None: it has none) and tokens, which change when its options are read again."""

    quotas: Quotas | None
    tokens: Tokens


class AccessMiddleware:
    """Middleware that refuses requests without a valid token and beyond a quota, and counts the others.

    Parameters
    ----------
    app
        The application.
    worker
        Whose tokens and quotas hold.
    """

    def __init__(self, app: ASGIApp, worker: GivesAccess) -> None:
        self.app, self.worker = app, worker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        public, token = _is_public(scope["method"], scope["path"]), None
        try:
            token, who = identify(Headers(scope=scope), self.worker.tokens.current())
            scope = {**scope, CLIENT: who}
        except TokenError as error:
            if not public:
                await error_response(error)(scope, receive, send)
                return
        quotas = self.worker.quotas
        if public or quotas is None or scope["path"] in UNCOUNTED or (key := quotas.find_key(token)) is None:
            await self.app(scope, receive, send)
        else:
            await self._serve_counted(quotas, key, scope, receive, send)

    async def _serve_counted(self, quotas: Quotas, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request within the quota of its client."""
        try:
            shown = quotas.begin(key)
        except QuotaError as error:
            await error_response(error)(scope, receive, send)
            return
        except sqlite3.Error as problem:  # a full disk: rather serve without counting than nobody
            serve_log.error("quotas cannot be counted: %s", problem)
            await self.app(scope, receive, send)
            return
        usage, sent, refused = RequestUsage(quotas, key), 0, False
        request = current_request.get()
        if request is not None:
            request.usage = usage

        async def count_and_send(message: Message) -> None:
            nonlocal sent, refused
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                kind = headers.get("x-insitu-error")
                refused = message["status"] >= 400 and (kind is None or kind in REFUSALS)
                headers.update(shown)
            elif message["type"] == "http.response.body":
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, count_and_send)
        finally:
            usage.finish(sent, refused)


def _is_public(method: str, path: str) -> bool:
    if path in PUBLIC or path.startswith(PUBLIC_FOLDER):
        return True
    return method == "OPTIONS" and path.startswith(PREFLIGHT_FOLDERS)
