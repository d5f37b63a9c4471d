"""Which other files does a file name, and how are they opened?

External links, external storage and virtual datasets name files relative to the one they stand in. Each is opened once for a scan, from
the same place as that one: beside it on the disk, or by a URL joined to its own. A name never leads to another host.
"""

from __future__ import annotations

import os
import posixpath
from contextlib import ExitStack
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote, urlsplit, urlunsplit

from insitu.errors import AccessError, FormatError, NotFoundError
from insitu.formats.hdf5.window import Window
from insitu.sources import open_source
from insitu.sources.listing import local_path
from insitu.sources.protocol import ByteSource

__all__ = ["FILES_LIMIT", "Neighbours", "OpensBeside", "places_beside"]

FILES_LIMIT = 1 << 16


@runtime_checkable
class OpensBeside(Protocol):
    """A source that opens others with its own credentials."""

    def beside(self, url: str) -> ByteSource:
        """The source at another URL of the same store."""


class Neighbours:
    """The files of one scan; closed together."""

    __slots__ = ("_opened", "_stack", "memory")

    def __init__(self, window: Window) -> None:
        self._opened: dict[str, Window | None] = {window.url: window}
        self._stack = ExitStack()
        self.memory: dict[Any, Any] = {}
        """What was found in them, by whoever looked."""

    def __enter__(self) -> Neighbours:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def open_beside(self, window: Window, name: str) -> Window | None:
        """The file of a name, seen from another; None: there is none.

        Parameters
        ----------
        window
            The file that names it.
        name
            Absolute, or relative to its folder.
        """
        for url in places_beside(window.url, name):
            if url not in self._opened:
                if len(self._opened) >= FILES_LIMIT:
                    raise FormatError(f"more than {FILES_LIMIT} other files", url=window.url, structure="file names")
                self._opened[url] = self._open(window, url)
            found = self._opened[url]
            if found is not None:
                return found
        return None

    def _open(self, window: Window, url: str) -> Window | None:
        source: ByteSource | None = None
        try:
            source = window.source.beside(url) if isinstance(window.source, OpensBeside) else open_source(url)
            found = Window(source)
        except (NotFoundError, IsADirectoryError):
            return None
        except AccessError:
            # On the disk of somebody else an absolute path may well be forbidden: the library then looks on, too.
            if local_path(url) is None:
                raise
            return None
        finally:
            if source is not None:
                self._stack.callback(source.close)
        return found


def places_beside(url: str, name: str) -> list[str]:
    """Where a file may be that another names, in the order in which HDF5 looks.

    Examples
    --------
    >>> places_beside("https://host/a/b.h5?x=1", "../c.h5"), places_beside("s3://bucket/a/b.h5", "c.h5")
    (['https://host/c.h5'], ['s3://bucket/a/c.h5'])
    >>> places_beside("/data/b.h5", "/gone/c.h5")
    ['/gone/c.h5', '/data/c.h5']
    """
    if not name or "\0" in name or "://" in name or "::" in name:
        return []
    folder = local_path(url)
    if folder is None:
        parts = urlsplit(url)
        if not parts.scheme or "::" in url:
            return []
        absolute = name.startswith("/")
        names = [posixpath.basename(name)] if absolute else [name]
        paths = [posixpath.normpath(posixpath.join(posixpath.dirname(parts.path) or "/", quote(n))) for n in names]
        return [urlunsplit((parts.scheme, parts.netloc, path, "", "")) for path in paths]
    here = os.path.dirname(folder)
    if os.path.isabs(name):
        found = [name, os.path.join(here, os.path.basename(name))]
    else:
        found = [os.path.normpath(os.path.join(here, name)), os.path.abspath(name)]
    return list(dict.fromkeys(found))
