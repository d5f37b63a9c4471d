"""Decoding of images whose bands have scales, offsets and nodata values of their own.

CF knows one scale and one offset for a variable; a TIFF has one of each for every band (`scales`,
`offsets`, as rioxarray calls them). Every band is decoded as a variable of its own, and they are
joined again: a packing belongs to a chunk, not to an array.

GDAL's `NODATA_VALUES` has one value for every band: a pixel has no data where all its bands match.
That takes all bands of a pixel, so it is a codec of the chunks, not a packing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from insitu.cf.decode import DecodedVariable
from insitu.cf.numbers import missing_dtype
from insitu.errors import InsituWarning
from insitu.model import Codec, Encoding, VirtualArray
from insitu.model.gaps import with_dtype
from insitu.model.join_similar import join_arrays
from insitu.scanning.promotion import shared_type

__all__ = ["decode_by_bands", "has_band_packing", "mask_pixels", "without_pixel_mask"]

_PIXEL_MASK = "pixel_nodata"

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
    by_band = {many: attributes[many] for many, _ in _BAND_ATTRIBUTES.values() if many in attributes}
    encoding = {
        key: value for key, value in parts[0].encoding.items() if key not in _BAND_ATTRIBUTES or key in attributes
    }
    return DecodedVariable(whole, parts[0].attributes, {**encoding, **by_band})


def mask_pixels(array: VirtualArray) -> VirtualArray:
    """Return an image with `NODATA_VALUES` with NaN for the pixels whose bands all have theirs.

    The image itself, if it has none. GDAL's nodata value then hides nothing.
    """
    values = _pixel_nodata(array)
    if values is None:
        return array
    attributes = {key: value for key, value in array.attributes.items() if key != "_FillValue"}
    parts = replace(array.split(), attributes=attributes)
    if any(tile.axis_of(array.dims.index("band")).count > 1 for tile in parts.tiles):
        warnings.warn(
            "NODATA_VALUES of an image whose bands are stored one by one are not applied: no value is masked. "
            'Mask it by `image.where((image != nodata).any("band"))`',
            InsituWarning,
            stacklevel=2,
        )
        return replace(array, attributes=attributes)
    dtype = missing_dtype(array.dtype.newbyteorder("="))
    tiles = tuple(
        replace(tile, encodings=tuple(_masked_encoding(encoding, values, dtype) for encoding in tile.encodings))
        for tile in parts.tiles
    )
    return replace(parts, dtype=dtype, tiles=tiles, fill_value=None)


def _pixel_nodata(array: VirtualArray) -> list[float] | None:
    """Return the nodata values of the bands; None if there is not one number for each."""
    texts = str(array.attributes.get("NODATA_VALUES", "")).split()
    if "band" not in array.dims or len(texts) != array.shape[array.dims.index("band")] or array.dtype.kind not in "iuf":
        return None
    try:
        return [float(text) for text in texts]
    except ValueError:
        return None


def _masked_encoding(encoding: Encoding, values: list[float], dtype: np.dtype[Any]) -> Encoding:
    stored = encoding.dtype
    unwritten = np.frombuffer(encoding.fill, stored)[0] if encoding.fill else stored.type(0)
    with np.errstate(all="ignore"):
        missing = bool((np.array(values).astype(stored) == unwritten).all())
    fill = np.array(np.nan if missing else unwritten, dtype).tobytes()
    codec = Codec(_PIXEL_MASK, {"dtype": stored.str, "values": values})
    return Encoding(dtype, (codec, *encoding.codecs), encoding.order, fill)


def without_pixel_mask(array: VirtualArray) -> VirtualArray:
    """Return an image with the pixels that `mask_pixels` hid; the image itself, if it hid none."""
    if not any(_is_masked(encoding) for tile in array.tiles for encoding in tile.encodings):
        return array
    tiles = tuple(
        replace(tile, encodings=tuple(_unmasked_encoding(encoding) for encoding in tile.encodings))
        for tile in array.tiles
    )
    dtype = shared_type([encoding.dtype for tile in tiles for encoding in tile.encodings])
    return replace(array, tiles=tiles, dtype=dtype)


def _is_masked(encoding: Encoding) -> bool:
    return bool(encoding.codecs) and encoding.codecs[0].name == _PIXEL_MASK


def _unmasked_encoding(encoding: Encoding) -> Encoding:
    if not _is_masked(encoding):
        return encoding
    mask, *codecs = encoding.codecs
    dtype = np.dtype(mask.configuration["dtype"])
    (fill,) = np.frombuffer(encoding.fill, encoding.dtype) if encoding.fill else (0.0,)
    number = mask.configuration["values"][0] if np.isnan(fill) and dtype.kind != "f" else fill
    return Encoding(dtype, tuple(codecs), encoding.order, np.array(number).astype(dtype).tobytes())
