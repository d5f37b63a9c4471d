"""How do bit planes become elements again?

Bitshuffle works in blocks. Alone it changes the order of bits only; HDF5's filter 32008 can compress each block by LZ4 or Zstandard, and then
begins with the size of the output and of a block (12 bytes), big-endian.
"""

from __future__ import annotations

import struct

import numpy as np

from insitu.codecs.buffer_spec import Configuration, Data, Form, Octets, Step, octets
from insitu.codecs.compressors.lz import blocks
from insitu.codecs.libraries import Function, need
from insitu.errors import CodecError

__all__ = ["bitshuffle"]

TARGET_BLOCK = 8192
MULTIPLE = 8
SMALLEST = 128


def bitshuffle(configuration: Configuration, form: Form) -> Step:
    """Prepare from `elementsize`, `blocksize` (elements, 0: the library's choice) and `cname` (none, lz4 or zstd)."""
    size = int(configuration.get("elementsize", configuration.get("itemsize", 1)))
    block = int(configuration.get("blocksize", 0))
    compressor = str(configuration.get("cname", "none"))
    if size < 1 or block < 0 or block % MULTIPLE:
        raise CodecError(f"bitshuffle of elements of {size} bytes in blocks of {block}", codec="bitshuffle")
    untangle = need("bitshuffle", ("imagecodecs", "bitshuffle_decode"))
    if compressor == "none":

        def run(data: Data, out: Octets | None) -> Data:
            room = np.empty(octets(data).size, np.uint8) if out is None else out
            _untangle(untangle, octets(data), size, block or _default(size), room)
            return room

        return Step("bitshuffle", run, form.as_bytes(), fills=form.exact)
    decode = need("bitshuffle", ("imagecodecs", f"{compressor}_decode"))
    return _compressed(form, size, untangle, decode)


def _compressed(form: Form, size: int, untangle: Function, decode: Function) -> Step:
    limit = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        view = octets(data).data
        if view.nbytes < 12:
            raise CodecError("the data ends before its sizes are given")
        total, block_bytes = struct.unpack_from(">QI", view)
        if total > limit:
            raise CodecError(f"the data declares {total} bytes, more than {limit}")
        block = block_bytes // size
        if block % MULTIPLE:
            raise CodecError(f"a block of {block} elements is no multiple of {MULTIPLE}")
        block = block or _default(size)
        planes = np.empty(total, np.uint8)
        # Whole blocks, then one of what is left in multiples of eight elements; the last few elements are stored bare.
        whole = total - total % (MULTIPLE * size)
        end = blocks(decode, view, 12, planes[:whole], block * size, bare=False)
        tail = np.frombuffer(view[end:], np.uint8)
        if tail.size < total - whole:
            raise CodecError("the data ends before its last elements")
        planes[whole:] = tail[: total - whole]
        room = out if out is not None and total == limit else np.empty(total, np.uint8)
        _untangle(untangle, planes, size, block, room)
        return room

    return Step("bitshuffle", run, form.compressed(), fills=form.exact)


def _untangle(untangle: Function, planes: Octets, size: int, block: int, room: Octets) -> None:
    if planes.size != room.size:
        raise CodecError(f"{planes.size} bytes do not become {room.size}")
    # Of an array the library would take the array's own element size, whatever it is told.
    untangle(planes.data, itemsize=size, blocksize=block, out=room.data)


def _default(size: int) -> int:
    """Return the block, in elements, that the library chooses."""
    return max(TARGET_BLOCK // size // MULTIPLE * MULTIPLE, SMALLEST)
