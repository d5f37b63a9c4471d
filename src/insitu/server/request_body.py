"""Read and decode the body of a request, with limits on its size, its duration and the memory of all bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request

from insitu.active.message_decoder import MAX_ITEMS, MessageTooLargeError, count_items, decode_cbor, decode_json
from insitu.errors import ModelError
from insitu.server.error_responses import BusyError, RequestError, RequestTooLargeError, SlowError

if TYPE_CHECKING:
    from insitu.server.worker import Worker

__all__ = ["SMALL_REQUEST_BYTES", "count_body_items", "decode_body", "read_body"]

MAX_PAUSE_SECONDS = 20.0
"""Longest pause within a body, in seconds."""
SMALL_REQUEST_BYTES = 1 << 20
"""Largest body of a request that names one archive or one chunk."""


async def read_body(request: Request, worker: Worker, most: int | None = None) -> bytes:
    """Return the body of a request; an error if it is larger than the limit, or than `most` bytes, or arrives too
    slowly.
    """
    limit = worker.limits.request if most is None else min(most, worker.limits.request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limit):
        raise RequestTooLargeError(f"the request is larger than the limit of {limit} bytes")
    parts: list[bytes] = []
    size = 0
    stream = request.stream()
    try:
        async with asyncio.timeout(worker.limits.seconds):
            while True:
                part = await asyncio.wait_for(anext(stream, None), MAX_PAUSE_SECONDS)
                if part is None:
                    return b"".join(parts)
                size += len(part)
                worker.incoming += len(part)
                if size > limit:
                    raise RequestTooLargeError(f"the request is larger than the limit of {limit} bytes")
                if worker.incoming > worker.limits.bodies:
                    raise BusyError(
                        "the server is busy: too many large requests arrive at once", worker.admission.retry_after
                    )
                parts.append(part)
    except ClientDisconnect:
        raise RequestError("the request is incomplete: the client closed the connection") from None
    except TimeoutError:
        raise SlowError("the request arrived too slowly") from None
    finally:
        worker.incoming -= size


def count_body_items(body: bytes, content_type: str, most: int) -> int:
    """Return how many items a body has; an error if it has more than `most`, or is not valid."""
    with _reporting(most):
        return count_items(body, most, is_json=_is_json(content_type))


def decode_body(body: bytes, content_type: str, most: int = MAX_ITEMS) -> Any:
    """Return what a body says, in JSON if the content type says so, else in CBOR.

    Parameters
    ----------
    body, content_type
        The body.
    most
        How many items it may have.
    """
    with _reporting(most):
        return decode_json(body, most) if _is_json(content_type) else decode_cbor(body, most)


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


@contextmanager
def _reporting(most: int) -> Iterator[None]:
    """Report what is wrong with a message as an error of the request."""
    try:
        yield
    except MessageTooLargeError:
        raise RequestTooLargeError(f"the request has more than {most} items, the limit of this server") from None
    except ModelError as problem:
        raise RequestError(f"the request cannot be decoded: {problem}") from None
