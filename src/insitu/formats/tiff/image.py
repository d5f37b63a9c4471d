"""How one image of a TIFF is stored.

Size, bands, pixel type, strips or tiles, and the chain of codecs.

"TIFF Revision 6.0", sections 3 to 22, and the numbers that libtiff registered since.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from insitu.errors import UnsupportedError
from insitu.formats.tiff.directory import Directory
from insitu.lru import LruCache
from insitu.model import Codec

__all__ = ["TAGS", "TiffImage", "image_of"]

SUBFILE, OLD_SUBFILE, WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 254, 255, 256, 257, 258, 259, 262
FILL_ORDER, STRIP_OFFSETS, SAMPLES, ROWS_PER_STRIP, STRIP_COUNTS = 266, 273, 277, 278, 279
PLANAR, T4_OPTIONS, PREDICTOR, TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_COUNTS = 284, 292, 317, 322, 323, 324, 325
SAMPLE_FORMAT, JPEG_TABLES, JPEG_PLACE, IMAGE_DEPTH, LERC_PARAMETERS = 339, 347, 513, 32997, 50674
COEFFICIENTS, SUBSAMPLING, REFERENCE = 529, 530, 532
TAGS = (
    SUBFILE, OLD_SUBFILE, WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, FILL_ORDER, STRIP_OFFSETS, SAMPLES,
    ROWS_PER_STRIP, STRIP_COUNTS, PLANAR, T4_OPTIONS, PREDICTOR, TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_COUNTS,
    SAMPLE_FORMAT,
    JPEG_TABLES, JPEG_PLACE, IMAGE_DEPTH, LERC_PARAMETERS, COEFFICIENTS, SUBSAMPLING, REFERENCE,
)  # fmt: skip

YCBCR = 6
"""PhotometricInterpretation of luma and chroma."""
OLD_JPEG, JPEG = 6, 7
UNSIGNED, SIGNED, FLOAT, VOID, COMPLEX_INTEGER, COMPLEX = 1, 2, 3, 4, 5, 6

COMPRESSIONS = {1: "none", 2: "ccitt rle", 3: "ccitt fax 3", 4: "ccitt fax 4", 5: "lzw", 7: "jpeg", 8: "deflate",
    32773: "packbits", 32946: "deflate", 50013: "deflate",
    33007: "jpeg", 34892: "jpeg", 32909: "pixarlog", 33004: "jpeg 2000",
    34887: "lerc", 34712: "jpeg 2000", 33003: "jpeg 2000", 33005: "jpeg 2000", 34925: "lzma", 34933: "png",
    34934: "jpeg xr", 22610: "jpeg xr",
    50000: "zstd", 34926: "zstd", 50001: "webp", 34927: "webp", 50002: "jpeg xl", 52546: "jpeg xl"}  # fmt: skip
UNSUPPORTED_COMPRESSIONS = {6: "old-style JPEG", 9: "JBIG", 10: "JBIG", 32771: "CCITT RLE with word alignment",
    34661: "JBIG", 34676: "SGI LogLuv", 34677: "SGI LogLuv 24", 32766: "NeXT 2-bit RLE", 32809: "ThunderScan",
    32908: "PixarFilm", 32947: "Kodak DCS",
    65000: "EER", 65001: "EER", 65002: "EER"}  # fmt: skip
IMAGE_CODECS = {"ccitt rle": "imagecodecs_ccittrle", "ccitt fax 4": "imagecodecs_ccittfax4", "webp": "imagecodecs_webp",
    "jpeg 2000": "imagecodecs_jpeg2k", "jpeg xl": "imagecodecs_jpegxl", "png": "imagecodecs_png",
    "jpeg xr": "imagecodecs_jpegxr",
    "pixarlog": "imagecodecs_pixarlog"}  # fmt: skip
BYTE_CODECS = {
    "lzw": "imagecodecs_lzw",
    "deflate": "zlib",
    "packbits": "imagecodecs_packbits",
    "lzma": "lzma",
    "zstd": "zstd",
}
MOST_BANDS = 65535
"""The number is one of 16 bits, whatever type it is written in."""
LARGEST = 1 << 31
"""Most bytes of a compressed strip or tile, decoded: more is damage (GDAL's limit too)."""


@dataclass(frozen=True, slots=True)
class TiffImage:
    """One image, and how it is stored."""

    directory: Directory
    width: int
    height: int
    bands: int
    dtype: np.dtype[Any]
    """Of the decoded pixels, byte order included."""
    codecs: tuple[Codec, ...]
    compression: str
    tiled: bool
    block: tuple[int, int]
    """Rows and columns of a strip or tile."""
    planar: bool
    """Whether each band has strips or tiles of its own."""
    subfile: int
    """Bits of NewSubfileType: 1 reduced, 4 mask."""
    bits: int
    """Of a sample."""
    samples: int
    """Of a pixel, as stored in one strip or tile."""
    subsampling: tuple[int, int]
    """Pixels across and down that share their chroma."""
    memory: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """Layouts computed from it, for the next image that is stored in the same way."""

    def of(self, directory: Directory) -> TiffImage:
        """Return another image that is stored in the same way."""
        other = object.__new__(TiffImage)
        for name in _FIELDS:
            object.__setattr__(other, name, getattr(self, name))
        object.__setattr__(other, "directory", directory)
        return other

    def stored_bytes(self, rows: Any) -> Any:
        """Return the bytes of so many rows of a strip or tile, before compression."""
        across, down = self.subsampling
        if (across, down) != (1, 1):
            return -(-rows // down) * -(-self.block[1] // across) * (across * down + 2)
        return rows * -(-self.block[1] * self.samples * self.bits // 8)

    @property
    def last_codecs(self) -> tuple[Codec, ...]:
        """Codecs of the last row of strips or tiles.

        Strips are clipped at the bottom, but some writers fill them. Tiles are not, but some
        writers clip them.
        """
        rest = self.height % self.block[0]
        tolerant = ("imagecodecs_packbits",) if self.tiled else ("zlib", "zstd", "lzma")
        packed = next((i for i, codec in enumerate(self.codecs) if codec.name in tolerant), None)
        if packed is None or rest == 0:
            return self.codecs
        if self.tiled:
            short = Codec("imagecodecs_packbits", {"least": self.stored_bytes(rest)})
            return (*self.codecs[:packed], short, *self.codecs[packed + 1 :])
        whole = Codec("clipped", {"nbytes": self.stored_bytes(self.block[0])})
        return (*self.codecs[:packed], whole, *self.codecs[packed:])

    @property
    def reduced(self) -> bool:
        """Whether it is an overview of another image."""
        return bool(self.subfile & 1)

    @property
    def mask(self) -> bool:
        """Whether it is the mask of another image: which of its pixels are valid."""
        return bool(self.subfile & 4)


_FIELDS = tuple(part.name for part in fields(TiffImage))
_KNOWN: LruCache[tuple[Any, ...], TiffImage] = LruCache(512)
_LONGEST_KNOWN = 1 << 16
_PLACES = {STRIP_OFFSETS, STRIP_COUNTS, TILE_OFFSETS, TILE_COUNTS}
_KINDS = tuple(tag for tag in TAGS if tag not in _PLACES)


def image_of(directory: Directory) -> TiffImage:
    """Return how the image of a directory is stored.

    Most images of an archive are stored in the same way: what was found for the same tags is used again. With what
    is remembered of attributes and coordinates, a file takes 0.57 ms of processor instead of 0.94.

    Raises
    ------
    FormatError
        If the tags are damaged.
    UnsupportedError
        If the pixels are stored in a way that is not supported; the message names it.
    """
    if directory.unread:
        return _image_of(directory)
    data, entries = directory.data, directory.entries
    described = tuple([(tag, entries[tag].kind, data[tag]) for tag in _KINDS if tag in data])
    key = (directory.order, TILE_OFFSETS in entries, JPEG_PLACE in entries and _is_whole_jpeg(directory), described)
    known = _KNOWN.get(key)
    if known is None:
        known = _image_of(directory)
        if sum([len(part[2]) for part in described]) <= _LONGEST_KNOWN:
            _KNOWN.put(key, known.of(_NOBODY))
    return known.of(directory)


_NOBODY = Directory(0, "<", {})
"""Takes the place of the directory in what is remembered, because a directory belongs to one file.
"""


def _image_of(directory: Directory) -> TiffImage:
    tags = directory
    width, height = tags.number(WIDTH, 0), tags.number(HEIGHT, 0)
    bands = tags.number(SAMPLES, 1)
    if width < 1 or height < 1 or not 0 < bands <= MOST_BANDS:
        tags.fail(f"an image cannot have {width} × {height} pixels and {bands} bands")
    if tags.number(IMAGE_DEPTH, 1) > 1:
        raise _unsupported_error(tags, f"a volume of {tags.number(IMAGE_DEPTH, 1)} slices in one image", "ImageDepth")
    planar = tags.number(PLANAR, 1) == 2 and bands > 1
    code = tags.number(COMPRESSION, 1)
    if code == OLD_JPEG and _is_whole_jpeg(tags):
        code = JPEG
    if code not in COMPRESSIONS:
        name = (
            f"{UNSUPPORTED_COMPRESSIONS[code]} (number {code})"
            if code in UNSUPPORTED_COMPRESSIONS
            else f"number {code}"
        )
        raise UnsupportedError(
            f"TIFF compression {name} is not supported",
            offset=tags.offset,
            structure="Compression",
            hint="Convert the file to another compression, e.g. with libtiff: tiffcp -c lzw old.tif new.tif",
        )
    compression = COMPRESSIONS[code]
    tiled = TILE_WIDTH in tags.entries or TILE_OFFSETS in tags.entries
    if tiled:
        block = tags.number(TILE_HEIGHT, 0), tags.number(TILE_WIDTH, 0)
        if min(block) < 1:
            tags.fail(f"tiles cannot have {block[0]} × {block[1]} pixels")
    else:
        rows = tags.number(ROWS_PER_STRIP, height)
        block = min(rows, height) if rows > 0 else height, width
    samples = 1 if planar else bands
    bits, photometric = _shared_number(tags, BITS, 1), tags.number(PHOTOMETRIC, 1)
    to_rgb, subsampling = None, (1, 1)
    if photometric == YCBCR and compression != "jpeg":  # the codec of JPEG makes RGB itself
        to_rgb, subsampling = _ycbcr(tags, bits, bands, planar)
    dtype, codecs = _chain(tags, compression, block, samples, bits, photometric, subsampling != (1, 1))
    if to_rgb is not None:
        dtype, codecs = np.dtype("u1"), (to_rgb, *codecs)
    if codecs and block[0] * block[1] * samples * dtype.itemsize > LARGEST:
        tags.fail(f"strips or tiles of {block[0]} × {block[1]} pixels are too large")
    subfile = tags.number(SUBFILE, 0) or (1 if tags.number(OLD_SUBFILE, 1) == 2 else 0)
    return TiffImage(
        tags, width, height, bands, dtype, codecs, compression, tiled, block, planar, subfile, bits, samples,
        subsampling
    )  # fmt: skip


def _ycbcr(tags: Directory, bits: int, samples: int, planar: bool) -> tuple[Codec | None, tuple[int, int]]:
    """Return the codec that makes RGB of YCbCr, as in GDAL and rasterio, and the pixels across and
    down that share their chroma.

    None: the image is shown as it is stored, because its bands are stored one by one (their strips
    cannot be combined) or are not of eight bits.
    """
    across, down = (int(ratio) for ratio in _floats(tags, SUBSAMPLING, 2) or (2.0, 2.0))
    if planar or samples != 3 or bits != 8:
        if (across, down) == (1, 1):
            return None, (1, 1)
        raise UnsupportedError(
            f"subsampled chroma ({across} × {down} pixels) in {samples} samples of {bits} bits is not supported",
            offset=tags.offset,
            structure="YCbCrSubSampling",
        )
    configuration: dict[str, Any] = {"subsampling": [across, down]}
    for name, tag, count in (("coefficients", COEFFICIENTS, 3), ("reference", REFERENCE, 6)):
        if values := _floats(tags, tag, count):
            configuration[name] = values
    return Codec("tiff_ycbcr", configuration), (across, down)


def _floats(tags: Directory, tag: int, count: int) -> list[float]:
    values = tags.numbers(tag)
    return [] if values is None or values.size != count else [float(value) for value in values]


def _is_whole_jpeg(tags: Directory) -> bool:
    """Return whether the one strip of an image is a complete JPEG file.

    Other old-style JPEGs have their headers elsewhere, each writer in its own way.
    """
    place, offsets = tags.numbers(JPEG_PLACE), tags.numbers(STRIP_OFFSETS)
    return place is not None and offsets is not None and place.size == offsets.size == 1 and place[0] == offsets[0]


def _chain(
    tags: Directory, compression: str, block: tuple[int, int], samples: int, bits: int, photometric: int, shared: bool
) -> tuple[np.dtype[Any], tuple[Codec, ...]]:
    """Return the type of the decoded samples, and the codecs in the order of writing.

    `shared`: chroma is stored once for several pixels.
    """
    kind = _shared_number(tags, SAMPLE_FORMAT, UNSIGNED)
    if compression in IMAGE_CODECS or compression in ("jpeg", "lerc", "ccitt fax 3"):
        if shared:
            raise _unsupported_error(tags, f"compression {compression} of subsampled chroma", "YCbCrSubSampling")
        return _image_chain(tags, compression, bits, kind, samples, photometric)
    codecs: list[Codec] = []
    dtype = _plain_type(bits, kind, tags.order)
    if dtype is None:
        dtype, codec = _odd_type(tags, bits, kind, block[1] * samples)
        codecs.append(codec)
    predictor = tags.number(PREDICTOR, 1) if compression in ("lzw", "deflate", "zstd", "lzma") else 1
    # Pairs of floats are differences of whole pairs; which of their bytes are swapped in a
    # big-endian file, libraries do not agree on.
    is_unusual = codecs or shared or dtype.itemsize > 8 or (dtype.kind == "c" and tags.order == ">")
    if predictor not in (1, 2, 3) or (predictor > 1 and is_unusual):
        raise _unsupported_error(tags, f"predictor {predictor} on {bits} bits", "Predictor")
    if predictor > 1:
        if predictor == 3 and dtype.kind != "f":
            tags.fail(f"predictor 3 on {dtype}", "Predictor")
        name = "imagecodecs_delta" if predictor == 2 else "imagecodecs_floatpred"
        shape = [block[0], block[1], samples]
        codecs.append(Codec(name, {"axis": -2, "dist": 1, "shape": shape, "dtype": dtype.str}))
    if compression != "none":
        codecs.append(Codec(BYTE_CODECS[compression]))
    if tags.number(FILL_ORDER, 1) == 2:
        codecs.append(Codec("imagecodecs_bitorder"))
    return dtype, tuple(codecs)


def _shared_number(tags: Directory, tag: int, default: int) -> int:
    """Return a number that every band must share."""
    values = tags.numbers(tag)
    if values is None:
        return default
    if not values.size:
        tags.fail(f"tag {tag} holds no number", f"tag {tag}")
    if len({int(value) for value in values}) > 1:
        raise _unsupported_error(tags, f"bands of different types ({values.tolist()})", f"tag {tag}")
    return int(values[0])


def _unsupported_error(tags: Directory, what: str, structure: str) -> UnsupportedError:
    return UnsupportedError(f"{what}: not supported", offset=tags.offset, structure=structure)


def _plain_type(bits: int, kind: int, order: str) -> np.dtype[Any] | None:
    """Return the NumPy type of pixels of whole bytes; None if there is none."""
    letters = {UNSIGNED: "u", SIGNED: "i", FLOAT: "f", VOID: "u", COMPLEX: "c"}
    sizes = {"u": (8, 16, 32, 64), "i": (8, 16, 32, 64), "f": (16, 32, 64), "c": (64, 128)}
    letter = letters.get(kind)
    if letter is None or bits not in sizes[letter]:
        return None
    return np.dtype(f"{order}{letter}{bits // 8}")


def _odd_type(tags: Directory, bits: int, kind: int, row: int) -> tuple[np.dtype[Any], Codec]:
    """Return the type and codec of pixels of other sizes, which are widened to the next type that
    NumPy has.
    """
    if kind == COMPLEX_INTEGER and bits in (32, 64):
        part = np.dtype(f"{tags.order}i{bits // 16}")
        return np.dtype(f"c{bits // 4}"), Codec("complex_integers", {"dtype": part.str})
    if kind == FLOAT and bits == 24:
        return np.dtype("f4"), Codec("imagecodecs_float24", {"byteorder": tags.order})
    if kind in (UNSIGNED, SIGNED, VOID) and 1 <= bits <= 31:  # GDAL shows those with a sign without it, too
        size = 1 if bits < 8 else 2 if bits < 16 else 4
        dtype = np.dtype(f"u{size}")
        return dtype, Codec("imagecodecs_packints", {"dtype": dtype.str, "bitspersample": bits, "runlen": row})
    raise _unsupported_error(tags, f"pixels of {bits} bits in sample format {kind}", "BitsPerSample")


def _image_chain(
    tags: Directory, compression: str, bits: int, kind: int, samples: int, photometric: int
) -> tuple[np.dtype[Any], tuple[Codec, ...]]:
    """Return type and codecs of compressions that yield whole images, in the byte order of the
    machine.
    """
    if compression.startswith("ccitt"):
        if bits != 1 or samples != 1:
            tags.fail(f"compression {compression} cannot hold {samples} bands of {bits} bits", "Compression")
        options = {"t4options": tags.number(T4_OPTIONS, 0)} if compression == "ccitt fax 3" else {}
        codecs = [Codec(IMAGE_CODECS.get(compression, "imagecodecs_ccittfax3"), options)]
        if tags.number(FILL_ORDER, 1) == 2:
            codecs.append(Codec("imagecodecs_bitorder"))
        return np.dtype("u1"), tuple(codecs)
    wide = 16 if 8 < bits < 16 else bits
    dtype = _plain_type(wide, kind, "=")
    if dtype is None:
        raise _unsupported_error(tags, f"{compression} of {bits} bits in sample format {kind}", "BitsPerSample")
    if compression == "jpeg":
        return dtype, (_jpeg(tags, samples, photometric),)
    if compression == "lerc":
        # libtiff swaps the bytes of a big-endian file before it hands them to LERC, which takes
        # them for numbers of this machine.
        return dtype.newbyteorder(">" if tags.order == ">" else "<"), _lerc(tags)
    return dtype, (Codec(IMAGE_CODECS[compression]),)


def _jpeg(tags: Directory, samples: int, photometric: int) -> Codec:
    """Return the codec of JPEG, whose tables the file has once.

    YCbCr becomes RGB, as in GDAL and tifffile.
    """
    options: dict[str, Any] = {}
    tables = tags.raw(JPEG_TABLES)
    if tables:
        options["tables"] = base64.b64encode(tables).decode()
    if samples == 3:  # any other colours are left as they are, which for the library means RGB
        options["colorspace_jpeg"] = "YCBCR" if photometric == YCBCR else "RGB"
        options["colorspace_data"] = "RGB"
    return Codec("imagecodecs_jpeg", options)


def _lerc(tags: Directory) -> tuple[Codec, ...]:
    """Return the codecs of LERC, perhaps compressed once more.

    LercParameters is (version, 0 none, 1 deflate, 2 zstd).
    """
    parameters = tags.numbers(LERC_PARAMETERS)
    more = int(parameters[1]) if parameters is not None and parameters.size > 1 else 0
    if more not in (0, 1, 2):
        raise _unsupported_error(tags, f"LERC with additional compression {more}", "LercParameters")
    return (Codec("imagecodecs_lerc"), *((Codec("zlib" if more == 1 else "zstd"),) if more else ()))
