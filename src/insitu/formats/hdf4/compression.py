"""Codecs of HDF4: run lengths, n-bit, skipping Huffman, and szip with HDF4's preamble.

Each works on bytes as they lie in the file. The Huffman tree changes with every byte that it yields
(a splay tree, after D. W. Jones, "Application of splay trees to data compression", 1988), one tree
for each byte of an element. It is decoded byte by byte, in Python.
"""

from __future__ import annotations

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.compressors.szip import PARAMETERS, szip_decoder
from insitu.codecs.configuration import integer_field
from insitu.errors import CodecError

__all__ = ["hdf4_huffman", "hdf4_nbit", "hdf4_rle", "hdf4_szip"]

RUN, SHORTEST_RUN = 0x80, 3
LEAVES = 256
WITH_PREAMBLE = 1 << 16
"""Of szip's options: five bytes stand before the data (since version 4.2r1)."""


def hdf4_rle(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for run lengths.

    A byte with the high bit set repeats the next one, another is followed by so many as they are.
    """
    limit = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data).tobytes()
        parts: list[bytes] = []
        at = written = 0
        while written < limit and at < len(raw):
            head = raw[at]
            if head & RUN:
                part = raw[at + 1 : at + 2] * ((head & ~RUN) + SHORTEST_RUN)
                at += 2
            else:
                part = raw[at + 1 : at + 2 + head]
                at += 2 + head
            parts.append(part)
            written += len(part)
        if written < limit:
            raise CodecError(f"the data ends after {written} of {limit} bytes", codec="hdf4_rle")
        return b"".join(parts)[:limit]

    return DecodeStep("hdf4_rle", run, form.compressor_output())


def hdf4_nbit(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for elements of which only some bits are kept.

    `size` in bytes, `start` (the highest bit), `length`, `sign`, `ones`.
    """
    size, start, length = (integer_field(configuration, name) for name in ("size", "start", "length"))
    sign, ones = bool(configuration.get("sign")), bool(configuration.get("ones"))
    if size not in (1, 2, 4, 8) or not 0 <= start - length + 1 <= start < 8 * size or form.limit % size:
        raise CodecError(f"{length} bits from bit {start} do not lie in {size} bytes", codec="hdf4_nbit")
    count, top = form.limit // size, 8 * size - 1 - start

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data)
        if raw.size * 8 < count * length:
            raise CodecError(f"{raw.size} bytes cannot hold {count} times {length} bits", codec="hdf4_nbit")
        stored = np.unpackbits(raw, count=count * length).reshape(count, length)
        bits = np.full((count, 8 * size), int(ones), np.uint8)
        bits[:, top : top + length] = stored
        if sign:
            bits[:, :top] = stored[:, :1]
        return np.packbits(bits)

    return DecodeStep("hdf4_nbit", run, BufferSpec(-(-count * length // 8) + 8, False))


def hdf4_szip(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for szip, with HDF4's preamble.

    `options_mask`, `pixels_per_block`, `bits_per_pixel`, `pixels_per_scanline`.
    """
    parameters = {name: integer_field(configuration, name) for name in PARAMETERS}
    preamble = bool(parameters["options_mask"] & WITH_PREAMBLE)
    parameters["options_mask"] &= ~WITH_PREAMBLE
    decode = szip_decoder(parameters)
    limit = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data)
        if preamble:
            if raw.size < 5:
                raise CodecError("the data ends within its preamble", codec="hdf4_szip")
            good = int.from_bytes(raw[1:5].tobytes(), "big")
            plain, raw = raw[0] == 1, raw[5:]
            if good > raw.size:
                raise CodecError(f"the data has {raw.size} bytes, {good} are declared", codec="hdf4_szip")
            raw = raw[:good]
            if plain:
                return raw
        return decode(raw, limit)

    return DecodeStep("hdf4_szip", run, form.compressor_output(), uses_library=True)


def hdf4_huffman(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for Huffman's coding with a tree for each byte of an element: `skip` of them."""
    skip, limit = integer_field(configuration, "skip"), form.limit
    if not 0 < skip <= 1024:
        raise CodecError(f"the number of Huffman trees is not valid: {skip}", codec="hdf4_huffman")

    def run(data: Data, out: Octets | None) -> Data:
        bits = np.unpackbits(as_octets(data)).tobytes()
        trees = [_Tree() for _ in range(skip)]
        at, end = 0, len(bits)
        found = bytearray(min(limit, end))  # a byte takes at least one bit
        for number in range(limit):
            tree = trees[number % skip]
            children, node = tree.children, 0  # the root; from 256 on, nodes are leaves
            while node < LEAVES:
                if at >= end:
                    raise CodecError(f"the data ends after {number} of {limit} bytes", codec="hdf4_huffman")
                node = children[2 * node + bits[at]]
                at += 1
            found[number] = node - LEAVES
            tree.splay(node)
        return found

    return DecodeStep("hdf4_huffman", run, form.compressor_output(factor=64))


class _Tree:
    """A tree of bytes, those that come often near its root."""

    __slots__ = ("children", "parent")

    def __init__(self) -> None:
        self.parent = [node >> 1 for node in range(2 * LEAVES)]
        self.children = list(range(2 * LEAVES))
        """Left and right of each inner node, one after the other."""

    def splay(self, node: int) -> None:
        """Bring a leaf up.

        At every other step, it changes places with the sibling of its parent.
        """
        parent, children = self.parent, self.children
        while node:
            above = parent[node]
            if not above:
                return
            top = parent[above]
            place = 2 * top + (children[2 * top] == above)  # the other child of the grandparent
            aunt = children[place]
            children[place] = node
            children[2 * above + (children[2 * above] != node)] = aunt
            parent[node], parent[aunt] = top, above
            node = top
