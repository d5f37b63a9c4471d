"""How is the body of a request taken in? Up to a limit, and no byte further."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request

from insitu.service.answers import RequestError, TooLargeError

__all__ = ["body_of"]


async def body_of(request: Request, limit: int) -> bytes:
    """The body, if it is not larger than the limit."""
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > limit:
        raise TooLargeError(f"the request has {said} bytes, more than the {limit} that are taken")
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise TooLargeError(f"the request has more than the {limit} bytes that are taken")
            parts.append(part)
    except ClientDisconnect:
        raise RequestError("the request ended too early") from None
    return b"".join(parts)
