"""Decoding of images whose bands have scales and offsets of their own.

CF knows one scale and one offset for a variable; a TIFF has one of each for every band (`scales`,
`offsets`, as rioxarray calls them). Every band is decoded as a variable of its own, and they are
joined again: a packing belongs to a chunk, not to an array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from insitu.cf.decode import DecodedVariable
from insitu.combining.align import with_dtype
from insitu.combining.join_similar import join_arrays
from insitu.combining.promotion import shared_type
from insitu.model import VirtualArray

__all__ = ["decode_by_bands", "has_band_packing"]

_BAND_ATTRIBUTES = {"scale_factor": ("scales", 1.0), "add_offset": ("offsets", 0.0)}


def has_band_packing(array: VirtualArray, attributes: Mapping[str, Any]) -> bool:
    """Return whether the bands of an array have scales or offsets of their own."""
    lists = [attributes[many] for many, _ in _BAND_ATTRIBUTES.values() if many in attributes]
    return (
        bool(lists) and array.dims[:1] == ("band",) and all(np.shape(numbers) == (array.shape[0],) for numbers in lists)
    )


def decode_by_bands(
    array: VirtualArray, attributes: Mapping[str, Any], decode: Callable[[VirtualArray], DecodedVariable]
) -> DecodedVariable:
    """Return the array decoded band by band.

    Parameters
    ----------
    array
        As scanned.
    attributes
        Of it, with a list of scales, of offsets, or both.
    decode
        Decodes an array of one band by its attributes.
    """
    own = {key: value for key, value in attributes.items() if key not in ("scales", "offsets")}
    parts = []
    for band in range(array.shape[0]):
        packing = {
            one: float(attributes[many][band]) if many in attributes else attributes.get(one, neutral)
            for one, (many, neutral) in _BAND_ATTRIBUTES.items()
        }
        parts.append(decode(replace(array[band : band + 1], attributes={**own, **packing})))
    dtype = shared_type([part.array.dtype for part in parts])
    whole = with_dtype(join_arrays([part.array for part in parts], 0), dtype)
    told = {many: attributes[many] for many, _ in _BAND_ATTRIBUTES.values() if many in attributes}
    kept = {key: value for key, value in parts[0].encoding.items() if key not in _BAND_ATTRIBUTES or key in attributes}
    return DecodedVariable(whole, parts[0].attributes, {**kept, **told})
