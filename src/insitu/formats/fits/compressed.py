"""Which virtual array is an image that was compressed tile by tile?

Such an image lies in a binary table (ZIMAGE; section 10): each row is a tile, its column COMPRESSED_DATA says where in the heap behind the table its bytes lie. Read are
integers by Rice and gzip codes, and floats that gzip keeps as they are; floats that were rounded to integers first, and HCOMPRESS and PLIO, are refused by name.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.fits.header import Unit
from insitu.formats.fits.images import TYPES, described
from insitu.formats.fits.values import numbers_of
from insitu.formats.hdf5.window import Window
from insitu.model import Axis, Codec, Columns, Encoding, Source, Tile, VirtualArray

__all__ = ["Packed"]

OWN = re.compile(r"Z(IMAGE|CMPTYPE|BITPIX|NAXIS\d*|TILE\d+|NAME\d+|VAL\d+|QUANTIZ|DITHER0|SIMPLE|TENSION|EXTEND|BLOCKED|PCOUNT|GCOUNT|HECKSUM|DATASUM|BLANK)"
    r"|T(TYPE|FORM|UNIT|NULL|SCAL|ZERO)\d+|TFIELDS|THEAP|EXTNAME")  # fmt: skip
SIZES = {"B": 1, "I": 2, "J": 4}


class Packed:
    """A compressed image and the header of the image that it was."""

    def __init__(self, unit: Unit, window: Window) -> None:
        self.unit, self.window = unit, window
        count = unit.whole("ZNAXIS", least=1, most=999)
        lengths = {f"NAXIS{i}": unit.whole(f"ZNAXIS{i}") for i in range(1, count + 1)}
        kept = {
            name: value
            for name, value in unit.cards.items()
            if not OWN.fullmatch(name) and not name.startswith("NAXIS")
        }
        cards = {**kept, "BITPIX": unit.whole("ZBITPIX", least=-64, most=64), "NAXIS": count, **lengths}
        if "ZBLANK" in unit.cards:
            cards.setdefault("BLANK", unit.cards["ZBLANK"])
        self.image = Unit(unit.number, unit.offset, unit.data, cards, unit.notes, unit.url)
        """The header of the image."""

    def array(self, source: Source, dims: tuple[str, ...]) -> VirtualArray:
        """The virtual array."""
        image, unit = self.image, self.unit
        bits = image.whole("BITPIX", least=-64, most=64)
        if bits not in TYPES:
            raise FormatError(f"ZBITPIX is {bits}", url=unit.url, offset=unit.offset, structure="ZBITPIX")
        stored = np.dtype(TYPES[bits])
        shape = image.axes[::-1]
        tile = [unit.whole(f"ZTILE{i}", image.axes[0] if i == 1 else 1, least=1) for i in range(1, len(shape) + 1)]
        axes = tuple(
            Axis.regular(n, min(cut, max(n, 1)), padded=False) for n, cut in zip(shape, tile[::-1], strict=True)
        )
        grid = tuple(axis.count for axis in axes)
        numbers = numbers_of(stored, *(image.cards.get(word) for word in ("BSCALE", "BZERO", "BLANK")))
        encodings = (
            Encoding(numbers.dtype, (*numbers.codecs, *self._codecs(stored))),
            Encoding(numbers.dtype, (*numbers.codecs, Codec("gzip"))),
            Encoding(numbers.dtype, numbers.codecs),
        )
        chunks = self._table(grid, source) if 0 not in grid else Columns.unwritten(grid)
        return VirtualArray.of(
            Tile(axes, encodings, chunks), dims=dims, attributes={**described(image), **numbers.attributes}
        )

    def _codecs(self, stored: np.dtype[Any]) -> tuple[Codec, ...]:
        """The codecs of the column COMPRESSED_DATA."""
        cards = self.unit.cards
        method = str(cards.get("ZCMPTYPE", "")).strip()
        if stored.kind == "f" and any(
            "ZSCALE" in str(value) for name, value in cards.items() if name.startswith("TTYPE")
        ):
            raise self._refused("a compressed image of rounded floats")
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
        raise self._refused(f"an image compressed by {method or 'nobody knows what'}")

    def _refused(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{what} is not read", url=self.unit.url, offset=self.unit.offset, structure="ZCMPTYPE", hint="Uncompress it with funpack"
        )  # fmt: skip

    def _option(self, name: str, default: int) -> int:
        """A parameter of the algorithm: ZNAMEn, ZVALn."""
        cards = self.unit.cards
        for keyword, value in cards.items():
            if keyword.startswith("ZNAME") and value == name:
                return self.unit.whole(f"ZVAL{keyword[5:]}", default, most=1 << 20)
        return default

    def _table(self, grid: tuple[int, ...], source: Source) -> Columns:
        """Where the tiles lie: the rows of the table, read in one piece."""
        unit, window = self.unit, self.window
        width, rows = unit.whole("NAXIS1", least=1), unit.whole("NAXIS2")
        if rows != int(np.prod(grid, dtype=object)):
            raise FormatError(
                f"{rows} rows for a grid of {grid} tiles", url=unit.url, offset=unit.offset, structure="ZTILE"
            )
        heap = unit.data + unit.whole("THEAP", width * rows)
        end = unit.data + width * rows
        if end > window.size:
            raise FormatError(
                "the file ends before the table does", url=unit.url, offset=window.size, structure="FITS data"
            )
        data = np.frombuffer(window.source.read(unit.data, width * rows), np.uint8).reshape(rows, width)
        state = np.full(rows, -1, np.int64)
        offset, length = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        for encoding, name in enumerate(("COMPRESSED_DATA", "GZIP_COMPRESSED_DATA", "UNCOMPRESSED_DATA")):
            found = self._descriptors(data, name)
            if found is not None:
                fresh = (state < 0) & (found[0] > 0)
                state[fresh], length[fresh], offset[fresh] = encoding, found[0][fresh], heap + found[1][fresh]
        if (state < 0).any() or (offset < heap).any() or (offset + length > window.size).any():
            raise FormatError(
                "tiles lie outside of the file", url=unit.url, offset=unit.data, structure="COMPRESSED_DATA"
            )
        columns = [column.reshape(grid) for column in (offset, length, state)]
        return Columns(grid, (source,), np.asarray(0), columns[0], columns[1], encoding=columns[2])

    def _descriptors(
        self, data: npt.NDArray[np.uint8], name: str
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
        """Bytes and heap offset of every row of a column of varying length; None if there is no such column."""
        cards, skip = self.unit.cards, 0
        for number in range(1, self.unit.whole("TFIELDS", most=999) + 1):
            form = re.match(r"\s*(\d*)([LXBIJKAEDCMPQ])([BIJ]?)", str(cards.get(f"TFORM{number}", "")))
            if form is None:
                raise FormatError(
                    f"TFORM{number} is nonsense", url=self.unit.url, offset=self.unit.offset, structure="TFORM"
                )
            size = 4 if form[2] == "P" else 8
            if str(cards.get(f"TTYPE{number}", "")).strip() == name and form[2] in "PQ":
                pair = data[:, skip : skip + 2 * size]
                if pair.shape[1] != 2 * size:
                    break
                values = np.ascontiguousarray(pair).view(f">i{size}").astype(np.int64)
                return values[:, 0] * SIZES.get(form[3], 1), values[:, 1]
            sizes = {
                "L": 1,
                "X": 0,
                "B": 1,
                "A": 1,
                "I": 2,
                "J": 4,
                "E": 4,
                "K": 8,
                "D": 8,
                "C": 8,
                "M": 16,
                "P": 8,
                "Q": 16,
            }
            repeat = int(form[1] or 1)
            skip += -(-repeat // 8) if form[2] == "X" else repeat * sizes[form[2]]
        return None
