"""What every parser needs to know about the file: widths of fields, base address, length.

Every range is checked against the length of the file before anything is fetched or allocated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from insitu.errors import FormatError, UnsupportedError

__all__ = ["FileContext"]


def _peek_nothing(offset: int, length: int) -> bytes | None:
    return None


def _no_head() -> bytes:
    return b""


@dataclass(slots=True)
class FileContext:
    """One HDF5 file while it is scanned."""

    url: str
    """Where it lies, for messages."""
    size: int
    """Its length in bytes."""
    base: int = 0
    """The byte offset of address 0 (II.A: base address)."""
    offset_size: int = 8
    """Bytes of an address."""
    length_size: int = 8
    """Bytes of a length."""
    group_leaf_k: int = 4
    """Half of the symbols a symbol table node has room for."""
    group_node_k: int = 16
    """Half of the children a group B-tree node has room for."""
    chunk_node_k: int = 32
    """Half of the children a chunk B-tree node has room for."""
    shared_table: int | None = None
    """The address of the shared message table (III.G), if there is one."""
    shared_indexes: int = 0
    """How many indexes that table has."""
    has_heaps_in_cache_image: bool = False
    """Whether global heaps lie in a cache image: values in them cannot be found by those who read
    data."""
    peek: Callable[[int, int], bytes | None] = field(default=_peek_nothing, repr=False)
    """The bytes of an absolute range if they are in memory: what a walk need not wait for, it need
    not ask for."""
    head: Callable[[], bytes] = field(default=_no_head, repr=False)
    """The first bytes of the file, which are in memory."""
    collections: dict[int, dict[int, bytes]] = field(default_factory=dict, repr=False)
    """Objects of the global heap collections that were in memory when they were met, by address."""
    named_types: dict[int, bytes] = field(default_factory=dict, repr=False)
    """The datatype messages of committed datatypes that were met, by the address of the object."""
    deep_calls: int = 0
    """How often the compiled parser followed links."""
    undefined: int = field(init=False, default=0)
    """The address that means: nowhere."""

    def __post_init__(self) -> None:
        self.undefined = (1 << (8 * self.offset_size)) - 1

    @property
    def heap_value_limit(self) -> int:
        """Most bytes of heap values of one attribute: no heap object belongs to two of them."""
        return self.size + (1 << 20)

    def range(self, address: int, length: int, structure: str) -> tuple[int, int]:
        """Return the absolute byte range of a structure, checked to lie in the file."""
        offset = address + self.base
        if address >= self.undefined or length < 0 or offset + length > self.size:
            self.fail(
                f"lies outside the file: {length} bytes at {offset}, but the file has {self.size}", address, structure
            )
        return offset, length

    def range_up_to(self, address: int, length: int, least: int, structure: str) -> tuple[int, int]:
        """Return a range of `least` to `length` bytes, clipped at the end of the file."""
        offset, _ = self.range(address, least, structure)
        return offset, min(length, self.size - offset)

    def fail(self, what: str, address: int, structure: str) -> NoReturn:
        """Raise `FormatError` for a damaged structure."""
        raise FormatError(f"the {structure} {what}", url=self.url, offset=address + self.base, structure=structure)

    def refuse(self, what: str, hint: str | None = None) -> NoReturn:
        """Raise `UnsupportedError`."""
        raise UnsupportedError(what, url=self.url, hint=hint)
