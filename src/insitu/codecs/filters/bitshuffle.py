"""Decoder of bitshuffle, which stores the bits of elements as bit planes.

Bitshuffle works in blocks. Alone it changes only the order of bits; HDF5's filter 32008 can also
compress each block by LZ4 or Zstandard, and then begins with the size of the output and of a block
(12 bytes, big-endian).
"""

from __future__ import annotations

import struct

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.compressors.lz import decode_blocks
from insitu.codecs.configuration import integer_field
from insitu.codecs.libraries import Function, require_function
from insitu.errors import CodecError

__all__ = ["bitshuffle"]

TARGET_BLOCK = 8192
MULTIPLE = 8
SMALLEST = 128


def bitshuffle(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step, from `elementsize`, `blocksize` (in elements, 0: default) and `cname` (none,
    lz4 or zstd).
    """
    size = integer_field(configuration, "elementsize", integer_field(configuration, "itemsize", 1))
    block = integer_field(configuration, "blocksize", 0)
    compressor = str(configuration.get("cname", "none"))
    if size < 1 or block < 0 or block % MULTIPLE:
        raise CodecError(
            f"bitshuffle needs a positive element size and blocks of a multiple of {MULTIPLE} elements, "
            f"not {size} bytes and {block} elements",
            codec="bitshuffle",
        )
    untangle = require_function("bitshuffle", ("imagecodecs", "bitshuffle_decode"))
    if compressor == "none":

        def run(data: Data, out: Octets | None) -> Data:
            room = np.empty(as_octets(data).size, np.uint8) if out is None else out
            _unshuffle_bits(untangle, as_octets(data), size, block or _default_block(size), room)
            return room

        return DecodeStep("bitshuffle", run, form.as_bytes(), fills=form.exact, uses_library=True)
    decode = require_function("bitshuffle", ("imagecodecs", f"{compressor}_decode"))
    return _compressed_step(form, size, untangle, decode)


def _compressed_step(form: BufferSpec, size: int, untangle: Function, decode: Function) -> DecodeStep:
    limit = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        view = as_octets(data).data
        if view.nbytes < 12:
            raise CodecError("the data is too short for its size fields of 12 bytes")
        total, block_bytes = struct.unpack_from(">QI", view)
        if total > limit:
            raise CodecError(f"the data declares {total} bytes, but the chunk has only {limit}")
        block = block_bytes // size
        if block % MULTIPLE:
            raise CodecError(f"the block size of {block} elements is not a multiple of {MULTIPLE}")
        block = block or _default_block(size)
        planes = np.empty(total, np.uint8)
        # Whole blocks, then one block of the remaining multiples of eight elements; the last
        # elements are not shuffled.
        whole = total - total % (MULTIPLE * size)
        end = decode_blocks(decode, view, 12, planes[:whole], block * size, bare=False)
        tail = np.frombuffer(view[end:], np.uint8)
        if tail.size < total - whole:
            raise CodecError("the data is truncated: its last elements are missing")
        planes[whole:] = tail[: total - whole]
        room = out if out is not None and total == limit else np.empty(total, np.uint8)
        _unshuffle_bits(untangle, planes, size, block, room)
        return room

    return DecodeStep("bitshuffle", run, form.compressor_output(), fills=form.exact, uses_library=True)


def _unshuffle_bits(untangle: Function, planes: Octets, size: int, block: int, room: Octets) -> None:
    if planes.size != room.size:
        raise CodecError(f"the data has {planes.size} bytes, but {room.size} bytes are declared")
    # As memoryviews: of an array the library would use the array's own element size.
    untangle(planes.data, itemsize=size, blocksize=block, out=room.data)


def _default_block(size: int) -> int:
    """Return the library's default block size, in elements."""
    return max(TARGET_BLOCK // size // MULTIPLE * MULTIPLE, SMALLEST)
