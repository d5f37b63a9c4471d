"""Estimate of what a scan of many files costs, from a sample of them.

Some files, evenly spread over the list, are scanned. The others are taken to be like them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from insitu.errors import InsituError
from insitu.formats.containers import parse_entry_url
from insitu.model import VirtualGroup, count_cells
from insitu.open_options import ScanOptions
from insitu.scanning.scan_url import can_be_collection, scan_stored
from insitu.sources import open_source
from insitu.sources.counting_source import CountingSource

__all__ = ["ScanEstimate", "estimate_scan", "scan_counting_requests"]

SAMPLE_FILES = 8
BYTES_OF_CHUNK = 16
"""Memory of a chunk in a table: offset and length in the narrowest types, and its file."""
BYTES_OF_FILE = 1200
"""Memory of a file beside its chunks: name, identity, labels (1.16 kB of files of 11 variables, 2.04 kB with the
122 chunks).
"""
STORED_BYTES_OF_CHUNK = 4
"""Bytes of a chunk in an insitu store."""


@dataclass(frozen=True, slots=True)
class ScanEstimate:
    """What a scan takes, and what it finds."""

    files: int
    sampled: int
    """Files that were scanned for the estimate."""
    failed: tuple[str, ...]
    """Those of them that could not be scanned, with the reason."""
    requests: int | None
    """Ranges that are read; None if files are stores or references, whose requests are not counted."""
    bytes_read: int | None
    chunks: int
    stored_bytes: int
    """Size of the chunks."""
    virtual_bytes: int
    """Size of the values."""
    seconds: float
    """Of one file after another, as the sample took."""

    @property
    def memory_bytes(self) -> int:
        """Memory of the combined tables."""
        return self.chunks * BYTES_OF_CHUNK + self.files * BYTES_OF_FILE

    @property
    def store_bytes(self) -> int:
        """Size of the references in an insitu store."""
        return self.chunks * STORED_BYTES_OF_CHUNK


def estimate_scan(
    urls: Sequence[Any],
    options: ScanOptions,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> ScanEstimate:
    """Estimate what a scan of files takes.

    Parameters
    ----------
    urls
        The files.
    options
        See `insitu.scan`; with `errors="warn"` or `"skip"` files that cannot be scanned are
        counted.
    progress
        Called with the number of files that were looked at, and will be.
    """
    count = min(len(urls), SAMPLE_FILES)
    sample = [urls[number * (len(urls) - 1) // max(count - 1, 1)] for number in range(count)]
    failed: list[str] = []
    totals = [0, 0, 0, 0, 0]
    counted = True
    begin = time.perf_counter()
    for number, url in enumerate(sample, 1):
        try:
            found, requests, read = scan_counting_requests(url, options)
        except InsituError as problem:
            if not options.skips_failures:
                raise
            failed.append(str(problem))
        else:
            counted = counted and requests is not None
            cells = [(count_cells(array), array.nbytes) for _, array in found.all_arrays()]
            parts = (requests or 0, read or 0, sum(c.cells for c, _ in cells), sum(c.nbytes for c, _ in cells),
                     sum(nbytes for _, nbytes in cells))  # fmt: skip
            totals = [total + part for total, part in zip(totals, parts, strict=True)]
        if progress is not None:
            progress(number, count)
    seconds = time.perf_counter() - begin
    factor = len(urls) / max(count, 1)
    requests_all, bytes_all, chunks, stored, virtual = (round(total * factor) for total in totals)
    return ScanEstimate(
        len(urls), count, tuple(failed), requests_all if counted else None, bytes_all if counted else None, chunks,
        stored, virtual, seconds * factor,
    )  # fmt: skip


def scan_counting_requests(url: Any, options: ScanOptions) -> tuple[VirtualGroup, int | None, int | None]:
    """Return the scanned group, and the requests and bytes that it took; None where a URL is not
    exactly one file.

    What cannot be read is named in warnings even if it is to be skipped: nothing else would show it.
    """
    if options.skips_failures:
        options = replace(options, errors="warn")
    if isinstance(url, str) and (can_be_collection(url) or parse_entry_url(url)):
        return scan_stored(url, options), None, None
    with CountingSource(open_source(url, options.storage_options)) as source:
        found = scan_stored(source, options)
    return found, source.requests, source.bytes
