"""Values of the attributes of an object, its dimension scales, and what could not be read.

Files of one archive are alike: most of their objects have the same attributes as the object of the
same name in the file before. So attributes that are in memory are parsed together, once for all
objects that have the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from insitu.errors import InsituError, UnsupportedError
from insitu.formats.hdf5.structures.attribute_messages import (
    Attribute,
    HeapRecord,
    attribute_bodies,
    collection_in_memory,
    heap_records,
    parse_plain_attribute,
    read_attributes,
    read_heap_values,
)
from insitu.formats.hdf5.structures.attribute_values import NO_VALUE, heap_value
from insitu.formats.hdf5.structures.datatype import Datatype
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.messages import Message
from insitu.formats.hdf5.structures.nested_values import read_nested_value
from insitu.formats.hdf5.structures.object_references import SCALE_ATTRIBUTES, read_references
from insitu.formats.hdf5.structures.type_description import needs_element_decoder
from insitu.formats.parsing.scheduler import Walk
from insitu.lru import LruCache

__all__ = ["AttributeValues", "attributes_in_memory", "attributes_of_text", "read_attribute_values"]

SCALES = "DIMENSION_LIST"
NOT_SUPPORTED = "references of this kind are not supported"
_MUTABLE = (list, np.ndarray)


class AttributeValues(NamedTuple):
    """The attributes of one object."""

    values: dict[str, Any]
    scales: list[list[int]]
    """For each axis the addresses of the dimension scales attached to it; empty: none attached."""
    problems: dict[str, str]
    """Attributes that could not be read: why."""


@dataclass(frozen=True, slots=True)
class _AttributeSet:
    """Attributes that were parsed together; shared by all objects that have the same bytes."""

    values: dict[str, Any]
    """`NO_VALUE` for those in a heap."""
    mutable: tuple[str, ...]
    """Attributes whose value each object needs a copy of."""
    heaped: tuple[tuple[str, Datatype, bytes], ...]
    """Attributes whose values lie in a heap, dimension scales among them: name, type, references into the heap."""
    problems: dict[str, str]
    size: int
    """Bytes of the messages."""


_sets: LruCache[tuple[int, bytes | tuple[bytes, ...]], _AttributeSet] = LruCache(
    8 << 20, lambda one: 512 + 4 * one.size
)
"""Bounded in bytes, roughly: the messages are kept as keys, and their parts as values."""


def attributes_in_memory(file: FileContext, messages: list[Message]) -> AttributeValues | None:
    """Return the attributes of an object if everything about them is in memory and plain.

    None otherwise, and if something is wrong with them: `read_attribute_values` finds out what.
    """
    try:
        bodies = attribute_bodies(file, messages)
        known = None if bodies is None else _recall_set(bodies, file.length_size)
        return None if known is None else _fill_in(file, known, None)
    except InsituError:
        return None


def attributes_of_text(file: FileContext, text: bytes, values: tuple[bytes, ...]) -> AttributeValues | None:
    """Return the attributes of an object that the compiled parser has read; None if they are not plain.

    Parameters
    ----------
    file, text
        Their messages: see `CompiledObject`.
    values
        What their references into heaps stand for.
    """
    try:
        known = _recall_set(text, file.length_size)
        return None if known is None else _fill_in(file, known, values)
    except InsituError:
        return None


def _recall_set(messages: bytes | tuple[bytes, ...], length_size: int) -> _AttributeSet | None:
    """Parse attribute messages, unless an object before had the same."""
    key = (length_size, messages)
    known = _sets.get(key)
    if known is None:
        known = _parse_together(_split(messages) if isinstance(messages, bytes) else messages, length_size)
        if known is not None:
            _sets.put(key, known)
    return known


def _split(text: bytes) -> list[bytes]:
    """Return messages that lie one behind the other, each behind its length."""
    bodies, at = [], 0
    while at < len(text):
        begin = at + 4
        at = begin + int.from_bytes(text[at:begin], "little")
        bodies.append(text[begin:at])
    return bodies


def _parse_together(bodies: Iterable[bytes], length_size: int) -> _AttributeSet | None:
    """Parse attribute messages; None if one needs more than its own bytes and those of a heap."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    heaped: list[tuple[str, Datatype, bytes]] = []
    size = 0
    for body in bodies:
        size += len(body)
        attribute = parse_plain_attribute(body, length_size)
        if attribute is None or _has_references(attribute):
            return None
        name, datatype = attribute.name, attribute.datatype
        values[name] = attribute.value
        if attribute.value is not NO_VALUE:
            continue
        if datatype is not None and needs_element_decoder(datatype):
            return None
        if datatype is None or not datatype.is_variable_length:
            _drop(values, problems, name, attribute.problem)
        else:
            heaped.append((name, datatype, attribute.data))
            if _holds_scales(name, datatype):
                del values[name]  # which are not shown
    mutable = tuple(name for name, value in values.items() if type(value) in _MUTABLE)
    return _AttributeSet(values, mutable, tuple(heaped), problems, size)


def _fill_in(file: FileContext, known: _AttributeSet, found: tuple[bytes, ...] | None) -> AttributeValues | None:
    """Return the attributes of one object, with its own copies and what its file has in heaps.

    Parameters
    ----------
    file, known
        The file, and the attributes.
    found
        What all references into heaps stand for, if that is known.
    """
    values, problems = known.values.copy(), known.problems.copy()
    for name in known.mutable:
        values[name] = values[name].copy()
    scales: list[list[int]] = []
    at, step = 0, 8 + file.offset_size
    for name, datatype, data in known.heaped:
        if found is None:
            heap = _heap_values_in_memory(file, heap_records(file, data))
            if heap is None:
                return None
        else:
            count = len(data) // step
            heap = list(found[at : at + count])
            at += count
        if name == SCALES and _holds_scales(name, datatype):
            scales = [_reference_addresses(file, value, datatype) for value in heap]
        else:
            _set_heap_value(file, name, datatype, heap, values, problems)
    if found is not None and at != len(found):
        return None  # of an attribute whose type is not read
    return AttributeValues(values, scales, problems)


def _heap_values_in_memory(file: FileContext, records: list[HeapRecord]) -> list[bytes] | None:
    """Return the bytes that references stand for if they are in memory; empty ones have none."""
    values, total = [], 0
    for record in records:
        heap = collection_in_memory(file, record.address) if record.length else None
        value = heap.get(record.number) if heap is not None else None if record.length else b""
        if value is None:
            return None
        total += len(value)
        values.append(value)
    return values if total <= file.heap_value_limit else None


def _has_references(attribute: Attribute) -> bool:
    """Whether the value holds references that are to be shown."""
    return (
        attribute.datatype is not None
        and attribute.datatype.has_references
        and attribute.name not in SCALE_ATTRIBUTES
        and not attribute.space.null
    )


def _holds_scales(name: str, datatype: Datatype) -> bool:
    return name == SCALES and datatype.base is not None and datatype.base.kind == "reference"


def _drop(values: dict[str, Any], problems: dict[str, str], name: str, reason: str) -> None:
    """Leave out an attribute that has no value to show."""
    del values[name]
    if name not in SCALE_ATTRIBUTES:
        problems[name] = reason or NOT_SUPPORTED


def _set_heap_value(
    file: FileContext,
    name: str,
    datatype: Datatype,
    heap: list[bytes],
    values: dict[str, Any],
    problems: dict[str, str],
) -> list[list[int]]:
    """Set the value of an attribute whose elements lie in a heap; return the scales in it."""
    values[name] = heap_value(datatype, heap)
    if values[name] is NO_VALUE:
        _drop(values, problems, name, "")
    return [_reference_addresses(file, value, datatype) for value in heap] if name == SCALES else []


def read_attribute_values(file: FileContext, messages: list[Message]) -> Walk[AttributeValues]:
    """Return the values of an object's attributes, its dimension scales, and what could not be
    read.
    """
    attributes = yield from read_attributes(file, messages)
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    scales: list[list[int]] = []
    heaped: list[tuple[str, Datatype, list[HeapRecord]]] = []
    for attribute in attributes:
        value, datatype = attribute.value, attribute.datatype
        if type(value) in _MUTABLE:
            value = value.copy()  # the attribute itself is remembered, for other files
        values[attribute.name] = value
        if _has_references(attribute):
            try:
                values[attribute.name] = yield from read_references(file, attribute)
            except UnsupportedError as problem:
                del values[attribute.name]
                problems[attribute.name] = problem.message
        elif value is NO_VALUE:
            if datatype is not None and needs_element_decoder(datatype):
                values[attribute.name] = yield from read_nested_value(file, attribute)
            elif datatype is not None and datatype.is_variable_length:
                heaped.append((attribute.name, datatype, heap_records(file, attribute.data)))
            else:
                _drop(values, problems, attribute.name, attribute.problem)
    if heaped:
        found = yield from read_heap_values(file, [record for _, _, records in heaped for record in records])
        at = 0
        for name, datatype, records in heaped:
            heap = found[at : at + len(records)]
            at += len(records)
            scales = _set_heap_value(file, name, datatype, heap, values, problems) or scales
    return AttributeValues(values, scales, problems)


def _reference_addresses(file: FileContext, value: bytes, datatype: Datatype) -> list[int]:
    """Return the addresses in a sequence of object references.

    References may be wider than the addresses of this file.
    """
    width = file.offset_size
    if len(value) == width:  # nearly always
        return [int.from_bytes(value, "little")]
    step = datatype.base.size if datatype.base is not None and datatype.base.size else width
    return [int.from_bytes(value[at : at + width], "little") for at in range(0, len(value) - width + 1, step)]
