"""Blocks of Dask arrays: whole stored chunks of about the size that Dask is set to.

Modules: lazy_array/load_values.py
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import insitu
from insitu import options, trace
from insitu.expressions.nodes import Expression, Stored
from insitu.lazy_array.dask_blocks import choose_blocks, choose_reads
from insitu.lazy_array.load_values import to_dask
from insitu.model import Axis, Columns, Encoding, Tile, VirtualArray

dask = pytest.importorskip("dask")


def unwritten(lengths: list[int], chunks: list[int]) -> Expression:
    """Return an array of which only the chunks are known."""
    axes = tuple(Axis.regular(length, size) for length, size in zip(lengths, chunks, strict=True))
    tile = Tile(axes, (Encoding(np.dtype("f4")),), Columns.of_unwritten(tuple(axis.count for axis in axes)))
    return Stored(VirtualArray.of(tile, dims=[f"d{number}" for number in range(len(axes))]))


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=3), st.integers(1, 20_000))
@settings(max_examples=80, deadline=None)
def test_blocks_are_whole_chunks_up_to_a_size(axes: list[tuple[int, int]], limit: int) -> None:
    array = unwritten([length for length, _ in axes], [size for _, size in axes])
    with dask.config.set({"array.chunk-size": limit}):
        blocks = choose_blocks(array)
    assert tuple(map(sum, blocks)) == array.shape
    for cut, (length, size) in zip(blocks, axes, strict=True):
        assert all(border % size == 0 or border == length for border in np.cumsum(cut))
    chunk = np.prod([min(length, size) for length, size in axes]) * 4
    assert np.prod([max(cut) for cut in blocks]) * 4 <= max(limit, chunk)
    # A block that could have twice the chunks along its first cut dimension would have them.
    if (first := next((axis for axis, cut in reversed([*enumerate(blocks)]) if len(cut) > 1), None)) is not None:
        grown = np.prod([max(cut) for cut in blocks]) * 4 * 2
        assert grown > limit or blocks[first][0] == axes[first][0]


def test_a_million_chunks_are_some_hundred_blocks() -> None:
    array = unwritten([1_000_000, 256, 256], [1, 256, 256])
    blocks = choose_blocks(array)
    assert len(blocks[0]) == -(-1_000_000 // 512)
    assert blocks[1:] == ((256,), (256,))


@pytest.fixture(scope="module")
def varied_chunks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Variables of two types, bounds, and one that is cut otherwise."""
    path = tmp_path_factory.mktemp("blocks") / "varied.nc"
    rng = np.random.default_rng(0)
    dims = ("time", "lat", "lon")
    ds = xr.Dataset(
        {
            "wide": (dims, rng.random((40, 12, 10))),
            "narrow": (dims, rng.random((40, 12, 10)).astype("f4")),
            "series": (dims, rng.random((40, 12, 10))),
            "bounds": (("time", "nv"), rng.random((40, 2))),
        },
        {"time": np.arange(40.0), "lat": np.arange(12.0), "lon": np.arange(10.0)},
    )
    cut: dict[str, Any] = {"wide": (4, 6, 10), "narrow": (2, 12, 10), "series": (40, 3, 5), "bounds": (7, 2)}
    ds.to_netcdf(path, engine="h5netcdf", encoding={name: {"chunksizes": size} for name, size in cut.items()})
    return path


def open_blocks(path: Path, chunks: Any, limit: int = 8_000) -> xr.Dataset:
    with dask.config.set({"array.chunk-size": limit}):
        return insitu.open_dataset(path, chunks=chunks)


@pytest.mark.parametrize("chunks", [{}, "auto", {"time": "auto"}])
def test_variables_are_cut_alike_where_their_chunks_allow_it(varied_chunks: Path, chunks: Any) -> None:
    ds = open_blocks(varied_chunks, chunks)
    assert ds.wide.chunks == ((8,) * 5, (12,), (10,))
    assert ds.narrow.chunks == ds.wide.chunks
    assert ds.bounds.chunks == ((8,) * 5, (2,))
    assert ds.series.chunks == ds.wide.chunks  # small: it costs little to read a chunk several times
    assert ds.chunks["time"] == (8,) * 5  # xarray raises if they differ
    xr.testing.assert_identical(ds.load(), xr.load_dataset(varied_chunks, engine="h5netcdf"))


def test_a_large_variable_keeps_its_own_chunks(varied_chunks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.lazy_array.dask_blocks.SMALL_BYTES", 1000)
    ds = open_blocks(varied_chunks, {})
    assert ds.series.chunks == ((40,), (3,) * 4, (5, 5))
    assert ds.narrow.chunks == ds.wide.chunks


@pytest.mark.parametrize(
    ("chunks", "wanted"),
    [
        ({"time": 5}, ((5,) * 8, (12,), (10,))),
        ({"time": -1}, ((40,), (6, 6), (10,))),
        ({"lat": 4, "time": (10, 30)}, ((10, 30), (4, 4, 4), (10,))),
        ({"time": 3, "other": 5}, ((3,) * 13 + (1,), (12,), (10,))),
    ],
)
def test_given_blocks(varied_chunks: Path, chunks: Any, wanted: Any) -> None:
    assert open_blocks(varied_chunks, chunks, 4_800).wide.chunks == wanted


def test_blocks_in_bytes_are_cut_by_dask(varied_chunks: Path) -> None:
    ds = open_blocks(varied_chunks, {"time": "2kB"})
    assert max(ds.wide.chunks[0]) < 40
    np.testing.assert_array_equal(ds.wide.values, xr.load_dataset(varied_chunks, engine="h5netcdf").wide)


def test_a_block_of_no_length(varied_chunks: Path) -> None:
    with pytest.raises(ValueError, match="positive length, or -1"):
        open_blocks(varied_chunks, {"time": -3})


def test_the_engine_keeps_xarrays_meaning(varied_chunks: Path) -> None:
    ds = xr.open_dataset(varied_chunks, engine="insitu", chunks={})
    assert ds.wide.chunks == ((4,) * 10, (6, 6), (10,))


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A variable of short chunks, one of long chunks, and one of both kinds."""
    path = tmp_path_factory.mktemp("blocks") / "compressed.nc"
    rng = np.random.default_rng(0)
    dims = ("time", "lat", "lon")
    cut = {"steps": (1, 24, 30), "columns": (50, 4, 5), "boxes": (10, 8, 10)}
    ds = xr.Dataset({name: (dims, rng.random((50, 24, 30)).astype("f4")) for name in cut})
    ds.to_netcdf(
        path, engine="h5netcdf", encoding={name: {"chunksizes": size, "zlib": True} for name, size in cut.items()}
    )
    return path


CUTS: list[dict[str, int]] = [
    {"time": -1, "lat": 6, "lon": 6},
    {"time": 3, "lat": 24, "lon": 30},
    {"time": 7, "lat": 9, "lon": 11},
    {"time": 10, "lat": 5, "lon": 30},
]


@pytest.mark.parametrize("name", ["steps", "columns", "boxes"])
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_chunks_that_blocks_cut_are_read_once(
    compressed: Path, monkeypatch: pytest.MonkeyPatch, name: str, cut: dict[str, int]
) -> None:
    monkeypatch.setattr("insitu.lazy_array.dask_blocks.SMALL_BYTES", 1000)
    expected = xr.load_dataset(compressed, engine="h5netcdf")[name]
    with insitu.open_dataset(compressed, cache=False) as ds, trace() as whole:
        ds[name].load()
    with insitu.open_dataset(compressed, chunks=cut, cache=False) as ds, trace() as cost:
        assert ds[name].chunks == expected.chunk(cut).chunks
        xr.testing.assert_identical(ds[name].compute(), expected)
    assert cost.bytes <= whole.bytes


@pytest.mark.parametrize("name", ["steps", "columns", "boxes"])
@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("share", [2, 5, 100])
def test_blocks_made_of_the_same_reads_are_bounded(
    compressed: Path, monkeypatch: pytest.MonkeyPatch, name: str, cut: dict[str, int], share: int
) -> None:
    """No block needs a read beyond those of its neighbours that may be held with it."""
    monkeypatch.setattr("insitu.lazy_array.dask_blocks.SMALL_BYTES", 1000)
    expected = xr.load_dataset(compressed, engine="h5netcdf")[name]
    blocks = expected.chunk(cut).chunks
    assert blocks is not None
    limit = expected.nbytes // share
    with options(read_limit=limit), insitu.open_dataset(compressed) as ds:
        array = ds[name].variable._data
        reads = choose_reads(array.node, blocks)
        np.testing.assert_array_equal(to_dask(array, blocks).compute(), expected)
    assert tuple(map(sum, reads)) == expected.shape
    together = 4 * math.prod(max(_held_together(*along)) for along in zip(blocks, reads, strict=True))
    assert together <= max(limit, 4 * math.prod(max(lengths) for lengths in blocks))


def _held_together(blocks: tuple[int, ...], reads: tuple[int, ...]) -> Any:
    """Return the lengths between the borders that blocks and reads have in common."""
    return np.diff([0, *np.intersect1d(np.cumsum(blocks), np.cumsum(reads))])


def test_blocks_of_one_array_that_is_cut_twice(compressed: Path) -> None:
    with insitu.open_dataset(compressed) as ds:
        array = ds.steps.variable._data
        one, other = to_dask(array, (10, 24, 30)), to_dask(array, (25, 24, 30))
        assert one.name != other.name  # Dask takes blocks of one name for the same
        assert to_dask(array, (10, 24, 30)).name == one.name
        np.testing.assert_array_equal((one - other).compute(), 0)
