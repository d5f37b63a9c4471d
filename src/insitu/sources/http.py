"""How are ranges read from a plain web server?

With `GET` and a `Range` header, nothing else: the first answer tells size, ETag and date along the way, so no `HEAD` goes
ahead of it. Servers are not all well-behaved, hence this own source (obstore refuses those that answer with the
whole object): redirects are followed once and remembered, a whole object is taken when it is small, passing failures
are retried, and every answer must be of the object and the range that were asked for.
"""

from __future__ import annotations

import random
import re
import threading
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3 import exceptions as failures

from insitu.errors import AccessError, NotFoundError, SourceError, TimedOutError
from insitu.model import Source
from insitu.sources.batch import GAP, LIMIT, fetch_many
from insitu.sources.connections import manager_for
from insitu.sources.identity import Identity
from insitu.sources.patience import Patience, retry_after
from insitu.sources.protocol import Range
from insitu.sources.ranges import clip
from insitu.sources.redact import displayed, quoted, redacted, userinfo
from insitu.sources.threads import WIDTH, renew_after_fork

__all__ = ["HttpSource"]

Response = urllib3.BaseHTTPResponse

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 10
_HARMLESS = frozenset({"accept", "accept-language", "referer", "user-agent"})
"""Headers of the user's that may follow a redirect to another host; any other could be a key."""
_CONTENT_RANGE = re.compile(r"\s*bytes\s+(?:(\d+)\s*-\s*(\d+)|\*)\s*/\s*(\d+|\*)\s*", re.IGNORECASE)


class _PassingError(Exception):
    """An attempt failed in a way that may pass."""

    def __init__(self, error: SourceError, after: float | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.after = after


class HttpSource:
    """An object on a web server.

    Parameters
    ----------
    url
        `http://` or `https://`. A user name and password in it are sent as basic authentication; they and signatures
        never show up in `url`, messages or the representation.
    headers
        Sent with every request; not to another host that the server redirects to.
    whole
        The largest object, in bytes, that is taken whole (and kept) from a server that knows no ranges.
    gap, limit, width
        For batches: bytes read along to save a request, longest merged request, requests under way at once.
    patience
        Timeouts and retries.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        whole: int = 64 << 20,
        gap: int = GAP,
        limit: int = LIMIT,
        width: int = WIDTH,
        patience: Patience | None = None,
    ) -> None:
        try:
            address, who = userinfo(url)
        except ValueError:
            raise SourceError("not a URL", url=displayed(url)) from None
        self._settings: dict[str, Any] = {
            "headers": headers, "whole": whole, "gap": gap, "limit": limit, "width": width, "patience": patience
        }  # fmt: skip
        self._given = url
        self._address = quoted(address.partition("#")[0])
        # Ours to say: which range, and that it is one of the object's own bytes, not of compressed ones.
        self._headers = {
            name: value for name, value in (headers or {}).items() if name.lower() not in ("range", "accept-encoding")
        }
        if who and not any(name.lower() == "authorization" for name in self._headers):
            self._headers["Authorization"] = "Basic " + b64encode(":".join(who).encode()).decode()
        self._whole, self._gap, self._limit, self._width = whole, gap, limit, width
        self._patience = patience or Patience()
        self._identity = Identity(displayed(url))
        self._moved: str | None = None
        self._body: bytes | None = None
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """A new lock in a forked child."""
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The address, without credentials."""
        return self._identity.url

    def size(self) -> int:
        """Bytes in the object; costs a request of one byte if nothing was read yet."""
        if not self._identity.known:
            self.read(0, 1)
        if self._identity.size is None:
            self._ask_size()
        if self._identity.size is None:
            raise SourceError("the server does not tell how large the object is", url=self.url)
        return self._identity.size

    def describe(self) -> Source:
        """What the answers said; costs a request of one byte if nothing was read yet."""
        if not self._identity.known:
            self.read(0, 1)
        return self._identity.source()

    def read(self, offset: int, length: int) -> bytes:
        """One range."""
        start, there = clip(self.url, offset, length, self._identity.size)
        return self._range(start, there, threading.Event())

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Many ranges, those close to each other merged, all at once."""
        return fetch_many(
            self._range, self.url, ranges,
            size=self._identity.size, gap=self._gap, limit=self._limit, width=self._width,
        )  # fmt: skip

    def close(self) -> None:
        """Drop what is kept; the connections are shared and stay."""
        self._body = None

    def _range(self, offset: int, length: int, stop: threading.Event) -> bytes:
        """A range, asked for until it is there: a server may give less at a time than it was asked for."""
        parts: list[bytes] = []
        while length > 0:
            data = self._persist("GET", offset, length, stop)
            parts.append(data)
            offset, length = offset + len(data), length - len(data)
            if not data or offset == self._identity.size:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _ask_size(self) -> None:
        self._persist("HEAD", 0, 0, threading.Event())

    def _persist(self, method: str, offset: int, length: int, stop: threading.Event) -> bytes:
        patience = self._patience
        until = time.monotonic() + patience.deadline
        attempt = 0
        while True:
            body = self._body
            if body is not None:
                return body[offset : offset + length]
            try:
                return self._attempt(method, offset, length, until)
            except _PassingError as again:
                error, attempt = again.error, attempt + 1
                pause = patience.pause(attempt - 1, random.random(), again.after)
                if attempt >= patience.attempts:
                    raise error.located(attempts=attempt) from None
                if time.monotonic() + pause >= until:
                    raise TimedOutError(
                        f"no success within {patience.deadline:g} s: {error.message}",
                        url=self.url, offset=offset, length=length, attempts=attempt,
                    ) from None  # fmt: skip
            if stop.wait(pause):
                raise error

    def _attempt(self, method: str, offset: int, length: int, until: float) -> bytes:
        response = self._send(method, offset, length, until)
        try:
            status = response.status
            if method == "HEAD" and status == 200:
                self._observe(response, _number(response.headers.get("Content-Length")))
                return b""
            if status == 206:
                return self._partial(response, offset, length, until)
            if status == 200:
                return self._complete(response, until)[offset : offset + length]
            if status == 416:
                return self._past_the_end(response, offset, length)
            raise self._refusal(response, offset, length)
        except _PassingError as again:
            again.error.located(offset=offset, length=length)
            raise
        except failures.HTTPError as error:
            raise _PassingError(self._failure(error, offset, length)) from None
        finally:
            # If all of the answer was read, its connection is back in the pool and this does nothing to it; one with
            # bytes still in it cannot be used again.
            response.close()

    def _send(self, method: str, offset: int, length: int, until: float) -> Response:
        """One request, redirects followed. Where they led to is remembered: each costs a round trip."""
        target = self._moved or self._address
        for _ in range(_MOST_REDIRECTS):
            headers = self._headers_for(target)
            if method == "GET":
                headers["Range"] = f"bytes={offset}-{offset + length - 1}"
            left = max(until - time.monotonic(), 0.001)
            timeout = urllib3.Timeout(connect=min(self._patience.connect, left), read=min(self._patience.read, left))
            try:
                response = manager_for(target).request(
                    method, target, headers=headers, timeout=timeout,
                    redirect=False, retries=False, preload_content=False, decode_content=False,
                )  # fmt: skip
            except (failures.LocationValueError, UnicodeError) as error:
                raise SourceError(f"not a URL: {redacted(str(error))}", url=self.url) from None
            except failures.SSLError as error:
                # A certificate that does not hold will not hold the next time either.
                raise self._failure(error, offset, length) from None
            except failures.HTTPError as error:
                self._moved = None
                raise _PassingError(self._failure(error, offset, length)) from None
            location = response.headers.get("Location")
            if response.status in _REDIRECTS and location:
                response.close()
                target = quoted(urljoin(target, location).partition("#")[0])
                if urlsplit(target).scheme not in ("http", "https"):
                    raise SourceError("redirected to what is no web address", url=self.url, to=displayed(target))
                continue
            if response.status >= 400 and response.status != 416 and self._moved:
                # The place remembered may have expired (signed addresses do): ask for a new one.
                self._moved, target = None, self._address
                response.close()
                continue
            if response.status < 400 and target != self._address:
                self._moved = target
            return response
        raise SourceError(f"more than {_MOST_REDIRECTS} redirects", url=self.url)

    def _headers_for(self, target: str) -> dict[str, str]:
        here, there = urlsplit(self._address), urlsplit(target)
        same = (here.scheme, here.netloc) == (there.scheme, there.netloc)
        given = {name: value for name, value in self._headers.items() if same or name.lower() in _HARMLESS}
        return {"User-Agent": "insitu", **given, "Accept-Encoding": "identity"}

    def _partial(self, response: Response, offset: int, length: int, until: float) -> bytes:
        said = response.headers.get("Content-Range", "")
        found = _CONTENT_RANGE.fullmatch(said)
        if found is None or found[1] is None:
            raise SourceError(f"partial answer of unknown place ({said!r})", url=self.url, offset=offset, length=length)
        first, last, total = int(found[1]), int(found[2]), _number(found[3])
        if first != offset or not offset <= last < offset + length:
            raise SourceError(f"another range was sent ({said})", url=self.url, offset=offset, length=length)
        self._observe(response, total)
        return self._take(response, last - first + 1, until)

    def _complete(self, response: Response, until: float) -> bytes:
        """The whole object, from a server that knows no ranges; fetched once and kept."""
        with self._lock:
            if self._body is not None:
                return self._body
            size = _number(response.headers.get("Content-Length"))
            if size is not None and size > self._whole:
                raise self._too_large(size)
            self._observe(response, size)
            body = self._take(response, size, until)
            self._identity.observe(len(body), None, None)
            self._body = body
            return body

    def _take(self, response: Response, expected: int | None, until: float) -> bytes:
        """The body: `expected` bytes, or all there is up to the limit for whole objects."""
        parts: list[bytes] = []
        count = 0
        while count != expected:
            # As the bytes arrive, not as many as would fit: else a server that trickles holds us past the deadline.
            part = response.read1(_PIECE if expected is None else min(_PIECE, expected - count))
            if not part:
                break
            parts.append(part)
            count += len(part)
            if expected is None and count > self._whole:
                raise self._too_large(count)
            if time.monotonic() > until:
                raise TimedOutError(f"after {self._patience.deadline:g} s only {count} bytes had come", url=self.url)
        if expected is not None and response.chunked and response.read1(1):
            # (Reading on to the end mark of a chunked answer also frees its connection.)
            raise SourceError(f"more than the {expected} bytes announced were sent", url=self.url)
        if expected is not None and count != expected:
            raise _PassingError(SourceError(f"the answer broke off after {count} of {expected} bytes", url=self.url))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _past_the_end(self, response: Response, offset: int, length: int) -> bytes:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        total = _number(found[3]) if found else None
        if total is not None:
            # Only the size: the other headers may be those of the error page.
            self._identity.observe(total, None, None)
            if offset < total:
                raise SourceError("the server refuses a range it has", url=self.url, offset=offset, length=length)
        return b""

    def _observe(self, response: Response, size: int | None) -> None:
        headers = response.headers
        encoding = headers.get("Content-Encoding", "identity").lower()
        if encoding not in ("identity", ""):
            raise SourceError(f"the server sends the object in {encoding} encoding only", url=self.url)
        self._identity.observe(size, headers.get("ETag"), _date(headers.get("Last-Modified")))

    def _refusal(self, response: Response, offset: int, length: int) -> Exception:
        status = response.status
        said = f"the server answered {status} {response.reason or ''}".rstrip()
        place: dict[str, Any] = {"url": self.url, "offset": offset, "length": length}
        if status in (404, 410):
            return NotFoundError(said, url=self.url)
        if status in (401, 403, 407):
            return AccessError(said, url=self.url, hint='Pass credentials: storage_options={"headers": {...}}.')
        error = SourceError(said, **place)
        if status in _PASSING:
            return _PassingError(error, retry_after(response.headers.get("Retry-After"), time.time()))
        return error

    def _failure(self, error: Exception, offset: int, length: int) -> SourceError:
        kind = TimedOutError if isinstance(error, failures.TimeoutError) else SourceError
        said = redacted(str(error)) or type(error).__name__
        return kind(f"the request failed: {said}", url=self.url, offset=offset, length=length)

    def _too_large(self, size: int) -> SourceError:
        return SourceError(
            f"the server sends no ranges, and the object ({size} bytes or more) is too large to take whole "
            f"(limit {self._whole})",
            url=self.url,
            hint="Copy it to a place that knows ranges, or to a local disk.",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> tuple[str, dict[str, Any]]:
        return self._given, self._settings

    def __setstate__(self, state: tuple[str, dict[str, Any]]) -> None:
        address, settings = state
        HttpSource.__init__(self, address, **settings)

    def __repr__(self) -> str:
        return f"HttpSource({self.url!r})"


_PIECE = 1 << 20


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None


def _date(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
