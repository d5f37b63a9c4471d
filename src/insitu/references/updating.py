"""Saved references that are being changed: the tree as it was read, and its replacement in one atomic step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from insitu.errors import InsituError, UnsupportedError
from insitu.model import VirtualGroup
from insitu.references.list_objects import explicit
from insitu.references.saving import kind_of
from insitu.references.store import StoreUpdate, open_store, restore_previous
from insitu.references.urls import absolute, relative_to

__all__ = ["Update", "find_damage", "open_for_update", "recipe_of", "rollback_store"]


@dataclass(slots=True, eq=False)
class Update:
    """A saved tree, and how it is replaced."""

    url: str
    tree: VirtualGroup
    store: StoreUpdate
    storage_options: Mapping[str, Any] | None = None
    recipe_document: Mapping[str, Any] | None = None

    @property
    def is_relative(self) -> bool:
        """Whether the store names its sources relative to itself, so that the archive can be moved as a whole."""
        return self.store.is_relative()

    def recipe(self, kind: Any) -> Any:
        """Return how the files were combined, as an object of the class that keeps such things."""
        return kind() if self.recipe_document is None else kind.from_document(self.recipe_document)

    def replace(self, tree: VirtualGroup, *, relative: bool = False) -> bool:
        """Put another tree in place; False if another writer was faster, and nothing was changed.

        Rows of chunk tables that the store has already are not written again. With `relative` URLs are written relative to the target.
        """
        named: Callable[[str], str] = (lambda source: relative_to(source, self.url)) if relative else absolute
        return self.store.replace(explicit(tree, self.storage_options), named)


def open_for_update(url: str, *, storage_options: Mapping[str, Any] | None = None) -> Update:
    """Open saved references that can be changed in place."""
    if kind_of(url) != "insitu":
        raise UnsupportedError(
            "only an insitu store can be changed in place",
            url=url,
            hint="Convert it first: insitu convert REFS TARGET.insitu",
        )
    opened = open_store(url, storage_options=storage_options)
    update = StoreUpdate(opened, storage_options)
    return Update(url, opened.group(), update, storage_options, opened.document.get("recipe"))


def recipe_of(url: str, *, storage_options: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """Return how the files of an insitu store were combined; None if that is not known."""
    if kind_of(url) != "insitu":
        return None
    recipe: Mapping[str, Any] | None = open_store(url, storage_options=storage_options).document.get("recipe")
    return recipe


def find_damage(url: str, *, storage_options: Mapping[str, Any] | None = None) -> tuple[tuple[str, str], ...]:
    """Read every file of an insitu store, and return those that do not have their checksums: their URLs, and what is wrong."""
    opened = open_store(url, storage_options=storage_options)
    found = []
    for part in (*opened.sources.parts, *opened.chunks):
        try:
            part.verify()
        except InsituError as problem:
            found.append((part.url, problem.message))
    return tuple(found)


def rollback_store(url: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Put the previous state of an insitu store in place again."""
    if kind_of(url) != "insitu":
        raise UnsupportedError("only an insitu store keeps its previous state", url=url)
    restore_previous(url, storage_options=storage_options)
