"""Decoder of HDF5's n-bit filter (5), which keeps only the significant bits of each number.

The numbers follow one another, most significant bit first, without padding; members of a compound
follow one another the same way, and types that it cannot shorten are kept whole. The client values
describe the type as a tree. Every element takes the same number of bits, so each leaf of that tree
is one strided run of bit fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import integers_field
from insitu.codecs.filters.bit_fields import unpack_bits
from insitu.errors import CodecError

__all__ = ["nbit"]

ATOMIC, ARRAY, COMPOUND, NOT_PACKED = 1, 2, 3, 4
"""Classes in the client values (H5Znbit.c)."""
MOST_LEAVES = 1 << 16
"""Limit of the number of leaves.

No real type that fits into the filter's 4096 client values has more.
"""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One number of an element."""

    offset: int
    """Its first byte in the element."""
    size: int
    """Its bytes in the element."""
    big: bool
    """Whether these are big-endian."""
    bits: int
    """How many bits were kept."""
    shift: int
    """At which bit of the number they start."""


def nbit(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step, from `cd_values`, the client values that HDF5 stores."""
    values = integers_field(configuration, "cd_values")
    if len(values) < 5:
        raise CodecError(f"nbit has too few client values: {len(values)}, at least 5 are needed", codec="nbit")
    if values[1]:
        return DecodeStep("nbit", lambda data, out: data, form.as_bytes())
    count, size = values[2], values[4]
    if form.exact and count * size != form.limit:
        raise CodecError(f"nbit declares {count * size} bytes, but the chunk has {form.limit}", codec="nbit")
    leaves = tuple(_merge_bytes(_read_leaves(values, _Cursor(3), 0)))

    def run(data: Data, out: Octets | None) -> Data:
        room = np.empty(count * size, np.uint8) if out is None else out
        _decode(as_octets(data), leaves, room.reshape(count, size))
        return room

    return DecodeStep("nbit", run, form.compressor_output(), fills=form.exact)


@dataclass(slots=True)
class _Cursor:
    at: int

    def take(self, values: tuple[int, ...]) -> int:
        self.at += 1
        return _value_at(values, self.at - 1)


def _value_at(values: tuple[int, ...], at: int) -> int:
    if at >= len(values):
        raise CodecError("the client values of nbit are truncated", codec="nbit")
    return values[at]


def _read_leaves(values: tuple[int, ...], cursor: _Cursor, offset: int) -> Iterator[_Leaf]:
    """Yield the leaves of the type's tree, which begins at the cursor with its class."""
    kind, size = cursor.take(values), cursor.take(values)
    if kind == ATOMIC:
        order, bits, shift = cursor.take(values), cursor.take(values), cursor.take(values)
        if not 0 < bits <= 64 or not size or bits + shift > size * 8:
            raise CodecError(f"nbit declares {bits} bits from bit {shift} of a number of {size} bytes", codec="nbit")
        yield _Leaf(offset, size, order == 1, bits, shift)
    elif kind == ARRAY:
        start = cursor.at
        # The size of one item follows its class, for every class.
        item = _value_at(values, start + 1)
        if not item or size // item > MOST_LEAVES:
            raise CodecError(f"nbit declares an array of {size} bytes with items of {item} bytes", codec="nbit")
        for index in range(size // item):
            cursor.at = start
            yield from _read_leaves(values, cursor, offset + index * item)
    elif kind == COMPOUND:
        for _ in range(cursor.take(values)):
            member = cursor.take(values)
            yield from _read_leaves(values, cursor, offset + member)
    elif kind == NOT_PACKED:
        yield from (_Leaf(offset + byte, 1, False, 8, 0) for byte in range(size))
    else:
        raise CodecError(f"nbit declares an unknown class {kind}", codec="nbit")


def _merge_bytes(leaves: Iterator[_Leaf]) -> Iterator[_Leaf]:
    """Merge up to eight whole bytes in a row into one big-endian number."""
    pending: _Leaf | None = None
    for leaf in leaves:
        whole = leaf.size == 1 and leaf.bits == 8
        if pending is not None:
            if whole and pending.size < 8 and pending.offset + pending.size == leaf.offset:
                pending = _Leaf(pending.offset, pending.size + 1, True, pending.bits + 8, 0)
                continue
            yield pending
            pending = None
        if whole:
            pending = leaf
        else:
            yield leaf
    if pending is not None:
        yield pending


def _decode(data: Octets, leaves: tuple[_Leaf, ...], out: Octets) -> None:
    count, size = out.shape
    stride = sum(leaf.bits for leaf in leaves)
    out[...] = 0
    first = 0
    for leaf in leaves:
        if leaf.offset + leaf.size > size:
            raise CodecError("nbit declares a member outside of its element", codec="nbit")
        width = 8 if leaf.size > 4 else 4 if leaf.size > 2 else leaf.size
        fields = unpack_bits(data, first, stride, leaf.bits, count, np.dtype(f"u{width}")) << np.array(
            leaf.shift % 64, f"u{width}"
        )
        target = out[:, leaf.offset : leaf.offset + leaf.size]
        if leaf.big:
            octet = fields.astype(f">u{width}").view(np.uint8).reshape(count, width)
            target[...] = octet[:, width - leaf.size :]
        else:
            octet = fields.astype(f"<u{width}").view(np.uint8).reshape(count, width)
            target[...] = octet[:, : leaf.size]
        first += leaf.bits
