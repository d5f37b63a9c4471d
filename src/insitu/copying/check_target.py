"""Checks of the place of a target, before anything is written."""

from __future__ import annotations

import os
from collections.abc import Iterator

from insitu.errors import AccessError, UnsupportedError
from insitu.model import VirtualGroup
from insitu.sources.listing import local_path

__all__ = ["check_place"]

STORE_FILES = ("zarr.json", ".zgroup", ".zarray", ".zmetadata", "root.json", "repo")
"""Files by which a folder is known as a store."""


def check_place(path: str | None, url: str, tree: VirtualGroup) -> None:
    """Raise an error if a target lies in a store or around the source, or cannot be written.

    Parameters
    ----------
    path
        The target, if it is on this machine.
    url
        As it was given.
    tree
        What is copied.
    """
    urls = {source.url for _, array in tree.all_arrays() for source in array.sources}
    if path is None:
        inside = url.rstrip("/") + "/"
        if any(source.startswith(inside) for source in urls):
            raise _overlap(url)
        return
    real = os.path.realpath(path)
    for source in urls:
        place = local_path(source)
        if place is not None and _is_within(os.path.realpath(place), real):
            raise _overlap(url)
    for parent in _parents(real):
        if any(os.path.exists(os.path.join(parent, name)) for name in STORE_FILES):
            raise UnsupportedError(
                f"the target lies inside of the store {parent}", url=url, hint="Choose a target beside it"
            )
    folder = next((parent for parent in _parents(real) if os.path.exists(parent)), os.sep)
    if not os.path.isdir(folder):
        raise UnsupportedError(f"{folder} is a file, and no folder", url=url, hint="Choose another target")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise AccessError(f"no permission to write to {folder}", url=url, hint="Choose another target")


def _overlap(url: str) -> UnsupportedError:
    return UnsupportedError(
        "the source lies inside of the target",
        url=url,
        hint="Choose a target beside it",
    )


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _parents(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, the innermost first."""
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent
