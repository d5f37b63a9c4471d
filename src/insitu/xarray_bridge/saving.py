"""How does a dataset become a tree that can be saved?

What is still virtual is saved as references; everything else (labels, what was computed) as its values, inline. The insitu store takes arrays as they are shown,
decoded, with what xarray calls their encoding beside them. kerchunk's formats hold what the files hold: there every variable gets its CF attributes back, and
xarray's own functions encode what has no file.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray
from xarray.conventions import encode_cf_variable, encode_dataset_coordinates

from insitu.codecs.cf import MARKS
from insitu.combining.member import in_memory
from insitu.combining.restoring import details_of, hinted
from insitu.errors import UnsupportedError
from insitu.model import VirtualArray, VirtualGroup
from insitu.xarray_bridge.ordinary import behind, stored_name
from insitu.zarr_metadata.said import said

__all__ = ["decoded_group", "encoded_like", "stored_group"]

USED_UP = (
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "_Unsigned",
    "units",
    "calendar",
    "_Encoding",
    "least_significant_digit",
)
"""Attributes that opening takes away, and that say again how stored values are meant."""


def encoded_like(dataset: xarray.Dataset, like: VirtualGroup) -> xarray.Dataset:
    """The dataset whose times in memory will be counted as those of an archive that holds stored values."""
    changed = dataset.copy()
    for name, variable in changed.variables.items():
        known = like.arrays.get(stored_name(name))
        if (
            known is None
            or behind(variable) is not None
            or "units" not in known.attributes
            or variable.dtype.kind not in "mMO"
        ):
            continue
        told = {key: known.attributes[key] for key in ("units", "calendar") if key in known.attributes}
        variable.encoding = {**told, "dtype": known.dtype}
    return changed


def decoded_group(dataset: xarray.Dataset, like: VirtualGroup | None = None) -> VirtualGroup:
    """The dataset as the insitu store holds it.

    Parameters
    ----------
    dataset
        What to save.
    like
        What it will be appended to: dates of calendars of their own are counted in the same units.
    """
    arrays = {}
    for name, variable in dataset.variables.items():
        lazy = behind(variable)
        if lazy is not None and not lazy.steps:
            array, attributes, details = lazy.array, variable.attrs, details_of(variable.encoding)
        else:
            carried = _carried(variable)
            if carried is not None:
                array, attributes, details = carried, variable.attrs, details_of(variable.encoding)
            else:  # dates, lists: xarray knows how
                known = like.arrays.get(stored_name(name)) if like is not None else None
                array, attributes = _encoded(stored_name(name), variable, known)
                details = {}
        arrays[stored_name(name)] = _described(array, variable, attributes, details)
    indexed = set(map(stored_name, dataset.xindexes))
    coordinates = [stored_name(name) for name in dataset.coords]
    unindexed = [name for name in coordinates if name in map(str, dataset.dims) and name not in indexed]
    details = {"coordinates": coordinates, "unindexed": unindexed, "unlimited": _unlimited(dataset)}
    return VirtualGroup(arrays, attributes=dict(dataset.attrs), details=details)


def stored_group(dataset: xarray.Dataset, inline: int = 0) -> VirtualGroup:
    """The dataset as files hold it: stored values, CF attributes.

    Parameters
    ----------
    dataset
        What to save.
    inline
        Variables of up to so many bytes whose files differ too much to be told by references are read, and kept as values.
    """
    variables, attributes = encode_dataset_coordinates(dataset)
    arrays = {}
    for name, variable in variables.items():
        lazy = behind(variable)
        stored = _undecoded(stored_name(name), lazy.array, variable) if lazy is not None and not lazy.steps else None
        if stored is not None and (variable.nbytes > inline or _can_be_said(stored)):
            arrays[stored_name(name)] = stored
        else:
            array, own = _encoded(stored_name(name), variable)
            arrays[stored_name(name)] = _described(array, variable, own, {})
    return VirtualGroup(arrays, attributes=attributes, details={"unlimited": _unlimited(dataset)})


def _can_be_said(array: VirtualArray) -> bool:
    """Whether Zarr's metadata can say how all of an array's chunks are cut, encoded and packed."""
    try:
        for _ in said(array).blocks():
            pass
    except UnsupportedError:
        return False
    return True


def _unlimited(dataset: xarray.Dataset) -> list[str]:
    return [str(dim) for dim in dataset.encoding.get("unlimited_dims") or () if dim in dataset.dims]


def _described(
    array: VirtualArray, variable: xarray.Variable, attributes: Mapping[Any, Any], details: Mapping[str, Any]
) -> VirtualArray:
    return replace(array, dims=tuple(map(str, variable.dims)), attributes=dict(attributes), details=dict(details))


def _carried(variable: xarray.Variable) -> VirtualArray | None:
    """Values in memory as an array that carries them; None if their type cannot be carried as it is."""
    values = np.asarray(variable.values)
    if values.dtype.kind == "O" and values.size and all(isinstance(text, str) for text in values.reshape(-1)):
        carried = in_memory(values.astype(str))
        return None if carried is None else replace(carried, dtype=np.dtype(object))
    return in_memory(values)


def _encoded(
    name: str, variable: xarray.Variable, like: VirtualArray | None = None
) -> tuple[VirtualArray, dict[str, Any]]:
    """Values in memory as a file would hold them."""
    loaded = xarray.Variable(variable.dims, np.asarray(variable.values), variable.attrs, dict(variable.encoding))
    if like is not None:
        loaded.encoding |= {key: like.attributes[key] for key in ("units", "calendar") if key in like.attributes}
        loaded.encoding["dtype"] = like.dtype
    calendars = _calendars(loaded.values)
    if len(calendars) > 1:
        raise UnsupportedError(
            f"its dates are of several calendars: {', '.join(sorted(calendars))}",
            variable=name,
            hint="Drop the variable, or save the files of each calendar apart",
        )
    _mark_missing_texts(loaded)
    encoded = encode_cf_variable(loaded, name=name)
    values = np.asarray(encoded.values)
    if values.dtype.kind == "O":
        values = values.astype(str)
    carried = in_memory(values)
    if carried is None:
        raise UnsupportedError(
            f"values of {variable.dtype} in memory cannot be kept with references",
            variable=name,
            hint="Drop the variable, or write it to a file of its own",
        )
    digits = {key: variable.encoding[key] for key in USED_UP[-1:] if key in variable.encoding}
    return carried, {**encoded.attrs, **digits}


def _mark_missing_texts(variable: xarray.Variable) -> None:
    """Give texts some of which are missing a `_FillValue` that none of them is: without one xarray would write them as empty."""
    if variable.dtype.kind != "O":
        return
    values = variable.values.reshape(-1).tolist()
    texts = {value for value in values if isinstance(value, str)}
    rest = [value for value in values if not isinstance(value, str)]
    if not texts or not rest or not all(value is None or value != value for value in rest):
        return
    known = [mark for key in MARKS if isinstance(mark := variable.encoding.pop(key, None), str)]
    fill = next((mark for mark in [*known, ""] if mark not in texts), None)
    variable.encoding["_FillValue"] = "_" * (max(map(len, texts)) + 1) if fill is None else fill


def _calendars(values: npt.NDArray[Any]) -> set[str]:
    """The calendars of dates among objects; those of pandas are of the standard one."""
    if values.dtype.kind != "O":
        return set()
    found = {getattr(value, "calendar", None) for value in values.reshape(-1)}
    found |= {"standard" for value in values.reshape(-1) if isinstance(value, datetime.datetime)}
    return {calendar for calendar in found if isinstance(calendar, str)}


def _undecoded(name: str, array: VirtualArray, variable: xarray.Variable) -> VirtualArray:
    """A virtual array as its files hold it; the tiles still say how it was decoded, so that files that differ are noticed."""
    own = dict(variable.attrs)
    own |= {key: variable.encoding[key] for key in USED_UP if key in variable.encoding and key not in own}
    if variable.dtype == bool and array.tiles and array.tiles[0].encodings[0].dtype.kind != "b":
        own["dtype"] = "bool"
    elif variable.dtype.kind == "m":  # without it xarray takes the numbers for numbers
        own["dtype"] = str(variable.dtype)
    own |= hinted(own)
    return _described(array, variable, own, {"stored_attributes": own})
