"""Append files of forecasts to a saved collection: further runs, and lead times of runs that it has in part.

Of each variable what is saved is one box of labels, with holes, and what the new files hold another.
The cells that the new files have are taken from them; that is what opening all files anew gives. A
cell of a file that the collection has already, or had until a later one shadowed it, stays; one that
it has from another file is a conflict, which the rule `overlap` of the collection decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from insitu.combining.file_ranges import FileLayout, find_shadowed_sources
from insitu.combining.recipe import Recipe
from insitu.errors import CombineError
from insitu.maintenance.append_to_saved import Added
from insitu.maintenance.change_files import combine_anew, files_of
from insitu.maintenance.conflicts import COMBINE_ANEW, read_saved_member
from insitu.model import Source, VirtualArray, count_written
from insitu.scanning.forecast_axes import LEAD, MEMBER, RUN, ForecastAxes
from insitu.scanning.member import Member
from insitu.scanning.saved_members import tree_from_member
from insitu.scanning.scan_member import make_loader
from insitu.sources.redaction import redact_url

if TYPE_CHECKING:
    from insitu.references.update_references import ReferencesUpdate

__all__ = ["add_forecasts"]

Mask = npt.NDArray[np.bool_]
Owner = npt.NDArray[np.int32]
"""For each cell the number of the member that gives it."""
SAVED, NEW = 0, 1
"""Numbers of the two boxes."""


def add_forecasts(
    member: Member, opened: ReferencesUpdate, recipe: Recipe, dim: str, files: Sequence[str] = ()
) -> Added:
    """Return a collection with what further files of forecasts hold.

    Parameters
    ----------
    member
        What the files hold, combined.
    opened, recipe
        The collection.
    dim
        The dimension whose steps are counted.
    files
        The new files, as a recipe lists them.

    Raises
    ------
    CombineError
        If the collection has a lead time of a run from another file, and its rule does not say
        which one counts.
    """
    target, load = opened.url, make_loader(opened.storage_options)
    axes = ForecastAxes.of(recipe.options.combine)
    assert axes is not None
    further = axes.further(recipe.options.combine)
    dims = (*(axes.name(role) for role in (RUN, LEAD, MEMBER)), *further)
    saved = axes.of_table(read_saved_member(opened.tree, load, target), further, load)
    new = axes.of_table(member, further, load)
    boxes = _Boxes.of(saved, new, dims, recipe.options.combine.expect)
    owners = boxes.choose_owners(recipe, target)
    used = {name: boxes.taken_of_new(owner) for name, owner in owners.items()}
    added, unused = boxes.urls_of(used), boxes.urls_of({name: ~cells for name, cells in used.items()})
    skipped = tuple(url for url in unused if url not in added)
    listed = tuple(dict.fromkeys((*recipe.files, *(files or added)))) if recipe.files else ()
    if not added and listed == recipe.files:
        return Added(None, skipped=skipped)
    options = recipe.options.combine
    # What says when files were written must say it of all of them.
    is_ranked_anew = listed != recipe.files and options.overlap == "newest" and boxes.has_conflicts()
    if is_ranked_anew or options.drops_conflicts:
        every = listed or tuple(dict.fromkeys((*files_of(opened.tree, recipe), *added)))
        whole, recipe = combine_anew(every, replace(recipe, files=listed), opened.storage_options)
    else:
        joined = boxes.join(owners, recipe, load)
        recipe = replace(recipe, files=listed)
        if boxes.has_conflicts():  # of files of which nothing is left only the recipe knows
            shadowed = find_shadowed_sources(boxes.members, joined)
            recipe = replace(recipe, shadowed={**recipe.shadowed, **shadowed})
        whole = axes.finish(joined)
    at = dims.index(dim) if dim in dims else 0
    steps = np.unique(np.concatenate([np.argwhere(cells)[:, at] for cells in used.values()]))
    return Added(whole, recipe, len(steps), added, skipped)


@dataclass(frozen=True, slots=True, eq=False)
class _Boxes:
    """What is saved and what is new, in a grid of all labels."""

    members: tuple[Member, Member]
    dims: tuple[str, ...]
    grid: tuple[npt.NDArray[Any], ...]
    places: tuple[tuple[npt.NDArray[np.int64], ...], ...]
    """For each dimension and member, where its labels are in the grid."""
    present: tuple[Mapping[str, Mask], Mapping[str, Mask]]
    """For each member and variable with all dimensions, in the grid: which cells it has."""

    @classmethod
    def of(cls, saved: Member, new: Member, dims: Sequence[str], expect: Any = None) -> _Boxes:
        """Return the boxes of two members."""
        # Imports pandas.
        from insitu.combining.expected_labels import choose_spacings, expected_labels
        from insitu.combining.label_boxes import ordered_labels, place_boxes  # imports pandas

        members = (saved, new)
        labels = []
        for dim in dims:
            one, other = (member.index(dim) for member in members)
            if one is None or other is None:
                raise CombineError(f"the new files have no labels along {dim!r}" if one is not None else f"no {dim!r}")
            labels.append([one, other.astype(one.dtype) if one.dtype.kind == other.dtype.kind else other])
        spacings = choose_spacings(expect, dims, {dim: own[0] for dim, own in zip(dims, labels, strict=True)})
        grid = [
            expected_labels(whole, spacings[dim], dim) if dim in spacings else whole
            for dim, whole in zip(dims, map(ordered_labels, labels), strict=True)
        ]
        placed = place_boxes(dims, (SAVED, NEW), labels, grid)
        present: tuple[dict[str, Mask], dict[str, Mask]] = ({}, {})
        for number, member in enumerate(members):
            own = np.ix_(*(each[number] for each in placed.places))
            for name, cells in _present_cells(member, dims).items():
                present[number][name] = np.zeros([len(whole) for whole in grid], bool)
                present[number][name][own] = cells
        return cls(members, tuple(dims), tuple(grid), placed.places, present)

    def has_conflicts(self) -> bool:
        """Return whether both have a cell of a variable."""
        saved, new = self.present
        return any((saved[name] & new[name]).any() for name in saved.keys() & new.keys())

    def choose_owners(self, recipe: Recipe, target: str) -> dict[str, Owner]:
        """Return which member gives each cell of each variable; -1: none.

        Raises
        ------
        CombineError
            If both have a cell, of different files, and no rule says which one counts.
        """
        no_cell = np.zeros([len(own) for own in self.grid], bool)
        known_sources: set[tuple[str, int | None, float | None]] = set()
        if self.has_conflicts():
            sources = FileLayout.of(tree_from_member(self.members[SAVED])).sources.values()
            known_sources = {(redact_url(each.url), each.size, each.modified) for each in sources}
            known_sources |= {(url, *about) for url, about in recipe.shadowed.items()}
        owners = {}
        for name in {**self.present[SAVED], **self.present[NEW]}:
            saved, new = (each.get(name, no_cell) for each in self.present)
            owners[name] = self._choose_owner(name, saved, new, known_sources, recipe, target)
        return owners

    def _choose_owner(
        self,
        name: str,
        saved: Mask,
        new: Mask,
        known_sources: Collection[tuple[str, int | None, float | None]],
        recipe: Recipe,
        target: str,
    ) -> Owner:
        overlap = recipe.options.combine.overlap
        owner = np.where(new, NEW, np.where(saved, SAVED, -1)).astype(np.int32)
        both = np.argwhere(saved & new)
        for cell in both:
            one, other = (self._sources_at(name, number, cell) for number in (SAVED, NEW))
            is_known = bool(other) and all(
                (redact_url(each.url), each.size, each.modified) in known_sources for each, _ in other
            )
            if one == other or is_known or overlap == "first":
                owner[tuple(cell)] = SAVED
            elif overlap == "newest":
                if not recipe.files:
                    self._check_times(target)
                times = [max((source.modified or 0 for source, _ in own), default=0) for own in (one, other)]
                owner[tuple(cell)] = NEW if times[NEW] >= times[SAVED] else SAVED
            elif overlap != "last":
                from insitu.combining.expected_labels import format_label  # imports pandas

                where = ", ".join(
                    f"{dim} {format_label(grid[at])}" for dim, grid, at in zip(self.dims, self.grid, cell, strict=True)
                )
                url = next(iter(source.url for source, _ in sorted(other - one, key=lambda own: own[0].url)), None)
                if url is not None and any(source.url == url for source, _ in one):
                    from insitu.references.plan_append import changed_source_error

                    raise changed_source_error(target, url, "its size or its time is another one")
                raise CombineError(
                    f"{target} holds {name} at {where} already, from another file",
                    url=url,
                    hint='Leave the file out, or open the collection with overlap="last", "first" or "newest"',
                )
        return owner

    def _check_times(self, target: str) -> None:
        """Raise if files say when they were written: of those in the collection that was not recorded."""
        from insitu.combining.file_times import DATE_ATTRIBUTES  # imports pandas

        saved, new = (member.attributes.keys() & set(DATE_ATTRIBUTES) for member in self.members)
        if both := sorted(saved & new):
            raise CombineError(
                f"which file was written last is said by {both[0]!r} of each, which {target} does not have of "
                "those that it holds",
                hint=COMBINE_ANEW,
            )

    def _sources_at(self, name: str, number: int, cell: npt.NDArray[np.int64]) -> set[tuple[Source, int]]:
        """Return the sources and offsets of what a member has of a variable in a cell."""
        variable = self.members[number].variables[name]
        if not isinstance(variable.data, VirtualArray):
            return set()
        at = {
            dim: int(np.flatnonzero(own[number] == place)[0])
            for dim, own, place in zip(self.dims, self.places, cell, strict=True)
        }
        part = variable.data[tuple(at.get(dim, slice(None)) for dim in variable.dims)]
        return set(_places_in_files(part))

    def join(self, owners: Mapping[str, Owner], recipe: Recipe, load: Any) -> Member:
        """Return what both make together: variables of which one of them gives the same cells in one go."""
        from insitu.combining.join_files import join_files
        from insitu.combining.label_boxes import LabelBoxes
        from insitu.combining.merge import merge

        by_owner: dict[bytes, list[str]] = {}
        for name, owner in owners.items():
            by_owner.setdefault(owner.tobytes(), []).append(name)
        parts = []
        for names in by_owner.values():
            others = owners.keys() - set(names)
            members = dict(enumerate(_without(member, others) for member in self.members))
            absent = [number for number, member in members.items() if names[0] not in member.variables]
            if absent:  # the other one gives all of these
                parts.append(members[1 - absent[0]])
                continue
            owner = owners[names[0]]
            boxes = LabelBoxes(self.dims, self.grid, (SAVED, NEW), self.places, owner, int((owner >= 0).sum()))
            parts.append(join_files(boxes, members, recipe.rules(load)))
        return parts[0] if len(parts) == 1 else merge(parts, recipe.rules(load))

    def taken_of_new(self, owner: Owner) -> Mask:
        """Return which cells of the new files, in their own grid, count."""
        found: Mask = owner[np.ix_(*(own[NEW] for own in self.places))] == NEW
        return found

    def urls_of(self, cells: Mapping[str, Mask]) -> tuple[str, ...]:
        """Return the new files that have some of these cells of a variable."""
        found: dict[str, None] = {}
        for name, chosen in cells.items():
            variable = self.members[NEW].variables.get(name)
            if variable is None or not isinstance(variable.data, VirtualArray):
                continue
            for cell in np.argwhere(chosen):
                at = dict(zip(self.dims, cell.tolist(), strict=True))
                part = variable.data[tuple(at.get(dim, slice(None)) for dim in variable.dims)]
                found |= dict.fromkeys(source.url for source, _ in _places_in_files(part))
        return tuple(found)


def _without(member: Member, names: Collection[str]) -> Member:
    others = {name: variable for name, variable in member.variables.items() if name not in names}
    return member.with_variables(others, member.coords & others.keys())


def _places_in_files(array: VirtualArray) -> Iterator[tuple[Source, int]]:
    """Yield the source and the offset of each chunk that lies in a file."""
    for tile in array.tiles:
        rows = tile.chunks.locate(list(np.unravel_index(np.arange(_size(tile)), tile.chunks.shape)))
        columns = np.broadcast_arrays(rows.source, rows.offset)
        for source, offset in zip(*(column.tolist() for column in columns), strict=True):
            if source >= 0:
                yield tile.chunks.sources[source], offset


def _size(tile: Any) -> int:
    return int(np.prod(tile.chunks.shape))


def _present_cells(member: Member, dims: Sequence[str]) -> dict[str, Mask]:
    """Return which cells of a grid of labels each variable with all its dimensions has values of."""
    found = {}
    for name, variable in member.variables.items():
        if set(dims) <= set(variable.dims):
            axes = [variable.dims.index(dim) for dim in dims]
            if isinstance(variable.data, VirtualArray):
                found[name] = count_written(variable.data, axes) > 0
            else:
                found[name] = np.ones([member.sizes[dim] for dim in dims], bool)
    return found
