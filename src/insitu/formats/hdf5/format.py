"""The HDF5 format: recognise a file by its signature, and scan it."""

from __future__ import annotations

from insitu.formats.foreign_files import identify_foreign_file
from insitu.formats.hdf5.scan import scan_hdf5
from insitu.formats.hdf5.structures.superblock import SIGNATURE
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.registry import Format
from insitu.formats.scan_request import with_keywords

__all__ = ["HDF5", "is_hdf5"]


def is_hdf5(window: ReadCache) -> bool:
    """Return whether the signature lies at 0, or at 512, 1024, 2048, ... behind a user block."""
    place, head = 0, window.head
    while place + len(SIGNATURE) <= window.size:
        if place + len(SIGNATURE) > len(head):
            return _is_behind_head(window, place)
        if head[place : place + len(SIGNATURE)] == SIGNATURE:
            return True
        place = max(512, 2 * place)
    return False


def _is_behind_head(window: ReadCache, place: int) -> bool:
    """Look for the signature behind a large user block, unless the file is known to be something
    else.
    """
    if identify_foreign_file(window.head) is not None:
        return False
    places = []
    while place + len(SIGNATURE) <= window.size:
        places.append((place, len(SIGNATURE)))
        place = max(512, 2 * place)
    return SIGNATURE in window.source.read_many(places)


HDF5 = Format(is_hdf5, with_keywords(scan_hdf5))
