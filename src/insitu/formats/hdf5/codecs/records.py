"""Decoder of compounds, arrays and sequences with variable-length or unusual members.

The description of such a type is a small tree. All elements of a batch are decoded along it
together, and what lies in heaps is fetched level by level. The codec `hdf5_record` is the case
without heaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import reading_configuration
from insitu.errors import CodecError
from insitu.formats.hdf5.codecs.fixed_text import end_texts
from insitu.formats.hdf5.codecs.odd_numbers import convert_numbers

__all__ = ["ElementType", "HeapLookup", "decode_elements", "decode_records", "hdf5_record", "parse_element_type"]

NAME = "hdf5_vlen"
RECORD = "hdf5_record"
DEPTH_LIMIT = 32

HeapLookup = Callable[[NDArray[Any]], list[bytes]]
"""The bytes that references (length, address, index) stand for; empty ones have none."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """One node of a type."""

    kind: str
    """plain, number, text, sequence or compound."""
    size: int
    """Bytes where it is stored."""
    dtype: np.dtype[Any]
    """What it becomes."""
    padding: str = ""
    """Of texts of fixed length."""
    base: ElementType | None = None
    """Of the elements of a sequence."""
    dims: tuple[int, ...] = ()
    """Of a sequence: the shape of each of its elements."""
    members: tuple[tuple[str, int, tuple[int, ...], ElementType], ...] = ()
    """Of a compound: name, offset, shape and type."""
    layout: Mapping[str, Any] | None = None
    """Of a number: which bits are its value, see `hdf5_number.converted`."""


def parse_element_type(description: Mapping[str, Any], reference: int, depth: int = 0) -> ElementType:
    """Build the tree of a type from its description.

    Parameters
    ----------
    description
        `kind` with `dtype` and `padding` (plain), `dtype` and `layout` (number), `base` and `dims`
        (sequence), or `size` and `members` (compound).
    reference
        Bytes of a reference into a heap.
    """
    if depth > DEPTH_LIMIT:
        raise CodecError(f"the type is nested more than {DEPTH_LIMIT} levels deep", codec=NAME)
    kind = description["kind"]
    if kind == "plain":
        dtype = np.dtype(description["dtype"])
        if dtype.hasobject:
            raise CodecError("a plain element type cannot hold Python objects", codec=NAME)
        return ElementType(kind, dtype.itemsize, dtype, str(description.get("padding", "")))
    if kind == "number":
        return ElementType(
            kind, int(description["layout"]["size"]), np.dtype(description["dtype"]), layout=description["layout"]
        )
    if kind == "text":
        return ElementType(kind, reference, np.dtype(object))
    if kind == "sequence":
        base = parse_element_type(description["base"], reference, depth + 1)
        return ElementType(
            kind, reference, np.dtype(object), base=base, dims=tuple(int(n) for n in description.get("dims", ()))
        )
    if kind != "compound":
        raise CodecError(f"the type has the unknown kind {kind!r}", codec=NAME)
    size = int(description["size"])
    members = []
    for name, offset, dims, inner in description["members"]:
        member = parse_element_type(inner, reference, depth + 1)
        shape = tuple(int(n) for n in dims)
        if offset < 0 or offset + member.size * math.prod(shape) > size:
            raise CodecError(f"member {name!r} lies outside of its element of {size} bytes", codec=NAME)
        members.append((str(name), int(offset), shape, member))
    fields: list[Any] = [(name, member.dtype, shape) for name, _, shape, member in members]
    return ElementType(kind, size, np.dtype(fields), members=tuple(members))


def decode_elements(element: ElementType, stored: NDArray[np.uint8], heaps: HeapLookup) -> NDArray[Any]:
    """Return the values of elements.

    Parameters
    ----------
    element
        Their type.
    stored
        Their bytes: (elements, size).
    heaps
        Gives the bytes that references stand for.
    """
    count = len(stored)
    if element.kind == "plain":
        raw = np.ascontiguousarray(stored)
        if element.padding:
            raw = raw.copy()
            end_texts(raw, element.padding)
        return raw.reshape(-1).view(element.dtype) if count else np.empty(0, element.dtype)
    if element.layout is not None:
        return convert_numbers(np.ascontiguousarray(stored), element.layout, element.dtype)
    if element.kind == "compound":
        out = np.empty(count, element.dtype)
        for name, offset, shape, member in element.members:
            part = stored[:, offset : offset + member.size * math.prod(shape)].reshape(-1, member.size)
            out[name] = decode_elements(member, part, heaps).reshape(count, *shape)
        return out
    width = element.size - 8
    kind = np.dtype([("length", "<u4"), ("address", f"<u{width}"), ("index", "<u4")])
    references = np.ascontiguousarray(stored).reshape(-1).view(kind) if count else np.empty(0, kind)
    values = np.empty(count, object)
    found = heaps(references)
    if element.kind == "text":
        for number, (data, length) in enumerate(zip(found, references["length"].tolist(), strict=True)):
            values[number] = data[:length].split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        return values
    assert element.base is not None
    each = element.base.size * math.prod(element.dims)
    lengths = references["length"].astype(np.int64)
    if any(len(data) < length * each for data, length in zip(found, lengths.tolist(), strict=True) if data):
        raise CodecError("an object in the heap is shorter than the sequence that it holds", codec=NAME)
    lengths[[not data for data in found]] = 0
    joined = b"".join(data[: length * each] for data, length in zip(found, lengths.tolist(), strict=True))
    raw = np.frombuffer(joined, np.uint8).reshape(-1, element.base.size)
    inner = decode_elements(element.base, raw, heaps).reshape(-1, *element.dims)
    at = 0
    for number, length in enumerate(lengths.tolist()):
        values[number] = inner[at : at + length].copy()
        at += length
    return values


def hdf5_record(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare from the `type` of elements without heaps: see `parse_element_type`."""
    with reading_configuration(RECORD):
        element = parse_element_type(configuration["type"], 0)
    if form.dtype is None or not form.exact or element.dtype != form.dtype or element.dtype.hasobject:
        raise CodecError("hdf5_record needs elements of a known fixed size", codec=RECORD)

    def run(data: Data, out: Octets | None) -> Data:
        values = decode_records(as_octets(data), configuration).view(np.uint8)
        if out is None:
            return values
        out[:] = values
        return out

    return DecodeStep(
        RECORD, run, BufferSpec(form.count * element.size, True, np.dtype(f"V{element.size}"), form.shape), fills=True
    )


def decode_records(data: Any, configuration: Configuration) -> NDArray[Any]:
    """Return the elements in `data`, which refer to no heaps."""
    element = parse_element_type(configuration["type"], 0)
    return decode_elements(element, np.frombuffer(data, np.uint8).reshape(-1, element.size), _no_heaps)


def _no_heaps(references: NDArray[Any]) -> list[bytes]:
    raise CodecError("hdf5_record cannot hold variable-length values", codec=RECORD)
