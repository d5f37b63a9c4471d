"""Facts about the request that is being served, for logs and traces: its id and the archive that it reads.

They belong to the context of the request, and `worker` takes the context along to its threads. So a line
that any of them logs names the request.
"""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from insitu.server.reply_watch import Reply
from insitu.sources.redaction import redact_url

__all__ = [
    "HEAD_BYTES",
    "STOPPING",
    "TRANSPORT",
    "RequestFacts",
    "Usage",
    "current_request",
    "record_archive",
    "request_id",
]

STOPPING = "insitu.stopping"
"""Key in the ASGI scope of a request that is under way when the server stops."""
TRANSPORT = "insitu.transport"
"""Key in the ASGI scope of the connection by which a request came."""
HEAD_BYTES = 64 << 10
"""Largest head of a request: path, query and header fields."""
MAX_ARCHIVE_CHARS = 500
"""Longest name of an archive in logs: clients choose it."""
_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class Usage(Protocol):
    """What a request uses of a quota."""

    def add_seconds(self, seconds: float) -> None:
        """Add processor time."""


@dataclass(slots=True)
class RequestFacts:
    """Facts about one request."""

    id: str
    archive: str | None = None
    """URL or path of the first archive that it named, without credentials."""
    reply: Reply | None = None
    """Its reply, which may wait for the client."""
    usage: Usage | None = None
    """What it is counted for, if there are quotas."""


current_request: ContextVar[RequestFacts | None] = ContextVar("insitu_request", default=None)


def request_id(given: str | None) -> str:
    """Return the id that a client or proxy gave a request, or a new one if there is none or it is no id.

    Examples
    --------
    >>> request_id("a-1"), len(request_id("two words")), len(request_id(None))
    ('a-1', 32, 32)
    """
    return given if given is not None and _ID.fullmatch(given) else uuid.uuid4().hex


def record_archive(url: str) -> None:
    """Record which archive the current request reads; the first one counts."""
    facts = current_request.get()
    if facts is not None and facts.archive is None:
        shown = redact_url(url)[:MAX_ARCHIVE_CHARS]
        facts.archive = "".join(letter if letter.isprintable() else "?" for letter in shown)
