"""Which elements of a field are read for a picture: never more than a budget, spread over the whole box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.model import Axis, Codec, Columns, Encoding, Selection, Tile, VirtualArray, concatenate
from insitu.reading.estimate import estimate_read
from insitu.server.explorer.field_sampling import FieldBox, Sampling, sample_field, sample_side

ZLIB = Encoding(np.dtype("<f4"), (Codec("zlib"),))


def array_of(shape: Sequence[int], chunks: Sequence[int], encoding: Encoding = ZLIB) -> VirtualArray:
    axes = tuple(Axis.regular(length, size) for length, size in zip(shape, chunks, strict=True))
    tile = Tile(axes, (encoding,), Columns.of_unwritten(tuple(axis.count for axis in axes)))
    return VirtualArray.of(tile, dims=[f"d{number}" for number in range(len(shape))])


def sample(array: VirtualArray, box: FieldBox, pixels: tuple[int, int], how: str, budget: int) -> Sampling | None:
    lead = (0,) * (array.ndim - 2)
    sides = (array.ndim - 2, array.ndim - 1)
    return sample_field(array, sides, lambda rows, columns: (*lead, rows, columns), box, pixels, how, budget)


def decoded(array: VirtualArray, found: Sampling) -> int:
    """The bytes of all chunks that are touched, counted one by one."""
    total = 0
    lead = (0,) * (array.ndim - 2)
    touched = set()
    for row in np.arange(array.shape[-2])[found.y.selector]:
        for column in np.arange(array.shape[-1])[found.x.selector]:
            place = (*lead, row, column)
            tile = array.tiles[0]
            touched.add(tuple(int(at) // axis.size for at, axis in zip(place, tile.axes, strict=True)))
    for _ in touched:
        total += 4 * int(np.prod([axis.size for axis in array.tiles[0].axes]))
    return total


def test_everything_that_fits() -> None:
    found = sample(array_of((90, 180), (45, 60)), FieldBox(0, 90, 0, 180), (90, 180), "auto", 1 << 20)
    assert found is not None
    assert (found.method, found.y.step, found.x.step, found.share) == ("all", 1, 1, 1.0)
    assert (found.y.selector, found.x.selector) == (slice(0, 90), slice(0, 180))


def test_means_within_the_budget_only() -> None:
    array, box = array_of((1000, 1000), (100, 100)), FieldBox(0, 1000, 0, 1000)
    means = sample(array, box, (100, 100), "mean", 4_000_000)
    assert means is not None
    assert (means.method, means.y.step) == ("mean", 10)
    assert sample(array, box, (100, 100), "mean", 3_999_999) is None
    nearest = sample(array, box, (100, 100), "auto", 3_999_999)
    assert nearest is not None
    assert nearest.method == "nearest"


def test_a_huge_image_without_overviews() -> None:
    """A picture of 10¹⁰ elements touches a bounded number of chunks, in all parts of the image."""
    array = array_of((100_000, 100_000), (512, 512))
    budget = 64 << 20
    found = sample(array, FieldBox(0, 100_000, 0, 100_000), (600, 800), "auto", budget)
    assert found is not None
    chosen = Selection.of((found.y.selector, found.x.selector), array.shape)
    assert estimate_read(array, chosen).decoded <= budget
    assert found.method == "nearest"
    assert 0 < found.share < 0.01
    for side in (found.y, found.x):
        assert side.positions is not None
        assert len(side.positions) == side.count
        assert (np.diff(side.positions) >= 0).all()
        bands = np.unique(side.positions // 512)
        assert len(bands) > 4
        assert np.abs(np.diff(bands)).max() <= 2 * (196 // len(bands) + 1)
        # A pixel shows an element of the nearest chunk that is read: no farther than the gap between two.
        assert np.abs(side.positions - side.centres).max() <= 512 * (196 // len(bands) + 1)


def test_a_chunk_that_is_larger_than_the_budget_is_read_alone() -> None:
    array = array_of((50, 4000, 4000), (50, 2000, 2000))
    found = sample(array, FieldBox(0, 4000, 0, 4000), (100, 100), "auto", 1 << 20)
    assert found is not None
    assert found.share == 0.25
    assert decoded(array, found) == 4 * 50 * 2000 * 2000


def test_a_mosaic_of_files() -> None:
    """The chunks of many grids count, each once."""
    array = concatenate([array_of((10, 3000), (10, 3000)) for _ in range(300)], 0)
    one = 10 * 3000 * 4
    chosen = Selection.of(np.s_[25:61, 5:9], array.shape)
    assert estimate_read(array, chosen).decoded == 5 * one
    found = sample(array, FieldBox(0, 3000, 0, 3000), (100, 100), "nearest", 20 * one)
    assert found is not None
    chosen = Selection.of((found.y.selector, found.x.selector), array.shape)
    assert 10 * one <= estimate_read(array, chosen).decoded <= 20 * one
    assert 10 / 300 <= found.share <= 20 / 300


def test_uncompressed_chunks_are_read_in_part() -> None:
    array = array_of((4000, 4000), (4000, 4000), Encoding(np.dtype("<f4")))
    chosen = Selection.of(np.s_[:10, :20], array.shape)
    assert estimate_read(array, chosen).decoded == 800


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_field(data: Any) -> None:
    numbers = st.integers(1, 60)
    shape, chunks = ([data.draw(numbers) for _ in range(2)] for _ in range(2))
    array = array_of(shape, chunks)
    top, left = data.draw(st.integers(0, shape[0] - 1)), data.draw(st.integers(0, shape[1] - 1))
    box = FieldBox(top, data.draw(st.integers(top + 1, shape[0])), left, data.draw(st.integers(left + 1, shape[1])))
    pixels = (data.draw(st.integers(1, 20)), data.draw(st.integers(1, 20)))
    one = 4 * chunks[0] * chunks[1]
    budget = data.draw(st.integers(1, 40)) * one
    found = sample(array, box, pixels, data.draw(st.sampled_from(["auto", "nearest"])), budget)
    assert found is not None
    assert found.y.count <= pixels[0]
    assert found.x.count <= pixels[1]
    assert decoded(array, found) <= budget
    assert 0 < found.share <= 1
    for side, low, high in ((found.y, box.top, box.bottom), (found.x, box.left, box.right)):
        assert side.centres[0] >= low
        assert side.centres[-1] <= high - 1
        if side.positions is not None:
            assert side.positions.min() >= low
            assert side.positions.max() < high
            # What is selected are the positions, each once.
            chosen = np.arange(high)[side.selector]
            np.testing.assert_array_equal(chosen, np.unique(side.positions))


@pytest.mark.parametrize(
    ("length", "pixels", "step", "count"), [(10, 3, 4, 3), (9, 3, 3, 3), (1, 5, 1, 1), (7, 2, 4, 2)]
)
def test_pixels_of_a_side(length: int, pixels: int, step: int, count: int) -> None:
    side = sample_side(5, length, pixels, nearest=True)
    assert (side.step, side.count) == (step, count)
    assert side.positions is not None
    blocks = [range(5 + step * number, min(5 + step * (number + 1), 5 + length)) for number in range(count)]
    assert all(position in block for position, block in zip(side.positions, blocks, strict=True))
    assert side.centres.tolist() == [(block[0] + block[-1]) / 2 for block in blocks]


@given(full=st.integers(1, 10**7), shrink=st.integers(1, 512), data=st.data())
def test_a_box_of_an_overview_lies_in_it(full: int, shrink: int, data: st.DataObject) -> None:
    """Rounding once gave one row more than an overview of 100,000 rows has, 1,563."""
    smaller = -(-full // shrink)
    top = data.draw(st.integers(0, full - 1))
    bottom = data.draw(st.integers(top + 1, full))
    box = FieldBox(top, bottom, top, bottom).shrink((full, full), (smaller, smaller))
    assert 0 <= box.top < box.bottom <= smaller
    assert box.top * full <= top * smaller
    assert box.bottom * full >= bottom * smaller
