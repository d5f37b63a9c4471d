"""Reader of the superblock: where the HDF5 part of a file begins, and where its root group is.

Format specification 3.0, II.A (superblock versions 0 to 3) and II.C (superblock extension).
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.structures.checksum import verify_checksum
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.parsing.scheduler import Walk

__all__ = [
    "FAMILY",
    "MULTI",
    "SIGNATURE",
    "SetDescription",
    "SetMemberError",
    "Superblock",
    "TruncatedFileError",
    "check_not_set_member",
    "find_signature",
    "read_superblock",
]

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_WIDTHS = (2, 4, 8)
JOIN_FAMILY = "Join its members into one file, in their order (`cat x_*.h5 > x.h5`, or h5repart)"
REPACK_SET = "Repack the set into one file with h5repack"
FAMILY, MULTI = b"NCSAfami", b"NCSAmult"


class SetDescription(NamedTuple):
    """What a file says of the set that it is in."""

    driver: bytes
    """The name of the driver that wrote it; nothing: an old family, perhaps."""
    information: bytes | int
    """What the driver wrote, or where in the file its block is."""
    end: int
    """How long the superblock says that the whole is."""


class SetMemberError(UnsupportedError):
    """The file says that it is one of several."""

    of: SetDescription


class TruncatedFileError(FormatError):
    """The file is shorter than it says: truncated, or the first of an old family."""

    of: SetDescription


@dataclass(frozen=True, slots=True)
class Superblock:
    """What the superblock says."""

    version: int
    """Of the superblock."""
    root: int
    """The address of the root group's object header."""
    extension: int | None
    """The address of the superblock extension, an object header."""


def find_signature(size: int) -> Walk[int]:
    """Return the offset of the signature: 0, 512, 1024, 2048, ... (II.A).

    Parameters
    ----------
    size
        The length of the file.
    """
    places = [0]
    step = 512
    while step + len(SIGNATURE) <= size:
        places.append(step)
        step *= 2
    if size < len(SIGNATURE):
        raise FormatError("the file is not HDF5: it is too short", structure="signature", offset=0)
    # Nearly always 0: ask for the others only if not. There are log2(size) of them, one batch.
    for batch in (places[:1], places[1:]):
        found = yield [(place, len(SIGNATURE)) for place in batch]
        for place, data in zip(batch, found, strict=True):
            if data == SIGNATURE:
                return place
    raise FormatError("the file is not HDF5: it has no HDF5 signature", structure="signature", offset=0)


def read_superblock(file: FileContext) -> Walk[Superblock]:
    """Read the superblock at `file.base` and set the widths and constants of the file."""
    (data,) = yield [file.range_up_to(0, 128, 24, "superblock")]
    version = data[8]
    if version > 3:
        raise UnsupportedError(
            f"superblock version {version} is not supported, only 0 to 3", url=file.url, offset=file.base + 8
        )
    widths = (data[13], data[14]) if version < 2 else (data[9], data[10])
    if widths[0] not in _WIDTHS or widths[1] not in _WIDTHS:
        file.fail(f"has addresses of {widths[0]} and lengths of {widths[1]} bytes", 0, "superblock")
    file.offset_size, file.length_size = widths
    file.undefined = (1 << (8 * widths[0])) - 1
    at = file.base
    return _parse_old(file, data, version, at) if version < 2 else _parse_new(file, data, version, at)


def _parse_old(file: FileContext, data: bytes, version: int, at: int) -> Superblock:
    """Versions 0 and 1."""
    width = file.offset_size
    file.group_leaf_k = int.from_bytes(data[16:18], "little")
    file.group_node_k = int.from_bytes(data[18:20], "little")
    place = 24
    if version == 1:
        file.chunk_node_k = int.from_bytes(data[24:26], "little")
        place = 28
    if not (file.group_leaf_k and file.group_node_k and file.chunk_node_k):
        file.fail("has B-tree nodes without room for children", 0, "superblock")
    base, _, end, driver = (_uint(data, place + i * width, width) for i in range(4))
    # Root group symbol table entry: name offset, then the object header's address (III.C).
    root = _uint(data, place + 4 * width + file.length_size, width)
    if driver != file.undefined:  # before the length is judged: of a set of files, one is always too short
        begin = driver + 8  # II.B, "Driver Information Block": version, reserved, size, then the name of the driver
        check_not_set_member(file, SetDescription(data[begin : begin + 8], driver + at, end))
    _check_end(file, base, end, at)
    return Superblock(version, root, None)


def check_not_set_member(file: FileContext, of: SetDescription) -> None:
    """Raise if the file is one of a set, by the driver that wrote it.

    A family that was joined is a file like any other.

    Parameters
    ----------
    file
        The file.
    of
        What it says of the set.
    """
    if of.driver == FAMILY:
        if of.end > file.size:
            _raise_set_member(file, of, "the file is a member of a family of files", JOIN_FAMILY)
    elif not file.joined:
        _raise_set_member(file, of, "the file is a member of a set of files (multi or split driver)", REPACK_SET)


def _raise_set_member(file: FileContext, of: SetDescription, what: str, hint: str) -> NoReturn:
    problem = SetMemberError(what, url=file.url, hint=hint)
    problem.of = of
    raise problem


def _parse_new(file: FileContext, data: bytes, version: int, at: int) -> Superblock:
    """Versions 2 and 3."""
    width = file.offset_size
    length = 12 + 4 * width + 4
    if len(data) < length:
        file.fail("is cut off", 0, "superblock")
    verify_checksum(file, data[:length], 0, "superblock")
    base, extension, end, root = (_uint(data, 12 + i * width, width) for i in range(4))
    _check_end(file, base, end, at)
    return Superblock(version, root, None if extension == file.undefined else extension)


def _check_end(file: FileContext, base: int, end: int, at: int) -> None:
    # A user block that was put in front afterwards moves the signature but not the stored base
    # address: the library then counts from where the signature is. The stored end counts from the
    # beginning of the file.
    moved = at - base
    file.base = at
    if end + moved > file.size:
        # Old families do not say that they are one: their first member looks like the beginning of
        # a larger file, which it is.
        family = re.search(r"(?<!\d)0+(?!\d)", posixpath.basename(file.url)) is not None
        problem = TruncatedFileError(
            f"the file is truncated: it has {file.size} bytes, but its superblock announces {end + moved}",
            url=file.url,
            offset=at,
            structure="superblock",
            hint=f"If it is the first of a family of files: {JOIN_FAMILY}" if family else None,
        )
        problem.of = SetDescription(b"", b"", end + moved)
        raise problem


def _uint(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise FormatError("the superblock is cut off", structure="superblock", offset=at)
    return int.from_bytes(data[at : at + width], "little")
