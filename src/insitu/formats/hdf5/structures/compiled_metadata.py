"""Compiled parser of metadata that is in memory: whole objects in the head of a file, and full leaves of chunk indexes.

Each function returns None for what is not plain or not sound: then the parser in Python reads it, and says what is
wrong. So it does for everything where the C extension was not built.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.formats.hdf5.structures.file import FileContext

__all__ = [
    "DATASET",
    "GROUP",
    "NAMED_TYPE",
    "NOT_PLAIN",
    "CompiledObject",
    "full_leaf",
    "metadata",
    "read_compiled",
    "to_columns",
]

NOT_PLAIN, GROUP, DATASET, NAMED_TYPE, _OTHER = range(5)
"""Kinds of objects; the last one holds neither data nor links."""
DEEP_CALLS_LIMIT = 16
"""Times that objects of one file are followed in C. Each time costs as much as the head has bytes, and what C leaves to
Python may lead to more: a damaged file must not have the same head parsed a thousand times.
"""

Cells = tuple[npt.NDArray[Any] | int, npt.NDArray[Any] | int, npt.NDArray[Any] | int]
"""Offset, length and filter mask of the chunks of a grid in C order: a column, or one number for all."""
CompiledCells = tuple[bytes | int, bytes | int, bytes | int]
"""The same, columns as bytes of the narrowest integers."""
CompiledObject = tuple[int, int, Any, int | None, CompiledCells | None, bytes | None, tuple[bytes, ...]]
"""Kind and address of an object. For a group its links, sorted; for a dataset what describes it: kind, length (four
bytes) and body of its messages, with 0 for the address of its data; for a named type its message. That address. The
chunks. The attribute messages, each behind its length (four bytes), in creation order, with zeroes for references into
heaps; and what these stand for."""

metadata: ModuleType | None
"""The C extension; None if it was not built."""
try:
    metadata = import_module("insitu.formats.hdf5.structures._metadata")
except ImportError:  # built only where there is a C compiler
    metadata = None


def read_compiled(
    file: FileContext, addresses: list[int], known: Iterable[int], link: type, *, indexed: bool, deep: bool
) -> list[CompiledObject] | None:
    """Return the objects at some addresses, a group before what is in it.

    Parameters
    ----------
    file, addresses
        Where their headers lie.
    known
        Addresses that are not to be followed.
    link
        The named tuple that links are.
    indexed
        Whether to read the chunk indexes of datasets.
    deep
        Whether to follow links.
    """
    head = file.head()
    if metadata is None or (deep and file.deep_calls >= DEEP_CALLS_LIMIT):
        return None
    if not any(address + file.base < len(head) for address in addresses):
        return None
    file.deep_calls += deep
    numbers = (
        file.size,
        file.base,
        file.offset_size,
        file.length_size,
        2 * file.group_leaf_k,
        2 * file.group_node_k,
        2 * file.chunk_node_k,
    )
    followed = list(known) if deep else []
    found: list[CompiledObject] = metadata.read_objects(head, numbers, addresses, followed, indexed, deep, link)
    return found


def full_leaf(file: FileContext, node: bytes, grid: tuple[int, ...], chunk: tuple[int, ...]) -> Cells | None:
    """Return where all cells of a grid lie, from a leaf of a chunk B-tree.

    None unless the node holds exactly those cells, in C order.
    """
    if metadata is None:
        return None
    found = metadata.full_leaf(node, file.base, file.offset_size, file.size, 2 * file.chunk_node_k, grid, chunk)
    return None if found is None else to_columns(found, math.prod(grid))


def to_columns(cells: CompiledCells, count: int) -> Cells:
    """Return columns of so many chunks."""
    offset, length, mask = (
        column if isinstance(column, int) else np.frombuffer(column, _INTEGERS[len(column) // count])
        for column in cells
    )
    return offset, length, mask


_INTEGERS = {width: np.dtype(f"i{width}") for width in (1, 2, 4, 8)}
