"""Which object do the bytes lie in, and is it still the one that was scanned?"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Source"]

_OF_FILE = re.compile(r"[0-9a-f]+-[0-9a-f]+")
"""The mark of a local file: size and time of change, in nanoseconds. Marks that stores give are in quotes."""


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

    def difference(self, now: Source) -> str | None:
        """Why an object is not the one that was scanned; None if it is. What either side does not know counts as equal.

        Parameters
        ----------
        now
            What the object's place says of itself at present.

        Examples
        --------
        >>> Source("/a.nc", 100).difference(Source("/a.nc", 99))
        'its size was 100 and is now 99'
        >>> Source("/a.nc", 100, '"v1"').difference(Source("/a.nc", 100, 'W/"v1"'))
        """
        if self.size is not None and now.size is not None and self.size != now.size:
            return f"its size was {self.size} and is now {now.size}"
        if self.etag is not None and now.etag is not None and not self._has_rounded_times(now):
            # A proxy that recompresses marks the same tag as weak.
            same = self.etag.removeprefix("W/") == now.etag.removeprefix("W/")
            return None if same else f"its ETag was {self.etag} and is now {now.etag}"
        # Dates of the web have whole seconds; the same file seen by another way may have fractions.
        if self.modified is not None and now.modified is not None and int(self.modified) != int(now.modified):
            return "its modification date changed"
        return None

    def _has_rounded_times(self, now: Source) -> bool:
        """Whether the marks are those of files one of whose times was rounded (by an archive, or a slow link): they say nothing then."""
        times = (self.modified, now.modified)
        return any(time is not None and float(time).is_integer() for time in times) and all(
            etag is not None and _OF_FILE.fullmatch(etag) for etag in (self.etag, now.etag)
        )
