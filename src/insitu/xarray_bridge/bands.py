"""Bands of images by name: as labels of the dimension `band`, or as a variable each.

An image has its bands along a dimension whose labels count from 1, as rioxarray shows them; their descriptions and
units are lists in its attributes. Nothing is read to name or to split them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray

from insitu.errors import SelectionError

__all__ = ["name_bands", "split_bands"]

BAND = "band"
DESCRIPTIONS = "long_name"
OF_VARIABLE = ("grid_mapping", "coordinates", "standard_name", DESCRIPTIONS, "units")
"""Attributes that each band keeps; the others say something of the whole image."""


def name_bands(dataset: xarray.Dataset) -> xarray.Dataset:
    """Return a dataset whose bands are labelled by their descriptions: see `ds.insitu.name_bands`."""
    names = _find_images(dataset)
    count = dataset.sizes[BAND]
    given = dataset.variables[names[0]].attrs.get(DESCRIPTIONS)
    descriptions = [given] * count if isinstance(given, str) else given  # one text: the same for all
    if not isinstance(descriptions, (list, tuple, np.ndarray)) or len(descriptions) != count or not any(descriptions):
        raise SelectionError(
            f"the bands of {names[0]!r} have no descriptions",
            hint=f'Name them: ds.assign_coords({BAND}=["red", …])',
        )
    labels = [str(text) if text else f"{BAND}_{number}" for number, text in enumerate(descriptions, 1)]
    if several := [label for label, times in Counter(labels).items() if times > 1]:
        raise SelectionError(
            f"several bands of {names[0]!r} have the description {several[0]!r}",
            hint=f"Select them by number, or name them: ds.assign_coords({BAND}=[…])",
        )
    return dataset.assign_coords({BAND: (BAND, np.array(labels))})


def split_bands(dataset: xarray.Dataset) -> xarray.Dataset:
    """Return a dataset with a variable for each band: see `ds.insitu.split_bands`."""
    names = _find_images(dataset)
    labels = dataset[BAND].values.tolist() if BAND in dataset.coords else list(range(1, dataset.sizes[BAND] + 1))
    own = [label if isinstance(label, str) else f"{BAND}_{label}" for label in labels]
    made: dict[Hashable, xarray.DataArray] = {}
    attributes = dict(dataset.attrs)
    for name in names:
        image = dataset[name]
        of_image = {key: value for key, value in image.attrs.items() if key not in OF_VARIABLE}
        attributes |= of_image
        for number, label in enumerate(own):
            band = image.isel({BAND: number}, drop=True)
            band.attrs = {
                key: value
                for key, whole in image.attrs.items()
                if key in OF_VARIABLE and (value := _of_band(whole, number, len(own))) is not None
            }
            made[label if len(names) == 1 else f"{name}_{label}"] = band
    if taken := [name for name in made if name in dataset.variables and name not in names]:
        raise SelectionError(f"there is a variable {taken[0]!r} already, beside a band of that name")
    return dataset.drop_vars(names).drop_dims(BAND, errors="ignore").assign(made).assign_attrs(attributes)


def _find_images(dataset: xarray.Dataset) -> list[Hashable]:
    """Return the data variables that have bands."""
    names = [name for name, variable in dataset.data_vars.items() if BAND in variable.dims]
    if not names:
        raise SelectionError(f"no variable has a dimension {BAND!r}")
    return names


def _of_band(value: Any, number: int, count: int) -> Any:
    """Return what an attribute says of one band; None: nothing."""
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and len(value) == count
    return value[number] if is_list else value
