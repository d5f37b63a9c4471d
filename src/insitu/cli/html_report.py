"""Stand-alone HTML report of an archive: groups, variables, attributes, chunk pictures, what cannot be read.

One file without scripts, links or anything from the network. Every text of the archive is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from insitu import __version__
from insitu.cli.screen import format_chunk_shape, format_codecs
from insitu.cli.tree import type_name
from insitu.model import CellCounts, VirtualArray, VirtualGroup, count_cells
from insitu.model.description import count_text, format_bytes
from insitu.pictures.chunk_svg import PALETTE, busiest_dimensions, chunk_counts, chunk_svg, plane_text
from insitu.sources.redaction import redact_url

__all__ = ["html_report"]

MAX_DRAWN_CELLS = 20_000_000
"""Chunks of an array up to which they are drawn: about a second where the table is in memory."""
MAX_LISTED_FILES = 8
"""Files that are named under a picture; there are as many colours."""
MAX_VALUE_CHARS = 2_000
"""Longest value of an attribute that is shown in full."""

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; }
h1 { font-size: 1.3em; overflow-wrap: anywhere; }
h2 { font-size: 1.1em; margin-top: 2em; border-bottom: 1px solid #8886; overflow-wrap: anywhere; }
details { margin: .4em 0; border: 1px solid #8884; border-radius: 6px; padding: .4em .8em; }
summary { cursor: pointer; overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: .5em 0; }
th { text-align: left; font-weight: 600; padding: .1em 1.2em .1em 0; vertical-align: top; white-space: nowrap; }
td { padding: .1em 0; overflow-wrap: anywhere; }
.row { display: flex; flex-wrap: wrap; gap: 2em; align-items: flex-start; }
.dim { opacity: .7; }
.problem { color: #c33; }
.file { display: inline-block; width: .8em; height: .8em; margin-right: .5em; }
figure { margin: .5em 0; max-width: 24em; }
figcaption { font-size: .85em; opacity: .8; overflow-wrap: anywhere; }
"""


def html_report(group: VirtualGroup, title: str, notes: Sequence[tuple[str, str]] = ()) -> str:
    """Return the report.

    Parameters
    ----------
    group
        The contents of the archive.
    title
        Its name.
    notes
        Paths, and what is to be said about them.
    """
    arrays = list(group.all_arrays())
    cell_counts = {path: count_cells(array) for path, array in arrays}
    stored = sum(counts.nbytes for counts in cell_counts.values())
    virtual = sum(array.nbytes for _, array in arrays)
    left = sum(len(node.problems) for _, node in group.walk())
    summary = f"{count_text(len(arrays), 'variable')}, {format_bytes(stored)} stored, {format_bytes(virtual)} when read"
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{escape(summary)}</p>"]
    if left:
        parts.append(f"<p class='problem'>{escape(count_text(left, 'variable'))} cannot be read</p>")
    for path, node in group.walk():
        parts += _group_parts(path, node, cell_counts)
    if notes:
        parts += ["<h2>Notes</h2>", _table(notes)]
    parts.append(f"<p class='dim'>Written by insitu {escape(__version__)}.</p>")
    body = "\n".join(parts)
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _group_parts(path: str, node: VirtualGroup, cell_counts: Mapping[str, CellCounts]) -> Iterator[str]:
    yield f"<h2>{escape(path) if path else '/'}</h2>"
    if node.attributes:
        count = count_text(len(node.attributes), "attribute")
        yield f"<details><summary>{escape(count)}</summary>{_attribute_table(node.attributes)}</details>"
    for name, array in node.arrays.items():
        yield _variable_part(name, array, cell_counts[f"{path}/{name}" if path else name])
    for name, reason in node.problems.items():
        yield f"<p class='problem'><b>{escape(name)}</b>: {escape(reason)}</p>"


def _variable_part(name: str, array: VirtualArray, counts: CellCounts) -> str:
    dims = ", ".join(f"{dim} {size:,}" for dim, size in zip(array.dims, array.shape, strict=True)) or "scalar"
    chunks = f"{counts.cells:,}"
    for number, text in ((counts.unwritten, "never written"), (counts.absent, "that no file covers")):
        chunks += f", {number:,} {text}" if number else ""
    rows = [
        ("dimensions", dims),
        ("type", type_name(array)),
        ("chunk", format_chunk_shape(array)),
        ("chunks", chunks),
        ("codecs", format_codecs(encoding for tile in array.tiles for encoding in tile.encodings)),
        ("stored", format_bytes(counts.nbytes)),
        ("when read", format_bytes(array.nbytes)),
    ]
    detail = f"({dims}) {type_name(array)}"
    heading = f"<summary><b>{escape(name)}</b> <span class='dim'>{escape(detail)}</span></summary>"
    return (
        f"<details>{heading}<div class='row'><div>{_table(rows)}{_attribute_table(array.attributes)}</div>"
        f"{_chunk_figure(array)}</div></details>"
    )


def _chunk_figure(array: VirtualArray) -> str:
    cells = sum(math.prod(tile.chunks.shape) for tile in array.tiles)
    if not array.ndim or 0 in array.shape or cells > MAX_DRAWN_CELLS:
        return ""
    dimensions = busiest_dimensions(chunk_counts(array))
    caption = escape(plane_text(array.dims, dimensions)) + _file_list(array)
    return f"<figure>{chunk_svg(array, 240, dimensions)}<figcaption>{caption}</figcaption></figure>"


def _file_list(array: VirtualArray) -> str:
    """Return the files with their colours, if they are few and named by the table."""
    if not all(isinstance(tile.chunks.sources, (tuple, list)) for tile in array.tiles):
        return ""
    files = array.sources
    if not 1 < len(files) <= MAX_LISTED_FILES:
        return ""
    colours = (f"<span class='file' style='background:{colour}'></span>" for colour in PALETTE)
    return "".join(f"<br>{colour}{escape(redact_url(file.url))}" for colour, file in zip(colours, files, strict=False))


def _attribute_table(attributes: Mapping[str, Any]) -> str:
    return _table([(name, _value_text(value)) for name, value in attributes.items()])


def _value_text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        value = ", ".join(map(str, value.reshape(-1)[:200].tolist()))
    text = str(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} … ({len(text):,} characters)"


def _table(rows: Sequence[tuple[str, str]]) -> str:
    if not rows:
        return ""
    body = "".join(f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table><tbody>{body}</tbody></table>"
