"""Source for objects in S3, Google Cloud Storage and Azure, through obstore.

obstore signs requests and keeps connections; retries and the throttle are ours. Each range is a
`get` of its own on the shared threads rather than part of obstore's `get_ranges`: that one runs at
most ten requests at once and says nothing of the object, while a `get` tells size and ETag along
with the bytes, so that the first read needs no `head` before it and an object replaced between two
reads is noticed. The store is also told which version is wanted, and refuses any other.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import BaseError, PreconditionError

from insitu.errors import SourceError
from insitu.model import Source
from insitu.sources import tracing
from insitu.sources.object_store.bucket import LAST_ATTEMPT_START, Bucket
from insitu.sources.object_store.store_errors import (
    as_source_error,
    is_throttled,
    is_transient,
    sends_whole_objects,
)
from insitu.sources.range_batch import RequestLimits
from insitu.sources.ranges import clip
from insitu.sources.redaction import redact_url
from insitu.sources.remote_source import RemoteSource
from insitu.sources.retry_policy import RetryPolicy, TransientError

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import ObjectStore

__all__ = ["ObjectSource"]

_WHOLE_ANSWERS = 3
"""Answers with the whole object after which a store is believed to know no ranges: one may be a
proxy's error page.
"""


class _WholeObjectError(Exception):
    """The store answered a range with the whole object."""

    def __init__(self, error: SourceError) -> None:
        super().__init__(error)
        self.error = error


class ObjectSource(RemoteSource):
    """An object in an object store.

    Parameters
    ----------
    store
        An obstore store (`S3Store`, `GCSStore`, `AzureStore`, `MemoryStore`, `LocalStore`), or a
        bucket that has one.
    path
        The object's key in it.
    url
        Name for messages; shown without credentials.
    limits
        How ranges become requests.
    expected
        What was recorded of the object: another version raises `StaleSourceError`.
    reopen
        Makes it anew in another process, where the bucket is not open.
    policy
        Timeouts and retries; the bucket's if not given.

    Examples
    --------
    >>> from obstore.store import MemoryStore
    >>> store = MemoryStore()
    >>> _ = store.put("a/b", b"abcdef")
    >>> source = ObjectSource(store, "a/b")
    >>> source.read_many([(4, 10), (0, 2)]), source.describe().size
    ([b'ef', b'ab'], 6)
    """

    _last_start = LAST_ATTEMPT_START

    def __init__(
        self,
        store: ObjectStore | Bucket,
        path: str,
        url: str | None = None,
        *,
        limits: RequestLimits | None = None,
        expected: Source | None = None,
        reopen: Callable[[Source | None], ObjectSource] | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        name = redact_url(url or f"{type(store).__name__}://{path}")
        self._bucket = store if isinstance(store, Bucket) else Bucket(store, type(store).__name__)
        self._path, self._reopen = path, reopen
        self._knows_suffixes = True
        super().__init__(name, self._bucket.place, expected, limits, policy or self._bucket.settings.policy)

    @property
    def _store(self) -> ObjectStore:
        """The store that retries by itself: what is written goes there."""
        return self._bucket.retrying_store

    def size(self) -> int:
        """Return the bytes in the object; costs a request if nothing was read yet."""
        if self._identity.size is None:
            self._request_identity()
        size = self._identity.size
        assert size is not None
        return size

    def tail(self, length: int) -> bytes:
        """Return the last bytes, in one request where the store can (Azure cannot)."""
        clip(self.url, 0, length)
        size = self._identity.size
        if size is None and self._knows_suffixes and length:
            try:
                return self._get({"range": {"suffix": length}}, None, length)
            except SourceError as error:
                if type(error) is not SourceError:
                    raise
                # Refused: an empty object has no last bytes, and some stores know no such ranges.
                self._knows_suffixes = False
        size = self.size()
        return self.read(max(size - length, 0), length)

    def _fetch(self, offset: int, length: int, stop: threading.Event | None = None) -> bytes:
        if length == 0:
            return b""
        if self._body is not None:
            return self._body[offset : offset + length]
        known = self._identity.size is not None
        try:
            return self._get({"range": (offset, offset + length)}, offset, length, stop)
        except SourceError as error:
            if known or type(error) is not SourceError or "attempts" in error.place:
                raise
            # A store refuses a range that starts past the end, and an empty object has no other:
            # ask for its size.
            self._request_identity()
            start, clipped = clip(self.url, offset, length, self._identity.size)
            if clipped == length:
                raise
            return self._fetch(start, clipped)

    def _fetch_whole(self) -> bytes:
        """Return the whole object, from a store that knows no ranges (rclone's is one); fetched
        once and kept.
        """
        with self._lock:
            if self._body is None:
                size = self.size()
                if size > self._limits.whole:
                    raise SourceError(
                        f"the store does not support ranges, and the object ({size} bytes) is too large to take whole "
                        f"(limit {self._limits.whole})",
                        url=self.url,
                    )
                self._body = self._get({}, 0, size)
            return self._body

    def _get(self, options: GetOptions, offset: int | None, length: int, stop: threading.Event | None = None) -> bytes:
        """Return one range (the last bytes, where `offset` is None), under the retry policy."""
        _refuse_fork(self.url)
        whole = 0

        def attempt(until: float) -> bytes:
            nonlocal whole
            self._throttle.enter(until)
            try:
                return self._get_once(options, offset, length)
            except _WholeObjectError as answer:
                whole += 1
                if whole < min(_WHOLE_ANSWERS, self._policy.attempts):
                    raise TransientError(answer.error) from None
            finally:
                self._throttle.leave()
            body = self._fetch_whole()
            return body[-length:] if offset is None else body[offset : offset + length]

        # Some stores do not know ranges from the end: there the fallback is quicker than many
        # attempts.
        attempts = None if offset is not None else min(self._policy.attempts, 2)
        return self._retry(attempt, offset, length, stop, attempts=attempts)

    def _get_once(self, get_options: GetOptions, offset: int | None, length: int) -> bytes:
        if self._identity.etag is not None:
            get_options["if_match"] = self._identity.etag

        def get_object(store: ObjectStore) -> tuple[GetResult, bytes]:
            answer = obstore.get(store, self._path, options=get_options)
            self._throttle.record_latency(time.perf_counter() - start)
            return answer, answer.bytes().to_bytes()

        try:
            with tracing.Request(self._bucket.place) as request:
                start = time.perf_counter()
                answer, data = self._bucket.call(get_object)
                request.bytes = len(data)
        except (BaseError, OSError, ValueError) as error:
            raise self._failure(error, offset, length) from None
        meta = answer.meta
        self._identity.observe(meta["size"], meta["e_tag"], meta["last_modified"].timestamp())
        first, last = answer.range
        size = meta["size"]
        begin = max(size - length, 0) if offset is None else offset
        if first != begin or len(data) != last - first or len(data) != min(length, size - begin):
            raise TransientError(
                SourceError(
                    f"the store sent bytes {first}-{first + len(data)} instead of the range requested",
                    url=self.url, offset=begin, length=length,
                )
            )  # fmt: skip
        return data

    def _request_identity(self) -> None:
        _refuse_fork(self.url)

        def attempt(until: float) -> None:
            self._throttle.enter(until)
            try:
                with tracing.Request(self._bucket.place):
                    meta = self._bucket.call(lambda store: obstore.head(store, self._path))
            except (BaseError, OSError, ValueError) as error:
                raise self._failure(error) from None
            finally:
                self._throttle.leave()
            self._identity.observe(meta["size"], meta["e_tag"], meta["last_modified"].timestamp())

        self._retry(attempt)

    def _failure(self, error: Exception, offset: int | None = None, length: int | None = None) -> Exception:
        """Return what to raise for an error of obstore: final, or worth another attempt."""
        if isinstance(error, SourceError):
            return error
        source_error = self._to_source_error(error, offset, length)
        if is_throttled(error) or "error sending request" in str(error):
            self._throttle.back_off()  # a store that refuses or drops connections may have too many
        if sends_whole_objects(error):
            return _WholeObjectError(source_error)
        return TransientError(source_error) if is_transient(error) else source_error

    def _to_source_error(self, error: Exception, offset: int | None = None, length: int | None = None) -> SourceError:
        """Return an error of obstore as one of ours."""
        if isinstance(error, PreconditionError):
            return self._identity.stale_error("the store has another version")
        return as_source_error(error, self.url, offset, length, anonymous=self._bucket.settings.anonymous)

    def __reduce__(self) -> tuple[Callable[..., ObjectSource], tuple[Any, ...]]:
        expected = self._identity.expected
        if self._reopen is not None:
            return self._reopen, (expected,)
        make = partial(ObjectSource, limits=self._limits, expected=expected)
        return make, (self._bucket.retrying_store, self._path, self.url)


def _refuse_fork(url: str) -> None:
    """Raise an error instead of a hang: obstore's threads do not survive a fork, and a read would
    wait for them for ever.
    """
    global _obstore_process
    here = os.getpid()
    if _obstore_process is None:
        _obstore_process = here
    elif _obstore_process != here:
        raise SourceError(
            "object stores cannot be read in a forked process once its parent has read from one",
            url=url,
            hint="Start workers with the 'spawn' or 'forkserver' method of multiprocessing.",
        )


_obstore_process: int | None = None
"""The process in which obstore's own threads were started."""
