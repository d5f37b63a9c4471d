"""What did a read do? Requests, bytes, chunks."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Counts of one or more reads; threads may share it."""

    requests: int = 0
    bytes_fetched: int = 0
    bytes_decoded: int = 0
    chunks: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, requests: int, fetched: int, decoded: int, chunks: int) -> None:
        """Count a batch."""
        with self._lock:
            self.requests += requests
            self.bytes_fetched += fetched
            self.bytes_decoded += decoded
            self.chunks += chunks
