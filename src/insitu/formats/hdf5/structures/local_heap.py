"""Reader of local heaps and of the symbol tables of old-style groups.

A B-tree of symbol table nodes whose names lie in a local heap: format specification 3.0, III.A.1,
III.B, III.C and III.D.
"""

from __future__ import annotations

from insitu.formats.hdf5.structures.btree_v1 import read_group_tree
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.links import Link
from insitu.formats.parsing.scheduler import Parallel, Walk

__all__ = ["read_local_heap", "read_symbol_table"]


def read_symbol_table(file: FileContext, body: bytes) -> Walk[list[Link]]:
    """Return the links of an old-style group, by name.

    Parameters
    ----------
    file
        The file.
    body
        The symbol table message (IV.A.2.r): the addresses of the B-tree and of the heap.
    """
    width = file.offset_size
    tree, heap = (int.from_bytes(body[i * width : (i + 1) * width], "little") for i in range(2))
    if len(body) < 2 * width:
        file.fail("message is cut off", 0, "symbol table")
    names, nodes = yield Parallel([read_local_heap(file, heap), _symbol_nodes(file, tree)])
    links = []
    size = file.length_size + width + 24  # III.C; the name has a length's width, whatever the specification says
    for place, node in nodes:
        count = int.from_bytes(node[6:8], "little")
        if node[:4] != b"SNOD" or 8 + count * size > len(node):
            file.fail("has no signature, or is too short", place, "symbol table node")
        for at in range(8, 8 + count * size, size):
            links.append(_link(file, node[at : at + size], names, place))
    return links


def read_local_heap(file: FileContext, address: int) -> Walk[bytes]:
    """Return the data segment of a local heap (III.D)."""
    length, width = file.length_size, file.offset_size
    (data,) = yield [file.range(address, 8 + 2 * length + width, "local heap")]
    if data[:4] != b"HEAP":
        file.fail("has no signature", address, "local heap")
    size = int.from_bytes(data[8 : 8 + length], "little")
    segment = int.from_bytes(data[8 + 2 * length : 8 + 2 * length + width], "little")
    if not size:
        return b""
    (names,) = yield [file.range(segment, size, "local heap data segment")]
    found: bytes = names
    return found


def _symbol_nodes(file: FileContext, address: int) -> Walk[list[tuple[int, bytes]]]:
    """The symbol table nodes (III.B) of a group."""
    places = yield from read_group_tree(file, address)
    size = 8 + 2 * file.group_leaf_k * (file.length_size + file.offset_size + 24)
    if len(set(places)) != len(places) or len(places) * size > file.size:
        file.fail("refers to one symbol table node twice", address, "group B-tree")
    blocks = yield [file.range(place, size, "symbol table node") for place in places]
    return list(zip(places, blocks, strict=True))


def _link(file: FileContext, entry: bytes, names: bytes, place: int) -> Link:
    """Parse a symbol table entry (III.C).

    Name, object header, and for soft links (cache type 2) their target.
    """
    begin, end = file.length_size, file.length_size + file.offset_size
    name = _text(file, names, int.from_bytes(entry[:begin], "little"), place)
    if int.from_bytes(entry[end : end + 4], "little") == 2:
        at = int.from_bytes(entry[end + 8 : end + 12], "little")
        return Link(name, None, _text(file, names, at, place), None, 0)
    return Link(name, int.from_bytes(entry[begin:end], "little"), None, None, 0)


def _text(file: FileContext, names: bytes, at: int, place: int) -> str:
    end = names.find(b"\0", at)
    if at >= len(names) or end < 0:
        file.fail("has a name outside its heap", place, "symbol table node")
    return names[at:end].decode("utf-8", "surrogateescape")
