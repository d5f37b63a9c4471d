"""How are ranges read from S3, Google Cloud Storage or Azure?

Through obstore, which signs, retries and keeps connections. Each range is a `get` of its own on the shared threads
rather than part of obstore's `get_ranges`: that one runs at most ten requests at once and says nothing of the object,
while a `get` tells size and ETag along with the bytes, so that the first read needs no `head` before it and an object
replaced between two reads is noticed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError

from insitu.errors import AccessError, NotFoundError, SourceError, StaleSourceError, TimedOutError
from insitu.model import Source
from insitu.sources.batch import GAP, LIMIT, fetch_many
from insitu.sources.identity import Identity
from insitu.sources.protocol import Range
from insitu.sources.ranges import clip
from insitu.sources.redact import displayed, redacted
from insitu.sources.threads import WIDTH

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["ObjectSource"]


class ObjectSource:
    """An object in an object store.

    Parameters
    ----------
    store
        An obstore store: `S3Store`, `GCSStore`, `AzureStore`, `MemoryStore`, `LocalStore`.
    path
        The object's key in it.
    url
        What to call it; shown without credentials.
    gap, limit, width
        For batches: bytes read along to save a request, longest merged request, requests under way at once.

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
        store: ObjectStore,
        path: str,
        url: str | None = None,
        *,
        gap: int = GAP,
        limit: int = LIMIT,
        width: int = WIDTH,
    ) -> None:
        self._store, self._path = store, path
        self._gap, self._limit, self._width = gap, limit, width
        self._identity = Identity(displayed(url or f"{type(store).__name__}://{path}"))

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
        start, there = clip(self.url, offset, length, self._identity.size)
        return self._get(start, there)

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Many ranges, those close to each other merged, all at once."""
        return fetch_many(
            self._get, self.url, ranges,
            size=self._identity.size, gap=self._gap, limit=self._limit, width=self._width,
        )  # fmt: skip

    def close(self) -> None:
        """Nothing: connections belong to the store, which others share."""

    def _get(self, offset: int, length: int, stop: threading.Event | None = None) -> bytes:
        if length == 0:
            return b""
        _refuse_fork(self.url)
        known = self._identity.known
        try:
            answer = obstore.get(self._store, self._path, options={"range": (offset, offset + length)})
            meta = answer.meta
            self._identity.observe(meta["size"], meta["e_tag"], meta["last_modified"].timestamp())
            first, last = answer.range
            data = answer.bytes().to_bytes()
        except SourceError:
            raise
        except (BaseError, OSError, ValueError) as error:
            ours = _ours(error, self.url, offset, length)
            if known or type(ours) is not SourceError:
                raise ours from None
            # A store refuses a range that starts past the end, and an empty object has no other: ask how long it is.
            self._head()
            start, there = clip(self.url, offset, length, self._identity.size)
            if there == length:
                raise ours from None
            return self._get(start, there)
        if first != offset or len(data) != last - first or len(data) != min(length, meta["size"] - offset):
            raise SourceError(
                f"the store sent bytes {first}-{first + len(data)}", url=self.url, offset=offset, length=length
            )
        return data

    def _head(self) -> None:
        _refuse_fork(self.url)
        try:
            meta = obstore.head(self._store, self._path)
        except (BaseError, OSError, ValueError) as error:
            raise _ours(error, self.url) from None
        self._identity.observe(meta["size"], meta["e_tag"], meta["last_modified"].timestamp())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ObjectSource({self.url!r})"


_process: int | None = None
"""The process in which obstore's own threads were started."""


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


def _ours(error: Exception, url: str, offset: int | None = None, length: int | None = None) -> SourceError:
    # The first paragraph is for people, the rest is a dump of the library's own structures. The original error is not
    # chained anywhere: its text may hold a signed address.
    said = redacted(str(error).partition("\n\nDebug source")[0].strip())
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such object", url=url)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return AccessError(f"the store refuses: {said}", url=url, hint=_CREDENTIALS)
    if isinstance(error, PreconditionError):
        return StaleSourceError("the object changed while it was read", url=url, hint="Scan and open it again.")
    if "timed out" in said or "TimedOut" in str(error):
        return TimedOutError(said, url=url, offset=offset, length=length)
    # 169.254.169.254 is where a cloud machine finds its credentials; asking there in vain means that there are none.
    hint = _CREDENTIALS if "169.254.169.254" in str(error) or "redential" in said else None
    if "redirect" in said:
        hint = 'The bucket is in another region: pass storage_options={"region": ...}.'
    return SourceError(f"the store failed: {said}", url=url, offset=offset, length=length, hint=hint)


_CREDENTIALS = (
    'Pass storage_options={"anon": True} for a public bucket, {"key": ..., "secret": ...} for others, '
    "or set them in the environment."
)
