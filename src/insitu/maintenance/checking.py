"""Check whether the sources of saved references changed since they were scanned."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from insitu.combining.file_names import one_location
from insitu.errors import FormatError, NotFoundError
from insitu.model import VirtualGroup
from insitu.sources.listing import local_path

if TYPE_CHECKING:
    from insitu.references import CheckReport
    from insitu.references.urls import UrlResolver

__all__ = ["Progress", "check", "open_saved_tree"]

Progress = Callable[[int, int], None]
"""Called with the number of sources done, and the number of all."""


def check(
    references: str | os.PathLike[str] | VirtualGroup,
    *,
    progress: Progress | None = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> CheckReport:
    """Check that no source of saved references changed since it was scanned, and that none is there
    twice.

    The files of an insitu store are compared with their checksums first, and its native chunks with
    their sizes. If one is damaged, sources are not checked. The files below pinned parts are checked
    like all others.

    Parameters
    ----------
    references
        A path or URL, or an opened tree.
    progress
        Called after each source with the number done and the number of all.
    allow_local, storage_options
        See `insitu.scan`.

    Examples
    --------
    >>> print(insitu.check("era5.insitu"))  # doctest: +SKIP
    120 sources: 119 ok, 1 changed
    changed: s3://bucket/2020-06.nc: its ETag was "a41…" and is now "0f2…"
    """
    from insitu.references import CheckReport, detect_format, find_damage, open_files_tree
    from insitu.references import check as check_tree

    if isinstance(references, VirtualGroup):
        return check_tree(references, progress=progress, duplicates=True, storage_options=storage_options)
    url = os.fspath(one_location(references))
    tree = open_saved_tree(url, allow_local, storage_options)
    if detect_format(url) == "insitu":
        if damaged := find_damage(url, allow_local=allow_local, storage_options=storage_options):
            return CheckReport((), damaged=damaged)
        tree = open_files_tree(url, allow_local=allow_local, storage_options=storage_options)
    return check_tree(tree, progress=progress, duplicates=True, storage_options=storage_options)


def open_saved_tree(
    url: str | os.PathLike[str],
    allow_local: bool,
    options: Mapping[str, Any] | None,
    resolver: UrlResolver | None = None,
) -> VirtualGroup:
    """Return the tree of saved references; a resolver of its own tells whether URLs are relative.

    Raises
    ------
    NotFoundError
        If nothing lies there.
    FormatError
        If something else lies there.
    """
    from insitu.references import open_references

    url = os.fspath(url)
    tree = open_references(url, allow_local=allow_local, resolver=resolver, storage_options=options)
    if tree is None:
        if (path := local_path(url)) is not None and not os.path.exists(path):
            raise NotFoundError("no such file or directory", url=url)
        raise FormatError(
            "these are not saved references",
            url=url,
            hint="Scan and save the files first: insitu scan FILES -o x.insitu",
        )
    return tree
