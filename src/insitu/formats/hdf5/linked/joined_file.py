"""Byte source that presents the members of a set of files as one file.

A family is one file cut into pieces of equal size. A split or multi set keeps metadata and data in
separate files, each with its own range of addresses. Offsets are the addresses of the set; `runs`
gives the member and the offset in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from insitu.errors import FormatError
from insitu.model import Source
from insitu.sources import open_source
from insitu.sources.protocol import ByteSource, Range

__all__ = ["JoinedFile", "MemberRun", "SetMember", "as_joined_file"]

READ_AHEAD_LIMIT = 2 << 20
"""Bytes that may be read behind the end of a member."""


class SetMember(NamedTuple):
    """One file of a set."""

    start: int
    """The address of its first byte."""
    length: int
    source: ByteSource


class MemberRun(NamedTuple):
    """Bytes that lie in one file."""

    member: SetMember
    offset: int
    """In that file."""
    length: int


class JoinedFile:
    """Several files as one byte source; their openers close them.

    Parameters
    ----------
    members
        In the order of their addresses. The first is the one that the set is known by.
    heap
        The member that values of varying length lie in, if it is always the same.
    storage_options
        With which they were opened.
    """

    __slots__ = ("_starts", "heap", "members", "storage_options")

    def __init__(
        self, members: Sequence[SetMember], heap: SetMember | None, storage_options: Mapping[str, object] | None
    ) -> None:
        self.members, self.heap, self.storage_options = tuple(members), heap, storage_options
        self._starts = [member.start for member in members]

    @property
    def url(self) -> str:
        """URL of the first member."""
        return self.members[0].source.url

    def size(self) -> int:
        """Return the address behind the last member."""
        last = self.members[-1]
        return last.start + last.length

    def describe(self) -> Source:
        """Return the description of the first member."""
        return self.members[0].source.describe()

    def runs(self, offset: int, length: int) -> list[MemberRun]:
        """Return the members that hold a range; raise `FormatError` if none does."""
        runs: list[MemberRun] = []
        at, end = offset, offset + length
        while at < end:
            member = self.members[max(0, bisect_right(self._starts, at) - 1)]
            inside = at - member.start
            some = min(end - at, member.length - inside)
            if inside < 0 or some <= 0:
                raise FormatError(
                    "an address lies in no file of the set",
                    url=member.source.url,
                    offset=inside,
                    structure="set of files",
                )
            runs.append(MemberRun(member, inside, some))
            at += some
        return runs

    def read(self, offset: int, length: int) -> bytes:
        """Read one range; fewer bytes are returned where the set ends."""
        return self.read_many([(offset, max(0, min(length, self.size() - offset)))])[0]

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Read many ranges.

        Zeros follow the end of a member that is not followed by another at once: some callers read
        a little further than they must.
        """
        wanted = [self._clip_to_members(*place) for place in ranges]
        found: dict[int, list[bytes]] = {}
        for number, member in enumerate(self.members):
            here = [(run.offset, run.length) for runs in wanted for run in runs if run.member is member]
            if here:
                found[number] = member.source.read_many(here)[::-1]
        places = {id(member): number for number, member in enumerate(self.members)}
        blocks = [b"".join(found[places[id(run.member)]].pop() for run in runs) for runs in wanted]
        return [block.ljust(length, b"\0") for block, (_, length) in zip(blocks, ranges, strict=True)]

    def _clip_to_members(self, offset: int, length: int) -> list[MemberRun]:
        """In which files a range lies, without what is behind an end."""
        member = self.members[max(0, bisect_right(self._starts, offset) - 1)]
        end = member.start + member.length
        gap = end not in self._starts and end - offset < length <= end - offset + READ_AHEAD_LIMIT
        return self.runs(offset, max(0, end - offset) if gap else length)

    def beside(self, url: str) -> ByteSource:
        """Open another URL the way the first member does."""
        first = self.members[0].source
        beside = getattr(first, "beside", None)
        found: ByteSource = open_source(url, self.storage_options) if beside is None else beside(url)
        return found

    def close(self) -> None:
        """Do nothing: the members belong to their openers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def as_joined_file(source: ByteSource) -> JoinedFile | None:
    """Return the source as a `JoinedFile` if it is a set of files, else None."""
    return source if isinstance(source, JoinedFile) else None
