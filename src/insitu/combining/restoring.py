"""How is a variable kept that was decoded, and how does it come back?

A saved dataset holds its arrays as they were shown: packings in their tiles, files that differ side by side. Beside each array lies what xarray calls its
encoding, so that nothing is decoded twice and writing it later gives the like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.conventions import Decoding
from insitu.combining.member import Variable
from insitu.errors import UnsupportedError
from insitu.model import VirtualArray

__all__ = ["details_of", "hinted", "is_decoded", "restored", "typed"]

DECODED = "decoded"
ENCODING = "encoding"
TYPES = "_insitu_types"
"""An attribute in kerchunk's formats: of which type the numbers were that JSON has one type for, and that decide the type of what is decoded."""


def details_of(encoding: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept beside a decoded array."""
    kept = {str(key): value for key, value in encoding.items() if _keepable(value)}
    kept.pop("source", None)
    return {DECODED: True, ENCODING: kept}


def _keepable(value: Any) -> bool:
    """Whether a value can be written as text and come back: filters and coders of other libraries cannot."""
    if isinstance(value, (tuple, list)):
        return all(_keepable(part) for part in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _keepable(part) for key, part in value.items())
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic, np.dtype))


def is_decoded(array: VirtualArray) -> bool:
    """Whether an array was decoded before it was saved."""
    return bool(array.details.get(DECODED))


def restored(name: str, array: VirtualArray, how: Decoding, values: npt.NDArray[Any] | None) -> Variable:
    """The variable that was saved.

    Parameters
    ----------
    name
        Its name, for messages.
    array
        As saved.
    how
        What shall be decoded: only what was then.
    values
        What labels a dimension, and single values.
    """
    if not all(tile.packings.identity for tile in array.tiles) and how.of_variable(name) != Decoding().of_variable(
        name
    ):
        raise UnsupportedError(
            "the store holds decoded values; it cannot be asked for others",
            variable=name,
            hint="Open the files themselves, or save what insitu.scan gives, which is not decoded",
        )
    data = replace(array, attributes={}, details={})
    labels = array.dims in ((name,), ()) and values is not None
    return Variable(array.dims, values if labels else data, array.attributes, array.details.get(ENCODING, {}))  # type: ignore[arg-type]


def hinted(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """An attribute that says the types of others, where the plain numbers would be taken for another type."""
    types = {}
    for key in ("scale_factor", "add_offset"):
        value = attributes.get(key)
        if isinstance(value, (np.generic, np.ndarray)) and value.dtype not in (np.dtype("f8"), np.dtype("i8")):
            types[key] = value.dtype.str
    return {TYPES: types} if types else {}


def typed(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Attributes with numbers of the types that they had."""
    types = attributes.get(TYPES)
    if not isinstance(types, Mapping):
        return attributes
    given = {key: value for key, value in attributes.items() if key != TYPES}
    for key, dtype in types.items():
        if key in given:
            given[key] = np.asarray(given[key], np.dtype(dtype))[()]
    return given
