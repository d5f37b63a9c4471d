"""Parse the metadata of one Zarr array, V2 (`.zarray` and `.zattrs`) or V3 (`zarr.json`).

Both become an `ArrayMetadata`: how the axes are cut into the smallest chunks that can be read, how
these are encoded, which objects hold them, and through how many levels of shards.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, UnsupportedError
from insitu.model import Axis, Codec, Encoding
from insitu.zarr_metadata import codec_documents, dtypes, fill
from insitu.zarr_metadata.json_fields import (
    integer_field,
    integers_field,
    name_and_configuration,
    object_field,
    text_field,
)
from insitu.zarr_metadata.json_fields import required_field as needed
from insitu.zarr_metadata.keys import ChunkKeys

__all__ = ["ArrayMetadata", "from_v2", "from_v3"]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMetadata:
    """The metadata of one Zarr array."""

    shape: tuple[int, ...]
    axes: tuple[Axis, ...]
    """Axes cut into the smallest chunks that can be read."""
    objects: tuple[Axis, ...]
    """Axes cut into the objects of the store; the same as `axes` if there are no shards."""
    encoding: Encoding
    keys: ChunkKeys
    zarr_format: int
    levels: tuple[codec_documents.ShardLevel, ...] = ()
    dims: tuple[str | None, ...] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fill: Any = None
    """The fill value as the document has it."""
    text_values: bool = True
    """Of values of variable length: whether they are texts."""

    def fill_value(self) -> Any:
        """Return the fill value as a scalar; None if the document has none."""
        if self.fill is None:
            return None
        return self.encoding.fill_value()


def from_v2(document: Mapping[str, Any], attributes: Mapping[str, Any] | None = None) -> ArrayMetadata:
    """Return an array from its `.zarray`, and its `.zattrs` if there are any."""
    if document.get("zarr_format", 2) != 2:
        raise FormatError(f"a .zarray must have zarr_format 2, not {document['zarr_format']!r}")
    shape = integers_field(needed(document, "shape"), "shape")
    chunks = integers_field(needed(document, "chunks"), "chunks", count=len(shape))
    dtype = dtypes.from_v2(needed(document, "dtype"))
    codecs = codec_documents.from_v2(
        dtype, len(shape), document.get("filters"), document.get("compressor"), needed(document, "order")
    )
    axes = tuple(Axis.regular(length, max(size, 1)) for length, size in zip(shape, chunks, strict=True))
    separator = document.get("dimension_separator", ".")
    own_attributes = dict(attributes or {})
    return ArrayMetadata(
        shape=shape,
        axes=axes,
        objects=axes,
        encoding=_build_encoding(codecs, needed(document, "fill_value")),
        keys=ChunkKeys(text_field(separator, "dimension_separator")),
        zarr_format=2,
        dims=_dims_v2(document, own_attributes, len(shape)),
        attributes={name: value for name, value in own_attributes.items() if not _is_internal_attribute(name)},
        fill=document["fill_value"],
        text_values=codecs.text_values,
    )


def _dims_v2(document: Mapping[str, Any], attributes: Mapping[str, Any], ndim: int) -> tuple[str | None, ...] | None:
    """Return dimension names: xarray's attribute, or what netCDF-C writes."""
    names = attributes.get("_ARRAY_DIMENSIONS")
    if names is None:
        for holder, key in ((document, "_NCZARR_ARRAY"), (attributes, "_nczarr_array"), (attributes, "_NCZARR_ARRAY")):
            notes = holder.get(key)
            if isinstance(notes, Mapping):
                refs = notes.get("dimrefs", notes.get("dimension_references"))
                if isinstance(refs, list):
                    names = [str(ref).rsplit("/", 1)[-1] for ref in refs]
                    break
    return _check_dimension_names(names, "_ARRAY_DIMENSIONS", ndim)


def _check_dimension_names(names: Any, field_name: str, ndim: int) -> tuple[str | None, ...] | None:
    if names is None:
        return None
    if not isinstance(names, list) or not all(name is None or isinstance(name, str) for name in names):
        raise FormatError(f"{field_name!r} must be a list of names")
    if len(names) != ndim:
        # netCDF-C writes one invented dimension for scalars.
        if ndim == 0:
            return ()
        raise FormatError(f"{field_name!r} has {len(names)} names for {ndim} axes")
    return tuple(names)


def _is_internal_attribute(name: str) -> bool:
    """Return whether an attribute is internal to Zarr writers; xarray hides the same ones."""
    return name == "_ARRAY_DIMENSIONS" or name.lower().startswith("_nc")


_KNOWN_FIELDS = frozenset({
    "zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs",
    "attributes", "dimension_names", "storage_transformers", "consolidated_metadata",
})  # fmt: skip


def from_v3(document: Mapping[str, Any], *, open_shards: bool = True) -> ArrayMetadata:
    """Return an array from its `zarr.json`. Shards are opened, or taken as chunks."""
    if document.get("zarr_format") != 3 or document.get("node_type") != "array":
        raise FormatError("this is not the metadata of a Zarr V3 array")
    for name, value in document.items():
        if name not in _KNOWN_FIELDS and not (isinstance(value, Mapping) and value.get("must_understand") is False):
            raise UnsupportedError(f"the array needs the extension {name!r}, which is not supported")
    if document.get("storage_transformers"):
        raise UnsupportedError("storage transformers are not supported")
    shape = integers_field(needed(document, "shape"), "shape")
    objects = _grid_axes(needed(document, "chunk_grid"), shape)
    dtype = dtypes.from_v3(needed(document, "data_type"))
    sizes = [_common_chunk_length(axis) for axis in objects]
    codecs = codec_documents.from_v3(dtype, sizes, needed(document, "codecs"), open_shards=open_shards)
    axes = _innermost_axes(objects, codecs.levels)
    value = needed(document, "fill_value")
    attributes = object_field(document.get("attributes") or {}, "attributes")
    return ArrayMetadata(
        shape=shape,
        axes=axes,
        objects=objects,
        encoding=_build_encoding(codecs, value),
        keys=_chunk_keys(needed(document, "chunk_key_encoding")),
        zarr_format=3,
        levels=codecs.levels,
        dims=_check_dimension_names(document.get("dimension_names"), "dimension_names", len(shape)),
        attributes=attributes,
        fill=value,
        text_values=codecs.text_values,
    )


def _build_encoding(codecs: codec_documents.CodecChain, value: Any) -> Encoding:
    if codecs.dtype.hasobject and codecs.text_values:
        raw = fill.from_text(value)
    else:
        raw = fill.from_json(value, codecs.dtype)
        if raw is None and codecs.dtype.kind in "mM":
            raw = fill.from_json("NaT", codecs.dtype)  # zarr-python's default for times
    steps = tuple(
        _with_fill(codec, raw) if codec.name == codec_documents.SHARDING else codec for codec in codecs.codecs
    )
    return Encoding(codecs.dtype, steps, codecs.order, raw)


def _with_fill(codec: Codec, raw: bytes | None) -> Codec:
    """Return the sharding codec with the fill value of chunks that a shard lacks."""
    if raw is None:
        return codec
    return Codec(codec.name, {**codec.configuration, "$fill": base64.b64encode(raw).decode()})


def _chunk_keys(value: Any) -> ChunkKeys:
    name, configuration = name_and_configuration(value, "chunk_key_encoding")
    if name == "default":
        return ChunkKeys(text_field(configuration.get("separator", "/"), "separator"), "c")
    if name == "v2":
        return ChunkKeys(text_field(configuration.get("separator", "."), "separator"))
    raise UnsupportedError(f"the chunk key encoding {name!r} is not supported")


def _grid_axes(value: Any, shape: tuple[int, ...]) -> tuple[Axis, ...]:
    name, configuration = name_and_configuration(value, "chunk_grid")
    if name == "regular":
        sizes = integers_field(needed(configuration, "chunk_shape"), "chunk_shape", count=len(shape))
        return tuple(_regular_axis(length, size) for length, size in zip(shape, sizes, strict=True))
    if name == "rectilinear":
        if configuration.get("kind", "inline") != "inline":
            raise UnsupportedError(f"rectilinear chunk grids of the kind {configuration['kind']!r} are not supported")
        cuts = needed(configuration, "chunk_shapes")
        if not isinstance(cuts, list | tuple) or len(cuts) != len(shape):
            raise FormatError(f"'chunk_shapes' must have a row for each of {len(shape)} axes")
        return tuple(_rectilinear_axis(length, cut) for length, cut in zip(shape, cuts, strict=True))
    raise UnsupportedError(f"the chunk grid {name!r} is not supported")


def _regular_axis(length: int, size: int) -> Axis:
    if size < 1 and length:
        raise FormatError(f"an axis of length {length} cannot be cut into chunks of {size}")
    return Axis.regular(length, max(size, 1))


def _rectilinear_axis(length: int, cut: Any) -> Axis:
    """Return an axis from its chunk lengths: one number, or a list with runs `[length, times]`."""
    if not isinstance(cut, list | tuple):
        return _regular_axis(length, integer_field(cut, "chunk_shapes", least=1))
    sizes, times = [], []
    for item in cut:
        size, many = item if isinstance(item, list | tuple) and len(item) == 2 else (item, 1)
        sizes.append(integer_field(size, "chunk_shapes", least=1))
        times.append(integer_field(many, "chunk_shapes", least=1))
    if sum(times) > max(length, 1) + len(cut):  # before memory is allocated: only few chunks may lie past the end
        raise FormatError(f"an axis of length {length} has {sum(times)} chunks")
    stored: npt.NDArray[np.int64] = np.repeat(np.array(sizes, np.int64), times)
    ends = np.cumsum(stored)
    if not len(stored) or ends[-1] < length:
        raise FormatError(f"the chunks of an axis of length {length} cover only {int(ends[-1]) if len(ends) else 0}")
    extent = np.clip(length - (ends - stored), 0, stored)
    keep = extent > 0
    if not keep.any():
        return Axis.regular(length, int(stored[0]))
    return Axis.irregular(extent[keep], 0, 1, stored[keep])


def _common_chunk_length(axis: Axis) -> int:
    """Return the chunk length along an axis; of irregular chunks, their greatest common divisor."""
    if axis.is_regular:
        return axis.size
    return int(np.gcd.reduce(axis.show(np.arange(axis.count)).stored))


def _innermost_axes(objects: tuple[Axis, ...], levels: tuple[codec_documents.ShardLevel, ...]) -> tuple[Axis, ...]:
    """Return the axes of the innermost chunks."""
    if not levels:
        return objects
    return tuple(Axis.regular(axis.length, size) for axis, size in zip(objects, levels[-1].inner, strict=True))
