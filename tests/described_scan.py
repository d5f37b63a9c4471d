"""All that a scan of an HDF5 file finds, as plain values: to compare the compiled parser with the one in Python."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from insitu.errors import InsituError
from insitu.formats import scan_format
from insitu.formats.hdf5.structures import compiled_metadata
from insitu.sources import MemorySource

__all__ = ["describe_scan", "difference_of_parsers", "without_compiled_parser"]

MOST_CELLS = 10_000


@contextmanager
def without_compiled_parser() -> Iterator[None]:
    """Have everything parsed in Python."""
    with mock.patch.object(compiled_metadata, "metadata", None):
        yield


def describe_scan(data: bytes) -> Any:
    """Return all that a scan finds, or the error that it gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = scan_format(MemorySource(data, "x"), errors="keep")
        except InsituError as problem:
            return type(problem), str(problem)
    found: list[Any] = []
    for path, group in tree.walk():
        found.append((path, _plain(group.attributes), repr(group.details), repr(group.problems), group.unlimited))
        for name, array in group.arrays.items():
            tables = [
                (tile.axes, repr(tile.encodings), [column.tolist() for column in _columns(tile.chunks)])
                for tile in array.tiles
            ]
            about = (array.shape, str(array.dtype), array.dims, _plain(array.attributes), repr(array.details))
            found.append((path, name, about, repr(array.fill_value), tables))
    return found


def _plain(attributes: Any) -> list[tuple[str, str, str]]:
    return [(name, type(value).__name__, repr(value)) for name, value in attributes.items()]


def _columns(table: Any) -> list[Any]:
    if not 0 < np.prod(table.shape, dtype=float) < MOST_CELLS:
        return []
    places = table.locate([axis.reshape(-1) for axis in np.indices(table.shape)])
    return [places.source, places.offset, places.length, places.filter_mask]


def difference_of_parsers(data: bytes) -> str:
    """Return what the compiled parser finds otherwise than the one in Python; nothing if it does not."""
    found = describe_scan(data)
    with without_compiled_parser():
        expected = describe_scan(data)
    if found == expected:
        return ""
    if isinstance(found, tuple) or isinstance(expected, tuple):
        return f"the compiled parser: {found!s:.500}; in Python: {expected!s:.500}"
    first = next(
        (pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), (len(found), len(expected))
    )
    return f"the compiled parser: {first[0]!s:.500}; in Python: {first[1]!s:.500}"
