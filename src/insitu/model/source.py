"""Source: URL of an archive object, and the identity of its content (size, ETag, time)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import overload

__all__ = ["Comparison", "Source", "SourceSequence"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the recorded identities of two objects say: whether both have the same content."""

    same: bool | None
    """None: nothing that both have tells the content."""
    reason: str = ""
    """How they differ, or what could not be compared; empty if nothing was recorded."""


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

    @property
    def is_local_file(self) -> bool:
        """Whether the ETag is the one that we give to a local file: size and modification time in
        nanoseconds. ETags of stores are in quotes.
        """
        return self.etag is not None and self.size is not None and self.etag.startswith(f"{self.size:x}-")

    def compare(self, now: Source, *, copied: bool = False) -> Comparison:
        """Return whether an object is the one that was scanned. This is the only place where
        identities are compared.

        Sizes must be equal. Then an ETag counts for more than a date. The time of a local file and
        what a server says are different kinds: they may agree, but not contradict each other. Facts
        that either side does not know are not compared.

        Parameters
        ----------
        now
            The object as it is now.
        copied
            Whether it is a copy at another place: other ETags and dates prove nothing then.

        Examples
        --------
        >>> Source("/a.nc", 100).compare(Source("/a.nc", 99))
        Comparison(same=False, reason='its size was 100 and is now 99')
        >>> Source("/a.nc", 100, '"v1"').compare(Source("/a.nc", 100, 'W/"v1"'))
        Comparison(same=True, reason='')
        """
        if self.size is not None and now.size is not None and self.size != now.size:
            return Comparison(False, f"its size was {self.size} and is now {now.size}")
        if not self.has_version or not now.has_version:
            return Comparison(None)
        mixed = self.is_local_file is not now.is_local_file
        comparable = self.etag is not None and now.etag is not None and not mixed and not self._has_rounded_time(now)
        # A proxy that recompresses turns the same ETag into a weak one.
        if comparable and self._strong_etag == now._strong_etag:
            return Comparison(True)
        same_date: bool | None = None
        if self.modified is not None and now.modified is not None:
            # HTTP dates have whole seconds; the same file on a local path may have fractions.
            same_date = int(self.modified) == int(now.modified)
        if same_date and (copied or not comparable):
            return Comparison(True)
        if mixed:
            kinds = "a local file", "an object of a server"
            was, became = kinds if self.is_local_file else kinds[::-1]
            return Comparison(None, f"it was recorded as {was} and is now {became}")
        if comparable and not self.is_local_file:
            return Comparison(None if copied else False, f"its ETag was {self.etag} and is now {now.etag}")
        if same_date is None and not comparable:
            return Comparison(None)
        dates = f"its modification date was {_format_date(self.modified)} and is now {_format_date(now.modified)}"
        return Comparison(None if copied else False, dates)

    @property
    def has_version(self) -> bool:
        """Whether an ETag or a date is known: a size alone does not tell an object from its successor."""
        return self.etag is not None or self.modified is not None

    @property
    def _strong_etag(self) -> str:
        return (self.etag or "").removeprefix("W/")

    def _has_rounded_time(self, now: Source) -> bool:
        """Whether a file's modification time was rounded (by tar, rsync, …): ETags of local files
        cannot be compared then.
        """
        times = (self.modified, now.modified)
        return self.is_local_file and any(time is not None and float(time).is_integer() for time in times)


class SourceSequence(Sequence[Source]):
    """Base of sequences of sources that are computed or fetched when one is looked up."""

    __slots__ = ()

    @abstractmethod
    def find(self, number: int) -> Source:
        """Return the source of a number from 0 on; raise `IndexError` past the end."""

    @overload
    def __getitem__(self, number: int) -> Source: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Source]: ...
    def __getitem__(self, number: int | slice) -> Source | Sequence[Source]:
        if isinstance(number, slice):
            return [self.find(n) for n in range(*number.indices(len(self)))]
        # The length is asked for only where it must be: counting may load every manifest.
        place = int(number) if number >= 0 else int(number) + len(self)
        if place < 0:
            raise IndexError(f"no source {number}: there are {len(self)}")
        return self.find(place)


def _format_date(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(" ").replace("+00:00", " UTC")
    except (OverflowError, OSError, ValueError):  # saved references may hold any number
        return f"{seconds} s since 1970"
