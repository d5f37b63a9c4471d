"""Encoding: how the bytes of a chunk become values (element type, codecs, axis order, fill).

HDF5 filter pipelines, Zarr V2 compressor + filters and Zarr V3 codecs all become one chain: the
element type with its byte order, the codecs in the order in which they were applied when writing,
and the order of the axes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from insitu.errors import ModelError

__all__ = ["Codec", "Encoding"]


@dataclass(frozen=True, slots=True)
class Codec:
    """One codec of a chain."""

    name: str
    """Zarr v3 name, e.g. `zlib`, `shuffle`."""
    configuration: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Its parameters, as JSON would hold them."""
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        text = json.dumps(dict(self.configuration), sort_keys=True, default=repr)
        object.__setattr__(self, "configuration", dict(self.configuration))
        object.__setattr__(self, "_hash", hash((self.name, text)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # The hash of a text differs from process to process, so it must not travel.
        return Codec, (self.name, self.configuration)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How one chunk's bytes become stored values."""

    dtype: np.dtype[Any]
    """Type of the decoded elements, with byte order; object for values of varying length."""
    codecs: tuple[Codec, ...] = ()
    """In the order of writing; bit i of a chunk's filter mask set: `codecs[i]` was skipped."""
    order: tuple[int, ...] | None = None
    """The chunk's axes from slowest to fastest varying; None: as they come (C)."""
    fill: bytes | None = None
    """Raw bytes of one element of a chunk that was never written; None: zeros.

    Elements with parts of varying length are written part after part, such parts behind their
    length (four bytes).
    """

    def __post_init__(self) -> None:
        if self.order is not None:
            if sorted(self.order) != list(range(len(self.order))):
                raise ModelError(f"order {self.order} is not a permutation of axes")
            if self.order == tuple(range(len(self.order))):
                object.__setattr__(self, "order", None)
        if self.fill is not None and not self.dtype.hasobject and len(self.fill) != self.dtype.itemsize:
            raise ModelError(
                f"the fill value has {len(self.fill)} bytes, an element of {self.dtype} {self.dtype.itemsize}"
            )

    @property
    def raw(self) -> bool:
        """Whether the bytes are the values: no codec, C order, fixed size."""
        return not self.codecs and self.order is None and not self.dtype.hasobject

    def fill_value(self) -> Any:
        """Return an element of a chunk that was never written, as a scalar of `dtype`."""
        if self.dtype.hasobject:
            if self.codecs and self.codecs[0].name.removeprefix("numcodecs.") == "vlen-bytes":
                return self.fill or b""
            description = self.codecs[0].configuration if self.codecs else {}
            if self.fill is not None and "type" in description:
                return _parse_fill_element(description["type"], self.fill, 0)[0]
            return _empty_element(self.dtype, description.get("type", description), self.fill)
        raw = self.fill if self.fill is not None else bytes(self.dtype.itemsize)
        if not self.dtype.itemsize:
            return np.zeros((), self.dtype)[()]
        return np.frombuffer(raw, self.dtype, count=1)[0]


def _empty_element(dtype: np.dtype[Any], description: Mapping[str, Any], fill: bytes | None) -> Any:
    """Return an element of varying length that was never written: an empty text or sequence, or a
    record of those.

    A sequence is returned in an array without axes.

    Parameters
    ----------
    dtype
        Type of the element.
    description
        The type in the codec's configuration: `kind`, with `base` (of sequences) or `members` (of
        records).
    fill
        Its content, if it is not empty.
    """
    if dtype.names is not None:
        record = np.zeros((), dtype)
        for name, _, _, member in description.get("members", ()):
            if dtype[name].hasobject:
                record[name] = _empty_element(dtype[name].base, member, None)
        return record[()]
    if description.get("kind") == "sequence":
        base = description.get("base", "u1")
        sequence = np.empty((), object)
        if isinstance(base, str):
            sequence[()] = np.frombuffer(fill or b"", base)
        else:
            sequence[()] = np.empty((0, *description.get("dims", ())), _element_dtype(base))
        return sequence
    return "" if fill is None else fill.decode("utf-8", "surrogateescape")


def _parse_fill_element(description: Mapping[str, Any], fill: bytes, at: int) -> tuple[Any, int]:
    """Parse an element that is written part after part; return it and the offset of its end.

    Parameters
    ----------
    description
        Its type in the codec's configuration.
    fill, at
        The bytes, and the offset at which the element begins.
    """
    kind = description["kind"]
    if kind in ("text", "sequence"):
        count = int.from_bytes(fill[at : at + 4], "little")
        at += 4
        if count > len(fill) - at:
            raise ModelError(f"the fill value is truncated: {count} bytes are declared, {len(fill) - at} are left")
        if kind == "text":
            return fill[at : at + count].decode("utf-8", "surrogateescape"), at + count
        dims = tuple(description.get("dims", ()))
        sequence, items = np.empty((), object), np.empty((count, *dims), _element_dtype(description["base"]))
        for place in np.ndindex(items.shape):
            items[place], at = _parse_fill_element(description["base"], fill, at)
        sequence[()] = items
        return sequence, at
    if kind == "compound":
        record = np.zeros((), _element_dtype(description))
        for name, _, shape, member in description["members"]:
            for place in np.ndindex(tuple(shape)):
                value, at = _parse_fill_element(member, fill, at)
                record[name][place] = value.item() if member["kind"] == "sequence" else value
        return record[()], at
    dtype = np.dtype(description["dtype"])
    return np.frombuffer(fill, dtype, 1, at)[0], at + dtype.itemsize


def _element_dtype(description: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the dtype of a type in a codec's configuration."""
    if description["kind"] == "compound":
        fields: list[Any] = [
            (name, _element_dtype(member), tuple(shape)) for name, _, shape, member in description["members"]
        ]
        return np.dtype(fields)
    return np.dtype(description["dtype"]) if "dtype" in description else np.dtype(object)
