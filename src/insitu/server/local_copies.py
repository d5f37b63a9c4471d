"""Local copies of remote objects (roots `URL=FOLDER`), compared with the objects before they are read.

A client says of which version of an object it wants values: what it has recorded of it is compared
with the copy (`Source.compare`). An equal ETag or date is enough. Dates of copies often differ,
though, and then nothing is proven: the server reads the head of the object and some of the chunks
that the request wants from both sides. What cannot be compared is refused, unless the operator
trusts the copies.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy as shallow_copy
from dataclasses import replace
from typing import Any

from insitu.cancellation import LateError
from insitu.errors import SourceError, StaleSourceError
from insitu.lru import LruCache
from insitu.model import Source
from insitu.sources import ByteSource, open_source
from insitu.sources.protocol import Range, WrappedSource
from insitu.sources.storage_options import options_for

__all__ = ["LocalCopies"]

HEAD_BYTES = 64 << 10
"""Bytes at the beginning that are compared: headers and superblocks lie there."""
SAMPLED_CHUNKS = 8
"""Number of chunks that are compared."""
SAMPLED_BYTES = 1 << 20
"""Bytes of a chunk that are compared, at most."""
MAX_REMEMBERED = 4096
"""Number of copies of which the result is remembered."""
COMPARE_OPTIONS = {"retries": 1, "connect_timeout": 5, "timeout": 20}
"""Storage options of comparing: the URL may lead to where this machine cannot reach."""


class LocalCopies:
    """Opens the local copies of objects.

    Parameters
    ----------
    path
        Returns the local path of a URL under a root `URL=FOLDER`; any other URL as it is.
    trusted
        Whether copies of the right size are read without a proof.
    fresh
        Seconds for which a copy counts as proven where the client does not say which version it
        wants, and as refused where the object could not be read.
    """

    def __init__(self, path: Callable[[str], str], trusted: bool = False, fresh: float = 30.0) -> None:
        self.path, self.trusted, self.fresh = path, trusted, fresh
        self._results: LruCache[Any, tuple[float, StaleSourceError | None]] = LruCache(MAX_REMEMBERED)

    def open(self, source: Source, options: Mapping[str, Any]) -> ByteSource:
        """Open a source: from its local copy if there is one.

        Raises
        ------
        StaleSourceError
            If the copy is of another version. Where that is not known yet, the first read raises it.
        """
        path = self.path(source.url)
        if path == source.url:
            return open_source(path, options, expected=source)
        copy = open_source(path, options)
        found = copy.describe()
        comparison = source.compare(found, copied=True)
        if comparison.same is False:
            copy.close()
            raise _stale_copy_error(source.url, comparison.reason)
        if comparison.same or self.trusted:
            return copy
        # Caches of chunks keep apart what was read for different versions.
        about = replace(found, etag=f"{found.etag} as {source.etag} of {source.modified}")
        return _UnprovenCopy(copy, about, lambda ranges: self._prove(source, found, copy, ranges, options))

    def checked_path(self, url: str, options: Mapping[str, Any]) -> str:
        """Return the local path from which an archive is scanned, or the URL as it is.

        Raises
        ------
        StaleSourceError
            If the copy is of another version than the object has now.
        """
        path = self.path(url)
        # Of a store in a folder, each of many objects would have to be compared.
        if path != url and not self.trusted and os.path.isfile(path):
            with open_source(path) as copy:
                step = max(copy.size() // SAMPLED_CHUNKS, 1)
                ranges = [(offset, HEAD_BYTES) for offset in range(0, copy.size(), step)]
                self._prove(Source(url), copy.describe(), copy, ranges, options)
        return path

    def _prove(
        self, source: Source, found: Source, copy: ByteSource, ranges: Sequence[Range], options: Mapping[str, Any]
    ) -> None:
        """Compare a copy with the object, unless that was done before; raise if they are not equal."""
        key = (source.url, source.size, source.etag, source.modified, found.etag)
        known = self._results.get(key)
        if known is None or time.monotonic() > known[0]:
            error = _compare_bytes(source, found, copy, ranges, options)
            # Of a version that the client names, the result holds for good.
            lasting = error is None and source.has_version
            known = (float("inf") if lasting else time.monotonic() + self.fresh, error)
            self._results.put(key, known)
        if known[1] is not None:
            raise shallow_copy(known[1])


class _UnprovenCopy(WrappedSource):
    """A local copy that is compared with the object when it is first read.

    Parameters
    ----------
    copy
        The copy.
    about
        What identifies the copy, and the version that it has to be of.
    prove
        Raises if the copy is not equal to the object; called with the ranges that are read first.
    """

    def __init__(self, copy: ByteSource, about: Source, prove: Callable[[Sequence[Range]], None]) -> None:
        super().__init__(copy)
        self._about, self._prove, self._lock, self._proven = about, prove, threading.Lock(), False

    def describe(self) -> Source:
        """Return what identifies the copy, and the version that it has to be of."""
        return self._about

    def read(self, offset: int, length: int) -> bytes:
        """Return one range of the copy."""
        return self.read_many([(offset, length)])[0]

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges of the copy."""
        with self._lock:
            if not self._proven:
                self._prove(ranges)
                self._proven = True
        return self.source.read_many(ranges)


def _compare_bytes(
    source: Source, found: Source, copy: ByteSource, ranges: Sequence[Range], options: Mapping[str, Any]
) -> StaleSourceError | None:
    """Return the error of a copy that is not equal to the object, or cannot be compared with it;
    None if it is equal.
    """
    try:
        with open_source(
            source.url, {**options_for(source.url, options), **COMPARE_OPTIONS}, expected=source
        ) as remote:
            comparison = remote.describe().compare(found, copied=True)
            if comparison.same is False:
                return _stale_copy_error(source.url, comparison.reason)
            if comparison.same or _digest(remote, ranges) == _digest(copy, ranges):
                return None
    except (StaleSourceError, LateError):
        raise
    except SourceError as problem:
        return StaleSourceError(
            f"the server reads this object from a local copy, and cannot compare the two: {problem.message}",
            url=source.url,
            hint="Ask the operator of the server to give the copy the date of the object, to let the server read the "
            "object, or to set --trust-copies",
        )
    return _stale_copy_error(source.url, "their bytes differ")


def _digest(source: ByteSource, ranges: Sequence[Range]) -> bytes:
    """Return a digest of the head of an object and of a sample of chunks."""
    step = max(-(-len(ranges) // SAMPLED_CHUNKS), 1)
    sample = [(0, HEAD_BYTES), *((offset, min(length, SAMPLED_BYTES)) for offset, length in ranges[::step])]
    return hashlib.sha256(b"".join(source.read_many(sample))).digest()


def _stale_copy_error(url: str, reason: str) -> StaleSourceError:
    return StaleSourceError(
        f"the local copy of the server is not this object: {reason}",
        url=url,
        hint="Read without the server, or ask its operator to renew the copy",
    )
