"""The root of a store before its last change: found, restored for a rollback, and read for what it still uses."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from insitu.errors import InsituError, NotFoundError, SourceError, UnsupportedError
from insitu.references.atomic_write import Folder, open_folder
from insitu.references.chunk_places import used_urls
from insitu.references.store import root
from insitu.references.store.native_names import inner_url, native_folder
from insitu.references.store.store_reader import open_store

__all__ = ["named_native_folders", "previous_names", "read_previous", "restore_previous"]


def previous_names(data: bytes) -> list[str]:
    """Return the names under which the root before this one may be kept: that of earlier writers last."""
    try:
        return [root.previous_name(root.parse_root(data, "")), root.EARLIER_PREVIOUS]
    except InsituError:  # of another version, or damaged
        return [root.EARLIER_PREVIOUS]


def read_previous(to: Folder, now: bytes) -> bytes | None:
    """Return the root before this one; None: there is none."""
    found = next((data for name in previous_names(now) if (data := to.read(name)) is not None), None)
    return None if found == now else found  # earlier writers that were killed left the same twice


def restore_previous(
    url: str, *, storage_options: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Exchange the root of a store and its previous root; return the documents of the root that is
    in place now, and of the one that was.

    The root that is restored gets a new id, and with it a previous root of its own.
    """
    to = open_folder(url, storage_options)
    now = to.read(root.NAME)
    if now is None:
        raise NotFoundError("there is no insitu store here", url=url)
    before = read_previous(to, now)
    if before is None:
        raise UnsupportedError("cannot roll back: the store was saved only once", url=url)
    document = {**root.parse_root(before, url), "id": uuid.uuid4().hex[:12]}
    previous, restored = root.previous_name(document), root.serialize(document)
    with to.create(previous) as file:
        file.write(now)
    if not to.swap(root.NAME, restored, now) and to.read(root.NAME) != restored:
        to.remove([previous])
        raise SourceError("another writer changed the store at the same time", url=url, hint="Try again")
    with suppress(SourceError):  # the store is restored; nobody reads this file any more
        to.remove(previous_names(now))
    try:
        return document, root.parse_root(now, url)
    except InsituError:
        return document, {}  # damaged, which may be the reason for the rollback


def named_native_folders(url: str, storage_options: Mapping[str, Any] | None = None) -> set[str]:
    """Return the folders of native chunks that the present state of a store or the one before refers to."""
    to = open_folder(url, storage_options)
    now = to.read(root.NAME)
    roots = [] if now is None else [data for data in (now, read_previous(to, now)) if data is not None]
    found: set[str] = set()
    for data in roots:
        opened = open_store(url, allow_local=True, storage_options=storage_options, data=data)
        # A list of sources keeps those that were in use once: where it names others, the chunks decide.
        if opened.sources.native_folders() - found:
            arrays = (array for tree in opened.layers() for _, array in tree.all_arrays())
            names = (inner_url(name, url) for array in arrays for name in used_urls(array))
            found |= {folder for name in names if name is not None and (folder := native_folder(name)) is not None}
    return found
