"""Find the boxes of variables that labels or positions select."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from insitu.errors import SelectionError, VariableError
from insitu.model.group import hint_for_names
from insitu.scanning.member import Member

__all__ = ["select_boxes"]


def select_boxes(
    members: Mapping[str, Member],
    variables: Sequence[str] | None,
    sel: Mapping[str, Any],
    isel: Mapping[str, Any],
    group: str = "",
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return for each variable the begin and end of what is selected along each of its dimensions.

    Parameters
    ----------
    members
        The groups by path.
    variables
        Paths of variables; None: all that have one of the dimensions, or all if nothing is selected.
    sel, isel
        Labels or positions by dimension, as for `Dataset.sel` and `Dataset.isel`: a range, or one.
    group
        What the paths of the result begin with.

    Raises
    ------
    SelectionError
        If the selection is no range, or no variable has one of the dimensions.
    """
    paths = {
        f"{path}/{name}" if path else name: (path, name)
        for path, member in members.items()
        for name in member.variables
    }
    chosen = list(paths) if variables is None else [name.strip("/") for name in variables]
    for name in chosen:
        if name not in paths:
            raise VariableError(f"no variable {name!r}", hint=hint_for_names(list(paths), [name]))
    begin = f"{group.strip('/')}/" if group.strip("/") else ""
    found, selected = {}, set()
    for name in chosen:
        member = members[paths[name][0]]
        variable = member.variables[paths[name][1]]
        used_dims = {dim for dim in (*sel, *isel) if dim in variable.dims}
        if variables is None and (sel or isel) and not used_dims:
            continue
        selected |= used_dims
        found[begin + name] = tuple(
            _range_along(member, dim, length, sel, isel)
            for dim, length in zip(variable.dims, variable.data.shape, strict=True)
        )
    for dim in (*sel, *isel):
        if dim not in selected:
            raise SelectionError(f"none of the variables {', '.join(chosen[:12])} has the dimension {dim!r}")
    return found


def _range_along(
    member: Member, dim: str, length: int, sel: Mapping[str, Any], isel: Mapping[str, Any]
) -> tuple[int, int]:
    """Return the range of positions that is selected along a dimension."""
    if dim not in sel and dim not in isel:
        return 0, length
    import xarray  # slow to import, and needed here only

    labels = member.index(dim)
    positions = xarray.DataArray(np.arange(length), dims=dim, coords={} if labels is None else {dim: labels})
    try:
        if dim in sel:
            positions = positions.sel({dim: sel[dim]})
        if dim in isel:
            positions = positions.isel({dim: isel[dim]})
    except (KeyError, IndexError, TypeError, ValueError) as problem:
        raise SelectionError(f"cannot select {sel.get(dim, isel.get(dim))} along {dim!r}: {problem}") from None
    places = np.atleast_1d(positions.values)
    if not len(places):
        return 0, 0
    if (np.diff(places) != 1).any():
        raise SelectionError(
            f"the selection along {dim!r} is no range of neighbours in ascending order", hint="Pin one range at a time"
        )
    return int(places[0]), int(places[-1]) + 1
