"""Mosaics of files that are all cut differently: planned together, with the same values as one by one."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import insitu
from insitu.errors import CodecError
from insitu.model import (
    UNWRITTEN,
    Axis,
    Codec,
    Columns,
    Encoding,
    Packing,
    PackingKind,
    Packings,
    Selection,
    Source,
    Tile,
    VirtualArray,
    concatenate,
)
from insitu.reading import ReadContext, SourcePool, plan_read, read_array, select_cells
from insitu.reading.estimate import estimate_read
from insitu.reading.select_cells import ListedSelection
from insitu.reducing import ReductionQuery, compute_statistics
from insitu.references.store.row_tables import GridRows
from insitu.sources import MemorySource

KEYS: list[Any] = [
    np.s_[:, :],
    np.s_[:, 4],
    np.s_[3, :],
    np.s_[5:40, 2:8],
    np.s_[::-1, ::-1],
    np.s_[3::7, ::2],
    np.s_[60:4:-5, 9::-3],
    np.s_[::50, 7:8],
    np.s_[10:10, :],
    (slice(None), np.array([1, 9, 1])),
    (np.array([50, 3, 4]), slice(2, 7)),
]


def deflated(
    values: np.ndarray, chunks: tuple[int, int], url: str, scale: float = 1.0, damage: int | None = None
) -> tuple[VirtualArray, bytes]:
    """A file of deflated chunks and the array that describes it; its first chunk is never written if the scale is 3."""
    grid = tuple(-(-n // c) for n, c in zip(values.shape, chunks, strict=True))
    blocks = []
    for cell in np.ndindex(*grid):
        part = values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(cell, chunks, strict=True))]
        part = np.pad(part, [(0, c - n) for c, n in zip(chunks, part.shape, strict=True)], constant_values=99)
        blocks.append(zlib.compress(part.tobytes()))
    if damage is not None:
        blocks[damage] = blocks[damage][:-3] + b"xyz"
    lengths = np.array([len(block) for block in blocks])
    source = np.zeros(grid, np.int64)
    if scale == 3:
        source[0, 0] = UNWRITTEN
    table = Columns(grid, (Source(url),), source, (np.cumsum(lengths) - lengths).reshape(grid), lengths.reshape(grid))
    axes = tuple(Axis.regular(n, c) for n, c in zip(values.shape, chunks, strict=True))
    packings = Packings.of([Packing(scale=scale, kind=PackingKind(dtype="float64", scale_dtype="float64"))])
    encoding = Encoding(values.dtype, (Codec("zlib"),), None, np.int32(5).tobytes())
    tile = Tile(axes, (encoding,), table, packings)
    array = replace(VirtualArray.of(tile, dims=("t", "y")), dtype=np.dtype("f8"))
    return array, b"".join(blocks)


def mosaic(lengths: list[int], scales: list[int]) -> tuple[VirtualArray, np.ndarray, dict[str, bytes]]:
    """Files along a first axis, all cut differently, and their values."""
    parts, expected, disk = [], [], {}
    for number, (length, scale) in enumerate(zip(lengths, scales, strict=True)):
        stored = (np.arange(length * 12, dtype="i4") + 100 * number).reshape(length, 12)
        chunks = 1 + number % 5, 1 + number % 12
        array, disk[f"f{number}"] = deflated(stored, chunks, f"f{number}", scale)
        if scale == 3:
            stored[: chunks[0], : chunks[1]] = 5
        parts.append(array)
        expected.append(stored * float(scale))
    return concatenate(parts, 0), np.concatenate(expected), disk


def opened(disk: dict[str, bytes]) -> ReadContext:
    return ReadContext("t", sources=SourcePool(opener=lambda source: MemorySource(disk[source.url])))


@given(
    lengths=st.lists(st.integers(1, 7), min_size=30, max_size=30),
    scales=st.lists(st.integers(1, 3), min_size=30, max_size=30),
    key=st.sampled_from(KEYS),
)
def test_values_are_the_same(lengths: list[int], scales: list[int], key: Any) -> None:
    lengths = [*lengths[:20], *[7] * 10]
    array, values, disk = mosaic(lengths, scales)
    wanted = values
    for axis, selector in enumerate(key):
        wanted = wanted.take(np.arange(values.shape[axis])[selector], axis + wanted.ndim - values.ndim)
    np.testing.assert_array_equal(read_array(array, key, opened(disk)), wanted)


def test_tiles_with_different_cuts_are_one_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    array, _, _ = mosaic([5] * 30, [1] * 30)
    for key in (np.s_[:, :], np.s_[:, 4], np.s_[::-2, 3:9]):
        plan = plan_read(array, Selection.of(key, array.shape))
        assert [type(tile) for tile in plan.tiles] == [ListedSelection]
        assert sorted({source.url for source in plan.sources}) == sorted(f"f{number}" for number in range(30))
        monkeypatch.setattr(select_cells, "MIN_GROUP_SIZE", 1000)
        alone = plan_read(array, Selection.of(key, array.shape))
        monkeypatch.undo()
        assert len(alone.tiles) == 30
        assert alone.nbytes == plan.nbytes
        assert len(alone.row) == len(plan.row)
        assert alone.covers_output == plan.covers_output


def test_tiles_of_many_cells_are_planned_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.reading.many_tiles.MAX_CELLS", 10)
    array, values, disk = mosaic([5] * 30, [1, 2, 3] * 10)
    plan = plan_read(array, Selection.of(..., array.shape))
    assert 1 < len(plan.tiles) < 30
    np.testing.assert_array_equal(read_array(array, ..., opened(disk)), values)


@pytest.mark.parametrize("axes", [None, (0,), (1,)])
@pytest.mark.parametrize("key", [np.s_[:, :], np.s_[::-1, 2:9], np.s_[3::4, ::2], np.s_[:, 4:5]])
def test_reductions(axes: Any, key: Any) -> None:
    array, values, disk = mosaic([1, 4, 7] * 10, [1, 2, 3] * 10)
    methods = ["mean", "sum", "max", "std", "count", "argmax"]
    found = compute_statistics(array, ReductionQuery.of(methods, axes, key), opened(disk))
    wanted = values[key]
    np.testing.assert_allclose(found["mean"], wanted.mean(axes), rtol=1e-12)
    np.testing.assert_allclose(found["sum"], wanted.sum(axes), rtol=1e-12)
    np.testing.assert_allclose(found["std"], wanted.std(axes), rtol=1e-9)
    np.testing.assert_array_equal(found["max"], wanted.max(axes))
    np.testing.assert_array_equal(found["argmax"], wanted.argmax() if axes is None else wanted.argmax(axes[0]))
    assert (found["count"] == wanted.size // np.size(found["mean"])).all()


def test_a_damaged_chunk_is_named() -> None:
    array, _, disk = mosaic([5] * 30, [1] * 30)
    damaged, disk["f7"] = deflated(np.zeros((5, 12), "i4"), (3, 8), "f7", damage=2)
    parts = [array[5 * number : 5 * number + 5] for number in range(30)]
    parts[7] = damaged
    with pytest.raises(CodecError) as caught:
        read_array(concatenate(parts, 0), ..., opened(disk))
    assert caught.value.place["url"] == "f7"
    assert caught.value.place["chunk"] == (1, 0)


def test_memory_of_the_plan_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    monkeypatch.setattr(
        "insitu.reading.many_tiles.group_tiles", lambda array, selection, numbers, least, much: ([], numbers)
    )
    array, _, _ = mosaic([7] * 400, [1] * 400)
    selection = Selection.of(..., array.shape)
    plan_read(array, selection)
    tracemalloc.start()
    try:
        plan = plan_read(array, selection)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(plan.tiles[0], ListedSelection)
    assert peak < estimate_read(array, selection).plan


def test_archives_opened_saved_and_opened_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(12):
        made = xr.Dataset(
            {"t": (("time", "y", "x"), rng.normal(size=(3, 20, 30)).astype("f4"))},
            {"time": np.arange(3) + 3 * number, "y": np.arange(20), "x": np.arange(30)},
        )
        encoding = {"t": {"zlib": True, "chunksizes": (1 + number % 3, 5 + number, 7 + number)}}
        made.to_netcdf(tmp_path / f"{number:02}.nc", engine="netcdf4", encoding=encoding)
    paths = sorted(tmp_path.glob("*.nc"))
    with xr.open_mfdataset(paths) as oracle, insitu.open_mfdataset(paths) as ds:
        ds.insitu.save(tmp_path / "all.insitu")
        with insitu.open_dataset(tmp_path / "all.insitu") as saved:
            for found in (ds, saved):
                assert found.insitu.tiles()["t"] == 12
                xr.testing.assert_identical(found.t.isel(y=3, x=11).compute(), oracle.t.isel(y=3, x=11).compute())
                xr.testing.assert_identical(found.t[::-5, 3:17, ::4].compute(), oracle.t[::-5, 3:17, ::4].compute())
                np.testing.assert_allclose(
                    found.t.mean("time").values, oracle.t.mean("time").values, rtol=1e-5, atol=1e-6
                )


@pytest.mark.parametrize("appends", [0, 2])
def test_tables_of_a_store_are_asked_at_once(tmp_path: Path, appends: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same answer as one by one, also where later files are in tables of their own."""
    for number in range(12):
        made = xr.Dataset({"t": (("time", "x"), np.arange(60.0).reshape(3, 20) + number)})
        how = {
            "chunksizes": (1 + number % 2, 5 + number),
            "dtype": "i2",
            "_FillValue": -9,
            "scale_factor": 0.5 + number / 100,
        }
        made.to_netcdf(tmp_path / f"{number:02}.nc", engine="netcdf4", encoding={"t": {"zlib": True, **how}})
    paths = [str(path) for path in sorted(tmp_path.glob("*.nc"))]
    target = tmp_path / "all.insitu"
    first = paths[: 12 - appends]
    insitu.open_mfdataset(first, combine="nested", concat_dim="time").insitu.save(target)
    for path in paths[12 - appends :]:
        insitu.Archive.open(target).append(path, dim="time")
    array: Any = insitu.scan(target).array("t")
    selection = Selection.of(np.s_[:, 3:17], array.shape)
    requested: list[Any] = []
    original = GridRows.locate
    monkeypatch.setattr(GridRows, "locate", lambda table, cells: requested.append(table) or original(table, cells))
    plan = plan_read(array, selection)
    assert not requested
    monkeypatch.setattr(GridRows, "locate_together", lambda *arguments: None)
    expected = plan_read(array, selection)
    for name in ("tile", "row", "source", "offset", "length"):
        np.testing.assert_array_equal(getattr(plan, name), getattr(expected, name))
    for one, other in zip(plan.locations, expected.locations, strict=True):
        np.testing.assert_array_equal(one.packing, other.packing)
        np.testing.assert_array_equal(one.encoding, other.encoding)
    xr.testing.assert_identical(
        insitu.open_dataset(target).t.load(),
        insitu.open_mfdataset(paths, combine="nested", concat_dim="time").t.load(),
    )
