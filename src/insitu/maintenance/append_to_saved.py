"""One append to a saved archive of any kind: open it, add files, replace it; again if another writer was faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from insitu.combining.recipe import Recipe
from insitu.errors import SourceError
from insitu.maintenance.carry_pinned import open_for_update
from insitu.maintenance.change_files import tree_from_root
from insitu.maintenance.conflicts import ATTEMPTS, lost_race_error
from insitu.scanning.member import Member
from insitu.scanning.saved_members import tree_from_member

if TYPE_CHECKING:
    from insitu.references import AppendReport
    from insitu.references.update_references import ReferencesUpdate

__all__ = ["AddFiles", "Added", "append_to_saved"]


@dataclass(frozen=True, slots=True)
class Added:
    """An archive with further files."""

    member: Member | None
    """What all files make, of a tree its root; None: nothing is new."""
    recipe: Recipe | None = None
    """How they were combined; None: as before."""
    steps: int = 0
    """How many steps of the dimension are new."""
    added: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    shadowed: tuple[str, ...] = ()
    """See `AppendReport`."""
    has_order: bool = True
    """Whether it is known where these steps go if another writer adds some at the same time."""


AddFiles = Callable[["ReferencesUpdate", Recipe], Added]
"""Adds files to an archive that is open for a change."""


def append_to_saved(
    target: str,
    dim: str,
    add: AddFiles,
    *,
    relative: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> AppendReport:
    """Add files to a saved archive.

    Parameters
    ----------
    target
        The archive: an insitu store.
    dim
        The dimension that is reported.
    add
        Makes the archive with the files of the archive as it is; called again if another writer was
        faster.
    relative, storage_options
        See `append_member`.
    """
    from insitu.references import AppendReport

    for _ in range(ATTEMPTS):
        opened = open_for_update(target, storage_options)
        done = add(opened, opened.recipe(Recipe))
        report = AppendReport(target, dim, done.steps, done.added, done.skipped, shadowed=done.shadowed)
        if done.member is None:
            return report
        below, groups = done.member.below, opened.tree.groups
        tree = tree_from_root(done.member) if below else tree_from_member(done.member, groups)
        document = None if done.recipe is None else done.recipe.to_document()
        if opened.replace(tree, relative=relative, recipe=document):
            return report
        if not done.has_order:
            raise SourceError(
                "another writer changed the archive at the same time; nothing was appended",
                url=target,
                hint="Try again",
            )
    raise lost_race_error(target)
