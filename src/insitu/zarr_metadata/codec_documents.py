"""Parse the codecs of a Zarr array: V2 filters and compressor, or V3 codecs.

Both become a chain for an `Encoding`: byte order and axis order are parts of it, the rest are
codecs in the order of writing. Sharding is not a codec here but a second grid inside of the object:
it is taken out level by level, with the location of its index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError
from insitu.model import Codec, Encoding
from insitu.zarr_metadata.json_fields import integers_field, name_and_configuration, object_field, text_field
from insitu.zarr_metadata.json_fields import required_field as needed

__all__ = ["CodecChain", "ShardLevel", "from_v2", "from_v3"]

_VARIABLE_LENGTH = {"vlen-utf8": True, "vlen-bytes": False, "vlen-array": False, "string": True}
"""Codecs of values of variable length, and whether these are texts."""
SHARDING = "sharding_indexed"


@dataclass(frozen=True, slots=True)
class ShardLevel:
    """One level of sharding: a chunk that is itself a grid of chunks, with an index of where they
    lie.
    """

    inner: tuple[int, ...]
    """Shape of an inner chunk, in the order of the array's axes."""
    order: tuple[int, ...]
    """The array's axes in the order in which the index counts them."""
    index: Encoding
    """How the index (offset and length of each inner chunk) is encoded."""
    trailer: int
    """Bytes of the index behind its numbers (checksums)."""
    at_end: bool
    """Whether the index is at the end of the shard."""


@dataclass(frozen=True, slots=True)
class CodecChain:
    """The parsed codecs of an array."""

    dtype: np.dtype[Any]
    codecs: tuple[Codec, ...] = ()
    order: tuple[int, ...] | None = None
    levels: tuple[ShardLevel, ...] = field(default=())
    """Outermost first."""

    @property
    def text_values(self) -> bool:
        """Of values of variable length: whether they are texts."""
        return all(_VARIABLE_LENGTH.get(codec.name.removeprefix("numcodecs."), True) for codec in self.codecs[:1])


def from_v2(dtype: np.dtype[Any], ndim: int, filters: Any, compressor: Any, order: Any = "C") -> CodecChain:
    """Return the chain of a V2 array."""
    if order not in ("C", "F"):
        raise FormatError(f"'order' must be C or F, not {order!r}")
    if filters is not None and not isinstance(filters, list):
        raise FormatError("'filters' must be a list or null")
    codecs = [_codec_v2(item, "filters") for item in filters or ()]
    if compressor is not None:
        codecs.append(_codec_v2(compressor, "compressor"))
    if dtype.hasobject and not codecs:
        raise FormatError("values of type object need a filter that encodes them, such as vlen-utf8")
    return CodecChain(dtype, tuple(codecs), tuple(reversed(range(ndim))) if order == "F" and ndim > 1 else None)


def _codec_v2(value: Any, name: str) -> Codec:
    configuration = object_field(value, name)
    return Codec(
        text_field(needed(configuration, "id"), f"{name}.id"), {k: v for k, v in configuration.items() if k != "id"}
    )


def from_v3(dtype: np.dtype[Any], shape: Sequence[int], codecs: Any, *, open_shards: bool = True) -> CodecChain:
    """Return the chain of a V3 array.

    Parameters
    ----------
    dtype
        Little-endian, as `dtypes.from_v3` gives it.
    shape
        The shape of a chunk.
    codecs
        The field `codecs` of the document.
    open_shards
        Whether shards are opened; if not, a shard is a chunk and sharding one of its codecs.
    """
    if not isinstance(codecs, list) or not codecs:
        raise FormatError("'codecs' must be a list with at least one codec")
    steps = [name_and_configuration(item, "codecs") for item in codecs]
    axes = tuple(range(len(shape)))
    return _build_chain(dtype, tuple(shape), steps, axes, open_shards)


def _build_chain(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    steps: list[tuple[str, dict[str, Any]]],
    axes: tuple[int, ...],
    open_shards: bool = True,
) -> CodecChain:
    """Return the chain of the remaining codecs; `axes`: the array's axes in their current order."""
    chain: list[Codec] = []
    for position, (name, configuration) in enumerate(steps):
        if name == "transpose" and not chain:
            axes = tuple(axes[i] for i in _permutation(configuration.get("order"), len(axes)))
        elif name in ("bytes", "endian") and not chain:
            dtype = _with_byte_order(dtype, configuration)
        elif name in ("bytes", "endian"):
            # Behind a codec that changes the type, this is the byte order of the changed type.
            if configuration.get("endian") == "big":
                chain.append(Codec("bytes", configuration))
        elif name == SHARDING and open_shards and not chain and position == len(steps) - 1:
            return _build_shard_chain(dtype, shape, configuration, axes)
        else:
            # Sharding too, if a codec follows it: then only the whole shard can be decoded.
            chain.append(Codec(name, configuration))
    if dtype.hasobject and not chain:
        raise FormatError("values of variable length need a codec that encodes them, such as vlen-utf8")
    return CodecChain(dtype, tuple(chain), axes if axes != tuple(sorted(axes)) else None)


def _build_shard_chain(
    dtype: np.dtype[Any], shape: tuple[int, ...], configuration: dict[str, Any], axes: tuple[int, ...]
) -> CodecChain:
    """Return the chain inside of a shard, with the level of the shard."""
    chunk = integers_field(needed(configuration, "chunk_shape"), "chunk_shape", least=1, count=len(shape))
    inner = [0] * len(shape)
    for size, axis in zip(chunk, axes, strict=True):
        inner[axis] = size
        if shape[axis] % size:
            raise FormatError(f"a shard of shape {shape} cannot be divided into chunks of shape {tuple(chunk)}")
    place = configuration.get("index_location", "end")
    if place not in ("start", "end"):
        raise FormatError(f"'index_location' must be start or end, not {place!r}")
    codecs = configuration.get("codecs")
    if not isinstance(codecs, list) or not codecs:
        raise FormatError("a shard's 'codecs' must be a list with at least one codec")
    index, trailer = _index_encoding(configuration.get("index_codecs"))
    level = ShardLevel(tuple(inner), axes, index, trailer, place == "end")
    rest = _build_chain(dtype, tuple(inner), [name_and_configuration(item, "codecs") for item in codecs], axes)
    return replace(rest, levels=(level, *rest.levels))


def _index_encoding(codecs: Any) -> tuple[Encoding, int]:
    """Return the encoding of a shard's index, and the bytes that its checksums add."""
    if not isinstance(codecs, list) or not codecs:
        raise FormatError("a shard's 'index_codecs' must be a list with at least one codec")
    dtype, chain, trailer = np.dtype("<u8"), [], 0
    for name, configuration in (name_and_configuration(item, "index_codecs") for item in codecs):
        if name in ("bytes", "endian"):
            dtype = _with_byte_order(dtype, configuration)
        elif name == "crc32c":
            chain.append(Codec(name, configuration))
            trailer += 4
        else:
            raise UnsupportedError(
                f"the shard index is encoded with {name!r}, so its size is unknown: this is not supported"
            )
    return Encoding(dtype, tuple(chain)), trailer


def _with_byte_order(dtype: np.dtype[Any], configuration: Mapping[str, Any]) -> np.dtype[Any]:
    endian = configuration.get("endian", "little")
    if endian not in ("little", "big"):
        raise FormatError(f"'endian' must be little or big, not {endian!r}")
    return dtype if dtype.hasobject else dtype.newbyteorder("<" if endian == "little" else ">")


def _permutation(order: Any, ndim: int) -> tuple[int, ...]:
    if order in ("C", "F"):  # early writers of V3
        return tuple(range(ndim)) if order == "C" else tuple(reversed(range(ndim)))
    axes = integers_field(order, "order", count=ndim)
    if sorted(axes) != list(range(ndim)):
        raise FormatError(f"'order' {list(axes)} is not a permutation of {ndim} axes")
    return axes
