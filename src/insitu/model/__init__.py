"""The data model: virtual arrays, their chunks, encodings, packings, groups and selections.

Only NumPy and no I/O: everything here describes where bytes lie and what they mean, and can be
sliced, joined and pickled without reading any data.
"""

from insitu.model.array import VirtualArray
from insitu.model.axis import Axis
from insitu.model.cell_counts import CellCounts, byte_ranges, count_cells, count_written
from insitu.model.chunks import (
    ABSENT,
    INLINE,
    UNWRITTEN,
    WHOLE,
    Absent,
    ChunkLocations,
    ChunkState,
    ChunkTable,
    Columns,
    Inline,
    Stored,
    Unwritten,
)
from insitu.model.encoding import Codec, Encoding
from insitu.model.format_details import ArrayDetails, GroupDetails
from insitu.model.group import VirtualGroup
from insitu.model.join import concatenate, stack
from insitu.model.packing import IDENTITY, Packing, PackingKind, Packings
from insitu.model.selection import Selection, Stride, normalise_axes
from insitu.model.source import Comparison, Source
from insitu.model.sparse_chunks import SparseTable, scatter
from insitu.model.tile import Tile

__all__ = [
    "ABSENT",
    "IDENTITY",
    "INLINE",
    "UNWRITTEN",
    "WHOLE",
    "Absent",
    "ArrayDetails",
    "Axis",
    "CellCounts",
    "ChunkLocations",
    "ChunkState",
    "ChunkTable",
    "Codec",
    "Columns",
    "Comparison",
    "Encoding",
    "GroupDetails",
    "Inline",
    "Packing",
    "PackingKind",
    "Packings",
    "Selection",
    "Source",
    "SparseTable",
    "Stored",
    "Stride",
    "Tile",
    "Unwritten",
    "VirtualArray",
    "VirtualGroup",
    "byte_ranges",
    "concatenate",
    "count_cells",
    "count_written",
    "normalise_axes",
    "scatter",
    "stack",
]
