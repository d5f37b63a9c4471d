"""The files of the explorer's page, which ship with the package, with their media types and ETags."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

__all__ = ["PageFile", "compress_file", "page_files"]

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
"""Media types of the files by suffix; no others are served."""


class PageFile(NamedTuple):
    """One file of the page."""

    data: bytes
    media_type: str
    etag: str


@cache
def compress_file(found: PageFile) -> PageFile:
    """Return a file as gzip, with an ETag of its own: the page is 720 kB, and 260 kB so."""
    return found._replace(data=gzip.compress(found.data, 6, mtime=0), etag=f'{found.etag[:-1]}-gzip"')


@cache
def page_files() -> dict[str, PageFile]:
    """Return the files of the page by name; those of folders have slashes in their names."""
    found: dict[str, PageFile] = {}
    _collect(resources.files(__package__).joinpath("page"), "", found)
    return found


def _collect(folder: Traversable, prefix: str, found: dict[str, PageFile]) -> None:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            _collect(entry, f"{prefix}{entry.name}/", found)
            continue
        kind = MEDIA_TYPES.get(entry.name[entry.name.rfind(".") :])
        if kind is not None:
            data = entry.read_bytes()
            found[prefix + entry.name] = PageFile(data, kind, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
