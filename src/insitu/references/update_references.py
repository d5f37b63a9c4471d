"""Open saved references for a change: read the tree, then replace it in one atomic step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from insitu.errors import InsituError, UnsupportedError
from insitu.model import VirtualGroup
from insitu.references.check_sources import check
from insitu.references.list_objects import list_written_cells
from insitu.references.open_and_save import detect_format
from insitu.references.rename import with_renamed_sources
from insitu.references.store.previous_root import restore_previous
from insitu.references.store.store_reader import open_store, read_document, saved_recipe
from insitu.references.store.store_writer import StoreUpdate
from insitu.references.urls import absolute_url, relative_to, with_other_files

__all__ = [
    "ReferencesUpdate",
    "RollbackReport",
    "StoreState",
    "find_damage",
    "open_files_tree",
    "open_for_update",
    "recipe_of",
    "rollback_store",
]

CarryPinned = Callable[[VirtualGroup, VirtualGroup, VirtualGroup], VirtualGroup]
"""Called with the tree of the files before and after a change, and what was pinned."""


@dataclass(slots=True, eq=False)
class ReferencesUpdate:
    """A saved tree that can be replaced."""

    url: str
    tree: VirtualGroup
    """As the files hold it, without what is pinned."""
    store: StoreUpdate
    storage_options: Mapping[str, Any] | None = None
    recipe_document: Mapping[str, Any] | None = None
    pinned: VirtualGroup = field(default_factory=lambda: VirtualGroup({}))
    """The pinned parts: arrays of the same paths and shapes, with gaps."""
    carry_pinned: CarryPinned | None = None
    """Finds what of the pinned parts holds for another tree; None: nothing does."""

    def recipe(self, kind: Any) -> Any:
        """Return how the files were combined, as an object of class `kind`."""
        return kind() if self.recipe_document is None else kind.from_document(self.recipe_document)

    def replace(
        self,
        tree: VirtualGroup,
        *,
        relative: bool = False,
        rename: Callable[[str], str] | None = None,
        recipe: Mapping[str, Any] | None = None,
        pinned: VirtualGroup | None = None,
    ) -> bool:
        """Replace the tree; return False, and change nothing, if another writer was faster.

        Rows that the store has already are not written again. URLs are written relative to the store
        if those that it has are, or if `relative` is set. `rename` gives the files of the recipe
        other names, as the sources of the tree have them; `recipe` replaces the recipe. What is pinned
        stays where the same chunks of the same files lie below it, unless `pinned` is given.
        """
        before = self.tree
        if rename is not None:
            recipe = with_other_files(self.recipe_document, rename)
            before = with_renamed_sources(before, rename)
        tree = list_written_cells(tree, self.storage_options)
        if pinned is None:
            carry = self.carry_pinned
            pinned = VirtualGroup({}) if carry is None else carry(before, tree, self.pinned)
        return self.store.replace(tree, self._url_formatter(relative), recipe, pinned)

    def compact(self) -> bool:
        """Write the same tree anew, into as few files as possible; return False, and change nothing,
        if another writer was faster.
        """
        return self.store.compact(self._url_formatter())

    def _url_formatter(self, relative: bool = False) -> Callable[[str], str]:
        relative = relative or self.store.is_relative()
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
    files, pinned = opened.layers()
    return ReferencesUpdate(url, files, update, storage_options, opened.recipe(), pinned)


def recipe_of(url: str, *, storage_options: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """Return the recipe that is saved in an insitu store; None if there is none."""
    if detect_format(url) != "insitu":
        return None
    return saved_recipe(read_document(url, storage_options=storage_options), url)


def open_files_tree(
    url: str, *, allow_local: bool = False, storage_options: Mapping[str, Any] | None = None
) -> VirtualGroup:
    """Return the tree of an insitu store as its files hold it, without what is pinned."""
    return open_store(url, allow_local=allow_local, storage_options=storage_options).layers()[0]


def find_damage(
    url: str, *, allow_local: bool = False, storage_options: Mapping[str, Any] | None = None
) -> tuple[tuple[str, str], ...]:
    """Read every file of an insitu store, and ask for the size of its native chunks; return the URL and the reason
    of each damaged one.
    """
    opened = open_store(url, allow_local=allow_local, storage_options=storage_options)
    found = []
    for part in (*opened.sources.parts, *opened.chunks):
        try:
            part.verify()
        except InsituError as problem:
            found.append((part.url, problem.message))
    _, pinned = opened.layers()
    report = check(pinned, storage_options=storage_options)
    return (*found, *((finding.source.url, finding.reason) for finding in report.stale))


@dataclass(frozen=True, slots=True)
class StoreState:
    """One of the two states that a store keeps."""

    saved: float | None
    """When it was saved, in seconds since 1970; None: not recorded."""
    sizes: Mapping[str, int]
    """The length of each dimension of the root group."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> StoreState:
        """Return the state that the root of a store describes."""
        arrays = document.get("tree", {}).get("arrays", {}).values()
        sizes = {dim: length for array in arrays for dim, length in zip(array["dims"], array["shape"], strict=False)}
        return cls(document.get("saved"), sizes)

    def __str__(self) -> str:
        moment = (
            "an unknown time"
            if self.saved is None
            else f"{datetime.fromtimestamp(self.saved, UTC):%Y-%m-%d %H:%M:%S} UTC"
        )
        return f"the state of {moment} ({', '.join(f'{dim}: {length}' for dim, length in self.sizes.items())})"


@dataclass(frozen=True, slots=True)
class RollbackReport:
    """What a rollback did."""

    target: str
    state: StoreState
    """The state that the archive is in now."""
    undone: StoreState
    """The state that it was in before."""

    def __str__(self) -> str:
        return f"{self.target}: now in {self.state}. Another rollback returns to {self.undone}"


def rollback_store(url: str, *, storage_options: Mapping[str, Any] | None = None) -> RollbackReport:
    """Undo the last change of an insitu store."""
    if detect_format(url) != "insitu":
        raise UnsupportedError("cannot roll back: only an insitu store keeps its previous state", url=url)
    state, undone = map(StoreState.of, restore_previous(url, storage_options=storage_options))
    return RollbackReport(url, state, undone)
