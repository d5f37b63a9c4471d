"""Open the other files that a file names: external links, external storage, virtual datasets.

Names are relative to the file that holds them. Each file is opened once per scan, with the same
options, next to that file on the disk or by a URL joined to its own. A name never leads to another
host, and never from a remote file to the local disk. The access policy of the process
(`sources.gate`) applies to these files too.

A file that does not exist leaves its part to the fill value, as in the HDF5 library. A file that
may not be read is an error.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote, urlsplit, urlunsplit

from insitu.errors import AccessError, FormatError, NotFoundError
from insitu.formats.parsing.read_cache import ReadCache
from insitu.sources import open_source
from insitu.sources.protocol import ByteSource
from insitu.sources.threads import gather

__all__ = ["FILES_LIMIT", "OpensSiblings", "SiblingFiles", "sibling_urls"]

FILES_LIMIT = 1 << 16


@runtime_checkable
class OpensSiblings(Protocol):
    """A source that opens others with its own credentials."""

    def beside(self, url: str) -> ByteSource:
        """Return the source at another URL of the same store."""


class SiblingFiles:
    """The files of one scan; closed together."""

    __slots__ = ("_opened", "_stack", "memory")

    def __init__(self, window: ReadCache) -> None:
        self._opened: dict[str, ReadCache | AccessError | None] = {window.url: window}
        self._stack = ExitStack()
        self.memory: dict[Any, Any] = {}
        """What was found in them, by whoever looked."""

    def __enter__(self) -> SiblingFiles:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def open_sibling(self, window: ReadCache, name: str) -> ReadCache | None:
        """Return the file that another one names, or None if it does not exist.

        Parameters
        ----------
        window
            The file that names it.
        name
            Absolute, or relative to its folder.
        """
        denied: AccessError | None = None
        for url in sibling_urls(window.url, name):
            found = self._opened[url] if url in self._opened else self._open(window, url)
            if isinstance(found, ReadCache):
                return found
            denied = denied or found
        if denied is not None:
            raise denied
        return None

    def prepare(self, window: ReadCache, names: Iterable[str]) -> None:
        """Open many remote files at once: one after the other costs a round trip each."""
        if window.local:
            return
        places = [sibling_urls(window.url, name) for name in dict.fromkeys(names)]
        unopened = [found[0] for found in places if found and found[0] not in self._opened][:FILES_LIMIT]
        if len(unopened) > 1:
            gather(lambda url, _: self._open(window, url), unopened)

    def _open(self, window: ReadCache, url: str) -> ReadCache | AccessError | None:
        if len(self._opened) >= FILES_LIMIT:
            raise FormatError(
                f"the file names more than {FILES_LIMIT} other files", url=window.url, structure="file names"
            )
        found: ReadCache | AccessError | None
        try:
            found = self._read(window, url)
        except (NotFoundError, IsADirectoryError):
            found = None
        except AccessError as denied:
            found = denied  # on the disk of somebody else an absolute path may well be: the library then looks on, too
        return self._opened.setdefault(url, found)

    def _read(self, window: ReadCache, url: str) -> ReadCache:
        options = window.storage_options
        source = window.source.beside(url) if isinstance(window.source, OpensSiblings) else open_source(url, options)
        self._stack.callback(source.close)
        return ReadCache(source, storage_options=options)


def sibling_urls(url: str, name: str) -> list[str]:
    """Return the URLs at which a named file may be, in the order in which HDF5 looks.

    Examples
    --------
    >>> sibling_urls("https://host/a/b.h5?x=1", "../c.h5"), sibling_urls("s3://bucket/a/b.h5", "c.h5")
    (['https://host/c.h5'], ['s3://bucket/a/c.h5'])
    >>> sibling_urls("s3://bucket/run #1?/b.h5", "c d.h5"), sibling_urls("https://host/a%20b/c.h5", "c d.h5")
    (['s3://bucket/run #1?/c d.h5'], ['https://host/a%20b/c%20d.h5'])
    >>> sibling_urls("/data/b.h5", "/gone/c.h5")
    ['/gone/c.h5', '/data/c.h5']
    """
    if not name or "\0" in name or "://" in name or "::" in name:
        return []
    from insitu.sources.listing import local_path  # not at the top: most files have no siblings

    folder = local_path(url)
    if folder is None:
        parts = urlsplit(url)
        if not parts.scheme or "::" in url:
            return []
        absolute = name.startswith("/")
        leaf = posixpath.basename(name) if absolute else name
        # Keys of objects are not quoted (and may hold "?" and "#"). A name that is not valid UTF-8
        # cannot be a key.
        if parts.scheme in ("http", "https"):
            leaf = quote(leaf, errors="surrogateescape")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(parts.path) or "/", leaf))
            return [urlunsplit((parts.scheme, parts.netloc, path, "", ""))]
        if not leaf.isascii() and leaf.encode("utf-8", "replace") != leaf.encode("utf-8", "surrogateescape"):
            return []
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        return [f"{scheme}://{bucket}{posixpath.normpath(posixpath.join('/', posixpath.dirname(key), leaf))}"]
    link_folder = os.path.dirname(folder)
    if os.path.isabs(name) or name.startswith("/"):  # Windows needs a drive
        found = [name, os.path.join(link_folder, os.path.basename(name))]
    else:
        found = [os.path.normpath(os.path.join(link_folder, name)), os.path.abspath(name)]
        if ".." in name or os.path.islink(folder):  # next to the target of a symbolic link
            target_folder = os.path.dirname(os.path.realpath(folder))
            found.append(os.path.normpath(os.path.join(target_folder, name)))
    return list(dict.fromkeys(found))
