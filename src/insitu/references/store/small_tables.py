"""Read the two small tables of an insitu store that are needed to open it: irregular axes and
packings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError
from insitu.model import IDENTITY, PackingKind, Packings
from insitu.model.packing import PACKING_COLUMNS, PLAIN_NUMBER_TYPES
from insitu.references import arrow
from insitu.references.store import root
from insitu.references.store.json_values import dtype_from_json, unpack
from insitu.references.store.validation import check_cells, check_fields
from insitu.zarr_metadata.json_fields import integer_field, list_field, object_field, text_field

__all__ = ["read_axes", "read_packings"]

_AXIS_COLUMNS = ("extent", "skip", "step", "stored")


def read_axes(row: Any, url: str, options: Mapping[str, Any] | None) -> dict[str, npt.NDArray[np.int64]]:
    """Return the columns of the irregular axes, checked."""
    if row is None:
        return {name: np.zeros(0, np.int64) for name in _AXIS_COLUMNS}
    found = root.row_file_from_json(row, url, options).all_columns(_AXIS_COLUMNS)
    try:
        columns = {name: arrow.to_integers(found[name]) for name in _AXIS_COLUMNS}
    except TypeError as problem:
        raise FormatError(f"the table of axes cannot be read: {problem}") from None
    check_cells(columns)
    return columns


def read_packings(row: Mapping[str, Any], url: str, options: Mapping[str, Any] | None) -> Packings:
    """Return the table of packings, checked: numbers from a file, everything else from the root."""
    if "part" not in row:
        check_fields(row, ("rows",), "'packings'")
        if integer_field(row["rows"], "rows") > 1:
            raise FormatError(f"the root claims {row['rows']} packings, but names no file that holds them")
        return IDENTITY
    check_fields(row, ("rows", "width", "kinds", "missing_types", "part"), "'packings'")
    kinds = tuple(_parse_kind(object_field(kind, "kind")) for kind in list_field(row["kinds"], "kinds"))
    part = root.row_file_from_json(row["part"], url, options)
    width = integer_field(row["width"], "width")
    if integer_field(row["rows"], "rows") != part.rows:
        raise FormatError(f"the root claims {row['rows']} packings, but their file has {part.rows} rows")
    wide = ("missing", "missing_type") if width else ()
    plain = [name for name in PACKING_COLUMNS if name not in ("missing", "missing_type")]
    columns: dict[str, Any] = {
        "missing": np.zeros((part.rows, 0), np.uint64), "missing_type": np.zeros((part.rows, 0), np.int32)
    }  # fmt: skip
    for name, column in part.all_columns([*plain, *wide]).items():
        try:
            dtype = PACKING_COLUMNS[name]
            if name in wide:
                columns[name] = arrow.to_number_rows(column, width, dtype)
            else:
                columns[name] = arrow.to_numbers(column, dtype)
        except TypeError as problem:
            raise FormatError(f"column {name!r} of the packings cannot be read: {problem}") from None
    types = tuple(text_field(name, "missing_types") for name in list_field(row["missing_types"], "missing_types"))
    if bool(width) != bool(types):
        raise FormatError(f"packings have {width} missing values, but {len(types)} types of missing values")
    for name in [*types, *(name for kind in kinds for name in (kind.dtype, kind.masked, kind.scaled) if name)]:
        if name not in PLAIN_NUMBER_TYPES:
            dtype_from_json(name)
    for name, pool in (("kind", kinds), ("missing_type", types)):
        column = columns[name]
        if column.size and not (0 if name == "kind" else -1) <= int(column.min()) <= int(column.max()) < len(pool):
            raise FormatError(f"a packing has a {name} number that the store does not have")
    return Packings(kinds=kinds, missing_types=types, **columns)


def _parse_kind(row: Mapping[str, Any]) -> PackingKind:
    """Return the part of a packing that is not numbers."""
    values = unpack(row)
    if not isinstance(values, dict):
        raise FormatError("a kind of packing must be an object")
    check_fields(values, (), "a kind of packing", optional=[field.name for field in fields(PackingKind)])
    for name in ("dtype", "masked", "scaled"):
        if values.get(name) is not None:
            text_field(values[name], name)
    return PackingKind(**values)
