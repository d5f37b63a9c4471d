"""What is in an HDF5 or netCDF-4 file, and where does every chunk lie?

Superblock, then all objects side by side, then netCDF-4's dimensions; what comes out is a tree of virtual arrays.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from insitu.errors import FormatError, InsituError, VariableError
from insitu.formats.hdf5.arrays import virtual_array
from insitu.formats.hdf5.file import File
from insitu.formats.hdf5.messages import BTREE_K, DRIVER_INFO, SHARED_TABLE
from insitu.formats.hdf5.netcdf4 import Node, Variable, assign_dimensions, shown_attributes
from insitu.formats.hdf5.object_header import read_object_header
from insitu.formats.hdf5.objects import Dataset, Group, Objects, read_index, read_object
from insitu.formats.hdf5.superblock import find_signature, read_superblock
from insitu.formats.hdf5.tree import Branch, build_tree
from insitu.formats.hdf5.walk import Side, Walk, run
from insitu.formats.hdf5.window import Window
from insitu.formats.problems import Problems
from insitu.model import Source, VirtualArray, VirtualGroup

__all__ = ["scan_hdf5"]


def scan_hdf5(
    window: Window,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: str = "raise",
) -> VirtualGroup:
    """Scan an HDF5 or netCDF-4 file.

    Parameters
    ----------
    window
        The file's bytes.
    group
        Scan only this subtree.
    variables
        Scan only these variables, and their dimension scales.
    errors
        "raise" or "warn".
    """
    problems = Problems(errors)
    file = File(window.url, window.size)
    picked = run(_read(file, group or "", None if variables is None else set(variables)), window)
    return _Builder(file, window.source.describe(), problems, picked.wanted).build(picked)


@dataclass(slots=True)
class _Picked:
    """What was read of a file."""

    top: Branch
    """The group that was asked for."""
    nodes: dict[int, Node]
    """Its groups, and those below, with their dimensions; by the identity of the branch."""
    wanted: set[int] | None
    """Identities of the variables that were asked for; None: all."""


def _read(file: File, path: str, names: set[str] | None) -> Walk[_Picked]:
    """Read all of a file, or what is asked for."""
    file.base = yield from find_signature(file.size)
    superblock = yield from read_superblock(file)
    if superblock.extension is not None:
        yield from _read_extension(file, superblock.extension)
    objects: Objects = {}
    indexed = names is None
    parts = [part for part in path.split("/") if part]
    if not parts:
        yield from read_object(file, superblock.root, objects, indexed, _all_children)
        top = root = _group(objects, superblock.root)
    else:
        top = yield from _locate(file, superblock.root, parts, objects)
        yield from _grow(file, objects, [top], indexed)
        root = _group(objects, superblock.root)
    tree = build_tree(root, top, objects)
    nodes = _dimensions(tree)
    if top is not root and _needs_rest(tree, nodes):
        # Names or lengths of dimensions come from outside of the subtree: read the headers of the whole file.
        yield from _grow(file, objects, [g for g in objects.values() if isinstance(g, Group)], False)
        whole = build_tree(root, root, objects)
        nodes = _dimensions(whole)
        tree = _branch_at(whole, parts) or tree
    wanted = None
    if names is not None:
        wanted, datasets = _wanted(tree, nodes, names, parts)
        results = yield Side([read_index(file, dataset) for dataset in datasets], keep=True)
        for dataset, problem in zip(datasets, results, strict=True):
            dataset.problem = dataset.problem or problem
    return _Picked(tree, nodes, wanted)


def _read_extension(file: File, address: int) -> Walk[None]:
    """II.C: constants of the file that did not fit into the superblock."""
    messages = yield from read_object_header(file, address)
    for message in messages:
        body = message.body
        if message.kind == BTREE_K and len(body) >= 7:
            file.chunk_node_k, file.group_node_k, file.group_leaf_k = (
                int.from_bytes(body[at : at + 2], "little") for at in (1, 3, 5)
            )
            if not (file.chunk_node_k and file.group_node_k and file.group_leaf_k):
                file.fail("has B-trees without room for children", address, "superblock extension")
        elif message.kind == SHARED_TABLE and len(body) >= 2 + file.offset_size:
            file.shared_table = int.from_bytes(body[1 : 1 + file.offset_size], "little")
            file.shared_indexes = min(body[1 + file.offset_size], 8)
        elif message.kind == DRIVER_INFO:
            file.unsupported(
                "the file is a member of a set of files (multi, split or family driver)",
                "Repack the set into one file (h5repack, h5repart)",
            )


def _all_children(group: Group) -> list[int]:
    return [link.address for link in group.links if link.address is not None]


def _no_children(group: Group) -> list[int]:
    return []


def _group(objects: Objects, address: int) -> Group:
    found = objects.get(address)
    if isinstance(found, InsituError):
        raise found
    if not isinstance(found, Group):
        raise FormatError("the root object is not a group", offset=address, structure="root group")
    return found


def _locate(file: File, root: int, parts: list[str], objects: Objects) -> Walk[Group]:
    """Read the groups on a path; the last of them."""
    yield from read_object(file, root, objects, False, _no_children)
    top = _group(objects, root)
    names = list(reversed(parts))
    here = top
    hops = 0
    while names:
        name = names.pop()
        link = next((link for link in here.links if link.name == name), None)
        address = None if link is None else link.address
        if link is not None and link.path is not None and hops < 32:
            hops += 1
            names += [part for part in reversed(link.path.split("/")) if part not in ("", ".")]
            here = top if link.path.startswith("/") else here
            continue
        if address is not None and address not in objects:
            yield from read_object(file, address, objects, False, _no_children)
        found = None if address is None else objects.get(address)
        if isinstance(found, InsituError):
            raise found
        if not isinstance(found, Group):
            there = ", ".join(link.name for link in here.links[:12])
            raise VariableError(f"no group {'/'.join(parts)!r}", url=file.url, hint=f"At {name!r} there are: {there}")
        here = found
    return here


def _grow(file: File, objects: Objects, groups: list[Group], indexed: bool) -> Walk[None]:
    """Read all that can be reached from some groups and was not read yet."""
    new = [a for a in dict.fromkeys(a for group in groups for a in _all_children(group)) if a not in objects]
    for address in new:
        objects[address] = None
    yield Side([read_object(file, address, objects, indexed, _all_children) for address in new])


def _dimensions(tree: Branch) -> dict[int, Node]:
    """The variables and dimensions of each group of a tree, by the identity of its branch."""
    nodes = {id(branch): Node(branch.datasets) for branch in tree.walk()}
    for branch in tree.walk():
        node = nodes[id(branch)]
        for _, child in branch.children:
            below = nodes[id(child)]
            below.parent = node
            node.children.append(below)
    assign_dimensions(nodes[id(tree)])
    return nodes


def _needs_rest(tree: Branch, nodes: dict[int, Node]) -> bool:
    """Whether the rest of the file decides on dimensions of a variable, or on where a link leads."""
    return any(branch.loose for branch in tree.walk()) or any(
        dimension is None or dimension.address is None
        for node in nodes.values()
        for variable in node.variables
        for dimension in variable.dims
    )


def _branch_at(tree: Branch, parts: list[str]) -> Branch | None:
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


def _wanted(tree: Branch, nodes: dict[int, Node], names: set[str], parts: list[str]) -> tuple[set[int], list[Dataset]]:
    """The variables that are asked for by name or path, and the scales of their dimensions."""
    prefix = "/".join(parts)
    asked = {name.strip("/").removeprefix(f"{prefix}/") if prefix else name.strip("/") for name in names}
    by_scale: dict[int, Variable] = {}
    chosen: dict[int, Variable] = {}
    missing = set(asked)
    for branch in tree.walk():
        for variable in nodes[id(branch)].variables:
            if variable.scale is not None:
                by_scale[id(variable.scale)] = variable
            path = branch.join(variable.name)
            if path in asked:
                chosen[id(variable)] = variable
                missing.discard(path)
        missing -= {branch.join(name) for name, _ in branch.failed}
    if missing:
        there = [branch.join(variable.name) for branch in tree.walk() for variable in nodes[id(branch)].variables]
        more = f" and {len(there) - 12} more" if len(there) > 12 else ""
        hint = f"There are: {', '.join(there[:12]) or 'none'}{more}"
        raise VariableError(f"no variable {', '.join(map(repr, sorted(missing)))}", hint=hint)
    for variable in list(chosen.values()):
        for dimension in variable.dims:
            scale = by_scale.get(id(dimension))
            if scale is not None:
                chosen.setdefault(id(scale), scale)
    for branch in tree.walk():
        branch.failed = [item for item in branch.failed if branch.join(item[0]) in asked]
    datasets = {id(variable.dataset): variable.dataset for variable in chosen.values()}
    return set(chosen), list(datasets.values())


class _Builder:
    """Makes the virtual groups."""

    def __init__(self, file: File, source: Source, problems: Problems, wanted: set[int] | None) -> None:
        self.file, self.source, self.problems, self.wanted = file, source, problems, wanted

    def build(self, picked: _Picked) -> VirtualGroup:
        """The whole tree; deepest groups first, without recursion."""
        made: dict[int, VirtualGroup] = {}
        branches = list(picked.top.walk())
        arrays = {id(branch): self._arrays(branch, picked.nodes[id(branch)]) for branch in branches}
        for branch in reversed(branches):
            node = picked.nodes[id(branch)]
            details: dict[str, Any] = {"format": "hdf5"}
            if node.dimensions:
                details["dims"] = {d.name: d.length for d in node.dimensions}
                details["unlimited"] = [d.name for d in node.dimensions if d.unlimited]
            if branch.group.problems:
                details["unread_attributes"] = branch.group.problems
            made[id(branch)] = VirtualGroup(
                arrays[id(branch)],
                {name: made[id(child)] for name, child in branch.children},
                shown_attributes(branch.group.attributes),
                details,
                self.problems.found if branch is picked.top else {},
            )
        return made[id(picked.top)]

    def _arrays(self, branch: Branch, node: Node) -> dict[str, VirtualArray]:
        arrays: dict[str, VirtualArray] = {}
        for name, problem in branch.failed:
            problem.located(url=self.file.url)
            self.problems.leave_out(branch.join(name), problem)
        for name, reason in branch.loose:
            self.problems.note(branch.join(name), reason)
        for variable in node.variables:
            if self.wanted is not None and id(variable) not in self.wanted:
                continue
            try:
                if variable.dataset.problem is not None:
                    raise variable.dataset.problem
                arrays[variable.name] = self._array(variable)
            except InsituError as problem:
                problem.located(url=self.file.url, offset=variable.dataset.address + self.file.base)
                self.problems.leave_out(branch.join(variable.name), problem)
        return arrays

    def _array(self, variable: Variable) -> VirtualArray:
        dataset = variable.dataset
        shape = list(dataset.space.shape)
        dims: list[str] = []
        for axis, dimension in enumerate(variable.dims):
            assert dimension is not None
            dims.append(dimension.name)
            if dimension.unlimited and dataset.space.limits[axis] is None:
                shape[axis] = max(shape[axis], dimension.length)
        if dataset.space.null:
            dims = [f"{variable.name}_null"]
        dims += [f"{variable.name}_element_{axis}" for axis in range(len(dataset.datatype.shape))]
        array = virtual_array(
            self.file, self.source, dataset, tuple(shape), tuple(dims), shown_attributes(dataset.attributes)
        )
        return array
