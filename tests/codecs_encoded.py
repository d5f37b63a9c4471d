"""One chunk for every codec of the table, encoded by other people's libraries where there is an
encoder.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from insitu.codecs.registry import CODECS

SHAPE = (48, 64)


class Chunk(NamedTuple):
    """A chunk as it is stored, and what it becomes."""

    configuration: dict[str, Any]
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def grey_png(width: int, rows: bytes) -> bytes:
    """Return a PNG of one byte for each pixel, from rows that begin with their filter."""
    header = struct.pack(">IIBBBBB", width, max(len(rows) // (width + 1), 1), 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _snappy(data: bytes) -> bytes:
    import imagecodecs

    try:
        return bytes(imagecodecs.snappy_encode(data))
    except TypeError:  # some versions want a level
        return bytes(imagecodecs.snappy_encode(data, 1))


def smooth(dtype: str = "<u2", shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
    steps = np.random.default_rng(1).integers(-3, 4, shape)
    return np.asarray(120 + np.cumsum(steps, axis=-1) // 4).astype(dtype)


def noise(size: int = 6000) -> bytes:
    return np.random.default_rng(2).bytes(size)


def plain(encode: Callable[[bytes], Any], dtype: str = "<u2", **configuration: Any) -> Chunk:
    return Chunk(configuration, dtype, SHAPE, bytes(encode(smooth(dtype).tobytes())))


def image(encode: Callable[..., Any], dtype: str = "u1", shape: tuple[int, ...] = SHAPE, **options: Any) -> Chunk:
    return Chunk({}, dtype, shape, bytes(encode(smooth(dtype, shape), **options)))


def raw(kind: str = "<u2", content: bytes | None = None, /, **configuration: Any) -> Chunk:
    return Chunk(configuration, kind, SHAPE, smooth(kind).tobytes() if content is None else content)


def hdf5(hdf5_class: Any, dtype: str = "<u2", **options: Any) -> Chunk:
    """A chunk that h5py writes with one filter."""
    made = hdf5_class(smooth(dtype), SHAPE, **options)
    (data, _, _), *_ = made.stored()
    (codec,) = made.encoding.codecs
    return Chunk(dict(codec.configuration), dtype, SHAPE, data)


def _checksum(name: str) -> Chunk:
    data = smooth().tobytes()
    if name == "crc32c":
        import google_crc32c

        return raw("<u2", data + struct.pack("<I", google_crc32c.value(data)))
    compute = zlib.crc32 if name == "crc32" else zlib.adler32
    return raw("<u2", struct.pack("<I", compute(data)) + data)


def _texts(name: str) -> Chunk:
    import numcodecs

    values = np.array([f"text {number}" * (number % 5) for number in range(48 * 64)], object)
    if name == "vlen-bytes":
        values = np.array([value.encode() for value in values], object)
    if name == "vlen-array":
        values = np.array([np.arange(number % 5) for number in range(48 * 64)] + [None], object)[:-1]
    codec = numcodecs.get_codec({"id": name, **({"dtype": "<i4"} if name == "vlen-array" else {})})
    configuration = {"dtype": "<i4"} if name == "vlen-array" else {}
    return Chunk(configuration, "O", (48 * 64,), bytes(codec.encode(values)))


def _grib() -> Chunk:
    import eccodes

    handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
    eccodes.codes_set(handle, "bitsPerValue", 12)
    eccodes.codes_set(handle, "packingType", "grid_ccsds")
    eccodes.codes_set_values(handle, smooth("f8", (16, 31)).ravel())
    message = bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    return Chunk({"var": "values"}, "f4", (16, 31), message)


def _fits(kind: str) -> Chunk:
    from astropy.io.fits.hdu.compressed import _codecs as codecs

    values = smooth(">i4")
    if kind == "plio":
        words = np.frombuffer(codecs.PLIO1(tilesize=values.size).encode(values.astype("i4")), np.int16)
        return Chunk({}, ">i4", SHAPE, words.astype(">i2").tobytes())
    coded = codecs.HCompress1(scale=0, smooth=False, bytepix=8, nx=48, ny=64).encode(values.astype("i8"))
    return Chunk({}, ">i4", SHAPE, bytes(coded))


def _szip() -> tuple[dict[str, int], bytes]:
    import imagecodecs

    # Lines that are no whole blocks: libaec's own szip interface shows uninitialised memory here.
    names = ("options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline")
    parameters = dict(zip(names, (128 | 32 | 4, 16, 16, 50), strict=True))
    return parameters, bytes(imagecodecs.szip_encode(smooth().tobytes(), **parameters))


def encoded(name: str, hdf5_class: Any) -> Chunk:
    """Return a chunk of this codec."""
    import imagecodecs
    import numcodecs.lz4

    size = len(smooth().tobytes())
    parameters, szip = _szip()
    number = {"size": 2, "big": False, "offset": 4, "precision": 12, "signed": True}
    record = {"kind": "plain", "dtype": "<u2"}
    made: dict[str, Callable[[], Chunk]] = {
        "adler32": lambda: _checksum("adler32"),
        "any_width": lambda: raw("<i4", smooth(">i2").tobytes()),
        "astype": lambda: raw("<u2", smooth("<u4").tobytes(), encode_dtype="<u4", decode_dtype="<u2"),
        "bitround": lambda: raw("<f4", keepbits=5),
        "bitshuffle": lambda: hdf5(hdf5_class, **_plugin("Bitshuffle")),
        "blosc": lambda: numcodecs_of("blosc", cname="lz4"),
        "blosc2": lambda: plain(lambda data: imagecodecs.blosc2_encode(data)),
        "brotli": lambda: plain(lambda data: imagecodecs.brotli_encode(data)),
        "bytes": lambda: raw(endian="little"),
        "bz2": lambda: plain(bz2.compress),
        "clipped": lambda: raw(nbytes=size),
        "complex_integers": lambda: raw("<c8", smooth("<i2", (48, 128)).tobytes(), dtype="<i2"),
        "crc32": lambda: _checksum("crc32"),
        "crc32c": lambda: _checksum("crc32c"),
        "deflate": lambda: plain(lambda data: zlib.compress(data, wbits=-15)),
        "delta": lambda: numcodecs_of("delta", dtype="<u2"),
        "fixedscaleoffset": lambda: raw("<f8", smooth("<i2").tobytes(), scale=10, offset=3, dtype="<f8", astype="<i2"),
        "fits_bits": lambda: raw("?", np.packbits(smooth("u1") & 1, axis=1).tobytes(), bits=64),
        "fits_digits": lambda: raw("<i4", b"".join(b"%6d" % n for n in smooth().ravel().tolist()), width=6),
        "fits_hcompress": lambda: _fits("hcompress"),
        "fits_logical": lambda: raw("?", np.where(smooth("u1") & 1, b"T", b"F").astype("S1").tobytes()),
        "fits_plio": lambda: _fits("plio"),
        "fits_quantized": lambda: raw("<f4", smooth("<i4").tobytes(), scale=0.5, zero=3.0),
        "fits_scaled": lambda: raw("<c16", smooth(">c8").tobytes(), base=">c8", scale=2.0, zero=1.0),
        "fits_text": lambda: raw("S4", noise(48 * 64 * 4)),
        "fletcher32": lambda: hdf5(hdf5_class, fletcher32=True),
        "grib": _grib,
        "gzip": lambda: plain(gzip.compress),
        "hdf4_huffman": lambda: raw("<u2", noise(20000), skip=2),
        "hdf4_nbit": lambda: raw("<u2", noise(48 * 64 * 12 // 8), size=2, start=11, length=12, sign=1),
        "hdf4_rle": lambda: raw("<u2", bytes([0x7F, *noise(128)]) * 48),
        "hdf4_szip": lambda: raw("<u2", szip, **parameters),
        "hdf5_filter_32022": lambda: raw("<f4", keepbits=5),
        "hdf5_filter_32023": lambda: raw("<f4", keepbits=5),
        "hdf5_lz4": lambda: hdf5(hdf5_class, **_plugin("LZ4")),
        "hdf5_number": lambda: raw("<i2", **number),
        "hdf5_record": lambda: raw("<u2", type=record),
        "hdf5_text": lambda: raw("S4", noise(48 * 64 * 4), texts=[[0, 4, "null-terminated"]]),
        "imagecodecs_bitorder": lambda: raw(),
        "imagecodecs_ccittfax3": lambda: raw("u1", noise()),
        "imagecodecs_ccittfax4": lambda: raw("u1", noise()),
        "imagecodecs_ccittrle": lambda: raw("u1", noise()),
        "imagecodecs_delta": lambda: raw(),
        "imagecodecs_float24": lambda: raw("<f4", noise(48 * 64 * 3)),
        "imagecodecs_floatpred": lambda: raw("<f4", shape=list(SHAPE), dtype="<f4"),
        "imagecodecs_jpeg": lambda: image(imagecodecs.jpeg8_encode, shape=(48, 64, 3)),
        "imagecodecs_jpeg2k": lambda: image(imagecodecs.jpeg2k_encode, level=0),
        "imagecodecs_jpegxl": lambda: image(imagecodecs.jpegxl_encode, lossless=True),
        "imagecodecs_jpegxr": lambda: image(imagecodecs.jpegxr_encode),
        "imagecodecs_lerc": lambda: image(imagecodecs.lerc_encode, "<f4"),
        "imagecodecs_lzw": lambda: plain(lambda data: imagecodecs.lzw_encode(data)),
        "imagecodecs_packbits": lambda: plain(lambda data: imagecodecs.packbits_encode(data)),
        "imagecodecs_packints": lambda: raw("u1", noise(48 * 64 * 3 // 8), bitspersample=3, dtype="u1"),
        "imagecodecs_pixarlog": lambda: raw("u1", zlib.compress(noise(48 * 64 * 2))),
        "imagecodecs_png": lambda: image(imagecodecs.png_encode),
        "imagecodecs_rcomp": lambda: raw("<i4", bytes(imagecodecs.rcomp_encode(smooth("<i4"), nblock=32))),
        "imagecodecs_webp": lambda: image(imagecodecs.webp_encode, shape=(48, 64, 3), lossless=True),
        "jenkins_lookup3": lambda: numcodecs_of("jenkins_lookup3", initval=0),
        "lz4": lambda: plain(numcodecs.lz4.compress),
        "lz4_frame": lambda: plain(lambda data: imagecodecs.lz4f_encode(data)),
        "lzf": lambda: plain(lambda data: imagecodecs.lzf_encode(data)),
        "lzma": lambda: plain(lzma.compress),
        "nbit": lambda: raw("<i2", noise(48 * 64 * 12 // 8 + 1), cd_values=[8, 0, 48 * 64, 1, 2, 0, 12, 0]),
        "offset_binary": lambda: raw(),
        "packbits": lambda: numcodecs_of("packbits", "?"),
        "pcodec": lambda: numcodecs_of("pcodec", "<u4"),
        "pixel_nodata": lambda: raw("<f4", smooth("<u2").tobytes(), dtype="<u2", values=[0.0] * SHAPE[-1]),
        "quantize": lambda: raw("<f4", digits=2, dtype="<f4"),
        "record_member": lambda: raw("<u2", smooth("<u4").tobytes(), member="b", dtype=[["a", "<u2"], ["b", "<u2"]]),
        "scaleoffset": lambda: hdf5(hdf5_class, scaleoffset=0),
        "shuffle": lambda: raw(elementsize=2),
        "snappy": lambda: plain(_snappy),
        "szip": lambda: raw("<u2", struct.pack("<I", size) + szip, **parameters),
        "tiff_ycbcr": lambda: Chunk({"subsampling": [2, 2]}, "u1", (48, 64, 3), noise(48 * 64 * 3 // 2)),
        "transpose": lambda: raw(order=[1, 0]),
        "vlen-array": lambda: _texts("vlen-array"),
        "vlen-bytes": lambda: _texts("vlen-bytes"),
        "vlen-utf8": lambda: _texts("vlen-utf8"),
        "zfp": lambda: hdf5(hdf5_class, "<f4", **_plugin("Zfp", reversible=True)),
        "zfpy": lambda: raw("<f4", bytes(imagecodecs.zfp_encode(smooth("<f4")))),
        "zlib": lambda: plain(zlib.compress),
        "zstd": lambda: plain(lambda data: imagecodecs.zstd_encode(data)),
    }  # fmt: skip
    assert made.keys() == CODECS.keys(), "every codec of the table has a chunk here"
    return made[name]()


def _plugin(name: str, **options: Any) -> dict[str, Any]:
    import hdf5plugin

    return dict(getattr(hdf5plugin, name)(**options))


def numcodecs_of(name: str, dtype: str = "<u2", /, **configuration: Any) -> Chunk:
    import numcodecs

    if name == "pcodec":
        import numcodecs.pcodec
    codec = numcodecs.get_codec({"id": name, **configuration})
    coded = codec.encode(smooth(dtype))
    data = coded.tobytes() if isinstance(coded, np.ndarray) else bytes(coded)
    return Chunk({key: value for key, value in codec.get_config().items() if key != "id"}, dtype, SHAPE, data)
