"""Make a saved dataset again by its recipe: open its files in the same way, and append in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import xarray

from insitu.errors import FormatError
from insitu.model import VirtualArray, VirtualGroup
from insitu.reading import read_array
from insitu.xarray_bridge.open_many import open_mfdataset
from insitu.xarray_bridge.opening import open_dataset
from insitu.xarray_bridge.saving import decoded_group

__all__ = ["repeat_recipe"]


def repeat_recipe(steps: Sequence[Mapping[str, Any]], storage_options: Mapping[str, Any] | None = None) -> VirtualGroup:
    """Return the tree that the steps of a recipe make of the files as they are now.

    Parameters
    ----------
    steps
        Of a recipe: see `insitu.references.recipe`.
    storage_options
        See `insitu.scan`.
    """
    from insitu.references.appending import plan_append
    from insitu.references.insitu_store.growing import grown

    def read(array: VirtualArray) -> Any:
        return read_array(array, storage_options=storage_options)

    group: VirtualGroup | None = None
    for step in steps:
        new = decoded_group(_repeat(step, storage_options), group)
        if group is None:
            group = new
            continue
        dim = str(step.get("dim"))
        rest = plan_append(group, new, dim, target="what was saved", read=read).group
        group = group if rest is None else grown(group, rest, dim)
    if group is None:
        raise FormatError("the recipe of the store has no steps")
    return group


def _repeat(step: Mapping[str, Any], storage_options: Mapping[str, Any] | None) -> xarray.Dataset:
    options = {**step["options"], "storage_options": storage_options}
    if step["function"] == "open_dataset":
        return open_dataset(step["urls"][0], **options)
    places = step.get("places")
    return open_mfdataset(_nested(step["urls"], places) if places else step["urls"], **options)


def _nested(urls: Sequence[str], places: Sequence[Sequence[int]]) -> list[Any]:
    """Return the files in the nested lists that their places tell of."""
    nested: list[Any] = []
    for url, place in zip(urls, places, strict=True):
        level = nested
        for number in place[:-1]:
            while len(level) <= number:
                level.append([])
            level = level[number]
        level.append(url)
    return nested
