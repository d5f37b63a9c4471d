"""Keys of a Zarr store that many tasks wait for: read together, each answered for itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from gated_site import GatedSite
from insitu.errors import TruncatedError
from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray, VirtualGroup
from insitu.reading.zarr_store import many_keys
from waiting import LONG

zarr = pytest.importorskip("zarr")

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest  # noqa: E402

from insitu.reading.zarr_store.store import InsituStore  # noqa: E402

CHUNKS = 60
VALUES = np.random.default_rng(5).random((CHUNKS, 50))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose chunks are passed on, and others that are encoded again; a file for each chunk."""
    made: Path = tmp_path_factory.mktemp("keys")
    with h5py.File(made / "a.h5", "w") as file:
        file.create_dataset("passed", data=VALUES, chunks=(1, 50))
        sparse = file.create_dataset("encoded", (40, 40), "f4", chunks=(8, 8), compression="lzf")
        sparse[10:20, 3] = 5
        file.create_dataset("scalar", data=1.5)
    for number, row in enumerate(VALUES):
        (made / f"{number}").write_bytes(row.tobytes())
    return made


@pytest.fixture
def site(folder: Path) -> Iterator[GatedSite]:
    with GatedSite(folder) as served:
        yield served


def objects(place: str, optional: bool = False) -> InsituStore:
    """A store of an array, each chunk in an object of its own."""
    sources = [Source(f"{place}/{number}", optional=optional) for number in range(CHUNKS)]
    table = Columns((CHUNKS, 1), sources, np.arange(CHUNKS)[:, None], np.asarray(0), np.asarray(-1))
    axes = (Axis.regular(CHUNKS, 1), Axis.regular(50, 50))
    array = VirtualArray.of(Tile(axes, (Encoding(np.dtype("<f8")),), table), dims=["y", "x"])
    return insitu.zarr_store(VirtualGroup({"v": array}))


def get_all(store: InsituStore, keys: list[str], **how: Any) -> list[Any]:
    async def ask() -> list[Any]:
        return await asyncio.gather(*(store.get(key, **how) for key in keys), return_exceptions=True)

    return [
        found if found is None or isinstance(found, Exception) else found.to_bytes() for found in asyncio.run(ask())
    ]


def keys_of(store: InsituStore) -> list[str]:
    async def collect() -> list[str]:
        return [key async for key in store.list()]

    return asyncio.run(collect())


@pytest.mark.parametrize(
    "span", [None, RangeByteRequest(3, 90), OffsetByteRequest(7), SuffixByteRequest(9), RangeByteRequest(5, 5)]
)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_together_as_one_by_one(folder: Path, zarr_format: Any, span: Any) -> None:
    store = insitu.zarr_store(folder / "a.h5", zarr_format=zarr_format)
    keys = [*keys_of(store), "passed/c/60/0", "passed/60.0", "nothing", "passed", *keys_of(store)[::3]]
    one_by_one = [store.get_sync(key, byte_range=span) for key in keys]
    assert get_all(store, keys, byte_range=span) == [
        None if found is None else found.to_bytes() for found in one_by_one
    ]


def test_values_by_zarr_itself(folder: Path, site: GatedSite) -> None:
    for place in (folder, site.url):
        group = zarr.open_group(insitu.zarr_store(f"{place}/a.h5"), mode="r")
        with h5py.File(folder / "a.h5") as file:
            for name in ("passed", "encoded", "scalar"):
                np.testing.assert_array_equal(group[name][...], file[name][...])


def test_neighbours_are_one_request(site: GatedSite) -> None:
    store = insitu.zarr_store(f"{site.url}/a.h5")
    store.tree.documents  # noqa: B018
    site.hold(0)
    found = get_all(store, [f"passed/c/{number}/0" for number in range(CHUNKS)])
    assert found == [row.tobytes() for row in VALUES]
    assert len(site.requests) == 1


def test_no_thread_for_a_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    monkeypatch.setattr(many_keys, "read_keys", _noting(many_keys.read_keys, threads))
    monkeypatch.setattr(many_keys, "read_stored", _noting(many_keys.read_stored, threads))
    store = insitu.zarr_store(folder / "a.h5")
    get_all(store, [f"passed/c/{number}/0" for number in range(CHUNKS)])
    assert len(threads) == 2  # one batch, of one file
    assert len(set(threads)) == 1


def _noting(function: Any, threads: list[int]) -> Any:
    def call(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return function(*arguments)

    return call


def test_objects_are_requested_at_once(site: GatedSite) -> None:
    store = objects(site.url)
    site.hold(CHUNKS)
    found = get_all(store, [f"v/c/{number}/0" for number in range(CHUNKS)])
    assert found == [row.tobytes() for row in VALUES]
    assert site.most >= CHUNKS


def test_an_object_that_is_missing_is_an_unwritten_chunk_only_where_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(VALUES[1].tobytes())
    keys = [f"v/c/{number}/0" for number in range(3)]
    assert get_all(objects(str(tmp_path), optional=True), keys) == [None, VALUES[1].tobytes(), None]
    found = get_all(objects(str(tmp_path)), keys)
    assert [type(item).__name__ for item in found] == ["NotFoundError", "bytes", "NotFoundError"]


def test_the_error_of_a_key_is_its_own(tmp_path: Path) -> None:
    half = VALUES.tobytes()[: VALUES.nbytes // 2]
    (tmp_path / "a").write_bytes(half)
    table = Columns(
        (CHUNKS, 1), [Source(str(tmp_path / "a"))], np.asarray(0), np.arange(CHUNKS)[:, None] * 400, np.asarray(400)
    )
    axes = (Axis.regular(CHUNKS, 1), Axis.regular(50, 50))
    array = VirtualArray.of(Tile(axes, (Encoding(np.dtype("<f8")),), table), dims=["y", "x"])
    store = insitu.zarr_store(VirtualGroup({"v": array}))
    found = get_all(store, [f"v/c/{number}/0" for number in range(CHUNKS)])
    assert found[: CHUNKS // 2] == [row.tobytes() for row in VALUES[: CHUNKS // 2]]
    for number, error in enumerate(found[CHUNKS // 2 :], CHUNKS // 2):
        assert isinstance(error, TruncatedError)
        assert f"chunk ({number}, 0)" in str(error)


def test_who_is_cancelled_does_not_disturb_the_others(site: GatedSite) -> None:
    store = objects(site.url)

    async def ask() -> list[Any]:
        tasks = [asyncio.create_task(store.get(f"v/c/{number}/0")) for number in range(CHUNKS)]
        await asyncio.to_thread(site.wait_for, 4)
        for task in tasks[::2]:
            task.cancel()
        site.release()
        return await asyncio.gather(*tasks, return_exceptions=True)

    site.hold(10 * CHUNKS)
    found = asyncio.run(ask())
    assert all(isinstance(item, asyncio.CancelledError) for item in found[::2])
    assert [item.to_bytes() for item in found[1::2]] == [row.tobytes() for row in VALUES[1::2]]


def test_what_nobody_waits_for_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go, ended = threading.Event(), threading.Event(), threading.Event()
    seen: list[int] = []
    read_stored = many_keys.read_stored

    def hold(wanted: Any, opened: Any) -> Any:
        seen.append(len(wanted))
        began.set()
        assert go.wait(LONG)
        return read_stored(wanted, opened)

    read_keys = many_keys.read_keys

    def note(*arguments: Any) -> None:
        try:
            read_keys(*arguments)
        finally:
            ended.set()

    monkeypatch.setattr(many_keys, "LOCAL_BYTES", 800)  # two chunks
    monkeypatch.setattr(many_keys, "run_tasks", lambda tasks, far, stop: [task() for task in tasks])
    monkeypatch.setattr(many_keys, "read_stored", hold)
    monkeypatch.setattr(many_keys, "read_keys", note)
    store = insitu.zarr_store(folder / "a.h5")

    async def ask() -> None:
        tasks = [asyncio.create_task(store.get(f"passed/c/{number}/0")) for number in range(CHUNKS)]
        await asyncio.to_thread(began.wait, LONG)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        go.set()
        await asyncio.to_thread(ended.wait, LONG)

    asyncio.run(ask())
    assert seen == [2]


def test_a_batch_that_fails_as_a_whole_leaves_nobody_waiting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    store = insitu.zarr_store(folder / "a.h5")
    monkeypatch.setattr(many_keys, "read_keys", fail)
    found = get_all(store, ["passed/c/0/0", "passed/c/1/0"])
    assert [type(error) for error in found] == [RuntimeError, RuntimeError]
