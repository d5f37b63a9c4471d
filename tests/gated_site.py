"""A web server that gives ranges of the files in a folder, counts requests, and can hold them back.

How many requests a reader has under way at once is seen without a clock: answers are held back until so
many have come (`hold`).
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

from served_folder import ServedFolder
from waiting import LONG

__all__ = ["GatedSite"]


class GatedSite(ServedFolder):
    """A served folder, for as long as the block lasts; the date and size of a file are its version."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.versions = lambda path: {"ETag": f'"{path.stat().st_size}-{path.stat().st_mtime_ns}"'}
        self.under_way = 0
        self.most = 0
        """Requests that were under way at once."""
        self._wanted = 0
        self._changed = threading.Condition()

    def hold(self, count: int) -> None:
        """Answer no request from now on until so many are under way; counts begin anew."""
        with self._changed:
            self.requests.clear()
            self.most = self.under_way
            self._wanted = count

    def release(self) -> None:
        """Answer all requests."""
        with self._changed:
            self._wanted = 0
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until so many requests are under way."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.under_way >= count, LONG)

    def enter(self, name: str) -> None:
        """Note a request, and wait until it may be answered."""
        with self._changed:
            self.requests.append(name)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            if self.under_way >= self._wanted:
                self._wanted = 0
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._wanted, LONG)

    def leave(self) -> None:
        """Note that a request is answered."""
        with self._changed:
            self.under_way -= 1
            self._changed.notify_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        super().__exit__(kind, error, trace)
