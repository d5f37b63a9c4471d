"""Scan an HDF5 or netCDF-4 file: its groups, variables, dimensions and the location of every chunk.

The superblock is read first, then all objects in parallel, then netCDF-4 dimensions are assigned.
The result is a tree of virtual arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from insitu.errors import FormatError, GroupError, InsituError, UnsupportedError, VariableError
from insitu.formats.eos_structure import EOS_INFORMATION
from insitu.formats.hdf5.conventions.netcdf4 import GroupNode, NetcdfVariable, assign_dimensions
from insitu.formats.hdf5.datasets.object_at_path import ExternalTarget, external_target, read_file_header
from insitu.formats.hdf5.datasets.object_tree import Branch, ObjectPaths, build_tree
from insitu.formats.hdf5.datasets.objects import Dataset, Group, ObjectTable, read_chunk_index, read_objects
from insitu.formats.hdf5.datasets.virtual_dataset import resolve_extent
from insitu.formats.hdf5.groups import GroupBuilder, ScanTarget, is_at_or_below
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.scheduler import Parallel, Walk, run
from insitu.formats.parsing.sibling_files import SiblingFiles
from insitu.formats.scan_request import ScanRequest
from insitu.formats.unreadable import Problems
from insitu.model import VirtualGroup
from insitu.model.group import hint_for_names

__all__ = ["scan_hdf5"]

LINKS_LIMIT = 32
"""Most files that a path may lead through."""


def scan_hdf5(window: ReadCache, request: ScanRequest) -> VirtualGroup:
    """Return the groups and variables of an HDF5 or netCDF-4 file."""
    with SiblingFiles(window) as siblings:
        return _scan(siblings, ScanTarget(window, request.group or "", request.names), Problems(request.errors), ())


def _scan(
    siblings: SiblingFiles, place: ScanTarget, problems: Problems, chain: tuple[tuple[str, int], ...]
) -> VirtualGroup:
    """Scan a part of a file.

    `chain` holds the groups of other files that link to it, so that cycles of links end.
    """
    window = place.window
    file = FileContext(window.url, window.size, peek=window.peek, head=lambda: window.head)
    walk = _read_objects(file, place.group, place.names, lambda objects: _resolve_extents(siblings, window, objects))
    contents = run(walk, window)
    if isinstance(contents, ExternalTarget):
        opened = siblings.open_sibling(window, contents.file)
        if opened is None or len(chain) > LINKS_LIMIT:
            raise GroupError(
                f"there is no group {place.group!r}: its link leads to {contents.file}, which cannot be opened",
                url=window.url,
            )
        prefix = place.group.strip("/") + "/"
        names = None if place.names is None else {name.removeprefix(prefix) for name in place.names}
        return _scan(siblings, ScanTarget(opened, contents.path, names), problems, (*chain, (opened.url, -1)))
    builder = GroupBuilder(siblings, window, file, problems, contents.selected, contents.paths.path)
    graft = partial(_scan, siblings)
    built = builder.build(contents.top, contents.nodes, (*chain, (window.url, contents.top.group.address)), graft)
    path = tuple(part for part in place.group.split("/") if part not in ("", "."))
    is_eos = path[0] == "HDFEOS" if path else any(link.name == EOS_INFORMATION for link in contents.top.group.links)
    if is_eos:
        from insitu.formats.hdf5.conventions.eos5 import StructMetadata, apply_dimension_names, read_structure

        text = read_structure(siblings, window)
        built = apply_dimension_names(built, StructMetadata.of(text), path) if text else built
    return built


def _resolve_extents(siblings: SiblingFiles, window: ReadCache, objects: ObjectTable) -> None:
    """Find out how long those virtual datasets are that grow with their sources."""
    for found in objects.values():
        if isinstance(found, Dataset) and any(
            mapping.target_selection.endless_axis is not None for mapping in found.mappings
        ):
            try:
                resolve_extent(siblings, window, found)
            except (FormatError, UnsupportedError) as problem:
                found.problem = found.problem or problem


@dataclass(slots=True)
class _FileContents:
    """What was read of a file."""

    top: Branch
    """The group that was asked for."""
    nodes: dict[int, GroupNode]
    """Its groups, and those below, with their dimensions; by the identity of the branch."""
    selected: set[int] | None
    """Identities of the variables that were asked for; None: all."""
    paths: ObjectPaths
    """Of what references in attributes point at."""


def _read_objects(
    file: FileContext, path: str, names: set[str] | None, resolve_extents: Callable[[ObjectTable], None]
) -> Walk[_FileContents | ExternalTarget]:
    """Read all of a file, or what is asked for; or where that is, if it is in another file."""
    superblock = yield from read_file_header(file)
    objects: ObjectTable = {}
    indexed = names is None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts:
        yield from read_objects(file, [superblock.root], objects, indexed=indexed, deep=True)
        top = root = _get_group(objects, superblock.root)
    else:
        located = yield from _find_group(file, superblock.root, parts, objects)
        if isinstance(located, ExternalTarget):
            return located
        top = located
        yield from _read_descendants(file, objects, [top], indexed)
        root = _get_group(objects, superblock.root)
    resolve_extents(objects)
    tree = build_tree(root, top, objects)
    nodes = _assign_tree_dimensions(tree)
    paths = ObjectPaths(tree, "/".join(parts))
    if top is not root and (_needs_rest(tree, nodes) or paths.has_unknown_targets(tree)):
        # Names or lengths of dimensions come from outside of the subtree: read the headers of the
        # whole file.
        yield from _read_descendants(file, objects, [g for g in objects.values() if isinstance(g, Group)], False)
        resolve_extents(objects)
        whole = build_tree(root, root, objects)
        nodes = _assign_tree_dimensions(whole)
        paths = ObjectPaths(whole, "")
        tree = _find_branch(whole, parts) or tree
    selected = None
    if names is not None:
        selected, datasets = _select_variables(tree, nodes, names, parts)
        results = yield Parallel([read_chunk_index(file, dataset) for dataset in datasets], keep=True)
        for dataset, problem in zip(datasets, results, strict=True):
            dataset.problem = dataset.problem or problem
    return _FileContents(tree, nodes, selected, paths)


def _get_group(objects: ObjectTable, address: int) -> Group:
    found = objects.get(address)
    if isinstance(found, InsituError):
        raise found
    if not isinstance(found, Group):
        raise FormatError("the file is damaged: its root object is not a group", offset=address, structure="root group")
    return found


def _find_group(file: FileContext, root: int, parts: list[str], objects: ObjectTable) -> Walk[Group | ExternalTarget]:
    """Read the groups on a path; the last of them, or where the path leaves the file."""
    yield from read_objects(file, [root], objects, indexed=False, deep=False)
    top = _get_group(objects, root)
    names = list(reversed(parts))
    current = top
    hops = 0
    while names:
        name = names.pop()
        link = next((link for link in current.links if link.name == name), None)
        address = None if link is None else link.address
        if link is not None and link.outside is not None:
            return external_target(link.outside, names)
        if link is not None and link.path is not None and hops < 32:
            hops += 1
            names += [part for part in reversed(link.path.split("/")) if part not in ("", ".")]
            current = top if link.path.startswith("/") else current
            continue
        if address is not None:
            yield from read_objects(file, [address], objects, indexed=False, deep=False)
        found = None if address is None else objects.get(address)
        if isinstance(found, InsituError):
            raise found
        if not isinstance(found, Group):
            link_names = ", ".join(link.name for link in current.links[:12]) or "nothing"
            raise GroupError(
                f"there is no group {'/'.join(parts)!r}",
                url=file.url,
                hint=f"The group that should hold {name!r} has: {link_names}",
            )
        current = found
    return current


def _read_descendants(file: FileContext, objects: ObjectTable, groups: list[Group], indexed: bool) -> Walk[None]:
    """Read all that can be reached from some groups and was not read yet."""
    yield from read_objects(
        file, [address for group in groups for address in group.children], objects, indexed=indexed, deep=True
    )


def _assign_tree_dimensions(tree: Branch) -> dict[int, GroupNode]:
    """The variables and dimensions of each group of a tree, by the identity of its branch."""
    nodes = {id(branch): GroupNode(branch.datasets) for branch in tree.walk()}
    for branch in tree.walk():
        node = nodes[id(branch)]
        if branch.failed:
            names = {name for name, _ in branch.failed}
            node.damaged = {
                link.address: link.name for link in branch.group.links if link.name in names and link.address
            }
        for _, child in branch.children:
            inner = nodes[id(child)]
            inner.parent = node
            node.children.append(inner)
    assign_dimensions(nodes[id(tree)])
    return nodes


def _needs_rest(tree: Branch, nodes: dict[int, GroupNode]) -> bool:
    """Whether dimensions or link targets are decided by the rest of the file."""
    return any(branch.dead_links for branch in tree.walk()) or any(
        dimension is None or dimension.address is None
        for node in nodes.values()
        for variable in node.variables
        for dimension in variable.dims
    )


def _find_branch(tree: Branch, parts: list[str]) -> Branch | None:
    """The branch at a path, with paths that begin there."""
    for part in parts:
        tree_below = next((child for name, child in tree.children if name == part), None)
        if tree_below is None:
            return None
        tree = tree_below
    prefix = len(tree.path) + 1
    for branch in tree.walk():
        branch.path = branch.path[prefix:]
    return tree


def _select_variables(
    tree: Branch, nodes: dict[int, GroupNode], names: set[str], parts: list[str]
) -> tuple[set[int], list[Dataset]]:
    """The variables that are asked for by name or path, and the scales of their dimensions."""
    prefix = "/".join(parts)
    inner_names = {name.strip("/").removeprefix(f"{prefix}/") if prefix else name.strip("/") for name in names}
    by_scale: dict[int, NetcdfVariable] = {}
    chosen: dict[int, NetcdfVariable] = {}
    missing = set(inner_names)
    for branch in tree.walk():
        for variable in nodes[id(branch)].variables:
            if variable.scale is not None:
                by_scale[id(variable.scale)] = variable
            path = branch.join(variable.name)
            if path in inner_names:
                chosen[id(variable)] = variable
                missing.discard(path)
        missing -= {branch.join(name) for name, _ in branch.failed}
        missing -= {
            name for name in missing if any(is_at_or_below(name, branch.join(link)) for link, _ in branch.outside)
        }
    if missing:
        available = [branch.join(variable.name) for branch in tree.walk() for variable in nodes[id(branch)].variables]
        raise VariableError(
            f"there is no variable {', '.join(map(repr, sorted(missing)))}", hint=hint_for_names(available, missing)
        )
    for variable in list(chosen.values()):
        for dimension in variable.dims:
            scale = by_scale.get(id(dimension))
            if scale is not None:
                chosen.setdefault(id(scale), scale)
    for branch in tree.walk():
        branch.failed = [item for item in branch.failed if branch.join(item[0]) in inner_names]
        branch.outside = [
            item for item in branch.outside if any(is_at_or_below(name, branch.join(item[0])) for name in inner_names)
        ]
        branch.requested_paths = inner_names
    datasets = {id(variable.dataset): variable.dataset for variable in chosen.values()}
    return set(chosen), list(datasets.values())
