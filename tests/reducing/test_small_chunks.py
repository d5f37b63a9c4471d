"""Many small chunks: the statistics of NumPy, with a few calls for thousands of them."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from insitu.model import Axis, Codec, Columns, Encoding, Packing, PackingKind, Packings, Source, Tile, VirtualArray
from insitu.reading import ReadContext, SourcePool
from insitu.reducing import Reduction, ReductionQuery, compute_statistics, reduce_chunks
from insitu.sources import MemorySource

METHODS = ["sum", "mean", "min", "max", "std", "count", "argmin", "argmax"]
AXES: list[tuple[int, ...]] = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]


def written(values: np.ndarray, chunks: tuple[int, ...], codecs: tuple[Codec, ...] = ()) -> tuple[VirtualArray, bytes]:
    """A file of chunks, plain or deflated, and the array that describes it."""
    grid = tuple(-(-n // c) for n, c in zip(values.shape, chunks, strict=True))
    blocks = []
    for cell in np.ndindex(*grid):
        part = values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(cell, chunks, strict=True))]
        part = np.pad(part, [(0, c - n) for c, n in zip(chunks, part.shape, strict=True)], constant_values=99)
        blocks.append(zlib.compress(part.tobytes()) if codecs else part.tobytes())
    lengths = np.array([len(block) for block in blocks])
    table = Columns(
        grid, (Source("file"),), np.asarray(0), (np.cumsum(lengths) - lengths).reshape(grid), lengths.reshape(grid)
    )
    axes = tuple(Axis.regular(n, c) for n, c in zip(values.shape, chunks, strict=True))
    tile = Tile(axes, (Encoding(values.dtype, codecs),), table)
    return VirtualArray.of(tile, dims=("a", "b", "c")), b"".join(blocks)


def statistics(array: VirtualArray, data: bytes, axes: Any, methods: list[str] = METHODS, **how: Any) -> Any:
    opened = SourcePool(opener=lambda source: MemorySource(data))
    return compute_statistics(array, ReductionQuery.of(methods, axes, **how), ReadContext("t", sources=opened))


def check(array: VirtualArray, data: bytes, values: np.ndarray) -> None:
    wide = values.astype("f8")
    for axes in AXES:
        found = statistics(array, data, axes)
        np.testing.assert_allclose(found["sum"], np.nansum(wide, axes), rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(found["mean"], np.nanmean(wide, axes), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found["std"], np.nanstd(wide, axes), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(found["min"], np.nanmin(values, axes))
        np.testing.assert_array_equal(found["max"], np.nanmax(values, axes))
        np.testing.assert_array_equal(found["count"], (~np.isnan(values)).sum(axes))
        flat = np.moveaxis(values, axes, range(-len(axes), 0))
        flat = flat.reshape(*flat.shape[: 3 - len(axes)], -1)
        np.testing.assert_array_equal(found["argmin"], np.nanargmin(flat, -1))
        np.testing.assert_array_equal(found["argmax"], np.nanargmax(flat, -1))


@pytest.fixture
def values() -> np.ndarray:
    random = np.random.default_rng(2)
    made = random.integers(-50, 50, (23, 31, 9)).astype("f4")
    made[random.random(made.shape) < 0.1] = np.nan
    made[0, 0] = made[:, 0, 0] = made[0, :, 0] = 1  # no line of it is missing
    made[:, :, 0] = np.nan_to_num(made[:, :, 0])
    made[0] = np.nan_to_num(made[0])
    made[:, 0] = np.nan_to_num(made[:, 0])
    return made


@pytest.mark.parametrize("codecs", [(), (Codec("zlib"),)], ids=["plain", "zlib"])
@pytest.mark.parametrize("chunks", [(1, 1, 4), (1, 2, 9), (4, 5, 2), (23, 1, 1), (1, 31, 9)])
def test_like_numpy(values: np.ndarray, chunks: tuple[int, ...], codecs: tuple[Codec, ...]) -> None:
    check(*written(values, chunks, codecs), values)


@pytest.mark.parametrize("chunks", [(1, 1, 4), (4, 5, 2), (1, 31, 9)])
def test_packed(values: np.ndarray, chunks: tuple[int, ...]) -> None:
    stored = np.where(np.isnan(values), -999, values * 2).astype("i2")
    array, data = written(stored, chunks, (Codec("zlib"),))
    kind = PackingKind(dtype="float32", scale_dtype="float32")
    packings = Packings.of([Packing(scale=0.5, missing=(np.int16(-999),), kind=kind)])
    tile = replace(array.tiles[0], packings=packings)
    check(replace(array, tiles=(tile,), dtype=np.dtype("f4")), data, values)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("axes", [(0,), (2,), (0, 1, 2)])
def test_a_few_calls_for_thousands(axes: tuple[int, ...], packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(40 * 50 * 4, dtype="f4").reshape(40, 50, 4)
    array, data = written(values, (1, 1, 4))
    if packed:
        packings = Packings.of([Packing(missing=(np.float32(-1),), kind=PackingKind(dtype="<f4", masked="<f4"))])
        array = replace(array, tiles=(replace(array.tiles[0], packings=packings),))
    calls = []
    for name in ("step", "merge"):
        real = getattr(Reduction, name)
        monkeypatch.setattr(Reduction, name, lambda self, *a, _real=real, **k: calls.append(1) or _real(self, *a, **k))
    found = statistics(array, data, axes, ["mean"])["mean"]
    np.testing.assert_allclose(found, values.mean(axes, dtype="f8"), rtol=1e-6)
    assert len(calls) < 100  # of 2000 chunks


def test_large_places_are_merged_one_by_one(values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce_chunks, "STACKED_ELEMENTS", 0)
    check(*written(values, (2, 5, 4)), values)


def test_the_same_bits_each_time(values: np.ndarray) -> None:
    array, data = written(values * np.float32(0.1), (1, 3, 2), (Codec("zlib"),))
    for axes in AXES:
        first = statistics(array, data, axes, ["mean", "std"])
        for _ in range(3):
            again = statistics(array, data, axes, ["mean", "std"])
            assert all(first[method].tobytes() == again[method].tobytes() for method in first)
