"""Progress bar on standard error, with rate and remaining time; only on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from insitu.cli.screen import stderr

__all__ = ["bytes_bar", "progress_bar"]


class _RateColumn(ProgressColumn):
    """Column that shows items per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s", style="cyan")


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar; the block gets a function to call with the number done and the total."""
    left = TimeRemainingColumn(elapsed_when_finished=True)
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        left,
    )
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


@contextmanager
def bytes_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar of bytes, with bytes per second and remaining time."""
    left = TimeRemainingColumn(elapsed_when_finished=True)
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TextColumn("ETA"), left)
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
