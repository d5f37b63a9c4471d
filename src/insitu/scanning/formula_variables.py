"""Variables that the names of a formula mean, in the groups of an archive, and coordinates that label dimensions."""

from __future__ import annotations

from collections.abc import Mapping

from insitu.errors import ModelError
from insitu.expressions.build_formula import CONSTANTS
from insitu.expressions.parse_formula import Formula, names_of
from insitu.scanning.member import Member

__all__ = ["find_formula_variables", "find_label_path"]


def find_formula_variables(formula: Formula, members: Mapping[str, Member]) -> dict[str, str]:
    """Return the path of the variable that each name of a formula means; numbers that have names are left out.

    A name is a path, or the last part of one if only one variable has it.

    Parameters
    ----------
    formula
        The formula.
    members
        Every group by its path; the root is empty.

    Raises
    ------
    ModelError
        If there is no such variable, there are several, or two variables have different coordinates along a
        dimension of one name.
    """
    named = {name: _find_path(members, name, at) for name, at in names_of(formula).items()}
    found = {name: path for name, path in named.items() if path is not None}
    _check_labels(members, list(found.values()))
    return found


def _find_path(members: Mapping[str, Member], name: str, at: int) -> str | None:
    group, _, last = name.strip("/").rpartition("/")
    member = members.get(group)
    if member is not None and last in member.variables:
        return name.strip("/")
    found = [f"{path}/{last}" for path, other in members.items() if not group and last in other.variables]
    if len(found) == 1:
        return found[0]
    if not found and name in CONSTANTS:
        return None
    if member is not None and last in member.problems and not found:
        raise ModelError(f"{name[:100]!r} cannot be read (character {at + 1} of the formula): {member.problems[last]}")
    problem = f"several variables are called {name[:100]!r}" if found else f"there is no variable {name[:100]!r}"
    names = found or [one for other in members.values() for one in other.variables]
    shown = ", ".join(f"`{one}`" if found else one for one in names[:12]) or "none"
    raise ModelError(f"{problem} (character {at + 1} of the formula)", hint=f"There are: {shown}")


def _check_labels(members: Mapping[str, Member], paths: list[str]) -> None:
    labelled: dict[str, str | None] = {}
    for path in paths:
        group, _, name = path.rpartition("/")
        variable = members[group].variables[name]
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            label = find_label_path(members, group, dim, size)
            if labelled.setdefault(dim, label) != label:
                raise ModelError(
                    f"{dim!r} is labelled by {labelled[dim] or 'nothing'} for one variable of the formula and by "
                    f"{label or 'nothing'} for {path}: only variables on the same coordinates are computed together"
                )


def find_label_path(members: Mapping[str, Member], group: str, dim: str, size: int) -> str | None:
    """Return the path of the coordinate that labels a dimension: of its name, in this group or one above
    it; else the only one-dimensional coordinate along it. None if there is none.
    """
    parts = group.split("/") if group else []
    for depth in range(len(parts), -1, -1):
        path = "/".join(parts[:depth])
        member = members.get(path)
        if member is None:
            continue
        namesake = member.variables.get(dim)
        if namesake is not None and namesake.dims == (dim,) and namesake.shape == (size,):
            return f"{path}/{dim}" if path else dim
        along = [
            name
            for name in member.variables
            if name in member.coords and member.variables[name].dims == (dim,)
            if member.variables[name].shape == (size,)
        ]
        if len(along) == 1:
            return f"{path}/{along[0]}" if path else along[0]
    return None
