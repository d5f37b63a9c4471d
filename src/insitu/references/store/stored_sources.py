"""`StoredSources`: the files that a store refers to, fetched in groups when they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from insitu.lru import LruCache
from insitu.model import Source
from insitu.model.axis import Indices
from insitu.model.source import SourceSequence
from insitu.references.store.native_names import NATIVE, STORE_SCHEME, native_folder, outer_url
from insitu.references.store.row_file import ROWS_PER_GROUP, RowFile
from insitu.references.urls import UrlResolver, is_relative
from insitu.sources.threads import gather

__all__ = ["StoredSources"]

_SOURCE_PAGES_BYTES = 64 << 20
_SOURCE_COLUMNS = ("url", "size", "etag", "modified", "optional")


def _page_bytes(page: Mapping[str, Any]) -> int:
    return sum(int(column.nbytes) for column in page.values())


@dataclass(frozen=True, slots=True, eq=False)
class StoredSources(SourceSequence):
    """The sources of a store, fetched in groups when they are used."""

    is_shared: ClassVar[bool] = True
    """All arrays of a store have the same."""

    parts: tuple[RowFile, ...]
    base: UrlResolver
    starts: Indices
    """Number of the first source in each file, and the number of all sources."""
    pages: LruCache[tuple[int, int], Mapping[str, Any]] = field(
        default_factory=lambda: LruCache(_SOURCE_PAGES_BYTES, _page_bytes, min_items=1), repr=False
    )

    @classmethod
    def of(cls, parts: Sequence[RowFile], base: UrlResolver) -> StoredSources:
        """The sources in these files."""
        starts = np.concatenate([[0], np.cumsum([part.rows for part in parts])]).astype(np.int64)
        return cls(tuple(parts), base, starts)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def find(self, number: int) -> Source:
        """Return one source, of a page that is fetched if it was not."""
        if number >= len(self):
            raise IndexError(f"source {number} of {len(self)}")
        part = int(np.searchsorted(self.starts, number, side="right")) - 1
        group, row = divmod(number - int(self.starts[part]), ROWS_PER_GROUP)
        return self._source(self._page(part, group), row)

    def can_prefetch(self) -> bool:
        """Return whether there are so few that all can be fetched, and whether none was yet."""
        return 0 < len(self) <= ROWS_PER_GROUP and not len(self.pages)

    def prefetch(self) -> None:
        """Fetch all sources."""
        gather(lambda which, stop: self._page(which, 0), [n for n, part in enumerate(self.parts) if part.rows])

    def is_relative(self) -> bool:
        """Return whether sources are named relative to the store: one of the first is enough, since
        those on other hosts have no relative names.
        """
        if not any(part.rows for part in self.parts):
            return False
        which = next(number for number, part in enumerate(self.parts) if part.rows)
        names = self._page(which, 0)["url"].to_pylist()
        return any(is_relative(url) for url in names if not url.startswith("/") and "://" not in url)

    def may_be_native(self) -> bool:
        """Return whether some may be native chunks of any store: asked of the text of all names at once, which takes a
        tenth of the time that making the sources takes (0.4 s of 166,440).
        """
        if NATIVE in str(self.base.url):
            return True
        pages = (
            self._page(which, group)
            for which, part in enumerate(self.parts)
            for group in range(-(-part.rows // ROWS_PER_GROUP))
        )
        texts = ("\n".join(page["url"].to_pylist()) for page in pages)
        return any(NATIVE in text or STORE_SCHEME in text for text in texts)

    def native_folders(self) -> set[str]:
        """Return the folders of native chunks that sources lie in."""
        return {
            folder
            for which, part in enumerate(self.parts)
            for group in range(-(-part.rows // ROWS_PER_GROUP))
            for url in self._page(which, group)["url"].to_pylist()
            if (folder := native_folder(url)) is not None
        }

    def _page(self, part: int, group: int) -> Mapping[str, Any]:
        return self.pages.get_or_load((part, group), partial(self.parts[part].columns, group, _SOURCE_COLUMNS))

    def _source(self, page: Mapping[str, Any], row: int) -> Source:
        url, size, etag, modified, optional = (page[name][row].as_py() for name in _SOURCE_COLUMNS)
        return Source(self._resolve(url), size, etag, modified, bool(optional))

    def _resolve(self, url: str) -> str:
        return outer_url(url, str(self.base.url)) or self.base.resolve(url)

    def __iter__(self) -> Iterator[Source]:
        for which, part in enumerate(self.parts):
            for group in range(-(-part.rows // ROWS_PER_GROUP)):
                page = self._page(which, group)
                # By columns: one value at a time takes thirty times as long.
                for row in zip(*(page[name].to_pylist() for name in _SOURCE_COLUMNS), strict=True):
                    yield Source(self._resolve(row[0]), row[1], row[2], row[3], bool(row[4]))
