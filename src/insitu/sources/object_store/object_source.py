"""How are ranges read from S3, Google Cloud Storage or Azure?

Through obstore, which signs, retries and keeps connections. Each range is a `get` of its own on the shared threads
rather than part of obstore's `get_ranges`: that one runs at most ten requests at once and says nothing of the object,
while a `get` tells size and ETag along with the bytes, so that the first read needs no `head` before it and an object
replaced between two reads is noticed; the store is also told which version is wanted, and refuses any other.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError

from insitu.errors import AccessError, NotFoundError, SourceError, TimedOutError
from insitu.model import Source
from insitu.sources import tracing
from insitu.sources.http.throttle import pace_of
from insitu.sources.identity import Identity
from insitu.sources.object_store.bucket import Bucket
from insitu.sources.protocol import Range
from insitu.sources.range_batch import LIMIT, fetch_many
from insitu.sources.ranges import clip
from insitu.sources.redaction import displayed, redacted
from insitu.sources.threads import renew_after_fork

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ObjectStore

__all__ = ["ObjectSource", "as_source_error"]


_ATTEMPTS, _PAUSE = 4, 0.1
_ODD = re.compile(
    r"non-partial response|Requested .* got|[Cc]ontent-[Ll]ength|[Cc]ontent-[Rr]ange|message length|after \d+ retries.*416"
)


class _OddError(Exception):
    """The store answered, and not what was asked."""

    def __init__(self, error: SourceError, *, whole: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.whole = whole
        """It answers with whole objects."""


class ObjectSource:
    """An object in an object store.

    Parameters
    ----------
    store
        An obstore store (`S3Store`, `GCSStore`, `AzureStore`, `MemoryStore`, `LocalStore`), or a bucket that has one.
    path
        The object's key in it.
    url
        What to call it; shown without credentials.
    gap, limit, width
        For batches: bytes read along to save a request, longest merged request, requests under way at once; left to what
        the store's answers teach if not given.
    whole
        The largest object, in bytes, that is taken whole (and kept) from a store that knows no ranges.
    expected
        What was recorded of the object: another version of it is a `StaleSourceError`.
    again
        Makes it anew in another process, where the bucket is not open.

    Examples
    --------
    >>> from obstore.store import MemoryStore
    >>> store = MemoryStore()
    >>> _ = store.put("a/b", b"abcdef")
    >>> source = ObjectSource(store, "a/b")
    >>> source.read_many([(4, 10), (0, 2)]), source.describe().size
    ([b'ef', b'ab'], 6)
    """

    def __init__(
        self,
        store: ObjectStore | Bucket,
        path: str,
        url: str | None = None,
        *,
        gap: int | None = None,
        limit: int = LIMIT,
        width: int | None = None,
        whole: int = 64 << 20,
        expected: Source | None = None,
        again: Callable[[Source | None], ObjectSource] | None = None,
    ) -> None:
        name = displayed(url or f"{type(store).__name__}://{path}")
        self._bucket = store if isinstance(store, Bucket) else Bucket(store, type(store).__name__)
        self._path = path
        self._gap, self._limit, self._width = gap, limit, width
        self._identity = Identity(name, expected)
        self._pace = pace_of(self._bucket.place)
        self._suffixes = True
        self._again = again
        self._whole = whole
        self._body: bytes | None = None
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """A new lock in a forked child."""
        self._lock = threading.Lock()

    @property
    def _store(self) -> ObjectStore:
        return self._bucket.store

    @property
    def request_bytes(self) -> int:
        """How many bytes could come in the time that one more request costs."""
        return self._pace.request_bytes

    @property
    def url(self) -> str:
        """The address, without credentials."""
        return self._identity.url

    def size(self) -> int:
        """Bytes in the object; costs a request if nothing was read yet."""
        if self._identity.size is None:
            self._head()
        size = self._identity.size
        assert size is not None
        return size

    def describe(self) -> Source:
        """What the store says of the object; costs a request if nothing was read yet."""
        if not self._identity.known:
            self._head()
        return self._identity.source()

    def read(self, offset: int, length: int) -> bytes:
        """One range."""
        if length > self._limit:
            return self.read_many([(offset, length)])[0]
        start, there = clip(self.url, offset, length, self._identity.size)
        return self._range(start, there)

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Many ranges, those close to each other merged, all at once."""
        return fetch_many(
            self._range, self.url, ranges, self._pace,
            size=self._identity.size, gap=self._gap, limit=self._limit, width=self._width,
        )  # fmt: skip

    def tail(self, length: int) -> bytes:
        """The last bytes, in one request where the store knows such (Azure does not)."""
        clip(self.url, 0, length)
        size = self._identity.size
        if size is None and self._suffixes and length:
            try:
                return self._get({"range": {"suffix": length}}, None, length)
            except (SourceError, _OddError) as error:
                if isinstance(error, SourceError) and type(error) is not SourceError:
                    raise
                # Refused: an empty object has no last bytes, and some stores know no such ranges.
                self._suffixes = False
        size = self.size()
        return self.read(max(size - length, 0), length)

    def close(self) -> None:
        """Drop what is kept; connections belong to the store, which others share."""
        self._body = None

    def _range(self, offset: int, length: int, stop: threading.Event | None = None) -> bytes:
        if length == 0:
            return b""
        known = self._identity.size is not None
        for attempt in range(_ATTEMPTS):
            if self._body is not None:
                return self._body[offset : offset + length]
            try:
                return self._get({"range": (offset, offset + length)}, offset, length)
            except _OddError as odd:
                # obstore retries what fails; what succeeds and is not what was asked for is tried again here.
                if attempt == _ATTEMPTS - 1:
                    if odd.whole:
                        return self._take_whole()[offset : offset + length]
                    raise odd.error from None
                if (stop or threading.Event()).wait(_PAUSE * 2**attempt):
                    raise odd.error from None
            except SourceError as error:
                if known or type(error) is not SourceError:
                    raise
                # A store refuses a range that starts past the end, and an empty object has no other: ask how long it is.
                self._head()
                start, there = clip(self.url, offset, length, self._identity.size)
                if there == length:
                    raise
                return self._range(start, there)
        raise AssertionError  # the last attempt returns or raises

    def _take_whole(self) -> bytes:
        """The object as a whole, from a store that knows no ranges (rclone's is one); fetched once and kept."""
        with self._lock:
            if self._body is None:
                size = self.size()
                if size > self._whole:
                    raise SourceError(
                        f"the store sends no ranges, and the object ({size} bytes) is too large to take whole "
                        f"(limit {self._whole})",
                        url=self.url,
                    )
                self._body = self._get({}, 0, size)
            return self._body

    def _get(self, wanted: GetOptions, offset: int | None, length: int) -> bytes:
        _refuse_fork(self.url)
        if self._identity.etag is not None:
            wanted["if_match"] = self._identity.etag
        try:
            with tracing.Request(self._bucket.place) as request:
                start = time.perf_counter()
                answer = self._bucket.ask(lambda store: obstore.get(store, self._path, options=wanted))
                self._pace.answered(time.perf_counter() - start)
                meta = answer.meta
                self._identity.observe(meta["size"], meta["e_tag"], meta["last_modified"].timestamp())
                first, last = answer.range
                data = answer.bytes().to_bytes()
                request.bytes = len(data)
        except SourceError:
            raise
        except (BaseError, OSError, ValueError) as error:
            ours = self._ours(error, offset, length)
            if type(ours) is SourceError and _ODD.search(str(error)):
                raise _OddError(ours, whole="non-partial" in str(error)) from None
            raise ours from None
        size = meta["size"]
        begin = max(size - length, 0) if offset is None else offset
        if first != begin or len(data) != last - first or len(data) != min(length, size - begin):
            raise _OddError(
                SourceError(
                    f"the store sent bytes {first}-{first + len(data)}", url=self.url, offset=begin, length=length
                )
            )
        return data

    def _head(self) -> None:
        _refuse_fork(self.url)
        try:
            with tracing.Request(self._bucket.place):
                meta = self._bucket.ask(lambda store: obstore.head(store, self._path))
        except (BaseError, OSError, ValueError) as error:
            raise self._ours(error) from None
        self._identity.observe(meta["size"], meta["e_tag"], meta["last_modified"].timestamp())

    def _ours(self, error: Exception, offset: int | None = None, length: int | None = None) -> SourceError:
        """A library's error as one of ours."""
        if isinstance(error, PreconditionError):
            return self._identity.stale("the store has another version")
        return as_source_error(error, self.url, offset, length, anonymous=self._bucket.anonymous)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., ObjectSource], tuple[Any, ...]]:
        facts = self._identity.source() if self._identity.known or self._identity.size is not None else None
        if self._again is not None:
            return self._again, (facts,)
        make = partial(ObjectSource, gap=self._gap, limit=self._limit, width=self._width, expected=facts)
        return make, (self._bucket.store, self._path, self.url)

    def __repr__(self) -> str:
        return f"ObjectSource({self.url!r})"


def _refuse_fork(url: str) -> None:
    """An error instead of a hang: obstore's threads do not survive a fork, and a read would wait for them for ever."""
    global _process
    here = os.getpid()
    if _process is None:
        _process = here
    elif _process != here:
        raise SourceError(
            "object stores cannot be read in a forked process once its parent has read from one",
            url=url,
            hint="Start workers with the 'spawn' or 'forkserver' method of multiprocessing.",
        )


_process: int | None = None
"""The process in which obstore's own threads were started."""


def as_source_error(
    error: Exception, url: str, offset: int | None = None, length: int | None = None, *, anonymous: bool = False
) -> SourceError:
    """An error of obstore's as one of ours.

    Parameters
    ----------
    error
        Theirs.
    url, offset, length
        What was asked for.
    anonymous
        Whether it was asked for without credentials because there are none.
    """
    # The first paragraph is for people, the rest is a dump of the library's own structures. The original error is not
    # chained anywhere: its text may hold a signed address.
    said = redacted(_spoken(str(error).partition("\n\nDebug source")[0].strip()))
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such object", url=url)
    refused = isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError)
    if refused or re.search(r"status code: 40[13]\b", said):  # of a listing, obstore does not say it by the class
        without = " (no credentials were found, so it was asked anonymously)" if anonymous else ""
        return AccessError(f"the store refuses{without}: {said}", url=url, hint=_CREDENTIALS)
    if "timed out" in said or "TimedOut" in str(error):
        return TimedOutError(said, url=url, offset=offset, length=length)
    # 169.254.169.254 is where a cloud machine finds its credentials; asking there in vain means that there are none.
    hint = _CREDENTIALS if "169.254.169.254" in str(error) or "redential" in said else None
    if "redirect" in said:
        hint = 'The bucket is in another region: pass storage_options={"region": ...}.'
    return SourceError(f"the store failed: {said}", url=url, offset=offset, length=length, hint=hint)


def _spoken(text: str) -> str:
    """What a store means: of an XML answer the code and the message; the rest may repeat what we sent, keys included.

    Examples
    --------
    >>> _spoken("403 Forbidden: <?xml ?><Error><Code>NoKey</Code><Message>Who?</Message><AWSAccessKeyId>AK</AWSAccessKeyId></Error>")
    '403 Forbidden: NoKey: Who?'
    """
    begin, page, rest = text.partition("<?xml")
    if not page:
        return text
    found = [
        match[1].strip() for name in ("Code", "Message") if (match := re.search(f"<{name}>(.*?)</{name}>", rest, re.S))
    ]
    return begin + ": ".join(found)


_CREDENTIALS = (
    'Pass storage_options={"anon": True} for a public bucket, {"key": ..., "secret": ...} or {"profile": ...} for others, '
    "or set them in the environment."
)
