"""Select variables and groups of a scanned file.

Variables are named by name or path. The coordinates of their dimensions come with them: a variable
`time` of the same group that lies along `time`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from insitu.errors import GroupError, VariableError
from insitu.model import VirtualGroup
from insitu.model.group import hint_for_names

__all__ = ["refuse_group", "select_names", "select_variables", "subtree"]


def select_names(dims: Mapping[str, Sequence[str]], variables: Collection[str] | None) -> set[str]:
    """Return the names that were asked for, and those of their coordinates.

    Parameters
    ----------
    dims
        The dimensions of every variable there is, by path.
    variables
        What was asked for; None: all.

    Raises
    ------
    VariableError
        If the file has no variable of that name.

    Examples
    --------
    >>> sorted(select_names({"time": ["time"], "tas": ["time", "x"], "pr": ["time"]}, ["tas"]))
    ['tas', 'time']
    """
    if variables is None:
        return set(dims)
    names = {name.strip("/") for name in variables}
    missing = names - dims.keys()
    if missing:
        raise VariableError(
            f"the file has no variable {', '.join(map(repr, sorted(missing)))}", hint=hint_for_names([*dims], missing)
        )
    labels = set()
    for name in names:
        folder = name[: name.rfind("/") + 1]
        labels |= {f"{folder}{dim}" for dim in dims[name]} & dims.keys()
    return names | labels


def refuse_group(group: str | None) -> None:
    """Raise if a group is asked for of a format that has no groups."""
    if group is not None and group.strip("/"):
        raise GroupError(f"the file has no group {group!r}", hint="Files of this format have no groups")


def select_variables(tree: VirtualGroup, variables: Collection[str] | None) -> VirtualGroup:
    """Return the tree with only the wanted variables; groups that are left without any are dropped.

    A variable that the scan left out is not reported again here.
    """
    if variables is None:
        return tree
    dims: dict[str, Sequence[str]] = {path: array.dims for path, array in tree.all_arrays()}
    readable = [name for name in variables if name.strip("/") not in tree.problems]
    return _keep_only(tree, select_names(dims, readable), "")


def _keep_only(tree: VirtualGroup, names: set[str], prefix: str) -> VirtualGroup:
    groups = {name: _keep_only(group, names, f"{prefix}{name}/") for name, group in tree.groups.items()}
    return replace(
        tree,
        arrays={name: array for name, array in tree.arrays.items() if f"{prefix}{name}" in names},
        groups={name: group for name, group in groups.items() if group.arrays or group.groups},
    )


def subtree(tree: VirtualGroup, group: str | None) -> VirtualGroup:
    """Return the subtree at a path, with the problems that belong to it."""
    path = (group or "").strip("/")
    if not path:
        return tree
    node = tree
    for name in path.split("/"):
        if name not in node.groups:
            raise GroupError(f"the file has no group {group!r}", hint=f"There are: {', '.join(node.groups) or 'none'}")
        node = node.groups[name]
    problems = {
        place.removeprefix(f"{path}/"): reason
        for place, reason in tree.problems.items()
        if place.startswith(f"{path}/")
    }
    return replace(node, problems=problems)
