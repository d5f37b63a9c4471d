"""Headers that protect the explorer's page in a browser and share the Zarr view, and the checks that a request means
this server and has no larger head than is allowed.

A page of another website can send requests to a server on the same machine, and by DNS rebinding even
read the answers: its own name then leads to 127.0.0.1. The name is in the header `Host`, so a server
that is for the browser of its own machine only accepts the names of that machine.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from insitu.server.error_responses import json_error_response
from insitu.server.request_context import HEAD_BYTES

__all__ = ["SECURITY_HEADERS", "GuardedApp"]

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""Headers of the page and of everything under `/explorer`."""
NOTEBOOK_FRAMES = "frame-ancestors http://localhost:* http://127.0.0.1:* https: vscode-webview: vscode-file:"
"""Who may show the page of a notebook's server in a frame. Without the token, which the notebook gives to its own frame
only, a frame shows nothing but the question for it.
"""
SHARED_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Content-Range, Content-Length, ETag",
}
"""Headers of everything under `/zarr`: any website may read what the server gives to everybody; tokens travel in
headers that other sites do not know.
"""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
MISDIRECTED = 421


class GuardedApp:
    """Middleware that adds security headers to the explorer's answers, and refuses what no route should see.

    Parameters
    ----------
    app
        The application.
    loopback_only
        Whether requests to other names than those of this machine are refused.
    shares_zarr
        Whether any website may read the Zarr view; by default unless requests are for this machine only.
    in_notebook
        Whether pages of notebooks may show the page in a frame.
    """

    def __init__(
        self, app: ASGIApp, *, loopback_only: bool, shares_zarr: bool | None = None, in_notebook: bool = False
    ) -> None:
        self.app, self.loopback_only = app, loopback_only
        self.shares_zarr = not loopback_only if shares_zarr is None else shares_zarr
        self.headers = SECURITY_HEADERS
        if in_notebook:
            policy = SECURITY_HEADERS["Content-Security-Policy"].replace("frame-ancestors 'none'", NOTEBOOK_FRAMES)
            self.headers = {**SECURITY_HEADERS, "Content-Security-Policy": policy}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if _head_bytes(scope) > HEAD_BYTES:
            refusal = json_error_response(
                431, f"the head of the request is larger than {HEAD_BYTES} bytes", headers={"Connection": "close"}
            )
            await refusal(scope, receive, send)
            return
        if self.loopback_only and not is_loopback_name(Headers(scope=scope).get("host", "")):
            refusal = json_error_response(
                MISDIRECTED, "this server is for the browser of its own machine: open it as http://127.0.0.1"
            )
            await refusal(scope, receive, send)
            return
        path = scope["path"]
        explorer = path == "/" or path.startswith("/explorer")
        # What `insitu explore` shows is for its user only.
        shared = path.startswith("/zarr") and self.shares_zarr

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start" and (explorer or shared):
                headers = MutableHeaders(scope=message)
                headers.update(self.headers if explorer else SHARED_HEADERS)
                if explorer:
                    headers.setdefault("Cache-Control", "private, no-cache")
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _head_bytes(scope: Scope) -> int:
    fields = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return fields + len(scope.get("raw_path") or b"") + len(scope["query_string"])


def is_loopback_name(host: str) -> bool:
    """Return whether a Host header names this machine.

    Examples
    --------
    >>> is_loopback_name("localhost:8080"), is_loopback_name("[::1]:80"), is_loopback_name("localhost.evil.org")
    (True, True, False)
    """
    name, _, port = host.lower().rpartition(":") if not host.endswith("]") else (host.lower(), "", "")
    if not name:
        name, port = port, ""
    return name in LOOPBACK_NAMES and (not port or port.isdecimal())
