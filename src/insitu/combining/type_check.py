"""Check of types and calendars while files are scanned, not after the last one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.arrange import mixed_dates_error
from insitu.combining.equality import has_equal_values
from insitu.combining.files_table import FileKind, FilesTable
from insitu.errors import CombineError
from insitu.scanning.promotion import shared_type

__all__ = ["TypeCheck"]


@dataclass(slots=True)
class _Group:
    """Files that are joined with each other."""

    first_labels: dict[str, npt.NDArray[Any]]
    """Dimension: the labels of the first file."""
    types: dict[str, dict[np.dtype[Any], None]] = field(default_factory=dict)
    """Variable: its types, in order."""
    dates: dict[str, type] = field(default_factory=dict)
    """Dimension: the type of its labels, if they are dates."""


class TypeCheck:
    """Types of the variables of the files so far.

    Parameters
    ----------
    dim
        The dimension that files follow each other along; None: those whose labels differ, in files
        of the same data variables.
    """

    def __init__(self, dim: str | None) -> None:
        self.dim = dim
        self._groups: dict[Hashable, _Group] = {}

    def add(self, files: FilesTable) -> None:
        """Raise `CombineError` if values of these files cannot be joined with those before."""
        for kind_number, kind in enumerate(files.kinds):
            numbers = np.flatnonzero(files.kind == kind_number).tolist()
            key = None if self.dim is not None else tuple(sorted(kind.data_names()))
            group = self._groups.get(key)
            if group is None:
                index = {dim: files.index(numbers[0], dim) for dim in files.labels}
                group = _Group({dim: labels for dim, labels in index.items() if labels is not None})
                self._groups[key] = group
            self._check_types(group, kind, files, numbers[0])
            if self.dim is None:
                for name, variable in kind.named:
                    if variable.dtype.kind in "OM" and variable.dims == (name,):
                        # Dates of any calendar are objects, so each file is looked at.
                        for number in numbers if variable.dtype.kind == "O" else numbers[:1]:
                            self._check_dates(name, group, files, number)

    def _check_types(self, group: _Group, kind: FileKind, files: FilesTable, number: int) -> None:
        for name, variable in kind.named:
            known = group.types.setdefault(name, {})
            dtype = variable.dtype
            if dtype in known:
                continue
            if known and any(self._is_joined_along(dim, group, files, number) for dim in variable.dims):
                self._check_new_type(name, dtype, known, files.urls[number])
            known[dtype] = None

    def _is_joined_along(self, dim: str, group: _Group, files: FilesTable, number: int) -> bool:
        """Return whether this file and the first one follow each other along a dimension."""
        if self.dim is not None:
            return dim == self.dim
        one, other = group.first_labels.get(dim), files.index(number, dim)
        return one is not None and other is not None and one is not other and not has_equal_values(one, other)

    def _check_new_type(self, name: str, dtype: np.dtype[Any], known: Iterable[np.dtype[Any]], url: str) -> None:
        try:
            shared_type([*known, dtype])
        except CombineError as refused:
            raise refused.with_context(variable=name, url=url) from refused.__cause__

    def _check_dates(self, dim: str, group: _Group, files: FilesTable, number: int) -> None:
        labels = files.index(number, dim)
        if labels is None or not len(labels) or not (labels.dtype.kind == "M" or hasattr(labels[0], "calendar")):
            return
        kind = group.dates.setdefault(dim, type(labels[0]))
        if kind is not type(labels[0]):
            raise mixed_dates_error(dim, {kind, type(labels[0])}).with_context(url=files.urls[number])
