"""Which types can a stranger think of?

Drawn at random, one inside of another: numbers of any width, order and number of bits, floats of
other forms, texts of every padding, enumerations, bit fields, opaque, arrays, records with gaps,
references, and values of varying length. `Drawn` is a type of the library with a way to make values
of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from h5py import h5t

__all__ = ["Drawn", "any_type"]


class Drawn(NamedTuple):
    """A type."""

    kind: Any
    """The library's."""
    bytes: Callable[[random.Random], bytes] | None
    """Makes one element as stored; None: it has parts of varying length, only numpy can say it."""
    dtype: Any = None
    """For h5py, where it has a name for it."""
    value: Callable[[random.Random], Any] | None = None
    """Makes one element for h5py."""
    number: bool = False
    """Whether filters for numbers take it."""


def any_type(chance: random.Random, depth: int = 0) -> Drawn:
    """A type; the deeper, the plainer."""
    plain = [_integer, _float, _text, _bits, _enumeration, _opaque, _odd_integer, _odd_float, _boolean, _complex]
    nested = [_array, _record, _texts, _sequence, _record]
    return chance.choice(plain + (nested * 2 if depth == 0 else nested if depth < 3 else []))(chance, depth)


def _stored(kind: Any, number: bool = True, dtype: Any = None, value: Any = None) -> Drawn:
    """A type any of whose bytes mean something."""
    size = kind.get_size()
    return Drawn(kind, lambda chance: chance.randbytes(size), dtype, value, number)


def _integer(chance: random.Random, depth: int) -> Drawn:
    dtype = np.dtype(chance.choice("<>") + chance.choice("iu") + chance.choice("1248"))
    return _stored(h5t.py_create(dtype), dtype=dtype, value=lambda c: c.randrange(100))


def _float(chance: random.Random, depth: int) -> Drawn:
    dtype = np.dtype(chance.choice("<>") + chance.choice(["f2", "f4", "f8"]))

    def stored(c: random.Random) -> bytes:
        return np.array(c.choice([c.gauss(0, 99), 0.0, -0.0, np.nan, np.inf, 1e-40, 6e-8]), dtype).tobytes()

    return Drawn(h5t.py_create(dtype), stored, dtype, lambda c: c.gauss(0, 10), True)


def _text(chance: random.Random, depth: int) -> Drawn:
    kind = h5t.C_S1.copy()
    size = chance.choice([1, 2, 5, 12])
    kind.set_size(size)
    kind.set_strpad(chance.choice([h5t.STR_NULLTERM, h5t.STR_NULLPAD, h5t.STR_SPACEPAD]))
    kind.set_cset(chance.choice([h5t.CSET_ASCII, h5t.CSET_UTF8]))

    def stored(c: random.Random) -> bytes:
        text = bytes(c.choice(b"abc ") for _ in range(c.randrange(size + 1)))
        return text.ljust(size, b" " if kind.get_strpad() == h5t.STR_SPACEPAD else b"\0")

    return Drawn(kind, stored, f"S{size}", lambda c: b"ab"[: c.randrange(3)])


def _bits(chance: random.Random, depth: int) -> Drawn:
    return _stored(chance.choice([h5t.STD_B8LE, h5t.STD_B16BE, h5t.STD_B32LE, h5t.STD_B64BE]).copy(), number=False)


def _enumeration(chance: random.Random, depth: int) -> Drawn:
    kind = h5t.enum_create(chance.choice([h5t.STD_I8LE, h5t.STD_U16BE, h5t.STD_I32LE, h5t.STD_I64BE]).copy())
    for number in range(chance.randrange(1, 6)):
        kind.enum_insert(b"name %d" % number, number * 3)
    return _stored(kind, number=False)


def _boolean(chance: random.Random, depth: int) -> Drawn:
    dtype = np.dtype(bool)
    return Drawn(
        h5t.py_create(dtype, logical=True), lambda c: bytes([c.randrange(2)]), dtype, lambda c: c.random() < 0.5
    )


def _complex(chance: random.Random, depth: int) -> Drawn:
    dtype = np.dtype(chance.choice("<>") + chance.choice(["c8", "c16"]))
    return Drawn(
        h5t.py_create(dtype),
        lambda c: np.array(complex(c.gauss(0, 1), c.gauss(0, 1)), dtype).tobytes(),
        dtype,
        lambda c: complex(1, c.gauss(0, 1)),
    )


def _opaque(chance: random.Random, depth: int) -> Drawn:
    size = chance.choice([1, 3, 8, 20])
    kind = h5t.create(h5t.OPAQUE, size)
    kind.set_tag(chance.choice([b"NUMPY:<M8[s]", b"NUMPY:<m8[ns]"] if size == 8 else [b"", b"a tag"]))
    return _stored(kind, number=False)


def _odd_integer(chance: random.Random, depth: int) -> Drawn:
    """Fewer bits than the bytes have, at some place in them; or three, five, six, seven bytes."""
    kind = chance.choice([h5t.STD_I16LE, h5t.STD_U32BE, h5t.STD_I64LE, h5t.STD_U8LE, h5t.STD_I32BE]).copy()
    if chance.random() < 0.4:
        kind.set_size(chance.choice([3, 5, 6, 7]))
    else:
        whole = 8 * kind.get_size()
        precision = chance.randrange(1, whole + 1)
        kind.set_precision(precision)
        kind.set_offset(chance.randrange(whole - precision + 1))
    kind.set_pad(chance.choice([h5t.PAD_ZERO, h5t.PAD_ONE]), h5t.PAD_ZERO)
    return _stored(kind, number=False)


def _odd_float(chance: random.Random, depth: int) -> Drawn:
    """Floats of other forms: bfloat16, 24 bits, 8 bits, IBM's order of fields, a bias of their own,
    VAX's order of bytes.
    """
    base, fields, precision, bias = chance.choice(
        [
            (h5t.IEEE_F16LE, (15, 7, 8, 0, 7), 16, 127),
            (h5t.IEEE_F32BE, (30, 23, 7, 0, 23), 31, 63),
            (h5t.IEEE_F32LE, (23, 16, 7, 0, 16), 24, 63),
            (h5t.IEEE_F64LE, (63, 52, 11, 0, 52), 64, 1000),
            (h5t.IEEE_F32LE, (31, 23, 8, 0, 23), 32, 120),
        ]
    )
    kind = base.copy()
    kind.set_fields(*fields)
    kind.set_precision(precision)
    kind.set_ebias(bias)
    if chance.random() < 0.3:
        kind.set_order(chance.choice([h5t.ORDER_BE, h5t.ORDER_VAX]))
    return _stored(kind, number=False)


def _array(chance: random.Random, depth: int) -> Drawn:
    inner = any_type(chance, depth + 1)
    dims = tuple(chance.randrange(1, 4) for _ in range(chance.randrange(1, 3)))
    count = int(np.prod(dims))
    stored = inner.bytes
    kind = h5t.array_create(inner.kind, dims)
    if stored is None:
        return Drawn(kind, None)
    return Drawn(kind, lambda c: b"".join(stored(c) for _ in range(count)))


def _record(chance: random.Random, depth: int) -> Drawn:
    members = [any_type(chance, depth + 1) for _ in range(chance.randrange(1, 5))]
    gaps = [chance.choice([0, 0, 1, 3, 8]) for _ in members]
    size = sum(member.kind.get_size() for member in members) + sum(gaps)
    kind, at = h5t.create(h5t.COMPOUND, size), 0
    for number, (member, gap) in enumerate(zip(members, gaps, strict=True)):
        kind.insert(f"member {number}".encode(), at, member.kind)
        at += member.kind.get_size() + gap
    parts = [member.bytes for member in members]
    if any(part is None for part in parts):
        return _by_numpy(kind, members)

    def stored(c: random.Random) -> bytes:
        return b"".join(part(c) + bytes(gap) for part, gap in zip(parts, gaps, strict=True) if part is not None)

    return Drawn(kind, stored)


def _by_numpy(kind: Any, members: list[Drawn]) -> Drawn:
    """A record with parts of varying length, if all of its parts have a name in numpy."""
    if any(member.dtype is None for member in members):
        return Drawn(kind, None)
    dtype = np.dtype([(f"member {number}", member.dtype) for number, member in enumerate(members)])

    def value(c: random.Random) -> Any:
        return tuple(member.value(c) for member in members if member.value is not None)

    return Drawn(kind, None, dtype, value)


def _texts(chance: random.Random, depth: int) -> Drawn:
    import h5py

    dtype = h5py.string_dtype(chance.choice(["utf-8", "ascii"]))
    return Drawn(
        h5t.py_create(dtype, logical=True), None, dtype, lambda c: c.choice(["", "a", "two words", "x" * 99, "ab" * 30])
    )


def _sequence(chance: random.Random, depth: int) -> Drawn:
    import h5py

    inner = any_type(chance, depth + 1)
    kind = h5t.vlen_create(inner.kind)
    if inner.dtype is None or inner.value is None or np.dtype(inner.dtype).kind in "OVSc":
        return Drawn(kind, None)
    base, value = np.dtype(inner.dtype), inner.value
    dtype = h5py.vlen_dtype(base)

    def some(c: random.Random) -> Any:
        return np.array([value(c) for _ in range(c.randrange(5))], base)

    return Drawn(kind, None, dtype, some)
