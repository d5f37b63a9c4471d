"""Decoders of compressors for floating-point fields: zfp and pcodec.

Both come from optional libraries. HDF5's zfp filter (32013) keeps zfp's header apart from the
chunks, in the client values; here it is put before each chunk again, bit by bit, because the header
need not end at a byte.
"""

from __future__ import annotations

import math

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import integers_field
from insitu.codecs.libraries import require_function
from insitu.errors import CodecError

__all__ = ["pcodec", "zfp", "zfpy"]

MAGIC_BITS, META_BITS, SHORT_MODE_BITS, LONG_MODE_BITS = 32, 52, 12, 64
LONG_MODE = 0xFFF
"""A mode of 12 one-bits is followed by the rest of the long form (zfp.h)."""


def zfpy(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for numcodecs' zfpy: a stream with its header."""
    decode = require_function("zfpy", ("imagecodecs", "zfp_decode"), ("zfpy", "decompress_numpy"))

    def run(data: Data, out: Octets | None) -> Data:
        stream = as_octets(data).tobytes()
        most = _check_header(stream[:12], form)
        return _check_array("zfpy", decode(stream + bytes(max(most - len(stream), 0))), form)

    return DecodeStep("zfpy", run, form.compressor_output(2), uses_library=True)


def zfp(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for HDF5's filter 32013, from `cd_values`."""
    decode = require_function("zfp", ("imagecodecs", "zfp_decode"), ("zfpy", "decompress_numpy"))
    values = integers_field(configuration, "cd_values", ())
    if len(values) < 4:
        raise CodecError(f"zfp has {len(values)} client values, too few for its header", codec="zfp")
    if any(not 0 <= value < 1 << 32 for value in values):
        raise CodecError("a client value of zfp is not an unsigned integer of 32 bits", codec="zfp")
    header = np.array(values[1:], "<u4").view(np.uint8)
    bits = np.unpackbits(header, bitorder="little")
    mode = int(np.packbits(bits[84:96], bitorder="little").view("<u2")[0])
    length = MAGIC_BITS + META_BITS + (LONG_MODE_BITS if mode == LONG_MODE else SHORT_MODE_BITS)
    if bits.size < length:
        raise CodecError("the zfp header in the client values is truncated", codec="zfp")
    most = _check_header(header.tobytes()[:12], form)

    def run(data: Data, out: Octets | None) -> Data:
        if length % 8:
            stream = np.concatenate([bits[:length], np.unpackbits(as_octets(data), bitorder="little")])
            whole = np.packbits(stream, bitorder="little")
        else:
            whole = np.concatenate([header[: length // 8], as_octets(data)])
        return _check_array("zfp", decode(whole.tobytes() + bytes(max(most - whole.size, 0))), form)

    return DecodeStep("zfp", run, form.compressor_output(2), uses_library=True)


def _check_header(header: bytes, form: BufferSpec) -> int:
    """Check the size in a zfp header and return the number of bytes that the library may read.

    The header is the magic, then type, rank and the extents less one (zfp.h). The library does not
    check where a stream ends: a short stream is padded with zeros to this length, else memory
    behind it would be decoded as values.
    """
    if len(header) < 12 or header[:3] != b"zfp":
        raise CodecError("the data is not a zfp stream: it does not start with 'zfp'")
    meta = int.from_bytes(header[4:11], "little") & (1 << META_BITS) - 1
    rank = (meta >> 2 & 3) + 1
    width = 48 // rank
    extents = [(meta >> 4 + axis * width & (1 << width) - 1) + 1 for axis in range(rank)]
    nbytes = math.prod(extents) * (4, 8, 4, 8)[meta & 3]
    if nbytes > form.limit:
        raise CodecError(f"the zfp header declares {nbytes} bytes, but the chunk has only {form.limit}")
    # A block has 4**rank values: each bit plane has a bit per value and one per group test, and
    # there is an exponent.
    blocks = math.prod(-(-extent // 4) for extent in extents)
    size = (4, 8, 4, 8)[meta & 3]
    values = int(4**rank)
    return blocks * (values * (2 * size + 1) + 16) + 64


def pcodec(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for numcodecs' pcodec: one standalone file of pco."""
    if form.dtype is None:
        raise CodecError("pcodec needs an array, but the codec before it in the chain yields bytes", codec="pcodec")
    if form.dtype.hasobject:
        raise CodecError("pcodec holds numbers, but the chunk has values of varying length", codec="pcodec")
    decode = require_function("pcodec", ("pcodec.standalone", "simple_decompress_into"))
    native = form.dtype.newbyteorder("=")

    def run(data: Data, out: Octets | None) -> Data:
        values = np.empty(form.limit // native.itemsize, native)
        done = decode(as_octets(data).tobytes(), values)
        if not done.finished:
            raise CodecError(f"the data holds more than the {values.size} values of the chunk", codec="pcodec")
        return as_octets(values[: done.n_processed])

    return DecodeStep("pcodec", run, form.compressor_output(2), uses_library=True)


def _check_array(name: str, values: object, form: BufferSpec) -> Octets:
    if not isinstance(values, np.ndarray):
        raise CodecError("the data does not decode to an array", codec=name)
    if form.dtype is not None and values.dtype.newbyteorder("=") != form.dtype.newbyteorder("="):
        raise CodecError(f"the data holds {values.dtype}, but the chunk has the type {form.dtype}", codec=name)
    # The bytes are the chunk's, whatever its byte order: HDF5's filter compresses them as if they
    # were native.
    return as_octets(np.ascontiguousarray(values).reshape(-1))
