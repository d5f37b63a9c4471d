"""`Member`: the variables of one file, or of several files combined.

A member is a dataset before xarray: variables with dimensions, some of them coordinates. It is
light (no xarray object for each of ten thousand files), and combining is a function from members to
a member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import GroupDetails, VirtualArray, VirtualGroup

__all__ = ["ConcatDim", "GridPosition", "Load", "Member", "Variable", "in_memory"]

Load = Callable[[list[VirtualArray]], list[npt.NDArray[Any]]]
"""Reads the values of arrays, all at once."""

GridPosition = tuple[int, ...]
"""Where a file stands in a grid of files: one number for each level of nesting."""

ConcatDim = str | tuple[str, npt.NDArray[Any]] | None
"""A dimension, a new one with its labels, or None: merge along this level of nesting."""


@dataclass(slots=True)
class Variable:
    """A variable: where its values are, or the values themselves."""

    dims: tuple[str, ...]
    data: VirtualArray | npt.NDArray[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    encoding: Mapping[str, Any] = field(default_factory=dict)
    known: npt.NDArray[Any] | None = None
    """The values of a virtual array, if they had to be read to find out their type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self.data.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.data.dtype

    @property
    def sizes(self) -> dict[str, int]:
        """Dimension: elements along it."""
        return dict(zip(self.dims, self.data.shape, strict=True))

    def virtual(self) -> VirtualArray | None:
        """Return the data as a virtual array.

        None if they are objects in memory, which cannot be one.
        """
        if isinstance(self.data, VirtualArray):
            return self.data
        return in_memory(self.data)

    def values(self, load: Load) -> npt.NDArray[Any]:
        """Return the values; read only once."""
        if isinstance(self.data, VirtualArray):
            (self.data,) = load([self.data])
        return self.data

    def with_data(self, data: VirtualArray | npt.NDArray[Any], dims: tuple[str, ...] | None = None) -> Variable:
        """Return the same with other values."""
        return replace(self, data=data, dims=self.dims if dims is None else dims, known=None)


@dataclass(slots=True)
class Member:
    """One file's contribution, or several combined."""

    variables: dict[str, Variable]
    coords: frozenset[str]
    """Which variables are coordinates."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    encoding: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None
    """The file, for messages; None if several."""
    unindexed: frozenset[str] = frozenset()
    """Coordinates of their own dimension that have no index (a preprocess may drop one)."""
    groups: tuple[str, ...] = ()
    """Of a group without variables: the paths of the groups below it that have some."""
    order: tuple[str, ...] = ()
    """The dimensions in the order of the dataset that a preprocess gave: xarray keeps it where
    variables are transposed.
    """
    details: GroupDetails = field(default_factory=GroupDetails)
    """What the format knows of the group beside attributes."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Variables that were left out: why; of a tree also groups."""
    sources: tuple[str, ...] = ()
    """The files, if several that are alike were scanned as one."""
    labels: Mapping[str, Any] = field(default_factory=dict)
    """New dimensions: the label that the file gives: see `file_labels`."""
    below: Mapping[str, Member] = field(default_factory=dict)
    """Of the root of a tree: all groups below it by path, parents first."""

    @classmethod
    def of_group(
        cls,
        group: VirtualGroup,
        variables: dict[str, Variable],
        named: Iterable[str],
        attributes: Mapping[str, Any],
        url: str | None,
    ) -> Member:
        """Return the member that the variables of a group make: those `named` are coordinates, and the
        labels of dimensions.
        """
        dims = {dim for variable in variables.values() for dim in variable.dims}
        encoding: dict[str, Any] = {} if url is None else {"source": url}
        if group.unlimited:
            encoding["unlimited_dims"] = set(group.unlimited)
        groups = () if group.arrays else tuple(path for path, node in group.walk() if node.arrays)
        facts = (frozenset(group.unindexed), groups, (), group.details, group.problems)
        return cls(variables, frozenset(dims.union(named) & variables.keys()), attributes, encoding, url, *facts)

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each dimension, in xarray's order.

        Dimensions of data variables come first, then those of coordinates.

        The order decides along which dimension `combine_by_coords` joins first, so which one comes
        first in a variable that lacks both.
        """
        sizes: dict[str, int] = {}
        coords = [variable for name, variable in self.variables.items() if name in self.coords]
        for variable in (*(self.variables[name] for name in self.data_names()), *coords):
            for dim, length in zip(variable.dims, variable.data.shape, strict=True):
                sizes.setdefault(dim, length)
        return sizes

    def walk(self) -> Iterator[tuple[str, Member]]:
        """Yield every group of a tree with its path, parents first: this one is `""`."""
        yield "", self
        yield from self.below.items()

    def data_names(self) -> list[str]:
        """Return the variables that are not coordinates."""
        return [name for name in self.variables if name not in self.coords]

    def index(self, dim: str) -> npt.NDArray[Any] | None:
        """Return the values that label a dimension, if it has labels."""
        variable = self.variables.get(dim)
        if variable is None or variable.dims != (dim,) or dim in self.unindexed or dim not in self.coords:
            return None
        assert isinstance(variable.data, np.ndarray)
        return variable.data

    def with_variables(self, variables: dict[str, Variable], coords: Iterable[str] | None = None) -> Member:
        """Return the member with other variables."""
        return replace(self, variables=variables, coords=self.coords if coords is None else frozenset(coords))


def in_memory(values: npt.NDArray[Any]) -> VirtualArray | None:
    """Return values as a virtual array that carries them inline.

    None for objects and types without size.
    """
    return VirtualArray.from_values(values) if values.dtype.itemsize and not values.dtype.hasobject else None
