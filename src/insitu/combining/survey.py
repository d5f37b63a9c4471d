"""Report of how the files of an archive differ: `ds.insitu.report()`.

The value that most files have is taken as the rule, and every file that differs is listed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.model import Encoding, VirtualArray
from insitu.model.cf_attributes import PACKING, TIMES
from insitu.scanning.member import Member, Variable
from insitu.scanning.scan_member import Failure

__all__ = ["Difference", "Report", "Survey"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One property in which some files differ from most."""

    what: str
    """The variable and what of it, e.g. `tas: chunks`."""
    usual: str
    """What most files have."""
    others: Mapping[str, tuple[str, ...]]
    """Another value: the files that have it."""

    def __str__(self) -> str:
        parts = [f"{value} in {_list_files(files)}" for value, files in self.others.items()]
        return f"{self.what}: mostly {self.usual}; {'; '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Report:
    """What files were combined, and how they differ."""

    files: int
    """How many are in the dataset."""
    left_out: Mapping[str, str]
    """File: why it is not."""
    differences: tuple[Difference, ...]
    tiles: Mapping[str, int]
    """Variables that did not fuse: in how many tiles they are."""

    def __str__(self) -> str:
        lines = [f"{self.files:,} files combined, {len(self.left_out):,} left out"]
        lines += [f"  left out: {url}: {why}" for url, why in self.left_out.items()]
        lines += [f"  {difference}" for difference in self.differences]
        lines += [
            f"  {name}: {count:,} tiles side by side (chunk shapes differ across the join)"
            for name, count in self.tiles.items()
        ]
        if len(lines) == 1:
            lines.append("  all alike")
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True, slots=True, eq=False)
class VariableSummary:
    """A variable without its values."""

    dims: tuple[str, ...]
    dtype: np.dtype[Any]
    encoding: Mapping[str, Any]
    attributes: Mapping[str, Any]
    encodings: tuple[Encoding, ...]
    """How its chunks are encoded; none if it was read."""


FilesByTrait = dict[str, dict[str, dict[Hashable, Any]]]
"""Variable: property: value: numbers of the files that have it (a list or an array)."""

FilesOfKind = tuple[VariableSummary, list[int]]
"""How a variable is, and the files that have it so."""


@dataclass(slots=True)
class Survey:
    """Summaries of all files of a combination, from which `report` is made."""

    urls: tuple[str, ...]
    left_out: dict[str, str]
    kinds: dict[str, list[FilesOfKind]]
    """Variable: how it is, and in which files. Files that are alike share the objects that describe
    them, so there are few.
    """
    tiles: dict[str, int]
    traits: FilesByTrait | None = None
    """The same as `kinds` of files that were scanned elsewhere, and in their place."""

    @classmethod
    def of(cls, found: Sequence[Member | Failure], combined: Member | None = None) -> Survey:
        """Return the survey of files, and of what they make together; they are compared later, in `report`."""
        members = [item for item in found if isinstance(item, Member)]
        kinds: dict[str, dict[Any, FilesOfKind]] = {}
        files: list[str] = []
        for member in members:
            begin = len(files)
            files += member.sources or [member.source or f"file {begin}"]
            for name, variable in member.variables.items():
                encodings = _encodings(variable)
                shared_objects = (variable.encoding, variable.attributes, *encodings)
                key = (variable.dims, variable.dtype, *map(id, shared_objects))
                known = kinds.setdefault(name, {})
                kind = known.get(key)
                if kind is None:
                    known[key] = kind = (_summarize(variable, encodings), [])
                kind[1].extend(range(begin, len(files)))
        left_out = {item.url: item.reason for item in found if isinstance(item, Failure)}
        by_name = {name: list(known.values()) for name, known in kinds.items()}
        return cls(tuple(files), left_out, by_name, {} if combined is None else cls.count_tiles(combined))

    @staticmethod
    def count_tiles(combined: Member) -> dict[str, int]:
        """Return the variables that did not fuse, with their tiles."""
        return {
            name: len(variable.data.tiles)
            for name, variable in combined.variables.items()
            if isinstance(variable.data, VirtualArray) and len(variable.data.tiles) > 1
        }

    @classmethod
    def join(cls, parts: Sequence[Survey]) -> Survey:
        """Return the survey of the files of several surveys, in order."""
        whole: FilesByTrait = {}
        before = 0
        for part in parts:
            for name, traits in part.files_by_trait().items():
                for trait, values in traits.items():
                    known = whole.setdefault(name, {}).setdefault(trait, {})
                    for value, numbers in values.items():
                        if value not in known and len(known) >= _MAX_DISTINCT_VALUES:
                            value = OTHER_VALUES
                        moved = np.asarray(numbers, np.int32) + before
                        known[value] = np.concatenate([known[value], moved]) if value in known else moved
            before += len(part.urls)
        urls = tuple(url for part in parts for url in part.urls)
        left_out = {url: why for part in parts for url, why in part.left_out.items()}
        return cls(urls, left_out, {}, {}, whole)

    def files_by_trait(self) -> FilesByTrait:
        """Return for each variable and each of its properties: the values, and the files that have each."""
        if self.traits is not None:
            return self.traits
        found: dict[str, dict[str, dict[Hashable, list[int]]]] = {}
        for name, kinds in self.kinds.items():
            traits = found.setdefault(name, {})
            for described, numbers in kinds:
                for trait, value in _traits(described).items():
                    traits.setdefault(trait, {}).setdefault(value, []).extend(numbers)
        return found

    def report(self) -> Report:
        """Return the report: which files differ from most others, and in what."""
        everyone = set(range(len(self.urls)))
        found = []
        for name, traits in self.files_by_trait().items():
            present = sorted(number for numbers in traits["dims"].values() for number in numbers)
            if missing := sorted(everyone.difference(present)):
                found.append(self._difference(f"{name}: presence", {"present": present, "missing": missing}))
            found += [
                self._difference(f"{name}: {trait}", values) for trait, values in traits.items() if len(values) > 1
            ]
        return Report(len(self.urls), self.left_out, tuple(found), self.tiles)

    def _difference(self, what: str, values: Mapping[Any, Sequence[int]]) -> Difference:
        usual = max(values, key=lambda value: 0 if value == OTHER_VALUES else len(values[value]))
        others = {
            _value_text(value): tuple(self.urls[n] for n in sorted(numbers))
            for value, numbers in values.items()
            if value != usual
        }
        if len(others) > _MAX_LISTED_VALUES:
            many = f"{_MAX_DISTINCT_VALUES:,} or more" if OTHER_VALUES in values else f"{len(others):,}"
            others = {f"{many} other values": tuple(url for urls in others.values() for url in urls)}
        return Difference(what, _value_text(usual), others)


_MAX_LISTED_VALUES = 8
"""Different values that are listed one by one."""
_MAX_DISTINCT_VALUES = 256
"""Different values that are told apart where files are scanned elsewhere: if every file has its own
packing, a survey would be larger than the chunk tables.
"""
OTHER_VALUES = "other values"


def _encodings(variable: Variable) -> tuple[Encoding, ...]:
    data = variable.data
    return data.tiles[0].encodings if isinstance(data, VirtualArray) and data.tiles else ()


def _summarize(variable: Variable, encodings: tuple[Encoding, ...]) -> VariableSummary:
    return VariableSummary(variable.dims, variable.dtype, variable.encoding, variable.attributes, encodings)


def _traits(variable: VariableSummary) -> dict[str, Hashable]:
    """Return the properties of a variable that the report compares."""
    encoding = variable.encoding
    traits: dict[str, Hashable] = {
        "dims": variable.dims,
        "dtype": str(variable.dtype),
        "stored dtype": str(encoding.get("dtype")),
        "chunks": encoding.get("chunksizes") or encoding.get("chunks"),
        "packing": _to_hashable({key: encoding[key] for key in PACKING if key in encoding}),
        "time units": _to_hashable({key: encoding[key] for key in TIMES if key in encoding}),
        "units": str(variable.attributes.get("units")),
    }
    if variable.encodings:
        codecs = variable.encodings[0].codecs
        traits["codecs"] = tuple(_codec_text(codec.name, codec.configuration) for codec in codecs)
    return traits


def _codec_text(name: str, configuration: Mapping[str, Any]) -> str:
    level = configuration.get("level")
    return name if level is None else f"{name}({level})"


def _to_hashable(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((key, str(value)) for key, value in values.items())


def _value_text(value: Hashable) -> str:
    if isinstance(value, tuple):
        if value and all(isinstance(part, tuple) for part in value):
            return ", ".join("=".join(map(str, part)) for part in value)
        return "(" + ", ".join(map(str, value)) + ")" if value else "none"
    return str(value)


def _list_files(files: Sequence[str]) -> str:
    return ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
