"""Virtual arrays of FITS images that are compressed tile by tile.

Such an image lies in a binary table (ZIMAGE; section 10): each row is a tile, its column
COMPRESSED_DATA says where in the heap behind the table its bytes lie. Supported are integers by
Rice, gzip, PLIO and HCOMPRESS, floats in gzip, and floats that were quantised to integers first.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.fits.header_units import HeaderDataUnit
from insitu.formats.fits.image_arrays import TYPES, header_attributes
from insitu.formats.fits.number_formats import number_format
from insitu.formats.parsing.read_cache import ReadCache
from insitu.model import Axis, Codec, Columns, Encoding, Source, Tile, VirtualArray

__all__ = ["CompressedImage"]

OWN = re.compile(
    r"Z(IMAGE|CMPTYPE|BITPIX|NAXIS\d*|TILE\d+|NAME\d+|VAL\d+|QUANTIZ|DITHER0"
    r"|SIMPLE|TENSION|EXTEND|BLOCKED|PCOUNT|GCOUNT|HECKSUM|DATASUM|BLANK)"
    r"|T(TYPE|FORM|UNIT|NULL|SCAL|ZERO)\d+|TFIELDS|THEAP|EXTNAME"
)
WIDTHS = {"L": 1, "B": 1, "A": 1, "I": 2, "J": 4, "E": 4, "K": 8, "D": 8, "C": 8, "M": 16, "P": 8, "Q": 16}
NUMBERS = {"B": "u1", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4", "D": ">f8"}
DITHERS = {"NO_DITHER": 0, "NONE": 0, "": 0, "SUBTRACTIVE_DITHER_1": 1, "SUBTRACTIVE_DITHER_2": 2}
MOST_TILES = 1 << 16
"""Most tiles of an image whose tiles have an encoding each."""


class CompressedImage:
    """A compressed image, and the header of the original image."""

    def __init__(self, unit: HeaderDataUnit, window: ReadCache) -> None:
        self.unit, self.window = unit, window
        count = unit.whole("ZNAXIS", least=1, most=999)
        lengths = {f"NAXIS{i}": unit.whole(f"ZNAXIS{i}") for i in range(1, count + 1)}
        image_cards = {
            name: value
            for name, value in unit.cards.items()
            if not OWN.fullmatch(name) and not name.startswith("NAXIS")
        }
        cards = {**image_cards, "BITPIX": unit.whole("ZBITPIX", least=-64, most=64), "NAXIS": count, **lengths}
        if "ZBLANK" in unit.cards:
            cards.setdefault("BLANK", unit.number_of("ZBLANK"))
        self.image = HeaderDataUnit(unit.number, unit.offset, unit.data, cards, unit.notes, unit.damaged)
        """The header of the image."""

    def array(self, source: Source, dims: tuple[str, ...]) -> VirtualArray:
        """Return the virtual array."""
        image, unit = self.image, self.unit
        bits = image.whole("BITPIX", least=-64, most=64)
        if bits not in TYPES:
            raise FormatError(f"ZBITPIX has the invalid value {bits}", offset=unit.offset, structure="ZBITPIX")
        stored = np.dtype(TYPES[bits])
        shape = image.axes[::-1]
        tile = [unit.whole(f"ZTILE{i}", image.axes[0] if i == 1 else 1, least=1) for i in range(1, len(shape) + 1)]
        axes = tuple(
            Axis.regular(n, min(cut, max(n, 1)), padded=False) for n, cut in zip(shape, tile[::-1], strict=True)
        )
        grid = tuple(axis.count for axis in axes)
        numbers = number_format(stored, *(image.number_of(word) for word in ("BSCALE", "BZERO", "BLANK")))
        rounded = stored.kind == "f" and self._column("ZSCALE") is not None
        first = () if rounded else self._codecs(stored)
        encodings: tuple[Encoding, ...] = (
            Encoding(numbers.dtype, (*numbers.codecs, *first)),
            Encoding(numbers.dtype, (*numbers.codecs, Codec("gzip"))),
            Encoding(numbers.dtype, numbers.codecs),
        )
        chunks = Columns.of_unwritten(grid)
        if 0 not in grid:
            data = self._rows(grid)
            chunks = self._table(grid, source, data)
            if rounded:
                encodings, chunks = self._quantized_encodings(stored, data, encodings, chunks)
        return VirtualArray.of(
            Tile(axes, encodings, chunks), dims=dims, attributes={**header_attributes(image), **numbers.attributes}
        )

    def _quantized_encodings(
        self, stored: np.dtype[Any], data: npt.NDArray[np.uint8], encodings: tuple[Encoding, ...], chunks: Columns
    ) -> tuple[tuple[Encoding, ...], Columns]:
        """Return encodings and table of floats that were quantised.

        Each tile has its own scale, so its own encoding.
        """
        method = str(self.unit.card("ZQUANTIZ") or "NO_DITHER").strip()
        if method not in DITHERS or len(data) > MOST_TILES:
            raise self._unsupported_error(f"an image of {len(data)} tiles rounded by {method}")
        scale, zero = self._numbers(data, "ZSCALE"), self._numbers(data, "ZZERO")
        blank = self.unit.number_of("ZBLANK")
        blanks = self._numbers(data, "ZBLANK").tolist() if self._column("ZBLANK") is not None else [blank] * len(data)
        start = self.unit.whole("ZDITHER0", 1, most=10000)
        inner = self._codecs(np.dtype(">i4"))
        state = np.array(np.broadcast_to(chunks.encoding, chunks.shape), np.int64).reshape(-1)
        more: list[Encoding] = []
        for row in np.flatnonzero(state == 0).tolist():
            configuration: dict[str, Any] = {"scale": float(scale[row]), "zero": float(zero[row]), "blank": blanks[row]}
            if DITHERS[method]:
                configuration |= {"dither": DITHERS[method], "seed": (row + start - 1) % 10000}
            state[row] = len(encodings) + len(more)
            more.append(Encoding(stored, (Codec("fits_quantized", configuration), *inner)))
        return (*encodings, *more), replace(chunks, encoding=state.reshape(chunks.shape))

    def _codecs(self, stored: np.dtype[Any]) -> tuple[Codec, ...]:
        """Return the codecs of the column COMPRESSED_DATA."""
        method = str(self.unit.cards.get("ZCMPTYPE", "")).strip()
        if method == "GZIP_1":
            return (*((Codec("any_width"),) if stored.kind in "iu" else ()), Codec("gzip"))
        if method == "GZIP_2":
            return (Codec("shuffle", {"elementsize": stored.itemsize}), Codec("gzip"))
        if method in ("RICE_1", "RICE_ONE") and stored.kind in "iu":
            return (
                Codec(
                    "imagecodecs_rcomp",
                    {"nblock": self._option("BLOCKSIZE", 32), "bytepix": self._option("BYTEPIX", 4)},
                ),
            )
        if method == "PLIO_1" and stored.kind in "iu":
            return (Codec("fits_plio"),)
        if method == "HCOMPRESS_1" and stored.kind in "iu":
            configuration = {"scale": self._option("SCALE", 0), "smooth": self._option("SMOOTH", 0)}
            return (Codec("fits_hcompress", configuration),)
        if method == "NOCOMPRESS":
            return ()
        raise self._unsupported_error(f"an image compressed by {method or 'an unknown method'}")

    def _unsupported_error(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{what} is not supported", offset=self.unit.offset, structure="ZCMPTYPE",
            hint="Uncompress it with funpack"
        )  # fmt: skip

    def _option(self, name: str, default: int) -> int:
        """Return a parameter of the algorithm: ZNAMEn, ZVALn."""
        cards = self.unit.cards
        for keyword, value in cards.items():
            if keyword.startswith("ZNAME") and value == name:
                declared = cards.get(f"ZVAL{keyword[5:]}", default)
                if not isinstance(declared, (int, float)) or not 0 <= declared < 1 << 31:
                    raise self._unsupported_error(f"{name} = {declared!r}")
                return int(declared)
        return default

    def _rows(self, grid: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        """Read the rows of the table, in one piece."""
        unit, window = self.unit, self.window
        width, rows = unit.whole("NAXIS1", least=1), unit.whole("NAXIS2")
        if rows != int(np.prod(grid, dtype=object)):
            raise FormatError(
                f"the table has {rows} rows for a grid of {grid} tiles", offset=unit.offset, structure="ZTILE"
            )
        if unit.data + width * rows > window.size:
            raise FormatError("the file is truncated within the table", offset=window.size, structure="FITS data")
        return np.frombuffer(window.source.read(unit.data, width * rows), np.uint8).reshape(rows, width)

    def _table(self, grid: tuple[int, ...], source: Source, data: npt.NDArray[np.uint8]) -> Columns:
        """Return the table of the tiles."""
        unit, window = self.unit, self.window
        rows, width = data.shape
        heap = unit.data + unit.whole("THEAP", width * rows)
        state = np.full(rows, -1, np.int64)
        offset, length = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        for encoding, name in enumerate(("COMPRESSED_DATA", "GZIP_COMPRESSED_DATA", "UNCOMPRESSED_DATA")):
            found = self._descriptors(data, name)
            if found is not None:
                fresh = (state < 0) & (found[0] > 0)
                state[fresh], length[fresh], offset[fresh] = encoding, found[0][fresh], heap + found[1][fresh]
        if (state < 0).any() or (offset < heap).any() or (offset + length > window.size).any():
            raise FormatError("tiles lie outside the file", offset=unit.data, structure="COMPRESSED_DATA")
        columns = [column.reshape(grid) for column in (offset, length, state)]
        return Columns(grid, (source,), np.asarray(0), columns[0], columns[1], encoding=columns[2])

    def _descriptors(
        self, data: npt.NDArray[np.uint8], name: str
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
        """Return bytes and heap offset of every row of a column of varying length.

        None if there is no such column.
        """
        column = self._column(name)
        if column is None or column[1] not in "PQ":
            return None
        skip, kind, element = column
        size = 4 if kind == "P" else 8
        pair = data[:, skip : skip + 2 * size]
        if pair.shape[1] != 2 * size:
            return None
        values = np.ascontiguousarray(pair).view(f">i{size}").astype(np.int64)
        return values[:, 0] * WIDTHS.get(element, 1), values[:, 1]

    def _numbers(self, data: npt.NDArray[np.uint8], name: str) -> npt.NDArray[np.float64]:
        """Return a column of one number a row."""
        column = self._column(name)
        if column is None or column[1] not in NUMBERS:
            raise self._unsupported_error(f"an image without {name}")
        dtype = np.dtype(NUMBERS[column[1]])
        part = data[:, column[0] : column[0] + dtype.itemsize]
        if part.shape[1] != dtype.itemsize:
            raise self._unsupported_error(f"an image without {name}")
        return np.ascontiguousarray(part).view(dtype).reshape(-1).astype(np.float64)

    def _column(self, name: str) -> tuple[int, str, str] | None:
        """Return where a column begins in a row, its type, and the type of its elements.

        None if there is no such column.
        """
        cards, skip = self.unit.cards, 0
        for number in range(1, self.unit.whole("TFIELDS", most=999) + 1):
            form = re.match(r"\s*(\d*)([LXBIJKAEDCMPQ])([BIJKED]?)", str(cards.get(f"TFORM{number}", "")))
            if form is None:
                raise FormatError(f"TFORM{number} is not valid", offset=self.unit.offset, structure="TFORM")
            if str(cards.get(f"TTYPE{number}", "")).strip() == name:
                return skip, form[2], form[3]
            repeat = int(form[1] or 1)
            skip += -(-repeat // 8) if form[2] == "X" else repeat * WIDTHS[form[2]]
        return None
