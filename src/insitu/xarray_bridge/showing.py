"""What does a person see of a virtual array? That it is virtual, how it is cut, how many files and bytes lie behind it."""

from __future__ import annotations

from html import escape

import numpy as np

from insitu.model import census
from insitu.xarray_bridge.lazy import LazyArray

__all__ = ["html", "line", "readable", "text"]

_MAX_LINES = 40
"""Of the chunk picture, along each side."""


def readable(nbytes: int) -> str:
    """A number of bytes as people write it."""
    size = float(nbytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} PB"


def _chunk_text(array: LazyArray) -> str:
    sizes = [cut[0] if cut else 0 for cut in array.chunks]
    return "×".join(map(str, sizes)) or "scalar"


def line(array: LazyArray, max_width: int = 80) -> str:
    """One line, in the list of a dataset's variables."""
    files = len(array.array.sources)
    whole = f"virtual, chunks {_chunk_text(array)}, {files} file{'s' if files != 1 else ''}"
    if len(whole) <= max_width:
        return whole
    short = f"virtual {_chunk_text(array)}"
    return short if len(short) <= max_width else "virtual"[:max_width]


def text(array: LazyArray) -> str:
    """A few words between angle brackets."""
    counted = census(array.array)
    files = len(array.array.sources)
    parts = [
        f"shape={array.shape}, dtype={array.dtype}",
        f"chunks={_chunk_text(array)}",
        f"{counted.stored + counted.inline:,} chunk{'s' if counted.stored + counted.inline != 1 else ''} in {files} file{'s' if files != 1 else ''}",
        f"{readable(counted.nbytes)} stored, {readable(array.nbytes)} virtual",
    ]
    if counted.unwritten:
        parts.append(f"{counted.unwritten:,} never written")
    if len(array.array.tiles) > 1:
        parts.append(f"{len(array.array.tiles)} tiles")
    if array.steps:
        parts.append("then " + ", ".join(type(step).__name__ for step in array.steps))
    return f"<virtual array: {'; '.join(parts)}>"


def html(array: LazyArray) -> str:
    """A table, and a picture of how the last two dimensions are cut."""
    counted = census(array.array)
    rows = [
        ("Virtual", readable(array.nbytes), "what reading all of it gives"),
        ("Stored", readable(counted.nbytes), f"in {len(array.array.sources):,} file(s)"),
        ("Shape", " × ".join(map(str, array.shape)) or "scalar", str(array.dtype)),
        (
            "Chunks",
            _chunk_text(array),
            f"{counted.stored + counted.inline:,} written, {counted.unwritten:,} never written",
        ),
        ("Tiles", f"{len(array.array.tiles):,}", "grids of chunks that are cut alike"),
    ]
    body = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(value)}</td>"
        f"<td style='opacity:.65'>{escape(note)}</td></tr>"
        for name, value, note in rows
    )
    return (
        "<div style='display:flex;gap:1.5em;align-items:center'>"
        f"<table><tbody>{body}</tbody></table>{_picture(array)}</div>"
    )


def _picture(array: LazyArray) -> str:
    """The cut of the last two dimensions, as SVG."""
    if array.ndim < 1 or 0 in array.shape:
        return ""
    cuts = [_lines(array, dimension) for dimension in range(max(array.ndim - 2, 0), array.ndim)]
    lengths = array.shape[-2:] if array.ndim > 1 else (1, array.shape[0])
    if array.ndim == 1:
        cuts = [np.array([0, 1]), *cuts]
    # The longer side is 120 pixels; a very long and thin one is still shown with some width.
    scale = np.array(lengths, float) / max(lengths)
    height, width = (np.maximum(scale, 0.15) * 120).tolist()
    grid = [
        f"<line x1='0' x2='{width:.0f}' y1='{y * height / lengths[0]:.1f}' y2='{y * height / lengths[0]:.1f}'/>"
        for y in cuts[0].tolist()
    ] + [
        f"<line y1='0' y2='{height:.0f}' x1='{x * width / lengths[1]:.1f}' x2='{x * width / lengths[1]:.1f}'/>"
        for x in cuts[1].tolist()
    ]
    return (
        f"<svg width='{width + 2:.0f}' height='{height + 2:.0f}' viewBox='-1 -1 {width + 2:.0f} {height + 2:.0f}' "
        "style='stroke:currentColor;stroke-width:.7' role='img' aria-label='chunk borders of the last two dimensions'>"
        f"<rect x='0' y='0' width='{width:.0f}' height='{height:.0f}' fill='currentColor' fill-opacity='.08'/>"
        f"{''.join(grid)}</svg>"
    )


def _lines(array: LazyArray, dimension: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where to draw: the borders of the cells, thinned out where they are many."""
    borders = np.concatenate([[0], np.cumsum(array.aligned_chunks[dimension])])
    if len(borders) > _MAX_LINES:
        borders = borders[np.linspace(0, len(borders) - 1, _MAX_LINES).astype(int)]
    return borders.astype(np.int64)
