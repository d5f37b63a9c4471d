"""Groups of one file as a tree, by the rules of xarray's `DataTree`.

A group has the labels of the groups above it, unless it has its own: then they must be the same. A
dimension has one length in a group and in all above it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from insitu.errors import CombineError
from insitu.scanning.member import Member, Variable
from insitu.sources import redact_url

__all__ = ["Inherited", "images_beside", "parent_of", "tree_of_groups"]

Group = TypeVar("Group")

_NAMES_OF_IMAGES = {"overview_0": "full_resolution", "page_1": "page_0"}
"""First of the groups below an image: the name of the image beside them."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """What groups have of the groups above them. Of the root: nothing."""

    labels: Mapping[str, Variable]
    """Coordinates that label their own dimension."""
    sizes: Mapping[str, int]
    """Lengths of all dimensions."""

    def below(self, member: Member) -> Inherited:
        """Return what groups below a group have of it and of those above it."""
        own = {name: variable for name, variable in member.variables.items() if member.index(name) is not None}
        return Inherited({**self.labels, **own}, {**self.sizes, **member.sizes})

    def given_to(self, member: Member) -> Member:
        """Return a group with the labels that it inherits."""
        more = {name: variable for name, variable in self.labels.items() if name not in member.variables}
        if not more:
            return member
        order = member.order and (*member.order, *(name for name in more if name not in member.order))
        return replace(member, variables={**member.variables, **more}, coords=member.coords.union(more), order=order)

    def conflict(self, member: Member) -> str | None:
        """Return why a group does not fit below the groups above it; None if it does."""
        for dim, length in member.sizes.items():
            above = self.sizes.get(dim, length)
            if above != length:
                return f"dimension {dim!r} has length {length}, and {above} in the groups above it"
            labels, own = self.labels.get(dim), member.index(dim)
            if labels is not None and own is not None and not _has_same_labels(labels.data, own):
                return f"the labels of {dim!r} are not those of the groups above it"
        return None


ROOT = Inherited({}, {})


def parent_of(path: str) -> str:
    """Return the path of the group above."""
    return path.rpartition("/")[0]


def _has_same_labels(one: Any, other: npt.NDArray[Any]) -> bool:
    if one is other:
        return True
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        return bool(np.array_equal(one, other, equal_nan=True))
    return bool(np.array_equal(one, other))


def images_beside(groups: Mapping[str, Group], without_content: Callable[[Group], Group]) -> dict[str, Group]:
    """Return groups by path with each image that has overviews or pages in a group of its own beside
    them: `full_resolution`, `page_0`. A group must have the labels of those above it, and an image
    has others than its overviews.
    """
    found = {}
    for path, group in groups.items():
        inside = f"{path.rstrip('/')}/" if path else ""
        names = [own for below, own in _NAMES_OF_IMAGES.items() if inside + below in groups]
        found[path] = without_content(group) if names else group
        if names:
            found[inside + names[0]] = group
    return found


def tree_of_groups(groups: Mapping[str, Member], url: str, leave_out: Callable[[str], None] | None) -> Member:
    """Return the root of the tree that the groups of a file make.

    Parameters
    ----------
    groups
        By path, parents first.
    url
        The file.
    leave_out
        Called with the words for what is left out: groups that do not fit below those above them.
        None: that is an error.

    Raises
    ------
    CombineError
        If a group does not fit.
    """
    conflicts = _conflicts(groups)
    if conflicts:
        beside = images_beside(groups, lambda group: replace(group, variables={}, coords=frozenset()))
        groups, conflicts = (beside, {}) if not _conflicts(beside) else (groups, conflicts)
    for path, why in conflicts.items():
        if leave_out is None:
            raise CombineError(
                f"group '/{path}' does not fit into a tree: {why}",
                url=url,
                hint=f"Open it alone: insitu.open_mfdataset(…, group={path!r}). errors='warn' leaves it out",
            )
        leave_out(f"left out: group '/{path}' of {redact_url(url)}: {why}")
    rest = {path: group for path, group in groups.items() if not _is_in(path, conflicts)}
    root = rest.pop("")
    return replace(root, below=rest, groups=(), problems={**root.problems, **conflicts})


def _is_in(path: str, groups: Mapping[str, Any]) -> bool:
    return any(path == group or path.startswith(f"{group}/") for group in groups)


def _conflicts(groups: Mapping[str, Member]) -> dict[str, str]:
    """Return the groups that do not fit, and why."""
    above, found = {"": ROOT}, {}
    for path, member in groups.items():
        inherited = above[parent_of(path)] if path else ROOT
        if path and (why := inherited.conflict(member)) is not None:
            found[path] = why
        above[path] = inherited.below(member)
    return found
