"""Progress of a scan: rate, remaining time, failures, and what each worker has done."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

__all__ = ["ProgressBar", "ScanProgress", "open_progress"]


@dataclass(slots=True)
class ScanProgress:
    """How far a scan is."""

    total: int
    """Files."""
    done: int = 0
    failed: int = 0
    """Files that could not be opened."""
    resumed: int = 0
    """Files that an interrupted scan had done before."""
    by_worker: dict[str, int] = field(default_factory=dict)
    """Worker: files that it has scanned."""
    began: float = field(default_factory=time.monotonic)

    def add(self, files: int, failed: int = 0, worker: str | None = None) -> None:
        """Count files; without a worker, those of an interrupted scan."""
        self.done += files
        self.failed += failed
        if worker is None:
            self.resumed += files
        else:
            self.by_worker[worker] = self.by_worker.get(worker, 0) + files

    @property
    def rate(self) -> float | None:
        """Files a second; None at the beginning."""
        seconds = time.monotonic() - self.began
        scanned = self.done - self.resumed
        return scanned / seconds if scanned and seconds > 0 else None

    @property
    def remaining_seconds(self) -> float | None:
        """Seconds until the end at this rate; None if it is not known."""
        return None if self.rate is None else (self.total - self.done) / self.rate

    def __str__(self) -> str:
        parts = [f"{self.done:,} of {self.total:,} files"]
        if self.rate is not None:
            parts.append(f"{self.rate:,.0f}/s" if self.rate >= 10 else f"{self.rate:.1f}/s")
        if self.remaining_seconds and self.done < self.total:
            minutes, seconds = divmod(round(self.remaining_seconds), 60)
            hours, minutes = divmod(minutes, 60)
            parts.append(f"ETA {hours}:{minutes:02d}:{seconds:02d}" if hours else f"ETA {minutes}:{seconds:02d}")
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if len(self.by_worker) > 1:
            parts.append(_format_workers(self.by_worker))
        return ", ".join(parts)


MAX_SHOWN_WORKERS = 4


def _format_workers(by_worker: dict[str, int]) -> str:
    """Return what each of a few workers has done; of many, the least and the most."""
    if len(by_worker) <= MAX_SHOWN_WORKERS:
        return "by worker: " + ", ".join(f"{name} {count:,}" for name, count in sorted(by_worker.items()))
    slowest, fastest = (choose(by_worker, key=lambda name: by_worker[name]) for choose in (min, max))
    return (
        f"{len(by_worker)} workers: {by_worker[slowest]:,} ({slowest}) to {by_worker[fastest]:,} ({fastest}) files each"
    )


class ProgressBar:
    """A line on standard error that shows the progress; nothing if that is no terminal.

    Parameters
    ----------
    console
        Rich's console; None: standard error.
    """

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = console or Console(file=sys.stderr)
        columns = (TextColumn("files"), BarColumn(), TextColumn("{task.description}"))
        self._shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._shown.add_task("", total=None)

    def show(self, progress: ScanProgress) -> None:
        """Show how far a scan is."""
        self._shown.update(self._task, completed=progress.done, total=progress.total, description=str(progress))

    def __enter__(self) -> ProgressBar:
        self._shown.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.stop()


class _Caller:
    """Calls a function of two numbers: files done, and all files. None: nothing is called."""

    def __init__(self, function: Callable[[int, int], None] | None) -> None:
        self.function = function

    def show(self, progress: ScanProgress) -> None:
        """Call the function."""
        if self.function is not None:
            self.function(progress.done, progress.total)

    def __enter__(self) -> _Caller:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


def open_progress(progress: Any) -> ProgressBar | _Caller:
    """Return what shows progress: a bar for True, or one that calls a function."""
    if isinstance(progress, ProgressBar):
        return progress
    if callable(progress):
        return _Caller(progress)
    return ProgressBar() if progress else _Caller(None)
