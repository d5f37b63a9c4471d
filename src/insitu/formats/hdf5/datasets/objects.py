"""Reader of the objects of a file: groups, datasets and committed datatypes.

The compiled parser reads what lies in the head of the file and is plain. For each of the others a walk
reads the object header, then in parallel the attributes of the object, its links or its chunk index.
An object is read once, however many links lead to it, so a cycle of links is harmless.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from insitu.errors import InsituError
from insitu.formats.hdf5.datasets.chunk_index import chunk_grid, read_chunks
from insitu.formats.hdf5.datasets.object_attributes import (
    attributes_in_memory,
    attributes_of_text,
    read_attribute_values,
)
from insitu.formats.hdf5.structures.attribute_messages import HeapRecord, read_heap_values
from insitu.formats.hdf5.structures.chunk_rows import ChunkRows
from insitu.formats.hdf5.structures.compiled_metadata import (
    DATASET,
    GROUP,
    NAMED_TYPE,
    NOT_PLAIN,
    CompiledObject,
    read_compiled,
    to_columns,
)
from insitu.formats.hdf5.structures.dataspace import Dataspace, parse_dataspace
from insitu.formats.hdf5.structures.datatype import Datatype, parse_datatype
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.fill_value import Fill, parse_fill, parse_old_fill, resolve_fill
from insitu.formats.hdf5.structures.layout import (
    ChunkedLayout,
    CompactLayout,
    ContiguousLayout,
    Layout,
    VirtualLayout,
    parse_layout,
)
from insitu.formats.hdf5.structures.links import Link, read_links
from insitu.formats.hdf5.structures.message_cache import parse_once
from insitu.formats.hdf5.structures.messages import (
    DATASPACE,
    DATATYPE,
    EXTERNAL_FILES,
    FILL,
    FILL_OLD,
    FILTERS,
    GROUP_INFO,
    LAYOUT,
    LINK,
    LINK_INFO,
    SYMBOL_TABLE,
    Message,
)
from insitu.formats.hdf5.structures.pipeline import Filter, parse_filters
from insitu.formats.parsing.scheduler import Parallel, Walk, to_format_error

if TYPE_CHECKING:
    from insitu.formats.hdf5.datasets.virtual_mapping import SourceMapping

__all__ = ["Dataset", "Description", "Group", "ObjectTable", "read_chunk_index", "read_objects"]

UNKNOWN_TYPE = Datatype("unread", 0, np.dtype("V"))


class ExternalSegment(NamedTuple):
    """A part of another file."""

    name: str
    offset: int
    size: int | None
    """None: up to the end of the data."""


@dataclass(frozen=True, slots=True, eq=False)
class Description:
    """What the messages of a dataset say that are the same in all files of an archive."""

    space: Dataspace
    datatype: Datatype
    layout: Layout
    """Without the address."""
    filters: tuple[Filter, ...]
    fill: Fill
    grid: tuple[int, ...] | None
    """Chunks along each axis, if there are chunks of as many axes."""
    forms: dict[tuple[int, ...], Any] = field(default_factory=dict)
    """What `arrays` has made of it, by shape."""


@dataclass(slots=True)
class Dataset:
    """An array in the file."""

    address: int
    space: Dataspace
    committed: bool
    """Whether its type has a name in the file."""
    datatype: Datatype = UNKNOWN_TYPE
    layout: Layout = CompactLayout(b"")  # noqa: RUF009  # frozen
    filters: tuple[Filter, ...] = ()
    fill: Fill = Fill(None, "default")  # noqa: RUF009  # frozen
    attributes: dict[str, Any] = field(default_factory=dict)
    scales: list[list[int]] = field(default_factory=list)
    """For each axis the addresses of the dimension scales attached to it; empty: none attached."""
    problems: dict[str, str] = field(default_factory=dict)
    """Attributes that could not be read."""
    chunks: ChunkRows | None = None
    """Set once the index was read."""
    mappings: tuple[SourceMapping, ...] = ()
    """Of a virtual dataset: what it is made of."""
    segments: tuple[ExternalSegment, ...] = ()
    """The parts of other files that the data lies in."""
    problem: InsituError | None = None
    """Why its data cannot be taken. Its extent is known even so: netCDF counts its dimensions."""
    described: Description | None = None
    """Shared by all datasets of the same messages, if they are plain."""


@dataclass(slots=True)
class Group:
    """Names for objects."""

    address: int
    links: list[Link]
    """In order of creation where that is kept, else by name."""
    attributes: dict[str, Any] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def children(self) -> list[int]:
        """Addresses of what it links to in its own file."""
        return [link.address for link in self.links if link.address is not None]


_DESCRIPTION = frozenset({DATASPACE, DATATYPE, LAYOUT, FILL, FILL_OLD, FILTERS, EXTERNAL_FILES})

ObjectTable = dict[int, "Group | Dataset | InsituError | None"]
"""By address. None: an object that holds no data (a datatype). An error: what is wrong with it."""


def read_objects(
    file: FileContext, addresses: Iterable[int], objects: ObjectTable, *, indexed: bool, deep: bool
) -> Walk[None]:
    """Read objects, and those that they link to, into `objects`.

    Parameters
    ----------
    file, addresses
        Where their headers lie.
    objects
        What to add to; an address that is in it already is not read again.
    indexed
        Whether to read the chunk indexes of datasets.
    deep
        Whether to go on to what groups link to.
    """
    left = [address for address in dict.fromkeys(addresses) if address not in objects]
    if not left:
        return
    unindexed: list[Dataset] = []
    compiled = read_compiled(file, left, objects, Link, indexed=indexed, deep=deep)
    if compiled is None:
        objects.update(dict.fromkeys(left))  # claimed: nobody else waits for them
    else:
        left = _take_compiled(file, compiled, objects, unindexed if indexed else None)
    walks = [_read_object(file, address, objects, indexed, deep) for address in left]
    if walks or unindexed:
        results = yield Parallel([*walks, *(read_chunk_index(file, dataset) for dataset in unindexed)], keep=True)
        for dataset, problem in zip(unindexed, results[len(walks) :], strict=True):
            dataset.problem = problem


def _take_compiled(
    file: FileContext, found: list[CompiledObject], objects: ObjectTable, unindexed: list[Dataset] | None
) -> list[int]:
    """Add what the compiled parser found to `objects`; return the addresses of objects that it did not understand.

    Datasets whose chunk index must be read are added to `unindexed`, unless that is None.
    """
    left: dict[int, None] = {}
    for kind, address, about, place, cells, messages, values in found:
        objects[address] = None
        if kind == NAMED_TYPE:
            file.named_types[address] = about
        if kind not in (GROUP, DATASET):
            if kind == NOT_PLAIN:
                left[address] = None
            continue
        attributes = attributes_of_text(file, messages or b"", values)
        if attributes is not None and kind == GROUP:
            objects[address] = Group(address, about, attributes.values, attributes.problems)
            continue
        known = None if attributes is None else _recall_description(file, about)
        if attributes is None or known is None:
            left[address] = None
            continue
        layout, rows = known.layout, None
        if isinstance(layout, ChunkedLayout):
            layout = layout.at(place)
            if known.grid is not None and (place is None or 0 in known.grid):
                rows = ChunkRows(file, known.grid)
            elif known.grid is not None and cells is not None:
                rows = ChunkRows(file, known.grid, whole=to_columns(cells, math.prod(known.grid)))
        elif isinstance(layout, ContiguousLayout):
            layout = ContiguousLayout(place, layout.size)
        objects[address] = dataset = Dataset(
            address,
            known.space,
            False,
            known.datatype,
            layout,
            known.filters,
            known.fill,
            attributes.values,
            attributes.scales,
            attributes.problems,
            rows if unindexed is not None else None,
            described=known,
        )
        if unindexed is not None and rows is None and isinstance(layout, ChunkedLayout):
            unindexed.append(dataset)
    return list(left)


def _recall_description(file: FileContext, text: bytes) -> Description | None:
    """Return what the messages of a dataset say; None if they need more than their own bytes, or are damaged."""
    try:
        return parse_once(_parse_description, text, file.offset_size, file.length_size)
    except InsituError:
        return None


def _parse_description(text: bytes, offset_size: int, length_size: int) -> Description | None:
    parts: dict[int, bytes] = {}
    at = 0
    while at < len(text):
        begin = at + 5
        end = begin + int.from_bytes(text[at + 1 : begin], "little")
        parts[text[at]] = text[begin:end]
        at = end
    space = parse_once(parse_dataspace, parts[DATASPACE], length_size)
    datatype = parse_once(parse_datatype, parts[DATATYPE])
    layout = parse_layout(parts[LAYOUT], offset_size, length_size)
    filters = parse_once(parse_filters, parts[FILTERS]) if FILTERS in parts else ()
    fill = _parse_fill(parts)
    varies = datatype.is_variable_length or datatype.has_nested_variable_length
    if (fill.value is not None and (varies or datatype.shape)) or (varies and isinstance(layout, CompactLayout)):
        return None
    grid = None
    if isinstance(layout, ChunkedLayout) and len(layout.chunk) == len(space.shape):
        grid = chunk_grid(space.shape, layout.chunk)
    return Description(space, datatype, layout, filters, fill, grid)


def _parse_fill(parts: Mapping[int, bytes]) -> Fill:
    """Return the fill value of a dataset from the messages of its header."""
    if FILL in parts:
        return parse_once(parse_fill, parts[FILL])
    return parse_once(parse_old_fill, parts[FILL_OLD]) if FILL_OLD in parts else Fill(None, "default")


def _read_object(file: FileContext, address: int, objects: ObjectTable, indexed: bool, deep: bool) -> Walk[None]:
    """Read one object, and with `deep` what it links to."""
    from insitu.formats.hdf5.structures.object_header import (
        read_object_header,
    )  # the compiled parser reads most objects

    try:
        messages = yield from read_object_header(file, address)
        kinds = {message.kind for message in messages}
        if LAYOUT in kinds:
            objects[address] = yield from _read_dataset(file, address, messages, indexed)
        elif kinds & {SYMBOL_TABLE, LINK_INFO, LINK, GROUP_INFO}:
            group = yield from _read_group(file, address, messages)
            objects[address] = group
            if deep:
                yield from read_objects(file, group.children, objects, indexed=indexed, deep=True)
        elif DATATYPE in kinds:
            file.named_types[address] = next(m.body for m in messages if m.kind == DATATYPE)
    except InsituError as problem:
        objects[address] = to_format_error(problem, offset=address + file.base, structure="object header")


def _read_group(file: FileContext, address: int, messages: list[Message]) -> Walk[Group]:
    attributes = attributes_in_memory(file, messages)
    if attributes is None:
        attributes, found = yield Parallel([read_attribute_values(file, messages), _read_links(file, messages)])
    else:
        found = yield from _read_links(file, messages)
    links, tracked = found
    named, _, problems = attributes
    links.sort(key=lambda link: link.order if tracked else link.name.encode("utf-8", "surrogateescape"))
    return Group(address, links, named, problems)


def _read_links(file: FileContext, messages: list[Message]) -> Walk[tuple[list[Link], bool]]:
    for message in messages:
        if message.kind == SYMBOL_TABLE:
            from insitu.formats.hdf5.structures.local_heap import read_symbol_table

            links = yield from read_symbol_table(file, message.body)
            return links, False
    return (yield from read_links(file, messages))


def _read_dataset(file: FileContext, address: int, messages: list[Message], indexed: bool) -> Walk[Dataset]:
    parts: dict[int, Message] = {}
    committed = False
    for message in messages:
        if message.kind in _DESCRIPTION:
            if message.shared:
                committed |= message.kind == DATATYPE
                from insitu.formats.hdf5.structures.shared_messages import resolve_shared

                message = yield from resolve_shared(file, message)
            parts.setdefault(message.kind, message)
    if DATASPACE not in parts or DATATYPE not in parts:
        file.fail("has a layout, but no dataspace or datatype", address, "object header")
    space = parse_once(parse_dataspace, parts[DATASPACE].body, file.length_size)
    attributes = attributes_in_memory(file, messages)
    if attributes is not None:
        dataset = Dataset(address, space, committed, UNKNOWN_TYPE, attributes=attributes.values)
        dataset.scales, dataset.problems = attributes.scales, attributes.problems
        try:
            yield from _read_description(file, dataset, parts, indexed)
            return dataset
        except InsituError:
            pass  # raised again below, where it gets its place in the file
    dataset = Dataset(address, space, committed)
    problem, attributes = yield Parallel(
        [_read_description(file, dataset, parts, indexed), read_attribute_values(file, messages)], keep=True
    )
    if isinstance(attributes, InsituError):
        problem = attributes
    else:
        dataset.attributes, dataset.scales, dataset.problems = attributes
    dataset.problem = problem
    return dataset


def _read_description(file: FileContext, dataset: Dataset, parts: dict[int, Message], indexed: bool) -> Walk[None]:
    """Complete a dataset from the messages of its header."""
    dataset.datatype = parse_once(parse_datatype, parts[DATATYPE].body)
    dataset.layout = parse_layout(parts[LAYOUT].body, file.offset_size, file.length_size)
    if isinstance(dataset.layout, CompactLayout) and (
        dataset.datatype.is_variable_length or dataset.datatype.has_nested_variable_length
    ):
        # References into heaps need the file, so they are read from the header instead of being
        # stored inline.
        place, inside = parts[LAYOUT].place, dataset.layout
        if place < 0:
            file.refuse("variable-length values in a shared layout message are not supported")
        dataset.layout = ContiguousLayout(place + inside.at if inside.data else None, len(inside.data))
    if FILTERS in parts:
        dataset.filters = parse_once(parse_filters, parts[FILTERS].body)
    dataset.fill = _parse_fill({kind: message.body for kind, message in parts.items()})
    if EXTERNAL_FILES in parts:
        dataset.segments = yield from _read_external_segments(file, parts[EXTERNAL_FILES].body)
    if isinstance(dataset.layout, VirtualLayout):
        dataset.mappings = yield from _read_mappings(file, dataset.layout)
    value = dataset.fill.value
    if value is not None and (
        dataset.datatype.is_variable_length or dataset.datatype.has_nested_variable_length or dataset.datatype.shape
    ):
        dataset.fill = yield from resolve_fill(file, dataset.datatype, dataset.fill)
    if indexed:
        yield from read_chunk_index(file, dataset)


def _read_external_segments(file: FileContext, body: bytes) -> Walk[tuple[ExternalSegment, ...]]:
    """The segments of an external data files message (IV.A.2.h); the names lie in a local heap."""
    from insitu.formats.hdf5.structures.local_heap import read_local_heap

    width, length = file.offset_size, file.length_size
    count = int.from_bytes(body[6:8], "little")
    at = 8 + width
    if len(body) < at + 3 * length * count or body[0] != 1:
        file.fail("message is cut off, or of an unknown version", 0, "external data files")
    names = yield from read_local_heap(file, int.from_bytes(body[8:at], "little"))
    segments = []
    for slot in range(count):
        place, offset, size = (
            int.from_bytes(body[at + (3 * slot + i) * length : at + (3 * slot + i + 1) * length], "little")
            for i in range(3)
        )
        end = names.find(b"\0", place)
        if end < 0 or place >= len(names):
            file.fail("has a name outside its heap", 0, "external data files")
        name = names[place:end].decode("utf-8", "surrogateescape")
        segments.append(ExternalSegment(name, offset, None if size == (1 << 8 * length) - 1 else size))
    return tuple(segments)


def _read_mappings(file: FileContext, layout: VirtualLayout) -> Walk[tuple[SourceMapping, ...]]:
    """What a virtual dataset is made of; one that was never given anything has no list."""
    if layout.address == file.undefined:
        return ()
    (data,) = yield from read_heap_values(file, [HeapRecord(1, layout.address, layout.index)])
    from insitu.formats.hdf5.datasets.virtual_mapping import parse_mappings

    return parse_mappings(file, data, layout.address)


def read_chunk_index(file: FileContext, dataset: Dataset) -> Walk[None]:
    """Read the chunk index of a dataset, if it has one."""
    if isinstance(dataset.layout, ChunkedLayout) and dataset.chunks is None:
        dataset.chunks = yield from read_chunks(file, dataset.layout, dataset.space, len(dataset.filters))
