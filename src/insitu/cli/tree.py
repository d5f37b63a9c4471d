"""The contents of an archive as a table or as JSON: dimensions, types, chunks, codecs, sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from insitu.cli.screen import format_chunk_shape, format_codecs
from insitu.model import VirtualArray, VirtualGroup, count_cells
from insitu.model.description import format_bytes

__all__ = ["as_json", "as_table"]


def as_table(group: VirtualGroup) -> Table:
    """Return the tree of an archive as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("variable", "dimensions", "type", "chunk", "chunks", "codecs", "stored", "virtual"):
        number = heading in ("chunks", "stored", "virtual")
        table.add_column(heading, justify="right" if number else "left", overflow="fold", min_width=len(heading))
    for path, node in group.walk():
        if path:
            table.add_row(Text(f"{path}/", style="bold cyan"))
        for name, array in node.arrays.items():
            counts = count_cells(array)
            unwritten = counts.cells - counts.stored - counts.inline
            table.add_row(
                f"{'  ' * bool(path)}{name}",
                ", ".join(f"{dim} {length:,}" for dim, length in zip(array.dims, array.shape, strict=True)),
                type_name(array),
                format_chunk_shape(array),
                f"{counts.cells:,}" + (f" ({unwritten:,} empty)" if unwritten else ""),
                format_codecs(encoding for tile in array.tiles for encoding in tile.encodings),
                format_bytes(counts.nbytes),
                format_bytes(array.nbytes),
            )
        for name in node.problems:
            table.add_row(Text(f"{'  ' * bool(path)}{name}", style="red"), Text("cannot be read", style="red"))
    return table


def type_name(array: VirtualArray) -> str:
    """Return the name of the type, with the byte order if it is not native."""
    dtype = array.dtype
    if dtype.kind == "O":
        return "text" if array.details.varying != "sequence" else "sequence"
    if dtype.names:
        return "{" + ", ".join(dtype.names) + "}"
    if dtype.kind == "S":
        return f"char({dtype.itemsize})"
    return dtype.name if dtype.isnative else f"{dtype.name} BE"


def as_json(group: VirtualGroup) -> dict[str, Any]:
    """Return the tree of an archive for JSON."""
    return {
        "attributes": {name: _to_json(value) for name, value in group.attributes.items()},
        "variables": {name: _array_json(array) for name, array in group.arrays.items()},
        "groups": {name: as_json(child) for name, child in group.groups.items()},
        "problems": dict(group.problems),
    }


def _array_json(array: VirtualArray) -> dict[str, Any]:
    counts = count_cells(array)
    return {
        "dims": list(array.dims),
        "shape": list(array.shape),
        "dtype": array.dtype.str if not array.dtype.names else str(array.dtype),
        "attributes": {name: _to_json(value) for name, value in array.attributes.items()},
        "fill_value": _to_json(array.fill_value),
        "chunk": format_chunk_shape(array),
        "codecs": [
            [{"name": codec.name, "configuration": dict(codec.configuration)} for codec in encoding.codecs]
            for tile in array.tiles
            for encoding in tile.encodings
        ],
        "chunks": {
            "cells": counts.cells,
            "stored": counts.stored,
            "inline": counts.inline,
            "unwritten": counts.unwritten,
        },
        "stored_bytes": counts.nbytes,
        "virtual_bytes": array.nbytes,
    }


def _to_json(value: Any) -> Any:
    """Return a value as JSON can represent it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return str(value)
