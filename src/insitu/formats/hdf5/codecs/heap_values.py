"""Codec `hdf5_vlen`: strings and sequences of variable length, read from global heaps.

A chunk holds one reference per element: length, address of a heap collection, index of the object
in it (format specification 3.0, III.E). All collections that a batch of references names are
fetched at once, usually with one request each, and parsed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import Configuration
from insitu.codecs.outside_values import Fetch
from insitu.errors import CodecError, FormatError
from insitu.formats.hdf5.codecs.global_heap import COLLECTION_GUESS, collection_size, parse_collection
from insitu.formats.hdf5.codecs.records import ElementType, decode_elements, parse_element_type

__all__ = ["NAME", "Records"]

NAME = "hdf5_vlen"
REUSE_LIMIT = 16
LARGEST_COLLECTION = 1 << 32
"""A reference counts its bytes in four, so a larger collection is damage, and not worth the
memory."""


@dataclass(frozen=True, slots=True)
class Records:
    """How references become values."""

    dtype: np.dtype[Any]
    """Of one reference: `length`, `address`, `index`."""
    text: bool
    """Whether the values are texts, else arrays."""
    base: np.dtype[Any]
    """The element type of the arrays."""
    charset: str
    offset_size: int
    length_size: int
    base_address: int
    """What is added to addresses (a user block before the superblock)."""
    element: ElementType | None = None
    """The type of elements that hold such values inside of others."""

    @classmethod
    def of(cls, configuration: Configuration) -> Records:
        """Prepare from the codec's configuration.

        Its keys are `kind`, `base`, `charset`, `offset_size`, and `length_size` and `base_address`
        if they are unusual. The kind `record` has a `type` instead: see `parse_element_type`.
        """
        offset_size = int(configuration.get("offset_size", 8))
        if offset_size not in (2, 4, 8):
            raise CodecError(f"offsets of {offset_size} bytes are not supported, only 2, 4 and 8", codec=NAME)
        kind = configuration.get("kind", "string")
        if kind == "record":
            element = parse_element_type(configuration["type"], 8 + offset_size)
            return cls(
                np.dtype(f"V{element.size}"),
                False,
                element.dtype,
                "utf-8",
                offset_size,
                int(configuration.get("length_size", 8)),
                int(configuration.get("base_address", 0)),
                element,
            )
        if kind not in ("string", "sequence"):
            raise CodecError(
                f"the unknown kind {kind!r} of variable-length values, expected string, sequence or record", codec=NAME
            )
        return cls(
            np.dtype([("length", "<u4"), ("address", f"<u{offset_size}"), ("index", "<u4")]),
            kind == "string",
            np.dtype(configuration.get("base") or "u1"),
            str(configuration.get("charset", "utf-8")),
            offset_size,
            int(configuration.get("length_size", 8)),
            int(configuration.get("base_address", 0)),
        )

    def resolve(self, references: NDArray[Any], fetch: Fetch) -> NDArray[Any]:
        """Return the values as an object array of the same shape.

        Parameters
        ----------
        references
            Of dtype `self.dtype`, any shape: as many chunks of one file as are wanted together.
        fetch
            Reads (offset, length) ranges of the file; called at most twice.
        """
        if self.element is not None:
            stored = np.ascontiguousarray(references).reshape(-1).view(np.uint8).reshape(-1, self.element.size)
            values = decode_elements(self.element, stored, lambda requests: self._objects(requests, fetch))
            return values.reshape(references.shape)
        flat = references.reshape(-1)
        undefined = (1 << 8 * self.offset_size) - 1
        address = flat["address"]
        written = (address != 0) & (address != undefined) & (flat["length"] > 0)
        heaps = self._heaps(np.unique(address[written]).tolist(), fetch)
        width = 1 if self.text else self.base.itemsize
        sizes = np.where(written, flat["length"] * np.int64(width), 0).tolist()
        indices = flat["index"].tolist()
        found = _find_objects(heaps, address, indices)
        if list(map(len, found)) != sizes:  # nearly never
            found = _cut_objects(heaps, address.tolist(), indices, sizes)
        elif sum(sizes) > _value_limit(heaps):
            raise _reuse_error(sum(sizes))
        values = np.empty(flat.size, object)
        if self.text:
            values[:] = _to_texts(found)
        else:  # one by one: NumPy would make one array of several that are alike
            for position, data in enumerate(found):
                values[position] = np.frombuffer(data, self.base).copy()
        return values.reshape(references.shape)

    def _objects(self, references: NDArray[Any], fetch: Fetch) -> list[bytes]:
        """The bytes that references stand for."""
        undefined = (1 << 8 * self.offset_size) - 1
        address = references["address"]
        written = (address != 0) & (address != undefined) & (references["length"] > 0)
        heaps = self._heaps(np.unique(address[written]).tolist(), fetch)
        found: list[bytes] = []
        for (_, place, index), there in zip(references.tolist(), written.tolist(), strict=True):
            data = heaps[place].get(index) if there else b""
            if data is None:
                raise CodecError(f"the heap collection at {place} has no object {index}", codec=NAME)
            found.append(data)
        total = sum(map(len, found))
        if total > _value_limit(heaps):
            raise _reuse_error(total)
        return found

    def _heaps(self, addresses: list[int], fetch: Fetch) -> dict[int, dict[int, bytes]]:
        """Read and take apart the collections at `addresses`."""
        if not addresses:
            return {}
        places = [address + self.base_address for address in addresses]
        collections = fetch([(place, COLLECTION_GUESS) for place in places])
        try:
            sizes = [collection_size(head, self.length_size) for head in collections]
            longer = [number for number, head in enumerate(collections) if sizes[number] > len(head)]
            if max(sizes) > LARGEST_COLLECTION:
                raise CodecError(
                    f"a heap collection of {max(sizes)} bytes is too large: the file is damaged", codec=NAME
                )
            if longer:
                # A collection of one large object, as a rule.
                starts = [(number, len(collections[number])) for number in longer]
                rests = fetch([(places[number] + start, sizes[number] - start) for number, start in starts])
                for number, rest in zip(longer, rests, strict=True):
                    collections[number] += rest
            return {
                address: parse_collection(data[:size], self.length_size)
                for address, data, size in zip(addresses, collections, sizes, strict=True)
            }
        except FormatError as error:
            raise CodecError(f"the heap that the chunk refers to is damaged: {error.message}", codec=NAME) from error


def _find_objects(heaps: dict[int, dict[int, bytes]], address: NDArray[Any], indices: list[int]) -> list[bytes]:
    """Return whole objects of heaps, empty bytes for those that are not there: one call for each run of references
    to one heap.
    """
    if not indices:
        return []
    ends = [*(np.flatnonzero(address[1:] != address[:-1]) + 1).tolist(), len(indices)]
    found: list[bytes] = []
    start = 0
    for end, place in zip(ends, address[np.array(ends) - 1].tolist(), strict=True):
        heap: dict[int, bytes] = heaps.get(place, {})
        found += map(heap.get, indices[start:end], repeat(b""))
        start = end
    return found


def _cut_objects(
    heaps: dict[int, dict[int, bytes]], places: list[int], indices: list[int], sizes: list[int]
) -> list[bytes]:
    """Return the first bytes of objects of heaps: a value may be shorter than its object."""
    most, total = _value_limit(heaps), 0
    found: list[bytes] = []
    for place, index, size in zip(places, indices, sizes, strict=True):
        data = heaps[place].get(index) if size else b""
        if data is None:
            raise CodecError(f"the heap collection at {place} has no object {index}", codec=NAME)
        if len(data) < size:
            raise CodecError(f"an object in the heap has {len(data)} bytes, but {size} are needed", codec=NAME)
        total += size
        if total > most:
            raise _reuse_error(total)
        found.append(data[:size])
    return found


def _to_texts(found: list[bytes]) -> list[str]:
    """Return texts. Some writers count the closing zero; the library shows a C string, which ends at the
    first one.
    """
    joined = b"\0".join(found)
    if joined.count(0) >= max(len(found), 1):
        joined = b"\0".join([data.partition(b"\0")[0] for data in found])
    # One call for all: a zero ends a damaged character, too.
    return joined.decode("utf-8", "surrogateescape").split("\0") if found else []


def _value_limit(heaps: dict[int, dict[int, bytes]]) -> int:
    """Return the most bytes of values that references into these heaps can amount to.

    No object belongs to two elements, but a chunk may be read more than once, so this is a multiple
    of what the heaps hold.
    """
    return REUSE_LIMIT * sum(sum(map(len, heap.values())) for heap in heaps.values()) + (1 << 20)


def _reuse_error(total: int) -> CodecError:
    return CodecError(
        f"the references amount to more than {total} bytes: they use the same heap objects again and again", codec=NAME
    )
