"""Compact a saved archive: write its references anew, into as few files as possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from insitu.maintenance.conflicts import ATTEMPTS, lost_race_error
from insitu.maintenance.unused_chunks import remove_unused_chunks
from insitu.model.description import format_bytes

__all__ = ["CompactReport", "compact"]


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What compacting a store did."""

    target: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    unpinned_bytes: int = 0
    """Bytes of native chunks that were removed, because nothing refers to them."""

    def __str__(self) -> str:
        return (
            f"{self.target}: {self.files_before:,} files of {self.bytes_before:,} bytes became "
            f"{self.files_after:,} of {self.bytes_after:,}"
            + (f"; removed {format_bytes(self.unpinned_bytes)} of unpinned chunks" if self.unpinned_bytes else "")
        )


def compact(target: str, *, storage_options: Mapping[str, Any] | None = None) -> CompactReport:
    """Write the references of an insitu store anew: one file for all appends, without what was
    dropped or replaced.

    The dataset stays the same. Who has the store open goes on reading the old files, which are
    removed by a change a day later. Native chunks that neither the store nor the state before refers
    to are removed at once; in an object store a day after they were written, since another machine
    may be pinning them.

    Parameters
    ----------
    target
        The store.
    storage_options
        See `insitu.scan`.

    Raises
    ------
    UnsupportedError
        If the references have another format.
    SourceError
        If other writers change the store again and again. Nothing changes then.
    """
    from insitu import references

    for _ in range(ATTEMPTS):
        opened = references.open_for_update(target, storage_options=storage_options)
        before = opened.store.file_sizes()
        if opened.compact():
            after = references.open_for_update(target, storage_options=storage_options).store.file_sizes()
            removed = remove_unused_chunks(target, storage_options)
            return CompactReport(target, len(before), len(after), sum(before), sum(after), removed)
    raise lost_race_error(target)
