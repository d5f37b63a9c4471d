"""Reader of the attributes of an object.

Attribute messages of versions 1 to 3, in the object header or, if there are many, in a fractal
heap: format specification 3.0, IV.A.2.m and IV.A.2.v. Variable-length values lie in global heaps,
which are read in one more batch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.codecs.global_heap import COLLECTION_GUESS, HEADER_SIZE, collection_size, parse_collection
from insitu.formats.hdf5.structures.attribute_values import NO_VALUE, plain_value
from insitu.formats.hdf5.structures.dataspace import Dataspace, parse_dataspace
from insitu.formats.hdf5.structures.datatype import Datatype, parse_datatype
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.message_cache import parse_once, recall, remember
from insitu.formats.hdf5.structures.messages import ATTRIBUTE, ATTRIBUTE_INFO, DATASPACE, DATATYPE, Message
from insitu.formats.parsing.fields import check_length
from insitu.formats.parsing.scheduler import Parallel, Shared, Walk

__all__ = [
    "Attribute",
    "HeapRecord",
    "attribute_bodies",
    "collection_in_memory",
    "heap_collection",
    "heap_records",
    "parse_plain_attribute",
    "read_attributes",
    "read_heap_values",
]

# Written by the dimension scale library for its own use; nobody asks for it, and it is other bytes
# in each file.
_SKIPPED_NAME = b"REFERENCE_LIST"


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    """A named value, still as bytes."""

    name: str
    datatype: Datatype | None
    """None: a type that is not read; `problem` says which."""
    space: Dataspace
    data: bytes
    """The elements; for values of varying length their records (see `HeapRecord`)."""
    value: Any = NO_VALUE
    """What it says; `NO_VALUE` where that lies in a heap, or cannot be shown."""
    problem: str = ""


class HeapRecord(NamedTuple):
    """Where a value of varying length lies: format specification 3.0, IV.B, "Variable-Length"."""

    length: int
    address: int
    number: int


def read_attributes(file: FileContext, messages: list[Message]) -> Walk[list[Attribute]]:
    """Return all attributes of an object, in creation order if that is tracked."""
    found: list[tuple[int, Attribute]] = []
    # Shared and dense ones are resolved first; what is left is parsed without another read.
    bodies: list[tuple[int, bytes]] = []
    for message in messages:
        if message.kind == ATTRIBUTE:
            if message.shared:
                from insitu.formats.hdf5.structures.shared_messages import resolve_shared

                message = yield from resolve_shared(file, message)
            bodies.append((message.order, message.body))
        elif message.kind == ATTRIBUTE_INFO:
            bodies += yield from _read_dense(file, message.body)
    width = file.length_size
    for order, body in bodies:
        if _name(body) == _SKIPPED_NAME:
            continue
        attribute = parse_plain_attribute(body, width)
        if attribute is None:
            attribute = yield from _parse_with_shared_parts(file, body)
        found.append((order, attribute))
    found.sort(key=itemgetter(0))
    return [attribute for _, attribute in found]


def attribute_bodies(file: FileContext, messages: list[Message]) -> tuple[bytes, ...] | None:
    """Return the attribute messages of an object, in creation order, if all are in memory.

    None also if one is shared. Without those that are not shown.
    """
    bodies: list[tuple[int, bytes]] = []
    for message in messages:
        if message.kind == ATTRIBUTE:
            if message.flags & 2:  # shared
                return None
            bodies.append((message.order, message.body))
        elif message.kind == ATTRIBUTE_INFO:
            dense = _dense_in_memory(file, message.body)
            if dense is None:
                return None
            bodies += dense
    bodies.sort(key=itemgetter(0))
    return tuple([body for _, body in bodies if _name(body) != _SKIPPED_NAME])


def parse_plain_attribute(body: bytes, length_size: int) -> Attribute | None:
    """Parse an attribute message; None if its datatype or dataspace is shared."""
    key = (length_size, body)
    attribute: Attribute | None = recall(key)
    if attribute is None and not (len(body) > 1 and body[0] > 1 and body[1] & 3):
        attribute = _parse(body, length_size, None, None)
        # References and heap records are other bytes in every file.
        datatype = attribute.datatype
        if datatype is None or not (
            datatype.is_variable_length or datatype.kind == "reference" or datatype.has_nested_variable_length
        ):
            remember(key, len(body), attribute)
    return attribute


def _dense_in_memory(file: FileContext, body: bytes) -> list[tuple[int, bytes]] | None:
    """Return what `_read_dense` does if that is in memory and no message is shared, else None."""
    heap, tree = _dense_addresses(file, body)
    if heap == file.undefined or tree == file.undefined:
        return []
    from insitu.formats.hdf5.structures.btree_v2 import cached_records
    from insitu.formats.hdf5.structures.fractal_heap import cached_heap_objects

    records = cached_records(file, tree, (8,))
    if records is None:
        return None
    own, shared, orders = _split_records(records)
    bodies = None if shared else cached_heap_objects(file, heap, own)
    return None if bodies is None else list(zip(orders, bodies, strict=True))


def _dense_addresses(file: FileContext, body: bytes) -> tuple[int, int]:
    """Return where heap and B-tree of an attribute info message lie."""
    width = file.offset_size
    check_length(body, 2, "attribute info message")
    at = 2 + (2 if body[1] & 1 else 0)
    check_length(body, at + 2 * width, "attribute info message")
    end = at + width
    return int.from_bytes(body[at:end], "little"), int.from_bytes(body[end : end + width], "little")


def _read_dense(file: FileContext, body: bytes) -> Walk[list[tuple[int, bytes]]]:
    """Return the attributes in a fractal heap, by the B-tree of their names.

    Record type 8: id, flags, creation order, hash.
    """
    heap, tree = _dense_addresses(file, body)
    if heap == file.undefined or tree == file.undefined:
        return []
    from insitu.formats.hdf5.structures.btree_v2 import read_records
    from insitu.formats.hdf5.structures.fractal_heap import read_heap_objects

    records = yield from read_records(file, tree, (8,))
    own, shared, orders = _split_records(records)
    bodies = yield from read_heap_objects(file, heap, own)
    if shared:
        from insitu.formats.hdf5.structures.shared_messages import read_shared_in_heap

        bodies += yield from read_shared_in_heap(file, ATTRIBUTE, shared)
    return list(zip(orders, bodies, strict=True))


@lru_cache(maxsize=1024)
def _split_records(records: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[int, ...]]:
    """Return the ids in the object's own heap, those of shared messages, and the order of all."""
    own = [record for record in records if not record[8] & 2]
    shared = [record for record in records if record[8] & 2]
    orders = tuple(int.from_bytes(record[9:13], "little") for record in own + shared)
    return tuple(record[:8] for record in own), tuple(record[:8] for record in shared), orders


def _field_sizes(body: bytes) -> tuple[int, int, int, int]:
    """Where the name begins, and the lengths of name, datatype and dataspace."""
    check_length(body, 8, "attribute message")
    version = body[0]
    if version not in (1, 2, 3):
        raise FormatError(f"the attribute message has version {version}, only 1 to 3 are known", structure="attribute")
    begin = 9 if version == 3 else 8
    return begin, body[2] | body[3] << 8, body[4] | body[5] << 8, body[6] | body[7] << 8


def _name(body: bytes) -> bytes:
    begin, length, _, _ = _field_sizes(body)
    return body[begin : begin + max(length - 1, 0)].split(b"\0", 1)[0]  # the last byte is the closing zero


def _parse(body: bytes, length_size: int, datatype: bytes | None, space: bytes | None) -> Attribute:
    """Parse an attribute message; shared parts are given as they are."""
    begin, *part_sizes = _field_sizes(body)
    at_data = begin + sum([(size + 7) // 8 * 8 for size in part_sizes] if body[0] == 1 else part_sizes)
    # What comes before the data is often known, even where the data (an address) is not.
    name, kind, extent, problem = parse_once(_parse_head, body[:at_data], length_size, datatype, space)
    if at_data > len(body):
        raise FormatError(
            f"the attribute {name!r} is cut off: its value is longer than its message", structure="attribute"
        )
    if kind is None:
        return Attribute(name, None, extent, b"", problem=problem)
    length = extent.count * kind.size
    if at_data + length > len(body):
        raise FormatError(
            f"the attribute {name!r} is cut off: its value is longer than its message", structure="attribute"
        )
    data = body[at_data : at_data + length]
    return Attribute(name, kind, extent, data, plain_value(name, kind, extent, data))


def _parse_head(
    body: bytes, length_size: int, datatype: bytes | None, space: bytes | None
) -> tuple[str, Datatype | None, Dataspace, str]:
    """Name, type, extent and, of a type that is not read, which it is."""
    begin, *part_sizes = _field_sizes(body)
    name = _name(body).decode("utf-8", "surrogateescape")
    steps = [(size + 7) // 8 * 8 if body[0] == 1 else size for size in part_sizes]
    at_type = begin + steps[0]
    at_space = at_type + steps[1]
    extent = parse_once(parse_dataspace, space or body[at_space : at_space + part_sizes[2]], length_size)
    try:
        kind = parse_once(parse_datatype, datatype or body[at_type : at_type + part_sizes[1]])
    except UnsupportedError as problem:
        return name, None, extent, problem.message
    return name, kind, extent, ""


def _parse_with_shared_parts(file: FileContext, body: bytes) -> Walk[Attribute]:
    """Bit 0 of the flags: the datatype is elsewhere (committed); bit 1: the dataspace."""
    from insitu.formats.hdf5.structures.shared_messages import read_shared

    begin, name, kind, space = _field_sizes(body)
    at = begin + name
    datatype = extent = None
    if body[1] & 1:
        datatype = yield from read_shared(file, DATATYPE, body[at : at + kind])
    if body[1] & 2:
        extent = yield from read_shared(file, DATASPACE, body[at + kind : at + kind + space])
    return _parse(body, file.length_size, datatype, extent)


def heap_records(file: FileContext, data: bytes) -> list[HeapRecord]:
    """Return references into heaps: number of elements, collection address, object number."""
    form = _RECORDS[file.offset_size]
    return [HeapRecord._make(fields) for fields in form.iter_unpack(data[: len(data) // form.size * form.size])]


_RECORDS = {width: struct.Struct(f"<I{letter}I") for width, letter in ((2, "H"), (4, "I"), (8, "Q"))}


def read_heap_values(file: FileContext, records: list[HeapRecord]) -> Walk[list[bytes]]:
    """Return the bytes that references stand for; empty ones have none."""
    nowhere = (0, file.undefined)
    addresses = list({r.address: None for r in records if r.length and r.address not in nowhere})
    walks = [heap_collection(file, a) for a in addresses]
    # Nearly always one: then without the detour through `Parallel`.
    parsed = [(yield walks[0])] if len(walks) == 1 else (yield Parallel(walks))
    heaps = dict(zip(addresses, parsed, strict=True))
    values, total = [], 0
    for record in records:
        heap = heaps.get(record.address)
        value = heap.get(record.number) if heap is not None and record.length else b""
        if value is None:
            file.fail(f"has no object {record.number}", record.address, "global heap collection")
        total += len(value)
        if total > file.heap_value_limit:
            file.fail(
                "holds objects that are used again and again: the references are damaged",
                record.address,
                "global heap collection",
            )
        values.append(value)
    return values


def heap_collection(file: FileContext, address: int) -> Shared:
    """Return the shared walk that reads the global heap collection at an address."""
    return Shared(("global heap", address), _CollectionReader(file, address))


def collection_in_memory(file: FileContext, address: int) -> dict[int, bytes] | None:
    """Return the objects of a global heap collection if it is in memory, else None."""
    known = file.collections.get(address)
    if known is None:
        data = file.peek(*file.range_up_to(address, COLLECTION_GUESS, HEADER_SIZE, "global heap collection"))
        if data is None:
            return None
        size = collection_size(data, file.length_size)
        if size > len(data):
            return None
        known = file.collections[address] = parse_collection(data[:size], file.length_size)
    return known


class _CollectionReader:
    """The walk over one global heap collection, made when it is first needed."""

    __slots__ = ("address", "file")

    def __init__(self, file: FileContext, address: int) -> None:
        self.file, self.address = file, address

    def __call__(self) -> Walk[dict[int, bytes]]:
        file, address = self.file, self.address
        known = collection_in_memory(file, address)
        if known is not None:
            return known
        place = file.range_up_to(address, COLLECTION_GUESS, HEADER_SIZE, "global heap collection")
        (data,) = yield [place]
        size = collection_size(data, file.length_size)
        if size > len(data):
            (data,) = yield [file.range(address, size, "global heap collection")]
        return parse_collection(data[:size], file.length_size)
