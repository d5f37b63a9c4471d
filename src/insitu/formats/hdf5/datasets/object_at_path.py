"""Open one object of a file by its path, following links into other files.

Used for external links and the sources of virtual datasets. Reads only the superblock, the groups
on the path and the object.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from insitu.errors import FormatError, InsituError
from insitu.formats.hdf5.datasets.objects import Dataset, Group, ObjectTable, read_objects
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.superblock import Superblock, check_whole_file, find_signature, read_superblock
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.scheduler import Walk, run
from insitu.formats.parsing.sibling_files import SiblingFiles

__all__ = [
    "HOPS_LIMIT",
    "ExternalTarget",
    "ParsedFile",
    "external_target",
    "open_object",
    "read_file_header",
    "read_object_at",
]

HOPS_LIMIT = 32


@dataclass(frozen=True, slots=True)
class ExternalTarget:
    """A place in another file."""

    file: str
    path: str


@dataclass(slots=True)
class ParsedFile:
    """A file of which some objects were read."""

    window: ReadCache
    file: FileContext
    superblock: Superblock
    objects: ObjectTable = field(default_factory=dict)


def read_file_header(file: FileContext) -> Walk[Superblock]:
    """Read the superblock and its extension; raise if a part of the file lies elsewhere."""
    file.base = yield from find_signature(file.size)
    superblock: Superblock = yield from read_superblock(file)
    driver = superblock.driver
    if superblock.extension is not None:
        from insitu.formats.hdf5.structures.superblock_extension import read_extension

        try:
            driver = yield from read_extension(file, superblock.extension)
        except FormatError:
            # Of a truncated file, or of a member of a set, that is what must be reported.
            check_whole_file(file, superblock.end, driver)
            raise
    check_whole_file(file, superblock.end, driver)
    return superblock


def open_object(siblings: SiblingFiles, window: ReadCache, path: str) -> tuple[ParsedFile, Dataset | Group, str] | None:
    """Return the object at a path, its file and its path there; None if there is none.

    Parameters
    ----------
    siblings
        The files of the scan.
    window
        The file to begin in.
    path
        From its root.
    """
    for _ in range(HOPS_LIMIT):
        opened = _open_file(siblings, window)
        found = run(read_object_at(opened, path), opened.window)
        if found is None:
            return None
        if not isinstance(found, ExternalTarget):
            return opened, found, path
        external = siblings.open_sibling(window, found.file)
        if external is None:
            return None
        window, path = external, found.path
    return None  # a circle of links


def _open_file(siblings: SiblingFiles, window: ReadCache) -> ParsedFile:
    key = ("opened", window.url)
    opened: ParsedFile | None = siblings.memory.get(key)
    if opened is None:
        file = FileContext(window.url, window.size, peek=window.peek, head=lambda: window.head)
        opened = ParsedFile(window, file, run(read_file_header(file), window))
        siblings.memory[key] = opened
    return opened


def external_target(link: tuple[str, str], rest: list[str]) -> ExternalTarget:
    """Return the target of an external link, with the names that follow it (last first)."""
    return ExternalTarget(link[0], "/".join([link[1].rstrip("/"), *reversed(rest)]))


def read_object_at(opened: ParsedFile, path: str) -> Walk[Dataset | Group | ExternalTarget | None]:
    """Read the groups on a path of a file, and return the object at its end."""
    objects, root = opened.objects, opened.superblock.root
    names = [name for name in reversed(path.split("/")) if name not in ("", ".")]
    current = root
    hops = 0
    while True:
        if current not in objects:
            yield from read_objects(opened.file, [current], objects, indexed=not names, deep=False)
        found = objects[current]
        if isinstance(found, InsituError):
            raise found
        if not names:
            return found
        if not isinstance(found, Group):
            return None
        name = names.pop()
        link = next((link for link in found.links if link.name == name), None)
        if link is None:
            return None
        if link.outside is not None:
            return external_target(link.outside, names)
        if link.path is not None:
            hops += 1
            if hops > HOPS_LIMIT:
                return None
            names += [part for part in reversed(link.path.split("/")) if part not in ("", ".")]
            current = root if link.path.startswith("/") else current
        else:
            assert link.address is not None
            current = link.address
