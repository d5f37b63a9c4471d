"""Journal of a copy: which objects of the target are finished, with checksums, in a file that only grows.

An interrupted copy goes on with what the journal says. A record counts if its own checksum is right and the object
has the bytes that it says; so nothing has to be synchronised with the disk while the copy runs.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import google_crc32c

__all__ = ["Finished", "Journal"]

_RECORD = struct.Struct("<IQQIId")
_CHECK = struct.Struct("<I")
_MAGIC = b"insitu copy 1\n"
QUESTION = 32
"""Bytes of the digest of what is copied, behind the first line."""


class Finished(NamedTuple):
    """An object that is written."""

    array: int
    """Number of its array."""
    number: int
    """Of the object in the array's grid, in C order."""
    nbytes: int
    """Bytes of the object."""
    checksum: int
    """CRC-32C of these bytes."""
    values_checksum: int
    """CRC-32C of the values that are encoded in it."""
    error: float
    """By how much packing anew has changed a value at most."""


class Journal:
    """The finished objects of one copy.

    Parameters
    ----------
    path
        The file.
    question
        A digest of sources and options: what another one has left is not taken.
    """

    def __init__(self, path: Path, question: bytes) -> None:
        assert len(question) == QUESTION
        self.path = path
        self.finished: dict[tuple[int, int], Finished] = {}
        self._lock = threading.Lock()
        head = _MAGIC + question
        known = path.read_bytes() if path.exists() else b""
        self.is_continued = known.startswith(head)
        """Whether an earlier run has begun this copy."""
        end = len(head)
        if self.is_continued:
            for record, after in _parse(known, len(head)):
                self.finished[record.array, record.number] = record
                end = after
        self._file = open(path, "r+b" if self.is_continued else "w+b")  # noqa: SIM115 - closed by `close`
        try:
            if not self.is_continued:
                self._file.write(head)
            self._file.truncate(end)  # a record that was cut off by the end of a process
            self._file.seek(end)
            self._file.flush()
        except BaseException:
            self._file.close()
            raise

    def add(self, records: Sequence[Finished]) -> None:
        """Note finished objects."""
        data = b"".join(_pack(record) for record in records)
        with self._lock:
            self._file.write(data)
            self._file.flush()
            self.finished.update({(record.array, record.number): record for record in records})

    def forget(self, records: Sequence[Finished]) -> None:
        """Take out objects that are not what the journal says: they are written again, and noted again."""
        for record in records:
            self.finished.pop((record.array, record.number), None)

    def of_array(self, array: int) -> dict[int, Finished]:
        """Return the finished objects of an array by number."""
        return {number: record for (owner, number), record in self.finished.items() if owner == array}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def remove(self) -> None:
        """Remove the journal: the copy is complete."""
        self.close()
        self.path.unlink(missing_ok=True)


def read_question(path: Path) -> bytes | None:
    """Return the digest of what an interrupted copy was; None if there is no journal."""
    try:
        with open(path, "rb") as file:
            head = file.read(len(_MAGIC) + QUESTION)
    except OSError:
        return None
    return head[len(_MAGIC) :] if head.startswith(_MAGIC) and len(head) == len(_MAGIC) + QUESTION else None


def _pack(record: Finished) -> bytes:
    body = _RECORD.pack(*record)
    return body + _CHECK.pack(google_crc32c.value(body))


def _parse(data: bytes, at: int) -> Iterator[tuple[Finished, int]]:
    """Yield records and where they end, up to the first that is incomplete."""
    size = _RECORD.size + _CHECK.size
    while at + size <= len(data):
        body = data[at : at + _RECORD.size]
        if _CHECK.unpack_from(data, at + _RECORD.size)[0] != google_crc32c.value(body):
            return
        at += size
        yield Finished(*_RECORD.unpack(body)), at
