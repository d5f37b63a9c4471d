"""Decoding of a scanned file into a member: variables decoded, coordinates found, labels in memory.

A variable like one of an earlier file is decoded as that was: see `decoding_cache`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.decode import MISSING_VALUE_ATTRIBUTES, decode_variable, decoding_warning
from insitu.cf.numbers import fill_values
from insitu.cf.unpack import unpack
from insitu.errors import CodecError, InsituError
from insitu.model import Packing, PackingKind, Tile, VirtualArray, VirtualGroup
from insitu.model.gaps import fill_gaps_with_unwritten
from insitu.open_options import DecodeOptions
from insitu.reading.small_arrays import ChunkBytes, fetch_small, values_from_chunks
from insitu.scanning.conventions import (
    attributes_with_bounds_units,
    find_character_dims,
    find_coordinates,
    needs_values,
    referenced_variables,
)
from insitu.scanning.decoding_cache import DecodingCache, RememberedVariable
from insitu.scanning.member import Load, Member, Variable
from insitu.scanning.stored_encoding import NETCDF, stored_encoding
from insitu.sources import ByteSource
from insitu.zarr_metadata.typed_attributes import with_types

__all__ = ["decode_member", "find_unreadable"]

TEXT_BYTES = 1 << 20
"""Texts that were read to find out their type are kept for the first use up to this size."""


def decode_member(
    group: VirtualGroup,
    decoding: DecodeOptions,
    load: Load,
    *,
    source: ByteSource | None = None,
    cache: DecodingCache | None = None,
    url: str | None = None,
    only: Sequence[str] | None = None,
) -> Member:
    """Return a scanned group as a member, decoded.

    Parameters
    ----------
    group
        As scanned.
    decoding
        What is decoded.
    load
        Reads values.
    source
        The open file: labels and times are fetched from it in one batch.
    cache
        Of the files before.
    url
        The file, for messages.
    only
        These variables and their coordinates; all if not given.
    """
    alone = cache is None
    cache = DecodingCache() if cache is None else cache
    wanted = group.arrays if only is None else _select_with_coordinates(group, only)
    arrays = {name: fill_gaps_with_unwritten(array) for name, array in wanted.items()}
    given = (
        attributes_with_bounds_units(arrays)
        if decoding.decode_times
        else {name: array.attributes for name, array in arrays.items()}
    )
    format = group.details.format
    stacks = find_character_dims(arrays, texts=format in NETCDF)
    arrays = {name: array for name, array in arrays.items() if name not in decoding.drop_variables}
    small = {name: array for name, array in arrays.items() if needs_values(name, array, given[name])}
    blocks = fetch_small(small, source) if source is not None else {}
    known = dict(zip(small, load(list(small.values())), strict=True)) if source is None else {}
    found: dict[str, Variable] = {}
    for name, array in arrays.items():
        file = _ScannedVariable(
            name,
            array,
            with_types(given[name]),
            format,
            blocks.get(name),
            known.get(name),
            name in small,
            decoding,
            load,
        )
        join = array.ndim > 0 and array.dims[-1] in stacks
        found[name] = _decode_like_before(file, join, cache) or _decode(file, join, cache, alone)
    names = _coordinates(found, decoding, cache) | set(group.coordinates)
    attributes = group.attributes
    if decoding.decode_coords and isinstance(attributes.get("coordinates"), str):
        names |= set(attributes["coordinates"].split())
        attributes = {key: value for key, value in attributes.items() if key != "coordinates"}
    return Member.of_group(group, found, names, _reuse_equal(cache, "", attributes), url)


@dataclass(slots=True)
class _ScannedVariable:
    """A variable of the file that is being decoded."""

    name: str
    array: VirtualArray
    attributes: Mapping[str, Any]
    format: str | None
    """Of the file."""
    blocks: ChunkBytes | None
    """Its bytes, if they were fetched."""
    known: npt.NDArray[Any] | None
    """Its values as stored, if they were read."""
    needed: bool
    """Whether its values are needed now."""
    decoding: DecodeOptions
    load: Load

    @property
    def labels(self) -> bool:
        """Whether the values are part of the member: labels of a dimension, single values.

        Sequences of varying length are not: they label nothing, and references keep them only where
        they lie.
        """
        dtype = self.array.dtype
        has_sequences = self.array.details.varying == "sequence" or (dtype.names is not None and dtype.hasobject)
        return self.array.dims in ((self.name,), ()) and not has_sequences

    def values(self) -> npt.NDArray[Any]:
        """Return the values as stored."""
        if self.known is None:
            self.known = (
                self.load([self.array])[0] if self.blocks is None else values_from_chunks(self.array, self.blocks)
            )
        return self.known


def find_unreadable(arrays: Mapping[str, VirtualArray], load: Load) -> dict[str, str]:
    """Return the variables whose values opening needs but that cannot be read, with the reason."""
    bad: dict[str, str] = {}
    given = attributes_with_bounds_units(arrays)
    for name, array in arrays.items():
        if needs_values(name, array, given[name]):
            try:
                load([array])
            except InsituError as problem:
                bad[name] = str(problem)
    return bad


def _select_with_coordinates(group: VirtualGroup, only: Sequence[str]) -> dict[str, VirtualArray]:
    """Return the wanted variables, labels of their dimensions, and their coordinates."""
    arrays = group.arrays
    wanted = {name for name in only if name in arrays}
    for _ in range(2):  # also the labels' bounds, and the dimensions of auxiliary coordinates
        for name in list(wanted):
            wanted |= (referenced_variables(arrays[name].attributes) | set(arrays[name].dims)) & arrays.keys()
    dims = {dim for name in wanted for dim in arrays[name].dims}
    wanted |= {name for name in group.coordinates if name in arrays and dims & set(arrays[name].dims)}
    return {name: array for name, array in arrays.items() if name in wanted}


def _decode_like_before(file: _ScannedVariable, join: bool, cache: DecodingCache) -> Variable | None:
    """Return the variable decoded as in an earlier file; None if it differs from that."""
    seen, array = cache.variables.get(file.name), file.array
    if seen is None or seen.joined != join or len(array.tiles) != 1:
        return None
    if not seen.is_like(array) or not _is_equal(seen.given, file.attributes):
        return None
    values = seen.values
    if file.needed and (seen.blocks != file.blocks or seen.shape != array.shape):
        if file.blocks is None or not _is_independent_of_values(seen):
            return None
        try:
            values = _unpack_values(file, seen.packing, seen.dtype) if file.labels or seen.dtype.kind == "M" else None
        except CodecError:  # a date that the type of the others does not hold: to be decided anew
            return None
        values = values if file.labels else None
    if values is not None:
        return Variable(array.dims, values, seen.attributes, seen.encoding)
    tiles: tuple[Tile, ...] = array.tiles
    if seen.is_packed:
        (tile,) = tiles
        tiles = (Tile(tile.axes, tile.encodings, tile.chunks, seen.packings, tile.layout),)
    data = VirtualArray(array.shape, seen.dtype, array.dims, tiles, array.origins)
    return Variable(array.dims, data, seen.attributes, seen.encoding)


def _is_independent_of_values(seen: RememberedVariable) -> bool:
    """Return whether other values would have been decoded the same way.

    Numbers are, and dates that fit nanoseconds.
    """
    dtype = seen.dtype
    if dtype.kind in "biufc":
        return True
    kind = seen.packing.kind
    return dtype == np.dtype("M8[ns]") and kind.base == "ns" and kind.epoch is None


def _decode(file: _ScannedVariable, join: bool, cache: DecodingCache, alone: bool) -> Variable:
    """Return the variable decoded, and remember the decision for the next files unless it is `alone`.

    Attributes decide, and values where the type depends on them.
    """
    array, name = file.array, file.name
    encoding, attributes = stored_encoding(array, file.attributes, file.format)
    if array.dtype.kind == "S" and array.dtype.itemsize > 1 and file.format in NETCDF:
        return _decode_fixed_texts(file, attributes)
    given = array if attributes is array.attributes else replace(array, attributes=attributes)
    options = {"name": name, "encoding": encoding, **file.decoding.of_variable(name)}
    if file.format == "tiff" and options["mask_and_scale"]:
        from insitu.scanning.band_packing import decode_by_bands, has_band_packing, mask_pixels

        masked = mask_pixels(given)
        by_bands = has_band_packing(array, attributes)
        if by_bands or masked is not given:
            if by_bands:
                result = decode_by_bands(masked, masked.attributes, lambda band: decode_variable(band, **options))
            else:
                result = decode_variable(masked, **options)
            fill = {"_FillValue": attributes["_FillValue"]} if "_FillValue" in attributes else {}
            decoded = _without_attributes(result.array)
            return Variable(decoded.dims, decoded, result.attributes, {**result.encoding, **fill})
    result = decode_variable(given, stack_char_dim=join, values=file.values, **options)
    if result.array.shape != array.shape:  # characters that became texts
        result.encoding["original_shape"] = array.shape
    decoded = _without_attributes(result.array)
    variable = Variable(decoded.dims, decoded, result.attributes, result.encoding)
    if alone:
        return _with_values(variable, file, decoded)
    plain = len(array.tiles) == 1 and len(decoded.tiles) == 1
    # The type of texts depends on values that were not read; that of times on bytes that were.
    known = file.blocks is not None or not (file.needed or join or decoded.dtype.kind in "OSUmM")
    if file.labels:
        variable = replace(variable, data=_label_values(file, decoded))
    # Types of enumerations have the names in a dictionary, which whoever has the dataset may change.
    plain = plain and array.details.enumeration is None
    if plain and known and not (result.warned and cache.repeats_warnings):
        cache.remember(name, _facts_of(file, decoded, variable, join))
    return variable


def _without_attributes(array: VirtualArray) -> VirtualArray:
    return VirtualArray(array.shape, array.dtype, array.dims, array.tiles, array.origins, {}, None, array.details)


def _with_values(variable: Variable, file: _ScannedVariable, array: VirtualArray) -> Variable:
    """Return a variable of a file that is opened alone with the values that had to be read anyway: labels, and
    texts, whose type depends on them.
    """
    if file.labels:
        return replace(variable, data=_label_values(file, array))
    if file.known is not None and array.dtype.kind == "U" and array.nbytes <= TEXT_BYTES and len(array.tiles) == 1:
        return replace(variable, known=_unpack_values(file, array.tiles[0].packings[0], array.dtype))
    return variable


def _facts_of(file: _ScannedVariable, decoded: VirtualArray, variable: Variable, join: bool) -> RememberedVariable:
    """Return what the next files need to know of a variable that was decoded."""
    array, data, packings = file.array, variable.data, decoded.tiles[0].packings
    return RememberedVariable(
        file.attributes,
        array.shape,
        array.dtype,
        array.dims,
        array.tiles[0].encodings,
        array.details,
        file.blocks,
        decoded.dtype,
        variable.attributes,
        variable.encoding,
        packings,
        packings[0],
        not packings.identity,
        join,
        data if isinstance(data, np.ndarray) else None,
    )


def _label_values(file: _ScannedVariable, array: VirtualArray) -> npt.NDArray[Any]:
    """Return the values of a variable that is part of the member, decoded."""
    if (file.blocks is None and file.known is None) or array.shape != file.array.shape or len(array.tiles) != 1:
        return file.load([array])[0]
    return _unpack_values(file, array.tiles[0].packings[0], array.dtype)


def _unpack_values(file: _ScannedVariable, packing: Packing, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the stored values of a variable, unpacked."""
    values = file.values()
    values = values if packing.identity else unpack(values, packing)
    return values if values.dtype == dtype and values.flags.writeable else values.astype(dtype)


def _decode_fixed_texts(file: _ScannedVariable, attributes: Mapping[str, Any]) -> Variable:
    """Return HDF5's texts of fixed length as netCDF-4 shows them, of varying length.

    The type depends on the values.
    """
    texts = np.char.decode(file.values(), "utf-8", "surrogateescape")
    width = max(int(np.char.str_len(texts).max(initial=1)), 1)
    dtype = np.dtype(f"U{width}")
    marks = {key: attributes[key] for key in MISSING_VALUE_ATTRIBUTES if key in attributes}
    if not marks or not file.decoding.of_variable(file.name)["mask_and_scale"]:
        return Variable(file.array.dims, texts.astype(dtype), dict(attributes), {"dtype": dtype})
    decoded, missing, notes = fill_values(marks, dtype)
    for note in notes:
        warnings.warn(f"variable {file.name!r} {note}", decoding_warning(), stacklevel=2)
    data = unpack(
        texts.astype(object), Packing(kind=PackingKind(dtype="object", masked="object", missing=tuple(missing)))
    )
    rest = {key: value for key, value in attributes.items() if key not in marks}
    return Variable(file.array.dims, data, rest, {**decoded, "dtype": dtype})


def _coordinates(found: Mapping[str, Variable], decoding: DecodeOptions, cache: DecodingCache) -> set[str]:
    """Return which variables are named as coordinates.

    What names them moves from attributes to encoding.
    """
    if found.keys() != cache.names:
        cache.names, cache.named = frozenset(found), {}
    names: set[str] = set()
    for name, variable in found.items():
        before = variable.attributes
        known = cache.named.get(name)
        if known is None or known[0] is not before or known[1] is not variable.encoding:
            own, encoding = dict(before), dict(variable.encoding)
            known = (before, variable.encoding, find_coordinates(own, encoding, found, decoding.decode_coords))
            cache.named[name] = known
            cache.shared[f"a:{name}"] = _reuse_equal(cache, f"a:{name}", own)
            cache.shared[f"e:{name}"] = _reuse_equal(cache, f"e:{name}", encoding)
        variable.attributes, variable.encoding = cache.shared[f"a:{name}"], cache.shared[f"e:{name}"]
        names |= known[2]
    return names


def _reuse_equal(cache: DecodingCache, key: str, fresh: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the equal mapping of an earlier file if there is one.

    The same object compares at no cost.
    """
    old = cache.shared.get(key)
    if old is not None and _is_equal(old, fresh):
        return old
    cache.shared[key] = fresh
    return fresh


def _is_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one is other:
        return True
    try:
        # 1 == 1.0 == True: the type of a value counts, it may decide what variables decode to.
        return one == other and list(map(type, one.values())) == list(map(type, other.values()))
    except ValueError:  # arrays among them
        return False
