"""List the entries of a tar archive.

A header of 512 bytes precedes each entry (POSIX ustar). Long names and large sizes stand in
entries of their own in front of it (GNU `L`, pax `x` and `g`). The list is read by hopping from
header to header.
"""

from __future__ import annotations

from insitu.errors import FormatError
from insitu.formats.containers.archive_entry import ArchiveEntry
from insitu.formats.parsing.scheduler import Walk

__all__ = ["is_header", "resembles_header", "tar_entries"]

BLOCK = 512
ENTRIES_LIMIT = 1 << 20
LARGEST_NOTE = 1 << 20
"""Bytes of a long name or of pax records."""
_ASCII = bytes(range(128))
PLAIN, HARD_LINK, SPARSE = (b"0", b"\0", b"7"), b"1", b"S"


def is_header(block: bytes) -> bool:
    """Return whether a block is the header of an entry: its checksum is right."""
    if len(block) < BLOCK or not any(block[:100]):
        return False
    try:
        declared = _parse_octal(block[148:156])
    except ValueError:
        return False
    if not declared:
        return False
    rest = block[:148] + block[156:BLOCK]
    total = sum(rest) + 8 * 32
    # The sum of unsigned bytes; some old writers took them as signed.
    return declared == total or declared == total - 256 * len(rest.translate(None, _ASCII))


def resembles_header(block: bytes) -> bool:
    """Return whether a block is the header of an entry, except for some bits: it has its magic, or numbers in
    the places of mode, owner, size and time.
    """
    numbers = block[100:148]
    return len(block) >= BLOCK and (
        block[257:262] == b"ustar" or (len(numbers.strip(b"\0 ")) > 40 and not numbers.strip(b"01234567 \0"))
    )


def _parse_octal(data: bytes) -> int:
    if data[:1] == b"\x80":  # GNU: binary
        return int.from_bytes(data[1:], "big")
    text = data.split(b"\0", 1)[0].strip()
    return int(text, 8) if text else 0


def tar_entries(size: int) -> Walk[list[ArchiveEntry]]:
    """Return all entries that are plain files."""
    found: list[ArchiveEntry] = []
    names: dict[str, int] = {}
    at = 0
    extended: dict[str, str] = {}
    while at + BLOCK <= size:
        (block,) = yield [(at, BLOCK)]
        if not any(block):
            return found  # two empty blocks end the archive
        if not is_header(block):
            raise FormatError("the tar header of a member is damaged", offset=at, structure="tar header")
        kind = block[156:157]
        own = _parse_size(block[124:136], at)
        if kind in (b"L", b"x", b"g", b"K"):
            if own > LARGEST_NOTE or at + BLOCK + own > size:
                raise FormatError(f"an extended header of {own} bytes is too large", offset=at, structure="tar header")
            (note,) = yield [(at + BLOCK, own)]
            if kind == b"L":
                extended["path"] = note.split(b"\0", 1)[0].decode("utf-8", "replace")
            elif kind == b"x":
                extended |= _parse_pax_records(note)
            at += BLOCK + _round_up_to_block(own)
            continue
        nbytes = own if not extended.get("size", "").isdecimal() else int(extended["size"])
        if nbytes < 0 or nbytes > size:
            raise FormatError(
                f"a member of {nbytes} bytes is larger than the archive", offset=at, structure="tar header"
            )
        name = extended.get("GNU.sparse.name", extended.get("path")) or _name(block)
        begin = at + BLOCK
        if kind == SPARSE and block[482]:  # more of the map of a sparse file, in blocks that may go on
            begin = yield from _skip_sparse_map(begin, size)
        entry = _entry(name, kind, begin, nbytes, size, extended)
        if kind == HARD_LINK:
            target = block[157:257].split(b"\0", 1)[0].decode("utf-8", "replace")
            target = extended.get("linkpath", target)
            entry = found[names[target]]._replace(name=name) if target in names else None
            nbytes = 0
        if entry is not None:
            names[name] = len(found)
            found.append(entry)
        if len(found) > ENTRIES_LIMIT:
            raise FormatError(f"the archive has more than {ENTRIES_LIMIT} members", offset=at, structure="tar header")
        at = begin + _round_up_to_block(nbytes)
        extended = {}
    return found


def _entry(name: str, kind: bytes, begin: int, nbytes: int, size: int, extended: dict[str, str]) -> ArchiveEntry | None:
    """Return a plain file as an entry; None for links, folders and devices."""
    problem = ""
    if kind == SPARSE or any(key.startswith("GNU.sparse.") for key in extended):
        problem = "it is stored as a sparse file"
    elif kind not in PLAIN:
        return None
    elif begin + nbytes > size:
        problem = "the archive is truncated before its end"
    return ArchiveEntry(name, begin, nbytes, problem)


def _skip_sparse_map(at: int, size: int) -> Walk[int]:
    """Return where the bytes of a sparse file begin.

    Behind map blocks, each of which says whether one more follows.
    """
    while at + BLOCK <= size:
        (block,) = yield [(at, BLOCK)]
        at += BLOCK
        if not block[504]:
            return at
    raise FormatError("the archive ends within the map of a sparse file", offset=at, structure="tar header")


def _round_up_to_block(nbytes: int) -> int:
    return -(-nbytes // BLOCK) * BLOCK


def _parse_size(data: bytes, at: int) -> int:
    try:
        return _parse_octal(data)
    except ValueError:
        raise FormatError("the size of a member is not a number", offset=at, structure="tar header") from None


def _name(block: bytes) -> str:
    name = block[:100].split(b"\0", 1)[0].decode("utf-8", "replace")
    prefix = block[345:500].split(b"\0", 1)[0].decode("utf-8", "replace") if block[257:262] == b"ustar" else ""
    return f"{prefix}/{name}" if prefix and block[257:265] == b"ustar\00000" else name


def _parse_pax_records(note: bytes) -> dict[str, str]:
    """Parse pax records: `length key=value` lines."""
    found: dict[str, str] = {}
    while note:
        number, space, _ = note.partition(b" ")
        if not space or not number.isdigit() or len(number) > 9 or not len(number) + 1 < int(number) <= len(note):
            break
        key, _, value = note[len(number) + 1 : int(number) - 1].partition(b"=")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        note = note[int(number) :]
    return found
