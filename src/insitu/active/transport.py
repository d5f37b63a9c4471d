"""HTTP transport of requests to a server next to the data: connection pool, retries, decoding.

A request is one POST of CBOR; the response is a sequence of CBOR items. Reductions change nothing,
so transient failures (a broken connection, a worker that dies, 429, 502, 503, 504) are retried,
after the time that the server asks for. A response counts only if its last item says that it is
complete.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from insitu import errors
from insitu.active.message_decoder import decode_json, decode_sequence, import_cbor2
from insitu.errors import InsituError, ModelError, SourceError, TimedOutError
from insitu.forking import fork_safe_lock
from insitu.sources import tracing
from insitu.sources.address import host_of
from insitu.sources.redaction import redact_url
from insitu.sources.retry_policy import RetryPolicy, TransientError, retry, retry_after

if TYPE_CHECKING:
    import urllib3

__all__ = ["ServerClient", "ServerError", "Traffic", "client_for", "encode_numpy"]

RETRIED_STATUSES = frozenset({429, 502, 503, 504})
RETRIES = RetryPolicy(connect=10.0, read=330.0, deadline=1800.0, attempts=5)
"""A server works on a request for up to five minutes before it sends the first byte."""
DOWN_SECONDS = 30.0
"""Seconds for which an unreachable server is not contacted again."""
ERRORS_BY_KIND: Mapping[str, type[InsituError]] = {
    cls.kind: cls for cls in (getattr(errors, name) for name in errors.__all__) if cls is not InsituError
}


class ServerError(InsituError, OSError):
    """The server cannot do what was asked, or cannot be reached."""

    kind = "server"


@dataclass(slots=True)
class Traffic:
    """Number of requests, and bytes sent and received."""

    requests: int = 0
    sent: int = 0
    received: int = 0


class ServerClient:
    """HTTP client of one server, with its connection pool.

    Parameters
    ----------
    url
        URL, e.g. `http://host:8080`. A token may be given as the password: `https://:token@host`.
    token
        A bearer token.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServerError(f"{redact_url(url)!r} is not the URL of a server", hint="Write http://host:port")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        where = f"{host}:{parts.port}" if parts.port else host
        self.url = f"{parts.scheme}://{where}{parts.path.rstrip('/')}"
        self.token = token or parts.password
        self.traffic = Traffic()
        self._lock = fork_safe_lock()
        self._pool: urllib3.PoolManager | None = None
        self._down = 0.0

    def ask(self, route: str, request: Mapping[str, Any], basic: tuple[str, str] | None = None) -> list[Any]:
        """Send a request and return the items of its complete response.

        Parameters
        ----------
        route
            `reduce`, `read` or `scan`.
        request
            Content of the request.
        basic
            Name and secret for the storage.
        """
        body = import_cbor2().dumps(request, default=encode_numpy)
        headers = {"Content-Type": "application/cbor", "Accept": "application/cbor-seq", "User-Agent": "insitu"}
        if self.token:
            headers["X-Insitu-Token" if basic else "Authorization"] = self.token if basic else f"Bearer {self.token}"
        if basic:
            headers["Authorization"] = "Basic " + b64encode(":".join(basic).encode()).decode()
        if time.monotonic() < self._down:
            raise ServerError(
                f"the server was unreachable less than {DOWN_SECONDS:g} s ago and is not tried again yet", url=self.url
            )
        unreached = False

        def attempt(until: float) -> list[Any]:
            nonlocal unreached
            try:
                return self._post_once(route, body, headers, until)
            except TransientError as problem:
                unreached = isinstance(problem, _UnreachableError)
                raise

        try:
            return retry(attempt, RETRIES, url=self.url, host=host_of(self.url))
        except InsituError:
            if unreached:
                self._down = time.monotonic() + DOWN_SECONDS
            raise

    def _post_once(self, route: str, body: bytes, headers: Mapping[str, str], until: float) -> list[Any]:
        import urllib3  # not at the top: most archives are read without a server
        from urllib3 import exceptions as failures

        left = max(until - time.monotonic(), 0.001)  # urllib3 takes no timeout of 0
        timeout = urllib3.Timeout(connect=min(RETRIES.connect, left), read=min(RETRIES.read, left))
        try:
            with tracing.Request(self.url) as traced:
                response = self._connections().request(
                    "POST", f"{self.url}/{route}", body=body, headers=dict(headers), retries=False, redirect=False,
                    timeout=timeout, preload_content=False,
                )  # fmt: skip
                try:
                    data = response.read()
                finally:
                    response.release_conn()
                traced.bytes = len(data)
        except failures.NewConnectionError as problem:  # a subclass of TimeoutError in urllib3
            refused = ServerError(f"cannot connect to the server: {problem}", url=self.url)
            raise _UnreachableError(refused) from None
        except failures.TimeoutError as problem:
            late = TimedOutError(f"the server did not respond in time: {problem}", url=self.url)
            is_connecting = isinstance(problem, failures.ConnectTimeoutError)
            raise (_UnreachableError if is_connecting else TransientError)(late) from None
        except failures.HTTPError as problem:
            raise TransientError(ServerError(f"the connection to the server failed: {problem}", url=self.url)) from None
        with self._lock:
            self.traffic.requests += 1
            self.traffic.sent += len(body)
            self.traffic.received += len(data)
        if response.status != 200:
            error = _error_from_response(response, data, self.url)
            if response.status in RETRIED_STATUSES:
                raise TransientError(error, retry_after(response.headers.get("Retry-After"), time.time()))
            raise error
        return self._decode_complete(data)

    def _decode_complete(self, data: bytes) -> list[Any]:
        try:
            items = decode_sequence(data)
        except ModelError as problem:
            raise TransientError(
                ServerError(f"the response of the server cannot be decoded: {problem}", url=self.url)
            ) from None
        last = items[-1] if items else None
        error = last.get("error") if isinstance(last, dict) else None
        if isinstance(error, dict):
            kind, message = str(error.get("kind")), str(error.get("message"))
            raise ERRORS_BY_KIND.get(kind, ServerError)(message, server=self.url)
        if not isinstance(last, dict) or "done" not in last:
            raise TransientError(ServerError("the response of the server is incomplete", url=self.url))
        return items

    def _connections(self) -> urllib3.PoolManager:
        import urllib3

        with self._lock:
            if self._pool is None:
                self._pool = urllib3.PoolManager(num_pools=4, maxsize=32, block=False)
            return self._pool

    def __reduce__(self) -> tuple[Any, ...]:
        return client_for, (self.url, self.token)

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"


class _UnreachableError(TransientError):
    """No connection could be made."""


_clients: dict[tuple[str, str | None], ServerClient] = {}
_guard = fork_safe_lock()


def client_for(url: str, token: str | None = None) -> ServerClient:
    """Return the client of a server: one per process, because it holds the connections."""
    with _guard:
        key = (url, token)
        if key not in _clients:
            _clients[key] = ServerClient(url, token)
        return _clients[key]


def _error_from_response(response: Any, data: bytes, url: str) -> InsituError:
    """Return the error in a response as an exception of insitu."""
    try:
        document = decode_json(data)
    except ModelError:  # a page of a proxy
        document = None
    body = document.get("error") if isinstance(document, dict) else None
    message = f"status {response.status}"
    if isinstance(body, dict) and "message" in body:
        causes = body.get("caused_by")
        message = "; ".join(map(str, [body["message"], *(causes if isinstance(causes, list) else [])]))
    kind = response.headers.get("X-Insitu-Error", "")
    found = ERRORS_BY_KIND.get(kind)
    if found is None or issubclass(found, SourceError):
        # An object that the server cannot read may be readable from here.
        return ServerError(f"the server reports: {message}", url=url, status=response.status)
    return found(message, server=url)


def encode_numpy(encoder: Any, value: Any) -> None:
    """Encode NumPy scalars and arrays in configurations of codecs."""
    if isinstance(value, np.generic):
        encoder.encode(value.item())
    elif isinstance(value, np.ndarray):
        encoder.encode(value.tolist())
    else:
        raise TypeError(f"cannot send a value of type {type(value).__name__}")
