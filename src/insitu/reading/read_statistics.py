"""Statistics of reads: requests, bytes, chunks and seconds of each phase."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from insitu.model import VirtualArray

__all__ = ["ReadStatistics", "format_summary", "log"]

log = logging.getLogger("insitu.read")


@dataclass(slots=True)
class ReadStatistics:
    """Statistics of one or more reads; threads may share it."""

    requests: int = 0
    """Number of byte ranges requested; adjacent chunks are one range."""
    bytes_fetched: int = 0
    bytes_decoded: int = 0
    chunks: int = 0
    plan_seconds: float = 0.0
    """Seconds spent on planning."""
    fetch_seconds: float = 0.0
    """Seconds spent on fetching, summed over threads; so is `decode_seconds`."""
    decode_seconds: float = 0.0
    total_seconds: float = 0.0
    """Wall time."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(
        self,
        requests: int,
        fetched: int,
        decoded: int,
        chunks: int,
        fetch_seconds: float = 0.0,
        decode_seconds: float = 0.0,
    ) -> None:
        """Add the counts of a batch."""
        with self._lock:
            self.requests += requests
            self.bytes_fetched += fetched
            self.bytes_decoded += decoded
            self.chunks += chunks
            self.fetch_seconds += fetch_seconds
            self.decode_seconds += decode_seconds

    def add_seconds(self, plan_seconds: float, total_seconds: float) -> None:
        """Add the planning and wall time of a read."""
        with self._lock:
            self.plan_seconds += plan_seconds
            self.total_seconds += total_seconds


def format_summary(array: VirtualArray, shape: Iterable[int], tally: ReadStatistics, name: str | None = None) -> str:
    """Return a one-line summary of a read, for the log."""
    chains = dict.fromkeys(
        "→".join(codec.name for codec in encoding.codecs) or "uncompressed"
        for tile in array.tiles
        for encoding in tile.encodings
    )
    parts = [
        name or "array",
        f"{array.dtype} {'×'.join(map(str, shape)) or 'scalar'} of {'×'.join(map(str, array.shape)) or 'scalar'}",
        f"{tally.chunks} chunks, {' | '.join(chains)}",
        f"{tally.requests} requests, {tally.bytes_fetched:,} bytes fetched, {tally.bytes_decoded:,} decoded",
        f"{tally.total_seconds:.4f} s: plan {tally.plan_seconds:.4f}, on threads fetch {tally.fetch_seconds:.4f}, "
        f"decode {tally.decode_seconds:.4f}",
    ]
    return " | ".join(part for part in parts if part)
