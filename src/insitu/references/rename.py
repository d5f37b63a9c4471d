"""Rewrite the URLs of a tree's sources, or drop the data that identifies them.

Archives move: every URL of a tree is rewritten by prefix, by regular expression or by a function.
Nothing else changes, and nothing is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from insitu.errors import ModelError, SelectionError
from insitu.model import ChunkLocations, ChunkTable, Columns, Source, VirtualArray, VirtualGroup
from insitu.model.axis import Indices
from insitu.model.derived_tables import ChunkTableBase
from insitu.model.source import SourceSequence
from insitu.references.chunk_places import used_urls

__all__ = ["Renaming", "renamed_urls", "renaming_function", "with_renamed_sources", "without_identity"]

Renaming = Mapping[str, str] | tuple[str, str] | Callable[[str], str]
"""Old prefix → new prefix (the longest counts); a pattern and its replacement; or a function of the
URL.
"""
SourceChange = Callable[[Source], Source]


def with_renamed_sources(group: VirtualGroup, how: Renaming) -> VirtualGroup:
    """Return the tree with other URLs.

    Parameters
    ----------
    group
        The tree.
    how
        A mapping of prefixes, a pair of regular expression and replacement, or a function.

    Raises
    ------
    ModelError
        If a new URL is empty, or a regular expression is invalid.
    """
    return _change_sources(group, _Rename(renaming_function(how)))


def without_identity(group: VirtualGroup) -> VirtualGroup:
    """Return the tree without size, ETag and time of its sources: reads do not notice changes then."""
    return _change_sources(group, _drop_identity)


def _change_sources(group: VirtualGroup, change: SourceChange) -> VirtualGroup:
    def change_array(name: str, array: VirtualArray) -> VirtualArray:
        tiles = (replace(tile, chunks=_change_table(tile.chunks, change)) for tile in array.tiles)
        return replace(array, tiles=tuple(tiles))

    return group.map_arrays(change_array)


def renamed_urls(group: VirtualGroup, how: Renaming) -> dict[str, str]:
    """Return the new URL of each source that gets another one.

    Raises
    ------
    SelectionError
        If a prefix or a regular expression matches no URL.
    """
    urls = {url for _, array in group.all_arrays() for url in used_urls(array)}
    change = renaming_function(how)
    unmatched = []
    if isinstance(how, Mapping):
        unmatched = [f"begins with {old!r}" for old in how if not any(url.startswith(old) for url in urls)]
    elif isinstance(how, tuple) and not any(re.search(how[0], url) for url in urls):
        unmatched = [f"matches {how[0]!r}"]
    if unmatched:
        example = f", {min(urls)} for example" if urls else ""
        raise SelectionError(
            f"no source has a URL that {unmatched[0]}", hint=f"There are {len(urls):,} sources{example}"
        )
    return {url: change(url) for url in urls if change(url) != url}


def renaming_function(how: Renaming) -> Callable[[str], str]:
    """Return the function of a URL that gives its new name."""
    if isinstance(how, Mapping):
        return _Prefixes(tuple(sorted(how.items(), key=lambda item: -len(item[0]))))
    if isinstance(how, tuple):
        try:
            return _Pattern(re.compile(how[0]), how[1])
        except re.error as problem:
            raise ModelError(f"{how[0]!r} is not a valid regular expression: {problem}") from None
    return how


# Classes, not closures: tables are pickled to other processes.


@dataclass(frozen=True, slots=True)
class _Prefixes:
    prefixes: tuple[tuple[str, str], ...]

    def __call__(self, url: str) -> str:
        return next((new + url[len(old) :] for old, new in self.prefixes if url.startswith(old)), url)


@dataclass(frozen=True, slots=True)
class _Pattern:
    pattern: re.Pattern[str]
    replacement: str

    def __call__(self, url: str) -> str:
        try:
            return self.pattern.sub(self.replacement, url)
        except (re.error, IndexError) as problem:
            raise ModelError(f"{self.replacement!r} is not a valid replacement: {problem}") from None


@dataclass(frozen=True, slots=True)
class _Rename:
    rename: Callable[[str], str]

    def __call__(self, source: Source) -> Source:
        url = self.rename(source.url)
        if not isinstance(url, str) or not url:
            raise ModelError(f"renaming {source.url} gives {url!r}, which is not a URL")
        # The time of change, which ETags of local files contain, belongs to the old location. Size
        # and other ETags belong to the content.
        return (
            source
            if url == source.url
            else replace(source, url=url, modified=None, etag=None if source.is_local_file else source.etag)
        )


def _drop_identity(source: Source) -> Source:
    return Source(source.url, optional=source.optional)


def _change_table(table: ChunkTable, change: SourceChange) -> ChunkTable:
    if isinstance(table, Columns) and isinstance(table.sources, tuple | list):
        return replace(table, sources=tuple(change(source) for source in table.sources))
    return RenamedTable(table, change)


@dataclass(frozen=True, slots=True, eq=False)
class RenamedSources(SourceSequence):
    """Sources with other URLs, each rewritten when it is accessed."""

    sources: Sequence[Source]
    change: SourceChange

    def __len__(self) -> int:
        return len(self.sources)

    def find(self, number: int) -> Source:
        """Return one source, with its new URL."""
        return self.change(self.sources[number])

    def __iter__(self) -> Iterator[Source]:
        return (self.change(source) for source in self.sources)


@dataclass(frozen=True, slots=True, eq=False)
class RenamedTable(ChunkTableBase):
    """A table whose sources have other URLs."""

    table: ChunkTable
    change: SourceChange

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(self.table.shape)

    @property
    def sources(self) -> Sequence[Source]:
        """The sources, with their new URLs."""
        return RenamedSources(self.table.sources, self.change)

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        return self.table.locate(cells)
