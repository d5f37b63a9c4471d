"""Decoder of Blosc2 data: bare chunks and contiguous frames of chunks.

HDF5's filter 32026 and python-blosc2 store a *contiguous frame*: a header in msgpack, the chunks,
an index of their offsets, a trailer (c-blosc2, README_CFRAME_FORMAT.rst). The frame may hold an
n-dimensional array (b2nd): then each of its chunks, and each block of a chunk, is a small padded
box that is copied to its place.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from itertools import product

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.compressors.blosc import read_header_sizes
from insitu.codecs.libraries import Function, require_function
from insitu.errors import CodecError

__all__ = ["blosc2"]

MAGIC = b"b2frame\0"
SHORTEST = 87
"""Bytes of a frame's header without metalayers."""
LOOSE, PADDING = 16, 1 << 20
"""Limits of the size of a padded chunk relative to the array: larger ones could exhaust the memory.
"""
SPECIAL_ZERO, SPECIAL_NAN, SPECIAL_UNINITIALISED = 1, 2, 4
"""Kinds of chunks without data: the highest bit of the offset is set, the kind is in bits 56-58."""


def blosc2(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for chunks and frames."""
    decode = require_function("blosc2", ("imagecodecs", "blosc2_decode"))
    limit = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        view = as_octets(data).data
        if view[2:10] == MAGIC:
            frame = _Frame.of(view, limit)
            room = out if out is not None and frame.nbytes == limit else np.empty(frame.nbytes, np.uint8)
            frame.decode(decode, room)
            return room
        size, _ = read_header_sizes(view, limit)
        room = out if out is not None and size == limit else np.empty(size, np.uint8)
        filled: Data = decode(view, numthreads=1, out=room)
        return room if len(filled) == size else filled

    return DecodeStep("blosc2", run, form.compressor_output(), fills=form.exact, uses_library=True)


@dataclass(frozen=True, slots=True)
class _FrameShapes:
    """The shapes of an n-dimensional frame."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    block: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Frame:
    """A contiguous frame's header."""

    view: memoryview
    nbytes: int
    """Bytes of the output."""
    header: int
    """Size of the header: the chunks begin there, and their offsets count from there."""
    packed: int
    """Bytes of all chunks; the index of offsets follows them."""
    typesize: int
    chunksize: int
    grid: _FrameShapes | None

    @classmethod
    def of(cls, view: memoryview, limit: int) -> _Frame:
        if view.nbytes < SHORTEST:
            raise CodecError("the data is shorter than a Blosc2 frame's header")
        # Fixed offsets (msgpack, big-endian, one type byte before each): header size 11, frame size
        # 16, decoded size 30, encoded size 39, type size 48, block size 53, chunk size 58.
        (header,) = struct.unpack_from(">i", view, 11)
        (length,) = struct.unpack_from(">Q", view, 16)
        nbytes, packed = struct.unpack_from(">q", view, 30)[0], struct.unpack_from(">q", view, 39)[0]
        (typesize,) = struct.unpack_from(">i", view, 48)
        (chunksize,) = struct.unpack_from(">i", view, 58)
        if not SHORTEST <= header <= view.nbytes or length > view.nbytes or not 0 <= packed <= view.nbytes - header:
            raise CodecError("the sizes in the Blosc2 frame's header do not fit the data")
        if typesize < 1 or chunksize < 0 or nbytes < 0:
            raise CodecError("the sizes in the Blosc2 frame's header are negative")
        grid = _read_shapes(bytes(view[SHORTEST:header]))
        if grid is not None:
            # The declared size counts padding of the outermost chunks too; the array itself is what
            # its shape says.
            nbytes = math.prod(grid.shape) * typesize
        if nbytes > limit:
            raise CodecError(f"the Blosc2 frame declares {nbytes} bytes, but the chunk has only {limit}")
        return cls(view, nbytes, header, packed, typesize, chunksize, grid)

    def decode(self, decode: Function, out: Octets) -> None:
        """Decode all chunks into `out`."""
        if self.nbytes == 0:
            return
        if self.grid is None:
            count = -(-self.nbytes // self.chunksize) if self.chunksize else 0
            for index, offset in enumerate(self._offsets(decode, count)):
                part = out[index * self.chunksize : (index + 1) * self.chunksize]
                if self._chunk(decode, int(offset), part) != part.size:
                    raise CodecError(f"chunk {index} of the Blosc2 frame does not decode to {part.size} bytes")
            return
        grid = self.grid
        target = out.view(f"V{self.typesize}").reshape(grid.shape)
        ranges = [range(-(-length // size)) for length, size in zip(grid.shape, grid.chunk, strict=True)]
        padded = tuple(-(-size // block) * block for size, block in zip(grid.chunk, grid.block, strict=True))
        if math.prod(padded) * self.typesize > LOOSE * self.nbytes + PADDING:
            raise CodecError(f"the Blosc2 frame has chunks of shape {padded}, too large for an array of {grid.shape}")
        room = np.empty(math.prod(padded) * self.typesize, np.uint8)
        offsets = self._offsets(decode, math.prod(len(indices) for indices in ranges))
        for cell, offset in zip(product(*ranges), offsets, strict=True):
            if self._chunk(decode, int(offset), room) != room.size:
                raise CodecError(f"chunk {cell} of the Blosc2 frame does not decode to {room.size} bytes")
            box = _join_blocks(room.view(f"V{self.typesize}"), padded, grid.block)
            place = tuple(slice(i * size, (i + 1) * size) for i, size in zip(cell, grid.chunk, strict=True))
            part = target[place]
            part[...] = box[tuple(slice(length) for length in part.shape)]

    def _offsets(self, decode: Function, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        index = self.view[self.header + self.packed :]
        size, encoded = read_header_sizes(index, 8 * count)
        if size != 8 * count:
            raise CodecError(f"the Blosc2 frame has an index of {size} bytes for {count} chunks")
        offsets = np.empty(count, "<i8")
        if len(decode(index[:encoded], numthreads=1, out=offsets.view(np.uint8))) != size:
            raise CodecError("the Blosc2 frame's index is damaged")
        return offsets.astype(np.int64)

    def _chunk(self, decode: Function, offset: int, out: Octets) -> int:
        if offset < 0:
            kind = (offset >> 56) & 0x7F
            if kind == SPECIAL_NAN and self.typesize in (4, 8):
                out.view(f"f{self.typesize}")[:] = np.nan
            elif kind in (SPECIAL_ZERO, SPECIAL_UNINITIALISED):
                out[:] = 0
            else:
                raise CodecError(f"the Blosc2 frame has a special chunk of unknown kind {kind}")
            return out.size
        if offset > self.packed:
            raise CodecError("a chunk lies outside of the Blosc2 frame")
        chunk = self.view[self.header + offset : self.header + self.packed]
        size, encoded = read_header_sizes(chunk, out.size)
        return len(decode(chunk[:encoded], numthreads=1, out=out[:size]))


def _join_blocks(
    chunk: np.ndarray[tuple[int], np.dtype[np.void]], whole: tuple[int, ...], block: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.void]]:
    """Return the consecutive blocks of a chunk as one box."""
    counts = tuple(size // step for size, step in zip(whole, block, strict=True))
    ndim = len(block)
    mixed = chunk.reshape(counts + block)
    return mixed.transpose([axis for i in range(ndim) for axis in (i, ndim + i)]).reshape(whole)


def _read_shapes(metalayers: bytes) -> _FrameShapes | None:
    """Read the b2nd metalayer: version, ndim, then three arrays of shape, chunk shape and block
    shape (msgpack).
    """
    name = metalayers.find(b"\xa4b2nd\xd2")
    if name < 0:
        return None
    # The table of metalayers gives the offset of the content from the start of the frame.
    (place,) = struct.unpack_from(">i", metalayers, name + 6)
    content = metalayers[place - SHORTEST :]
    try:
        if content[0] != 0xC6:
            raise CodecError("the b2nd metalayer is not a byte string")
        at = 5
        if content[at] & 0xF0 != 0x90:
            raise CodecError("the b2nd metalayer is not an array")
        ndim = content[at + 2]
        at += 3
        shapes = []
        for mark, width in ((0xD3, 8), (0xD2, 4), (0xD2, 4)):
            if content[at] != 0x90 + ndim:
                raise CodecError("the shapes in the b2nd metalayer have different lengths")
            at += 1
            values = []
            for _ in range(ndim):
                if content[at] != mark:
                    raise CodecError("the b2nd metalayer has numbers of another type")
                values.append(int.from_bytes(content[at + 1 : at + 1 + width], "big", signed=True))
                at += 1 + width
            shapes.append(tuple(values))
    except IndexError as error:
        raise CodecError("the b2nd metalayer ends too early") from error
    shape, chunk, block = shapes
    if min(shape, default=0) < 0 or min(chunk, default=1) < 1 or min(block, default=1) < 1:
        raise CodecError(f"the b2nd metalayer has invalid shapes: {shape}, {chunk}, {block}")
    return _FrameShapes(shape, chunk, block)
