"""Parse the header of a NetCDF-3 file.

Dimensions, attributes, variables and where their data begins.

The header is a run of big-endian numbers and names at the beginning of the file. The grammar is
that of "The NetCDF Classic Format Specification" (NetCDF Users Guide, appendix B) and of PnetCDF's
"CDF-5 Format Specification"; its terms stand in the comments. CDF-5 widens counts to 8 bytes, CDF-2
and CDF-5 widen offsets.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from insitu.errors import FormatError

__all__ = ["HeaderDimension", "HeaderVariable", "NetCDF3Header", "read_header"]

VERSIONS = (1, 2, 5)
NC_DIMENSION, NC_VARIABLE, NC_ATTRIBUTE = 0x0A, 0x0B, 0x0C
TYPES: dict[int, np.dtype[Any]] = {
    # nc_type: what its elements are on disk; those from 7 on only in CDF-5
    1: np.dtype("i1"),  # NC_BYTE
    2: np.dtype("S1"),  # NC_CHAR
    3: np.dtype(">i2"),  # NC_SHORT
    4: np.dtype(">i4"),  # NC_INT
    5: np.dtype(">f4"),  # NC_FLOAT
    6: np.dtype(">f8"),  # NC_DOUBLE
    7: np.dtype("u1"),  # NC_UBYTE
    8: np.dtype(">u2"),  # NC_USHORT
    9: np.dtype(">u4"),  # NC_UINT
    10: np.dtype(">i8"),  # NC_INT64
    11: np.dtype(">u8"),  # NC_UINT64
}
MOST_DIMENSIONS = 1024  # of one variable: NC_MAX_VAR_DIMS
LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class HeaderDimension:
    """A dimension of the file."""

    name: str
    length: int
    """0: the record dimension."""


@dataclass(frozen=True, slots=True)
class HeaderVariable:
    """A variable as the header has it."""

    name: str
    dims: tuple[HeaderDimension, ...]
    attributes: dict[str, Any]
    dtype: np.dtype[Any]
    begin: int
    """Offset of its data; of a record variable, of its part of the first record."""
    place: int
    """Offset of its entry in the header."""

    is_record: bool = field(init=False)
    """Whether its data lies in records, interleaved with others."""
    inner: tuple[int, ...] = field(init=False)
    """Its shape, without the dimension of records."""
    nbytes: int = field(init=False)
    """Bytes of its data; of a record variable, in one record. `vsize` in the header wraps around at
    4 GiB, and is not needed.
    """

    def __post_init__(self) -> None:
        record = bool(self.dims) and self.dims[0].length == 0
        inner = tuple(dimension.length for dimension in (self.dims[1:] if record else self.dims))
        object.__setattr__(self, "is_record", record)
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "nbytes", math.prod(inner) * self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class NetCDF3Header:
    """The whole header."""

    version: int
    records: int | None
    """`numrecs`; None: STREAMING, the writer did not know it."""
    dims: list[HeaderDimension]
    attributes: dict[str, Any]
    variables: list[HeaderVariable]
    size: int
    """Bytes of the header itself."""
    record_size: int = field(init=False)
    """Bytes from one record to the next."""
    first_record: int = field(init=False)
    """Where the records begin."""

    def __post_init__(self) -> None:
        begins = [variable.begin for variable in self.variables if variable.is_record]
        object.__setattr__(self, "first_record", min(begins, default=self.size))
        sizes = [variable.nbytes for variable in self.variables if variable.is_record]
        # "Note on padding": a sole record variable is not padded to four bytes, several are.
        packed = sizes[0] if len(sizes) == 1 else sum(-(-size // 4) * 4 for size in sizes)
        object.__setattr__(self, "record_size", packed)


class _ShortError(Exception):
    """The bytes at hand end within the header."""


_recent: tuple[tuple[bytes, NetCDF3Header], ...] = ()
"""Headers parsed last, with their bytes: files of one archive often have the same header."""
LARGEST_KEPT = 1 << 20


def read_header(head: bytes, size: int, read: Callable[[int, int], bytes]) -> NetCDF3Header:
    """Parse the header; read more of the file, in growing pieces, until it is complete.

    Parameters
    ----------
    head
        The first bytes of the file.
    size
        Bytes in the file.
    read
        Reads a range of it.
    """
    global _recent
    for raw, known in _recent:
        if head.startswith(raw):
            return known
    while True:
        try:
            header = _Parser(head, size).header()
            if header.size <= LARGEST_KEPT:
                _recent = ((head[: header.size], header), *_recent[:3])
            return header
        except _ShortError:
            if len(head) >= size:
                raise FormatError(
                    "the file is truncated within its header", offset=len(head), structure="header"
                ) from None
        more = read(len(head), min(max(len(head), 1 << 18), size - len(head)))
        if not more:
            raise FormatError("the file is truncated within its header", offset=len(head), structure="header")
        head += more


class _Parser:
    """Reads the header from front to back."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = data, size
        self.at = 4
        self.version = data[3] if len(data) > 3 else 0
        if data[:3] != b"CDF" or self.version not in VERSIONS:
            self.fail("does not begin as a NetCDF-3 header", "magic", 0)
        self.count = struct.Struct(">q" if self.version == 5 else ">I")
        self.offset = struct.Struct(">I" if self.version == 1 else ">q")

    def fail(self, what: str, structure: str, at: int | None = None) -> NoReturn:
        raise FormatError(f"the header {what}", offset=self.at if at is None else at, structure=structure)

    def take(self, form: struct.Struct) -> int:
        """Read one number."""
        if self.at + form.size > len(self.data):
            raise _ShortError
        value: int
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def bounded_count(self, structure: str, least: int) -> int:
        """Read `nelems` of things of at least so many bytes; refuse more than fit in the file."""
        at, number = self.at, self.take(self.count)
        if number < 0 or number * least > self.size - at:
            self.fail(f"counts {number} elements, which do not fit in the file", structure, at)
        return number

    def raw(self, length: int) -> bytes:
        """Read so many bytes, and the padding to four behind them."""
        end = self.at + length
        if end > len(self.data):
            raise _ShortError
        data = self.data[self.at : end]
        self.at = end + -length % 4
        return data

    def name(self) -> str:
        """Read `name`: length, characters, padding."""
        at = self.at
        # Some writers count the NUL that ends a text in C.
        data = self.raw(self.bounded_count("name", 1)).split(b"\0", 1)[0]
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            self.fail("holds a name that is not UTF-8", "name", at)

    def list_length(self, tag: int, structure: str, least: int) -> int:
        """Read how many elements a list has: ABSENT (twice zero) or the tag and their number."""
        at, found = self.at, self.take(_TAG)
        number = self.bounded_count(structure, least)
        if found != tag and (found, number) != (0, 0):
            self.fail(f"has the tag {found} in place of {tag}", structure, at)
        return number

    def header(self) -> NetCDF3Header:
        at, records = self.at, self.take(self.count)
        streaming = -1 if self.version == 5 else 0xFFFFFFFF
        if records < 0 and records != streaming:
            self.fail(f"has a negative number of records, {records}", "numrecs", at)
        dims = self.dimensions()
        attributes = self.attributes()
        variables = self.variables(dims)
        return NetCDF3Header(
            self.version, None if records == streaming else records, dims, attributes, variables, self.at
        )

    def dimensions(self) -> list[HeaderDimension]:
        dims = []
        for _ in range(self.list_length(NC_DIMENSION, "dim_list", 8)):
            name, at = self.name(), self.at
            length = self.take(self.count)
            if length < 0:
                self.fail(f"gives dimension {name!r} the length {length}", "dim", at)
            dims.append(HeaderDimension(name, length))
        self.unique([dimension.name for dimension in dims], "dim_list")
        return dims

    def attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self.list_length(NC_ATTRIBUTE, "att_list", 12)):
            name, at = self.name(), self.at
            code = self.take(_TAG)
            dtype = self.type_of(code, at)
            number = self.bounded_count("attr", dtype.itemsize)
            found[name] = _value(name, dtype, self.raw(number * dtype.itemsize))
        return found

    def type_of(self, code: int, at: int) -> np.dtype[Any]:
        """Return the type of an `nc_type`."""
        if code not in TYPES or (code > 6 and self.version != 5):
            self.fail(f"has the type {code}, which CDF-{self.version} does not define", "nc_type", at)
        return TYPES[code]

    def variables(self, dims: list[HeaderDimension]) -> list[HeaderVariable]:
        found = []
        for _ in range(self.list_length(NC_VARIABLE, "var_list", 28)):
            place = self.at
            name, at = self.name(), self.at
            number = self.bounded_count("var", self.count.size)
            if number > MOST_DIMENSIONS:
                self.fail(f"gives variable {name!r} {number} dimensions", "var", at)
            numbers = [self.take(self.count) for _ in range(number)]
            if any(not 0 <= n < len(dims) for n in numbers):
                self.fail(f"gives variable {name!r} undefined dimensions", "var", at)
            own = tuple(dims[n] for n in numbers)
            if any(dimension.length == 0 for dimension in own[1:]):
                self.fail(f"gives variable {name!r} the record dimension, but not as its first", "var", at)
            attributes = self.attributes()
            dtype = self.type_of(self.take(_TAG), self.at - 4)
            self.take(self.count)  # vsize: redundant, and wrong above 4 GiB
            variable = HeaderVariable(name, own, attributes, dtype, self.take(self.offset), place)
            if variable.nbytes > LARGEST:
                self.fail(f"gives variable {name!r} more than 2**63 bytes", "var", at)
            found.append(variable)
        self.unique([variable.name for variable in found], "var_list")
        return found

    def unique(self, names: list[str], structure: str) -> None:
        if len(set(names)) < len(names):
            self.fail("uses a name twice", structure)


_TAG = struct.Struct(">I")


def _value(name: str, dtype: np.dtype[Any], data: bytes) -> Any:
    """Return the value of an attribute, as netCDF4 shows it."""
    if dtype.kind == "S":
        if name == "_FillValue":
            return data  # of characters; netCDF4 gives bytes for this one name
        return data.decode("utf-8", "replace").replace("\0", "")
    values = np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))
    return values[0] if values.size == 1 else values
