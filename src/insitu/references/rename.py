"""What are the sources called somewhere else?

Archives move. Every URL of a tree is rewritten, by prefix, by pattern, or by a function; nothing else changes, and nothing is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

from insitu.errors import ModelError
from insitu.model import ChunkState, ChunkTable, Columns, Located, Source, VirtualGroup
from insitu.model.axis import Indices
from insitu.model.chunks import state_of
from insitu.model.derived import Expanded, Selected

__all__ = ["Renaming", "renamed"]

Renaming = Mapping[str, str] | tuple[str, str] | Callable[[str], str]
"""Old prefix → new prefix (the longest counts); a pattern and its replacement; or a function of the URL."""


def renamed(group: VirtualGroup, how: Renaming) -> VirtualGroup:
    """The tree with other URLs.

    Parameters
    ----------
    group
        The tree.
    how
        A mapping of prefixes, a pair of regular expression and replacement, or a function.

    Raises
    ------
    ModelError
        If a new URL is empty.
    """
    change = _function(how)
    arrays = {}
    for name, array in group.arrays.items():
        tiles = tuple(replace(tile, chunks=_renamed(tile.chunks, change)) for tile in array.tiles)
        arrays[name] = replace(array, tiles=tiles)
    return replace(group, arrays=arrays, groups={name: renamed(inner, how) for name, inner in group.groups.items()})


def _function(how: Renaming) -> Callable[[str], str]:
    if isinstance(how, Mapping):
        prefixes = sorted(how.items(), key=lambda item: -len(item[0]))

        def by_prefix(url: str) -> str:
            return next((new + url[len(old) :] for old, new in prefixes if url.startswith(old)), url)

        return by_prefix
    if isinstance(how, tuple):
        pattern, replacement = how
        compiled = re.compile(pattern)
        return lambda url: compiled.sub(replacement, url)
    return how


def _new(source: Source, change: Callable[[str], str]) -> Source:
    url = change(source.url)
    if not isinstance(url, str) or not url:
        raise ModelError(f"the new URL of {source.url} is {url!r}")
    # The time of change is that of the old place; size and ETag stay with the content.
    return source if url == source.url else replace(source, url=url, modified=None, etag=_portable(source.etag))


def _portable(etag: str | None) -> str | None:
    """A mark that holds in another place too; those of local files hold the time of change."""
    return None if etag is not None and re.fullmatch(r"[0-9a-f]+-[0-9a-f]+", etag) else etag


def _renamed(table: ChunkTable, change: Callable[[str], str]) -> ChunkTable:
    if isinstance(table, Columns) and isinstance(table.sources, tuple | list):
        return replace(table, sources=tuple(_new(source, change) for source in table.sources))
    return Renamed(table, change)


@dataclass(frozen=True, slots=True, eq=False)
class RenamedSources(Sequence[Source]):
    """Sources under other URLs, each changed when it is asked for."""

    sources: Sequence[Source]
    change: Callable[[str], str]

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, number: int) -> Source: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Source]: ...
    def __getitem__(self, number: int | slice) -> Source | Sequence[Source]:
        if isinstance(number, slice):
            return [_new(source, self.change) for source in self.sources[number]]
        return _new(self.sources[number], self.change)

    def __iter__(self) -> Iterator[Source]:
        return (_new(source, self.change) for source in self.sources)


@dataclass(frozen=True, slots=True, eq=False)
class Renamed:
    """A table whose sources have other URLs."""

    table: ChunkTable
    change: Callable[[str], str]

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(self.table.shape)

    @property
    def sources(self) -> Sequence[Source]:
        """Under their new URLs."""
        return RenamedSources(self.table.sources, self.change)

    def locate(self, cells: Sequence[Indices]) -> Located:
        """Where cells lie."""
        return self.table.locate(cells)

    def take(self, axis: int, cells: Indices | slice) -> Selected:
        """The table of these cells along one axis."""
        return Selected.of(self, axis, cells)

    def expanded(self) -> Expanded:
        """The same table with one more axis, of one cell, at the end."""
        return Expanded(self)

    def __getitem__(self, cell: int | tuple[int, ...]) -> ChunkState:
        return state_of(self, cell)
