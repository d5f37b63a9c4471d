"""Decoding options, and CF conventions that relate variables (coordinates, bounds, characters).

The decoding of a single variable is in `insitu.cf`. This module looks at all variables of a file
together, as xarray's `decode_cf_variables` does.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from insitu.model import VirtualArray

__all__ = [
    "Decoding",
    "attributes_with_bounds_units",
    "find_character_dims",
    "find_coordinates",
    "needs_values",
    "referenced_variables",
]

RELATING_ATTRIBUTES = (
    "bounds",
    "grid_mapping",
    "climatology",
    "geometry",
    "node_coordinates",
    "node_count",
    "part_node_count",
    "interior_ring",
    "cell_measures",
    "formula_terms",
)
"""Attributes that name other variables."""
NEED_PARSING = ("grid_mapping", "cell_measures", "formula_terms")

OTHER_KEYWORDS = (
    *("active", "active_required", "allow_local", "attrs_file", "cache", "chunks", "combine", "combine_attrs"),
    *("compat", "concat_dim", "coords", "data_vars", "errors", "format", "group", "inline_array", "join"),
    *("parallel", "preprocess", "progress", "storage_options", "variables", "verify"),
)
"""Keywords of opening and combining, suggested for misspelled ones."""

PerVariable = Mapping[str, Any] | Any


@dataclass(frozen=True, slots=True)
class Decoding:
    """What is decoded: xarray's keywords. Those of single variables may be a mapping by name."""

    mask_and_scale: PerVariable = True
    decode_times: PerVariable = True
    decode_timedelta: PerVariable = None
    use_cftime: PerVariable = None
    concat_characters: PerVariable = True
    decode_coords: bool | str = True
    drop_variables: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        decode_cf: bool | None = None,
        drop_variables: str | Iterable[str] | None = None,
        **given: Any,
    ) -> Decoding:
        """Return the options from the keywords of a call; None means the default."""
        known = {*cls.__slots__, "decode_cf", "drop_variables"}
        for name in sorted(set(given) - known):
            near = get_close_matches(name, (*sorted(known), *OTHER_KEYWORDS), 1)
            raise TypeError(f"unexpected keyword argument {name!r}" + (f": did you mean {near[0]!r}?" if near else ""))
        chosen = {name: value for name, value in given.items() if value is not None}
        if decode_cf is False:
            off = ("mask_and_scale", "decode_times", "decode_timedelta", "concat_characters", "decode_coords")
            chosen = {**dict.fromkeys(off, False), **chosen}
        dropped = [drop_variables] if isinstance(drop_variables, str) else drop_variables or []
        return cls(**chosen, drop_variables=frozenset(dropped))

    def of_variable(self, name: str) -> dict[str, Any]:
        """Return the keywords for one variable."""
        return {
            "mask_and_scale": _option_of(self.mask_and_scale, name, True),
            "decode_times": _option_of(self.decode_times, name, True),
            "decode_timedelta": _option_of(self.decode_timedelta, name, None),
            "use_cftime": _option_of(self.use_cftime, name, None),
            "concat_characters": _option_of(self.concat_characters, name, True),
        }


def _option_of(option: PerVariable, name: str, default: Any) -> Any:
    if option is True or option is None:  # of most variables; the test for a mapping is slow
        return option
    return option.get(name, default) if isinstance(option, Mapping) else option


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
        for key in RELATING_ATTRIBUTES:
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
