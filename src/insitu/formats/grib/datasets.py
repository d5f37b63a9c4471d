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
from insitu.formats.grib.variables import SPLIT_BY, FieldTable, GribVariable, make_variable
from insitu.formats.grib.vocabulary import HEADERS

__all__ = ["arrange_datasets", "name_datasets"]

DEFINED = "defined"
"""Not a key of ecCodes: which of the possible dimensions exist."""


def arrange_datasets(table: FieldTable, numbers: list[int]) -> list[list[GribVariable]]:
    """Return the variables of each dataset that some fields make; one list if they are one cube."""
    split = _split(table, numbers, ("paramId",))
    variables = [make_variable(table, part) for some in split for part in _split(table, some, (*SPLIT_BY, DEFINED))]
    if len(variables) == len(split) and _is_one_cube(variables):
        return [variables]
    datasets: list[list[GribVariable]] = []
    # Parameters by number; those without one come last.
    variables.sort(key=lambda variable: (not isinstance(variable.param, int), variable.param))
    for level in sorted({str(variable.keys["typeOfLevel"]) for variable in variables}):
        merged: list[list[GribVariable]] = []
        for variable in variables:
            if str(variable.keys["typeOfLevel"]) == level:
                for dataset in merged:
                    if all(_can_share_dataset(variable, other, squeezed=False) for other in dataset):
                        dataset.append(variable)
                        break
                else:
                    merged.append([variable])
        datasets += merged
    return datasets


def _split(table: FieldTable, numbers: list[int], names: Sequence[str]) -> list[list[int]]:
    """Split fields by the values of keys.

    Each value in the order of its first field, one key after the other.

    Fields of one header share their keys, so that only these are compared.
    """
    shared: dict[int, list[int]] = {}
    descriptions = table.descriptions
    for number in numbers:
        shared.setdefault(id(descriptions[number].keys), []).append(number)
    found = _group_by_keys(table, list(shared.values()), names)
    return [sorted(number for part in some for number in part) if len(some) > 1 else some[0] for some in found]


def _group_by_keys(table: FieldTable, parts: list[list[int]], names: Sequence[str]) -> list[list[list[int]]]:
    """Group lists of fields whose keys agree."""
    if len(parts) == 1 or not names:
        return [parts]
    values: dict[Any, list[list[int]]] = {}
    for part in parts:
        first = part[0]
        value = _undefined_headers(table, first) if names[0] == DEFINED else table.descriptions[first].keys[names[0]]
        values.setdefault(value, []).append(part)
    return [some for together in values.values() for some in _group_by_keys(table, together, names[1:])]


def _undefined_headers(table: FieldTable, number: int) -> tuple[bool, ...]:
    """Return which possible dimensions a field lacks.

    Fields with a member number, say, are kept apart from others.
    """
    return tuple(table.header(number, name) == UNDEFINED for name in HEADERS)


def _is_one_cube(variables: list[GribVariable]) -> bool:
    """Return whether all variables fit into one dataset."""
    for number, variable in enumerate(variables):
        if not all(_can_share_dataset(variable, other, squeezed=True) for other in variables[:number]):
            return False
    return True


def _can_share_dataset(one: GribVariable, other: GribVariable, squeezed: bool) -> bool:
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
        and (squeezed or _has_same_level(one, other))
    )


def _has_same_level(one: GribVariable, other: GribVariable) -> bool:
    return bool(one.keys["typeOfLevel"] == other.keys["typeOfLevel"])


Tells = Callable[[GribVariable], str]


def _range(key: str) -> Tells:
    def tell(variable: GribVariable) -> str:
        found = next((c for c in variable.coordinates.values() if c.key == key), None)
        if found is None:
            return ""
        low, high = np.min(found.values), np.max(found.values)
        return f"{low:g}" if low == high else f"{low:g}-{high:g}"

    return tell


def _key(name: str) -> Tells:
    return lambda variable: str(variable.keys[name])


def _parameter(variable: GribVariable) -> str:
    return "-".join(map(str, variable.keys["parameter"]))


PROBABILITIES = {0: "below", 1: "above", 2: "between", 3: "above", 4: "below"}
"""Of what, by code table 4.9."""


def _distribution(variable: GribVariable) -> str:
    kind = variable.keys["probabilityType"]
    if kind != UNDEFINED:
        return f"probability_{PROBABILITIES.get(kind, kind)}"
    return "percentile" if "percentile" in variable.coordinates else ""


TELLS: tuple[Tells, ...] = (
    _key("stepType"), _range("level"), _distribution, _parameter, _key("dataType"), _key("gridType"),
    _key("numberOfPoints"), _range("step"), _range("number"), _key("centre"),
    _key("subCentre"), _key("edition"),
)  # fmt: skip
"""What distinguishes datasets of one type of level in their names."""


def name_datasets(datasets: list[list[GribVariable]]) -> dict[str, list[GribVariable]]:
    """Return datasets by name."""
    found: dict[str, list[GribVariable]] = {}
    for level in dict.fromkeys(str(dataset[0].keys["typeOfLevel"]) for dataset in datasets):
        at_level = [dataset for dataset in datasets if str(dataset[0].keys["typeOfLevel"]) == level]
        base = "unknown" if level in (UNDEFINED, "unknown") else level
        names = [base] * len(at_level)
        for tell in TELLS:
            if len(set(names)) == len(names):
                break
            longer = [
                f"{name}_{part}" if (part := tell(dataset[0])) else name for name, dataset in zip(names, at_level)
            ]
            if len(set(longer)) > len(set(names)):
                names = longer
        for name, dataset in zip(names, at_level, strict=True):
            free, number = name, 2
            while free in found:
                free, number = f"{name}_{number}", number + 1
            found[free] = dataset
    return found
