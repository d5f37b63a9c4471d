"""An archive whose files may overlap or leave gaps, with files added, renewed or taken out.

Where each file goes is decided anew from what the recipe says of all (`PlacedFiles`), as if all were
opened. What the archive shows already is taken from it. A file is scanned only if it is new, or if
it now gives labels that another one gave before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.align import pandas_index, take_steps
from insitu.combining.arrange import Merged
from insitu.combining.arrange_boxes import arrange_in_boxes
from insitu.combining.combine_rules import CombineRules
from insitu.combining.file_ranges import FileLayout, select_range
from insitu.combining.file_times import MODIFIED, choose_times
from insitu.combining.files_table import FilesTable
from insitu.combining.join_files import join_files
from insitu.combining.label_boxes import LabelBoxes, place_boxes
from insitu.combining.merge import merge
from insitu.combining.placed_files import FileGroup, PlacedFiles, changed_types
from insitu.combining.recipe import Recipe
from insitu.errors import UnsupportedError
from insitu.maintenance.rebuild import is_representative, with_same_dims
from insitu.model import VirtualArray
from insitu.model.gaps import with_dtype
from insitu.scanning.member import Load, Member
from insitu.scanning.saved_members import tree_from_member

__all__ = ["Rebuilt", "place_saved_files", "rebuild_placed"]

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What files make together after a change."""

    member: Member
    recipe: Recipe
    steps: Mapping[str, int]
    """How many cells each file that was scanned gives."""
    boxes: Sequence[LabelBoxes]
    """Where all files are; those of each group by their rows."""

    def count_labels(self, dim: str) -> int:
        """Return how many labels along a dimension have cells of files that were scanned."""
        scanned = {row for row, url in enumerate(self.recipe.files) if url in self.steps}
        count = 0
        for each in self.boxes:
            if dim in each.dims:
                is_scanned = np.append(np.array([row in scanned for row in each.numbers]), False)[each.owner]
                axis = each.dims.index(dim)
                count += int(is_scanned.any(axis=tuple(n for n in range(is_scanned.ndim) if n != axis)).sum())
        return count


def place_saved_files(tree_member: Member, recipe: Recipe, dim: str, target: str) -> Recipe:
    """Return the recipe of an archive with the places of its files, which follow each other along a dimension.

    Raises
    ------
    UnsupportedError
        If they do not.
    """
    layout = FileLayout.of(tree_from_member(tree_member))
    spans = sorted((spans.get(dim), url) for url, spans in layout.spans.items() if dim in spans)
    starts = [span[0] for span, _ in spans if span is not None]
    ends = [span[1] for span, _ in spans if span is not None]
    is_covered = len(spans) == len(layout.spans) and starts[:1] == [0] and ends[-1:] == [layout.sizes[dim]]
    if not is_covered or starts[1:] != ends[:-1] or tree_member.index(dim) is None:
        raise UnsupportedError(
            f"its files do not follow each other along {dim!r}, so which of them counts cannot be said later",
            url=target,
            hint="Combine the archive anew: insitu.open_mfdataset(..., overlap=...), then save",
        )
    urls = tuple(url for _, url in spans)
    sources = [layout.sources[url] for url in urls]
    modified = np.array([np.nan if source.modified is None else source.modified for source in sources])
    newest = recipe.options.combine.overlap == "newest"
    placed = PlacedFiles(
        np.array([-1 if source.size is None else source.size for source in sources], np.int64),
        modified,
        modified if newest else np.full(len(urls), np.nan),
        MODIFIED if newest else "",
        np.zeros(len(urls), np.int32),
        (FileGroup(tuple(sorted(tree_member.data_names())), (dim,)),),
        {dim: tuple(np.arange(start, end, dtype=np.int64) for start, end in zip(starts, ends, strict=True))},
    )
    return replace(recipe, files=urls, placed=placed)


def rebuild_placed(
    saved: Member,
    recipe: Recipe,
    files: Sequence[str],
    found: Sequence[Member],
    scan: Callable[[Sequence[str]], Sequence[Member]],
    load: Load,
) -> Rebuilt:
    """Return an archive that is made of these files: what opening all of them gives.

    Parameters
    ----------
    saved, recipe
        The archive, and how it was made, with the places of its files.
    files
        The files, in the order in which they count.
    found
        Those of them that are new, or have a new content.
    scan
        Scans files of the archive that now give more than before.
    load
        Reads values where they must be compared.
    """
    rows = _Rows.of(saved, recipe, files, found)
    options, rules = recipe.options.combine, recipe.rules(load)
    as_listed = options.combine == "nested" and options.expect is None and not options.is_grid
    boxes = [rows.arrange(names, recipe, as_listed) for names in dict.fromkeys(rows.names)]
    unscanned = {row for row, number in enumerate(rows.scanned) if number < 0}
    needed = {row for each in boxes for row in rows.find_uncovered(each, saved, recipe)}
    comes_before = as_listed and rows.has_scanned_before_saved()
    if options.pad or comes_before or options.drops_conflicts:
        needed = unscanned
    elif unscanned:
        followed = set().union(*(rows.find_followed(each, saved, recipe, found, rules) for each in boxes))
        needed |= unscanned if rows.mixes_groups(followed, recipe, rules) else followed
    if needed := needed & unscanned:
        more = scan([rows.urls[row] for row in sorted(needed)])
        return rebuild_placed(saved, recipe, files, [*found, *more], scan, load)
    if options.pad:  # how long files are padded follows from all of them
        rules = rules.for_files(Merged(tuple(boxes)), FilesTable.of(found))
    parts = [rows.join(each, saved, recipe, found, rules) for each in boxes]
    whole = parts[0] if len(parts) == 1 else merge(parts, rules)
    groups = [rows.describe_group(each, saved, recipe, whole) for each in boxes]
    facts = (rows.size, rows.modified, rows.time, rows.times)
    placed = PlacedFiles.in_labels(boxes, groups, whole, *facts)
    steps = {
        rows.urls[row]: count
        for each in boxes
        for row, count in zip(each.numbers, each.count_given().tolist(), strict=True)
        if rows.scanned[row] >= 0
    }
    return Rebuilt(whole, replace(recipe, files=tuple(rows.urls), placed=placed), steps, boxes)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The files of an archive after a change, in the order in which they count."""

    urls: Sequence[str]
    saved: Sequence[int]
    """For each its row in the recipe; -1: it is new."""
    scanned: Sequence[int]
    """For each its number among those that were scanned; -1: it was not."""
    names: Sequence[tuple[str, ...]]
    """The data variables of its group. Files in the order of a list are one group, whatever they have."""
    size: npt.NDArray[np.int64]
    modified: npt.NDArray[np.float64]
    time: npt.NDArray[np.float64]
    times: str
    labels: Sequence[Mapping[str, npt.NDArray[Any]]]
    dims: Mapping[tuple[str, ...], tuple[str, ...]]
    """Data variables: the dimensions that their files were placed along."""
    dtypes: Mapping[str, Sequence[np.dtype[Any]]]
    """Variables of files that were scanned: their types."""

    @classmethod
    def of(cls, saved: Member, recipe: Recipe, files: Sequence[str], found: Sequence[Member]) -> _Rows:
        placed, table = recipe.placed, FilesTable.of(found)
        assert placed is not None
        scanned_as = {member.source: number for number, member in enumerate(found)}
        row_of = {url: row for row, url in enumerate(recipe.files)}
        urls = list(files)
        rows = [row_of.get(url, -1) for url in urls]
        scanned = [scanned_as.get(url, -1) for url in urls]
        every = {dim: index for dim in saved.sizes if (index := saved.index(dim)) is not None}
        names, labels, new_dims = [], [], recipe.new_dims()
        for row, number in zip(rows, scanned, strict=True):
            if number >= 0:
                own_names = tuple(sorted(table.kind_of(number).data_names()))
                names.append(placed.groups[0].names if recipe.options.combine.combine == "nested" else own_names)
                columns = {dim: column[number] for dim, column in table.labels.items()}
                columns |= {
                    dim: value.reshape(1)  # one step of a dimension that the file itself does not have
                    for dim in new_dims
                    if columns.get(dim) is None
                    and (value := table.scalars.get(dim, [None] * len(found))[number]) is not None
                }
                labels.append({dim: own for dim, own in columns.items() if own is not None})
            else:
                group = placed.groups[placed.group[row]]
                names.append(group.names)
                own = {dim: every[dim][placed.places[dim][row]] for dim in group.dims}
                labels.append({**every, **own})

        def column(of_saved: npt.NDArray[Any], of_scanned: npt.NDArray[Any]) -> npt.NDArray[Any]:
            pairs = zip(rows, scanned, strict=True)
            return np.array([of_scanned[number] if number >= 0 else of_saved[row] for row, number in pairs])

        modified = column(placed.modified, table.modified)
        times, time = "", np.full(len(urls), np.nan)
        if recipe.options.combine.overlap == "newest":
            own_times = table.dates.get(placed.times, [])
            if not found:
                times, time = placed.times, column(placed.time, placed.time)
            elif placed.times != MODIFIED and len(own_times) == len(found) and all(own_times):
                times, fresh = choose_times({placed.times: own_times}, table.modified, table.urls)
                time = column(placed.time, fresh)
            if times != placed.times:
                times, time = choose_times({}, modified, urls)
        dtypes: dict[str, list[np.dtype[Any]]] = {}
        for member in found:
            for name, variable in member.variables.items():
                dtypes.setdefault(name, []).append(variable.dtype)
        dims = {group.names: group.dims for group in placed.groups}
        size = column(placed.size, table.size)
        return cls(urls, rows, scanned, names, size, modified, time, times, labels, dims, dtypes)

    def arrange(self, names: tuple[str, ...], recipe: Recipe, as_listed: bool) -> LabelBoxes:
        """Return the files of a group as boxes, whose numbers are their rows."""
        rows = [row for row, own in enumerate(self.names) if own == names]
        shared = [dim for dim in self.labels[rows[0]] if all(dim in self.labels[row] for row in rows)]
        labels = {dim: [self.labels[row][dim] for row in rows] for dim in shared}
        known = self.dims.get(names, ())
        across = [
            dim
            for dim in shared
            if dim not in known and any(not np.array_equal(labels[dim][0], own) for own in labels[dim][1:])
        ]
        options = recipe.options.combine
        joined = [*known, *(() if as_listed or options.combine == "nested" else across)]
        rank = {"first": -np.arange(len(rows)), "newest": self.time[rows]}.get(options.overlap or "")
        return arrange_in_boxes(self.urls, rows, labels, options, joined, rank, as_listed=as_listed)

    def has_scanned_before_saved(self) -> bool:
        """Return whether a file that was scanned comes before one of which the archive has all."""
        saved = [row for row, number in enumerate(self.scanned) if number < 0]
        return bool(saved) and any(number >= 0 for number in self.scanned[: saved[-1]])

    def _givers_before(self, boxes: LabelBoxes, saved: Member, recipe: Recipe) -> LabelBoxes | None:
        """Return where the files of a group were before, by their rows in the recipe; None if they were no such
        group.
        """
        placed = recipe.placed
        assert placed is not None
        names = self.names[boxes.numbers[0]]
        group = next((at for at, each in enumerate(placed.groups) if each.names == names), None)
        if group is None or placed.groups[group].dims != boxes.dims:
            return None
        every = [row for row in range(len(placed)) if placed.group[row] == group]
        rank = {"first": -np.arange(len(every)), "newest": placed.time[every]}.get(recipe.options.combine.overlap or "")
        grid = [index for dim in boxes.dims if (index := saved.index(dim)) is not None]
        labels = [
            [whole[placed.places[dim][row]] for row in every] for dim, whole in zip(boxes.dims, grid, strict=True)
        ]
        return place_boxes(boxes.dims, every, labels, grid, rank, as_listed=boxes.as_listed)

    def find_uncovered(self, boxes: LabelBoxes, saved: Member, recipe: Recipe) -> list[int]:
        """Return the files that give cells which the archive does not have from them."""
        if all(self.saved[row] < 0 for row in boxes.numbers):
            return []
        before = self._givers_before(boxes, saved, recipe)
        if before is None:
            return [row for row in boxes.numbers if self.scanned[row] < 0]
        owner = self._in_grid(before.owner, boxes, saved)
        giver = np.append(np.array([self.saved[row] for row in boxes.numbers]), -1)[boxes.owner]
        giver_before = np.append(np.array(before.numbers), -1)[owner]
        is_scanned = np.append(np.array([self.scanned[row] >= 0 for row in boxes.numbers]), True)[boxes.owner]
        missing = np.unique(boxes.owner[(giver != giver_before) & ~is_scanned])
        return [boxes.numbers[box] for box in missing.tolist()]

    def find_followed(
        self, boxes: LabelBoxes, saved: Member, recipe: Recipe, found: Sequence[Member], rules: CombineRules
    ) -> set[int]:
        """Return files of which more is needed than their cells, as a file that gave cells gives none any more.

        That is the file that gives what is not joined, and tells what the others are like; if they are not alike,
        all that give cells.
        """
        before = self._givers_before(boxes, saved, recipe)
        if before is None:
            return set()
        gave = {before.numbers[box] for box in np.unique(before.owner[before.owner >= 0]).tolist()}
        giving = {boxes.numbers[box] for box in np.unique(boxes.owner[boxes.owner >= 0]).tolist()}
        if gave <= {self.saved[row] for row in giving if self.scanned[row] < 0}:
            return set()
        first = boxes.numbers[boxes.first_giver()]
        if self.scanned[first] < 0:
            return {first}
        names = self.names[first]
        whole = _restore_types(_of_group(saved, recipe, names), recipe, names)
        is_first_unchanged = self.saved[first] >= 0  # of a file that is new nothing is known of what was
        can_compare = is_first_unchanged and not rules.merges_attributes and len(giving) > 1
        if can_compare and is_representative(whole, found[self.scanned[first]], boxes.dims, rules):
            return set()
        return giving

    def mixes_groups(self, followed: Collection[int], recipe: Recipe, rules: CombineRules) -> bool:
        """Return whether what several groups share, and is not joined, may come from a group that no longer gives it.

        In the archive they are merged: what it shows beside a group's data variables may be that of another one.
        """
        assert recipe.placed is not None
        before = [group.names for group in recipe.placed.groups]
        if len(before) == 1:
            return False
        is_other = list(dict.fromkeys(self.names))[: len(before)] != before
        are_unlike = any(self.scanned[row] >= 0 for row in followed)
        return is_other or are_unlike or (bool(followed) and rules.compat != "override")

    @staticmethod
    def _in_grid(owner: npt.NDArray[np.int32], boxes: LabelBoxes, saved: Member) -> npt.NDArray[np.int32]:
        """Return the cells of the archive as cells of a new grid; -1 for labels that it does not have."""
        for axis, (dim, labels) in enumerate(zip(boxes.dims, boxes.labels, strict=True)):
            at = _positions(saved, dim, labels)
            if not owner.shape[axis]:  # of empty files only
                return np.full([len(own) for own in boxes.labels], -1, np.int32)
            moved = owner.take(np.maximum(at, 0), axis)
            np.moveaxis(moved, axis, 0)[at < 0] = -1
            owner = moved
        return owner

    def join(self, boxes: LabelBoxes, saved: Member, recipe: Recipe, found: Sequence[Member], rules: Any) -> Member:
        """Return what the files of a group make: those that were scanned, and the archive for the others."""
        is_saved = np.append(np.array([self.scanned[row] < 0 for row in boxes.numbers]), False)[boxes.owner]
        chosen = sorted({int(box) for box in np.unique(boxes.owner[(boxes.owner >= 0) & ~is_saved])})
        members: dict[int, Member] = {}
        places: list[list[Places]] = [[] for _ in boxes.dims]
        owner = np.full(boxes.owner.shape, -1, np.int32)
        if is_saved.any():
            names = self.names[boxes.numbers[0]]
            whole = _of_group(saved, recipe, names)
            for axis, dim in enumerate(boxes.dims):
                others = tuple(other for other in range(is_saved.ndim) if other != axis)
                wanted = np.flatnonzero(is_saved.any(axis=others))
                at = _positions(saved, dim, boxes.labels[axis][wanted])
                in_order = np.argsort(at)  # of the archive: a list of files need not be that of labels
                whole = _take_labels(whole, dim, at[in_order])
                places[axis].append(wanted[in_order])
            members[0] = _restore_types(whole, recipe, names)
            owner[is_saved] = 0
        if not members and not chosen:  # files that are all empty: one of them, for what it has beside labels
            members[0] = saved if self.scanned[boxes.numbers[0]] < 0 else found[self.scanned[boxes.numbers[0]]]
            for axis, own in enumerate(boxes.places):
                places[axis].append(own[0])
        for box in chosen:
            number = len(members)
            members[number] = found[self.scanned[boxes.numbers[box]]]
            owner[boxes.owner == box] = number
            for axis, own in enumerate(boxes.places):
                places[axis].append(own[box])
        for dim in boxes.dims:
            members = dict(zip(members, with_same_dims(list(members.values()), dim), strict=True))
        joined = replace(
            boxes, numbers=tuple(members), places=tuple(map(tuple, places)), owner=owner, as_listed=boxes.as_listed
        )
        return join_files(joined, members, rules)

    def describe_group(self, boxes: LabelBoxes, saved: Member, recipe: Recipe, whole: Member) -> FileGroup:
        """Return what is recorded of a group."""
        names, placed = self.names[boxes.numbers[0]], recipe.placed
        assert placed is not None
        before: Mapping[str, str] = next((group.types for group in placed.groups if group.names == names), {})
        types: dict[str, list[np.dtype[Any]]] = {}
        for name in (*names, *whole.coords):
            own = list(self.dtypes.get(name, []))
            if name in saved.variables and any(self.scanned[row] < 0 for row in boxes.numbers):
                own.append(np.dtype(before.get(name) or saved.variables[name].dtype))
            if own:
                types[name] = own
        return FileGroup(names, boxes.dims, changed_types(types, boxes.dims, whole))


def _positions(saved: Member, dim: str, labels: npt.NDArray[Any]) -> Places:
    """Return where labels are in an archive; -1: nowhere."""
    index = saved.index(dim)
    assert index is not None
    return np.asarray(pandas_index(index, dim).get_indexer(pandas_index(labels, dim)), np.int64)


def _of_group(saved: Member, recipe: Recipe, names: Sequence[str]) -> Member:
    """Return what an archive has of the files of a group: these data variables, and its coordinates."""
    if recipe.placed is not None and len(recipe.placed.groups) == 1:
        return saved
    chosen = {name: each for name, each in saved.variables.items() if name in saved.coords or name in names}
    return saved if len(chosen) == len(saved.variables) else saved.with_variables(chosen, saved.coords)


def _restore_types(member: Member, recipe: Recipe, names: Sequence[str]) -> Member:
    """Return variables in the types that they have without missing labels, which were left out."""
    placed = recipe.placed
    assert placed is not None
    types = next((group.types for group in placed.groups if group.names == tuple(names)), {})
    variables = dict(member.variables)
    for name, dtype in types.items():
        variable = variables.get(name)
        if variable is not None and isinstance(variable.data, VirtualArray):
            variables[name] = variable.with_data(replace(with_dtype(variable.data, np.dtype(dtype)), fill_value=None))
        elif variable is not None:
            variables[name] = variable.with_data(np.asarray(variable.data).astype(dtype))
    return member.with_variables(variables)


def _take_labels(member: Member, dim: str, at: Places) -> Member:
    """Return some labels of a dimension: a range of them, if they follow each other."""
    if len(at) and (np.diff(at) == 1).all():
        span = (int(at[0]), int(at[-1]) + 1)
        return member if span == (0, member.sizes[dim]) else select_range(member, dim, span)
    return take_steps(member, dim, at)
