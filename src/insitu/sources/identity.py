"""Identity of a remote object: detection of objects that change between scan and read, or between
reads.

A remote object can be replaced between two requests, and bytes of two versions make values that
neither has. So a remote source keeps what was recorded of the object, or else what the first
response said of it, and every later response must agree.
"""

from __future__ import annotations

import warnings
from typing import Any

from insitu.errors import InsituWarning, StaleSourceError
from insitu.model import Source
from insitu.sources.address import host_of

__all__ = ["STALE_HINT", "ObjectIdentity", "check_identity"]


class ObjectIdentity:
    """What is known of the version of one object.

    Parameters
    ----------
    url
        Where it is.
    expected
        What was recorded of it when it was scanned.

    Examples
    --------
    >>> identity = ObjectIdentity("https://host/x", Source("https://host/x", 100, '"v1"'))
    >>> identity.size, identity.condition_headers()
    (100, {'If-Match': '"v1"'})
    >>> identity.observe(100, '"v2"', None)  # doctest: +ELLIPSIS
    Traceback (most recent call last): insitu.errors.StaleSourceError: the object is not the one
    that was scanned: its ETag was "v1" and is now "v2" ...
    """

    def __init__(self, url: str, expected: Source | None = None) -> None:
        self.url = url
        self._expected = expected
        # The time of a local file is no version of an object of a server: it is compared with the
        # first response, and what responses say with each other.
        self._file = expected if expected is not None and expected.is_local_file else None
        self._facts: dict[str, Any] = {}
        if expected is not None:
            recorded: dict[str, Any] = {"size": expected.size}
            if self._file is None:
                recorded |= {"etag": expected.etag, "modified": expected.modified}
            self._facts = {name: value for name, value in recorded.items() if value is not None}

    @property
    def is_known(self) -> bool:
        """Whether a version is known, or a response has come. A size alone does not tell an object
        from its successor.
        """
        return any(name in self._facts for name in ("known", "etag", "modified"))

    @property
    def size(self) -> int | None:
        """Bytes in the object, if known."""
        return self._facts.get("size")

    @property
    def etag(self) -> str | None:
        """The ETag, if known and strong: only such a one may be used in a condition."""
        tag = self._facts.get("etag")
        return tag if isinstance(tag, str) and tag.startswith('"') else None

    def condition_headers(self) -> dict[str, str]:
        """Return the header that makes the server refuse another version, if there is something to
        go by.
        """
        if self.etag is not None:
            return {"If-Match": self.etag}
        modified = self._facts.get("modified")
        if modified is not None and "etag" not in self._facts:
            from email.utils import formatdate  # not at the top: imports sockets

            return {"If-Unmodified-Since": formatdate(modified, usegmt=True)}
        return {}

    def observe(self, size: int | None, etag: str | None, modified: float | None) -> None:
        """Record what a response says; raise `StaleSourceError` if it contradicts what is known."""
        facts, found = self._facts, Source(self.url, size, etag, modified)
        if self._file is not None and found.has_version:
            check_identity(self._file, found)
            self._file = None
        facts["known"] = True
        # setdefault is one atomic step: of threads with different news, all but one see the
        # contradiction.
        for name, value in (("size", size), ("etag", etag), ("modified", modified)):
            if value is not None:
                facts.setdefault(name, value)
        comparison = self.source().compare(found)
        if comparison.same is False:
            raise self.stale_error(comparison.reason)

    def source(self) -> Source:
        """Return the identity, as responses tell it, as a `Source` of the model."""
        return Source(self.url, self.size, self._facts.get("etag"), self._facts.get("modified"))

    @property
    def expected(self) -> Source | None:
        """What another process has to expect of the object."""
        return self.source() if self.is_known else self._expected

    def stale_error(self, reason: str) -> StaleSourceError:
        """Return the error that says how the object has changed."""
        when = "is not the one that was scanned" if self._expected is not None else "changed while it was read"
        return StaleSourceError(f"the object {when}: {reason}", url=self.url, hint=STALE_HINT)


STALE_HINT = (
    "Scan and open it again. Saved references are renewed without reading values, "
    "after a change and after copying: insitu refresh REFERENCES"
)


def check_identity(expected: Source, found: Source) -> None:
    """Raise `StaleSourceError` if an object is not the one that was recorded; warn, once for each
    host, if that cannot be known. Unknown facts count as equal.
    """
    comparison = expected.compare(found)
    if comparison.same is False:
        raise ObjectIdentity(found.url, expected).stale_error(comparison.reason)
    if comparison.same is None and comparison.reason and (host := host_of(found.url)) not in _warned_hosts:
        _warned_hosts.add(host)
        warnings.warn(
            f"only the size of {found.url} was compared with what was recorded: {comparison.reason}. The same may "
            "hold for other files there: if one was replaced by another of the same size, that is not noticed",
            InsituWarning,
            stacklevel=2,
        )


_warned_hosts: set[str] = set()
"""Hosts of which a warning has said that identities are not compared."""
