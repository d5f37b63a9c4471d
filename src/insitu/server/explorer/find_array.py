"""The array that a path of the explorer's API names: a variable, or a formula after `=`."""

from __future__ import annotations

from insitu.expressions.parse_formula import parse_formula
from insitu.scanning.formula_variables import find_formula_variables
from insitu.server.explorer.formula_array import FormulaArray, ShownArray
from insitu.server.explorer.opened_archives import OpenedArchive

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
    paths = find_formula_variables(formula, archive.members)
    leaves = {name: (path, archive.array(path)) for name, path in paths.items()}
    groups = [path.rpartition("/")[0] for path in paths.values()]
    group = max(groups, key=lambda one: len(one.split("/")) if one else 0, default="")
    return FormulaArray(text, formula, leaves, group)
