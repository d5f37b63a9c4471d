"""The picture of chunks in the HTML representation: what it paints, against h5py's table of chunks."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu
from insitu.model import (
    ABSENT,
    UNWRITTEN,
    Axis,
    Columns,
    Encoding,
    Source,
    Tile,
    VirtualArray,
    concatenate,
    description,
)
from insitu.pictures.chunk_svg import PALETTE, busiest_dimensions, chunk_counts, chunk_svg

_RECTANGLE = re.compile(r"M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)H[\d.]+Z")


def painted(svg: str, shape: tuple[int, int]) -> np.ndarray:
    """The colour of each element of the array, as the paths paint it; empty where nothing is painted."""
    root = ET.fromstring(svg)
    height, width = (float(root.get(side, "0")) - 2 for side in ("height", "width"))
    found = np.full(shape, "", object)
    for path in root.iter("path"):
        if "stroke-dasharray" in path.keys():  # noqa: SIM118  the frame; elements are no dictionaries
            continue
        for x0, y0, x1, y1 in _RECTANGLE.findall(path.get("d", "")):
            rows = slice(*(round(float(y) * shape[0] / height) for y in (y0, y1)))
            columns = slice(*(round(float(x) * shape[1] / width) for x in (x0, x1)))
            found[rows, columns] = path.get("fill")
    return found


def picture_in(html: str) -> str:
    """The picture in a page that may have icons of xarray, too."""
    begin = html.rindex("<svg", 0, html.index("role='img'"))
    return html[begin : html.index("</svg>", begin) + 6]


def cube(source: np.ndarray, files: int = 1) -> VirtualArray:
    """An array of three dimensions with chunks of (1, 10, 10)."""
    table = Columns(source.shape, tuple(Source(f"/{n}") for n in range(files)), source, np.asarray(0), np.asarray(9))
    sizes = (1, 10, 10)
    axes = tuple(Axis.regular(count * size, size) for count, size in zip(source.shape, sizes, strict=True))
    return VirtualArray.of(Tile(axes, (Encoding(np.dtype("i2")),), table), dims=("time", "lat", "lon"))


def test_states_and_files_have_looks_of_their_own() -> None:
    source = np.arange(6).reshape(6, 1, 1) % 2 + np.zeros((6, 1, 4), np.int64)
    source[2, 0, 1], source[3, 0, 2] = UNWRITTEN, ABSENT
    found = painted(chunk_svg(cube(source, 2)), (6, 40))
    for row in range(6):
        for column in range(4):
            expected = PALETTE[row % 2]
            if (row, column) == (2, 1):
                expected = "none"
            if (row, column) == (3, 2):
                expected = ""
            assert set(found[row, column * 10 : column * 10 + 10]) == {expected}


def test_the_dimensions_with_the_most_chunks_are_shown() -> None:
    """An array that is cut along time only was a blank rectangle."""
    array = cube(np.zeros((12, 1, 3), np.int64))
    assert chunk_counts(array) == [12, 1, 3]
    root = ET.fromstring(chunk_svg(array))
    label = root.get("aria-label")
    assert label == root.findtext("title") == "chunks along time and lon at lat 0, coloured by file"
    assert painted(chunk_svg(array), (12, 30)).tolist() == [[PALETTE[0]] * 30] * 12
    assert busiest_dimensions([1, 1, 1]) == (1, 2)
    assert busiest_dimensions([]) == (None, None)
    four = array.expand_dims(0, "member")
    assert "chunks along time and lon at member 0, lat 0" in chunk_svg(four)


def test_tiles_and_gaps() -> None:
    """Two files of different cuts, and a third of the first dimension that no file covers."""
    first, second = (cube(np.zeros((2, 1, count), np.int64)) for count in (3, 3))
    joined = concatenate([first, second], 0)
    with_gap = joined.take(0, np.array([0, 1, -1, -1, 2, 3]))
    found = painted(chunk_svg(with_gap), (6, 30))
    assert (found[:2] == PALETTE[0]).all()
    assert (found[2:4] == "").all()
    assert (found[4:] == PALETTE[0]).all()


def test_many_chunks_are_a_small_raster_in_which_an_unwritten_one_is_seen() -> None:
    source = np.zeros((1, 500, 500), np.int64)
    whole = chunk_svg(cube(source))
    assert painted(whole, (48, 48)).tolist() == [[PALETTE[0]] * 48] * 48
    source[0, 250, 250] = UNWRITTEN
    one = chunk_svg(cube(source))
    assert len(one) < 10_000
    found = painted(one, (48, 48))
    assert np.argwhere(found == "currentColor").tolist() == [[24, 24]]
    noisy = np.random.default_rng(0).integers(0, 9, source.shape)
    assert len(chunk_svg(cube(noisy, 9))) < 100_000


def test_names_are_text_not_markup() -> None:
    array = VirtualArray.of(cube(np.zeros((2, 2, 2), np.int64)).tiles[0], dims=("<script>", "'\"&", "x"))
    root = ET.fromstring(chunk_svg(array))
    assert "<script>" in (root.get("aria-label") or "")
    assert not list(root.iter("script"))


def test_the_representation_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        variable = file.create_dataset("v", (8, 6, 20), "f4", chunks=(1, 6, 10))
        for step in (0, 1, 2, 5, 6, 7):
            variable[step, :, : 10 if step == 5 else 20] = 1.0
        chunks = {tuple(variable.id.get_chunk_info(n).chunk_offset) for n in range(variable.id.get_num_chunks())}
    with insitu.open_dataset(path) as ds:
        html = ds.v.data._repr_html_() if hasattr(ds.v.data, "_repr_html_") else ds.v.variable._data._repr_html_()
    svg = picture_in(html)
    found = painted(svg, (8, 20))
    for time in range(8):
        for column in (0, 10):
            expected = PALETTE[0] if (time, 0, column) in chunks else "none"
            assert set(found[time, column : column + 10]) == {expected}
    assert "<script" not in html


def test_expressions_and_long_tables_show_borders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.ones((4, 6, 20), "f4"), chunks=(1, 6, 10))
    with insitu.open_dataset(path) as ds:
        formula = (ds.v + 1)._repr_html_()
        assert "chunks along axis 0 and axis 2 at axis 1 0" in formula
        monkeypatch.setattr(description, "MAX_COUNTED_CELLS", 3)
        monkeypatch.setattr(description, "MAX_PAGED_CELLS", 3)
        html = ds.v._repr_html_()
    svg = picture_in(html)
    lines = [path.get("d") for path in ET.fromstring(svg).iter("path")]
    assert sum("V" in (line or "") and "Z" not in (line or "") for line in lines) == 3
    assert sum("H" in (line or "") and "Z" not in (line or "") for line in lines) == 5
