"""The accessor `tree.insitu` of DataTrees: sources, sizes and saving of all groups together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import xarray

from insitu import maintenance
from insitu.archive import Archive
from insitu.combining.recipe import Recipe
from insitu.errors import VariableError
from insitu.model import VirtualGroup
from insitu.model.description import format_bytes
from insitu.model.group import hint_for_names, nest_groups
from insitu.xarray_bridge.accessor import InsituAccessor
from insitu.xarray_bridge.dataset import to_member
from insitu.xarray_bridge.origin import Origin

if TYPE_CHECKING:
    import pandas

    from insitu.combining.survey import Report
    from insitu.lazy_array.explain import Explanation
    from insitu.references import AppendReport
    from insitu.xarray_bridge.explain_dataset import DatasetExplanation

__all__ = ["InsituTreeAccessor", "TreeReport"]


@dataclass(frozen=True, slots=True)
class TreeReport:
    """How the files of each group of a tree differ."""

    groups: Mapping[str, Report]
    """By path."""
    left_out: Mapping[str, str]
    """Groups that could not be combined, and why."""

    def __str__(self) -> str:
        lines = [f"{path}: {str(report).replace(chr(10), chr(10) + '  ')}" for path, report in self.groups.items()]
        return "\n".join([*lines, *(f"/{path}: left out: {why}" for path, why in self.left_out.items())])

    __repr__ = __str__


class InsituTreeAccessor:
    """The accessor `tree.insitu`: what `ds.insitu` says of one group, of all groups of a DataTree."""

    def __init__(self, tree: xarray.DataTree) -> None:
        self._tree = tree
        self._origins: dict[str, Origin] = {}
        self.archive: Archive | None = None
        """What `open_mfdatatree` opened; None for other trees."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_origins": {}, "archive": None}  # archives hold open objects, which cannot travel

    def set_origin(self, archive: Archive) -> None:
        """Record the archive that the tree was opened from; trees made from it have none."""
        self._origins = {path: Origin.of(group._dataset, archive) for path, group in self._groups()}

    def _groups(self, *, inherit: bool = False) -> Iterator[tuple[str, InsituAccessor]]:
        """Yield the accessor of each group, parents first, by its path below this node; `inherit`: with the
        labels of the groups above it.
        """
        for node in self._tree.subtree:
            path = node.path[len(self._tree.path) :].strip("/") if node is not self._tree else ""
            yield path, node.to_dataset(inherit=inherit).insitu

    def _is_unchanged(self) -> bool:
        """Return whether it is still the tree that was opened."""
        groups, origins = dict(self._groups()), self._origins
        return groups.keys() == origins.keys() and all(
            origins[path].is_unchanged(groups[path]._dataset) for path in groups
        )

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

    @property
    def files(self) -> dict[str, pandas.DataFrame]:
        """The files of each group that has chunks, by its path: some files may lack a group.

        Tables as `ds.insitu.files`, with the labels that a group inherits.
        """
        recipe, found = None, {}
        if self._is_unchanged():
            recipe = self._origins[""].archive.recipe_to_save()
        for path, group in self._groups(inherit=True):
            if group.sources:
                found[f"/{path}"] = group.list_files(None if recipe is None else recipe.of_group(path))
        return found

    def report(self) -> TreeReport:
        """Return a report of how the files of each group differ, which were left out, and what did not
        fuse.
        """
        if self.archive is None:
            raise ValueError(
                "only the very tree that insitu.open_mfdatatree returned has a report, not those made from it"
            )
        surveys = self.archive.group_surveys
        if callable(surveys):
            surveys = self.archive.group_surveys = surveys()
        return TreeReport({f"/{path}": one.report() for path, one in surveys.items()}, self.archive.member().problems)

    def explain(
        self, variable: str | None = None, reduction: str | None = None, dim: Any = None
    ) -> Explanation | DatasetExplanation:
        """Return how the values of a variable, or of all virtual variables, come about: see
        `ds.insitu.explain`.

        Parameters
        ----------
        variable
            The path of a variable; by default all of all groups.
        reduction, dim
            Name of a statistic, and along which dimension(s). Of several groups those count that
            have the dimensions.
        """
        from insitu.xarray_bridge.explain_dataset import explain_tree, explain_variable

        groups = {path: group._dataset for path, group in self._groups()}
        if variable is None:
            return explain_tree(groups, reduction, dim)
        path, _, name = variable.strip("/").rpartition("/")
        if path not in groups or name not in groups[path]:
            raise VariableError(f"no variable {variable!r}", hint=hint_for_names(self.virtual, [variable]))
        return explain_variable(groups[path][name], reduction, dim)

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
        options = self._options(storage_options)
        if self._is_unchanged():
            # The groups as the file has them: a DataTree leaves out coordinates that a parent has.
            self._origins[""].archive.save(target, format=format, mode=mode, storage_options=options, **how)
            return
        recipe = Recipe(unknown="the tree was changed after it was opened and before it was saved")
        maintenance.save_tree(
            self.tree(), target, format=format, mode=mode, recipe=recipe, storage_options=options, **how
        )

    def append(
        self, target: str | PathLike[str], dim: str, *, storage_options: Mapping[str, Any] | None = None, **how: Any
    ) -> AppendReport:
        """Append all groups to a saved tree, along a dimension.

        Groups that are joined along another dimension, by the recipe of the saved tree, grow along
        that. Otherwise as `ds.insitu.append`.
        """
        groups = {path: to_member(group._dataset) for path, group in self._groups()}
        root = groups.pop("")
        options = self._options(storage_options)
        files = [] if self.archive is None else [url for url in self.archive.urls if isinstance(url, str)]
        return maintenance.append_member(
            replace(root, below=groups), fspath(target), dim, files=files, storage_options=options, **how
        )

    def _options(self, given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the given options; else those that the arrays of all groups are read with."""
        if given is not None:
            return given
        every = [own for _, group in self._groups() if (own := group._options(None))]
        return {key: value for own in every for key, value in own.items()} or None

    def __repr__(self) -> str:
        return (
            f"<insitu: {len(self.virtual)} virtual variables of {len(list(self._tree.subtree))} groups in "
            f"{len(self.sources):,} file(s), {format_bytes(self.nbytes_stored)} stored, "
            f"{format_bytes(self.nbytes_virtual)} virtual>"
        )


_register: Any = xarray.register_datatree_accessor
if not hasattr(xarray.DataTree, "insitu"):  # registering twice, after a reload, would warn
    _register("insitu")(InsituTreeAccessor)
