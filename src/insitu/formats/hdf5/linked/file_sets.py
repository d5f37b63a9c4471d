"""Find and join the members of a set of files (family, split or multi driver).

The driver information (format specification 3.0, II.B and IV.A.2.u) names the driver that wrote the
file. Members of a family are numbered from 0, and their names are not stored, so the number in the
name of the first one is counted up. Old families have no driver information; their superblock
announces more bytes than the first member has. Split and multi sets store the names, with `%s` for
the name of the set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from insitu.errors import FormatError
from insitu.formats.hdf5.linked.joined_file import JoinedFile, SetMember
from insitu.formats.hdf5.structures.superblock import FAMILY, MULTI, SetDescription, SetMemberError, TruncatedFileError
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.sibling_files import SiblingFiles
from insitu.sources.address import file_name
from insitu.sources.listing import local_path

__all__ = ["join_set"]

BATCH = 64
"""Members that are opened at once."""
LARGEST_BLOCK = 4096
CONTENT_KINDS = 6
"""Of metadata and data, which a multi set may keep apart: superblock, B-trees, data, global heaps,
local heaps, object headers."""
GLOBAL_HEAPS = 3


def join_set(neighbours: SiblingFiles, window: ReadCache, problem: SetMemberError | TruncatedFileError) -> ReadCache:
    """Return the whole set as one file; raise the problem if that is impossible.

    Parameters
    ----------
    neighbours
        Opens the members.
    window
        The member that was opened.
    problem
        What was found out about it.
    """
    if isinstance(window.source, JoinedFile):
        raise problem
    of = problem.of
    if of.driver == MULTI:
        whole = _join_multi(neighbours, window, problem)
    elif of.driver in (FAMILY, b""):
        whole = _join_family(neighbours, window, problem)
    else:
        raise problem
    joined = ReadCache(whole, storage_options=window.storage_options)
    neighbours.replace(joined)
    return joined


def _join_family(
    neighbours: SiblingFiles, window: ReadCache, problem: SetMemberError | TruncatedFileError
) -> JoinedFile:
    """A family: pieces of one size, numbered from 0."""
    told = _driver_information(window, problem.of)
    size = int.from_bytes(told[:8], "little") if len(told) >= 8 else window.size
    if not 0 < size <= window.size:
        raise problem
    count = -(-problem.of.end // size)
    missing = ""
    for names in _numbered_names(_base_name(window.url)):
        members = [SetMember(0, size, window.source)]
        for number in range(1, count):
            if number % BATCH == 1:
                neighbours.prepare(window, [names(n) for n in range(number, min(number + BATCH, count))])
            found = neighbours.open_sibling(window, names(number))
            if found is None:
                missing = missing or names(number)
                break
            members.append(SetMember(number * size, min(found.size, size), found.source))
            if found.size < size and number < count - 1:
                raise FormatError(
                    f"a member of the family has {found.size} bytes, but {size} are needed: it is truncated",
                    url=found.url,
                    offset=found.size,
                    structure="family of files",
                )
        if len(members) == count:
            return JoinedFile(members, None, window.storage_options)
    if missing:
        problem.message += f"; {missing!r} was not found next to it"
    raise problem


class _Names(NamedTuple):
    """Names that differ in a number."""

    before: str
    width: int
    after: str

    def __call__(self, number: int) -> str:
        return f"{self.before}{number:0{self.width}d}{self.after}"


def _numbered_names(name: str) -> Iterator[_Names]:
    """Iterate over the ways to count up a name with a zero in it, the likeliest first.

    The last number of a name is the likeliest.
    """
    for found in reversed(list(re.finditer(r"(?<!\d)0+(?!\d)", name))):
        yield _Names(name[: found.start()], found.end() - found.start(), name[found.end() :])


def _join_multi(
    neighbours: SiblingFiles, window: ReadCache, problem: SetMemberError | TruncatedFileError
) -> JoinedFile:
    """Join a multi or split set.

    Each kind of content has a file with a name and a first address.
    """
    told = _driver_information(window, problem.of)
    kinds = list(told[:CONTENT_KINDS])
    unique = list(dict.fromkeys(kind for kind in kinds if 1 <= kind <= CONTENT_KINDS))
    names = told[8 + 16 * len(unique) :].split(b"\0")
    names = [name for name in names if name]
    if not unique or len(names) < len(unique):
        raise problem
    starts = [int.from_bytes(told[8 + 16 * i : 16 + 16 * i], "little") for i in range(len(unique))]
    texts = [name.decode("utf-8", "surrogateescape") for name in names[: len(unique)]]
    here = re.fullmatch(re.escape(texts[0]).replace("%s", "(.*)"), _base_name(window.url), re.DOTALL)
    if here is None or starts[0] != 0 or len(set(starts)) != len(starts):
        problem.message += f"; its name is {_base_name(window.url)!r}, but the set expects {texts[0]!r}"
        raise problem
    stem = here.group(1) if here.groups() else ""
    found: dict[int, tuple[int, ReadCache]] = {unique[0]: (0, window)}
    for kind, start, text in zip(unique[1:], starts[1:], texts[1:], strict=True):
        name = text.replace("%s", stem)
        there = neighbours.open_sibling(window, name)
        if there is None:
            problem.message += f"; {name!r} was not found next to it"
            raise problem
        found[kind] = start, there
    ends = sorted(starts)[1:]
    members: dict[int, SetMember] = {}
    for kind, (start, there) in found.items():
        following = next((end for end in ends if end > start), None)
        length = there.size if following is None else min(there.size, following - start)
        members[kind] = SetMember(start, length, there.source)
    heap = members.get(kinds[GLOBAL_HEAPS])
    return JoinedFile(sorted(members.values(), key=lambda member: member.start), heap, window.storage_options)


def _driver_information(window: ReadCache, of: SetDescription) -> bytes:
    """What the driver wrote."""
    if isinstance(of.information, bytes):
        return of.information
    head = window.source.read(of.information, 16)  # II.B: version, reserved, size, name
    length = min(int.from_bytes(head[4:8], "little"), LARGEST_BLOCK)
    return window.source.read(of.information + 16, length)


def _base_name(url: str) -> str:
    """The name of a file without its folder."""
    path = local_path(url)
    if path is not None:
        return os.path.basename(path)
    return file_name(url)
