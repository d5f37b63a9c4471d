"""List the objects of Zarr stores, to know which chunks exist before references are written.

The names of a Zarr store's chunks are computed, and a read finds out whether a chunk exists.
References must name the chunks that exist, so its objects are listed first (on the web, where
nothing can be listed, they are asked for one by one).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from insitu.model import ChunkTable, VirtualArray, VirtualGroup
from insitu.model.derived_tables import ExpandedTable, InterleavedSources, JoinedTable, SelectedTable
from insitu.references.rename import RenamedTable

__all__ = ["UnlistedTable", "list_written_cells"]


@runtime_checkable
class UnlistedTable(Protocol):
    """A chunk table that can find out which of its cells were written."""

    def explicit(self, storage_options: Mapping[str, Any] | None = None) -> ChunkTable:
        """Return the same table with the state of every cell known."""


def list_written_cells(group: VirtualGroup, storage_options: Mapping[str, Any] | None = None) -> VirtualGroup:
    """Return the tree with the state of every cell known."""

    def list_cells(name: str, array: VirtualArray) -> VirtualArray:
        tables = [_list_table(tile.chunks, storage_options) for tile in array.tiles]
        if all(table is tile.chunks for table, tile in zip(tables, array.tiles, strict=True)):
            return array
        tiles = (replace(tile, chunks=table) for table, tile in zip(tables, array.tiles, strict=True))
        return replace(array, tiles=tuple(tiles))

    return group.map_arrays(list_cells)


def _list_table(table: ChunkTable, storage_options: Mapping[str, Any] | None) -> ChunkTable:
    if isinstance(table, UnlistedTable):
        return table.explicit(storage_options)
    if isinstance(table, SelectedTable | ExpandedTable | RenamedTable):
        inner = _list_table(table.table, storage_options)
        return table if inner is table.table else replace(table, table=inner)
    if isinstance(table, JoinedTable) and table.source_maps is None:
        parts = [_list_table(part, storage_options) for part in table.tables]
        if any(new is not old for new, old in zip(parts, table.tables, strict=True)):
            return replace(table, tables=tuple(parts), sources=InterleavedSources([part.sources for part in parts]))
    return table
