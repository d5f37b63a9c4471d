"""`FilesTable`: what combining has to know of each file before anything is joined, as columns.

A row is a file, also one that could not be opened, in the order in which they were given. Files
that are alike share one `FileKind`, so of ten thousand files little is kept but names and labels: a
client of a cluster holds the table of a million files while their chunk tables stay on the workers.
Tables of portions are joined to that of all files; what decides how files are combined
(`arrange`) looks at this table alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.file_times import dates_of
from insitu.model import Columns, Source, VirtualArray
from insitu.model.description import used_sources
from insitu.scanning.member import Member
from insitu.scanning.scan_member import Failure

__all__ = ["FileKind", "FilesTable", "VariableKind"]

MOST_CELLS = 1 << 17
"""Of a table whose objects are looked at: runs of one kind, fields of a file."""
Values = npt.NDArray[Any]
Column = Mapping[str, Sequence[Values | None]]
"""Name: the values of each file, None for a file that has none."""


@dataclass(frozen=True, slots=True)
class VariableKind:
    """A variable without its values."""

    dims: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FileKind:
    """What files of one kind have in common: a `Member` without values and attributes."""

    named: tuple[tuple[str, VariableKind], ...]
    coords: frozenset[str]
    unindexed: frozenset[str]
    order: tuple[str, ...]
    """The dimensions in the order that a preprocess gave."""
    groups: tuple[str, ...]
    """Of files without variables: the paths of the groups that have some."""

    @property
    def variables(self) -> dict[str, VariableKind]:
        """The variables by name."""
        return dict(self.named)

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each dimension, in the order of `Member.sizes`."""
        sizes: dict[str, int] = {}
        for of_coords in (False, True):
            for name, variable in self.named:
                if (name in self.coords) is of_coords:
                    for dim, length in zip(variable.dims, variable.shape, strict=True):
                        sizes.setdefault(dim, length)
        return sizes

    def data_names(self) -> list[str]:
        """Return the variables that are not coordinates."""
        return [name for name, _ in self.named if name not in self.coords]

    def with_label_as_dimension(self, dim: str) -> FileKind:
        """Return the kind with a new dimension of length 1: the single value of that name labels it, and
        data variables have it.
        """
        wide = tuple(
            (name, replace(each, dims=(dim, *each.dims), shape=(1, *each.shape)))
            if name == dim or name not in self.coords
            else (name, each)
            for name, each in self.named
        )
        return replace(self, named=wide, coords=self.coords | {dim})


@dataclass(frozen=True, slots=True, eq=False)
class FilesTable:
    """The files of a combination, or of a portion of it."""

    urls: tuple[str, ...]
    kinds: tuple[FileKind, ...]
    kind: npt.NDArray[np.int32]
    """For each file the number of its kind; -1: it could not be opened."""
    labels: Column
    """Dimension: the labels that each file has along it."""
    scalars: Column
    """Single values that were read: the time of a field, the number of a member."""
    failures: Mapping[int, Failure]
    """By the number of the file."""
    given: Mapping[str, Sequence[Any]]
    """New dimension: the label that each file gives; None if it could not be opened."""
    size: npt.NDArray[np.int64]
    """Bytes of each file; -1: unknown."""
    modified: npt.NDArray[np.float64]
    """When each file was changed last, in seconds since 1970; NaN: unknown."""
    dates: Mapping[str, Sequence[str | None]]
    """Attribute: the date that each file says it was written at."""

    def __len__(self) -> int:
        return len(self.urls)

    @property
    def opened(self) -> list[int]:
        """The numbers of the files that could be opened."""
        found: list[int] = np.flatnonzero(self.kind >= 0).tolist()
        return found

    def kind_of(self, number: int) -> FileKind:
        """Return what kind of file one is."""
        kind: int = self.kind[number]
        return self.kinds[kind]

    def index(self, number: int, dim: str) -> Values | None:
        """Return the labels of one file along a dimension, if it has some."""
        column = self.labels.get(dim)
        return None if column is None else column[number]

    def only_groups(self) -> Member | None:
        """Return the first file that has variables in its groups only, without its contents; None if there is none."""
        for number in self.opened:
            if groups := self.kind_of(number).groups:
                return Member({}, frozenset(), source=self.urls[number], groups=groups)
        return None

    @classmethod
    def of(cls, found: Sequence[Member | Failure]) -> FilesTable:
        """Return the table of files as they were scanned."""
        kinds: dict[Any, int] = {}
        numbers: list[int] = []
        labels: dict[str, list[Values | None]] = {}
        scalars: dict[str, list[Values | None]] = {}
        given: dict[str, list[Any]] = {}
        failures: dict[int, Failure] = {}
        dates: dict[str, list[str | None]] = {}
        sizes, modified = np.full(len(found), -1, np.int64), np.full(len(found), np.nan)
        last: Any = None
        last_number = -1
        for number, item in enumerate(found):
            if isinstance(item, Failure):
                failures[number] = item
                numbers.append(-1)
                continue
            sizes[number], modified[number] = _object_facts(item)
            for name, text in dates_of(item.attributes).items():
                dates.setdefault(name, [None] * len(found))[number] = text
            # Plain tuples, compared with those of the file before: an object for each variable of each
            # file, or its hash, would take longer than all else here.
            named = []
            for name, variable in item.variables.items():
                dims, data = variable.dims, variable.data
                named.append((name, dims, data.dtype, data.shape))
                if len(dims) == 1:
                    if dims[0] == name and (index := item.index(name)) is not None:
                        _set(labels, name, number, len(found), index)
                elif not dims and isinstance(data, np.ndarray):
                    _set(scalars, name, number, len(found), data)
            for dim, label in item.labels.items():
                _set(given, dim, number, len(found), label)
            facts = (named, item.coords, item.unindexed, item.order, item.groups)
            if facts != last:
                key = (tuple(named), item.coords, item.unindexed, item.order, item.groups)
                last, last_number = facts, kinds.setdefault(key, len(kinds))
            numbers.append(last_number)
        made = [FileKind(tuple((name, VariableKind(*rest)) for name, *rest in named), *more) for named, *more in kinds]
        urls = tuple(item.url if isinstance(item, Failure) else item.source or "" for item in found)
        kind = np.array(numbers, np.int32)
        return cls(urls, tuple(made), kind, labels, scalars, failures, given, sizes, modified, dates)

    @classmethod
    def join(cls, tables: Sequence[FilesTable]) -> FilesTable:
        """Return the table of the files of several tables, in order."""
        if len(tables) == 1:
            return tables[0]
        count = sum(map(len, tables))
        kinds: dict[FileKind, int] = {}
        columns: list[npt.NDArray[np.int32]] = []
        labels: dict[str, list[Values | None]] = {}
        scalars: dict[str, list[Values | None]] = {}
        failures: dict[int, Failure] = {}
        given: dict[str, list[Any]] = {}
        dates: dict[str, list[str | None]] = {}
        pool: dict[Any, Values] = {}
        before = 0
        for table in tables:
            renumbered = [kinds.setdefault(kind, len(kinds)) for kind in table.kinds]
            columns.append(np.array([*renumbered, -1], np.int32)[table.kind])  # -1 is the last one
            for joined, column in ((labels, table.labels), (scalars, table.scalars)):
                for name, values in column.items():
                    whole = joined.setdefault(name, [None] * count)
                    whole[before : before + len(values)] = [_share_equal(each, pool) for each in values]
            for dim, own in table.given.items():
                given.setdefault(dim, [None] * count)[before : before + len(own)] = own
            for name, texts in table.dates.items():
                dates.setdefault(name, [None] * count)[before : before + len(texts)] = texts
            failures |= {before + number: failure for number, failure in table.failures.items()}
            before += len(table)
        urls = tuple(url for table in tables for url in table.urls)
        sizes, modified = (np.concatenate([getattr(table, name) for table in tables]) for name in ("size", "modified"))
        return cls(
            urls, tuple(kinds), np.concatenate(columns), labels, scalars, failures, given, sizes, modified, dates
        )


def _object_facts(member: Member) -> tuple[int, float]:
    """Return the bytes of the object that a file is, and when it was changed last; -1 and NaN: unknown.

    Of an index, whose chunks lie in other objects, it is their time that counts.
    """
    tables = [
        variable.data.tiles[0].chunks
        for variable in member.variables.values()
        if isinstance(variable.data, VirtualArray) and variable.data.tiles
    ]
    for table in tables:
        if isinstance(table, Columns) and isinstance(table.sources, tuple) and table.sources:
            source: Source = table.sources[0]
            if source.url == member.source:
                return _number(source.size, -1), _number(source.modified, np.nan)
    if tables and math.prod(tables[0].shape) <= MOST_CELLS:
        times = [_number(source.modified, np.nan) for source in used_sources(tables[0])]
        return -1, max(times, default=np.nan) if not np.isnan(times).any() else np.nan
    return -1, np.nan


def _number(value: Any, unknown: Any) -> Any:
    return unknown if value is None else value


def _set(columns: dict[str, list[Any]], name: str, number: int, count: int, values: Any) -> None:
    column = columns.get(name)
    if column is None:
        column = columns[name] = [None] * count
    column[number] = values


def _share_equal(values: Values | None, pool: dict[Any, Values]) -> Values | None:
    """Return values, equal ones as one object: comparing ten thousand latitudes takes as long each time."""
    if values is None or values.dtype.hasobject:
        return values
    known = pool.get(id(values))
    if known is None:
        known = pool.setdefault((values.dtype, values.shape, values.tobytes()), values)
        pool[id(values)] = known
    return known
