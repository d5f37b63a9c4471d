"""Parser of datatype messages: HDF5 datatypes as NumPy dtypes.

Versions 1 to 5: format specification 3.0 (4.0 for complex numbers), IV.A.2.d. The class is in the
low half of the first byte. Three bytes of bit fields and the size in bytes follow, then what the
class needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.structures.number_types import NumberLayout, fixed_point, floating_point
from insitu.formats.parsing.fields import check_length, take_uint

__all__ = ["Datatype", "parse_datatype"]

DEPTH_LIMIT = 32
TEXTS_LIMIT = 4096
SIZE_LIMIT = 1 << 31
"""NumPy has no elements of more bytes."""
_MESSAGE = "datatype message"


@dataclass(frozen=True, slots=True, eq=False)
class Datatype:
    """The type of the elements of a dataset or an attribute."""

    kind: str
    """number, string, compound, opaque, enum, reference, time, sequence (variable length), text
    (variable length)."""
    size: int
    """Bytes of one element in the file."""
    dtype: np.dtype[Any]
    """What an element is in numpy; object for variable length."""
    shape: tuple[int, ...] = ()
    """The axes that an array datatype adds to those of the dataspace."""
    charset: str = "ascii"
    """Of strings: ascii or utf-8."""
    padding: str = "null-terminated"
    """Of fixed-length strings: null-terminated, null-padded or space-padded."""
    base: Datatype | None = None
    """Of variable-length sequences: the type of their elements."""
    names: MappingProxyType[str, int] | None = None
    """Of enumerations: the values by name."""
    texts: tuple[tuple[int, int, str], ...] = ()
    """Offset, size and padding of the texts in an element whose end must be looked for."""
    note: str = ""
    """The tag of an opaque type; the kind of a reference (object, region, attribute); "bits" for a
    bit field."""

    number: NumberLayout | None = None
    """Of numbers that NumPy does not have: which bits are their value."""
    members: tuple[tuple[str, int, tuple[int, ...], Datatype], ...] = ()
    """Of a compound type: name, offset, dimensions and type of the members; only where one is of
    varying length, or a number that NumPy does not have."""
    parts: tuple[tuple[str, int, tuple[int, ...], Datatype], ...] = ()
    """The same, of every compound type."""

    @property
    def has_references(self) -> bool:
        """Whether elements are references to objects, or contain some."""
        if self.base is not None:
            return self.base.has_references
        return self.kind == "reference" or (
            bool(self.parts) and any(member.has_references for _, _, _, member in self.parts)
        )

    @property
    def is_variable_length(self) -> bool:
        """Whether elements are references into a global heap."""
        return self.kind in ("sequence", "text")

    @property
    def has_nested_variable_length(self) -> bool:
        """Whether elements contain references into a global heap.

        In members of a compound, or in elements of a sequence.
        """
        if self.base is not None:
            return self.base.is_variable_length or self.base.has_nested_variable_length
        return bool(self.members) and any(
            member.is_variable_length or member.has_nested_variable_length for _, _, _, member in self.members
        )


def parse_datatype(body: bytes) -> Datatype:
    """Parse a datatype message.

    Parameters
    ----------
    body
        The message.

    Raises
    ------
    UnsupportedError
        For a type without a numpy meaning.
    """
    return _parse(body, 0, 0)[0]


def _parse(body: bytes, at: int, depth: int) -> tuple[Datatype, int]:
    """The type that begins at an offset, and where it ends."""
    if depth > DEPTH_LIMIT:
        raise FormatError(f"the datatypes are nested more than {DEPTH_LIMIT} levels deep", structure="datatype")
    check_length(body, at + 8, _MESSAGE)
    version, kind = body[at] >> 4, body[at] & 15
    bits = int.from_bytes(body[at + 1 : at + 4], "little")
    size = int.from_bytes(body[at + 4 : at + 8], "little")
    if not 1 <= version <= 5:
        raise FormatError(f"the datatype message has version {version}, only 1 to 5 are known", structure="datatype")
    if size == 0 and kind != 3:
        raise FormatError("the datatype has a size of 0 bytes", structure="datatype")
    if size >= SIZE_LIMIT and kind != 10:
        raise UnsupportedError(
            f"elements of {size} bytes are not supported: NumPy has at most {SIZE_LIMIT - 1}", structure="datatype"
        )
    at += 8
    if kind in (0, 4):  # fixed-point; bit field, which h5py reads as an unsigned integer too
        dtype, number = fixed_point(size, bits, body[at : at + 4], signed=kind == 0 and bool(bits & 8))
        return Datatype("number", size, dtype, number=number, note="bits" if kind == 4 else ""), at + 4
    if kind == 1:
        # Before version 3, only one bit tells the byte order: what is written there as VAX's is
        # read as big-endian.
        dtype, number = floating_point(size, bits if version >= 3 else bits & ~0x40, body[at : at + 12])
        return Datatype("number", size, dtype, number=number), at + 12
    if kind == 2:
        return _time(body, at, size, bits)
    if kind == 3:
        return _string(size, bits), at
    if kind == 5:
        return _opaque(body, at, size, bits)
    if kind == 6:
        return _compound(body, at, size, bits & 0xFFFF, version, depth)
    if kind == 7:
        note = {0: "object", 1: "region", 2: "object", 3: "region", 4: "attribute"}.get(bits & 15, "unknown")
        return Datatype("reference", size, np.dtype(f"V{size}"), note=note), at
    if kind == 8:
        return _enumeration(body, at, bits & 0xFFFF, version, depth)
    if kind == 9:
        return _variable_length(body, at, size, bits, depth)
    if kind == 10:
        return _array(body, at, size, version, depth)
    if kind == 11:
        return _complex(body, at, size, depth)
    raise FormatError(f"the datatype has the unknown class {kind}", structure="datatype")


def _refuse(what: str) -> NoReturn:
    raise UnsupportedError(what, structure="datatype")


def _time(body: bytes, at: int, size: int, bits: int) -> tuple[Datatype, int]:
    """Parse a time type: seconds since 1970, a signed number.

    The library writes such values and cannot convert them.
    """
    if size not in (4, 8) or int.from_bytes(body[at : at + 2], "little") != 8 * size:
        _refuse(f"times of {size} bytes are not supported")
    return Datatype("time", size, np.dtype(f"{'>' if bits & 1 else '<'}i{size}")), at + 2


def _charset(number: int) -> str:
    return "utf-8" if number == 1 else "ascii"


def _string(size: int, bits: int) -> Datatype:
    padding = {0: "null-terminated", 1: "null-padded", 2: "space-padded"}.get(bits & 15)
    if padding is None:
        raise FormatError(f"the strings have the unknown padding {bits & 15}", structure="datatype")
    ends = padding == "space-padded" or (padding == "null-terminated" and size > 1)
    texts = ((0, size, padding),) if ends else ()
    charset = _charset(bits >> 4 & 15)
    return Datatype("string", size, np.dtype(f"S{size}"), charset=charset, padding=padding, texts=texts)


def _opaque(body: bytes, at: int, size: int, bits: int) -> tuple[Datatype, int]:
    length = bits & 0xFF
    tag = body[at : at + length].split(b"\0")[0].decode("utf-8", "replace")
    dtype = np.dtype(f"V{size}")
    if tag.startswith("NUMPY:"):  # how h5py stores datetime64 and timedelta64
        try:
            tagged = np.dtype(tag[6:])
        except (TypeError, ValueError, SyntaxError):  # NumPy parses "2,<f4" as Python
            tagged = dtype
        if tagged.kind in "mM" and tagged.itemsize == size:
            dtype = tagged
    return Datatype("opaque", size, dtype, note=tag), at + length


def _name(body: bytes, at: int, padded: bool) -> tuple[str, int]:
    end = body.find(b"\0", at)
    if end < 0:
        raise FormatError("a name in the datatype has no terminating NUL", structure="datatype")
    length = end - at + 1
    return body[at:end].decode("utf-8", "replace"), at + ((length + 7) // 8 * 8 if padded else length)


def _compound(body: bytes, at: int, size: int, count: int, version: int, depth: int) -> tuple[Datatype, int]:
    names: list[str] = []
    formats: list[Any] = []
    offsets: list[int] = []
    texts: list[tuple[int, int, str]] = []
    members: list[tuple[str, int, tuple[int, ...], Datatype]] = []
    width = 4 if version < 3 else (size.bit_length() + 7) // 8
    for _ in range(count):
        name, at = _name(body, at, padded=version < 3)
        offset = int.from_bytes(body[at : at + width], "little")
        at += width
        dims: tuple[int, ...] = ()
        if version == 1:  # members of version 1 carry their own array dimensions
            check_length(body, at + 28, _MESSAGE)
            rank = body[at]
            if rank > 4:
                raise FormatError(
                    f"a compound member has {rank} dimensions, at most 4 are possible", structure="datatype"
                )
            dims = tuple(int.from_bytes(body[at + 12 + 4 * i : at + 16 + 4 * i], "little") for i in range(rank))
            at += 28
        member, at = _parse(body, at, depth + 1)
        dims += member.shape
        if any(dim >= SIZE_LIMIT for dim in dims) or member.dtype.itemsize * math.prod(dims) >= SIZE_LIMIT:
            raise FormatError(
                f"member {name!r} is an array of {dims} elements, which is too large", structure="datatype"
            )
        dtype = np.dtype((member.dtype, dims)) if dims else member.dtype
        if member.texts:
            for number in range(min(math.prod(dims), TEXTS_LIMIT - len(texts))):
                shift = offset + number * member.dtype.itemsize
                texts += [(shift + start, length, padding) for start, length, padding in member.texts]
        members.append((name, offset, dims, member))
        if offset + member.size * math.prod(dims[: len(dims) - len(member.shape)]) > size:
            raise FormatError(f"member {name!r} lies outside its compound type", structure="datatype")
        names.append(name)
        formats.append(dtype)
        offsets.append(offset)
    if not names or len(set(names)) != len(names):
        raise FormatError("the compound type has no members, or two of the same name", structure="datatype")
    parts = tuple(members)
    if any(member.is_variable_length or member.members or member.number for _, _, _, member in members):
        if "" in names:
            _refuse("compound types with an unnamed member and variable-length members are not supported")
        packed = np.dtype([(name, _without_gaps(form)) for name, form in zip(names, formats, strict=True)])
        return Datatype("compound", size, packed, members=parts, parts=parts), at
    # The form in which h5py stores complex numbers.
    if names == ["r", "i"] and offsets == [0, size // 2] and formats[0] == formats[1]:
        part = formats[0]
        if part.kind == "f" and 2 * part.itemsize == size and part.itemsize in (4, 8, np.dtype(np.longdouble).itemsize):
            return Datatype("number", size, np.dtype(f"{part.byteorder}c{size}")), at
    dtype = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})
    return Datatype("compound", size, dtype, texts=tuple(texts[:TEXTS_LIMIT]), parts=parts), at


def _without_gaps(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same type without gaps."""
    if dtype.subdtype is not None:
        return np.dtype((_without_gaps(dtype.base), dtype.shape))
    return dtype if dtype.names is None else np.dtype([(name, _without_gaps(dtype[name])) for name in dtype.names])


def _enumeration(body: bytes, at: int, count: int, version: int, depth: int) -> tuple[Datatype, int]:
    base, at = _parse(body, at, depth + 1)
    if base.kind != "number" or base.dtype.kind not in "iu":
        _refuse("enumerations of other types than integers are not supported")
    names: list[str] = []
    for _ in range(count):
        name, at = _name(body, at, padded=version < 3)
        names.append(name)
    if at + count * base.size > len(body):
        raise FormatError("the values of an enumeration are cut off", structure="datatype")
    encoded = body[at : at + count * base.size]
    if base.number is None:
        values = np.frombuffer(encoded, base.dtype)
    else:
        from insitu.formats.hdf5.codecs.odd_numbers import convert_numbers

        values = convert_numbers(encoded, dict(base.number), base.dtype)
    members = MappingProxyType(dict(zip(names, values.tolist(), strict=True)))
    at += count * base.size
    if base.dtype == np.int8 and members == {"FALSE": 0, "TRUE": 1}:  # how h5py stores bool
        return Datatype("number", 1, np.dtype(bool)), at
    return Datatype("enum", base.size, base.dtype, names=members, number=base.number), at


def _variable_length(body: bytes, at: int, size: int, bits: int, depth: int) -> tuple[Datatype, int]:
    base, at = _parse(body, at, depth + 1)
    if bits & 15 == 1:
        return Datatype("text", size, np.dtype(object), charset=_charset(bits >> 8 & 15)), at
    return Datatype("sequence", size, np.dtype(object), base=base), at


def _array(body: bytes, at: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    rank = take_uint(body, at, 1, _MESSAGE)
    at += 4 if version < 3 else 1
    dims = tuple(int.from_bytes(body[at + 4 * i : at + 4 * i + 4], "little") for i in range(rank))
    at += 4 * rank * (2 if version < 3 else 1)  # version 2 has a permutation too, which nothing uses
    base, at = _parse(body, at, depth + 1)
    if rank > 32 or 0 in dims:
        raise FormatError(f"the array type has an impossible shape: {dims}", structure="datatype")
    shape = dims + base.shape
    if math.prod(dims) * base.size != size:
        raise FormatError(
            f"the array type has {size} bytes, which does not fit its shape {shape}", structure="datatype"
        )
    return replace(base, size=size, shape=shape), at


def _complex(body: bytes, at: int, size: int, depth: int) -> tuple[Datatype, int]:
    base, at = _parse(body, at, depth + 1)
    if base.number is not None or base.dtype.kind != "f" or 2 * base.size != size or base.size not in (4, 8, 16):
        _refuse(f"complex numbers of {size} bytes made of {base.dtype} are not supported")
    return Datatype("number", size, np.dtype(f"{base.dtype.byteorder}c{size}")), at
