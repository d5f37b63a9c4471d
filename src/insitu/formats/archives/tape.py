"""Which members has a tar archive, and where are they?

Headers of 512 bytes, each in front of its member (POSIX ustar); long names and large sizes stand in members of their own in front of it (GNU `L`, pax `x` and `g`). The walk hops from header to header.
"""

from __future__ import annotations

from insitu.errors import FormatError
from insitu.formats.archives.member import Member
from insitu.formats.hdf5.walk import Walk

__all__ = ["is_header", "tar_members"]

BLOCK = 512
MEMBERS_LIMIT = 1 << 20
LARGEST_NOTE = 1 << 20
"""Bytes of a long name or of pax records."""


def is_header(block: bytes) -> bool:
    """Whether a block is the header of a member: its checksum is right."""
    if len(block) < BLOCK or not any(block[:100]):
        return False
    try:
        said = _octal(block[148:156])
    except ValueError:
        return False
    return said == sum(block[:148]) + 8 * 32 + sum(block[156:BLOCK])


def _octal(data: bytes) -> int:
    if data[:1] == b"\x80":  # GNU: binary
        return int.from_bytes(data[1:], "big")
    text = data.split(b"\0", 1)[0].strip()
    return int(text, 8) if text else 0


def tar_members(size: int, url: str) -> Walk[list[Member]]:
    """All members that are plain files."""
    found: list[Member] = []
    at, name, length = 0, None, None
    while at + BLOCK <= size:
        (block,) = yield [(at, BLOCK)]
        if not any(block):
            return found  # two empty blocks end the archive
        if not is_header(block):
            raise FormatError("the header of a member is damaged", url=url, offset=at, structure="tar header")
        kind = block[156:157]
        own = _octal(block[124:136])
        if kind in (b"L", b"x", b"g", b"K"):
            if own > LARGEST_NOTE or at + BLOCK + own > size:
                raise FormatError(f"a note of {own} bytes", url=url, offset=at, structure="tar header")
            (note,) = yield [(at + BLOCK, own)]
            if kind == b"L":
                name = note.split(b"\0", 1)[0].decode("utf-8", "replace")
            elif kind == b"x":
                told = _records(note)
                name = told.get("path", name)
                length = int(told["size"]) if "size" in told else length
            at += BLOCK + -(-own // BLOCK) * BLOCK
            continue
        nbytes = own if length is None else length
        if nbytes < 0 or nbytes > size:
            raise FormatError(f"a member of {nbytes} bytes", url=url, offset=at, structure="tar header")
        if kind in (b"0", b"\0", b"7"):
            short = at + BLOCK + nbytes > size
            found.append(
                Member(name or _name(block), at + BLOCK, nbytes, "the archive ends before it does" if short else "")
            )
            if len(found) > MEMBERS_LIMIT:
                raise FormatError(f"more than {MEMBERS_LIMIT} members", url=url, offset=at, structure="tar header")
        at += BLOCK + -(-nbytes // BLOCK) * BLOCK
        name, length = None, None
    return found


def _name(block: bytes) -> str:
    name = block[:100].split(b"\0", 1)[0].decode("utf-8", "replace")
    prefix = block[345:500].split(b"\0", 1)[0].decode("utf-8", "replace") if block[257:262] == b"ustar" else ""
    return f"{prefix}/{name}" if prefix and block[257:265] == b"ustar\00000" else name


def _records(note: bytes) -> dict[str, str]:
    """pax: `length key=value` lines."""
    found: dict[str, str] = {}
    while note:
        number, space, _ = note.partition(b" ")
        if not space or not number.isdigit() or not len(number) + 1 < int(number) <= len(note):
            break
        key, _, value = note[len(number) + 1 : int(number) - 1].partition(b"=")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        note = note[int(number) :]
    return found
