"""netCDF-4 conventions: the dimensions of each variable.

netCDF-4 stores dimensions as HDF5 dimension scales and a few hidden attributes. The steps here are
those of the netCDF-C library when it opens a file, so that names, dimensions and lengths equal what
netCDF4 and xarray show:

1. Down the tree: every dimension scale makes a dimension of its group, named like the dataset.
2. Up the tree, children first: a variable has the dimensions that its hidden `_Netcdf4Coordinates`
   numbers, else the scales attached to its axes, else *phony* ones: any dimension of the group of
   that length, or a new `phony_dim_N`.
3. An unlimited dimension is as long as the longest variable along it. Shorter variables have fill
   values behind their end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from insitu.errors import FormatError, InsituError
from insitu.formats.hdf5.datasets.objects import Dataset
from insitu.formats.hdf5.structures.datatype import Datatype
from insitu.formats.hdf5.structures.object_references import ReferenceValue

__all__ = ["GroupNode", "NetcdfDimension", "NetcdfVariable", "assign_dimensions", "variable_name", "visible_attributes"]

HIDDEN_ATTRIBUTES = frozenset(
    {
        "CLASS",
        "DIMENSION_LIST",
        "NAME",
        "REFERENCE_LIST",
        "_Format",
        "_IsNetcdf4",
        "_NCProperties",
        "_Netcdf4Coordinates",
        "_Netcdf4Dimid",
        "_SuperblockVersion",
        "_nc3_strict",
    }
)
WITHOUT_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
NOT_COORDINATE = "_nc4_non_coord_"

_TypeKey = tuple[Any, ...]


@dataclass(slots=True)
class NetcdfDimension:
    """A dimension of a group."""

    name: str
    number: int
    """netCDF's dimension id, unique in the file."""
    length: int
    unlimited: bool
    address: int | None = None
    """Of its scale; None: phony."""


@dataclass(slots=True)
class NetcdfVariable:
    """A dataset under a name."""

    name: str
    dataset: Dataset
    is_known: bool = True
    """Whether netCDF knows its type."""
    scale: NetcdfDimension | None = None
    """The dimension it is the scale of."""
    dims: list[NetcdfDimension | None] = field(default_factory=list)
    problem: InsituError | None = None
    """Why its dimensions cannot be named."""

    @property
    def rank(self) -> int:
        """Number of axes of the dataspace; axes of an array datatype do not count in netCDF."""
        return len(self.dataset.space.shape)


@dataclass(slots=True)
class GroupNode:
    """A group while its dimensions are sorted out."""

    datasets: list[tuple[str, Dataset]]
    children: list[GroupNode] = field(default_factory=list)
    parent: GroupNode | None = None
    dimensions: list[NetcdfDimension] = field(default_factory=list)
    variables: list[NetcdfVariable] = field(default_factory=list)
    damaged: dict[int, str] = field(default_factory=dict)
    """Names of members that cannot be read, by address: a scale among them is named by who refers to it."""


def visible_attributes(attributes: dict[str, Any], named: Callable[[int], str]) -> dict[str, Any]:
    """Return attributes without those that netCDF-4 hides, with paths in place of references.

    Parameters
    ----------
    attributes
        As they are stored.
    named
        The path of the object at an address.
    """
    # Of many small variables this is some of the work of a scan, so it copies at once.
    shown = attributes.copy()
    for name in HIDDEN_ATTRIBUTES.intersection(attributes):
        del shown[name]
    if ReferenceValue in map(type, shown.values()):
        shown |= {name: value.to_attribute(named) for name, value in shown.items() if isinstance(value, ReferenceValue)}
    return shown


def variable_name(name: str) -> str:
    """Return the netCDF name of a dataset.

    A variable that shares its name with a dimension it does not belong to is stored under another
    name.
    """
    return name.removeprefix(NOT_COORDINATE) or name


def assign_dimensions(root: GroupNode) -> None:
    """Find the variables and dimensions of all groups of a file."""
    file = _DimensionTable()
    _declare_dimensions(root, file)
    _declare_damaged_scales(root, file)
    _match_dimensions(root, file)
    for node in _iterate_nodes(root):
        for variable in node.variables:
            for dimension, length in zip(variable.dims, variable.dataset.space.shape, strict=False):
                if dimension is not None and dimension.unlimited:
                    dimension.length = max(dimension.length, length)


def _iterate_nodes(node: GroupNode) -> Iterator[GroupNode]:
    todo = [node]
    while todo:
        current = todo.pop()
        yield current
        todo += current.children


@dataclass(slots=True)
class _DimensionTable:
    next_number: int = 0
    by_number: dict[int, NetcdfDimension] = field(default_factory=dict)
    lost: dict[int, tuple[GroupNode, str]] = field(default_factory=dict)
    """Group and name of scales that cannot be read, by address."""
    has_damage: bool = False
    """Whether a number that no dimension has may be that of a scale that cannot be read."""

    def add(self, node: GroupNode, name: str, length: int, unlimited: bool, number: int | None) -> NetcdfDimension:
        if number is None:
            number = self.next_number
        self.next_number = max(self.next_number, number + 1)
        # In netCDF a length of 0 *is* the mark of an unlimited dimension.
        dimension = NetcdfDimension(name, number, length, unlimited or length == 0)
        node.dimensions.append(dimension)
        self.by_number[number] = dimension  # of several scales with one number, the last
        return dimension


def _is_scale(dataset: Dataset) -> bool:
    name = dataset.attributes.get("CLASS")
    return isinstance(name, str) and name == "DIMENSION_SCALE" and bool(dataset.space.shape)


def _declare_dimensions(root: GroupNode, file: _DimensionTable) -> None:
    """Step 1, in the order in which netCDF-C comes by: a group, then the groups in it."""
    types = _KnownTypes()
    todo = [root]
    while todo:
        node = todo.pop()
        for name, dataset in node.datasets:
            dimension = None
            if _is_scale(dataset):
                space = dataset.space
                number = _as_integer(dataset.attributes.get("_Netcdf4Dimid"))
                dimension = file.add(node, name, space.shape[0], space.limits[0] is None, number)
                dimension.address = dataset.address
                title = dataset.attributes.get("NAME")
                if isinstance(title, str) and title.startswith(WITHOUT_VARIABLE):
                    continue
            known = not dataset.space.null and types.can_use(dataset.datatype, dataset.committed)
            node.variables.append(NetcdfVariable(variable_name(name), dataset, known, dimension))
        todo += reversed(node.children)


def _declare_damaged_scales(root: GroupNode, file: _DimensionTable) -> None:
    """Note what cannot be read, or not whether it is a scale, and is attached to an axis as one."""
    attached = {
        address
        for node in _iterate_nodes(root)
        for variable in node.variables
        for addresses in variable.dataset.scales or ()
        for address in addresses
    }
    for node in _iterate_nodes(root):
        unclear = {v.dataset.address: v.name for v in node.variables if "CLASS" in (v.dataset.problems or ())}
        for address, name in {**unclear, **node.damaged}.items():
            if address in attached:
                file.lost[address] = (node, name)
        file.has_damage |= bool(node.damaged or unclear)


def _as_integer(value: Any) -> int | None:
    if isinstance(value, (int, np.integer)) and 0 <= value < 1 << 31:
        return int(value)
    return None


def _is_numeric(value: Any) -> bool:
    """Whether an attribute is one finite number, or some."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return False
    return value.dtype.kind in "iu" or (value.dtype.kind == "f" and bool(np.isfinite(value).all()))


def _match_dimensions(root: GroupNode, file: _DimensionTable) -> None:
    """Step 2: the groups in a group before itself."""
    order: list[GroupNode] = []
    todo = [root]
    while todo:
        node = todo.pop()
        order.append(node)
        todo += node.children
    # `order` visits a group before its children, and its children last to first: reversed it is
    # netCDF-C's order. Variables of types that netCDF has no name for are unseen by it, so they
    # must not change the numbers: they come last.
    for known in (True, False):
        for node in reversed(order):
            for variable in node.variables:
                if variable.is_known is known:
                    dims = _variable_dimensions(node, variable, file)
                    variable.dims = [d if d is None else file.by_number.get(d.number, d) for d in dims]


def _variable_dimensions(
    node: GroupNode, variable: NetcdfVariable, file: _DimensionTable
) -> list[NetcdfDimension | None]:
    dataset, rank = variable.dataset, variable.rank
    dims: list[NetcdfDimension | None] = [None] * rank
    numbers = dataset.attributes.get("_Netcdf4Coordinates")
    if numbers is not None and _is_numeric(numbers) and numbers.ndim <= 1 and numbers.size == rank:
        dims = [file.by_number.get(int(number)) for number in (numbers.tolist() if numbers.ndim else [numbers])]
        if file.has_damage:  # the numbers of phony dimensions may be those of scales that cannot be read
            dims = [None if dim is None or dim.address is None else dim for dim in dims]
    if variable.scale is not None and rank and (rank == 1 or dims[0] is None):
        dims[0] = variable.scale
    if dataset.scales and variable.scale is None:
        for axis, addresses in enumerate(dataset.scales[:rank]):
            if dims[axis] is None and addresses:
                dims[axis] = _find_by_address(node, addresses) or _find_lost(variable, axis, addresses, file)
    if rank == 1 and dims[0] is None and dataset.address in file.lost:
        dims[0] = _find_lost(variable, 0, [dataset.address], file)
    if None in dims:
        if file.has_damage and (numbers is not None or any(dataset.scales or ())):
            variable.problem = FormatError(
                "the dimensions of this variable cannot be named, because a dimension scale is damaged"
            )
        _add_phony(node, variable, dims, file)
    return dims


def _find_by_address(node: GroupNode, addresses: list[int]) -> NetcdfDimension | None:
    """The dimension of an attached scale; of several, netCDF-C takes the last."""
    ancestor: GroupNode | None = node
    while ancestor is not None:
        for dimension in ancestor.dimensions:
            if dimension.address == addresses[-1]:
                return dimension
        ancestor = ancestor.parent
    return None


def _find_lost(
    variable: NetcdfVariable, axis: int, addresses: list[int], file: _DimensionTable
) -> NetcdfDimension | None:
    """Return the dimension of a scale that cannot be read: its name is that of the scale, its length that
    of the variables along it; None if these disagree.
    """
    if addresses[-1] not in file.lost:
        return None
    node, name = file.lost[addresses[-1]]
    length, unlimited = variable.dataset.space.shape[axis], variable.dataset.space.limits[axis] is None
    found = next((dim for dim in node.dimensions if dim.address == addresses[-1]), None)
    if found is None:
        found = NetcdfDimension(name, -1 - len(node.dimensions), length, unlimited, addresses[-1])
        node.dimensions.append(found)
    return found if found.unlimited == unlimited and (unlimited or found.length == length) else None


def _add_phony(
    node: GroupNode, variable: NetcdfVariable, dims: list[NetcdfDimension | None], file: _DimensionTable
) -> None:
    space = variable.dataset.space
    for axis, (length, limit) in enumerate(zip(space.shape, space.limits, strict=True)):
        if dims[axis] is not None:
            continue
        unlimited = limit is None
        for dimension in node.dimensions:
            if dimension.length == length and dimension.unlimited == unlimited and dimension not in dims[:axis]:
                dims[axis] = dimension
                break
        else:
            dims[axis] = file.add(node, f"phony_dim_{file.next_number}", length, unlimited, None)


class _KnownTypes:
    """The datatypes that netCDF-C knows when it meets a variable, as their list grows.

    netCDF-C always knows numbers and strings. Of other types it keeps a list. A type that is not in
    the list is read and added; it can be used at once if all of its parts are numbers, strings or
    in the list. Otherwise, or if netCDF has no name for its class (arrays, bit fields), the
    variable is dropped, but the type stays in the list, so that the next variable of the same type
    is accepted. Which variables are accepted decides the numbers of dimensions without names, so
    netCDF-C 4.10 is followed here, down to the types that it considers equal: those with equal
    native types.
    """

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: set[_TypeKey] = set()

    def can_use(self, datatype: Datatype, committed: bool) -> bool:
        """Return whether netCDF accepts a variable of a type.

        Parameters
        ----------
        datatype
            Of the variable.
        committed
            Whether the type has a name in the file: then it is in the list already.
        """
        if not datatype.shape:
            if _is_atomic(datatype):
                return True
            if datatype.kind == "reference":
                return False
        key = _native_key(datatype, datatype.shape)
        if committed or key in self._keys:
            self._keys.add(key)
            return True
        self._keys.add(key)
        if datatype.shape or datatype.kind in ("number", "time"):
            return datatype.dtype.kind in "cb" and not datatype.shape
        if datatype.kind == "compound":
            return all(self._is_resolved(member) for _, _, _, member in datatype.parts)
        return datatype.base is None or self._is_resolved(datatype.base)

    def _is_resolved(self, part: Datatype) -> bool:
        """Whether the type of a member, or of the elements of a sequence, is known."""
        return _is_atomic(part) or _native_key(part, ()) in self._keys


def _is_atomic(datatype: Datatype) -> bool:
    """Whether a type, or the type of its elements, is a number or a text.

    The bool of h5py is an enumeration, its complex numbers are compounds.
    """
    if datatype.kind == "number":
        return datatype.dtype.kind not in "bc" and datatype.note != "bits"
    return datatype.kind in ("string", "text")


def _native_key(datatype: Datatype, shape: tuple[int, ...]) -> _TypeKey:
    """What two types have in common whose native forms are equal."""
    kind, dtype = datatype.kind, datatype.dtype
    if shape:
        return ("array", shape, _native_key(datatype, ()))
    if kind == "number" and dtype.kind == "c":
        part = ("number", f"f{dtype.itemsize // 2}", "")
        return ("compound", (("r", (), part), ("i", (), part)))
    if kind == "compound":
        return (kind, tuple((name, dims, _native_key(member, ())) for name, _, dims, member in datatype.parts))
    if kind == "sequence":
        assert datatype.base is not None
        return (kind, _native_key(datatype.base, datatype.base.shape))
    if kind == "string":
        return (kind, datatype.size, datatype.charset, datatype.padding)
    names = None if datatype.names is None else tuple(datatype.names.items())
    return (kind, dtype.newbyteorder("=").str, datatype.note, names)
