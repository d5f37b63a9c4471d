"""Base of sources whose object is requested over a network: identity, throttle, retries, batches."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from insitu.forking import fork_safe_lock
from insitu.model import Source
from insitu.sources.identity import ObjectIdentity
from insitu.sources.protocol import Range, SourceBase
from insitu.sources.range_batch import RequestLimits, fetch_many
from insitu.sources.ranges import clip
from insitu.sources.retry_policy import RetryPolicy, retry
from insitu.sources.throttle import throttle_for

__all__ = ["RemoteSource"]

Result = TypeVar("Result")


class RemoteSource(SourceBase):
    """Base of the sources of web servers and object stores. A subclass makes the requests.

    Parameters
    ----------
    url
        For messages, without credentials.
    host
        What throttle, counters and messages call the other side.
    expected
        What was recorded of the object: another version raises `StaleSourceError`.
    limits
        How ranges become requests.
    policy
        Timeouts and retries.
    """

    _last_start = 1.0
    """See `retry`."""

    def __init__(
        self, url: str, host: str, expected: Source | None, limits: RequestLimits | None, policy: RetryPolicy
    ) -> None:
        self._url, self._host, self._policy = url, host, policy
        self._identity = ObjectIdentity(url, expected)
        self._limits = limits or RequestLimits()
        self._throttle = throttle_for(host)
        self._body: bytes | None = None
        """The whole object, of a server that sends no ranges."""
        self._lock = fork_safe_lock()

    @property
    def request_bytes(self) -> int:
        """Bytes that could be read in the time that one more request costs."""
        return self._throttle.request_bytes

    def describe(self) -> Source:
        """Return what the responses said of the object; costs a request if nothing was read yet."""
        if not self._identity.is_known:
            self._request_identity()
        return self._identity.source()

    def read(self, offset: int, length: int) -> bytes:
        """Return one range."""
        if length > self._limits.longest:
            return self.read_many([(offset, length)])[0]
        start, length = clip(self.url, offset, length, self._identity.size)
        return self._fetch(start, length)

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges: close ones are merged, all are requested at once."""
        return fetch_many(self._fetch, self.url, ranges, self._throttle, size=self._identity.size, limits=self._limits)

    def close(self) -> None:
        """Drop the cached body; the connections are shared and stay."""
        self._body = None

    @abstractmethod
    def _request_identity(self) -> None:
        """Make the request that costs least and tells the version of the object."""

    @abstractmethod
    def _fetch(self, offset: int, length: int, stop: threading.Event | None = None) -> bytes:
        """Return one range that was clipped; `stop` is set when the rest of its batch has failed."""

    def _retry(
        self,
        attempt: Callable[[float], Result],
        offset: int | None = None,
        length: int | None = None,
        stop: threading.Event | None = None,
        *,
        attempts: int | None = None,
    ) -> Result:
        """Make a request under the retry policy, or with fewer attempts."""
        return retry(
            attempt, self._policy if attempts is None else replace(self._policy, attempts=attempts),
            url=self.url, host=self._host, offset=offset, length=length, stop=stop, last_start=self._last_start,
        )  # fmt: skip
