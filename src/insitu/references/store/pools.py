"""Numbered pools of a store that is written: encodings, packings, sources and irregular axes.

Rows refer to these by number. Numbers never change: an append adds to the existing pools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pyarrow as pa

from insitu.model import Axis, Encoding, Packing, Packings, Source
from insitu.references import arrow
from insitu.references.store.json_values import pack
from insitu.references.store.store_reader import OpenStore

__all__ = ["AXES", "SOURCES", "Pools"]

SOURCES = pa.schema([
    ("url", pa.string()), ("size", pa.int64()), ("etag", pa.string()), ("modified", pa.float64()),
    ("optional", pa.bool_()),
])  # fmt: skip
AXES = pa.schema([(name, pa.int64()) for name in ("extent", "skip", "step", "stored")])


class Pools:
    """The pools that the rows of a store refer to.

    Parameters
    ----------
    opened
        The existing store that is changed, if there is one.
    name_source
        Formats the URL of a source.
    """

    def __init__(self, opened: OpenStore | None, name_source: Callable[[str], str]) -> None:
        self.name_source = name_source
        self.encodings: dict[Encoding, int] = {}
        self.sources: dict[Source, int] = {}
        """The new sources, which the existing store does not have."""
        self.axis_rows = 0
        self._axes: list[Any] = []
        self._packings: dict[Any, int] = {}
        self._packing_rows: list[Packing] = []
        self._first_source = 0
        if opened is not None:  # rows that are not written again refer to its numbers
            self.encodings = {encoding: number for number, encoding in enumerate(opened.encodings)}
            for row in range(len(opened.packings)):
                self.packing(opened.packings[row])
            self._first_source = len(opened.sources)

    def encoding(self, encoding: Encoding) -> int:
        """Return the number of an encoding, adding it if it is new."""
        return self.encodings.setdefault(encoding, len(self.encodings))

    def packing(self, packing: Packing) -> int:
        """Return the number of a packing, adding it if it is new."""
        number = self._packings.setdefault(packing.key, len(self._packing_rows))
        if number == len(self._packing_rows):
            self._packing_rows.append(packing)
        return number

    def source(self, source: Source) -> int:
        """Return the number of a source, adding it if it is new."""
        return self._first_source + self.sources.setdefault(source, len(self.sources))

    def axis(self, axis: Axis) -> dict[str, Any]:
        """Return an axis as the root describes it."""
        if axis.is_regular:
            return {"length": axis.length, "size": axis.size, "padded": axis.padded}
        first = self.axis_rows
        self._axes.append(axis.show(np.arange(axis.count)))
        self.axis_rows += axis.count
        return {"rows": [first, axis.count]}

    def source_columns(self) -> dict[str, Any]:
        """Return the columns of the new sources."""
        rows = list(self.sources)
        return {
            "url": arrow.text_array([self.name_source(source.url) for source in rows]),
            "size": _nullable_numbers([source.size for source in rows], np.int64),
            "etag": arrow.text_array([source.etag for source in rows]),
            "modified": _nullable_numbers([source.modified for source in rows], np.float64),
            "optional": arrow.boolean_array([source.optional for source in rows]),
        }

    def axis_columns(self) -> dict[str, Any]:
        """Return the columns of the irregular axes."""
        return {
            name: arrow.number_array(np.concatenate([getattr(cells, name) for cells in self._axes]), np.int64)
            for name in AXES.names
        }

    def packing_document(self, write: Callable[[str, Any, dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Return the root's entry about packings; `write` writes their table to a file."""
        if all(packing.identity for packing in self._packing_rows):
            return {"rows": len(self._packing_rows)}
        table = Packings.of(self._packing_rows)
        width = table.missing.shape[1]
        columns: dict[str, Any] = {}
        for column in fields(Packings):
            value = getattr(table, column.name)
            if isinstance(value, np.ndarray) and value.size:
                flat = arrow.number_array(value.reshape(-1))
                columns[column.name] = flat if value.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, width)
        schema = pa.schema([(name, column.type) for name, column in columns.items()])
        return {
            "rows": len(table),
            "width": width,
            "kinds": [pack(asdict(kind)) for kind in table.kinds],
            "missing_types": list(table.missing_types),
            "part": write("packings", schema, columns),
        }


def _nullable_numbers(values: Sequence[float | None], dtype: type[Any]) -> Any:
    missing = np.array([value is None for value in values], bool)
    return arrow.number_array(np.array([0 if value is None else value for value in values], dtype), dtype, missing)
