"""InsituStore: the Zarr view as a read-only store of zarr-python, also without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Never, Self

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from insitu.reading.zarr_store.byte_span import ALL_BYTES, ByteSpan
from insitu.reading.zarr_store.many_keys import KeyReader
from insitu.reading.zarr_store.zarr_tree import ZarrTree

__all__ = ["InsituStore"]


class InsituStore(Store):
    """Any virtual archive as a read-only Zarr store.

    Parameters
    ----------
    tree
        The archive's keys and their content.
    read_only
        Must be True.
    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, tree: ZarrTree, *, read_only: bool = True) -> None:
        if not read_only:
            raise ValueError("an InsituStore is read-only: open it with read_only=True")
        super().__init__(read_only=True)
        self.tree = tree
        self._reader = KeyReader(tree)

    def with_read_only(self, read_only: bool = False) -> Self:
        """Return the same store; it cannot be made writable."""
        return type(self)(self.tree, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InsituStore) and (
            self.tree is other.tree
            or (self.tree.documents == other.tree.documents and self.tree.group.sources == other.tree.group.sources)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        count = sum(1 for _ in self.tree.group.all_arrays())
        return f"InsituStore({count} arrays, zarr_format={self.tree.zarr_format})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tree,)

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the content of a key, without an event loop."""
        self._is_open = True
        data = self.tree.get(key, _to_byte_span(byte_range))
        return None if data is None else (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Raise an error: the store is read-only."""
        self._refuse()

    def delete_sync(self, key: str) -> None:
        """Raise an error: the store is read-only."""
        self._refuse()

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the content of a key; keys that are asked for at once are read together."""
        self._is_open = True
        data = await self._reader.get(key, _to_byte_span(byte_range))
        return None if data is None else (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return the content of several keys."""
        return list(await asyncio.gather(*(self.get(key, prototype, wanted) for key, wanted in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether a key exists."""
        if key in self.tree.documents:
            return True
        return self.tree.place(key) is not None and await self.get(key, byte_range=RangeByteRequest(0, 1)) is not None

    async def set(self, key: str, value: Buffer) -> None:
        """Raise an error: the store is read-only."""
        self._refuse()

    async def delete(self, key: str) -> None:
        """Raise an error: the store is read-only."""
        self._refuse()

    def _refuse(self) -> Never:
        self._check_writable()
        raise AssertionError("unreachable")

    def list(self) -> AsyncIterator[str]:
        """Yield all keys."""
        return self.list_prefix("")

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys under a prefix."""
        for key in self.tree.keys(prefix):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly under a prefix."""
        for name in self.tree.children(prefix):
            yield name

    def close(self) -> None:
        """Close the archive's files."""
        self.tree.close()
        super().close()


def _to_byte_span(wanted: ByteRequest | None) -> ByteSpan:
    if wanted is None:
        return ALL_BYTES
    if isinstance(wanted, RangeByteRequest):
        return ByteSpan(wanted.start, wanted.end)
    if isinstance(wanted, OffsetByteRequest):
        return ByteSpan(wanted.offset)
    if isinstance(wanted, SuffixByteRequest):
        return ByteSpan(-wanted.suffix) if wanted.suffix else ByteSpan(0, 0)
    raise TypeError(f"Unexpected byte_range, got {wanted!r}")
