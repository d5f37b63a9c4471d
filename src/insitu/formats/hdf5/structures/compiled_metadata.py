"""Compiled parser of metadata that is in memory, for the structures that files have most of.

Each function returns None for what is not in the head of the file, not plain or not sound: then the
parser in Python reads it, and says what is wrong. So it does for everything where the C extension
was not built.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import numpy as np
import numpy.typing as npt

from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.messages import Message

__all__ = ["attribute_bodies", "full_leaf", "header_messages", "heap_objects", "metadata"]

metadata: ModuleType | None
"""The C extension; None if it was not built."""
try:
    metadata = import_module("insitu.formats.hdf5.structures._metadata")
except ImportError:  # built only where there is a C compiler
    metadata = None


def header_messages(file: FileContext, address: int) -> list[Message] | None:
    """Return the messages of the object header at an address, continuation blocks included."""
    if metadata is None:
        return None
    widths = file.offset_size << 8 | file.length_size
    found: list[Message] | None = metadata.header_messages(file.head(), file.base, widths, address, Message)
    return found


def heap_objects(file: FileContext, heap: int, tree: int, kind: int) -> list[tuple[int, bytes]] | None:
    """Return the objects of a fractal heap that a B-tree names: creation order and bytes.

    Parameters
    ----------
    file
        The file.
    heap, tree
        Addresses of the heap's and the tree's headers.
    kind
        Record type of the tree (III.A.2): 5 for links, whose order is not in it, 8 for attributes.
    """
    if metadata is None:
        return None
    widths = file.offset_size << 8 | file.length_size
    found: list[tuple[int, bytes]] | None = metadata.heap_objects(file.head(), file.base, widths, heap, tree, kind)
    return found


def attribute_bodies(file: FileContext, messages: list[Message], skipped: bytes) -> tuple[bytes, ...] | None:
    """Return the attribute messages of an object, in creation order, without those of one name.

    Parameters
    ----------
    file
        The file.
    messages
        Of the object's header.
    skipped
        The name of attributes to leave out.
    """
    if metadata is None:
        return None
    widths = file.offset_size << 8 | file.length_size
    found: tuple[bytes, ...] | None = metadata.attribute_bodies(file.head(), file.base, widths, messages, skipped)
    return found


def full_leaf(
    file: FileContext, node: bytes, grid: tuple[int, ...], chunk: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64] | int] | None:
    """Return offsets, lengths and filter masks of all cells of a grid from a leaf of a chunk
    B-tree.

    None unless the node holds exactly those cells, in C order.
    """
    if metadata is None:
        return None
    found = metadata.full_leaf(node, file.base, file.offset_size, file.size, 2 * file.chunk_node_k, grid, chunk)
    if found is None:
        return None
    offset, length, mask = found
    return (
        np.frombuffer(offset, np.int64),
        np.frombuffer(length, np.int64),
        0 if mask is None else np.frombuffer(mask, np.int64),
    )
