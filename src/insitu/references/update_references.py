"""Open saved references for a change: read the tree, then replace it in one atomic step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from insitu.errors import InsituError, UnsupportedError
from insitu.model import VirtualGroup
from insitu.references.list_objects import list_written_cells
from insitu.references.open_and_save import detect_format
from insitu.references.store import StoreUpdate, open_store, read_document, restore_previous
from insitu.references.urls import absolute_url, relative_to

__all__ = ["ReferencesUpdate", "find_damage", "open_for_update", "recipe_of", "rollback_store"]


@dataclass(slots=True, eq=False)
class ReferencesUpdate:
    """A saved tree that can be replaced."""

    url: str
    tree: VirtualGroup
    store: StoreUpdate
    storage_options: Mapping[str, Any] | None = None
    recipe_document: Mapping[str, Any] | None = None

    @property
    def is_relative(self) -> bool:
        """Whether the store names its sources relative to itself."""
        return self.store.is_relative()

    def recipe(self, kind: Any) -> Any:
        """Return how the files were combined, as an object of class `kind`."""
        return kind() if self.recipe_document is None else kind.from_document(self.recipe_document)

    def replace(self, tree: VirtualGroup, *, relative: bool = False) -> bool:
        """Replace the tree; return False, and change nothing, if another writer was faster.

        Rows that the store has already are not written again. With `relative`, URLs are written
        relative to the store.
        """
        return self.store.replace(list_written_cells(tree, self.storage_options), self._url_formatter(relative))

    def compact(self) -> bool:
        """Write the same tree anew, into as few files as possible; return False, and change nothing,
        if another writer was faster.
        """
        return self.store.compact(self._url_formatter(self.is_relative))

    def _url_formatter(self, relative: bool) -> Callable[[str], str]:
        return (lambda source: relative_to(source, self.url)) if relative else absolute_url


def open_for_update(url: str, *, storage_options: Mapping[str, Any] | None = None) -> ReferencesUpdate:
    """Open an insitu store to change it.

    Raises
    ------
    UnsupportedError
        If the references have another format.
    """
    if detect_format(url) != "insitu":
        raise UnsupportedError(
            "cannot change these references: only an insitu store can be changed in place",
            url=url,
            hint="Convert it first: insitu convert REFS TARGET.insitu",
        )
    opened = open_store(url, storage_options=storage_options)
    update = StoreUpdate(opened, storage_options)
    return ReferencesUpdate(url, opened.group(), update, storage_options, opened.document.get("recipe"))


def recipe_of(url: str, *, storage_options: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """Return the recipe that is saved in an insitu store; None if there is none."""
    if detect_format(url) != "insitu":
        return None
    recipe: Mapping[str, Any] | None = read_document(url, storage_options=storage_options).get("recipe")
    return recipe


def find_damage(url: str, *, storage_options: Mapping[str, Any] | None = None) -> tuple[tuple[str, str], ...]:
    """Read every file of an insitu store; return the URL and the reason of each damaged one."""
    opened = open_store(url, storage_options=storage_options)
    found = []
    for part in (*opened.sources.parts, *opened.chunks):
        try:
            part.verify()
        except InsituError as problem:
            found.append((part.url, problem.message))
    return tuple(found)


def rollback_store(url: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Undo the last change of an insitu store."""
    if detect_format(url) != "insitu":
        raise UnsupportedError("cannot roll back: only an insitu store keeps its previous state", url=url)
    restore_previous(url, storage_options=storage_options)
