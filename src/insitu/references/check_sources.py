"""Check that the sources of references did not change since they were scanned, and that none is
there twice.

Each source is asked for its identity, many at a time, which is compared with the recorded one
(`Source.compare`). References that do not record these (kerchunk's) must lie within the source.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import NotFoundError, SourceError, StaleSourceError
from insitu.model import Comparison, Source, VirtualGroup
from insitu.references.chunk_places import SourceNumbers, iter_sources, iter_step_places, join_step_places
from insitu.references.urls import absolute_url
from insitu.sources import open_source
from insitu.sources.identity import STALE_HINT
from insitu.sources.threads import gather

__all__ = ["CheckReport", "Duplicate", "Finding", "check", "find_duplicates"]

Progress = Callable[[int, int], None]
"""Called with the number of sources that were checked, and the number of all."""


_LARGEST_FULL_SEARCH = 1 << 20
"""Chunks of an array up to which all are searched; beyond, only the first of each step."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one source."""

    source: Source
    """As it was scanned."""
    status: str
    """`ok`, `changed`, `missing`, or `failed`: it could not be reached."""
    reason: str = ""
    """Why it is not `ok`; of a source that is `ok`, why only its size was compared."""
    now: Source | None = None
    """As it is now, if it could be reached."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A source that was added twice."""

    url: str
    reason: str
    """In which array, and where along which dimension."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The state of all sources of a set of references."""

    findings: tuple[Finding, ...]
    duplicates: tuple[Duplicate, ...] = ()
    """Sources whose chunks are shown twice."""
    damaged: tuple[tuple[str, str], ...] = ()
    """Damaged files of the references themselves: URL and reason. Sources are not checked then."""

    @property
    def ok(self) -> bool:
        """Whether no source changed, none is there twice, and the references are not damaged."""
        return not self.stale and not self.duplicates and not self.damaged

    @property
    def stale(self) -> tuple[Finding, ...]:
        """The findings about sources that changed, are missing, or could not be reached."""
        return tuple(finding for finding in self.findings if finding.status != "ok")

    @property
    def by_size_only(self) -> tuple[Finding, ...]:
        """The findings about sources whose recorded version is of another kind than what they have
        now: a local file that a server gives, say.
        """
        return tuple(finding for finding in self.findings if finding.status == "ok" and finding.reason)

    def raise_stale(self) -> None:
        """Raise `StaleSourceError` if a source changed, is missing, or could not be reached."""
        if not self.stale:
            return
        first = self.stale[0]
        more = f" (and {len(self.stale) - 1} more sources)" if len(self.stale) > 1 else ""
        raise StaleSourceError(
            f"{first.reason}{more}",
            url=first.source.url,
            hint=STALE_HINT,
        )

    def __str__(self) -> str:
        if self.damaged:
            return "\n".join(f"damaged: {url}: {reason}" for url, reason in self.damaged)
        counts = dict.fromkeys(("ok", "changed", "missing", "failed"), 0)
        for finding in self.findings:
            counts[finding.status] += 1
        noun = "source" if len(self.findings) == 1 else "sources"
        lines = [f"{len(self.findings)} {noun}: " + ", ".join(f"{n} {status}" for status, n in counts.items() if n)]
        if by_size := self.by_size_only:
            lines.append(f"of {len(by_size)} only the size was compared: {by_size[0].source.url}: {by_size[0].reason}")
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
) -> CheckReport:
    """Check every source of a tree against what was recorded when it was scanned.

    Parameters
    ----------
    group
        The tree.
    progress
        Called after each source with the number done and the number of all.
    width
        Number of sources that are asked at once.
    duplicates
        Whether to look for sources that are shown twice.
    storage_options
        See `insitu.sources.open_source`.
    """
    last_bytes = _last_bytes(group)
    sources = list(last_bytes)
    done = 0
    lock = threading.Lock()

    def look(source: Source, stop: threading.Event) -> Finding:
        nonlocal done
        finding = _check_source(source, last_bytes[source], storage_options)
        with lock:
            done += 1
            if progress is not None:
                progress(done, len(sources))
        return finding

    return CheckReport(tuple(gather(look, sources, width=width)), find_duplicates(group) if duplicates else ())


def _last_bytes(group: VirtualGroup) -> dict[Source, int]:
    """Return the last byte that references need of each source; 0 where its size is recorded."""
    last_bytes: dict[Source, int] = {}
    for _, array in group.all_arrays():
        for tile in array.tiles:
            table = tile.chunks
            total = int(np.prod(table.shape, dtype=object))
            known = table.sources if isinstance(table.sources, tuple) else None
            if known is not None and all(source.size is not None for source in known):
                for source in known:
                    last_bytes.setdefault(source, 0)
                continue
            for begin in range(0, total, 1 << 18):
                numbers = np.arange(begin, min(begin + (1 << 18), total))
                rows = table.locate(list(np.unravel_index(numbers, table.shape)) if table.shape else [])
                source_column = np.asarray(rows.source)
                ends = np.asarray(rows.offset, np.int64) + np.maximum(np.asarray(rows.length, np.int64), 0)
                present, at = np.unique(source_column, return_inverse=True)
                last = np.zeros(len(present), np.int64)
                np.maximum.at(last, at.reshape(-1), ends.reshape(-1))
                for number, end in zip(present.tolist(), last.tolist(), strict=True):
                    if number >= 0:
                        last_bytes[table.sources[number]] = max(last_bytes.get(table.sources[number], 0), end)
    return last_bytes


def _check_source(source: Source, last_bytes: int, storage_options: Mapping[str, Any] | None) -> Finding:
    try:
        with open_source(source.url, storage_options) as opened:
            now = opened.describe()
    except NotFoundError:
        if source.optional:
            return Finding(source, "ok")
        return Finding(source, "missing", "the file no longer exists")
    except SourceError as problem:
        return Finding(source, "failed", problem.message)
    found = source.compare(now)
    if found.same is not False and now.size is not None and last_bytes > now.size:
        found = Comparison(False, f"references need {last_bytes} bytes, the file has {now.size}")
    return Finding(source, "changed" if found.same is False else "ok", found.reason, now)


def find_duplicates(group: VirtualGroup) -> tuple[Duplicate, ...]:
    """Return the sources whose chunks an array shows twice along a dimension.

    Of very large arrays only the first chunk of each step is searched.
    """
    found: dict[str, Duplicate] = {}
    for path, array in group.all_arrays():
        counts = [int(np.prod(tile.chunks.shape, dtype=object)) for tile in array.tiles]
        urls = list(dict.fromkeys(absolute_url(source.url) for source in iter_sources([array])))
        if not array.dims or len(urls) >= sum(counts):  # a source for each cell, as in a Zarr store
            continue
        numbers = {url: number for number, url in enumerate(urls)}
        source_numbers: SourceNumbers = {}
        for dim in array.dims:
            corner = sum(counts) > _LARGEST_FULL_SEARCH
            position, key = join_step_places(iter_step_places(array, dim, numbers, source_numbers, corner=corner))
            for number, (first, second) in _find_repeated_sources(position, key).items():
                message = f"{path!r} shows its steps twice along {dim!r}, starting at {first} and at {second}"
                found.setdefault(urls[number], Duplicate(urls[number], message))
    return tuple(found.values())


def _find_repeated_sources(position: npt.NDArray[np.int64], key: npt.NDArray[np.int64]) -> dict[int, tuple[int, int]]:
    """Return the sources that are shown twice as a whole, each with the two first positions."""
    found: dict[int, tuple[int, int]] = {}
    if not len(key):
        return found
    rows, at = np.unique(key, axis=0, return_inverse=True)
    at = at.reshape(-1)
    low = np.full(len(rows), np.iinfo(np.int64).max)
    high = np.full(len(rows), -1)
    np.minimum.at(low, at, position)
    np.maximum.at(high, at, position)
    starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))  # rows are sorted by source
    double = np.logical_and.reduceat(high > low, starts)
    for first in np.flatnonzero(double).tolist():
        of = slice(starts[first], starts[first + 1] if first + 1 < len(starts) else None)
        found[int(rows[starts[first], 0])] = (int(low[of].min()), int(high[of].min()))
    return found
