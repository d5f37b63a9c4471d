"""What does a tree become when another is appended to it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from insitu.errors import InsituError, ModelError
from insitu.model import VirtualArray, VirtualGroup, concatenate
from insitu.references.recipe import KEY, extend_recipe

__all__ = ["grown"]


def grown(old: VirtualGroup, new: VirtualGroup, dim: str, path: str = "") -> VirtualGroup:
    """A tree with more of its arrays along a dimension.

    Parameters
    ----------
    old, new
        What is there, and what comes behind it.
    dim
        Arrays that have it grow; the others stay as they are.
    path
        Of the group, for messages.

    Raises
    ------
    ModelError
        If the two do not hold the same arrays, of the same dimensions and types.
    """
    arrays: dict[str, VirtualArray] = {}
    lacking = [name for name, array in old.arrays.items() if dim in array.dims and name not in new.arrays]
    extra = [name for name in new.arrays if name not in old.arrays]
    if lacking or extra:
        raise ModelError(
            f"what is appended must have the same arrays: missing {lacking}, not there before {extra}",
            variable=path or None,
        )
    for name, array in old.arrays.items():
        if dim not in array.dims:
            arrays[name] = array
            continue
        added = new.arrays[name]
        if added.dims != array.dims:
            raise ModelError(f"{name!r} has the dimensions {added.dims}, and {array.dims} before")
        try:
            arrays[name] = concatenate([array, added], dim)
        except InsituError as problem:
            raise problem.located(variable=f"{path}/{name}".lstrip("/")) from None
        if arrays[name].dtype != array.dtype:
            raise ModelError(f"{name!r} has values of {added.dtype}, and {array.dtype} before")
    groups = {
        name: grown(group, new.groups[name], dim, f"{path}/{name}") if name in new.groups else group
        for name, group in old.groups.items()
    }
    details = dict(old.details)
    if isinstance(details.get("dims"), Mapping) and dim in details["dims"]:
        lengths = [array.shape[array.dims.index(dim)] for array in arrays.values() if dim in array.dims]
        details["dims"] = {**details["dims"], **({dim: max(lengths)} if lengths else {})}
    if not path and "coordinates" in details:
        details[KEY] = extend_recipe(details.get(KEY), new.details.get(KEY), dim)
    return replace(old, arrays=arrays, groups=groups, details=details)
