"""Object and region references in attributes, shown as text.

An object reference is the address of an object. A region reference names an object and a selection
of its elements, both in a global heap: format specification 3.0, IV.A.2.d (class 7) and III.E. They
are shown as the path of the object, for regions with the selection in Python's slice notation.
Paths are known once the tree is, so until then a value is a `ReferenceValue`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.structures.attribute_messages import Attribute, HeapRecord, read_heap_values
from insitu.formats.hdf5.structures.dataspace import RANK_LIMIT
from insitu.formats.hdf5.structures.datatype import Datatype
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.nested_values import read_elements
from insitu.formats.hdf5.structures.stored_selection import AxisHyperslab, parse_selection
from insitu.formats.parsing.fields import check_length
from insitu.formats.parsing.scheduler import Walk

__all__ = ["SCALE_ATTRIBUTES", "ReferenceValue", "read_references"]

SCALE_ATTRIBUTES = frozenset({"DIMENSION_LIST", "REFERENCE_LIST"})
"""What the dimension scale library keeps for itself."""
PIECES_LIMIT = 16
REFERENCES_LIMIT = 1 << 16

PathLookup = Callable[[int], str]
"""The path of the object at an address."""


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """What one reference points at."""

    address: int | None
    """None: at nothing."""
    part: str = ""
    """What is selected of it; or, without an address, what there is to say."""

    def text(self, named: PathLookup) -> str:
        """Return the reference as text."""
        return self.part if self.address is None else f"{named(self.address)}{self.part}"


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceValue:
    """The value of an attribute that holds references."""

    datatype: Datatype
    elements: npt.NDArray[Any]
    """With a `ResolvedReference` in place of each reference."""
    scalar: bool

    def addresses(self) -> set[int]:
        """Return the addresses of the objects that are referred to."""
        return {one.address for one in _pointers(self.elements) if one.address is not None}

    def to_attribute(self, named: PathLookup) -> Any:
        """Return the value as attributes show it.

        One text or a list of texts; records as they are, with texts in them.

        Parameters
        ----------
        named
            The path of an object by its address.
        """
        formatted = _format_references(self.elements, named)
        if self.datatype.kind in ("reference", "sequence") and not formatted.dtype.names:
            texts = [
                one if isinstance(one, str) else ", ".join(map(str, np.ravel(one))) for one in formatted.reshape(-1)
            ]
            return texts[0] if len(texts) == 1 else texts
        return formatted.reshape(-1)[0] if self.scalar else formatted


def read_references(file: FileContext, attribute: Attribute) -> Walk[ReferenceValue]:
    """Return the value of an attribute whose type contains references."""
    datatype = attribute.datatype
    assert datatype is not None
    elements = yield from read_elements(file, attribute)
    regions: dict[bytes, ResolvedReference] = {}
    count = 0

    def collect_region(raw: bytes, note: str) -> ResolvedReference | None:
        nonlocal count
        count += 1
        if count > REFERENCES_LIMIT:
            file.refuse(f"attributes of more than {REFERENCES_LIMIT} references are not supported")
        if note == "region" and len(raw) == file.offset_size + 4:
            regions.setdefault(raw, ResolvedReference(None))
        return None

    _replace_references(datatype, elements, collect_region)
    defined = [raw for raw in regions if int.from_bytes(raw[: file.offset_size], "little") not in (0, file.undefined)]
    found = yield from read_heap_values(file, [_heap_record(file, raw) for raw in defined])
    regions.update({raw: _resolve_region(file, data) for raw, data in zip(defined, found, strict=True)})

    def resolve(raw: bytes, note: str) -> ResolvedReference:
        if note == "object" and len(raw) == file.offset_size:
            address = int.from_bytes(raw, "little")
            return ResolvedReference(None if address in (0, file.undefined) else address)
        return regions.get(raw, ResolvedReference(None, f"({note} reference of {len(raw)} bytes)"))

    shape = attribute.space.shape + datatype.shape
    values = _replace_references(datatype, elements, resolve)
    scalar = values.size == 1 and len(shape) <= 1
    return ReferenceValue(datatype, values if scalar else values.reshape(shape), scalar)


def _heap_record(file: FileContext, raw: bytes) -> HeapRecord:
    width = file.offset_size
    return HeapRecord(1, int.from_bytes(raw[:width], "little"), int.from_bytes(raw[width:], "little"))


def _resolve_region(file: FileContext, data: bytes) -> ResolvedReference:
    """What a region in a heap selects: the address of the object, then a selection."""
    width = file.offset_size
    try:
        return ResolvedReference(int.from_bytes(data[:width], "little"), f"[{_format_selection(data, width)}]")
    except (FormatError, UnsupportedError) as problem:
        return ResolvedReference(int.from_bytes(data[:width], "little"), f"[{problem.message}]")


def _format_selection(data: bytes, at: int) -> str:
    """A selection in the words of Python."""
    if int.from_bytes(data[at : at + 4], "little") == 1:
        return _format_points(data, at + 4)
    selection, _ = parse_selection(data, at)
    if selection.kind == "all":
        return "..."
    if selection.kind == "none":
        return ""
    if selection.kind == "lines":
        return ", ".join(map(_format_line, selection.lines))
    return _join_limited([", ".join(f"{a}:{b}" for a, b in zip(*box, strict=True)) for box in selection.boxes], "] [")


def _format_line(line: AxisHyperslab) -> str:
    """A regular selection along one axis."""
    if line.count is None or line.block is None:
        return f"{line.start}:"
    if line.count == 1 or line.stride == line.block:
        return f"{line.start}:{line.start + line.length}"
    end = line.start + (line.count - 1) * line.stride + line.block
    blocks = f" (blocks of {line.block})" if line.block > 1 else ""
    return f"{line.start}:{end}:{line.stride}{blocks}"


def _format_points(data: bytes, at: int) -> str:
    """A list of points, of version 1 or 2 (format specification 3.0, VII.C)."""
    version = int.from_bytes(data[at : at + 4], "little")
    at += 4
    width = 4 if version == 1 else data[at] if at < len(data) else 0
    at += 8 if version == 1 else 1
    if version not in (1, 2) or width not in (2, 4, 8):
        raise FormatError(f"the selection of points has the unknown version {version}", structure="selection")
    rank = int.from_bytes(data[at : at + 4], "little")
    count = int.from_bytes(data[at + 4 : at + 4 + width], "little")
    at += 4 + width
    if not 1 <= rank <= RANK_LIMIT:
        raise FormatError(f"the selection has {rank} axes, at most {RANK_LIMIT} are possible", structure="selection")
    check_length(data, at + rank * count * width, "selection")
    table = np.frombuffer(data, f"<u{width}", rank * count, at).reshape(count, rank).tolist()
    return _join_limited([f"({', '.join(map(str, point))})" for point in table], ", ")


def _join_limited(pieces: list[str], between: str) -> str:
    more = f"{between}… {len(pieces) - PIECES_LIMIT} more" if len(pieces) > PIECES_LIMIT else ""
    return between.join(pieces[:PIECES_LIMIT]) + more


def _replace_references(
    datatype: Datatype, values: npt.NDArray[Any], one: Callable[[bytes, str], Any]
) -> npt.NDArray[Any]:
    """Elements with something in place of each reference."""
    if datatype.kind == "reference":
        raw, size = np.ascontiguousarray(values).tobytes(), values.dtype.itemsize
        return _object_array([one(raw[at : at + size], datatype.note) for at in range(0, len(raw), size)], values.shape)
    if datatype.kind == "sequence":
        assert datatype.base is not None
        base = datatype.base
        return _object_array(
            [_replace_references(base, np.asarray(part), one) for part in values.reshape(-1)], values.shape
        )
    if not datatype.has_references:
        return values
    replaced = {
        name: _replace_references(member, values[name], one) if member.has_references else values[name]
        for name, _, _, member in datatype.parts
    }
    fields: list[Any] = [
        (name, part.dtype.newbyteorder("="), part.shape[values.ndim :]) for name, part in replaced.items()
    ]
    out = np.empty(values.shape, fields)
    for name, part in replaced.items():
        out[name] = part
    return out


def _object_array(items: list[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    out = np.empty(len(items), object)
    for number, item in enumerate(items):
        out[number] = item
    return out.reshape(shape)


def _pointers(values: npt.NDArray[Any]) -> Iterator[ResolvedReference]:
    if values.dtype.names:
        for name in values.dtype.names:
            yield from _pointers(values[name])
    elif values.dtype == object:
        for item in values.reshape(-1):
            if isinstance(item, ResolvedReference):
                yield item
            elif isinstance(item, np.ndarray):
                yield from _pointers(item)


def _format_references(values: npt.NDArray[Any], named: PathLookup) -> npt.NDArray[Any]:
    """Elements with texts in place of pointers."""
    if values.dtype.names:
        out = values.copy()
        for name in values.dtype.names:
            out[name] = _format_references(values[name], named)
        return out
    if values.dtype != object:
        return values
    texts: list[Any] = []
    for item in values.reshape(-1):
        if isinstance(item, ResolvedReference):
            texts.append(item.text(named))
        else:
            texts.append(_format_references(item, named) if isinstance(item, np.ndarray) else item)
    return _object_array(texts, values.shape)
