"""The chunks of an array as a small SVG picture, for notebooks and reports: files as colours, to scale.

Chunks that were never written are crossed out, places that no file covers are blank. The picture
shows the two dimensions with the most chunks, at the first position of all others. It has no
scripts, no styles and no identifiers, so that any number of pictures fit into one page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from insitu.model import VirtualArray
from insitu.pictures.cell_grid import STATES
from insitu.pictures.chunk_picture import ChunkPicture, draw_chunks
from insitu.pictures.chunk_plane import ChunkPlane

__all__ = ["PALETTE", "border_svg", "busiest_dimensions", "chunk_counts", "chunk_svg", "plane_text"]

PALETTE = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d")
"""Colours of the files, in turn."""
_PIXELS = 48
"""Rows and columns of a raster; fewer than 48 × 48 / 9 chunks are drawn one by one. At most about 60 kB."""
_THINNEST = 0.4
"""Least ratio of the sides: 60 times of 400 longitudes are still told apart."""
_THINNEST_LINE = 0.15
"""The same for arrays of one dimension."""


def busiest_dimensions(counts: Sequence[int]) -> tuple[int | None, int | None]:
    """Return the two dimensions to show: those with the most chunks, of equals the last ones.

    Parameters
    ----------
    counts
        Chunks along each dimension.

    Examples
    --------
    >>> busiest_dimensions([365, 1, 1]), busiest_dimensions([1, 4, 2]), busiest_dimensions([5])
    ((0, 2), (1, 2), (None, 0))
    """
    if len(counts) < 2:
        return None, 0 if counts else None
    by_count = sorted(range(len(counts)), key=lambda dimension: (counts[dimension], dimension))
    y, x = sorted(by_count[-2:])
    return y, x


def chunk_svg(array: VirtualArray, size: int = 120, dimensions: tuple[int | None, int | None] | None = None) -> str:
    """Return the picture of an array's chunks.

    Parameters
    ----------
    array
        The array. All cells of the plane that is shown are looked at.
    size
        Pixels of the longer side.
    dimensions
        Rows and columns; by default those with the most chunks.
    """
    shown = busiest_dimensions(chunk_counts(array)) if dimensions is None else dimensions
    plane = ChunkPlane.of(array, shown)
    if 0 in plane.shape:
        return ""
    picture = draw_chunks(plane, "file", None, _PIXELS, _PIXELS)
    scale = _Scale(plane.shape, size)
    shapes = _draw_raster(picture, scale) if picture.aggregated else _draw_cells(picture, scale)
    return _svg(scale, str(shapes), f"{plane_text(array.dims, shown)}, coloured by file")


def border_svg(
    lengths: tuple[int, int], borders: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], label: str, size: int = 120
) -> str:
    """Return a picture of the borders alone, where the state of the chunks is not known.

    Parameters
    ----------
    lengths
        Elements along rows and columns.
    borders
        Where the lines are drawn, in elements.
    label
        What it shows, for screen readers.
    size
        Pixels of the longer side.
    """
    scale = _Scale(lengths, size)
    height, width = scale.sides
    lines = [f"<path d='M0 {scale.y(y)}H{width:g}'/>" for y in borders[0].tolist()]
    lines += [f"<path d='M{scale.x(x)} 0V{height:g}'/>" for x in borders[1].tolist()]
    ground = f"<rect width='{width:g}' height='{height:g}' fill='currentColor' fill-opacity='.08'/>"
    return _svg(scale, ground + "".join(lines), label)


def chunk_counts(array: VirtualArray) -> list[int]:
    """Return about how many chunks lie along each dimension: the borders of all tiles."""
    if len(array.tiles) == 1:
        return [array.tiles[0].axis_of(dimension).count for dimension in range(array.ndim)]
    most = np.ones(array.ndim, np.int64)
    for tile in array.tiles:
        most = np.maximum(most, [tile.axis_of(dimension).count for dimension in range(array.ndim)])
    starts = [len(np.unique(array.origins[:, dimension])) for dimension in range(array.ndim)]
    return np.maximum(most, starts).tolist()  # type: ignore[no-any-return]


class _Scale:
    """Positions in the picture of positions in the array."""

    def __init__(self, lengths: tuple[int, int], size: int) -> None:
        longest = max(lengths)
        least = _THINNEST_LINE if lengths[0] == 1 else _THINNEST
        self.sides = tuple(round(max(length / longest, least) * size, 1) for length in lengths)
        self._factors = [side / length for side, length in zip(self.sides, lengths, strict=True)]

    def y(self, position: float) -> str:
        return f"{position * self._factors[0]:.1f}".removesuffix(".0")

    def x(self, position: float) -> str:
        return f"{position * self._factors[1]:.1f}".removesuffix(".0")

    def rectangle(self, box: Sequence[float]) -> str:
        """Return a rectangle as commands of a path."""
        left, right, top, bottom = self.x(box[2]), self.x(box[3]), self.y(box[0]), self.y(box[1])
        return f"M{left} {top}H{right}V{bottom}H{left}Z"


class _Shapes:
    """Shapes by their style: all of one style are one path, which takes a fifth of the text."""

    def __init__(self) -> None:
        self._paths: dict[str, list[str]] = {}

    def add(self, style: str, commands: str) -> None:
        self._paths.setdefault(style, []).append(commands)

    def __str__(self) -> str:
        return "".join(f"<path d='{''.join(parts)}' {style}/>" for style, parts in self._paths.items())


def _svg(scale: _Scale, shapes: str, label: str) -> str:
    height, width = (side + 2 for side in scale.sides)
    frame = f"<path d='M0 0H{width - 2:g}V{height - 2:g}H0Z' fill='none' stroke-dasharray='3 2'/>"
    return (
        f"<svg width='{width:g}' height='{height:g}' viewBox='-1 -1 {width:g} {height:g}' stroke='currentColor' "
        f"stroke-width='.5' role='img' aria-label='{escape(label, quote=True)}'>"
        f"<title>{escape(label)}</title>{shapes}{frame}</svg>"
    )


def _draw_cells(picture: ChunkPicture, scale: _Scale) -> _Shapes:
    shapes = _Shapes()
    columns = (picture.arrays[name].tolist() for name in ("y0", "y1", "x0", "x1", "state", "category"))
    for y0, y1, x0, x1, state, category in zip(*columns, strict=True):
        name = STATES[state]
        if name == "unwritten":
            diagonal = f"M{scale.x(x0)} {scale.y(y0)}L{scale.x(x1)} {scale.y(y1)}"
            shapes.add("fill='none' stroke-opacity='.6'", scale.rectangle((y0, y1, x0, x1)) + diagonal)
        elif name != "absent":
            shapes.add(f"fill='{_colour(category)}'", scale.rectangle((y0, y1, x0, x1)))
    return shapes


def _draw_raster(picture: ChunkPicture, scale: _Scale) -> _Shapes:
    """Draw the pixels; neighbours of a row that look the same are one rectangle."""
    stored, unwritten, category = (picture.arrays[name] for name in ("stored", "unwritten", "category"))
    rows, columns = stored.shape
    y0, y1, x0, x1 = picture.box
    shapes = _Shapes()
    # In eight shades, rounded up: one cell of thousands that was never written shows in its pixel.
    empty = np.ceil(unwritten * 8).astype(int)
    full = np.where(stored > 0, np.maximum(8 - empty, 1), 0)
    colour = np.where(full == 0, -2, np.where(category < 0, -1, category % len(PALETTE)))
    looks = np.stack([colour, full, empty], axis=-1)
    for row in range(rows):
        changes = np.flatnonzero((looks[row, 1:] != looks[row, :-1]).any(axis=1)) + 1
        for begin, end in zip([0, *changes.tolist()], [*changes.tolist(), columns], strict=True):
            number, shade, blank = looks[row, begin].tolist()
            box = [y0 + (y1 - y0) * at / rows for at in (row, row + 1)]
            box += [x0 + (x1 - x0) * at / columns for at in (begin, end)]
            if shade:
                shapes.add(f"fill='{_colour(number)}' fill-opacity='{shade / 8:g}' stroke='none'", scale.rectangle(box))
            if blank:
                shapes.add(f"fill='currentColor' fill-opacity='{blank / 40:g}' stroke='none'", scale.rectangle(box))
    return shapes


def _colour(number: int) -> str:
    return "#999" if number < 0 else PALETTE[number % len(PALETTE)]


def plane_text(dims: Sequence[str], shown: tuple[int | None, int | None]) -> str:
    """Return which dimensions a picture shows, and where in the others."""
    names = " and ".join(dims[dimension] for dimension in shown if dimension is not None)
    fixed = ", ".join(f"{dim} 0" for dimension, dim in enumerate(dims) if dimension not in shown)
    text = f"chunks along {names}" if names else "one chunk"
    return f"{text} at {fixed}" if fixed else text
