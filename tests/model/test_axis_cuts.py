"""An axis is cut in columns, in plain numbers, and by bounds alone: all are what `np.arange(n)[slice]` says."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from insitu.model import Axis, Stride
from insitu.model.axis import clip_stride, cut_cells, cut_numbers, span_of, steps_within
from insitu.model.selection import selector_bounds

LENGTHS = st.integers(0, 40)
BOUNDS = st.none() | st.integers(-45, 45)
STEPS = st.integers(-9, 9).filter(bool)


@st.composite
def slices(draw: st.DrawFn, length: int) -> tuple[Stride, np.ndarray]:
    """A slice of an axis, and the positions that NumPy takes."""
    key = slice(draw(BOUNDS), draw(BOUNDS), draw(STEPS))
    return Stride.of(key, length), np.arange(length)[key]


@st.composite
def axes(draw: st.DrawFn) -> tuple[Axis, list[np.ndarray]]:
    """An axis of at least one element, and the positions of its elements in the chunk of each cell."""
    if draw(st.booleans()):
        axis = Axis.regular(draw(st.integers(1, 40)), draw(st.integers(1, 12)), draw(st.booleans()))
    else:
        extent = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=8)))
        assume(extent.sum())
        step = np.array([draw(st.sampled_from([-2, -1, 0, 1, 3])) for _ in extent])
        skip = np.where(step < 0, -step * 6, draw(st.integers(0, 3)))
        axis = Axis.irregular(extent, skip, step, 24)
    shown = axis.show(np.arange(axis.count))
    return axis, [skip + step * np.arange(extent) for extent, skip, step, _ in zip(*shown, strict=True)]


@given(st.data())
def test_cuts_are_what_numpy_takes(data: st.DataObject) -> None:
    axis, chunks = data.draw(axes())
    stride, positions = data.draw(slices(axis.length))
    assume(len(positions))
    cells = np.arange(axis.count)
    origin = data.draw(st.integers(0, 1 << 40))  # cells may begin anywhere, if the slice counts from there, too
    everywhere = cut_cells(
        cells, axis.begin(cells) + origin, axis.show(cells), stride._replace(start=stride.start + origin)
    )
    owner = np.repeat(cells, [len(chunk) for chunk in chunks])
    place = np.concatenate(chunks)
    for cut in (axis.cut(stride), everywhere):
        found = np.full((2, len(positions)), -1)
        for cell, extent, skip, step, out in zip(*(column.tolist() for column in cut), strict=True):
            for number in range(extent):
                assert (found[:, out + number] == -1).all()
                found[:, out + number] = cell, skip + step * number
        np.testing.assert_array_equal(found, [owner[positions], place[positions]])
    np.testing.assert_array_equal(axis.cut(stride).out, np.sort(axis.cut(stride).out))


@given(st.data())
def test_plain_numbers_are_the_same_as_columns(data: st.DataObject) -> None:
    axis = Axis.regular(data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12)), data.draw(st.booleans()))
    start = data.draw(st.integers(0, axis.length - 1))
    stop = data.draw(st.integers(start + 1, axis.length))
    cut = axis.cut(Stride(start, 1, stop - start))
    few = cut_numbers(axis, start, stop)
    assert [one.cell for one in few] == cut.cell.tolist()
    assert [one.stored for one in few] == axis.stored_lengths(cut.cell).tolist()
    assert [one.inside for one in few] == [slice(s, s + n) for s, n in zip(cut.skip, cut.extent, strict=True)]
    assert [one.outside for one in few] == [slice(o, o + n) for o, n in zip(cut.out, cut.extent, strict=True)]


@given(st.data(), LENGTHS, st.integers(0, 40), LENGTHS)
def test_the_part_of_a_slice_within_a_tile(data: st.DataObject, length: int, near: int, many: int) -> None:
    stride, positions = data.draw(slices(length))
    inside = np.flatnonzero((positions >= near) & (positions < near + many))
    clipped, at = clip_stride(stride, near, many)
    np.testing.assert_array_equal(clipped.start + clipped.step * np.arange(clipped.length), positions[inside] - near)
    first, count = steps_within(np.array([near]), np.array([many]), stride)
    assert max(int(count[0]), 0) == len(inside)
    if len(inside):
        assert at == inside[0]
        assert first[0] == (positions < near).sum()
    assert selector_bounds(stride) == ((positions.min(), positions.max()) if len(positions) else (0, -1))
    np.testing.assert_array_equal(
        stride.ascending.start + stride.ascending.step * np.arange(len(positions)), np.sort(positions)
    )


@given(st.data())
def test_bounds_are_those_of_the_cut(data: st.DataObject) -> None:
    axis, chunks = data.draw(axes())
    near, length = data.draw(st.integers(0, 10)), data.draw(st.integers(0, 60))
    owner = np.repeat(np.arange(axis.count), [len(chunk) for chunk in chunks])
    kind = data.draw(st.sampled_from(["slice", "integer", "indices"]))
    if kind == "slice":
        selector, positions = data.draw(slices(length))
    elif kind == "integer":
        selector = data.draw(st.integers(0, 60))
        positions = np.array([selector])
    else:
        selector = positions = np.array(data.draw(st.lists(st.integers(0, 60), max_size=9)), np.int64)
    inside = positions[(positions >= near) & (positions < near + axis.length)] - near
    span = span_of(axis, selector, near)
    counts = np.bincount(owner[inside], minlength=axis.count)
    assert span.wanted == len(inside)
    assert span.distinct == len(np.unique(inside))
    assert np.count_nonzero(counts) <= span.cells <= len(inside)
    assert counts.max() <= span.picked <= len(inside) or axis.cells is not None
    assert span.stored == max(axis.show(np.arange(axis.count)).stored.max(), 1) or axis.cells is None
    if axis.is_regular and kind != "slice":
        assert span.cells == np.count_nonzero(counts)
    for cell in np.flatnonzero(counts):
        mine = inside[owner[inside] == cell]
        assert min(mine.max() - mine.min() + 1, span.stored) <= span.extent
