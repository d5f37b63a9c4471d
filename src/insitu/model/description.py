"""Short texts about arrays and trees, for people: shapes, chunks, files, bytes.

Making one is cheap: chunks are counted only where their table is in memory, or short and in a local file.
Other tables, which are computed or paged in, are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from insitu.model.cell_counts import CellCounts, count_table
from insitu.model.chunks import ChunkTable, Columns
from insitu.model.derived_tables import ExpandedTable, JoinedTable, SelectedTable, iter_pools
from insitu.model.format_details import ArrayDetails, GroupDetails
from insitu.model.source import Source
from insitu.model.sparse_chunks import SparseTable

if TYPE_CHECKING:
    from insitu.model.array import VirtualArray

__all__ = [
    "Row",
    "can_be_counted",
    "count_text",
    "describe_array",
    "describe_html",
    "describe_text",
    "detail_notes",
    "files_text",
    "format_bytes",
    "variable_row",
]

MAX_COUNTED_CELLS = 2_000_000
"""Chunks that are counted to be shown: more would take longer than one likes to wait for a look."""
MAX_PAGED_CELLS = 10_000
"""The same, of tables in local files."""
MAX_LINES = 10
"""Lines of a text."""

Row = tuple[str, str, str, str]
"""Of a table of variables: name, dimensions, type, chunks."""


def format_bytes(nbytes: int) -> str:
    """Return a number of bytes as people write it."""
    size = float(nbytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} PB"


def count_text(count: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def detail_notes(details: ArrayDetails | GroupDetails) -> Iterator[str]:
    """Yield what a scan could not find of an array or a group: unread attributes, missing sources."""
    for name, reason in details.unread_attributes.items():
        yield f"attribute {name!r} is not read: {reason}"
    if isinstance(details, ArrayDetails) and (missing := details.missing_sources):
        yield f"filled where its sources are missing: {', '.join(missing[:3])}{' …' * (len(missing) > 3)}"


def can_be_counted(array: VirtualArray) -> bool:
    """Return whether all chunks of an array can be looked at without reading from afar, and soon."""
    tables = [tile.chunks for tile in array.tiles]
    cells = sum(math.prod(table.shape) for table in tables)
    if cells <= MAX_PAGED_CELLS and all(_is_at_hand(table, paged=True) for table in tables):
        return True
    return cells <= MAX_COUNTED_CELLS and all(_is_at_hand(table, paged=False) for table in tables)


def _is_at_hand(table: ChunkTable, *, paged: bool) -> bool:
    if isinstance(table, (SelectedTable, ExpandedTable)):
        return _is_at_hand(table.table, paged=paged)
    if isinstance(table, JoinedTable):
        return all(_is_at_hand(part, paged=paged) for part in table.tables)
    return isinstance(table, (Columns, SparseTable)) or (paged and getattr(table, "is_local", False))


def files_text(array: VirtualArray) -> str:
    """Return the number of files of an array as text, or of objects where each chunk is one."""
    pools = list({id(pool): pool for tile in array.tiles for pool in iter_pools(tile.chunks.sources)}.values())
    if all(isinstance(pool, tuple) for pool in pools):
        return count_text(len({source for pool in pools for source in pool}), "file")
    shared = [pool for pool in pools if getattr(pool, "is_shared", False)]
    if not shared:
        return count_text(sum(map(len, pools)), "object")
    if can_be_counted(array):
        used = {source for tile in array.tiles for source in used_sources(tile.chunks)}
        return count_text(len(used), "file")
    return f"some of {count_text(sum(map(len, pools)), 'file')}"


def used_sources(table: ChunkTable) -> Iterator[Source]:
    """Yield the sources that cells of a table lie in."""
    cells = np.unravel_index(np.arange(math.prod(table.shape)), table.shape) if table.shape else []
    numbers = np.unique(np.asarray(table.locate(cells).source))
    return (table.sources[int(number)] for number in numbers if number >= 0)


def _chunks_text(array: VirtualArray) -> str:
    """Return how an array is cut, and into how many chunks of how many files."""
    if not array.tiles:
        return "nothing stored"
    tile = array.tiles[0]
    sizes = [tile.axis_of(dimension) for dimension in range(array.ndim)]
    shape = "×".join(str(axis.size) if axis.is_regular else "…" for axis in sizes)
    where = files_text(array)
    if not can_be_counted(array):
        return f"chunks of {shape} in {where}" if shape else f"1 chunk in {where}"
    counted = sum((count_table(tile.chunks) for tile in array.tiles), CellCounts())
    written = counted.stored + counted.inline
    if not counted.stored:
        return f"values, {format_bytes(counted.nbytes)}" if counted.inline else "never written"
    many = f" of {shape}" if shape and written > 1 else ""
    return f"{count_text(written, 'chunk')}{many} in {where}, {format_bytes(counted.nbytes)} stored"


def _dims_text(dims: Iterable[str], shape: Iterable[int]) -> str:
    return f"({', '.join(f'{dim}: {length:,}' for dim, length in zip(dims, shape, strict=True))})"


def describe_array(array: VirtualArray) -> str:
    """Return one line about an array."""
    whole = format_bytes(math.prod(array.shape) * array.dtype.itemsize)
    return f"<VirtualArray {_dims_text(array.dims, array.shape)} {array.dtype}: {_chunks_text(array)}; {whole} virtual>"


def variable_row(name: str, dims: Sequence[str], data: VirtualArray | npt.NDArray[Any]) -> Row:
    """Return a variable as a row of a table."""
    text = f"values, {format_bytes(data.nbytes)}" if isinstance(data, np.ndarray) else _chunks_text(data)
    return name, _dims_text(dims, data.shape), str(data.dtype), text


def describe_text(title: str, rows: Sequence[Row], notes: Sequence[str], attributes: Mapping[str, Any]) -> str:
    """Return a title, variables and notes in about ten lines."""
    lines = [*notes, *_attribute_lines(attributes)]
    room = max(MAX_LINES - 1 - len(lines), 3)
    shown = rows if len(rows) <= room else rows[: room - 1]
    widths = [max((len(row[column]) for row in shown), default=0) for column in range(3)]
    table = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in shown
    ]
    if len(shown) < len(rows):
        table.append(f"… and {len(rows) - len(shown):,} more")
    return "\n  ".join([f"<{title}>", *table, *lines])


def _attribute_lines(attributes: Mapping[str, Any]) -> list[str]:
    names = list(attributes)
    if not names:
        return []
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")
    return [f"attributes: {shown}"]


def describe_html(title: str, rows: Sequence[Row], notes: Sequence[str], attributes: Mapping[str, Any]) -> str:
    """Return the same as HTML, for notebooks: all variables, and the values of the attributes."""
    body = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    below = "".join(f"<div>{escape(note)}</div>" for note in notes)
    if attributes:
        pairs = "".join(
            f"<tr><th style='text-align:left'>{escape(str(name))}</th>"
            f"<td style='text-align:left'>{escape(_shorten(str(value)))}</td></tr>"
            for name, value in attributes.items()
        )
        summary = count_text(len(attributes), "attribute")
        below += f"<details><summary>{summary}</summary><table>{pairs}</table></details>"
    return f"<div><div><b>{escape(title)}</b></div><table><tbody>{body}</tbody></table>{below}</div>"


def _shorten(text: str) -> str:
    return text if len(text) <= 500 else f"{text[:500]} …"
