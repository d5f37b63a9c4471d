"""Rows of a store in memory: pages and groups of rows, loaded when they are needed, and cached.

A page of rows is loaded alone. If many pages of a group are needed, the group is loaded as a whole.
Columns that have one value in all rows are not loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError
from insitu.lru import LruCache
from insitu.model import INLINE, WHOLE, ChunkLocations
from insitu.model.axis import Indices
from insitu.model.chunks import COLUMN_NAMES
from insitu.references import arrow
from insitu.references.store.row_file import ROWS_PER_GROUP, RowFile
from insitu.sources.address import is_remote
from insitu.sources.listing import local_path
from insitu.sources.threads import gather

__all__ = ["PageCache", "StoredRows", "new_page_cache", "rows_together"]

_PAGES_BYTES = 128 << 20
_PAGES_AT_ONCE = 1024
"""Pages that are fetched and decoded together: 8 MiB a column. A group counts as 16 of them."""
_MOST_PAGES = 16
"""Most pages of a group that are read alone from a local disk: more cost as much as the group."""
_MOST_REMOTE_PAGES = 2
"""The same far away, where each column of a page is a request and a group is one."""
_FEW_GROUPS = 16
"""Groups that are fetched as a whole from far away: 4 MB are nearer than 48 requests."""


@dataclass(frozen=True, slots=True, eq=False)
class RowPage:
    """Some rows in memory: a page, or a whole group."""

    values: npt.NDArray[np.int64]
    """(columns, rows)."""
    ends: npt.NDArray[np.int64] | None = None
    """Offsets of the inline bytes of each row, and their end; None: there are none."""
    inline: bytes = b""


PageCache = LruCache[tuple[int, str, int, tuple[str, ...]], RowPage]
"""Rows by the number of the file, "page" or "group", its number, and the columns."""


def _page_bytes(page: RowPage) -> int:
    return 256 + len(page.inline) + page.values.nbytes


def new_page_cache() -> PageCache:
    """Return an empty page cache for one store."""
    return LruCache(_PAGES_BYTES, _page_bytes, min_items=1)


def _batches(blocks: Sequence[_Block]) -> Iterator[list[_Block]]:
    """Yield blocks in batches that take bounded memory."""
    batch: list[_Block] = []
    weight = 0
    for block in blocks:
        batch.append(block)
        weight += 16 if block.whole else 1
        if weight >= _PAGES_AT_ONCE:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


class PrefetchedSources(Protocol):
    """The sources of a store, which can be fetched before it is known which ones are needed."""

    def __len__(self) -> int: ...

    def can_prefetch(self) -> bool:
        """Return whether there are so few that all can be fetched, and whether none was yet."""

    def prefetch(self) -> None:
        """Fetch them."""


class _Block(NamedTuple):
    """A page or a group, and which of the asked rows it holds, which are in ascending order."""

    number: int
    whole: bool
    """Whether it is a group."""
    first: int
    """Its first row."""
    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """A range of rows of one file of the store."""

    part: RowFile
    number: int
    """Number of the file, for the cache."""
    first: int
    """The first row."""
    count: int
    constant: Mapping[str, int]
    """Columns that have one value in all of these rows."""
    pages: PageCache = field(repr=False)
    encoding_map: Indices = field(repr=False)
    """From the store's encodings and packings to the tile's; -1: not one of the tile's."""
    packing_map: Indices = field(repr=False)
    sources: PrefetchedSources

    @property
    def is_local(self) -> bool:
        """Whether the file is one of this machine."""
        return not is_remote(self.part.url)

    def columns(self) -> tuple[str, ...]:
        """Return the columns of numbers to load."""
        return tuple(name for name in COLUMN_NAMES if name not in self.constant)

    def names(self) -> tuple[str, ...]:
        """Return the columns to load with a whole group of rows."""
        inline = self.constant.get("source", INLINE) == INLINE
        return (*self.columns(), "inline") if inline else self.columns()

    def group(self, group: int, names: tuple[str, ...] | None = None) -> RowPage:
        """Return one group of rows."""
        columns = self.names() if names is None else names
        return self.pages.get_or_load(
            (self.number, "group", group, columns), partial(_read_group, self.part, group, columns)
        )

    def rows(self, row: Indices) -> ChunkLocations:
        """Return where the cells of these rows lie."""
        row = row + self.first
        values = self._load_with_sources(row)
        found = {name: np.full(len(row), value, np.int64) for name, value in self.constant.items()}
        found.update(zip(self.columns(), values, strict=True))
        inline = self._place_inline(row, found) if "inline" in self.names() else b""
        self._check(found)
        encoding, packing = (
            self._to_tile_numbers(found["encoding"], self.encoding_map),
            self._to_tile_numbers(found["packing"], self.packing_map),
        )
        return ChunkLocations(
            found["source"], found["offset"], found["length"], found["filter_mask"], encoding, packing, inline
        )

    def _load_with_sources(self, row: Indices) -> npt.NDArray[np.int64]:
        """Return the numbers in some rows; far away, fetch the sources in the same round trips."""
        if local_path(self.part.url) is not None or not self.sources.can_prefetch():
            return self._load(row)
        tasks: list[Callable[[], Any]] = [lambda: self._load(row), self.sources.prefetch]
        values: npt.NDArray[np.int64] = gather(lambda task, stop: task(), tasks)[0]
        return values

    def _load(self, row: Indices) -> npt.NDArray[np.int64]:
        """Return the numbers in some rows: (columns, rows)."""
        columns = self.columns()
        if not columns or not len(row):
            return np.empty((len(columns), len(row)), np.int64)
        order = None if len(row) < 2 or (row[1:] >= row[:-1]).all() else np.argsort(row, kind="stable")
        ascending = row if order is None else row[order]
        values = np.empty((len(columns), len(row)), np.int64)
        for batch in _batches(self._plan_blocks(ascending)):
            for block, page in zip(batch, self._load_blocks(batch), strict=True):
                values[:, block.begin : block.end] = page.values[:, ascending[block.begin : block.end] - block.first]
        if order is None:
            return values
        result = np.empty_like(values)
        result[:, order] = values
        return result

    def _plan_blocks(self, ascending: Indices) -> list[_Block]:
        """Return the pages and groups that hold rows; groups of which few pages are needed are not
        loaded as a whole.
        """
        group = ascending // ROWS_PER_GROUP
        index = self.part.page_index()
        if index is None or not index.columns.keys() >= set(self.columns()):
            number, rows, whole = group, np.full(len(group), ROWS_PER_GROUP), np.ones(len(group), bool)
        else:
            page = ascending // index.page_rows
            groups, needed = np.unique(group[np.flatnonzero(np.diff(page, prepend=-1))], return_counts=True)
            if local_path(self.part.url) is not None:
                as_group = needed > _MOST_PAGES
            else:
                as_group = needed > (_MOST_REMOTE_PAGES if len(groups) > _FEW_GROUPS else 0)
            cached = [(self.number, "group", k, self.names()) in self.pages for k in groups.tolist()]
            as_group = as_group | np.array(cached)
            whole = as_group[np.searchsorted(groups, group)]
            number, rows = np.where(whole, group, page), np.where(whole, ROWS_PER_GROUP, index.page_rows)
        first = number * rows
        # A page and a group may begin with the same row, but never lie next to each other here.
        begin = np.flatnonzero(np.diff(first, prepend=-1))
        end = np.append(begin[1:], len(ascending))
        columns = (number[begin], whole[begin], first[begin], begin, end)
        return [_Block(*block) for block in zip(*(column.tolist() for column in columns), strict=True)]

    def _load_blocks(self, blocks: Sequence[_Block]) -> Iterator[RowPage]:
        """Yield pages and groups; pages that are not in memory, and remote groups, are fetched
        together.
        """
        if len(blocks) > 1 and local_path(self.part.url) is None:
            missing = [block.number for block in blocks if block.whole and self._key(block) not in self.pages]
            gather(lambda group, stop: self.group(group), missing)
        known = {block.number: self.pages.get(self._key(block)) for block in blocks if not block.whole}
        pages = {number: page for number, page in known.items() if page is not None}
        if len(pages) < len(known):
            pages.update(self._load_pages([number for number in known if number not in pages]))
        for block in blocks:
            yield self.group(block.number) if block.whole else pages[block.number]

    def _load_pages(self, numbers: Sequence[int]) -> dict[int, RowPage]:
        """Fetch pages, and keep them."""
        columns = self.columns()
        values, rows = self.part.pages(np.array(numbers), columns)
        cuts = rows * np.arange(1, len(numbers))
        # Copies: a part of the array would keep all of it in memory.
        pages = {n: RowPage(part.copy()) for n, part in zip(numbers, np.split(values, cuts, axis=1), strict=True)}
        for number, page in pages.items():
            self.pages.put((self.number, "page", number, columns), page)
        return pages

    def _key(self, block: _Block) -> tuple[int, str, int, tuple[str, ...]]:
        kind, names = ("group", self.names()) if block.whole else ("page", self.columns())
        return self.number, kind, block.number, names

    def _place_inline(self, row: Indices, found: dict[str, Indices]) -> bytes:
        """Return the inline bytes of some rows; set offset and length in them."""
        inline_rows = np.flatnonzero(found["source"] == INLINE)
        group, inside = np.divmod(row[inline_rows], ROWS_PER_GROUP)
        inline = bytearray()
        for k in np.unique(group).tolist():
            page = self.pages.get((self.number, "group", k, self.names())) or self.group(k, ("inline",))
            if page.ends is not None:
                here = group == k
                begin, end = page.ends[inside[here]], page.ends[inside[here] + 1]
                found["offset"][inline_rows[here]], found["length"][inline_rows[here]] = (
                    begin + len(inline),
                    end - begin,
                )
                inline += page.inline
        return bytes(inline)

    def _check(self, found: Mapping[str, Indices]) -> None:
        """Raise `FormatError` if a row has an invalid source, offset or length."""
        if not len(found["source"]):
            return
        source, stored = found["source"], found["source"] >= 0
        if int(source.max()) >= len(self.sources) or int(source.min()) < INLINE:
            raise FormatError(
                "a row has a source number that the store does not have", url=self.part.url, structure="source"
            )
        for name, least in (("offset", 0), ("length", WHOLE)):
            if stored.any() and int(found[name][stored].min()) < least:
                raise FormatError(f"a row has a negative {name}", url=self.part.url, structure=name)

    def _to_tile_numbers(self, numbers: Indices, known: Indices) -> Indices:
        if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= len(known)):
            raise FormatError(
                "a row has an encoding or packing number that the store does not have",
                url=self.part.url,
                structure="rows",
            )
        local: Indices = known[numbers]
        if len(local) and int(local.min()) < 0:
            raise FormatError(
                "a row has an encoding or packing number of another array", url=self.part.url, structure="rows"
            )
        return local


def rows_together(stored: Sequence[StoredRows], row: Indices, counts: Indices) -> ChunkLocations | None:
    """Return where the cells of rows of many ranges lie: as `StoredRows.rows` of each, but those of one
    file are loaded at once. None if there may be inline bytes, or the ranges are of several stores.

    Parameters
    ----------
    stored
        The ranges of rows.
    row
        Rows, counted from the beginning of each range, range after range.
    counts
        How many there are of each range.
    """
    batches: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    for number, each in enumerate(stored):
        if each.pages is not stored[0].pages or "inline" in each.names():
            return None
        batches.setdefault((each.number, each.columns()), []).append(number)
    row = row + np.repeat([each.first for each in stored], counts)
    ends = np.cumsum(counts)
    result = {name: np.empty(len(row), np.int64) for name in COLUMN_NAMES}
    for numbers in batches.values():
        here = np.concatenate([np.arange(ends[number] - counts[number], ends[number]) for number in numbers])
        found = _load_batch([stored[number] for number in numbers], row[here], counts[numbers])
        for name, column in result.items():
            column[here] = found[name]
    return ChunkLocations(**result, inline=b"")


def _load_batch(stored: Sequence[StoredRows], row: Indices, counts: Indices) -> dict[str, Indices]:
    """Return the columns of rows of a file, counted from its beginning, of ranges with the same constant columns."""
    first = stored[0]
    found = {name: np.repeat([each.constant[name] for each in stored], counts) for name in first.constant}
    found.update(zip(first.columns(), first._load_with_sources(row), strict=True))
    first._check(found)
    bounds = np.cumsum([0, *counts.tolist()]).tolist()
    for name in ("encoding", "packing"):
        for each, begin, end in zip(stored, bounds, bounds[1:], strict=False):
            known = each.encoding_map if name == "encoding" else each.packing_map
            found[name][begin:end] = each._to_tile_numbers(found[name][begin:end], known)
    return found


def _read_group(part: RowFile, group: int, names: tuple[str, ...]) -> RowPage:
    columns = part.columns(group, names)
    ends, inline = None, b""
    try:
        if "inline" in columns:
            raw = columns.pop("inline")
            if raw.null_count < len(raw):
                ends, inline = arrow.offsets_and_bytes(raw)
        values = np.empty((len(columns), max(map(len, columns.values()), default=0)), np.int64)
        for row, column in zip(values, columns.values(), strict=True):
            row[:] = arrow.to_integers(column)
        return RowPage(values, ends, inline)
    except TypeError as problem:
        raise FormatError(f"the rows cannot be read: {problem}", url=part.url, structure=f"group {group}") from None
