"""The array that a path of the explorer's API names: a variable, or a formula after `=`."""

from __future__ import annotations

from insitu.errors import ModelError
from insitu.expressions.build_formula import CONSTANTS
from insitu.expressions.parse_formula import names_of, parse_formula
from insitu.model import VirtualArray
from insitu.server.explorer.formula_array import FormulaArray, ShownArray
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.spatial_dimensions import find_coordinate

__all__ = ["find_array"]

MAX_FORMULAS = 100
"""Formulas of one archive that are remembered."""


def find_array(archive: OpenedArchive, path: str) -> ShownArray:
    """Return the variable at a path, or the formula that follows a `=`."""
    if not path.startswith("="):
        return archive.array(path)
    text = path[1:].strip()
    formulas: dict[str, FormulaArray] = archive.memo.setdefault("formulas", {})
    if text not in formulas:
        made = _make_formula_array(archive, text)
        if len(formulas) >= MAX_FORMULAS:
            formulas.clear()
        formulas[text] = made
    return formulas[text]


def _make_formula_array(archive: OpenedArchive, text: str) -> FormulaArray:
    formula = parse_formula(text)
    leaves: dict[str, tuple[str, VirtualArray]] = {}
    for name, at in names_of(formula).items():
        path = _find_path(archive, name, at)
        if path is not None:
            leaves[name] = path, archive.array(path)
    _check_coordinates(archive, leaves)
    groups = [path.rpartition("/")[0] for path, _ in leaves.values()]
    group = max(groups, key=lambda one: len(one.split("/")) if one else 0, default="")
    return FormulaArray(text, formula, leaves, group)


def _find_path(archive: OpenedArchive, name: str, at: int) -> str | None:
    """Return the path of the variable of a name: the whole path, or the last part of it if only one variable has it."""
    group, _, last = name.strip("/").rpartition("/")
    member = archive.members.get(group)
    if member is not None and last in member.variables:
        return name.strip("/")
    found = [f"{path}/{last}" for path, other in archive.members.items() if not group and last in other.variables]
    if len(found) == 1:
        return found[0]
    if not found and name in CONSTANTS:
        return None
    problem = f"several variables are called {name[:100]!r}" if found else f"there is no variable {name[:100]!r}"
    names = found or [one for other in archive.members.values() for one in other.variables]
    shown = ", ".join(f"`{one}`" if found else one for one in names[:12]) or "none"
    raise ModelError(f"{problem} (character {at + 1} of the formula)", hint=f"There are: {shown}")


def _check_coordinates(archive: OpenedArchive, leaves: dict[str, tuple[str, VirtualArray]]) -> None:
    """Raise an error if two variables have different coordinates along a dimension of one name."""
    labelled: dict[str, str | None] = {}
    for path, array in leaves.values():
        for dim, size in zip(array.dims, array.shape, strict=True):
            label = find_coordinate(archive, path.rpartition("/")[0], dim, size)
            if labelled.setdefault(dim, label) != label:
                raise ModelError(
                    f"{dim!r} is labelled by {labelled[dim] or 'nothing'} for one variable of the formula and by "
                    f"{label or 'nothing'} for {path}: only variables on the same coordinates are computed together"
                )
