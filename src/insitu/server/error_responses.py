"""Errors as HTTP responses: one table from the kind of an error to a status, and one form of body.

The body is `{"error": {"message": …, "caused_by": […]}}`, as in Reductionist. It contains no
secrets: URLs are redacted, and paths are shown only if they lie under the roots.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from starlette.responses import Response

from insitu.errors import InsituError, SourceError
from insitu.server.roots import local_path
from insitu.sources.access_policy import public_path, without_outside_paths
from insitu.sources.redaction import redact_text

__all__ = [
    "STATUS_BY_KIND",
    "BusyError",
    "RequestError",
    "RequestTooLargeError",
    "SlowError",
    "StoppingError",
    "UnavailableError",
    "error_response",
    "json_error_response",
    "public_message",
]


MAX_MESSAGE_CHARS = 4000
"""Longest message that is sent."""
MAX_CAUSE_CHARS = 500
"""Longest cause that is sent."""
RESTART_SECONDS = 5
"""Seconds after which a client should try again when the server stops."""


class RequestError(InsituError, ValueError):
    """The request does not follow the protocol; `why` is sent as the cause."""

    kind = "request"

    def __init__(self, message: str, *, why: str | None = None) -> None:
        super().__init__(message)
        self.why = why


class RequestTooLargeError(InsituError, ValueError):
    """The request needs more memory or space than the limits of the server allow."""

    kind = "too-large"


class SlowError(InsituError):
    """The client sent its request too slowly."""

    kind = "slow"


class BusyError(InsituError):
    """The server has no room for the request now;
    `retry_after` says in how many seconds to try again.
    """

    kind = "busy"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoppingError(BusyError):
    """The server stops before the request is done; another server, or this one after its restart, can do it."""

    kind = "stopping"

    def __init__(self) -> None:
        super().__init__("the server is stopping: send the request again", RESTART_SECONDS)


class UnavailableError(BusyError):
    """Something that the request needs is just being replaced, after a worker was killed say."""

    kind = "unavailable"

    def __init__(self, message: str) -> None:
        super().__init__(message, 1)


STATUS_BY_KIND = {
    "request": 400,
    "slow": 408,
    "too-large": 413,
    "busy": 429,
    "quota": 429,
    "stopping": 503,
    "unavailable": 503,
    "refused": 403,
    "token": 401,
    "not-found": 404,
    "access": 401,
    "variable": 404,
    "group": 404,
    "selection": 400,
    "selection-size": 413,
    "model": 400,
    "combine": 400,
    "codec": 422,
    "unknown-codec": 422,
    "checksum": 422,
    "format": 422,
    "unsupported": 422,
    "truncated": 422,
    "stale": 409,
    "timeout": 504,
    "late": 503,
    "source": 502,
    "error": 500,
}
"""HTTP status by the kind of an error, for insitu's own routes; the Reductionist routes have fewer.
"""


def public_message(error: BaseException) -> str:
    """Return the text of an error for a client: without secrets and without paths outside the
    roots.

    The name of an object is left out as a whole if it is such a path. Messages about storage, and
    those of other libraries, are searched for paths too. Other messages of insitu name variables
    and groups, which look like paths, and are not searched.
    """
    # Cut first: an error may quote a request of many megabytes,
    # and searching those for secrets takes seconds.
    if not isinstance(error, InsituError):
        return without_outside_paths(redact_text(str(error)[:MAX_MESSAGE_CHARS]))
    place = {name: shown for name, value in error.place.items() if (shown := _shown_place(value)) is not None}
    message, hint = error.message[:MAX_MESSAGE_CHARS], error.hint
    if error.kind == "access":
        hint = hint or "Send the credentials of the storage as Basic credentials, or ask the operator of the server"
    if isinstance(error, SourceError):
        message, hint = without_outside_paths(message), hint and without_outside_paths(hint)
    return redact_text(str(InsituError(message, hint=hint, **place)))


def _shown_place(value: object) -> object:
    """Return what an error says about its place, for a client; None: nothing."""
    path = local_path(value) if isinstance(value, str) else None
    return value if path is None or not os.path.isabs(path) else public_path(path)


def error_response(error: InsituError, status: int | None = None) -> Response:
    """Return an error of insitu as a response."""
    causes: list[str] = [error.why[:MAX_CAUSE_CHARS]] if isinstance(error, RequestError) and error.why else []
    cause = error.__cause__
    while cause is not None and len(causes) < 4:
        causes.append(public_message(cause)[:MAX_CAUSE_CHARS])
        cause = cause.__cause__
    headers = {}
    if isinstance(error, BusyError):
        headers["Retry-After"] = str(error.retry_after)
    code = status if status is not None else STATUS_BY_KIND.get(error.kind, 500)
    if isinstance(error, (BusyError, SlowError, RequestTooLargeError)):
        headers["Connection"] = "close"  # the rest of the request is not read
    if code == 401:
        headers["WWW-Authenticate"] = "Basic, Bearer"
    return json_error_response(code, public_message(error), causes, headers, kind=error.kind)


def json_error_response(
    status: int,
    message: str,
    caused_by: Sequence[str] = (),
    headers: dict[str, str] | None = None,
    kind: str | None = None,
) -> Response:
    """Return a response with a message, its causes, and perhaps the kind of the error in a header."""
    body: dict[str, object] = {"message": message}
    if caused_by:
        body["caused_by"] = list(caused_by)
    extra = dict(headers or {})
    if kind is not None:
        extra["X-Insitu-Error"] = kind  # for a client that raises the same class of error
    return Response(json.dumps({"error": body}), status, extra, "application/json")
