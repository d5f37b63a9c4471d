"""Which path leads to an object that a reference points at?"""

from __future__ import annotations

from insitu.formats.hdf5.datasets.object_tree import Branch
from insitu.formats.hdf5.structures.object_references import Pointing

__all__ = ["Paths"]


class Paths:
    """The paths of objects by their addresses; found out when the first is asked for."""

    __slots__ = ("_found", "_prefix", "_tree")

    def __init__(self, tree: Branch, prefix: str) -> None:
        self._tree, self._prefix = tree, f"/{prefix}" if prefix else ""
        self._found: dict[int, str] | None = None

    def path(self, address: int) -> str:
        """The path of an object, from the root of the file; of several, the one that a walk through the file meets first."""
        found = self._all().get(address)
        return f"(an object at {address} that no path leads to)" if found is None else found

    def lacks(self, tree: Branch) -> bool:
        """Whether an attribute points at something that is not below the tree."""
        wanted: set[int] = set()
        for branch in tree.walk():
            for attributes in (branch.group.attributes, *(dataset.attributes for _, dataset in branch.datasets)):
                for value in attributes.values():
                    if isinstance(value, Pointing):
                        wanted |= value.addresses()
        return bool(wanted) and not wanted <= self._all().keys()

    def _all(self) -> dict[int, str]:
        if self._found is None:
            found = {self._tree.group.address: self._prefix or "/"}
            for branch in self._tree.walk():
                for link in branch.group.links:
                    if link.address is not None:
                        found.setdefault(link.address, f"{self._prefix}/{branch.join(link.name)}")
            self._found = found
        return self._found
