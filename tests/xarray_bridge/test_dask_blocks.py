"""Blocks of Dask arrays: whole stored chunks of about the size that Dask is set to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import insitu
from insitu.lazy_array.dask_blocks import choose_blocks
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.model import Axis, Columns, Encoding, Tile, VirtualArray

dask = pytest.importorskip("dask")


def unwritten(lengths: list[int], chunks: list[int]) -> DeferredValues:
    """Return an array of which only the chunks are known."""
    axes = tuple(Axis.regular(length, size) for length, size in zip(lengths, chunks, strict=True))
    tile = Tile(axes, (Encoding(np.dtype("f4")),), Columns.of_unwritten(tuple(axis.count for axis in axes)))
    return DeferredValues(VirtualArray.of(tile, dims=[f"d{number}" for number in range(len(axes))]))


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=3), st.integers(1, 20_000))
@settings(max_examples=200, deadline=None)
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
