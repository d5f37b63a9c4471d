"""Check of types and calendars while files are scanned, not after the last one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from insitu.combining.equality import has_equal_values
from insitu.combining.file_order import mixed_dates_error
from insitu.errors import CombineError
from insitu.scanning.member import Member
from insitu.scanning.promotion import shared_type

__all__ = ["TypeCheck"]


@dataclass(slots=True)
class _Group:
    """Files that are joined with each other."""

    first: Member
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

    def add(self, member: Member) -> None:
        """Raise `CombineError` if values of this file cannot be joined with those before."""
        key = None if self.dim is not None else tuple(sorted(member.data_names()))
        group = self._groups.setdefault(key, _Group(member))
        for name, variable in member.variables.items():
            known = group.types.setdefault(name, {})
            dtype = variable.dtype
            if dtype not in known:
                if known and any(self._is_joined_along(dim, group, member) for dim in variable.dims):
                    self._check_new_type(name, dtype, known, member)
                known[dtype] = None
            if dtype.kind in "OM" and self.dim is None and variable.dims == (name,):
                self._check_dates(name, group, member)

    def _is_joined_along(self, dim: str, group: _Group, member: Member) -> bool:
        """Return whether this file and the first one follow each other along a dimension."""
        if self.dim is not None:
            return dim == self.dim
        one, other = group.first.index(dim), member.index(dim)
        return one is not None and other is not None and one is not other and not has_equal_values(one, other)

    def _check_new_type(self, name: str, dtype: np.dtype[Any], known: Iterable[np.dtype[Any]], member: Member) -> None:
        try:
            shared_type([*known, dtype])
        except CombineError as refused:
            raise refused.with_context(variable=name, url=member.source) from refused.__cause__

    def _check_dates(self, dim: str, group: _Group, member: Member) -> None:
        labels = member.index(dim)
        if labels is None or not len(labels) or not (labels.dtype.kind == "M" or hasattr(labels[0], "calendar")):
            return
        kind = group.dates.setdefault(dim, type(labels[0]))
        if kind is not type(labels[0]):
            raise mixed_dates_error(dim, {kind, type(labels[0])}).with_context(url=member.source)
