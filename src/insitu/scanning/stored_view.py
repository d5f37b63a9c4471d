"""Stored values behind decoded arrays.

A virtual array has the values that xarray shows. Its files may be packed differently; only where
they are not is there one array of stored values behind it. Else an error names two files that
differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf import numbers
from insitu.cf.decode import MISSING_VALUE_ATTRIBUTES
from insitu.errors import UnsupportedError
from insitu.model import INLINE, Packing, Packings, Tile, VirtualArray, VirtualGroup
from insitu.model.cf_attributes import MISSING, SCALING
from insitu.scanning.band_packing import without_pixel_mask
from insitu.scanning.member import Load, in_memory
from insitu.zarr_metadata.to_zarr import to_zarr_spec

__all__ = ["name_coordinates", "stored_tree", "stored_view", "used_rows", "with_given_units", "zarr_tree"]

MAX_LOCATED_CELLS = 1 << 20
COMPARED_BYTES = 256 << 20
"""Values that are read to find out whether all files hold the same."""


def stored_view(array: VirtualArray, name: str | None = None, load: Load | None = None) -> VirtualArray:
    """Return the array as its files hold it: stored values and all CF attributes.

    Parameters
    ----------
    array
        Decoded.
    name
        The variable, for messages.
    load
        Reads values. Needed for labels that were joined in memory: they are encoded again.

    Raises
    ------
    UnsupportedError
        If the files of the array are packed differently: the error names two of them.
    """
    array = without_pixel_mask(array)
    if load is not None and _is_in_memory(array) and _is_decoded_in_memory(array):
        return _encode_values(array, name, load)
    attributes = array.stored_attributes(_check_one_packing(array, name))
    if all(tile.packings.identity for tile in array.tiles):
        if not array.encoding and attributes.keys() == array.attributes.keys():
            return array  # the same object: a cache that reads ahead knows arrays by their identity
        return replace(array, attributes=attributes, encoding={})
    dtype = array.stored_dtype
    fill = _fill_value(attributes.get("_FillValue"), dtype)
    # As many rows that change nothing as there were: the chunk tables go on referring to them.
    tiles = tuple(replace(tile, packings=Packings.of([Packing()] * len(tile.packings))) for tile in array.tiles)
    return replace(array, dtype=dtype, tiles=tiles, attributes=attributes, encoding={}, fill_value=fill)


def _is_decoded_in_memory(array: VirtualArray) -> bool:
    """Return whether values in memory are decoded, and not stored ones with a packing."""
    if "units" in array.encoding or array.dtype.kind in "mM":
        return True
    packed = any(key in array.encoding for key in (*SCALING, *MISSING))
    return packed and all(tile.packings.identity for tile in array.tiles)


def stored_tree(tree: VirtualGroup, load: Load) -> VirtualGroup:
    """Return the tree with every array as its files hold it."""
    return tree.map_arrays(lambda name, array: stored_view(array, name, load))


def zarr_tree(tree: VirtualGroup, load: Load, inline: int = 0) -> VirtualGroup:
    """Return the tree for kerchunk, Icechunk and Zarr: one packing for each array, CF attributes.

    Parameters
    ----------
    tree
        Decoded. Arrays of files keep their packings, so that files that differ are noticed when
        they are written.
    load
        Reads values: labels that were joined in memory are encoded again.
    inline
        Arrays of up to so many bytes are read and saved as values, if their files differ too much
        for references.
    """
    arrays: dict[str, VirtualArray] = {}
    for name, array in _with_coordinates_named(tree).items():
        if not _is_in_memory(array) and not _is_expressible_in_zarr(array):
            array = _without_repetition(array, load)
        if _is_in_memory(array) or (array.nbytes <= inline and not _is_expressible_in_zarr(array)):
            array = _encode_values(array, name, load)
        arrays[name] = array
    left = [name for name in _unnamed_coordinates(tree, arrays) if name not in tree.groups]
    attributes = dict(tree.attributes)
    if left and "coordinates" not in attributes:
        attributes["coordinates"] = " ".join(sorted(left))
    groups = {name: zarr_tree(group, load, inline) for name, group in tree.groups.items()}
    return replace(tree, arrays=arrays, groups=groups, attributes=attributes)


def name_coordinates(tree: VirtualGroup) -> tuple[dict[str, VirtualArray], list[str]]:
    """Return the arrays of a group, with `coordinates` attributes as xarray writes them, and the coordinates that
    none of them names.
    """
    arrays = _with_coordinates_named(tree)
    return arrays, [name for name in _unnamed_coordinates(tree, arrays) if name not in tree.groups]


def _with_coordinates_named(tree: VirtualGroup) -> dict[str, VirtualArray]:
    """Return the arrays, data variables with a `coordinates` attribute if their files had none."""
    others = [name for name in tree.coordinates if name in tree.arrays and tree.arrays[name].dims != (name,)]
    arrays: dict[str, VirtualArray] = {}
    for name, array in tree.arrays.items():
        is_named = "coordinates" in array.encoding or "coordinates" in array.attributes
        mine = [
            other for other in others if set(tree.arrays[other].dims) <= set(array.dims) and tree.arrays[other].dims
        ]
        if mine and not is_named and name not in tree.coordinates:
            array = replace(array, encoding={**array.encoding, "coordinates": " ".join(sorted(mine))})
        arrays[name] = array
    return arrays


def _unnamed_coordinates(tree: VirtualGroup, arrays: Mapping[str, VirtualArray]) -> list[str]:
    named = {
        word for array in arrays.values() for word in str(array.stored_attributes().get("coordinates", "")).split()
    }
    return [name for name in tree.coordinates if name in arrays and arrays[name].dims != (name,) and name not in named]


def _without_repetition(array: VirtualArray, load: Load) -> VirtualArray:
    """Return an array without dimensions along which every file repeats the same values.

    Bounds of latitudes, say, get the dimension of time when files are combined along it, and are
    the same in every file.
    """
    for dimension in reversed(range(array.ndim)):
        if len(array.tiles) != 1 or array.shape[dimension] < 2:
            continue
        axis = array.tiles[0].axis_of(dimension)
        if axis.is_regular or axis.show(np.arange(axis.count)).stored.any():
            continue
        each = array.take(dimension, axis.begin(np.arange(axis.count)))
        if each.nbytes > COMPARED_BYTES:
            continue
        if _is_repeated(np.moveaxis(load([each])[0], dimension, 0)):
            array = array.take(dimension, [0]).drop(dimension)
    return array


def _is_repeated(values: npt.NDArray[Any]) -> bool:
    """Return whether all values along the first dimension are the same."""
    first = np.broadcast_to(values[:1], values.shape)
    try:
        return np.array_equal(values, first, equal_nan=values.dtype.kind in "fcmM")
    except TypeError:  # dates of several calendars do not compare
        return False


def _is_expressible_in_zarr(array: VirtualArray) -> bool:
    """Return whether Zarr's metadata can describe shapes, codecs and packing of all chunks."""
    try:
        for _ in to_zarr_spec(array).blocks():
            pass
    except UnsupportedError:
        return False
    return True


def _is_in_memory(array: VirtualArray) -> bool:
    return bool(array.tiles) and all(_is_inline(tile) for tile in array.tiles if 0 not in tile.chunks.shape)


def _is_inline(tile: Tile) -> bool:
    """Return whether no cell of a tile lies in a file.

    The list of sources does not show it: arrays of a store share one list.
    """
    shape = tile.chunks.shape
    total = int(np.prod(shape, dtype=object))
    for count in (1, total):  # for most arrays the first cell decides
        cells = list(np.unravel_index(np.arange(min(count, MAX_LOCATED_CELLS)), shape)) if shape else []
        if not (np.asarray(tile.chunks.locate(cells).source) == INLINE).all():
            return False
    return total <= MAX_LOCATED_CELLS


def _encode_values(array: VirtualArray, name: str | None, load: Load) -> VirtualArray:
    """Return values that were decoded in memory as a file would hold them."""
    import xarray  # slow to import, and needed here only
    from xarray.conventions import encode_cf_variable

    values = load([array])[0]
    variable = xarray.Variable(array.dims, values, array.attributes, dict(array.encoding))
    _mark_missing_texts(variable)
    kept = _take_other_marks(variable.encoding)
    encoded = with_given_units(encode_cf_variable(variable, name=name), array.encoding.get("units"))
    stored = np.asarray(encoded.values)
    texts = stored.dtype.kind == "O"
    stored_array = in_memory(stored.astype(str) if texts else stored)
    if stored_array is not None and texts:
        stored_array = replace(stored_array, dtype=np.dtype(object))
    if stored_array is None:
        raise UnsupportedError(
            f"values of type {array.dtype} cannot be encoded as a file would store them", variable=name
        )
    digits = {key: array.encoding[key] for key in ("least_significant_digit",) if key in array.encoding}
    attributes = {**encoded.attrs, **kept, **digits}
    if stored.dtype.kind in "fc" and "_FillValue" not in variable.encoding:
        attributes.pop("_FillValue", None)  # NaN, which xarray adds to all floats, but no file has
    return replace(stored_array, dims=array.dims, attributes=attributes)


def _take_other_marks(encoding: dict[str, Any]) -> dict[str, Any]:
    """Return `missing_value` where it says more than one mark; one of them is left in the encoding.

    xarray reads such variables, but does not write them. What is missing is encoded as the mark that is left.
    """
    given: Any = encoding.get("missing_value")
    marks = np.ravel(given).tolist() if given is not None else []
    fill = np.ravel(encoding.get("_FillValue", marks[:1])).tolist()
    if all(mark in fill or (mark != mark and fill[0] != fill[0]) for mark in marks) and len(marks) <= 1:
        return {}
    if "_FillValue" in encoding:
        del encoding["missing_value"]
    else:
        encoding["missing_value"] = np.ravel(given)[0]
    return {"missing_value": given}


def with_given_units(encoded: Any, units: Any) -> Any:
    """Return encoded times with their unit as it was given, if it means the same: xarray writes
    `days since 2000-01-01 12:00:00` with a T.
    """
    from xarray.conventions import decode_cf_variable

    if not isinstance(units, str) or encoded.attrs.get("units") in (None, units) or not encoded.size:
        return encoded
    given = encoded.copy(deep=False)
    given.attrs = {**encoded.attrs, "units": units}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            one, other = (np.asarray(decode_cf_variable("", form).values) for form in (given, encoded))
        except (ValueError, OverflowError):  # the unit that was given does not reach all of them
            return encoded
    is_same = one.dtype == other.dtype and bool(((one == other) | ((one != one) & (other != other))).all())
    return given if is_same else encoded


def _mark_missing_texts(variable: Any) -> None:
    """Give missing texts a `_FillValue` that no other text equals.

    Without one xarray would write them as empty.
    """
    if variable.dtype.kind != "O":
        return
    values = variable.values.reshape(-1).tolist()
    texts = {value for value in values if isinstance(value, str)}
    rest = [value for value in values if not isinstance(value, str)]
    if not texts or not rest or not all(value is None or value != value for value in rest):
        return
    known = [mark for key in MISSING_VALUE_ATTRIBUTES if isinstance(mark := variable.encoding.pop(key, None), str)]
    fill = next((mark for mark in [*known, ""] if mark not in texts), None)
    variable.encoding["_FillValue"] = "_" * (max(map(len, texts)) + 1) if fill is None else fill


def _check_one_packing(array: VirtualArray, name: str | None) -> Packing | None:
    """Return the packing of all cells, None if there are none; refuse an array whose cells are packed differently."""
    first: tuple[Tile, int] | None = None
    for tile in array.tiles:
        for row in used_rows(tile):
            if first is None:
                first = tile, row
            elif tile.packings[row] != first[0].packings[first[1]]:
                places = [
                    f"{_describe_packing(one.packings[number])} in {_source_of(one, number)}"
                    for one, number in (first, (tile, row))
                ]
                raise UnsupportedError(
                    f"its files are packed differently: {', '.join(places)}",
                    variable=name,
                    hint="Read decoded values, or the stored values of one file at a time",
                )
    return None if first is None else first[0].packings[first[1]]


def used_rows(tile: Tile) -> list[int]:
    """Return the rows of the table of packings that cells of a tile have."""
    if len(tile.packings) == 1:
        return [0]
    shape = tile.chunks.shape
    total = int(np.prod(shape, dtype=object))
    if total > MAX_LOCATED_CELLS:
        return list(range(len(tile.packings)))
    rows = tile.chunks.locate(list(np.unravel_index(np.arange(total), shape)) if shape else [])
    return [int(row) for row in np.unique(np.asarray(rows.packing))]


def _source_of(tile: Tile, row: int) -> str:
    """Return a file whose cells have a packing."""
    sources = tile.chunks.sources
    if len(tile.packings) == 1:
        return str(sources[0].url) if len(sources) else "values kept inline"
    shape = tile.chunks.shape
    rows = tile.chunks.locate(list(np.unravel_index(np.arange(int(np.prod(shape))), shape)) if shape else [])
    found = np.asarray(rows.source)[np.asarray(rows.packing) == row]
    found = found[found >= 0]
    return str(sources[int(found[0])].url) if len(found) else "values kept inline"


def _describe_packing(packing: Packing) -> str:
    parts = [f"scale_factor {packing.scale:g}" if packing.scale is not None else ""]
    parts += [f"add_offset {packing.offset:g}" if packing.offset is not None else ""]
    parts += [f"missing {', '.join(map(str, packing.missing))}" if packing.missing else ""]
    parts += [f"times in {packing.kind.unit}" if packing.kind.unit is not None else ""]
    return " ".join(part for part in parts if part) or "nothing"


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    if value is None or not numbers.can_store_in_row(value) or dtype.hasobject:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(value).reshape(-1)[:1].astype(dtype)[0]
