"""Source with a disk cache: remote bytes are fetched once, in this process or a later one.

Ranges on disk come from there, the rest in one batch from the inner source. Ranges are kept as they
are requested, so whoever reads chunk by chunk finds them again, whatever selection wants them next.
Cached bytes belong to a version of the object (its ETag, or size and date); an object that has
neither cannot be told from its successor, and is not cached. They also belong to the credentials
and the endpoint that they were read with.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from insitu.errors import SourceError
from insitu.model import Source
from insitu.sources import tracing
from insitu.sources.access_policy import has_access_policy
from insitu.sources.address import scheme_of
from insitu.sources.disk_cache import DiskCache
from insitu.sources.protocol import ByteSource, Range, WrappedSource, read_tail
from insitu.sources.ranges import clip_all
from insitu.sources.redaction import split_userinfo
from insitu.sources.user_folders import user_cache_folder

__all__ = ["CachedSource", "cache_for", "cache_scope"]


class CachedSource(WrappedSource):
    """A source that caches on disk what it reads from another source.

    Parameters
    ----------
    source
        The source to read from.
    cache
        Where to keep it.
    expected
        What was recorded of the object. Without it a first request goes to the inner source in any
        case, because its answer tells the version.
    scope
        Of the credentials it is read with (see `cache_scope`): what others have read is not given.
    """

    keeps_ranges = True

    def __init__(self, source: ByteSource, cache: DiskCache, expected: Source | None = None, scope: str = "") -> None:
        super().__init__(source)
        self.cache = cache
        self._scope = f" {scope}" if scope else ""
        # The time of a local file does not tell the version of an object of a server.
        self._known = expected is not None and _version(expected) is not None and not expected.is_local_file

    def read(self, offset: int, length: int) -> bytes:
        """Return one range."""
        return self.read_many([(offset, length)])[0]

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges: those on disk from there, the others from the inner source."""
        if not self._known and len(ranges) == 1 and ranges[0][1] <= _FIRST_READ_LIMIT:
            return self._read_first(ranges)
        # Asked of `describe`, not of `size`: a server may never tell the size, and that need not
        # hurt.
        facts = self.source.describe()
        version = self._version(facts)
        self._known = True
        if version is None:
            return self.source.read_many(ranges)
        clipped = clip_all(self.url, ranges, facts.size)
        names = [self.cache.key(self.url, version, offset, length) if length else "" for offset, length in clipped]
        found = [self.cache.get(name) if name else b"" for name in names]
        missing = [at for at, data in enumerate(found) if data is None]
        hits = [data for name, data in zip(names, found, strict=True) if name and data is not None]
        if hits:
            tracing.report_hits(len(hits), sum(map(len, hits)))
        if missing:
            tracing.report_misses(len(missing))
            for at, data in zip(missing, self.source.read_many([clipped[at] for at in missing]), strict=True):
                found[at] = data
                if len(data) == clipped[at][1]:
                    self.cache.put(names[at], data)
        return [data for data in found if data is not None]

    def _read_first(self, ranges: Sequence[Range]) -> list[bytes]:
        """Read past the cache, and learn the version from the response."""
        tracing.report_misses(len(ranges))
        found = self.source.read_many(ranges)
        facts = self.source.describe()
        version = self._version(facts)
        if version is not None:
            for (offset, length), data in zip(ranges, found, strict=True):
                if data and len(data) == length:
                    self.cache.put(self.cache.key(self.url, version, offset, length), data)
        self._known = True
        return found

    def _version(self, facts: Source) -> str | None:
        version = _version(facts)
        return None if version is None else version + self._scope

    def tail(self, length: int) -> bytes:
        """Return the last bytes."""
        if self._known and (size := self.source.describe().size) is not None:
            return self.read(max(size - length, 0), min(length, size))
        found = read_tail(self.source, length)
        self._known = True
        return found


_FIRST_READ_LIMIT = 256 << 10
"""A first read up to this size is the request that tells the version; it costs no more than one for
a single byte.
"""


def cache_for(options: Mapping[str, Any]) -> DiskCache | None:
    """Return the cache that `storage_options` ask for: a `DiskCache`, a folder, or True for the
    default folder.
    """
    option = options.get("cache")
    if option is None or option is False:
        return None
    if isinstance(option, DiskCache):
        return option
    if option is True:
        return _cache_at(str(user_cache_folder()))
    if isinstance(option, str | os.PathLike):
        return _cache_at(os.fspath(option))
    raise SourceError(
        f"the storage option 'cache' must be a folder or a DiskCache, not {type(option).__name__}", url=None
    )


_IDENTITY_OPTIONS = ("endpoint_url", "client_kwargs", "account_name", "key", "profile", "bearer_token", "headers")
"""Options that identify the reader and the endpoint. Not those that change from hour to hour
(session tokens, signatures): with them the same person would never find a cached range again."""


def cache_scope(url: str, options: Mapping[str, Any]) -> str:
    """Return a digest of the credentials and the endpoint, for the keys of a cache on disk.

    Under an access policy all options count, because the process reads for many clients.
    """
    if has_access_policy():
        identity = {name: value for name, value in options.items() if name != "cache"}
    else:
        identity = {name: options[name] for name in _IDENTITY_OPTIONS if options.get(name)}
    if "@" in url and scheme_of(url) in ("http", "https") and (userinfo := split_userinfo(url)[1]) is not None:
        identity["userinfo"] = userinfo
    if not identity:
        return ""
    from insitu.sources.http.login import credential_scope  # it loads HTTP along, which a local scan need not

    return credential_scope(identity)


@lru_cache(16)
def _cache_at(folder: str) -> DiskCache:
    """Return the one cache of a folder: it knows how full the folder is."""
    return DiskCache(folder)


def _version(facts: Source) -> str | None:
    if facts.etag is not None:
        return f"{facts.size} {facts.etag.removeprefix('W/')}"
    return f"{facts.size} {facts.modified}" if facts.modified is not None and facts.size is not None else None
