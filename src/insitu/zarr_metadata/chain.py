"""Which chain of codecs do a V2 compressor with filters, or V3 codecs, mean?

Both become an `Encoding`: byte order and axis order are folded into it, the rest is the chain in the order of writing. Sharding is
no codec to us but a second grid inside of the object: it is taken out, level by level, with where its index lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError
from insitu.model import Codec, Encoding
from insitu.zarr_metadata.json_fields import field as needed
from insitu.zarr_metadata.json_fields import integers, mapping, named, text

__all__ = ["Chain", "Level", "from_v2", "from_v3"]

_VARYING = {"vlen-utf8": True, "vlen-bytes": False, "vlen-array": False, "string": True}
"""Codecs that hold values of varying length, and whether these are texts."""
SHARDING = "sharding_indexed"


@dataclass(frozen=True, slots=True)
class Level:
    """One level of sharding: a chunk that is itself a grid of chunks, with an index of where they lie."""

    inner: tuple[int, ...]
    """Shape of an inner chunk, in the order of the array's axes."""
    order: tuple[int, ...]
    """The array's axes in the order in which the index counts them."""
    index: Encoding
    """How the index (offset and length of each inner chunk) is encoded."""
    trailer: int
    """Bytes that the index has beside its numbers (checksums)."""
    at_end: bool
    """Whether the index stands at the end of the chunk."""


@dataclass(frozen=True, slots=True)
class Chain:
    """What the codecs of an array say."""

    dtype: np.dtype[Any]
    codecs: tuple[Codec, ...] = ()
    order: tuple[int, ...] | None = None
    levels: tuple[Level, ...] = field(default=())
    """Outermost first."""

    @property
    def text_values(self) -> bool:
        """Of values of varying length: whether they are texts."""
        return all(_VARYING.get(codec.name.removeprefix("numcodecs."), True) for codec in self.codecs[:1])


def from_v2(dtype: np.dtype[Any], ndim: int, filters: Any, compressor: Any, order: Any = "C") -> Chain:
    """The chain of a V2 array."""
    if order not in ("C", "F"):
        raise FormatError(f"order {order!r} is neither C nor F")
    if filters is not None and not isinstance(filters, list):
        raise FormatError("'filters' must be a list or null")
    codecs = [_codec_v2(item, "filters") for item in filters or ()]
    if compressor is not None:
        codecs.append(_codec_v2(compressor, "compressor"))
    if dtype.hasobject and not codecs:
        raise FormatError("objects need a filter that says how they are stored")
    return Chain(dtype, tuple(codecs), tuple(reversed(range(ndim))) if order == "F" and ndim > 1 else None)


def _codec_v2(value: Any, name: str) -> Codec:
    configuration = mapping(value, name)
    return Codec(text(needed(configuration, "id"), f"{name}.id"), {k: v for k, v in configuration.items() if k != "id"})


def from_v3(dtype: np.dtype[Any], shape: Sequence[int], codecs: Any, *, open_shards: bool = True) -> Chain:
    """The chain of a V3 array.

    Parameters
    ----------
    dtype
        Little-endian, as `dtypes.from_v3` gives it.
    shape
        Of a chunk.
    codecs
        The field of that name.
    open_shards
        Whether shards are looked into; else a shard is a chunk, and sharding one of its codecs.
    """
    if not isinstance(codecs, list) or not codecs:
        raise FormatError("'codecs' must be a list with at least one codec")
    steps = [named(item, "codecs") for item in codecs]
    axes = tuple(range(len(shape)))
    return _walk(dtype, tuple(shape), steps, axes, open_shards)


def _walk(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    steps: list[tuple[str, dict[str, Any]]],
    axes: tuple[int, ...],
    open_shards: bool = True,
) -> Chain:
    """The chain from some codec on; `axes`: the array's axes in the order that the codecs before have put them in."""
    chain: list[Codec] = []
    for position, (name, configuration) in enumerate(steps):
        if name == "transpose" and not chain:
            axes = tuple(axes[i] for i in _permutation(configuration.get("order"), len(axes)))
        elif name in ("bytes", "endian") and not chain:
            dtype = _ordered(dtype, configuration)
        elif name in ("bytes", "endian"):
            # Behind a codec that changes the type, the byte order is that of the changed type.
            if configuration.get("endian") == "big":
                chain.append(Codec("bytes", configuration))
        elif name == SHARDING and open_shards and not chain and position == len(steps) - 1:
            return _sharded(dtype, shape, configuration, axes)
        else:
            # Sharding too, if something stands behind it: then only the whole shard can be decoded.
            chain.append(Codec(name, configuration))
    if dtype.hasobject and not chain:
        raise FormatError("values of varying length need a codec that says how they are stored")
    return Chain(dtype, tuple(chain), axes if axes != tuple(sorted(axes)) else None)


def _sharded(
    dtype: np.dtype[Any], shape: tuple[int, ...], configuration: dict[str, Any], axes: tuple[int, ...]
) -> Chain:
    """The chain inside of a shard, with the level that leads there."""
    chunk = integers(needed(configuration, "chunk_shape"), "chunk_shape", least=1, count=len(shape))
    inner = [0] * len(shape)
    for size, axis in zip(chunk, axes, strict=True):
        inner[axis] = size
        if shape[axis] % size:
            raise FormatError(f"a shard of {shape} cannot be cut into chunks of {tuple(chunk)}")
    place = configuration.get("index_location", "end")
    if place not in ("start", "end"):
        raise FormatError(f"index_location {place!r} is neither start nor end")
    codecs = configuration.get("codecs")
    if not isinstance(codecs, list) or not codecs:
        raise FormatError("a shard's 'codecs' must be a list with at least one codec")
    index, trailer = _index(configuration.get("index_codecs"))
    level = Level(tuple(inner), axes, index, trailer, place == "end")
    rest = _walk(dtype, tuple(inner), [named(item, "codecs") for item in codecs], axes)
    return replace(rest, levels=(level, *rest.levels))


def _index(codecs: Any) -> tuple[Encoding, int]:
    """How a shard's index is encoded, and how many bytes that adds."""
    if not isinstance(codecs, list) or not codecs:
        raise FormatError("a shard's 'index_codecs' must be a list with at least one codec")
    dtype, chain, trailer = np.dtype("<u8"), [], 0
    for name, configuration in (named(item, "index_codecs") for item in codecs):
        if name in ("bytes", "endian"):
            dtype = _ordered(dtype, configuration)
        elif name == "crc32c":
            chain.append(Codec(name, configuration))
            trailer += 4
        else:
            raise UnsupportedError(f"a shard whose index went through {name!r} cannot be read: its size is not known")
    return Encoding(dtype, tuple(chain)), trailer


def _ordered(dtype: np.dtype[Any], configuration: Mapping[str, Any]) -> np.dtype[Any]:
    endian = configuration.get("endian", "little")
    if endian not in ("little", "big"):
        raise FormatError(f"{endian!r} is no byte order")
    return dtype if dtype.hasobject else dtype.newbyteorder("<" if endian == "little" else ">")


def _permutation(order: Any, ndim: int) -> tuple[int, ...]:
    if order in ("C", "F"):  # early writers of V3
        return tuple(range(ndim)) if order == "C" else tuple(reversed(range(ndim)))
    axes = integers(order, "order", count=ndim)
    if sorted(axes) != list(range(ndim)):
        raise FormatError(f"order {list(axes)} is no order of {ndim} axes")
    return axes
