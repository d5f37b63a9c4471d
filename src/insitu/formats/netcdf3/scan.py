"""Scan NetCDF-3 files: find the data of every variable.

A fixed variable is one run of bytes: one cell, which the reader cuts as it likes. A record variable
has a piece in every record, between those of the others: one cell for each record, at `begin +
number * record_size`. Where records are small and many, a cell is a block of whole records, of
which codec `record_member` takes the variable's part: there a piece costs more to fetch than its
siblings.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from insitu.errors import FormatError
from insitu.formats.netcdf3.header import VERSIONS, HeaderVariable, NetCDF3Header, read_header
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.registry import Format
from insitu.formats.scan_request import ScanRequest, with_keywords
from insitu.formats.unreadable import Problems
from insitu.formats.variable_filter import refuse_group, select_names
from insitu.model import Axis, Codec, Columns, Encoding, GroupDetails, Source, Tile, VirtualArray, VirtualGroup

__all__ = ["NETCDF3", "is_netcdf3", "scan_netcdf3"]

FILL: dict[str, Any] = {
    # What a variable without `_FillValue` is filled with: NC_FILL_* of netcdf.h
    "i1": -127, "S1": b"\0", "i2": -32767, "i4": -2147483647, "f4": 9.969209968386869e36, "f8": 9.969209968386869e36,
    "u1": 255, "u2": 65535, "u4": 4294967295, "i8": -9223372036854775806, "u8": 18446744073709551614,
}  # fmt: skip

MANY_RECORDS = 1024
SMALL_RECORD = 4 << 10
"""Bytes of records that are read whole: a piece costs about 8 µs, so this is faster than piece by
piece.

Larger records would be, too, but for ten times the bytes.
"""
BLOCK_BYTES = 64 << 10
"""Bytes of a block of whole records: one value costs so much to read; larger blocks are hardly
faster when all is read.
"""


def is_netcdf3(window: ReadCache) -> bool:
    """Return whether a file begins as NetCDF-3 does."""
    return window.head[:3] == b"CDF" and window.head[3:4] in [bytes([version]) for version in VERSIONS]


def scan_netcdf3(window: ReadCache, request: ScanRequest) -> VirtualGroup:
    """Return the variables of a NetCDF-3 file, which has no groups."""
    problems = Problems(request.errors, window.url)
    refuse_group(request.group)
    header = read_header(window.head, window.size, window.source.read)
    records = _records(header, window)
    _check_order(header)
    dims = {variable.name: [d.name for d in variable.dims] for variable in header.variables}
    selected = select_names(dims, request.variables)
    source = window.source.describe()
    arrays: dict[str, VirtualArray] = {}
    for variable in header.variables:
        if variable.name in selected:
            try:
                _check_end(header, variable, records, window)
                arrays[variable.name] = _array(header, variable, records, source, window.size)
            except FormatError as problem:
                problems.leave_out(variable.name, problem)
    lengths = {dimension.name: dimension.length or records for dimension in header.dims}
    details = GroupDetails("netcdf3", lengths, notes={"version": header.version})
    unlimited = tuple(dimension.name for dimension in header.dims if not dimension.length)
    return VirtualGroup(arrays, {}, dict(header.attributes), details, problems.found, unlimited=unlimited)


def _records(header: NetCDF3Header, window: ReadCache) -> int:
    """Return how many records there are; of a stream, as many as fit in the file."""
    if header.records is not None:
        return header.records
    return max(window.size - header.first_record, 0) // header.record_size if header.record_size else 0


def _check_order(header: NetCDF3Header) -> None:
    """Refuse variables that overlap the header or one another, as the netCDF library does."""
    fixed = [variable for variable in header.variables if not variable.is_record]
    record = [variable for variable in header.variables if variable.is_record]
    end, before = header.size, "the header"
    for variable in sorted(fixed, key=_begin) + sorted(record, key=_begin):
        if variable.begin < end:
            raise FormatError(f"variable {variable.name!r} overlaps {before}", offset=variable.place, structure="begin")
        # Data is filled up to four bytes; a sole record variable is not, but nothing follows it.
        end, before = variable.begin + -(-variable.nbytes // 4) * 4, f"variable {variable.name!r}"
    if len(record) > 1 and end - header.first_record > header.record_size:
        raise FormatError("the variables of a record overlap", offset=record[0].place, structure="begin")


def _begin(variable: HeaderVariable) -> int:
    return variable.begin


def _check_end(header: NetCDF3Header, variable: HeaderVariable, records: int, window: ReadCache) -> None:
    end = variable.begin + variable.nbytes
    if variable.is_record:
        end = variable.begin + max(records - 1, 0) * header.record_size + variable.nbytes if records else 0
    if end > window.size:
        raise FormatError(
            f"the file is truncated: {end - window.size} bytes of the variable are missing",
            offset=window.size,
            structure="data",
            hint='Fetch the file again, or leave the variable out with errors="warn". If the download is '
            "complete, the header counts too many records; netCDF shows zeros there",
        )


def _array(header: NetCDF3Header, variable: HeaderVariable, records: int, source: Source, size: int) -> VirtualArray:
    fill = _fill(variable)
    codecs: tuple[Codec, ...] = ()
    shape = variable.inner
    lead: tuple[Axis, ...] = ()
    offset: Any = variable.begin
    length: Any = variable.nbytes
    step = 0
    if variable.is_record:
        stride = header.record_size
        along = (-1, *(1,) * len(shape))
        if stride == variable.nbytes or not records:  # nothing between the pieces: as good as a fixed variable
            lead, length = (Axis.regular(records, max(records, 1)),), records * stride
        elif records >= MANY_RECORDS and stride <= SMALL_RECORD:
            block = BLOCK_BYTES // stride
            skip = variable.begin - header.first_record
            lead, codecs = (Axis.regular(records, block, padded=False),), (_record_member(header, variable, skip),)
            first = np.arange(0, records, block, dtype=np.int64)
            offset = (header.first_record + first * stride).reshape(along)
            length = (np.minimum(records - first, block) * stride).reshape(along)
            # Some writers leave out the padding behind the last record.
            length = np.minimum(length, size - offset)
        else:
            lead, step = (Axis.regular(records, 1),), stride
    axes = lead + tuple(_whole_axis(extent) for extent in shape)
    grid = tuple(axis.count for axis in axes)
    if 0 in grid:
        chunks = Columns.of_unwritten(grid)
    elif step:
        chunks = Columns.of_steps(grid, source, variable.begin, step, length)
    else:
        chunks = Columns.of_stored(grid, source, offset, length)
    encoding = _encoding(variable.dtype, codecs, np.array(fill, variable.dtype).tobytes())
    return VirtualArray.of(
        Tile(axes, (encoding,), chunks),
        dims=[dimension.name for dimension in variable.dims],
        attributes=variable.attributes,
        fill_value=fill,
    )


@lru_cache(maxsize=256)
def _encoding(dtype: np.dtype[Any], codecs: tuple[Codec, ...], fill: bytes) -> Encoding:
    """Return an encoding. Cached: an archive has few."""
    return Encoding(dtype, codecs, fill=fill)


@lru_cache(maxsize=1024)
def _whole_axis(extent: int) -> Axis:
    return Axis.regular(extent, max(extent, 1))


def _record_member(header: NetCDF3Header, variable: HeaderVariable, skip: int) -> Codec:
    """Return the codec that takes a variable's part of whole records.

    Kerchunk has one of that name.
    """
    rest = header.record_size - skip - variable.nbytes
    own: list[Any] = ["own", variable.dtype.str, list(variable.inner)]
    fields = [*([["before", f"V{skip}"]] if skip else []), own, *([["behind", f"V{rest}"]] if rest else [])]
    return Codec("record_member", {"member": "own", "dtype": fields})


def _fill(variable: HeaderVariable) -> Any:
    """Return the fill value: `_FillValue`, or the default of netCDF."""
    declared = variable.attributes.get("_FillValue")
    dtype = variable.dtype
    if isinstance(declared, np.generic) and declared.dtype == dtype.newbyteorder("="):
        return declared.astype(dtype)
    if dtype.kind == "S":
        return np.bytes_(declared if isinstance(declared, bytes) and len(declared) == 1 else FILL["S1"])
    return np.array(FILL[dtype.str[1:]], dtype)[()]


NETCDF3 = Format(is_netcdf3, with_keywords(scan_netcdf3))
