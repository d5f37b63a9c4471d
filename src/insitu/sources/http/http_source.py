"""Source for objects on plain web servers.

Requests are `GET` with a `Range` header: the first response also tells size, ETag and date, so
there is no `HEAD` before it. Many servers misbehave, hence this own source (obstore refuses those
that answer with the whole object): redirects are followed once and remembered, a small object may
come as a whole, transient failures are retried, and every response must be of the object and the
range that were requested.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from urllib3 import exceptions as failures

from insitu.errors import AccessError, NotFoundError, SourceError
from insitu.model import Source
from insitu.sources import tracing
from insitu.sources.access_policy import hint_for_user
from insitu.sources.address import host_of
from insitu.sources.http.certificates import Trust
from insitu.sources.http.deadline import RequestDeadline
from insitu.sources.http.response_body import CONTENT_RANGE, content_encoding, parse_date, parse_number, read_body
from insitu.sources.http.session import HttpSession, Response, to_source_error
from insitu.sources.identity import ObjectIdentity
from insitu.sources.protocol import Range
from insitu.sources.range_batch import RequestLimits, fetch_many
from insitu.sources.ranges import clip
from insitu.sources.retry_policy import RetryPolicy, TransientError, retry, retry_after
from insitu.sources.threads import renew_after_fork
from insitu.sources.throttle import throttle_for

__all__ = ["HttpSource"]

_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_THROTTLING_STATUSES = frozenset({429, 503})
_REQUEST_VARIANTS = 4
"""Forms of a request: with and without a condition, for a range or the whole."""
_TINY_ANSWERS = 32
_TINY_ANSWER_BYTES = 256
"""A server that sends fewer bytes than this per response, so often, is given up: a range of a
gigabyte would take millions of requests."""

_TAIL = -1
"""Instead of an offset: the last bytes."""


class HttpSource:
    """An object on a web server.

    Parameters
    ----------
    url
        `http://` or `https://`. A user name and password in it are sent as basic authentication;
        they and signatures never show up in `url`, messages or the representation.
    headers
        Sent with every request; not to another host that the server redirects to.
    limits
        How ranges become requests.
    policy
        Timeouts and retries.
    trust
        Which certificates are trusted: the path of a bundle; True: the system's; False: any.
    expected
        What was recorded of the object: another version raises `StaleSourceError`.
    name
        Name for messages: of an object in a bucket that is read by its web address (see
        `signed_requests`).
    scope
        Digest of the credentials of a signed address (see `login.credential_scope`).
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        limits: RequestLimits | None = None,
        policy: RetryPolicy | None = None,
        trust: Trust = True,
        expected: Source | None = None,
        name: str | None = None,
        scope: str | None = None,
    ) -> None:
        self._settings: dict[str, Any] = {
            "headers": headers,
            "limits": limits,
            "policy": policy,
            "trust": trust,
            "expected": expected,
            "name": name,
            "scope": scope,
        }
        self._given = url
        self._patience = policy or RetryPolicy()
        self._exchange = HttpSession(url, headers or {}, self._patience, trust, name=name, scope=scope)
        self._limits = limits or RequestLimits()
        self._identity = ObjectIdentity(self._exchange.url, expected)
        self._place = host_of(self._exchange.url)
        self._throttle = throttle_for(self._place)
        self._conditional = True
        self._ranged = True
        self._knows_ranges = False
        self._seems_empty = False
        """Whether the server has refused the first or the last bytes (416) without telling the
        size.
        """
        self._body: bytes | None = None
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make a new lock in a forked child."""
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The address, without credentials."""
        return self._identity.url

    @property
    def request_bytes(self) -> int:
        """Bytes that could be read in the time that one more request costs."""
        return self._throttle.request_bytes

    def size(self) -> int:
        """Return the bytes in the object; costs a request of one byte if nothing was read yet."""
        if self._identity.size is None and not self._identity.is_known:
            self.read(0, 1)
        if self._identity.size is None:
            self._retry(lambda until: self._head(until), None, None, threading.Event())
        if self._identity.size is None:
            raise SourceError("the server does not report the size of the object", url=self.url)
        return self._identity.size

    def describe(self) -> Source:
        """Return what the responses said of the object; costs a request of one byte if nothing was
        read yet.
        """
        if not self._identity.is_known:
            self.read(0, 1)
        return self._identity.source()

    def read(self, offset: int, length: int) -> bytes:
        """Return one range."""
        if length > self._limits.longest:
            return self.read_many([(offset, length)])[0]
        start, there = clip(self.url, offset, length, self._identity.size)
        return self._range(start, there, threading.Event())

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges: close ones are merged, all are requested at once."""
        return fetch_many(self._range, self.url, ranges, self._throttle, size=self._identity.size, limits=self._limits)

    def tail(self, length: int) -> bytes:
        """Return the last bytes, in one request, whatever the object's size."""
        size = self._identity.size
        if size is not None:
            return self.read(max(size - length, 0), length)
        clip(self.url, 0, length)
        data = self._ranged_request(_TAIL, length, threading.Event()) if length else b""
        size = self._identity.size
        if size is None or len(data) < min(length, size):
            # Not all servers know ranges from the end, or give all of it.
            return self.read(max(self.size() - length, 0), length)
        return data

    def close(self) -> None:
        """Drop the cached body; the connections are shared and stay."""
        self._body = None

    def _range(self, offset: int, length: int, stop: threading.Event) -> bytes:
        """Return a range, requested until it is complete: a server may send less at a time than was
        requested.
        """
        parts: list[bytes] = []
        came = 0
        while length > 0:
            data = self._ranged_request(offset, length, stop)
            parts.append(data)
            came += len(data)
            offset, length = offset + len(data), length - len(data)
            if length and len(parts) >= _TINY_ANSWERS and came < _TINY_ANSWER_BYTES * len(parts):
                raise SourceError(
                    f"the server sends the range in tiny parts: {came} bytes in {len(parts)} responses",
                    url=self.url, offset=offset, length=length,
                )  # fmt: skip
            if not data or offset == self._identity.size:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _ranged_request(self, offset: int, length: int, stop: threading.Event) -> bytes:
        def attempt(until: float) -> bytes:
            body = self._body
            if body is None:
                return self._get(offset, length, until)
            return body[offset : offset + length] if offset != _TAIL else body[-length:]

        return self._retry(attempt, None if offset == _TAIL else offset, length, stop)

    def _retry(
        self, attempt: Callable[[float], bytes], offset: int | None, length: int | None, stop: threading.Event
    ) -> bytes:
        """Make a request under the retry policy."""
        return retry(attempt, self._patience, url=self.url, host=self._place, offset=offset, length=length, stop=stop)

    def _head(self, until: float) -> bytes:
        with tracing.Request(self._place), RequestDeadline(until, self._patience.read) as deadline:
            response = self._exchange.ask("HEAD", {}, deadline)
            try:
                if response.status != 200:
                    raise self._refusal(response)
                size = self._length(response)
                if size and self._seems_empty:
                    raise SourceError(f"the server reports {size} bytes and refuses to send them", url=self.url)
                self._observe(response, size)
                return b""
            finally:
                response.close()

    def _get(self, offset: int, length: int, until: float) -> bytes:
        """Make one request for a range; in another form, once for each form, if the server rejects
        the first.
        """
        for _ in range(_REQUEST_VARIANTS):
            data = self._ask(offset, length, until)
            if data is not None:
                return data
        raise SourceError("the server rejects every form of range request", url=self.url)

    def _ask(self, offset: int, length: int, until: float) -> bytes | None:
        """Make one request; return None if it has to be made in another form."""
        special = self._identity.condition_headers() if self._conditional else {}
        ranged = self._ranged
        if ranged:
            special["Range"] = f"bytes=-{length}" if offset == _TAIL else f"bytes={offset}-{offset + length - 1}"
        self._throttle.enter(until)
        try:
            with tracing.Request(self._place) as request, RequestDeadline(until, self._patience.read) as deadline:
                start = time.perf_counter()
                try:
                    response = self._exchange.ask("GET", special, deadline)
                except TransientError:
                    self._throttle.back_off()  # a server that refuses or drops connections may have too many
                    raise
                self._throttle.record_latency(time.perf_counter() - start)
                try:
                    data = self._answer(response, offset, length, deadline, ranged)
                except failures.HTTPError as error:
                    raise TransientError(to_source_error(error, self.url, deadline)) from None
                finally:
                    # If all of the answer was read, its connection is back in the pool and this
                    # does nothing to it; one with bytes still in it cannot be used again.
                    response.close()
                if data is not None:
                    request.bytes = len(data)
                return data
        finally:
            self._throttle.leave()

    def _answer(
        self, response: Response, offset: int, length: int, deadline: RequestDeadline, ranged: bool
    ) -> bytes | None:
        status = response.status
        if status == 206:
            return self._partial(response, offset, length, deadline, ranged)
        if status == 200:
            body = self._complete(response, deadline)
            return body[offset : offset + length] if offset != _TAIL else body[-length:]
        if status == 416:
            return self._past_the_end(response, offset)
        if status == 412 and self._conditional:
            # Some servers compare the ETags of differently compressed versions. Without the
            # condition the response tells its version, which is checked.
            self._conditional = False
            return None
        raise self._refusal(response)

    def _partial(
        self, response: Response, offset: int, length: int, deadline: RequestDeadline, ranged: bool
    ) -> bytes | None:
        if (encoding := content_encoding(response, self.url)) is not None:
            if not ranged:
                raise SourceError(
                    f"the server sends a part in {encoding} encoding, although the whole object was asked for",
                    url=self.url,
                )
            # A range of the compressed bytes is of no use; all of them are.
            self._ranged = False
            return None
        said = response.headers.get("Content-Range", "")
        found = CONTENT_RANGE.fullmatch(said)
        if found is None or found[1] is None:
            raise TransientError(
                SourceError(f"the partial response has no valid Content-Range ({said!r})", url=self.url)
            )
        first, last, total = int(found[1]), int(found[2]), parse_number(found[3])
        if offset == _TAIL and total is None:
            self._observe(response, None)
            return b""  # without the size the place of these bytes is unknown: request the size first
        if offset == _TAIL:
            right = total is not None and last == total - 1 and first == max(total - length, 0)
        else:
            right = first == offset <= last < offset + length
        if not right:
            raise TransientError(SourceError(f"the server sent another range than requested ({said})", url=self.url))
        expected = last - first + 1
        if self._length(response) not in (None, expected):
            raise TransientError(
                SourceError(
                    f"Content-Length and Content-Range of the response contradict each other ({said})", url=self.url
                )
            )
        self._observe(response, total)
        self._knows_ranges = True
        return read_body(response, expected, self.url, deadline)

    def _complete(self, response: Response, deadline: RequestDeadline) -> bytes:
        """Return the whole object, from a server that does not support ranges; fetched once and
        kept.
        """
        with self._lock:
            if self._body is not None:
                return self._body
            encoding = content_encoding(response, self.url)
            size = self._length(response)
            nameless = self._identity.etag is not None and "ETag" not in response.headers
            if (self._knows_ranges or nameless) and encoding is None and size != self._identity.size:
                # The page of a proxy, or of a network that wants us to sign in: the object's server
                # gives parts, or says which version it gives.
                raise TransientError(
                    SourceError(f"the server sent a page of {size} bytes instead of the range", url=self.url)
                )
            self._observe(response, size if encoding is None else None)
            body = read_body(response, size, self.url, deadline, most=self._limits.whole, encoding=encoding)
            self._identity.observe(len(body), None, None)
            self._body = body
            return body

    def _past_the_end(self, response: Response, offset: int) -> bytes:
        found = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        total = parse_number(found[3]) if found else None
        if total is not None:
            # Only the size: the other headers may be those of the error page.
            self._identity.observe(total, None, None)
        known = self._identity.size
        if known is not None and offset < known and (offset != _TAIL or known):
            raise SourceError(f"the server refuses a range within the {known} bytes that it reports", url=self.url)
        if offset <= 0:
            self._seems_empty = True
        return b""

    def _length(self, response: Response) -> int | None:
        """Return the bytes of the body by its header; None without one. An invalid number is an
        error: it would hide that a body is cut short.
        """
        said = response.headers.get("Content-Length")
        found = parse_number(said)
        if said is not None and found is None:
            raise SourceError(f"Content-Length is not a number: {said[:40]!r}", url=self.url)
        return found

    def _observe(self, response: Response, size: int | None) -> None:
        headers = response.headers
        self._identity.observe(size, headers.get("ETag"), parse_date(headers.get("Last-Modified")))

    def _refusal(self, response: Response) -> Exception:
        status = response.status
        said = f"the server answered {status} {response.reason or ''}".rstrip()
        if status in (404, 410):
            return NotFoundError(said, url=self.url, redirect=self._exchange.redirected_to)
        if status in (401, 403, 407):
            return AccessError(said, url=self.url, hint=hint_for_user(_LOGIN_HINT))
        if status == 412:
            return self._identity.stale_error(said)
        error = SourceError(said, url=self.url)
        if status in _THROTTLING_STATUSES:
            self._throttle.back_off()
        if status in _TRANSIENT_STATUSES:
            return TransientError(error, retry_after(response.headers.get("Retry-After"), time.time()))
        return error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> tuple[str, dict[str, Any]]:
        return self._given, {**self._settings, "expected": self._identity.expected}

    def __setstate__(self, state: tuple[str, dict[str, Any]]) -> None:
        address, settings = state
        HttpSource.__init__(self, address, **settings)

    def __repr__(self) -> str:
        return f"HttpSource({self.url!r})"


_LOGIN_HINT = (
    'Pass credentials: storage_options={"headers": {...}} or {"bearer_token": ...}, or a line for the host in ~/.netrc.'
)
