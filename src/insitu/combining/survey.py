"""Report of how the files of an archive differ: `ds.insitu.report()`.

The value that most files have is taken as the rule, and every file that differs is listed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.combining.member import Member, Variable
from insitu.combining.scan_member import Failure
from insitu.model import Encoding, VirtualArray

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


VariableKind = tuple[VariableSummary, list[int]]
"""How a variable is, and the files that have it so."""


@dataclass(slots=True)
class Survey:
    """Summaries of all files of a combination, from which `report` is made."""

    urls: tuple[str, ...]
    left_out: dict[str, str]
    kinds: dict[str, list[VariableKind]]
    """Variable: how it is, and in which files. Files that are alike share the objects that describe
    them, so there are few.
    """
    tiles: dict[str, int]

    @classmethod
    def of(cls, found: Sequence[Member | Failure], combined: Member) -> Survey:
        """Return the survey of all files; they are compared later, in `report`."""
        members = [item for item in found if isinstance(item, Member)]
        kinds: dict[str, dict[Any, VariableKind]] = {}
        for number, member in enumerate(members):
            for name, variable in member.variables.items():
                encodings = _encodings(variable)
                key = (variable.dims, variable.dtype, id(variable.encoding), id(variable.attributes), id(encodings))
                alike = kinds.setdefault(name, {})
                kind = alike.get(key)
                if kind is None:
                    alike[key] = kind = (_summarize(variable, encodings), [])
                kind[1].append(number)
        tiles = {
            name: len(variable.data.tiles)
            for name, variable in combined.variables.items()
            if isinstance(variable.data, VirtualArray) and len(variable.data.tiles) > 1
        }
        left_out = {item.url: item.reason for item in found if isinstance(item, Failure)}
        urls = tuple(member.source or f"file {number}" for number, member in enumerate(members))
        return cls(urls, left_out, {name: list(alike.values()) for name, alike in kinds.items()}, tiles)

    def report(self) -> Report:
        """Return the report: which files differ from most others, and in what."""
        everyone = set(range(len(self.urls)))
        found = []
        for name, kinds in self.kinds.items():
            present = sorted(number for _, numbers in kinds for number in numbers)
            if missing := sorted(everyone.difference(present)):
                found.append(self._difference(f"{name}: presence", {"present": present, "missing": missing}))
            traits: dict[str, dict[Hashable, list[int]]] = {}
            for described, numbers in kinds:
                for trait, value in _traits(described).items():
                    traits.setdefault(trait, {}).setdefault(value, []).extend(numbers)
            found += [
                self._difference(f"{name}: {trait}", values) for trait, values in traits.items() if len(values) > 1
            ]
        return Report(len(self.urls), self.left_out, tuple(found), self.tiles)

    def _difference(self, what: str, values: Mapping[Any, list[int]]) -> Difference:
        usual = max(values, key=lambda value: len(values[value]))
        others = {
            _value_text(value): tuple(self.urls[n] for n in sorted(numbers))
            for value, numbers in values.items()
            if value != usual
        }
        if len(others) > _MAX_LISTED_VALUES:
            others = {f"{len(others):,} other values": tuple(url for urls in others.values() for url in urls)}
        return Difference(what, _value_text(usual), others)


_MAX_LISTED_VALUES = 8
"""Different values that are listed one by one."""


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
        "packing": _to_hashable(
            {
                key: encoding[key]
                for key in ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
                if key in encoding
            }
        ),
        "time units": _to_hashable({key: encoding[key] for key in ("units", "calendar") if key in encoding}),
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
