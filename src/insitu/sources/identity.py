"""Identity of a remote object: detection of objects that change between scan and read, or between
reads.

A remote object can be replaced between two requests, and bytes of two versions make values that
neither has. So a remote source keeps what was recorded of the object, or else what the first
response said of it, and every later response must agree.
"""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

from insitu.errors import StaleSourceError
from insitu.model import Source

__all__ = ["ObjectIdentity", "check_identity"]


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
        self._recorded = expected is not None
        self._facts: dict[str, Any] = {}
        if expected is not None:
            said = {"size": expected.size, "etag": expected.etag, "modified": expected.modified}
            self._facts = {name: value for name, value in said.items() if value is not None}

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
            return {"If-Unmodified-Since": formatdate(modified, usegmt=True)}
        return {}

    def observe(self, size: int | None, etag: str | None, modified: float | None) -> None:
        """Record what a response says; raise `StaleSourceError` if it contradicts what is known."""
        facts = self._facts
        facts["known"] = True
        # setdefault is one atomic step: of threads with different news, all but one see the
        # contradiction.
        if size is not None and facts.setdefault("size", size) != size:
            raise self.stale_error(f"its size was {facts['size']} and is now {size}")
        if etag is not None and _without_weak_mark(facts.setdefault("etag", etag)) != _without_weak_mark(etag):
            raise self.stale_error(f"its ETag was {facts['etag']} and is now {etag}")
        # With an ETag the date says nothing more, and mirrors behind one name may differ in it.
        if (
            modified is not None
            and _is_other_date(facts.setdefault("modified", modified), modified)
            and "etag" not in facts
        ):
            raise self.stale_error("its modification date changed")

    def source(self) -> Source:
        """Return the identity as a `Source` of the model."""
        return Source(self.url, self.size, self._facts.get("etag"), self._facts.get("modified"))

    def stale_error(self, how: str) -> StaleSourceError:
        """Return the error that says how the object has changed."""
        when = "is not the one that was scanned" if self._recorded else "changed while it was read"
        return StaleSourceError(f"the object {when}: {how}", url=self.url, hint="Scan and open it again.")


def check_identity(expected: Source, found: Source) -> None:
    """Raise `StaleSourceError` if an object is not the one that was recorded; unknown facts count
    as equal.
    """
    how = expected.difference(found)
    if how is not None:
        raise ObjectIdentity(found.url, expected).stale_error(how)


def _without_weak_mark(etag: str) -> str:
    # A proxy that recompresses marks the same tag as weak.
    return etag.removeprefix("W/")


def _is_other_date(one: float, two: float) -> bool:
    # HTTP dates have whole seconds; the same file seen by another way may have fractions.
    return int(one) != int(two)
