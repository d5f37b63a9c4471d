"""Reader of version 1 B-trees: symbol table nodes of groups, and chunks of datasets.

Format specification 3.0, III.A.1: nodes of one size, with alternating keys and children. Type 0
leads to the symbol table nodes of a group, type 1 to the chunks of a dataset. All nodes of a level
are fetched together and decoded as one NumPy table, because a node at a time costs a round trip
each: a file whose B-trees are scattered over 290 MB takes 3 round trips over HTTP.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.formats.hdf5.structures.chunk_rows import ChunkRows, is_ascending
from insitu.formats.hdf5.structures.compiled_metadata import full_leaf
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.parsing.scheduler import ExactRanges, Ranges, Walk
from insitu.model.chunks import narrow_column

__all__ = ["read_chunk_tree", "read_group_tree"]

LEAF_BATCH = 1 << 20
"""Bytes of leaf nodes decoded at once, so that memory is bounded: a scan of 300,000 chunks takes 48 ms of processor,
no less with more bytes, and 94 ms with 64 KiB, because each call of NumPy then has but a few nodes.
"""


def read_group_tree(file: FileContext, address: int) -> Walk[list[int]]:
    """Return the addresses of a group's symbol table nodes."""
    found, _, _ = yield from _descend(file, address, 0, file.length_size, file.group_node_k)
    children: list[int] = found.tolist()
    return children


def read_chunk_tree(file: FileContext, address: int, chunk: tuple[int, ...], rows: ChunkRows) -> Walk[None]:
    """Add all chunks of a dataset to `rows`.

    Parameters
    ----------
    file, address
        Where the root node lies.
    chunk
        Elements along each axis of a chunk.
    rows
        What to add to.
    """
    rank, width = len(chunk), file.offset_size
    # A key: stored size, filter mask, the chunk's first element along each axis, and a 0 for the
    # element size.
    key = 8 + 8 * (rank + 1)
    room = 2 * file.chunk_node_k
    entry = _entry_dtype(rank, width)
    size, begin = _node_size(file, key, room), 8 + 2 * width
    place = file.range(address, size, "chunk B-tree node")
    root = file.peek(*place)
    if root is None:
        (root,) = yield ExactRanges([place])
    rows.whole = full_leaf(file, root, rows.grid, chunk)
    if rows.whole is not None or _take_full_grid(file, root, begin, entry, chunk, rows):
        return
    addresses, leaves, bounds = yield from _descend(
        file, address, 1, key, file.chunk_node_k, rank=rank, leaves=False, root=root
    )
    batch = max(1, LEAF_BATCH // size)
    for start in range(0, len(addresses), batch):
        node_batch = addresses[start : start + batch]
        if leaves is None:
            blocks = yield ExactRanges(_ranges(file, node_batch, size))
            data = b"".join(blocks) if len(blocks) > 1 else blocks[0]
            del blocks
        else:
            data = leaves  # the root is a leaf, and is at hand
        used = _check_nodes(file, data, size, node_batch, 1, 0, room)
        # As opaque records, which numpy copies whole; it would copy fields one by one.
        table = np.ndarray((len(node_batch), room), f"V{entry.itemsize}", data, begin, (size, entry.itemsize))
        valid: Any = np.arange(room) < used[:, None] if len(node_batch) > 1 else (slice(0, 1), slice(0, int(used[0])))
        entries = table[valid].reshape(-1).view(entry)
        places = rows.places(entries["first"], chunk)
        if places is None:
            file.fail("has a chunk that is not aligned to the chunk shape", int(node_batch[0]), "chunk B-tree node")
        whole = rows.add(places, entries["address"].astype(np.uint64), entries["size"], entries["mask"], "chunk B-tree")
        # The library looks between the keys on either side of a chunk, and would not find one
        # behind a wrong key. That the keys of chunks within the grid come in order is seen when
        # they are put there; those that are left out are seen here.
        keys_ascend = whole or is_ascending(entries["first"])
        keys = _keys(data, used, size, begin, rank, entry.itemsize)
        batch_bounds = None if bounds is None else bounds[:, start : start + batch]
        if not keys_ascend or entries["zero"].any() or not _is_within_bounds(keys, used, batch_bounds):
            file.fail("has keys out of order", int(node_batch[0]), "chunk B-tree node")


def _take_full_grid(
    file: FileContext, data: bytes, begin: int, entry: np.dtype[Any], chunk: tuple[int, ...], rows: ChunkRows
) -> bool:
    """Whether one leaf holds all cells of a small grid in C order; if so, take them.

    The usual file has many such variables, and sorting their few chunks into a grid is most of the
    work of a scan.
    """
    count = data[6] | data[7] << 8
    if data[:6] != b"TREE\x01\x00" or not 0 < count <= 2 * file.chunk_node_k or count != math.prod(rows.grid):
        return False
    table = np.frombuffer(data, entry, count + 1, begin) if begin + (count + 1) * entry.itemsize <= len(data) else None
    if table is None or not (table["key"][:-1] == _first_elements(rows.grid, chunk)).all():
        return False
    offset = table["address"][:-1].astype(np.int64)
    length = table["size"][:-1].astype(np.int64)
    offset += file.base
    if (
        int((offset + length).max()) > file.size
        or int(offset.min()) < file.base
        or tuple(table["key"][-1]) <= tuple(table["key"][-2])
    ):
        return False  # the caller reports what is wrong
    mask = table["mask"][:-1]
    rows.whole = _narrow_column(offset), _narrow_column(length), _narrow_column(mask)
    return True


def _narrow_column(numbers: npt.NDArray[Any]) -> npt.NDArray[Any] | int:
    column = narrow_column(numbers.astype(np.int64), 1)
    return int(column[0]) if len(column) == 1 else column


@lru_cache(maxsize=1024)
def _first_elements(grid: tuple[int, ...], chunk: tuple[int, ...]) -> npt.NDArray[np.uint64]:
    """The keys of all chunks of a small grid: the first element along each axis, and 0."""
    index = np.indices(grid, np.uint64).reshape(len(grid), -1).T
    keys = np.zeros((len(index), len(grid) + 1), np.uint64)
    keys[:, :-1] = index * np.array(chunk, np.uint64)
    return keys


@lru_cache(maxsize=64)
def _entry_dtype(rank: int, width: int) -> np.dtype[Any]:
    """A key and the child behind it."""
    key = 8 + 8 * (rank + 1)
    return np.dtype(
        {
            "names": ["size", "mask", "first", "zero", "key", "address"],
            "formats": ["<u4", "<u4", ("<u8", (rank,)), "<u8", ("<u8", (rank + 1,)), f"<u{width}"],
            "offsets": [0, 4, 8, key - 8, 8, key],
            "itemsize": key + width,
        }
    )


def _keys(data: bytes, used: npt.NDArray[Any], size: int, begin: int, rank: int, step: int) -> npt.NDArray[np.uint64]:
    """Return the first elements in the keys of some nodes: (nodes, keys, axes).

    As many keys as the fullest node has, and the one behind.
    """
    return np.ndarray((len(used), int(used.max()) + 1, rank + 1), "<u8", data, begin + 8, (size, step, 8))


def _is_within_bounds(
    keys: npt.NDArray[np.uint64], used: npt.NDArray[Any], bounds: npt.NDArray[np.uint64] | None
) -> bool:
    """Whether the keys of each node are below its closing key and within those of its parent."""
    nodes = np.flatnonzero(used)
    first, last = keys[nodes, 0], keys[nodes, used[nodes].astype(np.int64) - 1]
    is_within = _rows_less_than(last, keys[nodes, used[nodes]])
    if bounds is not None:
        is_within &= ~_rows_less_than(first, bounds[0, nodes]) & _rows_less_than(last, bounds[1, nodes])
    return bool(is_within.all())


def _rows_less_than(left: npt.NDArray[np.uint64], right: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which rows are less than their counterparts, axis by axis."""
    less, equal = np.zeros(len(left), bool), np.ones(len(left), bool)
    for axis in range(left.shape[1]):
        less |= equal & (left[:, axis] < right[:, axis])
        equal &= left[:, axis] == right[:, axis]
    return less


def _node_size(file: FileContext, key: int, room: int) -> int:
    return 8 + 2 * file.offset_size + (room + 1) * key + room * file.offset_size


def _descend(
    file: FileContext,
    address: int,
    kind: int,
    key: int,
    half: int,
    *,
    rank: int = 0,
    leaves: bool = True,
    root: bytes | None = None,
) -> Walk[tuple[npt.NDArray[np.uint64], bytes | None, npt.NDArray[np.uint64] | None]]:
    """Return the children of the leaf nodes.

    With `leaves=False`, return the leaf nodes themselves, the root if it is one, and the keys
    between which each must lie.
    """
    room, width = 2 * half, file.offset_size
    size, begin = _node_size(file, key, room), 8 + 2 * width
    name = "group B-tree node" if kind == 0 else "chunk B-tree node"
    addresses = np.array([address], np.uint64)
    bounds: npt.NDArray[np.uint64] | None = None
    (data,) = (root,) if root is not None else (yield _as_request(kind, [file.range(address, size, name)]))
    level = data[5]
    total = 1
    while True:
        used = _check_nodes(file, data, size, addresses, kind, level, room)
        if level == 0 and not leaves:
            return addresses, data if total == 1 else None, bounds
        table = np.ndarray((len(addresses), room), f"<u{width}", data, begin + key, (size, key + width))
        is_used = np.arange(room) < used[:, None]
        children = table[is_used].astype(np.uint64)
        if level == 0:
            return children, None, None
        if kind == 1:
            keys = _keys(data, used, size, begin, rank, key + width)
            if not _is_within_bounds(keys, used, bounds):
                file.fail("has keys out of order", int(addresses[0]), name)
            has_child = is_used[:, : keys.shape[1] - 1]
            bounds = np.stack([keys[:, :-1][has_child], keys[:, 1:][has_child]])
        total += len(children)
        # Every node is its own piece of the file: else the tree is a knot.
        if total * size > file.size or len(np.unique(children)) != len(children):
            file.fail("has children that overlap, or refers to one twice", int(addresses[0]), name)
        addresses, level = children, level - 1
        if level == 0 and not leaves:
            return addresses, None, bounds
        if not len(addresses):
            file.fail("has inner nodes without children", address, name)
        blocks = yield _as_request(kind, _ranges(file, addresses, size))
        data = b"".join(blocks)


def _as_request(kind: int, ranges: Ranges) -> Ranges:
    return ExactRanges(ranges) if kind else ranges


def _ranges(file: FileContext, addresses: npt.NDArray[np.uint64], size: int) -> Ranges:
    if len(addresses) and int(addresses.max()) + size + file.base > file.size:
        file.fail("lies outside the file", min(int(addresses.max()), file.size), "B-tree node")
    return [(place, size) for place in (addresses.astype(np.int64) + file.base).tolist()]


def _check_nodes(
    file: FileContext, data: bytes, size: int, addresses: npt.NDArray[np.uint64], kind: int, level: int, room: int
) -> npt.NDArray[np.uint16]:
    """Raise if a node is not one, or not of this level; how many entries each has."""
    if len(addresses) == 1:
        used = np.array([data[6] | data[7] << 8], np.uint16)
        is_valid = np.array([data[:4] == b"TREE" and data[4] == kind and data[5] == level])
    else:
        head = np.ndarray((len(addresses),), _NODE_HEAD, data, 0, (size,))
        used = head["used"]
        is_valid = (head["signature"] == b"TREE") & (head["kind"] == kind) & (head["level"] == level)
    is_valid &= used <= room
    if not is_valid.all():
        invalid = int(addresses[int(np.argmin(is_valid))])
        file.fail("is not a node of its tree", invalid, "group B-tree node" if kind == 0 else "chunk B-tree node")
    return used


_NODE_HEAD = np.dtype([("signature", "S4"), ("kind", "u1"), ("level", "u1"), ("used", "<u2")])
