"""Save a tree of decoded arrays, with the recipe that combined its files; convert what was saved to
another format, rename its sources, roll a store back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from insitu.combining.file_names import one_location
from insitu.combining.recipe import Recipe
from insitu.maintenance.carry_pinned import open_for_update
from insitu.maintenance.conflicts import ATTEMPTS, lost_race_error
from insitu.model import VirtualGroup
from insitu.model.group import nest_groups
from insitu.open_options import ScanOptions
from insitu.scanning.saved_members import tree_from_member
from insitu.scanning.scan_member import Job, make_loader, scan_tree
from insitu.scanning.stored_view import zarr_tree

if TYPE_CHECKING:
    from insitu.references import RollbackReport

__all__ = ["convert", "rename_sources", "rollback", "save_tree", "saved_recipe"]


def save_tree(
    tree: VirtualGroup,
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    recipe: Recipe | None = None,
    native: str | None = None,
    announce: Callable[[str], None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **how: Any,
) -> None:
    """Save a tree of decoded arrays. The suffix of the target chooses the format.

    Chunks that are pinned inside another store are copied into an insitu store.

    Parameters
    ----------
    tree
        What to save.
    target, format, storage_options, **how
        See `insitu.references.save`.
    recipe
        How files were combined into it. Only the insitu store keeps it.
    native
        `"where needed"`: what the format cannot hold is copied, as native chunks in the folder
        `x.json.native` beside kerchunk's formats, and in the repository of Icechunk. An interrupted
        save goes on if the same one is made again.
    announce
        Told before anything is written which variables are copied, why, and how many bytes that is.
    """
    if native not in (None, "where needed"):
        raise ValueError(f'native must be "where needed" or None, not {native!r}')
    from insitu import references  # not at the top: Arrow takes longer to import than a file to scan
    from insitu.maintenance.adopt_chunks import adopt_chunks, refuse_pinned_elsewhere

    kind = format or references.format_from_name(os.fspath(target))
    if kind == "insitu":
        document = _recipe_document(recipe, tree)
        with adopt_chunks(tree, os.fspath(target), storage_options) as own:
            references.save(own, target, format=format, recipe=document, storage_options=storage_options, **how)
        return
    if native is not None and kind is not None:
        from insitu.maintenance.native_saving import save_native_where_needed

        save_native_where_needed(
            tree, os.fspath(target), kind, announce=announce, storage_options=storage_options, **how
        )
        return
    hint = 'Save as .insitu or with native="where needed", which copy them, or convert the store itself'
    refuse_pinned_elsewhere(tree, hint)
    ready = zarr_tree(tree, make_loader(storage_options), int(how.get("inline_threshold", 0)))
    references.save(ready, target, format=format, storage_options=storage_options, **how)


def _recipe_document(recipe: Recipe | None, tree: VirtualGroup) -> dict[str, Any] | None:
    """Return a recipe as JSON holds it. Its files are left out if the sources of the tree name
    them, and their parts say their order; not of a tree of groups, some of which some files may lack.
    """
    if recipe is None:
        return None
    if tree.groups and recipe.options.scan.variables is None:
        recipe = replace(recipe, options=recipe.options.replace(tree=True))
    elif not recipe.needs_order and recipe.files and set(recipe.files) == {source.url for source in tree.sources}:
        recipe = replace(recipe, files=())
    return recipe.to_document()


def saved_recipe(target: str, storage_options: Mapping[str, Any] | None = None) -> Recipe | None:
    """Return the recipe that was saved with an archive; None if there is none."""
    from insitu import references

    document = references.recipe_of(target, storage_options=storage_options)
    return None if document is None else Recipe.from_document(document)


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
        replacement, or a function. A prefix or expression that matches no URL is an error.
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
    from insitu.references.urls import with_other_files

    source = one_location(source)
    job = Job(ScanOptions(storage_options=storage_options, allow_local=allow_local))
    if references.detect_format(os.fspath(source)) == "insitu":
        # Of what is pinned the files, too: native chunks belong to their store, which may unpin them.
        tree = references.open_files_tree(os.fspath(source), allow_local=allow_local, storage_options=storage_options)
    else:
        tree = nest_groups({path: tree_from_member(member) for path, member in scan_tree(source, job)})
    document = references.recipe_of(os.fspath(source), storage_options=storage_options)
    if rename is not None:
        references.renamed_urls(tree, rename)  # raises if nothing matches
        tree = references.with_renamed_sources(tree, rename)
        document = with_other_files(document, references.renaming_function(rename))
    recipe = None if document is None else Recipe.from_document(document)
    save_tree(tree, target, recipe=recipe, storage_options=storage_options, **options)
    return tree


def rename_sources(target: str, rename: Mapping[str, str], *, storage_options: Mapping[str, Any] | None = None) -> int:
    """Change the URLs of a saved archive in place: each old prefix becomes the new one.

    Relative URLs stay relative to the archive where that is possible.

    Returns
    -------
    int
        The number of sources that were renamed.

    Raises
    ------
    SelectionError
        If no URL begins with one of the prefixes. Nothing is changed then.
    """
    from insitu import references

    for _ in range(ATTEMPTS):
        opened = open_for_update(target, storage_options)
        renamed = references.renamed_urls(opened.tree, rename)
        tree = references.with_renamed_sources(opened.tree, rename)
        if not renamed or opened.replace(tree, rename=references.renaming_function(rename)):
            return len(renamed)
    raise lost_race_error(target)


def rollback(target: str, *, storage_options: Mapping[str, Any] | None = None) -> RollbackReport:
    """Undo the last change of an insitu store. A second rollback undoes the first.

    Returns
    -------
    RollbackReport
        The state that the store is in now, and the one that it was in, with the times when they
        were saved.
    """
    from insitu import references

    return references.rollback_store(target, storage_options=storage_options)
