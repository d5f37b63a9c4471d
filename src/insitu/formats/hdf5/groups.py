"""Builder of virtual groups from the parsed objects of an HDF5 file.

Runs once the dimensions of all variables are known. The target of a link to another file is scanned
there and inserted.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import NamedTuple

from insitu.errors import FormatError, InsituError
from insitu.formats.hdf5.conventions.netcdf4 import GroupNode, NetcdfVariable, variable_name, visible_attributes
from insitu.formats.hdf5.datasets.object_at_path import ExternalTarget, open_object
from insitu.formats.hdf5.datasets.object_tree import Branch
from insitu.formats.hdf5.datasets.objects import Dataset
from insitu.formats.hdf5.datasets.virtual_dataset import dataset_array
from insitu.formats.hdf5.structures.datatype import Datatype, parse_datatype
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.message_cache import parse_once
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.sibling_files import SiblingFiles
from insitu.formats.unreadable import InsituWarning, Problems
from insitu.model import GroupDetails, VirtualArray, VirtualGroup

__all__ = ["GroupBuilder", "ScanTarget", "is_at_or_below"]

GRAFTS_LIMIT = 10_000


class ScanTarget(NamedTuple):
    """A part of a file that is to be scanned."""

    window: ReadCache
    group: str
    names: set[str] | None
    """Of variables; None: all."""


GroupChain = tuple[tuple[str, int], ...]
"""Files and addresses of groups."""
ScanFunction = Callable[[ScanTarget, Problems, GroupChain], VirtualGroup]


class GroupBuilder:
    """Makes the virtual groups."""

    def __init__(
        self,
        siblings: SiblingFiles,
        window: ReadCache,
        file: FileContext,
        problems: Problems,
        selected: set[int] | None,
        named: Callable[[int], str],
    ) -> None:
        self.siblings, self.window, self.file = siblings, window, file
        self.problems, self.selected, self.named = problems, selected, named

    def build(self, top: Branch, nodes: dict[int, GroupNode], chain: GroupChain, scan: ScanFunction) -> VirtualGroup:
        """Return the virtual group of the whole tree.

        Deepest groups come first, without recursion, except into other files.

        Parameters
        ----------
        top
            What was read of the file.
        nodes
            The dimensions of its groups, by the identity of the branch.
        chain
            The groups that links of other files came from, this one included.
        scan
            Scans another file that a link leads to.
        """
        built: dict[int, VirtualGroup] = {}
        branches = list(top.walk())
        arrays = {id(branch): self._arrays(branch, nodes[id(branch)]) for branch in branches}
        for branch in reversed(branches):
            node = nodes[id(branch)]
            groups = {name: built[id(child)] for name, child in branch.children}
            for name, place in branch.outside:
                self._graft(branch, name, place, arrays[id(branch)], groups, chain, scan)
            if branch.group.problems:
                self.problems.leave_out_attributes(branch.path, branch.group.problems)
            details = GroupDetails(
                "hdf5",
                dims={d.name: d.length for d in node.dimensions},
                unread_attributes=dict(branch.group.problems or {}),
            )
            built[id(branch)] = VirtualGroup(
                arrays[id(branch)],
                groups,
                visible_attributes(branch.group.attributes, self.named),
                details,
                self.problems.found if branch is top else {},
                unlimited=tuple(d.name for d in node.dimensions if d.unlimited),
            )
        return built[id(top)]

    def _arrays(self, branch: Branch, node: GroupNode) -> dict[str, VirtualArray]:
        arrays: dict[str, VirtualArray] = {}
        for name, problem in branch.failed:
            problem.with_context(url=self.file.url, offset=branch.group.address + self.file.base)
            self.problems.leave_out(branch.join(name), problem)
        for name, reason in branch.dead_links:
            self.problems.note(branch.join(name), reason)
        for variable in node.variables:
            if self.selected is not None and id(variable) not in self.selected:
                continue
            try:
                if (wrong := variable.dataset.problem or variable.problem) is not None:
                    raise wrong
                arrays[variable.name] = self._array(variable)
                if variable.dataset.problems:
                    self.problems.leave_out_attributes(branch.join(variable.name), variable.dataset.problems)
            except InsituError as problem:
                problem.with_context(
                    url=self.file.url, offset=variable.dataset.address + self.file.base, structure="dataset"
                )
                self.problems.leave_out(branch.join(variable.name), problem)
        return arrays

    def _array(self, variable: NetcdfVariable) -> VirtualArray:
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
        attributes = visible_attributes(dataset.attributes, self.named)
        array = dataset_array(self.siblings, self.window, self.file, dataset, tuple(shape), tuple(dims), attributes)
        if array.details.enumeration is not None and (name := self._type_name(dataset.datatype)) is not None:
            array = dataclasses.replace(array, details=dataclasses.replace(array.details, enumeration_name=name))
        return array if dataset.space.null else self._fit_to_dimensions(array, variable)

    def _type_name(self, datatype: Datatype) -> str | None:
        """Return the name of the committed datatype that equals that of a dataset, if there is
        one.
        """
        for address, body in self.file.named_types.items():
            named = parse_once(parse_datatype, body)
            if (named.kind, named.dtype, named.names) == (datatype.kind, datatype.dtype, datatype.names):
                path = self.named(address)
                return path.rpartition("/")[2] if path.startswith("/") else None
        return None

    def _fit_to_dimensions(self, array: VirtualArray, variable: NetcdfVariable) -> VirtualArray:
        """Return the array in the lengths of its dimensions.

        A scale may be attached to a dataset of another length.
        Missing elements have the fill value of the dataset, as in h5netcdf. Surplus elements are
        cut off, as in netCDF-C.
        """
        lengths = [dimension.length for dimension in variable.dims if dimension is not None]
        shape = (*lengths, *array.shape[len(lengths) :])
        if shape == array.shape:
            return array
        cut = [name for name, have, want in zip(array.dims, array.shape, shape, strict=True) if have > want]
        if cut:
            warnings.warn(
                f"the dataset {variable.name!r} is longer than its dimension {', '.join(cut)}: "
                f"its shape is {array.shape}, not {shape}. "
                f"Elements behind the end of the dimension are not shown [in {self.file.url}]",
                InsituWarning,
                stacklevel=2,
            )
            array = array[tuple(slice(0, min(have, want)) for have, want in zip(array.shape, shape, strict=True))]
        return dataclasses.replace(array, shape=shape)

    def _graft(
        self,
        branch: Branch,
        name: str,
        place: ExternalTarget,
        arrays: dict[str, VirtualArray],
        groups: dict[str, VirtualGroup],
        chain: GroupChain,
        scan: ScanFunction,
    ) -> None:
        """Put what a link to another file leads to into a group."""
        path = branch.join(name)
        try:
            external = self.siblings.open_sibling(self.window, place.file)
            found = None if external is None else open_object(self.siblings, external, place.path)
            if found is None:
                self.problems.note(path, f"the target of the link does not exist ({place.file}:{place.path})")
                return
            opened, target, inner = found
            # A dot is the group itself, as in the paths of files.
            inner = "/".join(part for part in inner.split("/") if part not in ("", "."))
            if (opened.window.url, target.address) in chain:
                self.problems.note(path, f"the link leads back to a parent group ({place.file}:{place.path})")
                return
            self._count_graft(opened.window.url)
            names = (
                None
                if branch.requested_paths is None
                else {n[len(path) + 1 :] for n in branch.requested_paths if is_at_or_below(n, path)}
            )
            problems = Problems(self.problems.errors)
            if isinstance(target, Dataset):
                folder, _, leaf = inner.rpartition("/")
                group = scan(ScanTarget(opened.window, folder, {leaf}), problems, chain)
                if variable_name(leaf) in group.arrays:
                    arrays[name] = _with_distinct_dims(group.arrays[variable_name(leaf)], name, arrays)
            else:
                group = scan(ScanTarget(opened.window, inner, None if names == {""} else names), problems, chain)
                groups[name] = group
            for inner_path, reason in problems.found.items():
                self.problems.note(path if isinstance(target, Dataset) else f"{path}/{inner_path}", reason)
        except InsituError as problem:
            self.problems.leave_out(path, problem)

    def _count_graft(self, url: str) -> None:
        memory = self.siblings.memory
        memory["grafts"] = memory.get("grafts", 0) + 1
        if memory["grafts"] > GRAFTS_LIMIT:
            raise FormatError(
                f"the files have more than {GRAFTS_LIMIT} links to each other", url=url, structure="external link"
            )


def is_at_or_below(path: str, link: str) -> bool:
    """Whether a path is that of a link, or leads through it."""
    return path == link or path.startswith(f"{link}/")


def _with_distinct_dims(array: VirtualArray, name: str, arrays: dict[str, VirtualArray]) -> VirtualArray:
    """Return an array of another file with dimensions that cannot be confused with local ones."""
    lengths = {dim: length for other in arrays.values() for dim, length in zip(other.dims, other.shape, strict=True)}
    dims = tuple(
        f"{name}_{dim}" if lengths.get(dim, length) != length else dim
        for dim, length in zip(array.dims, array.shape, strict=True)
    )
    return dataclasses.replace(array, dims=dims)
