"""Source for any file system of fsspec: `simplecache::`, `sftp://`, `zip://` and others.

Batches go through `cat_ranges`. Files, web servers and object stores have sources of their own and
do not come here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from insitu.errors import AccessError, NotFoundError, SourceError, UnsupportedError
from insitu.model import Source
from insitu.sources import tracing
from insitu.sources.access_policy import refuse_third_party
from insitu.sources.address import host_of
from insitu.sources.coalesce import frugal_gap, merge_ranges, split_answers
from insitu.sources.protocol import Range, SourceBase
from insitu.sources.ranges import clip, clip_all
from insitu.sources.redaction import redact_text, redact_url

__all__ = ["FsspecSource"]


class FsspecSource(SourceBase):
    """A file of any fsspec file system.

    Parameters
    ----------
    url
        As fsspec takes it, chains included.
    options
        Passed to fsspec as they are.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._unredacted_url, self._options = url, dict(options or {})
        self._url = redact_url(url)
        refuse_third_party(url)
        try:
            core = importlib.import_module("fsspec.core")
        except ImportError:
            raise UnsupportedError(
                "this kind of URL is not supported without fsspec", url=self._url, hint=FSSPEC_HINT
            ) from None
        try:
            self._files, self._path = core.url_to_fs(url, **self._options)
            self._facts: dict[str, Any] = self._files.info(self._path)
        except (ValueError, ImportError) as error:
            raise UnsupportedError(redact_text(str(error)), url=self._url) from None
        except OSError as error:
            raise self._to_source_error(error) from None
        if self._facts.get("type") == "directory":
            raise SourceError("this is a directory, not a file", url=self._url)
        self._size = int(self._facts["size"])

    def describe(self) -> Source:
        """Return what the file system reports of the file."""
        etag = self._facts.get("ETag") or self._facts.get("etag")
        modified = self._facts.get("mtime") or self._facts.get("LastModified")
        stamp = getattr(modified, "timestamp", None)
        seconds = stamp() if callable(stamp) else modified
        return Source(
            self._url,
            self._size,
            etag if isinstance(etag, str) else None,
            float(seconds) if isinstance(seconds, int | float) else None,
        )

    def read(self, offset: int, length: int) -> bytes:
        """Return one range."""
        start, available = clip(self._url, offset, length, self._size)
        if not available:
            return b""
        try:
            with tracing.Request(host_of(self._url)) as request:
                data = bytes(self._files.cat_file(self._path, start=start, end=start + available))
                request.bytes = len(data)
                return data
        except (OSError, ValueError) as error:
            raise self._to_source_error(error, offset, length) from None

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges, concurrently where the file system does that."""
        clipped = clip_all(self._url, ranges, self._size)
        lengths = [length for _, length in clipped]
        plan = merge_ranges([offset for offset, _ in clipped], lengths, frugal_gap(lengths, 8192))
        begin, end = plan.offset.tolist(), (plan.offset + plan.length).tolist()
        if not begin:
            return [b""] * len(clipped)
        try:
            with tracing.Request(host_of(self._url), len(begin)) as request:
                fetched = self._files.cat_ranges([self._path] * len(begin), begin, end, on_error="raise")
                request.bytes = sum(map(len, fetched))
        except (OSError, ValueError) as error:
            raise self._to_source_error(error) from None
        return split_answers(plan, lengths, fetched)

    def _to_source_error(self, error: Exception, offset: int | None = None, length: int | None = None) -> SourceError:
        reason = redact_text(str(error)) or type(error).__name__
        if isinstance(error, FileNotFoundError):
            return NotFoundError("no such file", url=self._url)
        if isinstance(error, PermissionError):
            return AccessError(f"permission to read the file is denied: {reason}", url=self._url)
        return SourceError(f"reading failed: {reason}", url=self._url, offset=offset, length=length)

    def __reduce__(self) -> tuple[type[FsspecSource], tuple[str, dict[str, Any]]]:
        return FsspecSource, (self._unredacted_url, self._options)


FSSPEC_HINT = "Try `pip install fsspec`, and the package that handles this scheme"
