"""Which path leads to which object?

Hard links name addresses; soft links name paths, which are followed here; links that lead back up, or nowhere, or out of the file
are told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.formats.hdf5.datasets.object_at_path import Outside, outside_of
from insitu.formats.hdf5.datasets.objects import Dataset, Group, Objects
from insitu.formats.hdf5.structures.links import Link

__all__ = ["Branch", "build_tree", "find_object"]

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
    loose: list[tuple[str, str]] = field(default_factory=list)
    """Names of links that lead to nothing new, and why."""

    asked: set[str] | None = None
    """Paths of what is asked for, from the root of the scan; None: all."""
    outside: list[tuple[str, Outside]] = field(default_factory=list)
    """Names of links to other files, and where they lead."""

    def join(self, name: str) -> str:
        """The path of something in this group."""
        return f"{self.path}/{name}" if self.path else name

    def walk(self) -> Iterator[Branch]:
        """Itself and all groups below it."""
        todo = [self]
        while todo:
            branch = todo.pop()
            yield branch
            todo += [child for _, child in reversed(branch.children)]


def build_tree(root: Group, top: Group, objects: Objects) -> Branch:
    """The tree below a group.

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
    # Groups that link to each other crosswise have exponentially many paths; real files a few per object.
    count, limit = 0, 10_000 + 8 * len(objects)
    while todo:
        branch, above = todo.pop()
        links = branch.group.links
        count += len(links)
        if count > limit:
            raise FormatError(f"more than {limit} paths to {len(objects)} objects", structure="links")
        if len({link.name for link in links}) != len(links):
            links = _one_each(branch, links)
        for link in links:
            _place(branch, above, link, root, objects, todo)
    return tree


def _one_each(branch: Branch, links: list[Link]) -> list[Link]:
    """The links whose name no other has: which of two the library finds depends on how it looks."""
    counts = Counter(link.name for link in links)
    twice = [name for name, count in counts.items() if count > 1]
    branch.failed += [(name, FormatError("a group has two members of this name", structure="links")) for name in twice]
    return [link for link in links if counts[link.name] == 1]


def _place(
    branch: Branch,
    above: tuple[int, ...],
    link: Link,
    root: Group,
    objects: Objects,
    todo: list[tuple[Branch, tuple[int, ...]]],
) -> None:
    """Put what a link leads to into a branch."""
    name = link.name
    if link.outside is not None:
        _out(branch, name, Outside(*link.outside))
        return
    address = link.address if link.path is None else find_object(link.path, branch.group, root, objects)
    if isinstance(address, Outside):
        _out(branch, name, address)
        return
    if address is None or address not in objects:
        branch.loose.append((name, f"the link leads nowhere ({link.path})"))
        return
    found = objects[address]
    if isinstance(found, InsituError):
        branch.failed.append((name, found))
    elif isinstance(found, Dataset):
        branch.datasets.append((name, found))
    elif isinstance(found, Group):
        if address in above:
            branch.loose.append((name, "the link leads back to a group above it"))
            return
        child = Branch(branch.join(name), found)
        branch.children.append((name, child))
        todo.append((child, (*above, address)))


def _out(branch: Branch, name: str, place: Outside) -> None:
    """A link out of the file; those that a program defined for itself lead nowhere that others know."""
    if place.path:
        branch.outside.append((name, place))
    else:
        branch.failed.append((name, UnsupportedError(f"a {place.file}", structure="link")))


def find_object(path: str, start: Group, root: Group, objects: Objects) -> int | Outside | None:
    """The address of the object at a path, or its place in another file; None: there is none, or it was not read."""
    here = root.address if path.startswith("/") else start.address
    # Names still to go, last first; soft links on the way put theirs on top.
    names = [name for name in reversed(path.split("/")) if name not in ("", ".")]
    hops = 0
    while names:
        group = objects.get(here)
        if not isinstance(group, Group):
            return None
        name = names.pop()
        link = next((link for link in group.links if link.name == name), None)
        if link is None:
            return None
        if link.address is not None:
            here = link.address
            continue
        if link.outside is not None:
            return outside_of(link.outside, names)
        hops += 1
        if link.path is None or hops > SOFT_LIMIT:
            return None
        if link.path.startswith("/"):
            here = root.address
        names += [part for part in reversed(link.path.split("/")) if part not in ("", ".")]
    return here
