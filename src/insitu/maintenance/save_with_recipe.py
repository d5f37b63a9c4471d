"""Save a tree of decoded arrays, with the recipe that combined its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from insitu.combining.recipe import Recipe
from insitu.combining.scan_member import make_loader
from insitu.combining.stored_view import zarr_tree
from insitu.model import VirtualGroup

__all__ = ["nest_groups", "save_tree", "saved_recipe"]


def save_tree(
    tree: VirtualGroup,
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    recipe: Recipe | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **how: Any,
) -> None:
    """Save a tree of decoded arrays. The suffix of the target chooses the format.

    Parameters
    ----------
    tree
        What to save.
    target, format, storage_options, **how
        See `insitu.references.save`.
    recipe
        How files were combined into it. Only the insitu store keeps it.
    """
    from insitu import references  # not at the top: Arrow takes longer to import than a file to scan

    kind = format or references.format_from_name(os.fspath(target))
    if kind == "insitu":
        document = _recipe_document(recipe, tree)
        references.save(tree, target, format=format, recipe=document, storage_options=storage_options, **how)
        return
    ready = zarr_tree(tree, make_loader(storage_options), int(how.get("inline_threshold", 0)))
    references.save(ready, target, format=format, storage_options=storage_options, **how)


def _recipe_document(recipe: Recipe | None, tree: VirtualGroup) -> dict[str, Any] | None:
    """Return a recipe as JSON holds it. Its files are left out if the sources of the tree name
    them.
    """
    if recipe is None:
        return None
    if recipe.files and set(recipe.files) == {source.url for source in tree.sources}:
        recipe = replace(recipe, files=())
    return recipe.to_document()


def saved_recipe(target: str, storage_options: Mapping[str, Any] | None = None) -> Recipe | None:
    """Return the recipe that was saved with an archive; None if there is none."""
    from insitu import references

    document = references.recipe_of(target, storage_options=storage_options)
    return None if document is None else Recipe.from_document(document)


def nest_groups(groups: Mapping[str, VirtualGroup]) -> VirtualGroup:
    """Return the tree that groups by path make. Parents must come before their children."""
    children: dict[str, list[str]] = {path: [] for path in groups}
    for path in groups:
        if path:
            children[path.rpartition("/")[0]].append(path)

    def build(path: str) -> VirtualGroup:
        inner = {child.rpartition("/")[2]: build(child) for child in children[path]}
        return replace(groups[path], groups=inner)

    return build("")
