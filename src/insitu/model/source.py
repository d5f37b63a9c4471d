"""Which object do the bytes lie in, and is it still the one that was scanned?"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """One archive object, with what identifies its present content.

    A chunk table names its sources by position; a changed `size`, `etag` or `modified` means that the offsets may lie.
    """

    url: str
    """Where the object is: a URL, or a path."""
    size: int | None = None
    """Bytes in it, if known."""
    etag: str | None = None
    """The store's own mark of this content, if it has one."""
    modified: float | None = None
    """Seconds since 1970 of the last change, if known."""
    optional: bool = False
    """A Zarr key: an object that is not there is a chunk that was never written."""
