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
from collections.abc import Mapping
from typing import Any

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
from insitu.sources.range_batch import RequestLimits
from insitu.sources.ranges import clip
from insitu.sources.remote_source import RemoteSource
from insitu.sources.retry_policy import RetryPolicy, TransientError, retry_after

__all__ = ["HttpSource"]

_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_THROTTLING_STATUSES = frozenset({429, 503})
_REQUEST_VARIANTS = 4
"""Forms of a request: with and without a condition, for a range or the whole. The bound ends a talk
with a server that contradicts itself: one that sent parts in gzip encoding, whatever was asked for,
was asked 971 times, until the stack was full.
"""
_TINY_ANSWERS = 32
_TINY_ANSWER_BYTES = 256
"""A server that sends fewer bytes than this per response, so often, is given up: a range of a
gigabyte would take millions of requests."""

_TAIL = -1
"""Instead of an offset: the last bytes."""


class HttpSource(RemoteSource):
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
        self._address = url
        policy = policy or RetryPolicy()
        self._session = HttpSession(url, headers or {}, policy, trust, name=name, scope=scope)
        super().__init__(self._session.url, host_of(self._session.url), expected, limits, policy)
        self._conditional = True
        self._ranged = True
        self._knows_ranges = False
        self._seems_empty = False
        """Whether the server has refused the first or the last bytes (416) without telling the
        size.
        """

    def size(self) -> int:
        """Return the bytes in the object; costs a request of one byte if nothing was read yet."""
        if self._identity.size is None and not self._identity.is_known:
            self._request_identity()
        if self._identity.size is None:
            self._retry(self._head)
        if self._identity.size is None:
            raise SourceError("the server does not report the size of the object", url=self.url)
        return self._identity.size

    def _request_identity(self) -> None:
        self.read(0, 1)

    def tail(self, length: int) -> bytes:
        """Return the last bytes, in one request, whatever the object's size."""
        size = self._identity.size
        if size is not None:
            return self.read(max(size - length, 0), length)
        clip(self.url, 0, length)
        data = self._ranged_request(_TAIL, length) if length else b""
        size = self._identity.size
        if size is None or len(data) < min(length, size):
            # Not all servers know ranges from the end, or give all of it.
            return self.read(max(self.size() - length, 0), length)
        return data

    def _fetch(self, offset: int, length: int, stop: threading.Event | None = None) -> bytes:
        """Return a range, requested until it is complete: a server may send less at a time than was
        requested.
        """
        parts: list[bytes] = []
        received = 0
        while length > 0:
            data = self._ranged_request(offset, length, stop)
            parts.append(data)
            received += len(data)
            offset, length = offset + len(data), length - len(data)
            if length and len(parts) >= _TINY_ANSWERS and received < _TINY_ANSWER_BYTES * len(parts):
                raise SourceError(
                    f"the server sends the range in tiny parts: {received} bytes in {len(parts)} responses",
                    url=self.url, offset=offset, length=length,
                )  # fmt: skip
            if not data or offset == self._identity.size:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _ranged_request(self, offset: int, length: int, stop: threading.Event | None = None) -> bytes:
        def attempt(until: float) -> bytes:
            body = self._body
            if body is None:
                return self._get(offset, length, until)
            return body[offset : offset + length] if offset != _TAIL else body[-length:]

        return self._retry(attempt, None if offset == _TAIL else offset, length, stop)

    def _head(self, until: float) -> None:
        with tracing.Request(self._host), RequestDeadline(until, self._policy.read) as deadline:
            response = self._session.request("HEAD", {}, deadline)
            try:
                if response.status != 200:
                    raise self._to_error(response)
                size = self._content_length(response)
                if size and self._seems_empty:
                    raise SourceError(f"the server reports {size} bytes and refuses to send them", url=self.url)
                self._observe(response, size)
            finally:
                response.close()

    def _get(self, offset: int, length: int, until: float) -> bytes:
        """Make one request for a range; in another form, once for each form, if the server rejects
        the first.
        """
        for _ in range(_REQUEST_VARIANTS):
            data = self._request_range(offset, length, until)
            if data is not None:
                return data
        raise SourceError("the server rejects every form of range request", url=self.url)

    def _request_range(self, offset: int, length: int, until: float) -> bytes | None:
        """Make one request; return None if it has to be made in another form."""
        headers = self._identity.condition_headers() if self._conditional else {}
        with_range = self._ranged
        if with_range:
            headers["Range"] = f"bytes=-{length}" if offset == _TAIL else f"bytes={offset}-{offset + length - 1}"
        self._throttle.enter(until)
        try:
            with tracing.Request(self._host) as request, RequestDeadline(until, self._policy.read) as deadline:
                start = time.perf_counter()
                try:
                    response = self._session.request("GET", headers, deadline)
                except TransientError:
                    self._throttle.back_off()  # a server that refuses or drops connections may have too many
                    raise
                self._throttle.record_latency(time.perf_counter() - start)
                try:
                    data = self._read_response(response, offset, length, deadline, with_range)
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

    def _read_response(
        self, response: Response, offset: int, length: int, deadline: RequestDeadline, with_range: bool
    ) -> bytes | None:
        status = response.status
        if status == 206:
            return self._read_partial(response, offset, length, deadline, with_range)
        if status == 200:
            body = self._read_whole(response, deadline)
            return body[offset : offset + length] if offset != _TAIL else body[-length:]
        if status == 416:
            return self._past_the_end(response, offset)
        if status == 412 and self._conditional:
            # Some servers compare the ETags of differently compressed versions. Without the
            # condition the response tells its version, which is checked.
            self._conditional = False
            return None
        raise self._to_error(response)

    def _read_partial(
        self, response: Response, offset: int, length: int, deadline: RequestDeadline, with_range: bool
    ) -> bytes | None:
        if (encoding := content_encoding(response, self.url)) is not None:
            if not with_range:
                raise SourceError(
                    f"the server sends a part in {encoding} encoding, although the whole object was asked for",
                    url=self.url,
                )
            # A range of the compressed bytes is of no use; all of them are.
            self._ranged = False
            return None
        content_range = response.headers.get("Content-Range", "")
        found = CONTENT_RANGE.fullmatch(content_range)
        if found is None or found[1] is None:
            raise TransientError(
                SourceError(f"the partial response has no valid Content-Range ({content_range!r})", url=self.url)
            )
        first, last, total = int(found[1]), int(found[2]), parse_number(found[3])
        if offset == _TAIL and total is None:
            self._observe(response, None)
            return b""  # without the size the place of these bytes is unknown: request the size first
        if offset == _TAIL:
            matches = total is not None and last == total - 1 and first == max(total - length, 0)
        else:
            matches = first == offset <= last < offset + length
        if not matches:
            raise TransientError(
                SourceError(f"the server sent another range than requested ({content_range})", url=self.url)
            )
        expected = last - first + 1
        if self._content_length(response) not in (None, expected):
            raise TransientError(
                SourceError(
                    f"Content-Length and Content-Range of the response contradict each other ({content_range})",
                    url=self.url,
                )
            )
        self._observe(response, total)
        self._knows_ranges = True
        return read_body(response, expected, self.url, deadline)

    def _read_whole(self, response: Response, deadline: RequestDeadline) -> bytes:
        """Return the whole object, from a server that does not support ranges; fetched once and
        kept.
        """
        with self._lock:
            if self._body is not None:
                return self._body
            encoding = content_encoding(response, self.url)
            size = self._content_length(response)
            lacks_etag = self._identity.etag is not None and "ETag" not in response.headers
            if (self._knows_ranges or lacks_etag) and encoding is None and size != self._identity.size:
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
        size = self._identity.size
        if size is not None and offset < size and (offset != _TAIL or size):
            raise SourceError(f"the server refuses a range within the {size} bytes that it reports", url=self.url)
        if offset <= 0:
            # Remembered, or a search for a signature would go on for ever: 416 without a size reads
            # like the end of an object of any length.
            self._seems_empty = True
        return b""

    def _content_length(self, response: Response) -> int | None:
        """Return the bytes of the body by its header; None without one. An invalid number is an
        error: taken for none, it would hide that a body is cut short.
        """
        text = response.headers.get("Content-Length")
        found = parse_number(text)
        if text is not None and found is None:
            raise SourceError(f"Content-Length is not a number: {text[:40]!r}", url=self.url)
        return found

    def _observe(self, response: Response, size: int | None) -> None:
        headers = response.headers
        self._identity.observe(size, headers.get("ETag"), parse_date(headers.get("Last-Modified")))

    def _to_error(self, response: Response) -> Exception:
        status = response.status
        answer = f"the server answered {status} {response.reason or ''}".rstrip()
        if status in (404, 410):
            return NotFoundError(answer, url=self.url, redirect=self._session.redirected_to)
        if status in (401, 403, 407):
            return AccessError(answer, url=self.url, hint=hint_for_user(_LOGIN_HINT))
        if status == 412:
            return self._identity.stale_error(answer)
        error = SourceError(answer, url=self.url)
        if status in _THROTTLING_STATUSES:
            self._throttle.back_off()
        if status in _TRANSIENT_STATUSES:
            return TransientError(error, retry_after(response.headers.get("Retry-After"), time.time()))
        return error

    def __getstate__(self) -> tuple[str, dict[str, Any]]:
        return self._address, {**self._settings, "expected": self._identity.expected}

    def __setstate__(self, state: tuple[str, dict[str, Any]]) -> None:
        url, settings = state
        HttpSource.__init__(self, url, **settings)


_LOGIN_HINT = (
    'Pass credentials: storage_options={"headers": {...}} or {"bearer_token": ...}, or a line for the host in ~/.netrc.'
)
