"""Checks and errors that all changes of a saved archive share."""

from __future__ import annotations

from typing import Any

from insitu.errors import InsituError, SourceError
from insitu.model import VirtualGroup
from insitu.open_options import DecodeOptions
from insitu.scanning.member import Member
from insitu.scanning.saved_members import member_from_tree

__all__ = ["ATTEMPTS", "COMBINE_ANEW", "lost_race_error", "read_saved_member"]

ATTEMPTS = 20
"""How often a change starts again because another writer was faster."""
COMBINE_ANEW = "Combine the archive anew: insitu.open_mfdataset(...), then save"


def lost_race_error(target: str) -> InsituError:
    """Return the error for a change that other writers overtook too often."""
    return SourceError(
        f"other writers changed the archive {ATTEMPTS} times while this change was made; nothing was changed",
        url=target,
        hint="Try again when they are done",
    )


def read_saved_member(tree: VirtualGroup, load: Any, url: str) -> Member:
    """Return a saved tree as a member that files can be combined with."""
    return member_from_tree(tree, DecodeOptions(), load, url=url)
