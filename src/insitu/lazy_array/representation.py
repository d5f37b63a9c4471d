"""Text and HTML representation of virtual arrays and expressions: formula, shape, chunks, files, bytes.

Showing an array is cheap: chunks are counted only where their table is in memory and not too long.
A table that is paged in or computed is left alone. An expression shows its formula, and what is
read of each stored array in it.
"""

from __future__ import annotations

import math
from html import escape

import numpy as np

from insitu.expressions.chunk_grid import chunk_borders, stored_chunks, uniform_chunks
from insitu.expressions.formula_text import formula
from insitu.expressions.nodes import Stored, stored_arrays
from insitu.forking import import_before_fork
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.model import CellCounts, count_cells
from insitu.model.description import can_be_counted, count_text, files_text, format_bytes

__all__ = ["format_html", "format_line", "format_text"]

MAX_DRAWN_TILES = 1_000
"""Tiles up to which chunks are drawn in the colours of their files: a thousand take about 0.1 s."""
_MAX_LINES = 40
"""Of the chunk picture, along each side."""
_MAX_LEAVES = 8
"""Stored arrays of an expression that are shown one by one."""


def _chunk_text(array: DeferredValues) -> str:
    sizes = [cut[0] if cut else 0 for cut in uniform_chunks(array.node)]
    return "×".join(map(str, sizes)) or "scalar"


def _files_text(array: DeferredValues | Stored) -> str:
    return files_text(array.array)


def _count_chunks(array: DeferredValues | Stored) -> CellCounts | None:
    """Return the number of chunks by state; None if counting would be slow, or would read from afar."""
    return count_cells(array.array) if can_be_counted(array.array) else None


def format_line(array: DeferredValues, max_width: int = 80) -> str:
    """Return the representation on one line, for the list of a dataset's variables."""
    if not array.is_stored:
        whole = f"virtual: {formula(array.node)}"
        return whole if len(whole) <= max_width else f"{whole[: max(max_width - 1, 0)]}…"[:max_width]
    whole = f"virtual, chunks {_chunk_text(array)}, {_files_text(array)}"
    if len(whole) <= max_width:
        return whole
    short = f"virtual {_chunk_text(array)}"
    return short if len(short) <= max_width else "virtual"[:max_width]


def format_text(array: DeferredValues) -> str:
    """Return the text representation (`repr`)."""
    about = f"shape={array.shape}, dtype={array.dtype}; chunks={_chunk_text(array)}"
    nbytes = f"{format_bytes(array.nbytes)} virtual"
    if array.is_stored:
        parts = [about, *_stored_texts(array), nbytes]
        if len(array.array.tiles) > 1:
            parts.append(f"{len(array.array.tiles)} tiles")
        return f"<virtual array: {'; '.join(parts)}>"
    leaves = [f"\n  reads {_name(leaf)}: {', '.join(_stored_texts(leaf))}" for leaf in _shown_leaves(array)]
    return f"<virtual array: {formula(array.node)}; {about}; {nbytes}{''.join(leaves)}{_left_out_text(array)}>"


def _name(leaf: Stored) -> str:
    return leaf.context.name or "array"


def _shown_leaves(array: DeferredValues) -> list[Stored]:
    return stored_arrays(array.node)[:_MAX_LEAVES]


def _left_out_text(array: DeferredValues) -> str:
    more = len(stored_arrays(array.node)) - _MAX_LEAVES
    return f"\n  and {more:,} more" if more > 0 else ""


def _stored_texts(array: DeferredValues | Stored) -> list[str]:
    """Return what is stored of one array: chunks, files, bytes as far as they can be counted at once."""
    counted = _count_chunks(array)
    if counted is None:
        return [_files_text(array)]
    texts = [
        f"{count_text(counted.stored + counted.inline, 'chunk')} in {_files_text(array)}",
        f"{format_bytes(counted.nbytes)} stored",
    ]
    return [*texts, f"{counted.unwritten:,} never written"] if counted.unwritten else texts


def format_html(array: DeferredValues) -> str:
    """Return the HTML representation: a table, and a picture of the chunks.

    Of an expression the table has its formula, and a row for each stored array that is read.
    """
    shape = ("Shape", " × ".join(map(str, array.shape)) or "scalar", str(array.dtype))
    virtual = (
        "Virtual",
        format_bytes(array.nbytes),
        f"in memory, once it is {'read' if array.is_stored else 'computed'}",
    )
    if not array.is_stored:
        rows = [("Formula", formula(array.node), "computed when values are needed"), virtual, shape]
        rows += [("Blocks", _chunk_text(array), "computed at a time, or several of them")]
        rows += [
            (f"Reads {_name(leaf)}", " × ".join(map(str, leaf.shape)) or "scalar", ", ".join(_stored_texts(leaf)))
            for leaf in _shown_leaves(array)
        ]
        rows += [("", _left_out_text(array).strip(), "")] if _left_out_text(array) else []
    else:
        rows = [virtual, _stored_row(array), shape, _chunks_row(array)]
        rows += [("Tiles", f"{len(array.array.tiles):,}", "grids of chunks of one shape")]
    body = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(value)}</td>"
        f"<td style='opacity:.65'>{escape(note)}</td></tr>"
        for name, value, note in rows
    )
    return (
        "<div style='display:flex;gap:1.5em;align-items:center'>"
        f"<table><tbody>{body}</tbody></table>{_chunk_svg(array)}</div>"
    )


def _stored_row(array: DeferredValues) -> tuple[str, str, str]:
    counted = _count_chunks(array)
    return "Stored", "not counted" if counted is None else format_bytes(counted.nbytes), f"in {_files_text(array)}"


def _chunks_row(array: DeferredValues) -> tuple[str, str, str]:
    counted = _count_chunks(array)
    if counted is None:
        cells = sum(math.prod(tile.chunks.shape) for tile in array.array.tiles)
        return "Chunks", _chunk_text(array), f"{cells:,} at most"
    written = f"{counted.stored + counted.inline:,} written, {counted.unwritten:,} never written"
    return "Chunks", _chunk_text(array), written


def _chunk_svg(array: DeferredValues) -> str:
    """Return a picture of the chunks along the two dimensions that have the most, as SVG.

    Of an expression, and of tables that are long or not in memory, only the borders are drawn.
    """
    if array.ndim < 1 or 0 in array.shape:
        return ""
    drawing = import_before_fork("insitu.pictures.chunk_svg")  # a text needs none: 10 ms
    if array.is_stored and len(array.array.tiles) <= MAX_DRAWN_TILES and can_be_counted(array.array):
        return str(drawing.chunk_svg(array.array))
    shown = drawing.busiest_dimensions([len(cuts) for cuts in stored_chunks(array.node)])
    lengths = tuple(1 if dimension is None else array.shape[dimension] for dimension in shown)
    whole = np.array([0, 1])
    borders = tuple(whole if dimension is None else _drawn_borders(array, dimension) for dimension in shown)
    dims = array.array.dims if array.is_stored else tuple(f"axis {number}" for number in range(array.ndim))
    plane = drawing.plane_text(dims, shown)
    return str(drawing.border_svg((lengths[0], lengths[1]), (borders[0], borders[1]), plane))


def _drawn_borders(array: DeferredValues, dimension: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return where to draw: the borders of the cells, thinned out where they are many."""
    borders = chunk_borders(array.node, dimension)
    if len(borders) > _MAX_LINES:
        borders = borders[np.linspace(0, len(borders) - 1, _MAX_LINES).astype(int)]
    return borders.astype(np.int64)
