"""`PlacedFiles`: the files of an archive that may overlap or leave gaps, and which labels each has.

It is kept with the recipe, a row for each of its files, also of those that are shadowed wholly and
of which the archive holds nothing. So files can be added, taken out and renewed without scanning
the others: where they go is decided anew from these rows (`arrange_boxes`), as if all were opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.align import pandas_index
from insitu.combining.arrange import Arrangement, Grid, Merged
from insitu.combining.arrange_boxes import choose_file_times
from insitu.combining.arrange_by_names import boxes_of_names
from insitu.combining.files_table import FilesTable
from insitu.combining.label_boxes import LabelBoxes, place_boxes
from insitu.open_options import CombineOptions
from insitu.scanning.member import Member
from insitu.scanning.promotion import shared_type, type_with_missing

__all__ = ["FileGroup", "PlacedFiles", "PlacedGroup", "changed_types"]

Places = npt.NDArray[np.int64]
FindLabels = Callable[[str], npt.NDArray[Any] | None]
"""Gives the labels along a dimension; None: there are none."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that have the same data variables."""

    names: tuple[str, ...]
    dims: tuple[str, ...]
    """Along which they are placed."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Variables whose type has changed, as labels are there that no file has: their type without these."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacedGroup:
    """The files of one group of a tree: others may lack it."""

    rows: tuple[int, ...]
    """Of the files of the tree, in their order."""
    placed: PlacedFiles

    def to_document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"rows": list(self.rows), **self.placed.to_document()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> PlacedGroup:
        """Return what was saved."""
        rows = tuple(document["rows"])
        return cls(rows, PlacedFiles.from_document(document, len(rows)))


@dataclass(frozen=True, slots=True, eq=False)
class PlacedFiles:
    """Files in the labels of an archive, in the order in which they were given."""

    size: npt.NDArray[np.int64]
    """Bytes; -1: unknown."""
    modified: npt.NDArray[np.float64]
    """Time of the object in seconds since 1970; NaN: unknown."""
    time: npt.NDArray[np.float64]
    """When each was written, as `times` says."""
    times: str
    """What says so: an attribute, or "modified"; empty: nothing was asked for."""
    group: npt.NDArray[np.int32]
    """The group of each."""
    groups: tuple[FileGroup, ...]
    places: Mapping[str, tuple[Places, ...]]
    """Dimension: where the labels of each file are in those of the archive."""

    def __len__(self) -> int:
        return len(self.size)

    @classmethod
    def of(
        cls, arrangement: Arrangement, files: FilesTable, member: Member, options: CombineOptions
    ) -> tuple[tuple[str, ...], PlacedFiles] | None:
        """Return the names of files, and where they are in what they make; None if they were not placed by
        their labels.
        """
        if not options.places_labels:
            return None
        if isinstance(arrangement, Grid) and not arrangement.by_labels and isinstance(options.concat_dim, Mapping):
            every: Sequence[Grid | LabelBoxes] = boxes_of_names(arrangement, files, options)
        else:
            every = arrangement.grids if isinstance(arrangement, Merged) else (arrangement,)
        boxes = [each for each in every if isinstance(each, LabelBoxes)]
        if len(boxes) < len(every):
            return None
        rows = sorted(number for each in boxes for number in each.numbers)
        row_of = {number: row for row, number in enumerate(rows)}
        numbered = [replace(each, numbers=tuple(row_of[number] for number in each.numbers)) for each in boxes]
        groups = []
        for each in boxes:
            kinds = {int(files.kind[number]): files.kind_of(number) for number in each.numbers}.values()
            types = {
                name: [kind.variables[name].dtype for kind in kinds if name in kind.variables]
                for name in next(iter(kinds)).variables
            }
            whole = {name: own for name, own in types.items() if len(own) == len(kinds)}
            names = tuple(sorted(next(iter(kinds)).data_names()))
            groups.append(FileGroup(names, each.dims, changed_types(whole, each.dims, member)))
        times, time = choose_file_times(files, rows, options.overlap)
        facts = (files.size[rows], files.modified[rows], time, times)
        return tuple(files.urls[number] for number in rows), cls.in_labels(numbered, groups, member, *facts)

    @classmethod
    def in_labels(
        cls,
        boxes: Sequence[LabelBoxes],
        groups: Sequence[FileGroup],
        member: Member,
        size: npt.NDArray[np.int64],
        modified: npt.NDArray[np.float64],
        time: npt.NDArray[np.float64],
        times: str,
    ) -> PlacedFiles:
        """Return where files are in the labels of what they make. Boxes have the rows of their files as numbers."""
        group = np.zeros(len(size), np.int32)
        places: dict[str, list[Places]] = {}
        for at, each in enumerate(boxes):
            group[list(each.numbers)] = at
            for dim, labels, own in zip(each.dims, each.labels, each.places, strict=True):
                index = member.index(dim)
                assert index is not None
                moved = np.asarray(pandas_index(index, dim).get_indexer(pandas_index(labels, dim)), np.int64)
                column = places.setdefault(dim, [np.zeros(0, np.int64)] * len(size))
                for row, found in zip(each.numbers, own, strict=True):
                    kept = moved[found]
                    column[row] = kept[kept >= 0]  # join="inner" leaves some out
        chosen = {dim: tuple(column) for dim, column in places.items()}
        return cls(size, modified, time, times, group, tuple(groups), chosen)

    def with_labels(self, before: FindLabels, after: FindLabels) -> PlacedFiles | None:
        """Return the places in other labels along each dimension; None if those lack some of them."""
        places = {}
        for dim, column in self.places.items():
            own, whole = before(dim), after(dim)
            if own is None or whole is None:
                return None
            moved = np.asarray(pandas_index(whole, dim).get_indexer(pandas_index(own, dim)), np.int64)
            if (moved < 0).any():
                return None
            places[dim] = tuple(moved[row] for row in column)
        return replace(self, places=places)

    def count_cells(self, overlap: str | None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return how many cells each file has, and how many of them come from it."""
        has, given = np.zeros(len(self), np.int64), np.zeros(len(self), np.int64)
        for at, group in enumerate(self.groups):
            rows = np.flatnonzero(self.group == at)
            columns = [[self.places[dim][row] for row in rows.tolist()] for dim in group.dims]
            grid = [np.arange(1 + max(int(own.max(initial=0)) for own in column)) for column in columns]
            rank = {"first": -np.arange(len(rows)), "newest": self.time[rows]}.get(overlap or "")
            boxes = place_boxes(group.dims, rows.tolist(), columns, grid, rank)
            has[rows], given[rows] = boxes.sizes(), boxes.count_given()
        return has, given

    def to_document(self) -> dict[str, Any]:
        """Return it as plain values."""
        document: dict[str, Any] = {
            "size": [None if size < 0 else size for size in self.size.tolist()],
            "modified": _to_numbers(self.modified),
            "group": self.group.tolist(),
            "groups": [
                {"names": list(group.names), "dims": list(group.dims), "types": dict(group.types)}
                for group in self.groups
            ],
            "places": {dim: [_to_range(own) for own in column] for dim, column in self.places.items()},
        }
        if self.times:
            document |= {"times": self.times, "time": _to_numbers(self.time)}
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any], count: int) -> PlacedFiles:
        """Return what was saved of so many files.

        Raises
        ------
        ValueError
            If it is damaged.
        """
        size = np.array([-1 if value is None else value for value in document["size"]], np.int64)
        modified, group = _from_numbers(document["modified"]), np.array(document["group"], np.int32)
        time = _from_numbers(document["time"]) if "time" in document else np.full(count, np.nan)
        groups = tuple(
            FileGroup(tuple(row["names"]), tuple(row["dims"]), dict(row["types"])) for row in document["groups"]
        )
        places = {dim: tuple(map(_from_range, column)) for dim, column in document["places"].items()}
        columns = (size, modified, time, group, *places.values())
        if any(len(column) != count for column in columns) or (group >= len(groups)).any():
            raise ValueError("its list of files does not fit")
        return cls(size, modified, time, str(document.get("times", "")), group, groups, places)


def changed_types(types: Mapping[str, Sequence[np.dtype[Any]]], dims: Sequence[str], member: Member) -> dict[str, str]:
    """Return the variables whose type in an archive is another one because of labels that no file has: their
    type without these.

    Parameters
    ----------
    types
        Variable: its types in the files.
    dims
        Along which files are placed.
    member
        The archive.
    """
    changed = {}
    for name, own in types.items():
        found = member.variables.get(name)
        if found is None or name in dims or not set(found.dims) & set(dims):
            continue
        dtype = shared_type(list(own))
        if found.dtype != dtype and found.dtype == type_with_missing(dtype):
            changed[name] = dtype.str
    return changed


def _to_numbers(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


def _from_numbers(values: Sequence[float | None]) -> npt.NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _to_range(places: Places) -> list[int] | list[list[int]]:
    """Return places as their first one and their number if they follow each other, else as a list in a list."""
    if len(places) and (np.diff(places) == 1).all():
        return [int(places[0]), len(places)]
    return [places.tolist()]


def _from_range(row: Any) -> Places:
    if len(row) == 1:
        return np.array(row[0], np.int64)
    begin, count = row
    return np.arange(begin, begin + count, dtype=np.int64)
