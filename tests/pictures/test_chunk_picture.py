"""The picture of the chunks of random mosaics, against a loop over all cells.

Modules: model/encoding_texts.py, pictures/cell_details.py, pictures/cell_grid.py, pictures/chunk_numbering.py,
pictures/chunk_plane.py, pictures/chunk_raster.py
"""

from __future__ import annotations

import itertools
import math
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mosaics import mosaics

from insitu import scan
from insitu.errors import SelectionError
from insitu.model import (
    ABSENT,
    UNWRITTEN,
    Absent,
    Axis,
    Codec,
    Columns,
    Encoding,
    Inline,
    Packing,
    Packings,
    Source,
    Stored,
    Tile,
    Unwritten,
    VirtualArray,
    VirtualGroup,
    concatenate,
    scatter,
)
from insitu.model.encoding_texts import encoding_text, packing_text
from insitu.pictures import cell_grid, chunk_picture, chunk_plane, chunk_raster
from insitu.pictures.cell_details import find_cell
from insitu.pictures.cell_grid import STATES
from insitu.pictures.chunk_numbering import Numbering
from insitu.pictures.chunk_picture import COLOURS, draw_chunks
from insitu.pictures.chunk_plane import ChunkPlane
from insitu.references import save


@dataclass(frozen=True)
class DrawnCell:
    """One cell of a plane, found by a loop."""

    box: tuple[int, int, int, int]
    state: str
    names: dict[str, str | None]
    length: int | None
    decoded: int | None


STATE_NAMES = {Stored: "stored", Inline: "inline", Unwritten: "unwritten", Absent: "absent"}


def list_cells(array: VirtualArray, plane: tuple[int | None, int | None], index: dict[int, int]) -> list[DrawnCell]:
    """List the cells of a plane, one after the other, from `tile.chunks[cell]`."""
    found = []
    for tile, origin in zip(array.tiles, array.origins.tolist(), strict=True):
        for cell in itertools.product(*(range(axis.count) for axis in tile.axes)):
            shown = [axis.show(np.array([c])) for axis, c in zip(tile.axes, cell, strict=True)]
            begins = [int(axis.begin(np.array([c]))[0]) for axis, c in zip(tile.axes, cell, strict=True)]
            ends = [begin + int(part.extent[0]) for begin, part in zip(begins, shown, strict=True)]
            if any(begin == end for begin, end in zip(begins, ends, strict=True)):
                continue
            spans = [(begins[axis] + at, ends[axis] + at) for axis, at in zip(tile.dimensions, origin, strict=True)]
            if any(not spans[d][0] <= at < spans[d][1] for d, at in index.items()):
                continue
            rows, columns = ((0, 1) if d is None else spans[d] for d in plane)
            found.append(_describe(tile, cell, shown, (*rows, *columns)))
    return found


def _describe(tile: Tile, cell: tuple[int, ...], shown: list[Any], box: tuple[int, int, int, int]) -> DrawnCell:
    state = tile.chunks[cell]
    row = tile.chunks.locate([np.array([c]) for c in cell])
    encoding, packing = tile.encodings[int(row.encoding[0])], tile.packings[int(row.packing[0])]
    has_bytes = isinstance(state, (Stored, Inline))
    names = {
        "file": state.source.url if isinstance(state, Stored) else None,
        "codec": encoding_text(encoding) if has_bytes else None,
        "packing": packing_text(packing) if has_bytes else None,
    }
    length = state.length if isinstance(state, Stored) else len(state.data) if isinstance(state, Inline) else None
    decoded = math.prod(max(int(part.stored[0]), 1) for part in shown) * encoding.dtype.itemsize
    return DrawnCell(box, STATE_NAMES[type(state)], names, length, decoded if has_bytes else None)


def check_rectangles(picture: Any, numbering: Numbering, cells: list[DrawnCell]) -> None:
    """Compare the rectangles with the listed cells, clipped to the box."""
    y0, y1, x0, x1 = picture.box
    expected = []
    for cell in cells:
        top, bottom, left, right = cell.box
        box = (max(top, y0), min(bottom, y1), max(left, x0), min(right, x1))
        if box[0] < box[1] and box[2] < box[3]:
            expected.append((box, cell.state, expected_colour(cell, picture.colour)))
    arrays = picture.arrays
    found = []
    for number in range(len(arrays["state"])):
        box = tuple(int(arrays[side][number]) for side in ("y0", "y1", "x0", "x1"))
        if "value" in arrays:
            colour = None if np.isnan(arrays["value"][number]) else float(arrays["value"][number])
        else:
            category = int(arrays["category"][number])
            colour = None if category < 0 else numbering.name(picture.colour, category)
        found.append((box, STATES[int(arrays["state"][number])], colour))
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert picture.cells == len(expected)
    assert picture.counts == {name: sum(row[1] == name for row in expected) for name in STATES}
    assert picture.share == 1


def expected_colour(cell: DrawnCell, colour: str) -> Any:
    if colour in cell.names:
        return cell.names[colour]
    if cell.length is None:
        return None
    if colour == "bytes":
        return float(cell.length)
    return cell.decoded / cell.length if cell.length and cell.decoded is not None else None


def check_raster(picture: Any, numbering: Numbering, cells: list[DrawnCell], shape: tuple[int, int]) -> None:
    """Compare each pixel with the cells that it touches."""
    y0, y1, x0, x1 = picture.box
    rows, columns = picture.arrays["stored"].shape
    assert (rows, columns) == (min(shape[0], y1 - y0), min(shape[1], x1 - x0))
    for row, column in np.ndindex(rows, columns):
        top, bottom = (y0 + (y1 - y0) * at // rows for at in (row, row + 1))
        left, right = (x0 + (x1 - x0) * at // columns for at in (column, column + 1))
        touched, area = [], 0
        for cell in cells:
            high = min(cell.box[1], bottom) - max(cell.box[0], top)
            wide = min(cell.box[3], right) - max(cell.box[2], left)
            if high > 0 and wide > 0:
                touched.append(cell)
                area += high * wide
        covered = area / ((bottom - top) * (right - left))
        stored = [cell for cell in touched if cell.state in ("stored", "inline")]
        unwritten = sum(cell.state == "unwritten" for cell in touched)
        many = max(len(touched), 1)
        pixel = {name: values[row, column] for name, values in picture.arrays.items()}
        assert pixel["stored"] == pytest.approx(covered * len(stored) / many, abs=1e-6)
        assert pixel["unwritten"] == pytest.approx(covered * unwritten / many, abs=1e-6)
        assert pixel["stored"] + pixel["unwritten"] + pixel["absent"] == pytest.approx(1, abs=1e-5)
        check_pixel_colour(pixel, picture.colour, numbering, stored)
    inside = [c for c in cells if c.box[0] < y1 and c.box[1] > y0 and c.box[2] < x1 and c.box[3] > x0]
    assert picture.counts == {name: sum(cell.state == name for cell in inside) for name in STATES}
    assert (picture.cells, picture.share) == (len(inside), 1)


def check_pixel_colour(pixel: dict[str, Any], colour: str, numbering: Numbering, stored: list[DrawnCell]) -> None:
    if colour in ("bytes", "ratio"):
        known = [c for c in stored if c.length is not None and (colour == "bytes" or c.length > 0)]
        total = sum(c.length or 0 for c in known)
        by = len(known) if colour == "bytes" else total
        amount = total if colour == "bytes" else sum(c.decoded or 0 for c in known)
        assert pixel["value"] == pytest.approx(amount / by if by else np.nan, nan_ok=True)
        return
    names = {cell.names[colour] for cell in stored} - {None}
    assert bool(pixel["mixed"]) == (len(names) > 1)
    if not names:
        assert pixel["category"] == -1
    else:
        assert numbering.name(colour, int(pixel["category"])) in names


@st.composite
def views(draw: Any) -> tuple[Any, ...]:
    """A mosaic, two of its dimensions, positions along the others, a box and a number of pixels."""
    array = draw(mosaics()).array
    order = draw(st.permutations(range(array.ndim)))
    plane = (order[1] if len(order) > 1 else None, order[0] if order else None)
    index = {d: draw(st.integers(0, max(array.shape[d] - 1, 0))) for d in order[2:]}
    lengths = [1 if d is None else array.shape[d] for d in plane]
    box = None
    if all(lengths) and draw(st.booleans()):
        sides = []
        for length in lengths:
            begin = draw(st.integers(0, length - 1))
            sides += [begin, draw(st.integers(begin + 1, length))]
        box = tuple(sides)
    return array, plane, index, box, draw(st.integers(1, 7)), draw(st.integers(1, 7)), draw(st.sampled_from(COLOURS))


@given(views(), st.sampled_from([0, 1024]), st.sampled_from([0, 1 << 20]), st.sampled_from([1, 4, 1 << 20]))
@settings(max_examples=100, deadline=None)
def test_pictures_show_what_a_loop_over_the_cells_finds(
    view: tuple[Any, ...], flat_cells: int, kept_cells: int, block: int
) -> None:
    array, plane, index, box, rows, columns, colour = view
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_plane, "_FLAT_CELLS", flat_cells)
        patch.setattr(cell_grid, "MAX_KEPT_CELLS", kept_cells)
        patch.setattr(cell_grid, "_BLOCK", block)
        found = ChunkPlane.of(array, plane, index)
        if 0 in array.shape:
            with pytest.raises(SelectionError, match="empty"):
                draw_chunks(found, colour, (0, 0, 0, 0))
            return
        cells = list_cells(array, plane, index)
        patch.setattr(chunk_picture, "PIXELS_PER_CELL", 0.001)
        drawn = draw_chunks(found, colour, box, rows, columns)
        assert not drawn.aggregated
        check_rectangles(drawn, found.numbering, cells)
        patch.setattr(chunk_picture, "MAX_RECTANGLES", -1)
        drawn = draw_chunks(found, colour, box, rows, columns)
        assert drawn.aggregated
        check_raster(drawn, found.numbering, cells, (rows, columns))


@given(views(), st.data())
@settings(max_examples=60, deadline=None)
def test_the_cell_of_a_position_is_the_one_in_the_picture(view: tuple[Any, ...], data: Any) -> None:
    array, plane, index, *_ = view
    if 0 in array.shape or len(set(array.dims)) < array.ndim:
        return
    position = {d: data.draw(st.integers(0, n - 1)) for d, n in enumerate(array.shape)} | index
    found = find_cell(array, {array.dims[d]: at for d, at in position.items()})
    y, x = (0 if d is None else position[d] for d in plane)
    cells = [
        cell
        for cell in list_cells(array, plane, {d: at for d, at in position.items() if d not in plane})
        if cell.box[0] <= y < cell.box[1] and cell.box[2] <= x < cell.box[3]
    ]
    if found is None:
        assert not cells
        return
    assert len(cells) == 1
    assert found.state_name == cells[0].state
    assert found.state == found.tile.chunks[found.cell]
    for d, (begin, end) in ((array.dims.index(dim), bounds) for dim, bounds in found.bounds.items()):
        assert begin <= position[d] < end
    spans = [(0, 1) if d is None else found.bounds[array.dims[d]] for d in plane]
    assert (*spans[0], *spans[1]) == cells[0].box


def grid_array(shape: tuple[int, ...], source: Any, length: Any = 10, files: int = 1) -> VirtualArray:
    """An array of chunks of 10 elements along each axis."""
    table = Columns(shape, tuple(Source(f"/f{n}.nc") for n in range(files)), np.asarray(source), np.asarray(0), length)
    axes = tuple(Axis.regular(count * 10, 10) for count in shape)
    return VirtualArray.of(Tile(axes, (Encoding(np.dtype("i2")),), table), dims=tuple("tyx"[-len(shape) :]))


@pytest.mark.parametrize("files", [1, 10])
def test_one_unwritten_chunk_of_a_million_is_visible(files: int) -> None:
    source = np.repeat(np.arange(files), 1000 // files)[:, None] + np.zeros((1000, 1000), np.int64)
    source[123, 456] = UNWRITTEN
    source[700, 20] = ABSENT
    drawn = draw_chunks(ChunkPlane.of(grid_array((1000, 1000), source, files=files)), "file", None, 100, 100)
    assert drawn.aggregated
    assert np.argwhere(drawn.arrays["unwritten"]).tolist() == [[12, 45]]
    assert np.argwhere(drawn.arrays["absent"] > 0).tolist() == [[70, 2]]
    assert drawn.counts == {"stored": 999_998, "inline": 0, "unwritten": 1, "absent": 1, "computed": 0}


def test_an_unwritten_chunk_of_a_saved_table_is_visible(tmp_path: Path) -> None:
    """Tables of a store have columns of few bits."""
    source = np.repeat(np.arange(10), 10)[:, None] + np.zeros((100, 100), np.int64)
    source[12, 45] = UNWRITTEN
    save(VirtualGroup(arrays={"v": grid_array((100, 100), source, files=10)}), tmp_path / "x.insitu")
    drawn = draw_chunks(ChunkPlane.of(scan(tmp_path / "x.insitu").array("v")), "file", None, 10, 10)
    assert np.argwhere(drawn.arrays["unwritten"]).tolist() == [[1, 4]]
    assert drawn.arrays["category"][:, 0].tolist() == [*range(10)]


def test_a_sample_of_too_many_cells_is_even_and_says_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_raster, "MAX_LOOKED_UP", 40_000)
    source = np.repeat(np.arange(10), 100)[:, None] * np.ones(1000, np.int64)
    array = grid_array((1000, 1000), source, files=10)
    drawn = draw_chunks(ChunkPlane.of(array), "file", None, 50, 50)
    assert drawn.share == pytest.approx(0.04)
    assert (drawn.arrays["category"] == (np.arange(50) // 5)[:, None]).all()
    assert (drawn.arrays["stored"] == 1).all()
    assert not drawn.arrays["mixed"].any()


def test_a_huge_grid_that_was_hardly_written_is_drawn_in_bounded_work() -> None:
    table = scatter((10**6, 10**6), (Source("/a.h5"),), np.array([[0, 0], [999_999, 999_999]]), [1, 2], [3, 4])
    axes = (Axis.regular(10**6, 1), Axis.regular(10**6, 1))
    array = VirtualArray.of(Tile(axes, (Encoding(np.dtype("i2")),), table), dims=("y", "x"))
    drawn = draw_chunks(ChunkPlane.of(array), "bytes", None, 100, 100)
    assert drawn.cells == 10**12
    assert 0 < drawn.share < 1e-4
    assert drawn.arrays["value"][0, 0] == 3
    zoomed = draw_chunks(ChunkPlane.of(array), "bytes", (999_990, 10**6, 999_990, 10**6), 100, 100)
    assert not zoomed.aggregated
    assert zoomed.counts["unwritten"] == 99
    assert np.nansum(zoomed.arrays["value"]) == 4


@pytest.mark.parametrize(("shape", "rows", "columns"), [((1, 8_000_000), 400, 600), ((2000, 2000), 1, 1)])
def test_a_picture_of_millions_of_cells_takes_little_memory(shape: tuple[int, int], rows: int, columns: int) -> None:
    """In strips of columns; of one pixel with millions of cells a sample is looked at."""
    source = np.zeros(shape, np.int32)
    source[0, [5, shape[1] - 3]] = UNWRITTEN
    plane = ChunkPlane.of(grid_array(shape, source))
    tracemalloc.start()
    try:
        drawn = draw_chunks(plane, "bytes", None, rows, columns)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 96 << 20
    assert drawn.cells == math.prod(shape)
    if columns > 1:
        assert drawn.share == 1
        assert drawn.counts == {"stored": 7_999_998, "inline": 0, "unwritten": 2, "absent": 0, "computed": 0}
        assert np.flatnonzero(drawn.arrays["unwritten"].any(axis=0)).tolist() == [0, 599]
    else:
        assert drawn.share == pytest.approx(chunk_raster.MAX_PIXEL_CELLS / 4_000_000)


def test_strips_share_the_cells_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that pixels of two strips touch counts once, and both show it."""
    source = np.zeros((30, 10), np.int32)
    source[:, 3] = UNWRITTEN
    plane = ChunkPlane.of(grid_array((30, 10), source))
    whole = draw_chunks(plane, "file", None, 7, 41)
    monkeypatch.setattr(chunk_raster, "MAX_STRIP_CELLS", 1)
    strips = draw_chunks(plane, "file", None, 7, 41)
    assert whole.aggregated
    assert (strips.counts, strips.share) == (whole.counts, 1.0)
    for name, values in whole.arrays.items():
        np.testing.assert_array_equal(strips.arrays[name], values)


def test_numbers_are_those_of_the_whole_array() -> None:
    """A colour means the same file, codec and packing at every position of a slider."""
    parts = []
    for number in range(4):
        codecs = (Codec("zlib", {"level": number % 2}),)
        packings = Packings.of([Packing(scale=float(number // 2 + 1))])
        table = Columns.of_stored((1, 2), Source(f"/{number}.nc"), np.array([[0, 9]]), 9)
        axes = (Axis.regular(3, 3), Axis.regular(4, 2))
        tile = Tile(axes, (Encoding(np.dtype("i2"), codecs),), table, packings)
        parts.append(VirtualArray.of(tile, dims=("t", "x")))
    array = concatenate(parts, 0)
    for colour, expected in (
        ("file", ["/0.nc", "/1.nc", "/2.nc", "/3.nc"]),
        ("codec", ["int16, zlib(0)", "int16, zlib(1)", "int16, zlib(0)", "int16, zlib(1)"]),
        ("packing", ["× 1", "× 1", "× 2", "× 2"]),
    ):
        numbers = {}
        for at, name in enumerate(expected):
            plane = ChunkPlane.of(array, (None, 1), {0: 3 * at})
            category = set(draw_chunks(plane, colour).arrays["category"].tolist())
            assert len(category) == 1
            number = category.pop()
            assert plane.numbering.name(colour, number) == name
            assert numbers.setdefault(name, number) == number


@pytest.mark.parametrize(
    ("dimensions", "index", "message"),
    [
        ((0, 5), {}, "no dimension 5"),
        ((1, 1), {}, "both are 'y'"),
        ((1, 2), {0: 10}, "position 10 is outside dimension 't', which has 10 elements"),
        ((1, 2), {0: -1}, "position -1"),
        ((1, 2), {7: 0}, "no dimension 7"),
    ],
)
def test_a_plane_that_the_array_does_not_have(dimensions: Any, index: Any, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        ChunkPlane.of(grid_array((1, 2, 2), 0), dimensions, index)


def test_refused_pictures() -> None:
    plane = ChunkPlane.of(grid_array((2, 2), 0))
    for box in ((0, 21, 0, 20), (5, 5, 0, 20), (-1, 5, 0, 20)):
        with pytest.raises(SelectionError, match="outside the array, which has 20 × 20 elements"):
            draw_chunks(plane, "file", box)
    with pytest.raises(SelectionError, match="coloured by 'age'"):
        draw_chunks(plane, "age")
    with pytest.raises(SelectionError, match="0 × 5 pixels"):
        draw_chunks(plane, "file", None, 0, 5)


def test_refused_positions() -> None:
    array = grid_array((2, 2), 0)
    with pytest.raises(SelectionError, match="along y, x, not along y"):
        find_cell(array, {"y": 0})
    with pytest.raises(SelectionError, match=r"position \[0, 20\] is outside"):
        find_cell(array, {"y": 0, "x": 20})
