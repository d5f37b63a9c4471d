"""Registry of codecs: maps the name of a codec to the function that makes its decoding step.

HDF5 pipelines, Zarr v2 filters and compressors and Zarr v3 codecs are normalised to these names;
the prefix `numcodecs.` is ignored. Modules are imported when their first codec is met. To add a
codec, write a function `name(configuration, form) -> Step` in a module of its family and add a line
here.
"""

from __future__ import annotations

from insitu.codecs.buffer_spec import BufferSpec, DecodeStep, StepFactory
from insitu.codecs.configuration import reading_configuration
from insitu.codecs.outside_values import OutsideValues
from insitu.errors import CodecError, UnknownCodecError
from insitu.forking import import_before_fork
from insitu.model import Codec

__all__ = ["CODECS", "OUTSIDE_VALUES", "UNSUPPORTED_FILTERS", "is_own", "make_outside_values", "make_step"]

CODECS: dict[str, str] = {
    # name: "module:function", relative to insitu. The codecs of a format lie in its folder.
    "adler32": "codecs.filters.checksums:adler32",
    "any_width": "formats.fits.codecs.integers:any_width",
    "astype": "codecs.filters.arithmetic:astype",
    "bitround": "codecs.filters.arithmetic:bitround",
    "bitshuffle": "codecs.filters.bitshuffle:bitshuffle",
    "blosc": "codecs.compressors.blosc:blosc",
    "blosc2": "codecs.compressors.blosc2:blosc2",
    "brotli": "codecs.compressors.lz:brotli",
    "bytes": "codecs.filters.array_layout:bytes_",
    "bz2": "codecs.compressors.bzip:bz2",
    "clipped": "formats.tiff.codecs.strips:clip",
    "complex_integers": "formats.tiff.codecs.strips:complex_integers",
    "crc32": "codecs.filters.checksums:crc32",
    "crc32c": "codecs.filters.checksums:crc32c",
    "deflate": "codecs.compressors.deflate:deflate",
    "delta": "codecs.filters.arithmetic:delta",
    "fixedscaleoffset": "codecs.filters.arithmetic:fixedscaleoffset",
    "fits_bits": "formats.fits.codecs.table_cells:fits_bits",
    "fits_digits": "formats.fits.codecs.table_cells:fits_digits",
    "fits_hcompress": "formats.fits.codecs.hcompress:hcompress",
    "fits_logical": "formats.fits.codecs.table_cells:fits_logical",
    "fits_plio": "formats.fits.codecs.plio:plio",
    "fits_quantized": "formats.fits.codecs.quantized:dequantize",
    "fits_scaled": "formats.fits.codecs.table_cells:scale_complex",
    "fits_text": "formats.fits.codecs.table_cells:fits_text",
    "fletcher32": "codecs.filters.checksums:fletcher32",
    "grib": "formats.grib.codecs.codec:grib",
    "gzip": "codecs.compressors.deflate:gzip",
    "hdf4_huffman": "formats.hdf4.compression:hdf4_huffman",
    "hdf4_nbit": "formats.hdf4.compression:hdf4_nbit",
    "hdf4_rle": "formats.hdf4.compression:hdf4_rle",
    "hdf4_szip": "formats.hdf4.compression:hdf4_szip",
    "hdf5_filter_32022": "codecs.filters.arithmetic:bitround",
    "hdf5_filter_32023": "codecs.filters.arithmetic:bitround",
    "hdf5_lz4": "codecs.compressors.lz:hdf5_lz4",
    "hdf5_number": "formats.hdf5.codecs.odd_numbers:hdf5_number",
    "hdf5_record": "formats.hdf5.codecs.records:hdf5_record",
    "hdf5_text": "formats.hdf5.codecs.fixed_text:hdf5_text",
    "imagecodecs_bitorder": "formats.tiff.codecs.strips:bitorder",
    "imagecodecs_ccittfax3": "codecs.compressors.images:ccittfax3",
    "imagecodecs_ccittfax4": "codecs.compressors.images:ccittfax4",
    "imagecodecs_ccittrle": "codecs.compressors.images:ccittrle",
    "imagecodecs_delta": "formats.tiff.codecs.strips:delta",
    "imagecodecs_float24": "formats.tiff.codecs.strips:float24",
    "imagecodecs_floatpred": "formats.tiff.codecs.strips:float_predictor",
    "imagecodecs_jpeg": "codecs.compressors.images:jpeg",
    "imagecodecs_jpeg2k": "codecs.compressors.images:jpeg2k",
    "imagecodecs_jpegxl": "codecs.compressors.images:jpegxl",
    "imagecodecs_jpegxr": "codecs.compressors.images:jpegxr",
    "imagecodecs_lerc": "codecs.compressors.images:lerc",
    "imagecodecs_lzw": "formats.tiff.codecs.strips:lzw",
    "imagecodecs_packbits": "formats.tiff.codecs.strips:packbits",
    "imagecodecs_packints": "formats.tiff.codecs.strips:packints",
    "imagecodecs_pixarlog": "codecs.compressors.images:pixarlog",
    "imagecodecs_png": "codecs.compressors.images:png",
    "imagecodecs_rcomp": "formats.fits.codecs.rice:rice",
    "imagecodecs_webp": "codecs.compressors.images:webp",
    "jenkins_lookup3": "codecs.filters.checksums:jenkins_lookup3",
    "lz4": "codecs.compressors.lz:lz4",
    "lz4_frame": "codecs.compressors.lz:lz4_frame",
    "lzf": "codecs.compressors.lz:lzf",
    "lzma": "codecs.compressors.bzip:lzma",
    "nbit": "codecs.filters.nbit:nbit",
    "offset_binary": "formats.fits.codecs.integers:offset_binary",
    "packbits": "codecs.filters.arithmetic:packbits",
    "pcodec": "codecs.compressors.floating_point:pcodec",
    "pixel_nodata": "formats.tiff.codecs.strips:pixel_nodata",
    "quantize": "codecs.filters.arithmetic:quantize",
    "record_member": "codecs.filters.struct_member:record_member",
    "scaleoffset": "codecs.filters.scaleoffset:scaleoffset",
    "shuffle": "codecs.filters.shuffle:shuffle",
    "snappy": "codecs.compressors.lz:snappy",
    "szip": "codecs.compressors.szip:szip",
    "tiff_ycbcr": "formats.tiff.codecs.ycbcr:tiff_ycbcr",
    "transpose": "codecs.filters.array_layout:transpose",
    "vlen-array": "codecs.filters.vlen_values:vlen_array",
    "vlen-bytes": "codecs.filters.vlen_values:vlen_bytes",
    "vlen-utf8": "codecs.filters.vlen_values:vlen_utf8",
    "zfp": "codecs.compressors.floating_point:zfp",
    "zfpy": "codecs.compressors.floating_point:zfpy",
    "zlib": "codecs.compressors.deflate:zlib",
    "zstd": "codecs.compressors.zstandard:zstd",
}

OUTSIDE_VALUES: dict[str, str] = {
    # codecs whose chunks hold references to their values
    "fits_heap": "formats.fits.codecs.table_heap:Descriptors",
    "hdf5_vlen": "formats.hdf5.codecs.heap_values:Records",
}

CHECKS_MARK = frozenset({"grib"})
"""Codecs that are given the mark of a chunk, which its header must have, as `mark`."""

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

UNSUPPORTED_FILTERS: dict[int, str] = {
    # HDF5 filters that are registered with The HDF Group and that insitu cannot decode, for error
    # messages
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


def is_own(name: str) -> bool:
    """Return whether insitu itself decodes a codec: what another package registered may do anything with its
    configuration.
    """
    return _canonical_name(name) in CODECS


def _canonical_name(name: str) -> str:
    plain = name.removeprefix("numcodecs.")
    return ALIASES.get(plain, plain)


def make_outside_values(codec: Codec) -> OutsideValues:
    """Return the resolver of references for a codec of `OUTSIDE_VALUES`."""
    module, _, name = OUTSIDE_VALUES[codec.name].partition(":")
    kind = getattr(import_before_fork(f"insitu.{module}"), name)
    with reading_configuration(codec.name):  # of nested types; no data is decoded here
        found: OutsideValues = kind.of(codec.configuration)
    return found


def make_step(codec: Codec, form: BufferSpec) -> DecodeStep:
    """Return the decoding step of a codec.

    Parameters
    ----------
    codec
        Name and configuration.
    form
        The data that the codec was given when it encoded.

    Raises
    ------
    UnknownCodecError
        If there is no decoder for it; the message says what to install.
    """
    name = _canonical_name(codec.name)
    place = CODECS.get(name)
    try:
        if place is not None:
            module, _, function = place.partition(":")
            make: StepFactory = getattr(import_before_fork(f"insitu.{module}"), function)
            return make(codec.configuration, form)
        from insitu.codecs.external_codecs import find_external_step  # of packages, which most archives need none of

        found = find_external_step(name, codec.configuration, form)
    except CodecError as error:
        error.with_context(codec=codec.name)
        raise
    if found is None:
        raise _unknown_codec_error(codec.name)
    return found


def _unknown_codec_error(name: str) -> UnknownCodecError:
    if name.startswith(_PREFIX):
        number = name.removeprefix(_PREFIX)
        known = UNSUPPORTED_FILTERS.get(int(number)) if number.isdecimal() else None
        called = f"{known} (HDF5 filter {number})" if known else f"HDF5 filter {number}"
        return UnknownCodecError(
            f"insitu has no decoder for {called}",
            codec=name,
            hint="h5py with `pip install hdf5plugin` may read it. Or register a class for it: "
            f"numcodecs.registry.register_codec(cls, {name!r})",
        )
    return UnknownCodecError(
        f"insitu has no decoder for codec {name!r}",
        codec=name,
        hint="Install the package that registers it with numcodecs or zarr",
    )
