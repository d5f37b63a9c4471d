"""Convert saved references to another format, rename their sources, roll a store back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from insitu.combining.recipe import Recipe
from insitu.combining.saved import tree_from_member
from insitu.combining.scan_member import Job, scan_tree
from insitu.maintenance.conflicts import ATTEMPTS, lost_race_error
from insitu.maintenance.save_with_recipe import nest_groups, save_tree
from insitu.model import VirtualGroup

__all__ = ["convert", "rename_sources", "rollback"]


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    rename: Any = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> VirtualGroup:
    """Save references in another format, or with other URLs.

    Parameters
    ----------
    source
        Saved references, or anything else that `insitu.scan` takes.
    target
        Where to save. Its suffix chooses the format.
    rename
        New URLs of the sources: a mapping of prefixes, a pair of regular expression and
        replacement, or a function.
    allow_local, storage_options
        See `insitu.scan`.
    options
        As for `insitu.references.save`.

    Returns
    -------
    VirtualGroup
        What was saved.
    """
    from insitu import references

    job = Job(storage_options=storage_options, allow_local=allow_local)
    tree = nest_groups({path: tree_from_member(member) for path, member in scan_tree(source, job)})
    tree = tree if rename is None else references.with_renamed_sources(tree, rename)
    recipe = references.recipe_of(os.fspath(source), storage_options=storage_options)
    how = None if recipe is None else Recipe.from_document(recipe)
    save_tree(tree, target, recipe=how, storage_options=storage_options, **options)
    return tree


def rename_sources(target: str, rename: Mapping[str, str], *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Change the URLs of a saved archive in place: each old prefix becomes the new one."""
    from insitu import references

    for _ in range(ATTEMPTS):
        opened = references.open_for_update(target, storage_options=storage_options)
        if opened.replace(references.with_renamed_sources(opened.tree, rename)):
            return
    raise lost_race_error(target)


def rollback(target: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Undo the last change of an insitu store. A second rollback undoes the first."""
    from insitu import references

    references.rollback_store(target, storage_options=storage_options)
