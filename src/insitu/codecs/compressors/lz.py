"""Decoders of LZ4 (in three wrappings), LZF, Snappy and Brotli.

A bare LZ4 block does not contain its decoded size, so each user wraps it: numcodecs in a 4-byte
length, HDF5's filter 32004 in blocks of its own, everybody else in the frame format.
"""

from __future__ import annotations

import struct

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.growing_buffer import decode_growing, library_step
from insitu.codecs.libraries import Function, find_function, require_function
from insitu.errors import CodecError

__all__ = ["brotli", "decode_blocks", "hdf5_lz4", "lz4", "lz4_frame", "lzf", "snappy"]


def lz4(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for numcodecs' LZ4: a 4-byte little-endian length, then one block."""
    decode = find_function("imagecodecs", "lz4_decode")
    slow = None if decode else require_function("lz4", ("numcodecs.lz4", "decompress"))
    limit = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        view = as_octets(data).data
        if view.nbytes < 4:
            raise CodecError("the data is too short for its length field of 4 bytes")
        size = int.from_bytes(view[:4], "little")
        if size > limit:
            raise CodecError(f"the data declares {size} bytes, but the chunk has only {limit}")
        room = out if out is not None and size == limit else np.empty(size, np.uint8)
        filled: Data = decode(view[4:], out=room) if decode else slow(data, room)  # type: ignore[misc]
        return room if len(filled) == size else filled

    return DecodeStep("lz4", run, form.compressor_output(), fills=form.exact, uses_library=True)


def lz4_frame(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for the LZ4 frame format."""
    decode = require_function("lz4_frame", ("imagecodecs", "lz4f_decode"))
    limit = form.limit

    def whole(data: Data, room: Octets) -> Data:
        filled: Data = decode(data, out=room)
        # The library stops silently at the end of the buffer, so the buffer has one byte more than
        # needed.
        if len(filled) == len(room):
            raise CodecError(f"the data decodes to more than {len(room) - 1} bytes")
        return filled

    def run(data: Data, out: Octets | None) -> Data:
        if out is None:
            return decode_growing(lambda room: whole(data, room), 4 * len(data), limit + 1)
        return whole(data, np.empty(limit + 1, np.uint8))

    return DecodeStep("lz4_frame", run, form.compressor_output(), uses_library=True)


def hdf5_lz4(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for HDF5's filter 32004: total and block size, then blocks that are stored as
    they are where LZ4 gains nothing.
    """
    decode = require_function("hdf5_lz4", ("imagecodecs", "lz4_decode"))
    limit = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        view = as_octets(data).data
        if view.nbytes < 12:
            raise CodecError("the data is too short for its size fields of 12 bytes")
        total, block = struct.unpack_from(">QI", view)
        if total > limit:
            raise CodecError(f"the data declares {total} bytes, but the chunk has only {limit}")
        room = out if out is not None and total == limit else np.empty(total, np.uint8)
        decode_blocks(decode, view, 12, room, min(block, total) if block else total, bare=True)
        return room

    return DecodeStep("hdf5_lz4", run, form.compressor_output(), fills=form.exact, uses_library=True)


def decode_blocks(decode: Function, view: memoryview, offset: int, room: Octets, block: int, *, bare: bool) -> int:
    """Decode blocks, each behind its 4-byte big-endian size, until `room` is full; return the
    offset of their end.

    Parameters
    ----------
    decode
        Decodes one block into a given buffer.
    view
        The encoded data.
    offset
        Offset of the first block's size.
    room
        Output buffer.
    block
        The output size of every block but the last.
    bare
        Whether a block that is as long as its output is stored uncompressed.
    """
    size = room.size
    for start in range(0, size, block) if size else ():
        length = min(block, size - start)
        if offset + 4 > view.nbytes:
            raise CodecError("the data is truncated: its last block is missing")
        packed = int.from_bytes(view[offset : offset + 4], "big")
        offset += 4
        if packed > view.nbytes - offset:
            raise CodecError(f"the data is truncated: a block declares {packed} bytes, {view.nbytes - offset} are left")
        piece = view[offset : offset + packed]
        part = room[start : start + length]
        if bare and packed == length:
            part[:] = np.frombuffer(piece, np.uint8)
        elif len(decode(piece, out=part)) != length:
            raise CodecError(f"a block does not decode to {length} bytes")
        offset += packed
    return offset


def lzf(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for LZF, h5py's filter 32000."""
    return library_step("lzf", "lzf_decode", form)


def snappy(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for a bare Snappy block."""
    return library_step("snappy", "snappy_decode", form)


def brotli(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for a Brotli stream."""
    return library_step("brotli", "brotli_decode", form)
