"""Metadata documents and chunk tables of a Zarr store under a prefix.

A directory, a bucket's prefix, a web address.

Documents are fetched by key, all keys of a step at once. A missing document is None; every other
failure is an error.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from insitu.errors import AccessError, NotFoundError, SourceError
from insitu.formats.zarr.keyed import KeyedChunks, join_url
from insitu.model import Encoding
from insitu.sources import open_source, read_all
from insitu.sources.access_policy import check_path
from insitu.sources.listing import list_subfolders, local_path
from insitu.sources.threads import gather
from insitu.zarr_metadata import ArrayMetadata

__all__ = ["PrefixStore"]


@dataclass(frozen=True, slots=True, eq=False)
class PrefixStore:
    """A prefix under which the objects of a store lie."""

    url: str
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return documents by key; None for those that are missing."""
        path = local_path(self.url)
        if path is not None:
            return [_read(os.path.join(path, key)) for key in keys]
        return gather(self._fetch, keys)

    def _fetch(self, key: str, stop: threading.Event) -> bytes | None:
        try:
            with open_source(join_url(self.url, key), self.storage_options) as source:
                return read_all(source)
        except NotFoundError:
            return None

    def children(self, path: str) -> list[str] | None:
        """Return the names right under a path; None if they cannot be listed."""
        return list_subfolders(join_url(self.url, path), self.storage_options)

    def table(self, path: str, array: ArrayMetadata) -> tuple[KeyedChunks, tuple[Encoding, ...]]:
        """Return the chunk table of an array, and the encoding of its chunks."""
        base = local_path(self.url) or self.url
        grid = tuple(axis.count for axis in array.objects)
        return KeyedChunks(join_url(base, path), array.keys, grid, optional=not array.levels), (array.encoding,)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            check_path(path, file.fileno())
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except PermissionError:
        raise AccessError("no permission to read the file", url=path) from None
    except OSError as error:
        raise SourceError(f"reading failed: {error.strerror}", url=path) from error
