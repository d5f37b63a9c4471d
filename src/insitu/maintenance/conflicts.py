"""Checks and errors that all changes of a saved archive share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from insitu.errors import CombineError, InsituError, SourceError
from insitu.model import VirtualGroup
from insitu.open_options import DecodeOptions
from insitu.scanning.member import Member
from insitu.scanning.saved_members import member_from_tree

__all__ = ["ATTEMPTS", "COMBINE_ANEW", "check_disjoint", "lost_race_error", "read_saved_member"]

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


def check_disjoint(members: Sequence[Member], dim: str) -> None:
    """Raise `CombineError` if two members share a label along a dimension."""
    seen: set[Any] = set()
    for member in members:
        labels = member.index(dim)
        mine = set() if labels is None else set(labels.tolist())
        if mine & seen:
            raise CombineError(f"two files have the label {min(mine & seen, key=str)} along {dim!r}")
        seen |= mine


def read_saved_member(tree: VirtualGroup, load: Any, url: str) -> Member:
    """Return a saved tree as a member that files can be combined with."""
    return member_from_tree(tree, DecodeOptions(), load, url=url)
