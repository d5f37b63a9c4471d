"""`Recipe`: how an archive was made of its files, saved to add and refresh files later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from insitu.combining.file_names import iter_positions
from insitu.errors import CombineError
from insitu.open_options import OpenOptions
from insitu.scanning.member import ConcatDim, GridPosition, Load, Member
from insitu.scanning.scan_member import Failure

if TYPE_CHECKING:
    from insitu.combining.combine_rules import CombineRules
    from insitu.combining.placed_files import PlacedFiles, PlacedGroup
    from insitu.combining.type_check import TypeCheck

__all__ = ["Recipe"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How files are opened and combined. It can be saved, unless options hold functions."""

    options: OpenOptions = field(default=OpenOptions())
    """Of scanning, decoding and combining; the others change nothing that is found."""
    files: tuple[str, ...] = ()
    """What was scanned, where that is not the sources of the chunks: members of archives, documents
    that describe other files.
    """
    unknown: str | None = None
    """Why the archive cannot be made again from its files, if it cannot."""
    placed: PlacedFiles | None = None
    """Where `files` are, if they may overlap or leave gaps."""
    shadowed: Mapping[str, tuple[int | None, float | None]] = field(default_factory=dict)
    """Files of forecasts, of a tree, or with labels of names, that give nothing, as others count for more: their size
    and the time of their object.
    """

    groups: Mapping[str, PlacedGroup] = field(default_factory=dict)
    """Of a tree: where `files` are in each group where they may overlap or leave gaps, by its path."""

    def rules(self, load: Load) -> CombineRules:
        """Return the rules by which variables are joined and compared."""
        from insitu.combining.combine_rules import CombineRules  # not at the top: one file has no rules

        return CombineRules.of(self.options.combine, load)

    def of_group(self, path: str) -> Recipe:
        """Return how one group of a tree is combined, and where its files are in it."""
        combine = self.options.combine.of_group(path)
        if self.files and (group := self.groups.get(path)) is not None:
            files = tuple(self.files[row] for row in group.rows)
            options = replace(self.options, combine=combine)
            return replace(self, options=options, files=files, placed=group.placed, groups={})
        if combine is self.options.combine:
            return self
        return replace(self, options=replace(self.options, combine=combine))

    def combine_found(
        self,
        found: Sequence[Member | Failure],
        places: Sequence[GridPosition],
        urls: Sequence[Any],
        load: Load,
        errors: str = "raise",
    ) -> Member:
        """Return what all files make together.

        Parameters
        ----------
        found
            What came of each file.
        places
            The position of each in the nested lists that the caller gave.
        urls
            Their names, for dimensions that are made from names.
        load
            Reads values where they must be compared.
        errors
            What happens to files that could not be opened: "raise", "warn", "skip".
        """
        # Imports xarray and pandas, which one file does not need.
        from insitu.combining.combine import combine_portion
        from insitu.combining.portion import Portion

        return combine_portion(Portion.of(found), places, urls, self, load, errors)[0]

    def concat_dims(self) -> list[ConcatDim]:
        """Return one dimension for each level of nesting; none if labels or names of files give the order."""
        if isinstance(self.options.combine.concat_dim, Mapping):
            return []
        if self.options.combine.combine == "by_coords":
            if self.options.combine.concat_dim is not None:
                raise CombineError(
                    "When combine='by_coords', passing a value for `concat_dim` has no effect.",
                    hint="Give combine='nested' with it, or a mapping for a dimension from the files' names",
                )
            return []
        return [_to_concat_dim(dim) for dim in self._levels()]

    def _levels(self) -> list[Any]:
        """Return what was given as `concat_dim` for each level of nesting."""
        return (
            list(self.options.combine.concat_dim)
            if isinstance(self.options.combine.concat_dim, (list, tuple))
            else [self.options.combine.concat_dim]
        )

    def grid_dims(self) -> list[Any]:
        """Return the dimensions along which the caller's lists were joined; none if labels or names
        of files gave the order.
        """
        return (
            self._levels()
            if self.options.combine.combine == "nested" and not isinstance(self.options.combine.concat_dim, Mapping)
            else []
        )

    def new_dims(self) -> list[str]:
        """Return the dimensions that the files are joined along by lists or by their names."""
        names = (
            self.options.combine.concat_dim
            if isinstance(self.options.combine.concat_dim, Mapping)
            else self.grid_dims()
        )
        return [str(name) for name in names if name is not None]

    @property
    def needs_order(self) -> bool:
        """Whether the order of all files counts, and does not follow from where their parts are."""
        combine = self.options.combine
        by_names = isinstance(combine.concat_dim, Mapping)
        return self.placed is not None or (combine.may_shadow if combine.forecasts else by_names)

    @property
    def rebuilds_by_labels(self) -> bool:
        """Whether files can be added and taken out by their labels, without the others: not if these are of names."""
        return self.placed is not None and not isinstance(self.options.combine.concat_dim, Mapping)

    @property
    def needs_files(self) -> bool:
        """Whether only files can be added: where each goes follows from all that it has, in all its groups."""
        return self.placed is not None or bool(self.options.combine.forecasts) or self.options.scan.tree

    def sorts_by_labels(self, dim: str) -> bool:
        """Return whether files are put in the order of their labels along a dimension, not in that of the list."""
        rules = self.options.combine.concat_dim
        return self.options.combine.combine == "by_coords" and not (isinstance(rules, Mapping) and dim in rules)

    def type_check(self) -> TypeCheck | None:
        """Return what checks the types of files while they are scanned; None if files do not simply
        follow each other.
        """
        from insitu.combining.type_check import TypeCheck  # imports xarray and pandas

        if self.options.combine.combine == "by_coords" and self.options.combine.concat_dim is None:
            return TypeCheck(None)
        return TypeCheck(self.options.combine.concat_dim) if isinstance(self.options.combine.concat_dim, str) else None

    def for_more_files(self, **more: Any) -> OpenOptions:
        """Return the options to open more files of the same kind, with others that no recipe holds.

        Raises
        ------
        CombineError
            If the recipe does not say how files were opened.
        """
        if self.unknown is not None:
            raise CombineError(
                f"how more files are to be opened is unknown: {self.unknown}",
                hint="Open them as a dataset in the same way, and add that: ds.insitu.append(archive, dim)",
            )
        return self.options.replace(**more)

    def nest(self, paths: Sequence[Any], dim: str) -> list[Any]:
        """Return files that are added along a dimension in lists that are nested as the recipe needs
        them.

        Where files lie in a grid of two dimensions, a plain list is one row or column of it.

        Raises
        ------
        CombineError
            If the lists are not nested as deep as the grid of files is.
        """
        dims, depths = self.grid_dims(), {len(place) for place, _ in iter_positions(paths)}
        if not dims:
            return [path for _, path in iter_positions(paths)]
        if depths == {len(dims)}:
            return list(paths)
        if depths == {len(dims) - 1} and dim == dims[0]:
            return [list(paths)]
        if depths == {1} and len(dims) == 2:
            return [[path] for path in paths]
        raise CombineError(
            f"the files lie in a grid of {' × '.join(map(str, dims))}, and the new files do not",
            hint="Give them in nested lists, as for open_mfdataset: [[first, second], [third, fourth]]",
        )

    def scan_key(self) -> dict[str, Any] | None:
        """Return what identifies what files make together; None: functions, which nothing identifies."""
        return None if self.unknown is not None else self.options.scan_key()

    def to_document(self) -> dict[str, Any]:
        """Return the recipe as plain values: see `OpenOptions.to_recipe`."""
        placed = None if self.placed is None else self.placed.to_document()
        groups = {path: group.to_document() for path, group in self.groups.items()}
        own: dict[str, Any] = {"files": self.files, "unknown": self.unknown, "placed": placed}
        own |= {"shadowed": dict(self.shadowed), "groups": groups}
        return {**{name: value for name, value in own.items() if value}, **self.options.to_recipe()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Recipe:
        """Return the recipe that was saved: see `OpenOptions.from_recipe`."""
        try:
            options = OpenOptions.from_recipe(document)
            files, placed = tuple(document.get("files") or ()), None
            shadowed = {url: (size, modified) for url, (size, modified) in document.get("shadowed", {}).items()}
            if document.get("placed"):
                from insitu.combining.placed_files import PlacedFiles  # imports xarray and pandas

                placed = PlacedFiles.from_document(document["placed"], len(files))
            groups = {}
            if document.get("groups"):
                from insitu.combining.placed_files import PlacedGroup

                groups = {path: PlacedGroup.from_document(own) for path, own in document["groups"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            return cls(unknown=f"it was saved by another version of insitu ({problem})")
        return cls(options, files, document.get("unknown"), placed, shadowed, groups)


def _to_concat_dim(dim: Any) -> ConcatDim:
    if dim is None or isinstance(dim, str):
        return dim
    if hasattr(dim, "dims") and hasattr(dim, "values"):  # a DataArray or a Variable
        return str(dim.dims[0]), np.asarray(dim.values)
    return str(getattr(dim, "name", None) or "concat_dim"), np.asarray(dim)
