"""Do the sources still match the references?

Each object is asked what it is now, many at a time. It must be what was scanned: the same ETag, or else the same size and time of change; references that
never knew these (kerchunk's) are held against the ranges that they name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.errors import NotFoundError, SourceError, StaleSourceError
from insitu.model import Source, VirtualGroup
from insitu.references.duplicates import Duplicate, find_duplicates
from insitu.sources import open_source
from insitu.sources.threads import gather

__all__ = ["Finding", "Report", "check"]

Progress = Callable[[int, int], None]
"""Told how many sources were looked at, and how many there are."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one source."""

    source: Source
    """As it was scanned."""
    status: str
    """ok, changed, missing, or failed: it could not be asked."""
    reason: str = ""
    now: Source | None = None
    """As it is now, if it could be asked."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the sources."""

    findings: tuple[Finding, ...]
    duplicates: tuple[Duplicate, ...] = ()
    """Sources whose chunks are shown twice."""
    damaged: tuple[tuple[str, str], ...] = ()
    """Files of the references themselves that are not what was written: their URLs, and what is wrong. Sources are not asked then."""

    @property
    def ok(self) -> bool:
        """Whether all sources are what they were, each is there once, and the references are whole."""
        return not self.stale and not self.duplicates and not self.damaged

    @property
    def stale(self) -> tuple[Finding, ...]:
        """Those that are not."""
        return tuple(finding for finding in self.findings if finding.status != "ok")

    def raise_stale(self) -> None:
        """Raise `StaleSourceError` if some source is not what it was."""
        if not self.stale:
            return
        first = self.stale[0]
        more = f" (and {len(self.stale) - 1} more sources)" if len(self.stale) > 1 else ""
        raise StaleSourceError(
            f"{first.reason}{more}",
            url=first.source.url,
            hint="Scan again, or use insitu.refresh on the saved references",
        )

    def __str__(self) -> str:
        if self.damaged:
            return "\n".join(f"damaged: {url}: {reason}" for url, reason in self.damaged)
        counts = dict.fromkeys(("ok", "changed", "missing", "failed"), 0)
        for finding in self.findings:
            counts[finding.status] += 1
        noun = "source" if len(self.findings) == 1 else "sources"
        lines = [f"{len(self.findings)} {noun}: " + ", ".join(f"{n} {status}" for status, n in counts.items() if n)]
        lines += [f"{finding.status}: {finding.source.url}: {finding.reason}" for finding in self.stale[:20]]
        if len(self.stale) > 20:
            lines.append(f"and {len(self.stale) - 20} more")
        lines += [f"duplicated: {duplicate.url}: {duplicate.reason}" for duplicate in self.duplicates[:20]]
        if len(self.duplicates) > 20:
            lines.append(f"and {len(self.duplicates) - 20} more duplicated")
        return "\n".join(lines)


def check(
    group: VirtualGroup,
    *,
    progress: Progress | None = None,
    width: int = 32,
    duplicates: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Ask every source of a tree whether it is still what was scanned.

    Parameters
    ----------
    group
        The tree.
    progress
        Called after each source with how many are done, and how many there are.
    width
        Sources asked at once.
    duplicates
        Whether to look for sources that are there twice.
    storage_options
        See `insitu.sources.open_source`.
    """
    reach = _reach(group)
    sources = list(reach)
    done = 0
    lock = threading.Lock()

    def look(source: Source, stop: threading.Event) -> Finding:
        nonlocal done
        finding = _finding(source, reach[source], storage_options)
        with lock:
            done += 1
            if progress is not None:
                progress(done, len(sources))
        return finding

    return Report(tuple(gather(look, sources, width=width)), find_duplicates(group) if duplicates else ())


def _reach(group: VirtualGroup) -> dict[Source, int]:
    """How far into each source the references reach; 0 where the source itself knows its size."""
    reach: dict[Source, int] = {}
    for _, array in group.all_arrays():
        for tile in array.tiles:
            table = tile.chunks
            total = int(np.prod(table.shape, dtype=object))
            known = table.sources if isinstance(table.sources, tuple) else None
            if known is not None and all(source.size is not None for source in known):
                for source in known:
                    reach.setdefault(source, 0)
                continue
            for begin in range(0, total, 1 << 18):
                numbers = np.arange(begin, min(begin + (1 << 18), total))
                rows = table.locate(list(np.unravel_index(numbers, table.shape)) if table.shape else [])
                source_column = np.asarray(rows.source)
                ends = np.asarray(rows.offset, np.int64) + np.maximum(np.asarray(rows.length, np.int64), 0)
                for number in np.unique(source_column[source_column >= 0]).tolist():
                    source = table.sources[number]
                    reach[source] = max(reach.get(source, 0), int(ends[source_column == number].max()))
    return reach


def _finding(source: Source, reach: int, storage_options: Mapping[str, Any] | None) -> Finding:
    try:
        with open_source(source.url, storage_options) as opened:
            now = opened.describe()
    except NotFoundError:
        if source.optional:
            return Finding(source, "ok")
        return Finding(source, "missing", "there is no such object any more")
    except SourceError as problem:
        return Finding(source, "failed", problem.message)
    reason = source.difference(now)
    if reason is None and now.size is not None and reach > now.size:
        reason = f"references reach to byte {reach}, the object has {now.size}"
    return Finding(source, "ok" if reason is None else "changed", reason or "", now)
