"""Names of the native chunks that lie inside a store, in its folder `native`.

The store names them by URLs of their own, `store://FOLDER/KEY`, which do not contain where the store
lies: a store that was moved or copied reads its own chunks.
"""

from __future__ import annotations

import os
import re

from insitu.errors import FormatError
from insitu.sources.listing import local_path

__all__ = ["NATIVE", "STORE_SCHEME", "inner_url", "native_folder", "native_url", "outer_url", "store_of_chunk"]

NATIVE = "native"
"""The folder of native chunks in a store: a folder in it for each time that something was pinned."""
STORE_SCHEME = "store://"
"""How a store names its own native chunks."""
_FOLDER = f"/{NATIVE}/"
_CHUNK = re.compile(rf"(.+)/{NATIVE}/[0-9a-f]{{20}}/.+", re.DOTALL)


def native_url(store: str) -> str:
    """Return the URL or absolute path of the folder of native chunks of a store."""
    path = local_path(store)
    return f"{store.rstrip('/')}/{NATIVE}" if path is None else os.path.join(os.path.abspath(path), NATIVE)


def inner_url(url: str, store: str) -> str | None:
    """Return how a store names an object if it is one of its native chunks; else None.

    Examples
    --------
    >>> inner_url("s3://b/x.insitu/native/4f0c/tas/c/0", "s3://b/x.insitu"), inner_url("s3://b/a.nc", "s3://b/x.insitu")
    ('store://4f0c/tas/c/0', None)
    """
    begin = f"{native_url(store)}/"
    path = url if local_path(url) is None else os.path.abspath(str(local_path(url)))
    return STORE_SCHEME + path[len(begin) :] if path.startswith(begin) else None


def store_of_chunk(url: str) -> str | None:
    """Return the store in which a native chunk lies, given its URL; None: it is none.

    Examples
    --------
    >>> store_of_chunk("s3://b/x.insitu/native/68321e417101ab35dc22/tas/c/0"), store_of_chunk("s3://b/native/a.nc")
    ('s3://b/x.insitu', None)
    """
    found = _CHUNK.fullmatch(url) if _FOLDER in url else None  # asked of every file of an archive
    return None if found is None else found[1]


def native_folder(url: str) -> str | None:
    """Return the folder of a native chunk, given how the store names it; None if it lies elsewhere."""
    return url.removeprefix(STORE_SCHEME).partition("/")[0] if url.startswith(STORE_SCHEME) else None


def outer_url(url: str, store: str) -> str | None:
    """Return where an object lies that the store at a URL names as one of its native chunks; else None.

    Raises
    ------
    FormatError
        If the name leads out of the folder of native chunks.
    """
    if not url.startswith(STORE_SCHEME):
        return None
    key = url.removeprefix(STORE_SCHEME)
    if "\\" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise FormatError(f"{url!r} is not a valid name of a native chunk", url=store)
    return f"{native_url(store)}/{key}"
