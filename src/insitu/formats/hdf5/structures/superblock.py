"""Reader of the superblock: where the HDF5 part of a file begins, and where its root group is.

Format specification 3.0, II.A (superblock versions 0 to 3) and II.C (superblock extension).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.structures.checksum import verify_checksum
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.parsing.scheduler import Walk
from insitu.sources.address import file_name

__all__ = ["SIGNATURE", "Superblock", "check_whole_file", "find_signature", "read_superblock"]

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_WIDTHS = (2, 4, 8)
FAMILY, MULTI = b"NCSAfami", b"NCSAmult"
"""Names of the drivers of HDF5 that write one file as several (II.B)."""
JOIN_FAMILY = "Make one file of all members: `h5repart -family_to_single x_%05d.h5 x.h5`"
REPACK_SET = (
    "Make one file of the set (x-m.h5 and x-r.h5): `h5repack --src-vfd-name split x x.h5`, "
    'or copy it with h5py.File("x", driver="split"); for a multi set: `--src-vfd-name multi`'
)


@dataclass(frozen=True, slots=True)
class Superblock:
    """What the superblock says."""

    version: int
    """Of the superblock."""
    root: int
    """The address of the root group's object header."""
    extension: int | None
    """The address of the superblock extension, an object header."""
    end: int
    """The length of the file, as the superblock announces it."""
    driver: bytes
    """The name of the driver that wrote the file; nothing: an ordinary one."""


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
    if version >= 2:
        return _parse_new(file, data, version)
    return (yield from _read_old(file, data, version))


def _read_old(file: FileContext, data: bytes, version: int) -> Walk[Superblock]:
    """Versions 0 and 1, with the driver information block (II.B)."""
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
    name = b""
    if driver != file.undefined:
        (block,) = yield [file.range(driver, 16, "driver information block")]
        if block[0] != 0:
            file.fail(f"has an unknown version ({block[0]})", driver, "driver information block")
        name = block[8:16]
    return Superblock(version, root, None, _absolute_end(file, base, end), name)


def _parse_new(file: FileContext, data: bytes, version: int) -> Superblock:
    """Versions 2 and 3."""
    width = file.offset_size
    length = 12 + 4 * width + 4
    if len(data) < length:
        file.fail("is cut off", 0, "superblock")
    verify_checksum(file, data[:length], 0, "superblock")
    base, extension, end, root = (_uint(data, 12 + i * width, width) for i in range(4))
    end = _absolute_end(file, base, end)
    return Superblock(version, root, None if extension == file.undefined else extension, end, b"")


def _absolute_end(file: FileContext, base: int, end: int) -> int:
    # A user block that was put in front afterwards moves the signature but not the stored base
    # address: the library then counts from where the signature is. The stored end counts from the
    # beginning of the file.
    return end + file.base - base


def check_whole_file(file: FileContext, end: int, driver: bytes) -> None:
    """Raise unless all bytes of the file are in it: sets of files and truncated files are refused.

    A family that was joined is a file like any other. The driver is judged before the length: the
    member of a set that has the superblock is always too short.

    Parameters
    ----------
    file
        The file.
    end
        The length that its superblock announces.
    driver
        The name of the driver that wrote it, if it is stored.
    """
    if driver == FAMILY and end > file.size:
        file.refuse("the file is only the first member of a family of files; families are not supported", JOIN_FAMILY)
    if driver == MULTI:
        file.refuse("the file is one member of a split or multi set of files; such sets are not supported", REPACK_SET)
    if driver not in (b"", FAMILY):
        name = driver.rstrip(b"\0 ").decode("ascii", "backslashreplace")
        file.refuse(
            f"the file was written by the HDF5 driver {name!r}, which is not supported",
            "Repack it into an ordinary file with h5repack, and that driver",
        )
    if end > file.size:
        # Families that were written before HDF5 1.8 do not store their driver.
        family = re.search(r"(?<!\d)0+(?!\d)", file_name(file.url)) is not None
        raise FormatError(
            f"the file is truncated: it has {file.size} bytes, but its superblock announces {end}",
            url=file.url,
            offset=file.base,
            structure="superblock",
            hint=f"If it is the first of a family of files: {JOIN_FAMILY}" if family else None,
        )


def _uint(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise FormatError("the superblock is cut off", structure="superblock", offset=at)
    return int.from_bytes(data[at : at + width], "little")
