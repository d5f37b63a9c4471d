"""Is the plan of a copy right whatever the grids and the memory are?"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.copying.sweeps import PREFERRED_BOX, SourceGrid, Sweep, plan_passes

LENGTHS = st.integers(1, 24)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], SourceGrid, tuple[int, ...], int]:
    shape = tuple(draw(st.lists(LENGTHS, min_size=1, max_size=3)))
    sizes = tuple(draw(st.integers(1, n)) for n in shape)
    borders = None
    if draw(st.booleans()):
        borders = tuple(
            np.unique([0, *draw(st.lists(st.integers(0, n), max_size=5)), n]).astype(np.int64) for n in shape
        )
        sizes = tuple(int(np.diff(ends).max(initial=1)) for ends in borders)
    target = tuple(draw(st.integers(1, n + 3)) for n in shape)
    return shape, SourceGrid(sizes, borders), target, draw(st.integers(1, 4 * math.prod(shape) * 8))


def source_chunks(grid: SourceGrid, shape: tuple[int, ...], box: tuple[slice, ...]) -> set[tuple[int, ...]]:
    """The chunks that a box touches; axes that can be read anywhere have none."""
    ranges = []
    for axis, part in enumerate(box):
        size = grid.sizes[axis]
        ends = np.arange(0, shape[axis], size) if grid.borders is None or size == 1 else grid.borders[axis][:-1]
        ranges.append(np.unique(np.searchsorted(ends, np.arange(part.start, part.stop), side="right")).tolist())
    return set(map(tuple, np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, len(shape)).tolist()))


def check_sweep(sweep: Sweep, shape: tuple[int, ...], objects: tuple[int, ...]) -> None:
    """Every element is in one box, and no two boxes have a part of one object."""
    seen = np.zeros(shape, int)
    owners: dict[tuple[int, ...], int] = {}
    for number, box in enumerate(sweep.boxes(shape)):
        seen[box] += 1
        cells = np.argwhere(np.ones([part.stop - part.start for part in box])) + [part.start for part in box]
        for cell in {tuple(row) for row in (cells // objects).tolist()}:
            assert owners.setdefault(cell, number) == number
    assert (seen == 1).all()
    assert sweep.count(shape) == number + 1


@settings(deadline=None, max_examples=60)
@given(cases())
def test_no_two_boxes_write_one_object(case: tuple[tuple[int, ...], SourceGrid, tuple[int, ...], int]) -> None:
    shape, source, target, room = case
    passes = plan_passes(shape, 8, source, target, room)
    objects = tuple(min(size, n) for size, n in zip(target, shape, strict=True))
    check_sweep(passes.last, shape, objects)
    if passes.first is not None:
        check_sweep(passes.first, shape, passes.between)
        assert all(1 <= size <= n for size, n in zip(passes.between, shape, strict=True))


@settings(deadline=None, max_examples=60)
@given(cases())
def test_each_chunk_is_decoded_once_within_the_memory(
    case: tuple[tuple[int, ...], SourceGrid, tuple[int, ...], int],
) -> None:
    """A cache of the size that the plan names, which drops what was used longest ago, never needs a chunk again that
    it has dropped.
    """
    shape, source, target, room = case
    passes = plan_passes(shape, 8, source, target, room)
    sweep = passes.last
    if passes.first is not None or not sweep.decodes_once:
        return
    assert sweep.memory <= room
    chunk_bytes = 8 * math.prod(min(size, n) for size, n in zip(source.sizes, shape, strict=True))
    cached: OrderedDict[tuple[int, ...], None] = OrderedDict()
    decoded: dict[tuple[int, ...], int] = {}
    boxes = list(sweep.boxes(shape))
    for box in boxes:
        for chunk in sorted(source_chunks(source, shape, box)):
            if chunk not in cached:
                decoded[chunk] = decoded.get(chunk, 0) + 1
            is_shared = sum(chunk in source_chunks(source, shape, other) for other in boxes) > 1
            if is_shared:
                cached[chunk] = None
                cached.move_to_end(chunk)
            while len(cached) * chunk_bytes > max(sweep.cache_bytes, 0):
                cached.popitem(last=False)
    assert all(times == 1 for times in decoded.values())


def test_one_pass_where_it_fits_and_two_where_not() -> None:
    maps, series = SourceGrid((1, 180, 360)), (1000, 20, 20)
    one = plan_passes((1000, 180, 360), 4, maps, series, 300 << 20)
    assert (one.count, one.last.cache_bytes, one.last.box) == (1, 0, (1000, 180, 360))
    two = plan_passes((1000, 180, 360), 4, maps, series, 64 << 20)
    assert two.count == 2
    assert two.memory <= 80 << 20
    assert two.first is not None
    assert (two.first.box[1:], two.last.box[0]) == ((180, 360), 1000)


def test_boxes_of_equal_grids_are_whole_chunks() -> None:
    passes = plan_passes((1000, 180, 360), 4, SourceGrid((10, 90, 90)), (10, 90, 90), 1 << 30)
    assert (passes.count, passes.last.cache_bytes) == (1, 0)
    assert math.prod(passes.last.box) * 4 <= PREFERRED_BOX


def test_a_scalar_is_one_box() -> None:
    passes = plan_passes((), 8, SourceGrid(()), (), 100)
    assert list(passes.last.boxes(())) == [()]


@settings(deadline=None)
@given(cases())
def test_pieces_are_of_whole_chunks_or_of_parts(case: tuple[tuple[int, ...], SourceGrid, tuple[int, ...], int]) -> None:
    shape, source, target, room = case
    sweep = plan_passes(shape, 8, source, target, room).last
    for box in sweep.boxes(shape):
        seen = np.zeros(shape, int)
        for piece in source.cut_box(box, shape):
            seen[piece] += 1
            parts = []
            for axis, part in enumerate(piece):
                size = source.sizes[axis]
                ends = np.append(np.arange(0, shape[axis], size), shape[axis])
                ends = ends if source.borders is None or size == 1 else source.borders[axis]
                chunks = [(a, b) for a, b in itertools.pairwise(ends) if a < part.stop and b > part.start]
                parts.append([part.start <= a and b <= part.stop for a, b in chunks])
            assert all(map(all, parts)) or any(not any(axis) for axis in parts)
        assert (seen[box] == 1).all()
        assert seen.sum() == seen[box].sum()
