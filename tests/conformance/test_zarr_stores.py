"""zarr-python's own tests of stores, the read side, for what `insitu.zarr_store` returns."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from insitu.model import VirtualGroup
from insitu.reading.zarr_store import ZarrTree

pytest.importorskip("zarr")

from zarr.core.buffer import Buffer, cpu
from zarr.core.sync import sync
from zarr.testing.store import StoreTests

from insitu.reading.zarr_store.store import InsituStore


class Seeded(InsituStore):
    """A view under whose feet keys can be put: some of zarr-python's tests do that by way of the
    store.
    """

    async def set(self, key: str, value: Buffer) -> None:
        self.tree.documents[key] = value.to_bytes()


def seeded() -> ZarrTree:
    tree = ZarrTree(VirtualGroup({}))
    tree._documents = {}
    return tree


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that zarr-python runs on."""
    return "asyncio"


@pytest.mark.anyio
class TestReadSide(StoreTests[Seeded, cpu.Buffer]):
    """What zarr-python asks of every store that is read, over keys that are put under the store's
    feet.
    """

    store_cls = Seeded
    buffer_cls = cpu.Buffer

    # A view cannot be written to: what these ask for is refused, which `test_store_read_only` sees.
    test_set = test_set_not_open = test_set_many = test_set_if_not_exists = None  # type: ignore[assignment]
    test_delete = test_delete_dir = test_delete_nonexistent_key_does_not_raise = test_clear = None  # type: ignore[assignment]
    test_set_sync = test_delete_sync = test_delete_sync_missing = None  # type: ignore[assignment]
    test_with_read_only_store = test_read_only_store_raises = test_sync_async_set_get_parity = None  # type: ignore[assignment]

    async def set(self, store: InsituStore, key: str, value: Buffer) -> None:
        store.tree.documents[key] = value.to_bytes()

    async def get(self, store: InsituStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(store.tree.documents[key])

    @pytest.fixture
    def store_kwargs(self) -> dict[str, Any]:
        return {"tree": seeded()}

    @pytest.fixture
    def store(self, open_kwargs: dict[str, Any]) -> InsituStore:
        return asyncio.run(Seeded.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> InsituStore:
        return Seeded(**store_kwargs)

    def test_store_repr(self, store: InsituStore) -> None:
        assert repr(InsituStore(seeded())) == "InsituStore(0 arrays, zarr_format=3)"

    def test_store_supports_writes(self, store: InsituStore) -> None:
        assert not store.supports_writes
        assert not store.supports_deletes

    def test_store_supports_listing(self, store: InsituStore) -> None:
        assert store.supports_listing

    def test_store_read_only(self, store: InsituStore) -> None:
        assert store.read_only
        assert store.with_read_only(True).read_only
        with pytest.raises(ValueError, match="read-only"):
            store.with_read_only(False)
        for refused in (
            lambda: sync(InsituStore(seeded()).set("x", self.buffer_cls.from_bytes(b""))),
            lambda: sync(store.delete("x")),
            lambda: store.set_sync("x", self.buffer_cls.from_bytes(b"")),
            lambda: store.delete_sync("x"),
        ):
            with pytest.raises(ValueError, match="read-only"):
                refused()

    async def test_store_open_read_only(self, open_kwargs: dict[str, Any]) -> None:  # type: ignore[override]
        assert (await InsituStore.open(**open_kwargs)).read_only

    async def test_serializable_store(self, store: InsituStore) -> None:
        other = pickle.loads(pickle.dumps(InsituStore(ZarrTree(VirtualGroup({}, attributes={"a": 1})))))
        assert other == InsituStore(ZarrTree(VirtualGroup({}, attributes={"a": 1})))
        assert other.read_only
