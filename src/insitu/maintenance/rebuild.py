"""A combined archive made of parts of what is saved and of other files: append, drop and refresh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from insitu.combining.file_ranges import Span, select_range
from insitu.combining.recipe import Recipe
from insitu.errors import CombineError
from insitu.scanning.member import Load, Member

__all__ = ["rebuild"]


def rebuild(
    saved: Member,
    dim: str,
    remaining: Sequence[Span],
    added: Sequence[tuple[int, Member]],
    recipe: Recipe,
    load: Load,
) -> Member:
    """Return an archive without some of its parts, and with others.

    What is saved is cut, not scanned again: a joined table gives its parts for nothing.

    Parameters
    ----------
    saved
        The archive.
    dim
        The dimension along which parts are taken away and added.
    remaining
        The ranges along it that stay.
    added
        What other files hold, and at which step of the saved archive.
    recipe, load
        How parts are joined; reads values where they must be compared.

    Raises
    ------
    CombineError
        If parts share a label, or do not match.
    """
    whole = (0, saved.sizes.get(dim, 1))
    pieces = [(span[0], saved if span == whole else select_range(saved, dim, span)) for span in remaining]
    pieces = sorted([*added, *pieces], key=lambda piece: piece[0])
    members = [member for _, member in pieces]
    if added:  # an archive that has a label twice from the beginning may still lose files
        _check_disjoint(members, dim)
    return recipe.join_in_order(members, dim, load)


def _check_disjoint(members: Sequence[Member], dim: str) -> None:
    """Raise `CombineError` if two members share a label along a dimension."""
    seen: set[Any] = set()
    for member in members:
        index = member.index(dim)
        labels = set() if index is None else set(index.tolist())
        if labels & seen:
            raise CombineError(f"two files have the label {min(labels & seen, key=str)} along {dim!r}")
        seen |= labels
