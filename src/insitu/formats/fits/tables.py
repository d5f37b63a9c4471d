"""Virtual arrays of the columns of FITS tables, binary and text.

Rows of NAXIS1 bytes follow each other, each with a piece of every column (TFORMn: repeat count and
type; sections 7.2 and 7.3). A cell is a block of whole rows, of which codec `record_member` takes
the column's part. Texts are fixed strings, bits are booleans along a last dimension. Values of
varying length, to which rows only point, are arrays in an array of objects. Text tables (XTENSION
TABLE) spell out integers (I), floats (F, E, D) and texts (A) at TBCOLn; their types are those of
astropy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from insitu.errors import FormatError, error_context
from insitu.formats.fits.header_units import HeaderDataUnit
from insitu.formats.fits.image_arrays import header_attributes
from insitu.formats.fits.number_formats import number_format
from insitu.model import Axis, Codec, Columns, Encoding, GroupDetails, Source, Tile, VirtualArray, VirtualGroup

__all__ = ["table_of"]

TYPES = {"L": "?", "B": "u1", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4", "D": ">f8", "C": ">c8", "M": ">c16"}
BLOCK_BYTES = 1 << 20
MOST_COLUMNS = 999
COLUMN = re.compile(
    r"(TTYPE|TFORM|TUNIT|TNULL|TSCAL|TZERO|TDISP|TDIM|TBCOL|TCTYP|TCUNI|TCRPX|TCRVL|TCDLT|TLMIN|TLMAX|TDMIN|TDMAX)\d+"
)

WIDEST = 1 << 16
"""Letters of a column of a text table."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column: a piece of every row."""

    name: str
    skip: int
    """Bytes of the row before it."""
    nbytes: int
    dtype: np.dtype[Any] | None
    """None: not supported; `problem` says why."""
    shape: tuple[int, ...]
    """Of one row's elements."""
    codecs: tuple[Codec, ...]
    attributes: dict[str, Any]
    problem: str = ""


def table_of(unit: HeaderDataUnit, source: Source, size: int) -> VirtualGroup:
    """Return the group of a table's columns."""
    axes = unit.axes
    if len(axes) != 2 or unit.whole("BITPIX", least=-64, most=64) != 8:
        raise FormatError(f"a table must have two axes of bytes, not {axes}", offset=unit.offset, structure=unit.kind)
    width, rows = axes
    if unit.data + width * rows > size:
        raise FormatError("the file is truncated within the table", offset=size, structure="FITS data")
    arrays: dict[str, VirtualArray] = {}
    problems: dict[str, str] = {}
    for column in _columns(unit, width):
        if column.dtype is None:
            problems[column.name] = column.problem
        else:
            arrays[column.name] = _array(column, width, rows, unit.data, source)
    attributes = {name: value for name, value in header_attributes(unit).items() if not COLUMN.fullmatch(name)}
    return VirtualGroup(arrays, {}, attributes, GroupDetails("fits", notes={"unread_columns": problems}), problems)


def _columns(unit: HeaderDataUnit, width: int) -> list[TableColumn]:
    found: list[TableColumn] = []
    skip = 0
    taken: set[str] = set()
    for number in range(1, unit.whole("TFIELDS", most=MOST_COLUMNS) + 1):
        name = str(unit.cards.get(f"TTYPE{number}") or "").strip().replace("/", "_") or f"col{number}"
        while name in taken:
            name = f"{name}_{number}"
        taken.add(name)
        # It ends the scan of the table: without a form nobody knows where the next column begins.
        with error_context(variable=name):
            column = (parse_text_column if unit.kind == "TABLE" else _column)(unit, number, name, skip)
        skip = max(skip, column.skip + column.nbytes)
        found.append(column)
    # Section 7.3.1: the columns of a binary table fill its rows; those of a text table may leave gaps.
    if skip > width or (skip < width and unit.kind != "TABLE"):
        raise FormatError(
            f"the columns take {skip} bytes, but rows have {width}", offset=unit.offset, structure="TFORM"
        )
    return found


def _column(unit: HeaderDataUnit, number: int, name: str, skip: int) -> TableColumn:
    form = re.match(r"\s*(\d*)([LXBIJKAEDCMPQ])", str(unit.cards.get(f"TFORM{number}", "")))
    if form is None:
        raise FormatError(
            f"TFORM{number} has the invalid value {unit.cards.get(f'TFORM{number}')!r}", offset=unit.offset
        )
    repeat, letter = int(form[1] or 1), form[2]
    text, declared_shape = unit.cards.get(f"TUNIT{number}"), unit.card(f"TDIM{number}")
    attributes: dict[str, Any] = {"units": text} if text else {}
    if repeat == 0:
        return TableColumn(name, skip, 0, None, (), (), {}, "a column without elements")
    if letter in "PQ":
        return _heap_column(
            unit, number, TableColumn(name, skip, repeat * (8 if letter == "P" else 16), None, (), (), attributes)
        )
    if letter == "X":
        codec = Codec("fits_bits", {"bits": repeat})
        return TableColumn(name, skip, -(-repeat // 8), np.dtype(bool), (repeat,), (codec,), attributes)
    if letter == "A":
        shape = (
            _shape(declared_shape, repeat) if declared_shape else _substrings(unit.cards.get(f"TFORM{number}"), repeat)
        )
        length = shape[-1] if shape else repeat
        return TableColumn(name, skip, repeat, np.dtype(f"S{length}"), shape[:-1], (Codec("fits_text"),), attributes)
    stored = np.dtype(TYPES[letter])
    shape = _shape(declared_shape, repeat)
    if letter == "L":
        return TableColumn(name, skip, repeat, stored, shape, (Codec("fits_logical"),), attributes)
    packed = number_format(stored, *(unit.number_of(f"{word}{number}") for word in ("TSCAL", "TZERO", "TNULL")))
    return TableColumn(
        name, skip, repeat * stored.itemsize, packed.dtype, shape, packed.codecs, {**attributes, **packed.attributes}
    )


def parse_text_column(unit: HeaderDataUnit, number: int, name: str, skip: int) -> TableColumn:
    """Return a column of a text table; `skip` is where the previous one ended."""
    form = re.fullmatch(r"\s*([AIFED])(\d+)(?:\.\d+)?(?:E\d+)?\s*", str(unit.cards.get(f"TFORM{number}", "")).upper())
    width = int(form[2]) if form else 0
    begin = unit.whole(f"TBCOL{number}", skip + 1, least=1, most=1 << 31) - 1
    if form is None or not 0 < width <= WIDEST:
        raise FormatError(
            f"TFORM{number} has the invalid value {unit.cards.get(f'TFORM{number}')!r}", offset=unit.offset
        )
    text = unit.cards.get(f"TUNIT{number}")
    attributes: dict[str, Any] = {"units": text} if text else {}
    if form[1] == "A":
        return TableColumn(name, begin, width, np.dtype(f"S{width}"), (), (Codec("fits_text"),), attributes)
    configuration: dict[str, Any] = {"width": width}
    null = unit.card(f"TNULL{number}")
    scale, zero = (unit.number_of(f"{word}{number}", default) for word, default in (("TSCAL", 1.0), ("TZERO", 0.0)))
    if form[1] == "I":
        dtype: np.dtype[Any] = np.dtype("i2" if width <= 4 else "i4" if width <= 9 else "i8")
        if null is not None:
            configuration |= {"null": str(null), "missing": int(np.iinfo(dtype).min)}
            attributes["_FillValue"] = dtype.type(np.iinfo(dtype).min)
    else:
        dtype = np.dtype("f8")
        configuration |= {"null": str(null)} if null is not None else {}
    if (scale, zero) != (1.0, 0.0):
        attributes |= {"scale_factor": scale, "add_offset": zero}
    return TableColumn(name, begin, width, dtype, (), (Codec("fits_digits", configuration),), attributes)


def _heap_column(unit: HeaderDataUnit, number: int, column: TableColumn) -> TableColumn:
    """Return a column whose rows point into the heap."""
    form = re.match(r"\s*1?([PQ])([LXBIJKAEDCM])", str(unit.cards.get(f"TFORM{number}")))
    if form is None:
        return replace(column, problem="a column of several descriptors a row is not read")
    width, rows = unit.axes
    begin = unit.whole("THEAP", width * rows)
    base = np.dtype("u1" if form[2] == "X" else "S1" if form[2] in "AL" else TYPES[form[2]])
    scale, zero, null = (unit.number_of(f"{word}{number}") for word in ("TSCAL", "TZERO", "TNULL"))
    configuration: dict[str, Any] = {
        "letter": form[2],
        "base": base.str,
        "wide": form[1] == "Q",
        "base_address": unit.data + begin,
        "size": max(unit.nbytes - begin, 0),
    }
    if base.kind in "iufc":
        configuration |= {
            key: value for key, value in (("scale", scale), ("zero", zero)) if isinstance(value, (int, float))
        }
    if form[2] in "BIJK" and isinstance(null, int) and not isinstance(null, bool):
        configuration["null"] = null
    return replace(column, dtype=np.dtype(object), codecs=(Codec("fits_heap", configuration),))


def _substrings(form: Any, repeat: int) -> tuple[int, ...]:
    """Return the shape of fixed-length texts in one cell, from TFORM (`60A12`: five of twelve
    letters); empty for one text.
    """
    found = re.fullmatch(r"\s*\d*A(\d+)\s*", str(form))
    length = int(found[1]) if found else 0
    return (repeat // length, length) if 0 < length < repeat and repeat % length == 0 else ()


def _shape(declared: Any, repeat: int) -> tuple[int, ...]:
    """Return the shape of one row's elements, the slowest axis first (TDIM has the fastest first)."""
    if isinstance(declared, str) and re.fullmatch(r"\(\s*\d+(\s*,\s*\d+)*\s*\)", declared.strip()):
        shape = tuple(int(part) for part in declared.strip(" ()").split(","))[::-1]
        if np.prod(shape, dtype=object) == repeat:
            return shape
    return () if repeat == 1 else (repeat,)


def _array(column: TableColumn, width: int, rows: int, offset: int, source: Source) -> VirtualArray:
    assert column.dtype is not None
    rest = width - column.skip - column.nbytes
    own: list[Any] = ["own", f"V{column.nbytes}"]
    fields = [
        *([["before", f"V{column.skip}"]] if column.skip else []), own, *([["behind", f"V{rest}"]] if rest else []),
    ]  # fmt: skip
    block = max(min(BLOCK_BYTES // max(width, 1), rows), 1)
    codecs = (*column.codecs, Codec("record_member", {"member": "own", "dtype": fields}))
    axes = (
        Axis.regular(rows, block, padded=False), *(Axis.regular(extent, max(extent, 1)) for extent in column.shape),
    )  # fmt: skip
    grid = tuple(axis.count for axis in axes)
    if 0 in grid:
        chunks = Columns.of_unwritten(grid)
    else:
        first = np.arange(0, rows, block, dtype=np.int64).reshape(-1, *(1,) * len(column.shape))
        length = np.minimum(rows - first, block) * width
        chunks = Columns(grid, (source,), np.asarray(0), offset + first * width, length)
    dims = ("row", *(f"{column.name}_{number}" for number in range(len(column.shape))))
    tile = Tile(axes, (Encoding(column.dtype, codecs),), chunks)
    return VirtualArray.of(tile, dims=dims, attributes=column.attributes)
