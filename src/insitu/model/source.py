"""Source: URL of an archive object, and the identity of its content (size, ETag, time)."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Source"]

_LOCAL_FILE_ETAG = re.compile(r"[0-9a-f]+-[0-9a-f]+")
"""The ETag that we give to a local file: size and modification time in nanoseconds.

ETags of stores are in quotes.
"""


@dataclass(frozen=True, slots=True)
class Source:
    """One archive object, and what identifies its content.

    A chunk table refers to its sources by position. If `size`, `etag` or `modified` has changed,
    offsets may be wrong.
    """

    url: str
    """URL or path of the object."""
    size: int | None = None
    """Bytes in it, if known."""
    etag: str | None = None
    """ETag of the content, if the store gives one."""
    modified: float | None = None
    """Seconds since 1970 of the last change, if known."""
    optional: bool = False
    """Whether a missing object is a chunk that was never written (Zarr keys)."""

    def difference(self, now: Source) -> str | None:
        """Return how an object differs from the one that was scanned; None if it is the same.

        Facts that either side does not know count as equal.

        Parameters
        ----------
        now
            The object as it is now.

        Examples
        --------
        >>> Source("/a.nc", 100).difference(Source("/a.nc", 99))
        'its size was 100 and is now 99'
        >>> Source("/a.nc", 100, '"v1"').difference(Source("/a.nc", 100, 'W/"v1"'))
        """
        if self.size is not None and now.size is not None and self.size != now.size:
            return f"its size was {self.size} and is now {now.size}"
        if self.etag is not None and now.etag is not None and not self._has_rounded_times(now):
            # A proxy that recompresses turns the same ETag into a weak one.
            same = self.etag.removeprefix("W/") == now.etag.removeprefix("W/")
            return None if same else f"its ETag was {self.etag} and is now {now.etag}"
        # HTTP dates have whole seconds; the same file on a local path may have fractions.
        if self.modified is not None and now.modified is not None and int(self.modified) != int(now.modified):
            return "its modification date changed"
        return None

    def _has_rounded_times(self, now: Source) -> bool:
        """Whether a file's modification time was rounded (by tar, rsync, …): ETags of local files
        cannot be compared then.
        """
        times = (self.modified, now.modified)
        return any(time is not None and float(time).is_integer() for time in times) and all(
            etag is not None and _LOCAL_FILE_ETAG.fullmatch(etag) for etag in (self.etag, now.etag)
        )
