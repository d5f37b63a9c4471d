"""Jenkins lookup3 checksums of HDF5 metadata.

Version 2 structures end with the lookup3 hash of all bytes before it (format specification 3.0,
III, "checksum"). It is compiled, here or in numcodecs, and takes about a microsecond for a header,
so every structure is verified.
"""

from __future__ import annotations

from insitu.formats.hdf5.structures import compiled_metadata
from insitu.formats.hdf5.structures.file import FileContext

__all__ = ["lookup3", "verify_checksum"]


def lookup3(data: bytes) -> int:
    """Return the checksum of some bytes."""
    found: int
    if compiled_metadata.metadata is not None:
        found = compiled_metadata.metadata.lookup3(data)
    else:
        from numcodecs.jenkins import jenkins_lookup3  # takes long to import

        found = jenkins_lookup3(data, 0)
    return found


def verify_checksum(file: FileContext, data: bytes, address: int, structure: str) -> None:
    """Raise `FormatError` if the last four bytes are not the checksum of those before."""
    stored = int.from_bytes(data[-4:], "little")
    if len(data) < 4 or lookup3(data[:-4]) != stored:
        file.fail("does not match its checksum: the file is damaged", address, structure)
