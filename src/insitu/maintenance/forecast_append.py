"""Append files of forecasts to a saved collection: further runs, and lead times of runs that it has in part.

What is saved is one box of labels, with holes, and what the new files hold another. The cells that
the new files have are taken from them; that is what opening all files anew gives. A cell that the
collection has from the very same bytes stays; one that it has from another file is a conflict,
which the rule `overlap` of the collection decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from insitu.combining.recipe import Recipe
from insitu.errors import CombineError
from insitu.maintenance.conflicts import ATTEMPTS, lost_race_error, read_saved_member
from insitu.model import Source, VirtualArray, count_written
from insitu.scanning.forecast_axes import LEAD, MEMBER, RUN, ForecastAxes
from insitu.scanning.member import Member
from insitu.scanning.saved_members import tree_from_member
from insitu.scanning.scan_member import make_loader

if TYPE_CHECKING:
    from insitu.references import AppendReport

__all__ = ["append_forecasts"]

Mask = npt.NDArray[np.bool_]
SAVED, NEW = 0, 1
"""Numbers of the two boxes."""


def append_forecasts(
    member: Member,
    target: str,
    dim: str,
    *,
    relative: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> AppendReport:
    """Add what files of forecasts hold to a saved collection.

    Parameters
    ----------
    member
        What the files hold, combined.
    target
        The saved collection: an insitu store.
    dim
        The dimension that is reported.
    relative, storage_options
        See `append_member`.

    Raises
    ------
    CombineError
        If the collection has a lead time of a run from another file, and its rule does not say
        which one counts.
    """
    from insitu import references
    from insitu.references import AppendReport

    load = make_loader(storage_options)
    for _ in range(ATTEMPTS):
        opened = references.open_for_update(target, storage_options=storage_options)
        recipe = opened.recipe(Recipe)
        axes = ForecastAxes.of(recipe.options.combine)
        assert axes is not None
        further = axes.further(recipe.options.combine)
        dims = (*(axes.name(role) for role in (RUN, LEAD, MEMBER)), *further)
        saved = axes.of_table(read_saved_member(opened.tree, load, target), further, load)
        new = axes.of_table(member, further, load)
        boxes = _Boxes.of(saved, new, dims)
        owner = boxes.choose_owners(recipe.options.combine.overlap, target)
        taken = np.argwhere(owner == NEW)
        if not len(taken):
            return AppendReport(target, dim, 0, (), boxes.urls_of(~boxes.taken_of_new(owner)))
        whole = axes.finish(boxes.join(owner, recipe, load))
        tree = tree_from_member(whole, opened.tree.groups)
        if opened.replace(tree, relative=relative):
            at = dims.index(dim) if dim in dims else 0
            chosen = boxes.taken_of_new(owner)
            return AppendReport(
                target, dim, len(np.unique(taken[:, at])), boxes.urls_of(chosen), boxes.urls_of(~chosen)
            )
    raise lost_race_error(target)


@dataclass(frozen=True, slots=True, eq=False)
class _Boxes:
    """What is saved and what is new, in a grid of all labels."""

    members: tuple[Member, Member]
    dims: tuple[str, ...]
    grid: tuple[npt.NDArray[Any], ...]
    places: tuple[tuple[npt.NDArray[np.int64], ...], ...]
    """For each dimension and member, where its labels are in the grid."""
    present: tuple[Mask, Mask]
    """For each member, in the grid: which cells it has."""

    @classmethod
    def of(cls, saved: Member, new: Member, dims: Sequence[str]) -> _Boxes:
        """Return the boxes of two members."""
        from insitu.combining.label_boxes import ordered_labels, place_boxes  # imports pandas

        members = (saved, new)
        labels = []
        for dim in dims:
            one, other = (member.index(dim) for member in members)
            if one is None or other is None:
                raise CombineError(f"the new files have no labels along {dim!r}" if one is not None else f"no {dim!r}")
            labels.append([one, other.astype(one.dtype) if one.dtype.kind == other.dtype.kind else other])
        grid = [ordered_labels(own) for own in labels]
        placed = place_boxes(dims, (SAVED, NEW), labels, grid)
        present = []
        for number, member in enumerate(members):
            mask = np.zeros([len(own) for own in grid], bool)
            mask[np.ix_(*(own[number] for own in placed.places))] = _present_cells(member, dims)
            present.append(mask)
        return cls(members, tuple(dims), tuple(grid), placed.places, (present[SAVED], present[NEW]))

    def choose_owners(self, overlap: str | None, target: str) -> npt.NDArray[np.int32]:
        """Return which member gives each cell; -1: none.

        Raises
        ------
        CombineError
            If both have a cell, of different files, and no rule says which one counts.
        """
        saved, new = self.present
        owner = np.where(new, NEW, np.where(saved, SAVED, -1)).astype(np.int32)
        both = np.argwhere(saved & new)
        for cell in both:
            one, other = (self._sources_at(number, cell) for number in (SAVED, NEW))
            if one == other or overlap == "first":
                owner[tuple(cell)] = SAVED
            elif overlap == "newest":
                times = [max((source.modified or 0 for source, _ in own), default=0) for own in (one, other)]
                owner[tuple(cell)] = NEW if times[NEW] >= times[SAVED] else SAVED
            elif overlap != "last":
                where = ", ".join(f"{dim} {grid[at]}" for dim, grid, at in zip(self.dims, self.grid, cell, strict=True))
                url = next(iter(source.url for source, _ in sorted(other - one, key=lambda own: own[0].url)), None)
                raise CombineError(
                    f"{target} holds {where} already, from another file",
                    url=url,
                    hint='Leave the file out, or open the collection with overlap="last", "first" or "newest"',
                )
        return owner

    def _sources_at(self, number: int, cell: npt.NDArray[np.int64]) -> set[tuple[Source, int]]:
        """Return the sources and offsets of what a member has in a cell, of variables that both have."""
        found = set()
        at = {
            dim: int(np.flatnonzero(own[number] == place)[0])
            for dim, own, place in zip(self.dims, self.places, cell, strict=True)
        }
        for name, variable in self.members[number].variables.items():
            data = variable.data
            if isinstance(data, VirtualArray) and set(self.dims) <= set(variable.dims):
                if name not in self.members[1 - number].variables:
                    continue
                part = data[tuple(at.get(dim, slice(None)) for dim in variable.dims)]
                for tile in part.tiles:
                    rows = tile.chunks.locate(list(np.unravel_index(np.arange(_size(tile)), tile.chunks.shape)))
                    columns = np.broadcast_arrays(rows.source, rows.offset)
                    found |= {
                        (tile.chunks.sources[source], offset)
                        for source, offset in zip(*(column.tolist() for column in columns), strict=True)
                        if source >= 0
                    }
        return found

    def join(self, owner: npt.NDArray[np.int32], recipe: Recipe, load: Any) -> Member:
        """Return what both make together."""
        from insitu.combining.join_files import join_files
        from insitu.combining.label_boxes import LabelBoxes

        boxes = LabelBoxes(self.dims, self.grid, (SAVED, NEW), self.places, owner, int((owner >= 0).sum()))
        return join_files(boxes, dict(enumerate(self.members)), recipe.rules(load))

    def taken_of_new(self, owner: npt.NDArray[np.int32]) -> Mask:
        """Return which cells of the new files, in their own grid, count."""
        found: Mask = owner[np.ix_(*(own[NEW] for own in self.places))] == NEW
        return found

    def urls_of(self, cells: Mask) -> tuple[str, ...]:
        """Return the new files that have some of these cells."""
        found: dict[str, None] = {}
        for variable in self.members[NEW].variables.values():
            data = variable.data
            if isinstance(data, VirtualArray) and set(self.dims) <= set(variable.dims):
                for cell in np.argwhere(cells):
                    at = dict(zip(self.dims, cell.tolist(), strict=True))
                    part = data[tuple(at.get(dim, slice(None)) for dim in variable.dims)]
                    for tile in part.tiles:
                        rows = tile.chunks.locate(list(np.unravel_index(np.arange(_size(tile)), tile.chunks.shape)))
                        numbers = np.unique(rows.source[np.asarray(rows.source) >= 0])
                        found |= dict.fromkeys(tile.chunks.sources[number].url for number in numbers.tolist())
        return tuple(found)


def _size(tile: Any) -> int:
    return int(np.prod(tile.chunks.shape))


def _present_cells(member: Member, dims: Sequence[str]) -> Mask:
    """Return which cells of a grid of labels a member has values of."""
    found = np.zeros([member.sizes[dim] for dim in dims], bool)
    for variable in member.variables.values():
        if set(dims) <= set(variable.dims):
            axes = [variable.dims.index(dim) for dim in dims]
            if isinstance(variable.data, VirtualArray):
                found |= count_written(variable.data, axes) > 0
            else:
                found[...] = True
    return found
