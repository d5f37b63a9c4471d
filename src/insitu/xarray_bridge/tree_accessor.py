"""The accessor `tree.insitu` of DataTrees: sources, sizes and saving of all groups together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

import xarray

from insitu import maintenance
from insitu.archive import Archive
from insitu.combining.recipe import Recipe
from insitu.model import VirtualGroup
from insitu.model.description import format_bytes
from insitu.model.group import nest_groups
from insitu.xarray_bridge.accessor import InsituAccessor
from insitu.xarray_bridge.origin import Origin

__all__ = ["InsituTreeAccessor"]


class InsituTreeAccessor:
    """The accessor `tree.insitu`: what `ds.insitu` says of one group, of all groups of a DataTree."""

    def __init__(self, tree: xarray.DataTree) -> None:
        self._tree = tree
        self._origins: dict[str, Origin] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_origins": {}}  # archives hold open objects, which cannot travel

    def set_origin(self, archive: Archive) -> None:
        """Record the archive that the tree was opened from; trees made from it have none."""
        self._origins = {path: Origin.of(group._dataset, archive) for path, group in self._groups()}

    def _groups(self) -> Iterator[tuple[str, InsituAccessor]]:
        """Yield the accessor of each group, parents first, by its path below this node."""
        for node in self._tree.subtree:
            path = node.path[len(self._tree.path) :].strip("/") if node is not self._tree else ""
            yield path, node.to_dataset(inherit=False).insitu

    @property
    def virtual(self) -> list[str]:
        """The paths of the variables that are not in memory."""
        return [f"{path}/{name}".lstrip("/") for path, group in self._groups() for name in group.virtual]

    @property
    def nbytes_virtual(self) -> int:
        """Bytes that loading everything that is still virtual gives."""
        return sum(group.nbytes_virtual for _, group in self._groups())

    @property
    def nbytes_stored(self) -> int:
        """Bytes in the archive behind it; a chunk that two cells share counts twice."""
        return sum(group.nbytes_stored for _, group in self._groups())

    @property
    def sources(self) -> list[str]:
        """The files behind it."""
        return list(dict.fromkeys(url for _, group in self._groups() for url in group.sources))

    def tree(self) -> VirtualGroup:
        """Return all groups with their virtual arrays; values in memory are inline."""
        return nest_groups({path: group.tree() for path, group in self._groups()})

    def save(
        self,
        target: str | PathLike[str],
        format: str | None = None,
        mode: str = "w",
        *,
        storage_options: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> None:
        """Save all groups as references: see `ds.insitu.save`.

        `insitu.open_datatree(target)` opens them again.
        """
        options = storage_options
        if options is None:
            every = [given for _, group in self._groups() if (given := group._options(None))]
            options = {key: value for given in every for key, value in given.items()} or None
        groups, origins = dict(self._groups()), self._origins
        if groups.keys() == origins.keys() and all(
            origins[path].is_unchanged(groups[path]._dataset) for path in groups
        ):
            # The groups as the file has them: a DataTree leaves out coordinates that a parent has.
            origins[""].archive.save(target, format=format, mode=mode, storage_options=options, **how)
            return
        recipe = Recipe(unknown="the tree was changed after it was opened and before it was saved")
        maintenance.save_tree(
            self.tree(), target, format=format, mode=mode, recipe=recipe, storage_options=options, **how
        )

    def __repr__(self) -> str:
        return (
            f"<insitu: {len(self.virtual)} virtual variables of {len(list(self._tree.subtree))} groups in "
            f"{len(self.sources):,} file(s), {format_bytes(self.nbytes_stored)} stored, "
            f"{format_bytes(self.nbytes_virtual)} virtual>"
        )


_register: Any = xarray.register_datatree_accessor
if not hasattr(xarray.DataTree, "insitu"):  # registering twice, after a reload, would warn
    _register("insitu")(InsituTreeAccessor)
