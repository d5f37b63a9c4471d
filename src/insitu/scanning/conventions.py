"""CF conventions that relate variables (coordinates, bounds, characters).

The decoding of a single variable is in `insitu.cf`. This module looks at all variables of a file
together, as xarray's `decode_cf_variables` does.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from insitu.model import VirtualArray
from insitu.model.cf_attributes import RELATIONS

__all__ = [
    "attributes_with_bounds_units",
    "find_character_dims",
    "find_coordinates",
    "needs_values",
    "referenced_variables",
]

NEED_PARSING = ("grid_mapping", "cell_measures", "formula_terms")


def attributes_with_bounds_units(arrays: Mapping[str, VirtualArray]) -> dict[str, Mapping[str, Any]]:
    """Return the attributes of all variables, with the units of a time given to its bounds."""
    attributes: dict[str, Mapping[str, Any]] = {name: array.attributes for name, array in arrays.items()}
    for array in arrays.values():
        own = array.attributes
        units, bounds = own.get("units"), own.get("bounds")
        if isinstance(units, str) and "since" in units and isinstance(bounds, str) and bounds in attributes:
            extra = {"units": units}
            if "calendar" in own:
                extra["calendar"] = own["calendar"]
            attributes[bounds] = {**extra, **attributes[bounds]}
    return attributes


def needs_values(name: str, array: VirtualArray, attributes: Mapping[str, Any]) -> bool:
    """Return whether opening needs the values of a variable.

    That is so for labels of a dimension, single values, and times.
    """
    if array.dims in ((name,), ()):
        return True
    units = attributes.get("units")
    return isinstance(units, str) and ("since" in units or "dtype" in attributes)


def find_character_dims(arrays: Mapping[str, VirtualArray], texts: bool = False) -> set[str]:
    """Return the dimensions that hold the characters of texts and nothing else.

    Parameters
    ----------
    arrays
        All variables of a group.
    texts
        Whether bytes of a fixed length above 1 are whole texts, as netCDF-4 has it, and no
        characters.
    """
    good: dict[str, bool] = {}
    if not any(array.dtype.kind == "S" for array in arrays.values()):
        return set()
    for array in arrays.values():
        for dim in array.dims:
            characters = array.dtype.kind == "S" and not (texts and array.dtype.itemsize > 1)
            fits = characters and dim == array.dims[-1] and dim not in arrays
            good[dim] = good.get(dim, True) and fits
    return {dim for dim, fits in good.items() if fits}


def find_coordinates(
    own: dict[str, Any], encoding: dict[str, Any], variables: Collection[str], how: bool | str
) -> frozenset[str]:
    """Return which variables one variable names as coordinates.

    Parameters
    ----------
    own, encoding
        Its attributes and encoding; what names coordinates moves from the one to the other.
    variables
        The names of all variables of the file.
    how
        xarray's `decode_coords`.
    """
    found: set[str] = set()
    if not how:
        return frozenset()
    if isinstance(own.get("coordinates"), str):
        text = own.pop("coordinates")
        encoding["coordinates"] = text
        found.update(name for name in text.split() if name in variables)
    if how == "all":
        for key in RELATIONS:
            if isinstance(own.get(key), str):
                found |= _find_related(key, own, encoding, variables)
    return frozenset(found)


def _find_related(key: str, own: dict[str, Any], encoding: dict[str, Any], variables: Collection[str]) -> set[str]:
    """Return the variables that one attribute names."""
    text = own.pop(key).replace(" :", ":")
    names = text.split()
    if key in NEED_PARSING and len(names) > 1:
        roles: dict[str, list[str]] = defaultdict(list)
        role = None
        for name in names:
            if ":" in name:
                role = name.strip(":")
                roles[role] = roles[role]
            elif role is None:
                raise ValueError(f"First element {name!r} of [{text!r}] misses ':', cannot decode {key!r}.")
            else:
                roles[role].append(name)
        names = list(roles) if key == "grid_mapping" else list(itertools.chain(*roles.values()))
    if all(name in variables for name in names):
        encoding[key] = text
        return set(names)
    warnings.warn(
        f"Variable(s) referenced in {key} not in variables: {[n for n in names if n not in variables]}", stacklevel=2
    )
    return set()


def referenced_variables(attributes: Mapping[str, Any]) -> set[str]:
    """Return the variables that a variable's attributes name as its coordinates or bounds."""
    texts = [attributes.get(key) for key in ("coordinates", "bounds", "climatology")]
    return {name for text in texts if isinstance(text, str) for name in text.split()}
