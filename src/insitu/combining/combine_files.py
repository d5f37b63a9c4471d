"""Combination of scanned files into one member, with files that could not be opened among them.

In a list a failed file is left out: what follows moves up, as if it had never been there. In a grid
of files that would shift an axis, so its cell stays, absent: the other files of its row and column
determine how large it is and what its labels are.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from insitu.combining.combine import combine_by_coords, combine_nested
from insitu.combining.combine_rules import CombineRules
from insitu.combining.equality import is_same_in_all
from insitu.errors import CombineError
from insitu.formats import InsituWarning
from insitu.model import VirtualArray
from insitu.model.gaps import with_dtype
from insitu.scanning.member import ConcatDim, GridPosition, Member, Variable
from insitu.scanning.promotion import type_with_missing
from insitu.scanning.scan_member import Failure

__all__ = ["NoFilesError", "combine_files", "combine_named", "drop_failures"]

MemberOrFailure = Member | Failure


class NoFilesError(CombineError):
    """None of the files could be opened.

    Parameters
    ----------
    message, **place
        See `InsituError`.
    left_out
        Each file, and why it could not be opened.
    """

    def __init__(self, message: str, left_out: Mapping[str, str] | None = None, **place: Any) -> None:
        super().__init__(message, **place)
        self.left_out = dict(left_out or {})


def drop_failures(found: Sequence[MemberOrFailure], errors: str) -> list[Member]:
    """Return the files that could be opened; raise or warn for the others, as `errors` says."""
    bad = [item for item in found if isinstance(item, Failure)]
    if bad and errors == "raise":
        raise bad[0].error
    if errors == "warn":
        for item in bad:
            warnings.warn(f"left out: {item.url}: {item.reason}", InsituWarning, stacklevel=4)
    good = [item for item in found if isinstance(item, Member)]
    if not good:
        left_out = {item.url: item.reason for item in bad}
        raise NoFilesError(
            f"none of the {len(found)} files could be opened", left_out, hint=bad[0].reason if bad else None
        )
    return good


def combine_files(
    found: Sequence[MemberOrFailure],
    places: Sequence[GridPosition] | None,
    dims: Sequence[ConcatDim],
    rules: CombineRules,
    errors: str = "raise",
) -> Member:
    """Return all files combined into one member.

    Parameters
    ----------
    found
        What came of each file.
    places
        The position of each in a grid of files; None: find it by the labels.
    dims
        With positions: along what each level of nesting is combined.
    rules
        How.
    errors
        What happens to a file that could not be opened: `raise`, `warn`, `skip`.
    """
    good = drop_failures(found, errors)
    if places is None:
        return combine_by_coords(good, rules)
    grid = {place: item for place, item in zip(places, found, strict=True) if isinstance(item, Member)}
    missing = [place for place, item in zip(places, found, strict=True) if isinstance(item, Failure)]
    if missing and len(places[0]) == 1:
        dims = [_labels_without(dim, [place[0] for place in missing], len(places)) for dim in dims]
        grid = {(number,): member for number, (_, member) in enumerate(sorted(grid.items(), key=lambda item: item[0]))}
    elif missing:
        grid = {**grid, **{place: _placeholder_member(place, grid, dims, rules) for place in missing}}
        grid = {place: grid[place] for place in places}
    return combine_nested(grid, dims, rules)


def combine_named(
    found: Sequence[MemberOrFailure],
    names: Sequence[tuple[str, Any, list[int]]],
    rules: CombineRules,
    errors: str = "raise",
) -> Member:
    """Combine files whose names give their labels along new dimensions.

    Files with the same labels are combined by coordinates first.
    """
    drop_failures(found, errors)
    names = names[::-1]  # what is joined last comes first
    groups: dict[GridPosition, list[Member]] = {}
    for number, item in enumerate(found):
        if isinstance(item, Member):
            groups.setdefault(tuple(numbers[number] for _, _, numbers in names), []).append(item)
    grid = {
        place: members[0] if len(members) == 1 else combine_by_coords(members, rules)
        for place, members in groups.items()
    }
    dims: list[ConcatDim] = [(name, labels) for name, labels, _ in names]
    wanted = [tuple(place) for place in np.ndindex(*(len(labels) for _, labels, _ in names))]
    missing = [place for place in wanted if place not in grid]
    if missing and len(names) == 1:
        dims = [_labels_without(dims[0], [place[0] for place in missing], len(wanted))]
        grid = {(number,): member for number, (_, member) in enumerate(sorted(grid.items(), key=lambda item: item[0]))}
    elif missing:
        holes = {place: _placeholder_member(place, grid, dims, rules) for place in missing}
        grid = {place: {**grid, **holes}[place] for place in wanted}
    return combine_nested(grid, dims, rules)


def _labels_without(dim: ConcatDim, missing: Sequence[int], count: int) -> ConcatDim:
    """Return the labels of a new dimension without those of the files that are left out."""
    if isinstance(dim, tuple) and len(dim[1]) == count:
        return dim[0], np.delete(np.asarray(dim[1]), list(missing))
    return dim


def _placeholder_member(
    place: GridPosition, grid: Mapping[GridPosition, Member], dims: Sequence[ConcatDim], rules: CombineRules
) -> Member:
    """Return a placeholder for a missing file of a grid.

    It has the labels and sizes of its neighbours, and absent values.
    """
    along: dict[str, Member] = {}
    for axis, dim in enumerate(dims):
        name = dim[0] if isinstance(dim, tuple) else dim
        if name is None:
            raise CombineError(
                f"the file at position {place} of the grid could not be opened, and its variables are unknown",
                hint="Leave this row of files out: where files are merged (concat_dim=None), a missing one "
                "has no substitute",
            )
        neighbour = next((member for other, member in grid.items() if other[axis] == place[axis]), None)
        if neighbour is None:
            raise CombineError(
                f"no file at position {place[axis]} along dimension {name!r} could be opened",
                hint="Leave this position out of the lists of files",
            )
        along[name] = neighbour
    members = list(grid.values())
    template = members[0]
    variables: dict[str, Variable] = {}
    for name, variable in template.variables.items():
        mine = [dim for dim in variable.dims if dim in along]
        others = [dim for dim in along if dim not in mine]
        if name in along:
            variables[name] = along[name].variables[name]
        elif len(mine) > 1 or any(_is_spread_along(name, dim, members, rules) for dim in others):
            sizes = {dim: along[dim].sizes[dim] for dim in mine}
            shape = tuple(sizes.get(dim, length) for dim, length in zip(variable.dims, variable.shape, strict=True))
            variables[name] = variable.with_data(_absent_array(variable, shape))
        else:
            variables[name] = along[mine[0]].variables[name] if mine else variable
    return Member(variables, template.coords, template.attributes, {}, None, template.unindexed)


def _is_spread_along(name: str, dim: str, members: Sequence[Member], rules: CombineRules) -> bool:
    """Return whether a variable without a dimension gets it when files are joined along it.

    Then each file has a value of its own.
    """
    first = members[0]
    if first.index(name) is not None:
        return False
    option = rules.coords if name in first.coords else rules.data_vars
    if option is None:
        option = "minimal" if dim in first.sizes else "all"
    if option == "different":
        variables = [member.variables[name] for member in members if name in member.variables]
        return not is_same_in_all(variables, rules.compat, rules.load)
    return option == "all" if isinstance(option, str) else name in option


def _absent_array(variable: Variable, shape: tuple[int, ...]) -> VirtualArray:
    """Return an array that no file covers."""
    dtype = type_with_missing(variable.dtype)
    none = np.zeros((0, len(shape)), np.int64)
    return with_dtype(VirtualArray(shape, dtype, variable.dims, (), none), dtype)
