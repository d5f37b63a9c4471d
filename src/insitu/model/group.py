"""VirtualGroup: a tree of named virtual arrays with attributes, as a file or archive holds it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from insitu.errors import VariableError
from insitu.model.array import VirtualArray
from insitu.model.description import Row, count_text, describe_html, describe_text, variable_row
from insitu.model.format_details import GroupDetails
from insitu.model.source import Source
from insitu.model.tile import distinct_sources

__all__ = ["VirtualGroup", "hint_for_names", "nest_groups"]

NO_DETAILS = GroupDetails()
MAX_GROUPS = 4
"""Groups that are shown one by one."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VirtualGroup:
    """Named arrays, subgroups and attributes."""

    arrays: Mapping[str, VirtualArray]
    groups: Mapping[str, VirtualGroup] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    details: GroupDetails = NO_DETAILS
    """What the format says about the group beyond its attributes."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Reasons why variables were left out, by path."""
    coordinates: tuple[str, ...] = ()
    """Arrays that are coordinates although neither a dimension nor an attribute names them."""
    unindexed: tuple[str, ...] = ()
    """Coordinates along a dimension of their own name that have no index."""
    unlimited: tuple[str, ...] = ()
    """Dimensions that may grow."""

    def __repr__(self) -> str:
        return describe_text(*self._description())

    def _repr_html_(self) -> str:
        return describe_html(*self._description())

    def _description(self) -> tuple[str, list[Row], list[str], Mapping[str, Any]]:
        rows = [variable_row(name, array.dims, array) for name, array in self.arrays.items()]
        notes = [f"{name}/: {_contents(group)}" for name, group in self.groups.items()]
        if len(notes) > MAX_GROUPS:
            notes = [*notes[: MAX_GROUPS - 1], f"… and {len(notes) - MAX_GROUPS + 1:,} more groups"]
        if self.problems:
            notes.append(f"left out: {count_text(len(self.problems), 'variable')}, see problems")
        return f"VirtualGroup: {_contents(self)}", rows, notes, self.attributes

    def __getitem__(self, path: str) -> VirtualArray | VirtualGroup:
        """Return an array or a group by its path, e.g. `forecast/tas`."""
        node: VirtualArray | VirtualGroup = self
        for name in path.strip("/").split("/"):
            if not name:
                continue
            found = None
            if isinstance(node, VirtualGroup):
                found = node.arrays.get(name, node.groups.get(name))
            if found is None:
                raise self._missing_error(path)
            node = found
        return node

    def array(self, path: str) -> VirtualArray:
        """Return an array by its path.

        Raise a VariableError that lists the variables if there is none.
        """
        node = self[path]
        if not isinstance(node, VirtualArray):
            raise VariableError(f"{path!r} is a group", hint=f"It holds: {', '.join(node.arrays) or 'no arrays'}")
        return node

    def walk(self, path: str = "") -> Iterator[tuple[str, VirtualGroup]]:
        """Yield every group of the tree with its path, this one (`""`) first."""
        yield path, self
        for name, group in self.groups.items():
            yield from group.walk(f"{path}/{name}" if path else name)

    def all_arrays(self) -> Iterator[tuple[str, VirtualArray]]:
        """Yield every array of the tree with its path."""
        for path, group in self.walk():
            for name, array in group.arrays.items():
                yield f"{path}/{name}" if path else name, array

    def map_arrays(self, change: Callable[[str, VirtualArray], VirtualArray]) -> VirtualGroup:
        """Return the tree with every array changed; `change` is given its name in its group, and the array."""
        arrays = {name: change(name, array) for name, array in self.arrays.items()}
        groups = {name: group.map_arrays(change) for name, group in self.groups.items()}
        return replace(self, arrays=arrays, groups=groups)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The archive objects that hold the tree's chunks, each once."""
        return distinct_sources(tile for _, array in self.all_arrays() for tile in array.tiles)

    def _missing_error(self, path: str) -> VariableError:
        if (reason := self.problems.get(path.strip("/"))) is not None:
            return VariableError(f"variable {path!r} was left out when the file was scanned: {reason}")
        return VariableError(
            f"no variable {path!r}", hint=hint_for_names([name for name, _ in self.all_arrays()], [path])
        )


def _contents(group: VirtualGroup) -> str:
    """Return how many variables and groups a group has, with those below."""
    arrays, groups = sum(1 for _ in group.all_arrays()), sum(1 for _ in group.walk()) - 1
    return count_text(arrays, "variable") + (f" in {count_text(groups + 1, 'group')}" if groups else "")


def nest_groups(groups: Mapping[str, VirtualGroup]) -> VirtualGroup:
    """Return the tree that groups by path make. Parents must come before their children."""
    children: dict[str, list[str]] = {path: [] for path in groups}
    for path in groups:
        if path:
            children[path.rpartition("/")[0]].append(path)

    def build(path: str) -> VirtualGroup:
        inner = {child.rpartition("/")[2]: build(child) for child in children[path]}
        return replace(groups[path], groups=inner)

    return build("")


def hint_for_names(paths: Sequence[str], requested: Collection[str]) -> str:
    """Return what helps somebody who asked for variables that are not there: those of these names in other groups,
    or else the variables that there are.

    Parameters
    ----------
    paths
        Of all variables.
    requested
        The names that were asked for.

    Examples
    --------
    >>> hint_for_names(["surface/t2m", "surface/u10", "top/t2m"], ["t2m"])
    'Groups have it: surface/t2m, top/t2m. Name one, such as group="surface"'
    >>> hint_for_names(["tas", "pr"], ["t2m"])
    'There are: tas, pr'
    """
    names = {name.strip("/").rpartition("/")[2] for name in requested}
    found = [path for path in paths if "/" in path and path.rpartition("/")[2] in names]
    if found:
        return f'Groups have it: {_list_names(found)}. Name one, such as group="{found[0].rpartition("/")[0]}"'
    return f"There are: {_list_names(paths) or 'none'}"


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
