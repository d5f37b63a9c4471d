"""`api/list`: archives under the roots of a server: folders, files and stores, searchable by name.

What lies outside the roots, behind a link for instance, is not shown.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from insitu.cancellation import check_deadline
from insitu.combining.file_names import is_many
from insitu.errors import InsituError
from insitu.server.authentication import Credentials
from insitu.server.explorer.api_query import ApiQuery
from insitu.server.explorer.opened_archives import COLLECTION, ArchiveOpener
from insitu.server.explorer.recognise_archives import (
    format_by_signature,
    format_by_suffix,
    is_folder,
    store_format,
)
from insitu.server.roots import local_path, split_root
from insitu.sources.address import is_remote, scheme_of
from insitu.sources.listing import FolderListing, list_folder
from insitu.sources.redaction import redact_url

__all__ = ["list_archives"]

MAX_ENTRIES = 2000
"""Entries of a listing; more are cut off."""
MAX_LOCAL_FOLDERS = 5000
"""Folders of this machine that a search looks into."""
MAX_REMOTE_FOLDERS = 40
"""Prefixes of a store that a search lists, each by a request."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a listing."""

    name: str
    url: str
    kind: str
    """`folder` or `archive`."""
    format: str | None = None
    bytes: int | None = None
    modified: str | None = None
    """In ISO 8601, UTC."""


def list_archives(opener: ArchiveOpener, query: ApiQuery, client: Credentials) -> dict[str, Any]:
    """Return a listing: of a folder, of what a search finds under it, or of the roots."""
    lister = _Lister(opener, client)
    folder, search = query.get("folder") or None, (query.get("search") or "").strip()
    if folder is not None:
        opener.options(folder, client)
    if search:
        found, truncated = lister.search(folder, search)
    else:
        entries = lister.roots() if folder is None else lister.below(folder)
        found, truncated = entries[:MAX_ENTRIES], len(entries) > MAX_ENTRIES
    return {
        "folder": folder,
        "parents": lister.parents(folder) if folder is not None else [],
        "entries": [asdict(entry) for entry in found],
        "truncated": truncated,
        "combined": None if search else _combined_pattern(folder, found, len(opener.collection())),
    }


class _Lister:
    """Lists what one client may see."""

    def __init__(self, opener: ArchiveOpener, client: Credentials) -> None:
        self.opener, self.client, self.allowed = opener, client, opener.worker.roots

    def roots(self) -> list[Entry]:
        """Return what the operator named."""
        settings = self.opener.worker.settings
        found = []
        for url in settings.archives or [split_root(root)[0] for root in settings.roots]:
            name = redact_url(url)
            # A prefix that the operator lets clients read is a folder, with or without a slash at its end.
            is_prefix = not settings.archives and is_remote(url) and format_by_suffix(url) is None
            if is_prefix or is_folder(self.allowed.local_copy(url)):
                found.append(Entry(name, url, "folder"))
            else:
                found.append(self._file(name, url))
        if len(self.opener.collection()) > 1:
            found.append(Entry("all of them as one dataset", COLLECTION, "archive", "combined"))
        return found

    def below(self, folder: str) -> list[Entry]:
        """Return what lies right under a folder."""
        return [*self._entries(folder, self._names(folder))]

    def search(self, folder: str | None, text: str) -> tuple[list[Entry], bool]:
        """Return what has a text in its name, in all folders below, nearest first; and whether that may not be all."""
        found: list[Entry] = []
        starts = self.roots() if folder is None else [Entry(folder, folder, "folder")]
        waiting = deque(entry.url for entry in starts if entry.kind == "folder")
        found += [entry for entry in starts if entry.kind == "archive" and text.lower() in entry.name.lower()]
        local = remote = 0
        while waiting:
            check_deadline()
            current = waiting.popleft()
            if is_remote(self.allowed.local_copy(current)):
                remote += 1
            else:
                local += 1
            if local > MAX_LOCAL_FOLDERS or remote > MAX_REMOTE_FOLDERS or len(found) > MAX_ENTRIES:
                return found[:MAX_ENTRIES], True
            try:
                names = self._names(current)
            except InsituError:
                continue  # a folder that cannot be listed hides nothing that could be opened
            for entry in self._entries(current, names, text.lower()):
                if text.lower() in entry.name.lower():
                    found.append(entry)
                if entry.kind == "folder":
                    waiting.append(entry.url)
        return found[:MAX_ENTRIES], len(found) > MAX_ENTRIES

    def parents(self, folder: str) -> list[dict[str, str]]:
        """Return the folders above a folder, from its root down."""
        settings = self.opener.worker.settings
        tops = [split_root(root)[0].rstrip("/") for root in settings.roots]
        above = [top for top in tops if folder == top or folder.startswith(f"{top}/")]
        if not above:
            return []
        top = max(above, key=len)
        below = [part for part in folder[len(top) :].split("/") if part]
        found, url = [{"name": redact_url(top), "url": top}], top
        for part in below:
            url = f"{url}/{part}"
            found.append({"name": unquote(part) if is_remote(url) else part, "url": url})
        return found[:-1]

    def _names(self, folder: str) -> FolderListing:
        return list_folder(self.allowed.local_copy(folder), self.opener.options(folder, self.client))

    def _entries(self, folder: str, names: FolderListing, text: str | None = None) -> Iterator[Entry]:
        """Yield the entries of a folder; files only if a text is in their name."""
        quoted = scheme_of(folder) in ("http", "https", "file")
        for name in names.folders:
            if name.startswith("."):
                continue
            url = f"{folder.rstrip('/')}/{quote(name) if quoted else name}"
            path = local_path(self.allowed.local_copy(url))
            if path is not None and not self._is_visible(path):
                continue
            store = format_by_suffix(name) or (path is not None and store_format(path)) or None
            if store is None:
                yield Entry(name, url if path is not None else f"{url}/", "folder", modified=_modification_time(path))
            else:
                yield Entry(name, url, "archive", store, modified=_modification_time(path))
        for name in names.files:
            if name.startswith(".") or (text is not None and text not in name.lower()):
                continue
            entry = self._file(name, f"{folder.rstrip('/')}/{quote(name) if quoted else name}")
            if entry.bytes is None:
                entry = replace(entry, bytes=names.sizes.get(name))
            if entry.format is not None and entry.bytes != 0:  # an empty file holds no data, whatever its name
                yield entry

    def _file(self, name: str, url: str) -> Entry:
        """Return the entry of a file, without a format if it is no archive."""
        path = local_path(self.allowed.local_copy(url))
        kind = "pattern" if is_many(url) else format_by_suffix(url)
        if path is None or kind == "pattern":
            return Entry(name, url, "archive", kind)
        if os.path.isdir(path):
            return Entry(name, url, "archive", kind or store_format(path), modified=_modification_time(path))
        try:
            facts = os.stat(path)
            kind = kind or (format_by_signature(path) if self._is_visible(path) else None)
        except OSError:
            return Entry(name, url, "archive")
        return Entry(name, url, "archive", kind, facts.st_size, _time_text(facts.st_mtime))

    def _is_visible(self, path: str) -> bool:
        return self.opener.worker.settings.archives != () or self.allowed.path(os.path.realpath(path))


def _combined_pattern(folder: str | None, entries: list[Entry], collected: int) -> str | None:
    """Return the pattern of the files of a folder that may be one dataset; None if there are not several."""
    if folder is None:
        return COLLECTION if collected > 1 else None
    suffixes = Counter(
        os.path.splitext(entry.url)[1]
        for entry in entries
        if (entry.kind == "archive" and entry.bytes is not None) or is_remote(folder)
        if entry.format not in (None, "zip", "tar", "grib_index")
    )
    (suffix, count) = suffixes.most_common(1)[0] if suffixes else ("", 0)
    return f"{folder.rstrip('/')}/*{suffix}" if count > 1 and suffix else None


def _modification_time(path: str | None) -> str | None:
    try:
        return None if path is None else _time_text(os.stat(path).st_mtime)
    except OSError:
        return None


def _time_text(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
