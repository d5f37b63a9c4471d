"""Parser of the mappings of a virtual dataset.

The list of mappings lies in a global heap: format specification 3.0, VIII.B ("Virtual dataset
global heap block"). Each maps selected elements of a source dataset to selected elements of the
virtual one. In names, `%b` stands for the number of the block and `%%` for a percent sign.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.structures.checksum import verify_checksum
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.stored_selection import StoredSelection, parse_selection
from insitu.formats.parsing.fields import take_uint

__all__ = ["SourceMapping", "parse_mappings"]

_LIST = "list of virtual dataset mappings"
MAPPING_BYTES = 33  # of the shortest one: hardly a name, two selections of 16 bytes
# Flags of version 1 (HDF5 2.0): the name is that of an earlier mapping, whose number stands in its
# place; or there is none.
FILE_AS_BEFORE, DATASET_AS_BEFORE, SAME_FILE = 1, 2, 4


@dataclass(frozen=True, slots=True)
class SourceMapping:
    """Some elements of another dataset, and where they are here."""

    file: str
    """Its name as stored; ".": this file."""
    dataset: str
    source_selection: StoredSelection
    target_selection: StoredSelection

    @property
    def is_numbered(self) -> bool:
        """Whether there is one source for each block."""
        names = (self.file + " " + self.dataset).replace("%%", "")
        return (
            self.target_selection.endless_axis is not None
            and self.source_selection.endless_axis is None
            and "%b" in names
        )

    def names(self, block: int) -> tuple[str, str]:
        """Return the names of file and dataset, for a block if they are numbered."""

        def substitute(text: str) -> str:
            if not self.is_numbered:
                return text.replace("%%", "%")
            return re.sub("%[%b]", lambda found: "%" if found[0] == "%%" else str(block), text)

        return substitute(self.file), substitute(self.dataset)


def parse_mappings(file: FileContext, data: bytes, address: int) -> tuple[SourceMapping, ...]:
    """Parse the list of mappings of a virtual dataset.

    Parameters
    ----------
    file, address
        Where it lies.
    data
        The object of the heap.
    """
    if not data or data[0] > 1:
        raise UnsupportedError(
            f"virtual dataset mappings of version {data[:1].hex() or '(none)'} are not supported",
            structure="virtual dataset",
        )
    width = file.length_size
    count = int.from_bytes(data[1 : 1 + width], "little")
    if count * MAPPING_BYTES > len(data):
        raise FormatError(
            f"the list announces {count} mappings, but has {len(data)} bytes", structure="virtual dataset"
        )
    at = 1 + width
    mappings: list[SourceMapping] = []
    for _ in range(count):
        flags = 0
        if data[0]:
            flags, at = take_uint(data, at, 1, _LIST), at + 1
        if flags & SAME_FILE:
            name = "."
        elif flags & FILE_AS_BEFORE:
            name, at = _earlier_mapping(mappings, take_uint(data, at, width, _LIST)).file, at + width
        else:
            name, at = _text(data, at)
        if flags & DATASET_AS_BEFORE:
            dataset, at = _earlier_mapping(mappings, take_uint(data, at, width, _LIST)).dataset, at + width
        else:
            dataset, at = _text(data, at)
        source_selection, at = parse_selection(data, at)
        target_selection, at = parse_selection(data, at)
        mappings.append(SourceMapping(name, dataset, source_selection, target_selection))
    verify_checksum(file, data[: at + 4], address, "virtual dataset")
    return tuple(mappings)


def _earlier_mapping(mappings: list[SourceMapping], number: int) -> SourceMapping:
    """Return the earlier mapping whose name a later one uses again."""
    if number >= len(mappings):
        raise FormatError(
            f"mapping {len(mappings)} uses a name of mapping {number}, which does not come before it",
            structure="virtual dataset",
        )
    return mappings[number]


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\0", at)
    if end < 0:
        raise FormatError("the name of a source has no terminating NUL", structure="virtual dataset")
    return data[at:end].decode("utf-8", "surrogateescape"), end + 1
