"""`FileOutline`: what a format can say of a file at a glance, so that many files alike are scanned as one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from insitu.model import Source

__all__ = ["FileOutline"]


class FileOutline(NamedTuple):
    """What tells a file from the others of its kind.

    Files of one kind hold the same fields on the same grid and of the same lead times, for another run
    and at other places: what is found in one of them counts for all.
    """

    kind: Hashable
    """Equal for files of one kind."""
    run: int
    """Reference time, in seconds since 1970."""
    offsets: Sequence[int]
    """Where each field lies, in the order of the kind,"""
    lengths: Sequence[int]
    """and how long it is."""
    source: Source
    """The file that holds the fields."""
