"""Which decoder belongs to a codec's name?

One table for all of them: HDF5 pipelines, Zarr v2 filters and compressors and Zarr v3 codecs come normalised to these names; `numcodecs.` in
front changes nothing. Modules are imported when their first codec is met. To add a codec: write `name(configuration, form) -> Step` in a file
of its family and a line here.
"""

from __future__ import annotations

from insitu.codecs.form import Form, Make, Step
from insitu.codecs.registered import registered
from insitu.errors import CodecError, UnknownCodecError
from insitu.forking import import_before_fork
from insitu.model import Codec

__all__ = ["FILTERS", "TABLE", "step"]

TABLE: dict[str, str] = {
    # name: module.function of this package
    "adler32": "checksums.adler32",
    "any_width": "signs.any_width",
    "astype": "numeric.astype",
    "bitround": "numeric.bitround",
    "bitshuffle": "bitshuffle.bitshuffle",
    "blosc": "blosc.blosc",
    "blosc2": "blosc2.blosc2",
    "brotli": "lz.brotli",
    "bytes": "layout.bytes_",
    "bz2": "bzip.bz2",
    "clipped": "strips.clipped",
    "complex_integers": "strips.complex_integers",
    "crc32": "checksums.crc32",
    "crc32c": "checksums.crc32c",
    "deflate": "deflate.deflate",
    "delta": "numeric.delta",
    "fixedscaleoffset": "numeric.fixedscaleoffset",
    "fits_bits": "fits_cells.fits_bits",
    "fits_digits": "fits_cells.fits_digits",
    "fits_hcompress": "hcompress.hcompress",
    "fits_logical": "fits_cells.fits_logical",
    "fits_plio": "plio.plio",
    "fits_quantized": "quantized.fits_quantized",
    "fits_scaled": "fits_cells.fits_scaled",
    "fits_text": "fits_cells.fits_text",
    "fletcher32": "checksums.fletcher32",
    "grib": "grib.grib",
    "gzip": "deflate.gzip",
    "hdf4_huffman": "hdf4.hdf4_huffman",
    "hdf4_nbit": "hdf4.hdf4_nbit",
    "hdf4_rle": "hdf4.hdf4_rle",
    "hdf4_szip": "hdf4.hdf4_szip",
    "hdf5_filter_32022": "numeric.bitround",
    "hdf5_filter_32023": "numeric.bitround",
    "hdf5_lz4": "lz.hdf5_lz4",
    "hdf5_number": "hdf5_number.hdf5_number",
    "hdf5_record": "hdf5_record.hdf5_record",
    "hdf5_text": "hdf5_text.hdf5_text",
    "imagecodecs_bitorder": "strips.bitorder",
    "imagecodecs_ccittfax3": "images.ccittfax3",
    "imagecodecs_ccittfax4": "images.ccittfax4",
    "imagecodecs_ccittrle": "images.ccittrle",
    "imagecodecs_delta": "strips.delta",
    "imagecodecs_float24": "strips.float24",
    "imagecodecs_floatpred": "strips.floatpred",
    "imagecodecs_jpeg": "images.jpeg",
    "imagecodecs_jpeg2k": "images.jpeg2k",
    "imagecodecs_jpegxl": "images.jpegxl",
    "imagecodecs_jpegxr": "images.jpegxr",
    "imagecodecs_lerc": "images.lerc",
    "imagecodecs_lzw": "strips.lzw",
    "imagecodecs_packbits": "strips.packbits",
    "imagecodecs_packints": "strips.packints",
    "imagecodecs_pixarlog": "images.pixarlog",
    "imagecodecs_png": "images.png",
    "imagecodecs_rcomp": "rice.rice",
    "imagecodecs_webp": "images.webp",
    "jenkins_lookup3": "checksums.jenkins_lookup3",
    "lz4": "lz.lz4",
    "lz4_frame": "lz.lz4_frame",
    "lzf": "lz.lzf",
    "lzma": "bzip.lzma",
    "nbit": "nbit.nbit",
    "offset_binary": "signs.offset_binary",
    "packbits": "numeric.packbits",
    "pcodec": "floating.pcodec",
    "quantize": "numeric.quantize",
    "record_member": "records.record_member",
    "scaleoffset": "scaleoffset.scaleoffset",
    "shuffle": "shuffle.shuffle",
    "snappy": "lz.snappy",
    "szip": "szip.szip",
    "tiff_cielab": "colours.tiff_cielab",
    "tiff_cmyk": "colours.tiff_cmyk",
    "tiff_next": "relics.tiff_next",
    "tiff_sgilog": "relics.tiff_sgilog",
    "tiff_thunder": "relics.tiff_thunder",
    "tiff_ycbcr": "colours.tiff_ycbcr",
    "transpose": "layout.transpose",
    "vlen-array": "text.vlen_array",
    "vlen-bytes": "text.vlen_bytes",
    "vlen-utf8": "text.vlen_utf8",
    "zfp": "floating.zfp",
    "zfpy": "floating.zfpy",
    "zlib": "deflate.zlib",
    "zstd": "zstandard.zstd",
}

ALIASES = {
    "bzip2": "bz2",
    "endian": "bytes",
    "imagecodecs_deflate": "zlib",
    "imagecodecs_zlib": "zlib",
    "imagecodecs_zstd": "zstd",
    "lz4f": "lz4_frame",
    "xz": "lzma",
    "zstandard": "zstd",
}

FILTERS: dict[int, str] = {
    # HDF5 filters that are registered with The HDF Group and that insitu does not decode, for messages
    305: "LZO",
    32002: "MAFISC",
    32003: "Snappy",
    32005: "APAX",
    32006: "CBF",
    32007: "JPEG-XR",
    32009: "SPDP",
    32010: "LPC-Rice",
    32011: "CCSDS-123",
    32012: "JPEG-LS",
    32014: "FPZIP",
    32016: "B3D",
    32017: "SZ",
    32018: "FCIDECOMP",
    32019: "JPEG",
    32020: "VBZ",
    32021: "FAPEC",
    32024: "SZ3",
    32025: "Delta-Rice",
    32027: "FLAC",
    32028: "SPERR",
    32029: "TERSE/PROLIX",
    32030: "FFMPEG",
}

_PREFIX = "hdf5_filter_"


def step(codec: Codec, form: Form) -> Step:
    """Return the codec ready to decode what it made of `form`.

    Raises
    ------
    UnknownCodecError
        If nothing here decodes it; the message names it and what would help.
    """
    name = codec.name.removeprefix("numcodecs.")
    name = ALIASES.get(name, name)
    place = TABLE.get(name)
    try:
        if place is not None:
            module, function = place.split(".")
            make: Make = getattr(import_before_fork(f"insitu.codecs.{module}"), function)
            return make(codec.configuration, form)
        found = registered(name, codec.configuration, form)
    except CodecError as error:
        error.located(codec=codec.name)
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CodecError(
            f"the configuration of codec {codec.name!r} cannot be used: {error!r}", codec=codec.name
        ) from error
    if found is None:
        raise _unknown(codec.name)
    return found


def _unknown(name: str) -> UnknownCodecError:
    if name.startswith(_PREFIX):
        number = name.removeprefix(_PREFIX)
        known = FILTERS.get(int(number)) if number.isdecimal() else None
        called = f"{known} (HDF5 filter {number})" if known else f"HDF5 filter {number}"
        return UnknownCodecError(
            f"nothing here decodes {called}",
            codec=name,
            hint="h5py with the plugin of `pip install hdf5plugin` may read it; or register a class for it: "
            f"numcodecs.registry.register_codec(cls, {name!r})",
        )
    return UnknownCodecError(
        f"nothing here decodes codec {name!r}",
        codec=name,
        hint="Install the package that registers it with numcodecs or zarr",
    )
