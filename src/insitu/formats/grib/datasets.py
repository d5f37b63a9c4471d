"""Arrange GRIB variables into datasets, and name these.

All variables make one dataset if they agree in what they share: the file is one cube, as
`cfgrib.open_dataset` shows it. If not, they are arranged as `cfgrib.open_datasets` does: variables
of one type of level that have the same coordinates. A dataset is named after its type of level, and
after what distinguishes it from others of that type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from insitu.formats.grib.header_keys import UNDEFINED
from insitu.formats.grib.variables import SPLIT_BY, Fields, Variable, variable_of
from insitu.formats.grib.vocabulary import HEADERS

__all__ = ["arranged", "named"]

DEFINED = "defined"
"""Not a key of ecCodes: which of the possible dimensions exist."""


def arranged(table: Fields, numbers: list[int]) -> list[list[Variable]]:
    """Return the variables of each dataset that some fields make; one list if they are one cube."""
    split = _split(table, numbers, ("paramId",))
    variables = [variable_of(table, part) for some in split for part in _split(table, some, (*SPLIT_BY, DEFINED))]
    if len(variables) == len(split) and _one(variables):
        return [variables]
    datasets: list[list[Variable]] = []
    # Parameters by number; those without one come last.
    variables.sort(key=lambda variable: (not isinstance(variable.param, int), variable.param))
    for level in sorted({str(variable.keys["typeOfLevel"]) for variable in variables}):
        merged: list[list[Variable]] = []
        for variable in variables:
            if str(variable.keys["typeOfLevel"]) == level:
                for dataset in merged:
                    if all(_agree(variable, other, squeezed=False) for other in dataset):
                        dataset.append(variable)
                        break
                else:
                    merged.append([variable])
        datasets += merged
    return datasets


def _split(table: Fields, numbers: list[int], names: Sequence[str]) -> list[list[int]]:
    """Split fields by the values of keys.

    Each value in the order of its first field, one key after the other.

    Fields of one header share their keys, so that only these are compared.
    """
    shared: dict[int, list[int]] = {}
    told = table.descriptions
    for number in numbers:
        shared.setdefault(id(told[number].keys), []).append(number)
    found = _apart(table, list(shared.values()), names)
    return [sorted(number for part in some for number in part) if len(some) > 1 else some[0] for some in found]


def _apart(table: Fields, parts: list[list[int]], names: Sequence[str]) -> list[list[list[int]]]:
    """Group lists of fields whose keys agree."""
    if len(parts) == 1 or not names:
        return [parts]
    values: dict[Any, list[list[int]]] = {}
    for part in parts:
        first = part[0]
        value = _undefined(table, first) if names[0] == DEFINED else table.descriptions[first].keys[names[0]]
        values.setdefault(value, []).append(part)
    return [some for together in values.values() for some in _apart(table, together, names[1:])]


def _undefined(table: Fields, number: int) -> tuple[bool, ...]:
    """Return which possible dimensions a field lacks.

    Fields with a member number, say, are kept apart from others.
    """
    return tuple(table.header(number, name) == UNDEFINED for name in HEADERS)


def _one(variables: list[Variable]) -> bool:
    """Return whether all variables fit into one dataset."""
    for number, variable in enumerate(variables):
        if not all(_agree(variable, other, squeezed=True) for other in variables[:number]):
            return False
    return True


def _agree(one: Variable, other: Variable, squeezed: bool) -> bool:
    """Return whether two variables fit into one dataset."""
    if one.about_file != other.about_file or one.name == other.name:
        return False
    if not one.geography.same(other.geography):
        return False
    if not all(c.same(other.coordinates[name]) for name, c in one.coordinates.items() if name in other.coordinates):
        return False
    # With a scalar coordinate of its own, a variable of the same name would be taken for it.
    return (
        one.name not in other.coordinates
        and other.name not in one.coordinates
        and (squeezed or _same_level(one, other))
    )


def _same_level(one: Variable, other: Variable) -> bool:
    return bool(one.keys["typeOfLevel"] == other.keys["typeOfLevel"])


Tells = Callable[[Variable], str]


def _range(key: str) -> Tells:
    def tell(variable: Variable) -> str:
        found = next((c for c in variable.coordinates.values() if c.key == key), None)
        if found is None:
            return ""
        low, high = np.min(found.values), np.max(found.values)
        return f"{low:g}" if low == high else f"{low:g}-{high:g}"

    return tell


def _key(name: str) -> Tells:
    return lambda variable: str(variable.keys[name])


def _parameter(variable: Variable) -> str:
    return "-".join(map(str, variable.keys["parameter"]))


TELLS: tuple[Tells, ...] = (
    _key("stepType"), _range("level"), _parameter, _key("dataType"), _key("gridType"), _key("numberOfPoints"), _range("step"), _range("number"), _key("centre"),
    _key("subCentre"), _key("edition"),
)  # fmt: skip
"""What distinguishes datasets of one type of level in their names."""


def named(datasets: list[list[Variable]]) -> dict[str, list[Variable]]:
    """Return datasets by name."""
    found: dict[str, list[Variable]] = {}
    for level in dict.fromkeys(str(dataset[0].keys["typeOfLevel"]) for dataset in datasets):
        some = [dataset for dataset in datasets if str(dataset[0].keys["typeOfLevel"]) == level]
        base = "unknown" if level in (UNDEFINED, "unknown") else level
        names = [base] * len(some)
        for tell in TELLS:
            if len(set(names)) == len(names):
                break
            longer = [f"{name}_{part}" if (part := tell(dataset[0])) else name for name, dataset in zip(names, some)]
            if len(set(longer)) > len(set(names)):
                names = longer
        for name, dataset in zip(names, some, strict=True):
            free, number = name, 2
            while free in found:
                free, number = f"{name}_{number}", number + 1
            found[free] = dataset
    return found
