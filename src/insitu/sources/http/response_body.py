"""Reading of HTTP responses: header values, and bodies with checks of length, size limit and
compression.

Header values that are not valid give None, never an exception. Bytes are counted as they arrive: a
body that ends early, has another length than announced, or outgrows the limit is an error and never
a short read. A compressed body is decompressed under the same limit.
"""

from __future__ import annotations

import re
import zlib
from email.utils import parsedate_to_datetime
from functools import lru_cache

from insitu.errors import SourceError, TimedOutError
from insitu.sources.http.deadline import RequestDeadline
from insitu.sources.http.session import Response
from insitu.sources.retry_policy import TransientError

__all__ = ["CONTENT_RANGE", "content_encoding", "parse_date", "parse_number", "read_body"]

_PIECE = 1 << 20
DIGITS = 19
"""Of a number of bytes; more are no number of bytes, and Python refuses to parse some thousand."""
_NUMBER = rf"[0-9]{{1,{DIGITS}}}"
CONTENT_RANGE = re.compile(rf"\s*bytes\s+(?:({_NUMBER})\s*-\s*({_NUMBER})|\*)\s*/\s*({_NUMBER}|\*)\s*", re.IGNORECASE)
"""`Content-Range` (RFC 9110, section 14.4): first and last byte, if any are sent, and the size or
`*`.
"""


def parse_number(text: str | None) -> int | None:
    """Return a number of bytes; None if the text is not one.

    Examples
    --------
    >>> parse_number(" 12 "), parse_number("-1"), parse_number("9" * 5000), parse_number(None)
    (12, None, None, None)
    """
    text = "" if text is None else text.strip()
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= DIGITS else None


@lru_cache(64)
def parse_date(text: str | None) -> float | None:
    """Return the seconds since 1970 of an HTTP date; None if the text is not one.

    Examples
    --------
    >>> parse_date("Thu, 01 Jan 1970 00:01:00 GMT"), parse_date("yesterday")
    (60.0, None)
    """
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def content_encoding(response: Response, url: str) -> str | None:
    """Return how a response is compressed: None, `gzip` or `deflate`; raise an error for other
    encodings.
    """
    encoding = response.headers.get("Content-Encoding", "").lower().strip()
    for transfer in response.headers.get("Transfer-Encoding", "").lower().split(","):
        if transfer.strip() not in ("", "chunked", "identity"):
            raise SourceError(
                f"the server uses the transfer encoding {transfer.strip()}, which is not supported", url=url
            )
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return encoding.removeprefix("x-")
    raise SourceError(f"the server sends the object only with {encoding} encoding, which is not supported", url=url)


def read_body(
    response: Response,
    expected: int | None,
    url: str,
    deadline: RequestDeadline,
    *,
    most: int | None = None,
    encoding: str | None = None,
) -> bytes:
    """Return the body of a response.

    Parameters
    ----------
    response
        The response, with its body still to be read.
    expected
        Bytes of the body; None if the headers do not say.
    url
        For error messages.
    deadline
        When to give up.
    most
        The most bytes to accept, decompressed.
    encoding
        How the body is compressed.
    """
    if most is not None and expected is not None and expected > most:
        raise _too_large(url, expected, most)
    unpack = None if encoding is None else _Decompressor(encoding, most, url)
    parts: list[bytes] = []
    received = decoded = 0
    while received != expected:
        # As the bytes arrive, not as many as would fit: else a slow server holds us past the
        # deadline.
        part = response.read1(_PIECE if expected is None else min(_PIECE, expected - received))
        if not part:
            break
        received += len(part)
        if unpack is not None:
            part = unpack(part)
        parts.append(part)
        decoded += len(part)
        if most is not None and decoded > most:
            raise _too_large(url, decoded, most)
        if deadline.is_over:
            raise TimedOutError(f"only {received} bytes arrived before the deadline", url=url)
    if expected is not None and response.chunked and response.read1(1):
        # (Reading on to the end mark of a chunked body also frees its connection.)
        raise SourceError(f"the server sent more than the {expected} bytes that it announced", url=url)
    if received != expected and deadline.is_over:
        raise TimedOutError(f"only {received} bytes arrived before the deadline", url=url)
    if (expected is not None and received != expected) or (unpack is not None and not unpack.complete):
        raise TransientError(
            SourceError(f"the response ended after {received} of {_size_text(expected)} bytes", url=url)
        )
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _size_text(expected: int | None) -> str:
    return "unknown" if expected is None else str(expected)


class _Decompressor:
    """Decompresses a response, piece by piece."""

    def __init__(self, encoding: str, most: int | None, url: str) -> None:
        self._bits = 16 + zlib.MAX_WBITS if encoding == "gzip" else zlib.MAX_WBITS
        self._left, self._url = most, url
        self._stream = zlib.decompressobj(self._bits)

    @property
    def complete(self) -> bool:
        """Whether the end of the compressed data has come."""
        return self._stream.eof

    def __call__(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        try:
            while data:
                if self._stream.eof:  # gzip data may be several files in a row
                    self._stream = zlib.decompressobj(self._bits)
                # One byte more than allowed is enough to know: a small answer may hold terabytes of
                # zeros.
                pieces.append(self._stream.decompress(data, 0 if self._left is None else self._left + 1))
                if self._left is not None:
                    self._left = max(self._left - len(pieces[-1]), 0)
                data = self._stream.unused_data
        except zlib.error as error:
            raise TransientError(SourceError(f"the response cannot be decompressed: {error}", url=self._url)) from None
        return b"".join(pieces)


def _too_large(url: str, size: int, most: int) -> SourceError:
    return SourceError(
        f"the server does not support ranges, and the object ({size} bytes or more) is too large "
        f"to take whole (limit {most})",
        url=url,
        hint="Copy it to a server that supports range requests, or to a local disk.",
    )
