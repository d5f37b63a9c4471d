"""List the entries of a zip or tar archive, with a cache of recent lists.

The lists of the archives that were opened last are remembered while the archives do not change: to
open a thousand entries one by one reads one directory.
"""

from __future__ import annotations

from insitu.errors import FormatError
from insitu.formats.containers.archive_entry import ArchiveEntry
from insitu.formats.containers.tar_entries import is_header, resembles_header, tar_entries
from insitu.formats.containers.zip_entries import zip_entries
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.scheduler import run
from insitu.lru import LruCache
from insitu.model import Source
from insitu.sources.access_policy import has_access_policy
from insitu.sources.protocol import ByteSource

__all__ = ["is_tar", "is_zip", "list_entries", "read_entries"]

MOST_ARCHIVES_REMEMBERED = 8
"""Archives whose lists are remembered."""
MOST_ENTRIES_REMEMBERED = 1 << 17
"""Most entries of an archive whose list is remembered."""
_recent: LruCache[Source, list[ArchiveEntry]] = LruCache(MOST_ARCHIVES_REMEMBERED)


def is_zip(window: ReadCache) -> bool:
    """Return whether a file begins as a zip archive does."""
    return window.head[:4] in (b"PK\3\4", b"PK\5\6")


def is_tar(window: ReadCache) -> bool:
    """Return whether a file begins with the header of a tar archive's entry.

    One that is damaged counts: the entry behind it may begin where the superblock of an HDF5 file can lie.
    """
    return is_header(window.head[:512]) or resembles_header(window.head[:512])


def list_entries(source: ByteSource) -> list[ArchiveEntry]:
    """Return the entries of an archive, from the cache if it has not changed."""
    if has_access_policy():
        # The list may have been read for another client: check that this one can read the archive,
        # too.
        source.read(0, 1)
    known = _recent.get(source.describe())
    if known is not None:
        return known
    window = ReadCache(source)
    if not is_zip(window) and not is_tar(window):
        raise FormatError(
            "the file is not a zip or tar archive, so it has no members",
            url=source.url,
            offset=0,
            structure="signature",
        )
    return read_entries(window, "zip" if is_zip(window) else "tar")


def read_entries(window: ReadCache, kind: str) -> list[ArchiveEntry]:
    """Read the list of entries of a zip or tar archive, and remember it."""
    found = zip_entries(window) if kind == "zip" else run(tar_entries(window.size), window)
    about = window.source.describe()
    if len(found) <= MOST_ENTRIES_REMEMBERED and (about.etag or about.modified):
        _recent.put(about, found)
    return found
