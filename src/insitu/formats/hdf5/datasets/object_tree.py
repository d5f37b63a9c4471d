"""Tree of the groups and datasets of a file, with soft links resolved, and the paths of its
objects.

Hard links name addresses, soft links name paths. Links that lead to a parent group, to nothing or
to another file are kept apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.formats.hdf5.datasets.object_at_path import ExternalTarget, external_target
from insitu.formats.hdf5.datasets.objects import Dataset, Group, ObjectTable
from insitu.formats.hdf5.structures.links import Link
from insitu.formats.hdf5.structures.object_references import ReferenceValue

__all__ = ["Branch", "ObjectPaths", "build_tree", "find_object"]

SOFT_LIMIT = 32


@dataclass(slots=True)
class Branch:
    """A group at a path."""

    path: str
    """From the root of the scan; "" for itself."""
    group: Group
    datasets: list[tuple[str, Dataset]] = field(default_factory=list)
    children: list[tuple[str, Branch]] = field(default_factory=list)
    failed: list[tuple[str, InsituError]] = field(default_factory=list)
    """Names of what could not be taken, and why."""
    dead_links: list[tuple[str, str]] = field(default_factory=list)
    """Names of links that lead to nothing new, and why."""

    requested_paths: set[str] | None = None
    """Paths of what is asked for, from the root of the scan; None: all."""
    outside: list[tuple[str, ExternalTarget]] = field(default_factory=list)
    """Names of links to other files, and where they lead."""

    def join(self, name: str) -> str:
        """Return the path of a member of this group."""
        return f"{self.path}/{name}" if self.path else name

    def walk(self) -> Iterator[Branch]:
        """Iterate over this group and all groups below it."""
        todo = [self]
        while todo:
            branch = todo.pop()
            yield branch
            todo += [child for _, child in reversed(branch.children)]


def build_tree(root: Group, top: Group, objects: ObjectTable) -> Branch:
    """Return the tree below a group.

    Parameters
    ----------
    root
        The root group of the file, where absolute soft links begin.
    top
        The group to begin at.
    objects
        All objects that were read.
    """
    tree = Branch("", top)
    todo: list[tuple[Branch, tuple[int, ...]]] = [(tree, (top.address,))]
    # Groups that link to each other crosswise have exponentially many paths; real files a few per
    # object.
    count, limit = 0, 10_000 + 8 * len(objects)
    while todo:
        branch, ancestors = todo.pop()
        links = branch.group.links
        count += len(links)
        if count > limit:
            raise FormatError(f"the links form more than {limit} paths to {len(objects)} objects", structure="links")
        if len({link.name for link in links}) != len(links):
            links = _unique_links(branch, links)
        for link in links:
            _add_link(branch, ancestors, link, root, objects, todo)
    return tree


def _unique_links(branch: Branch, links: list[Link]) -> list[Link]:
    """The links whose name no other has: which of two the library finds depends on how it looks."""
    counts = Counter(link.name for link in links)
    twice = [name for name, count in counts.items() if count > 1]
    branch.failed += [
        (name, FormatError("the group has two members of this name", structure="links")) for name in twice
    ]
    return [link for link in links if counts[link.name] == 1]


def _add_link(
    branch: Branch,
    ancestors: tuple[int, ...],
    link: Link,
    root: Group,
    objects: ObjectTable,
    todo: list[tuple[Branch, tuple[int, ...]]],
) -> None:
    """Put what a link leads to into a branch."""
    name = link.name
    if link.outside is not None:
        _add_external_link(branch, name, ExternalTarget(*link.outside))
        return
    address = link.address if link.path is None else find_object(link.path, branch.group, root, objects)
    if isinstance(address, ExternalTarget):
        _add_external_link(branch, name, address)
        return
    if address is None or address not in objects:
        branch.dead_links.append((name, f"the target of the link does not exist ({link.path})"))
        return
    found = objects[address]
    if isinstance(found, InsituError):
        branch.failed.append((name, found))
    elif isinstance(found, Dataset):
        branch.datasets.append((name, found))
    elif isinstance(found, Group):
        if address in ancestors:
            branch.dead_links.append((name, "the link leads back to a parent group"))
            return
        child = Branch(branch.join(name), found)
        branch.children.append((name, child))
        todo.append((child, (*ancestors, address)))


def _add_external_link(branch: Branch, name: str, place: ExternalTarget) -> None:
    """Add a link to another file.

    User-defined links fail: only the program that defined them can follow them.
    """
    if place.path:
        branch.outside.append((name, place))
    else:
        branch.failed.append(
            (name, UnsupportedError(f"links of this kind are not supported: {place.file}", structure="link"))
        )


def find_object(path: str, start: Group, root: Group, objects: ObjectTable) -> int | ExternalTarget | None:
    """Return the address of the object at a path, or its place in another file.

    None if there is none, or if it was not read.
    """
    current = root.address if path.startswith("/") else start.address
    # Names still to go, last first; soft links on the way put theirs on top.
    names = [name for name in reversed(path.split("/")) if name not in ("", ".")]
    hops = 0
    while names:
        group = objects.get(current)
        if not isinstance(group, Group):
            return None
        name = names.pop()
        link = next((link for link in group.links if link.name == name), None)
        if link is None:
            return None
        if link.address is not None:
            current = link.address
            continue
        if link.outside is not None:
            return external_target(link.outside, names)
        hops += 1
        if link.path is None or hops > SOFT_LIMIT:
            return None
        if link.path.startswith("/"):
            current = root.address
        names += [part for part in reversed(link.path.split("/")) if part not in ("", ".")]
    return current


class ObjectPaths:
    """The paths of objects by their addresses; found out when the first is asked for."""

    __slots__ = ("_found", "_prefix", "_tree")

    def __init__(self, tree: Branch, prefix: str) -> None:
        self._tree, self._prefix = tree, f"/{prefix}" if prefix else ""
        self._found: dict[int, str] | None = None

    def path(self, address: int) -> str:
        """Return the path of an object from the root of the file.

        If there are several, the one that a walk through the file meets first.
        """
        found = self._all().get(address)
        return f"(an object at {address} that no path leads to)" if found is None else found

    def has_unknown_targets(self, tree: Branch) -> bool:
        """Whether an attribute refers to an object that is not below the tree."""
        targets: set[int] = set()
        for branch in tree.walk():
            for attributes in (branch.group.attributes, *(dataset.attributes for _, dataset in branch.datasets)):
                for value in attributes.values():
                    if isinstance(value, ReferenceValue):
                        targets |= value.addresses()
        return bool(targets) and not targets <= self._all().keys()

    def _all(self) -> dict[int, str]:
        if self._found is None:
            found = {self._tree.group.address: self._prefix or "/"}
            for branch in self._tree.walk():
                for link in branch.group.links:
                    if link.address is not None:
                        found.setdefault(link.address, f"{self._prefix}/{branch.join(link.name)}")
            self._found = found
        return self._found
