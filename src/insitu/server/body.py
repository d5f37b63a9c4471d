"""How is the body of a request taken in? Up to a limit, and no byte further; not for ever; and all bodies together within a share of the memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request

from insitu.server.error_responses import BusyError, RequestError, SlowError, TooLargeError

if TYPE_CHECKING:
    from insitu.server.worker import Worker

__all__ = ["body_of"]

PAUSE = 20.0
"""Seconds without a byte of a body."""


async def body_of(request: Request, worker: Worker) -> bytes:
    """The body, if it is not larger than the limit and comes in time."""
    limit = worker.limits.request
    said = request.headers.get("content-length", "")
    if said.isdecimal() and (len(said) > 18 or int(said) > limit):
        raise TooLargeError(f"the request has more than the {limit} bytes that are taken")
    parts: list[bytes] = []
    size = 0
    stream = request.stream()
    try:
        async with asyncio.timeout(worker.limits.seconds):
            while True:
                part = await asyncio.wait_for(anext(stream, None), PAUSE)
                if part is None:
                    return b"".join(parts)
                size += len(part)
                worker.incoming += len(part)
                if size > limit:
                    raise TooLargeError(f"the request has more than the {limit} bytes that are taken")
                if worker.incoming > max(worker.limits.memory // 4, limit):
                    raise BusyError("this server takes in too many large requests", worker.admission.retry_after)
                parts.append(part)
    except ClientDisconnect:
        raise RequestError("the request ended too early") from None
    except TimeoutError:
        raise SlowError("the request came too slowly") from None
    finally:
        worker.incoming -= size
