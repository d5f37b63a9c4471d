"""Ten thousand files are one tile, in linear time and little memory."""

from __future__ import annotations

import pickle

import numpy as np

from insitu.model import (
    Axis,
    Columns,
    Encoding,
    Packing,
    PackingKind,
    Packings,
    Source,
    Tile,
    VirtualArray,
    concatenate,
)

PARTS = 10_000
KIND = PackingKind(dtype="float32", scale_dtype="float64", offset_dtype="float64")


def part(number: int, days: int, kind: PackingKind = KIND) -> VirtualArray:
    """A month of daily maps in chunks of ten days: a partial last chunk, and a packing of its own."""
    axes = (Axis.regular(days, 10), Axis.regular(180, 90), Axis.regular(360, 180))
    grid = tuple(axis.count for axis in axes)
    table = Columns(
        grid, (Source(f"s3://bucket/archive/{number:06}.nc", 10**8, f"etag-{number}"),), np.asarray(0),
        4096 + 10_000 * np.arange(np.prod(grid)).reshape(grid), 9_000 + np.arange(np.prod(grid)).reshape(grid),
    )  # fmt: skip
    packings = Packings.of(
        [Packing(scale=0.01 + number, offset=float(number), missing=(np.int16(-number),), kind=kind)]
    )
    return VirtualArray.of(Tile(axes, (Encoding(np.dtype("<i2")),), table, packings), dims=("time", "lat", "lon"))


def test_ten_thousand_parts_are_one_tile() -> None:
    days = [28 + number % 4 for number in range(PARTS)]
    joined = concatenate([part(n, d) for n, d in enumerate(days)], "time")
    assert len(joined.tiles) == 1
    assert joined.shape == (sum(days), 180, 360)
    tile = joined.tiles[0]
    assert len(tile.packings) == PARTS
    assert len(tile.chunks.sources) == PARTS
    # The last chunk of a part shows 8 to 10, or 1, of the ten days that it stores.
    first_cell = np.concatenate([[0], np.cumsum([-(-d // 10) for d in days])])
    for number in (0, 1, 2, 4321, PARTS - 1):
        last = first_cell[number + 1] - 1
        assert tile.axes[0].show(np.array([last])).extent[0] == (days[number] - 1) % 10 + 1
        chunk = tile.chunks[int(last), 1, 1]
        assert chunk.source.url == f"s3://bucket/archive/{number:06}.nc"
        packing = tile.packings[chunk.packing]
        assert (packing.scale, packing.offset, packing.missing) == (0.01 + number, float(number), (np.int16(-number),))
        assert packing.kind == KIND


def test_a_join_touches_each_part_once(monkeypatch) -> None:
    """Counted, not timed: what is looked at grows with the parts, not with their square."""
    seen = []
    plain = Axis.show
    monkeypatch.setattr(Axis, "show", lambda self, cells: (seen.append(len(cells)), plain(self, cells))[1])
    cost = {}
    for count in (50, 500):
        parts = [part(n, 28 + n % 4) for n in range(count)]
        seen.clear()
        concatenate(parts, "time")
        cost[count] = sum(seen)
    assert cost[500] <= 10.5 * cost[50]


def test_a_million_chunks_of_a_thousand_files_take_little() -> None:
    def file(number: int) -> VirtualArray:
        url = f"s3://bucket/{'x' * 80}/{number:08}.nc"
        axes = (Axis.regular(1000, 1), Axis.regular(50, 50))
        offsets = 2048 + 10_000_000 * np.arange(1000, dtype=np.int64)[:, None]
        lengths = np.random.default_rng(number).integers(900_000, 9_000_000, (1000, 1))
        return VirtualArray.of(
            Tile(
                axes, (Encoding(np.dtype("<f4")),), Columns((1000, 1), (Source(url),), np.asarray(0), offsets, lengths)
            ),
            dims=("time", "x"),
        )

    array = concatenate([file(number) for number in range(1000)], "time")
    chunks = array.tiles[0].chunks
    assert isinstance(chunks, Columns)
    assert np.prod(chunks.shape) == 1_000_000
    urls = sum(len(source.url) + 200 for source in chunks.sources)  # an object and its text
    assert chunks.nbytes + urls <= 24 * 1_000_000
    assert len(pickle.dumps(array)) <= 24 * 1_000_000
    assert len(pickle.dumps(array[5:10])) < 200_000  # the sources, and a few rows


def test_a_grid_that_was_never_written_costs_nothing() -> None:
    table = Columns.of_unwritten((10**6, 10**6, 10**6))
    assert table.nbytes < 100
    assert len(pickle.dumps(table)) < 2000
