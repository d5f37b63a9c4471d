"""Decoder of chunks: runs the codec chain of an encoding backwards, from bytes to an array.

The chain of an encoding is prepared once for a shape and a filter mask (which steps, how many bytes
each must yield) and cached; a chunk then runs through the steps from the last codec to the first.
Bytes between two steps live in buffers of the thread, the last step writes into the result where it
can, and the size of every step's output is checked. Any failure raises `CodecError`: bytes that
were not decoded are never returned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs import registry
from insitu.codecs.aligned_memory import allocate_chunk
from insitu.codecs.buffer_spec import BufferSpec, Data, DecodeStep, Octets, as_octets
from insitu.codecs.chunk_batch import ChunkBatch, find_placing_kernel
from insitu.codecs.linked_libraries import get_decode_boxes, get_measure_chunks, linked_libraries
from insitu.codecs.outside_values import Fetch, OutsideValues
from insitu.codecs.thread_buffers import get_buffer
from insitu.errors import CodecError, InsituError
from insitu.model import Encoding

__all__ = ["Decoder", "Fetch", "decode", "prepare"]

CHUNK_SLOT = 2
"""Slot of the thread's buffer for a decoded chunk of which a part is taken.

0 and 1 are for bytes between steps.
"""


def decode(
    data: Data,
    encoding: Encoding,
    shape: tuple[int, ...],
    *,
    filter_mask: int = 0,
    out: NDArray[Any] | None = None,
    fetch: Fetch | None = None,
) -> NDArray[Any]:
    """Return the array that a chunk's bytes hold.

    Parameters
    ----------
    data
        The chunk as stored.
    encoding
        How it was encoded.
    shape
        The chunk's stored shape, padding included.
    filter_mask
        Bit i set: `encoding.codecs[i]` was skipped when this chunk was written. Above these bits: the
        mark that its header must have, for codecs that check it.
    out
        Where to: the same shape and dtype. Decoded straight into it where it is contiguous and the
        library can.
    fetch
        Reads ranges of the chunk's file; HDF5's values of varying length lie outside of the chunk
        and need it.

    Returns
    -------
    ndarray
        `out` if given; else an array that may share memory with `data` where there was nothing to
        decode, or be a transposed view.

    Raises
    ------
    CodecError
        If the bytes do not fit the encoding. `ChecksumError`: a checksum is wrong;
        `UnknownCodecError`: there is no decoder for a codec.

    Examples
    --------
    >>> import zlib, numpy as np
    >>> from insitu.model import Codec, Encoding
    >>> data = zlib.compress(np.arange(4, dtype="<i2").tobytes())
    >>> decode(data, Encoding(np.dtype("<i2"), (Codec("zlib"),)), (2, 2))
    array([[0, 1],
           [2, 3]], dtype=int16)
    """
    return prepare(encoding, shape, filter_mask)(data, out, fetch)


@lru_cache(maxsize=4096)
def prepare(encoding: Encoding, shape: tuple[int, ...], filter_mask: int = 0) -> Decoder:
    """Return the decoder of all chunks of one encoding, shape and filter mask."""
    order = encoding.order
    if order is not None and len(order) != len(shape):
        raise CodecError(f"the encoding orders {len(order)} axes, but the chunk has {len(shape)}")
    stored = shape if order is None else tuple(shape[axis] for axis in order)
    codecs, mark = encoding.codecs, filter_mask >> len(encoding.codecs)
    records: OutsideValues | None = None
    form = BufferSpec.array(encoding.dtype, stored)
    skipped = 0
    if codecs and codecs[0].name in registry.OUTSIDE_VALUES:
        if filter_mask & 1:
            raise CodecError(
                "the filter mask skips a codec that refers to values outside of the chunk; it cannot be skipped",
                codec=codecs[0].name,
            )
        records = registry.make_outside_values(codecs[0])
        form = BufferSpec.array(records.dtype, stored)
        skipped = 1
    dtype = records.dtype if records is not None else encoding.dtype
    steps: list[tuple[DecodeStep, int]] = []
    for position, codec in enumerate(codecs[skipped:], skipped):
        if filter_mask >> position & 1:
            continue
        if mark and codec.name in registry.CHECKS_MARK:
            codec = replace(codec, configuration={**codec.configuration, "mark": mark})
        step = registry.make_step(codec, form)
        if not step.idle:
            steps.append((step, form.limit if form.exact else -1))
        form = step.encoded
    if dtype.hasobject and not steps:
        raise CodecError("values of varying length need a codec that decodes them, such as vlen-utf8; there is none")
    steps.reverse()
    back = None if order is None else tuple(int(axis) for axis in np.argsort(order))
    # A chunk without codecs has one exact size as well.
    nbytes = math.prod(stored) * dtype.itemsize
    chunk_bytes = form.limit if form.exact else -1
    return Decoder(tuple(steps), dtype, stored, back, nbytes, chunk_bytes, records, _find_batch_codec(steps, nbytes))


@dataclass(frozen=True, slots=True)
class Decoder:
    """A codec chain prepared for chunks of one shape; threads may share it."""

    steps: tuple[tuple[DecodeStep, int], ...]
    """Steps in the order of decoding, each with the number of bytes that it must yield (-1:
    unknown).
    """
    dtype: np.dtype[Any]
    """Type of the decoded elements; of the references to them, for values outside of the chunk."""
    stored: tuple[int, ...]
    """Shape of the chunk in the order in which the elements are stored."""
    back: tuple[int, ...] | None
    """The transposition that undoes the encoding's order."""
    nbytes: int
    """Bytes of the decoded chunk."""
    chunk_bytes: int
    """Bytes of the chunk as stored, if the chain does not compress; -1: any."""
    records: OutsideValues | None
    """Resolves references to values outside of the chunk, if there are any."""
    batch_codec: str | None = None
    """Codec that the kernels decompress themselves, many chunks in one call; with two steps, the
    chunks are shuffled too.
    """
    was_decoded: bool = False
    """Whether chunks are given decoded, in the order of their elements in storage, as a cache has them."""

    @property
    def is_raw(self) -> bool:
        """Whether the bytes of a stored chunk are its elements."""
        return not self.steps and not self.was_decoded and self.records is None

    @property
    def for_decoded_chunks(self) -> Decoder:
        """The same for chunks that were decoded before."""
        if not self.steps or self.records is not None or self.dtype.hasobject:
            return self
        return replace(self, steps=(), chunk_bytes=self.nbytes, batch_codec=None, was_decoded=True)

    def to_stored_bytes(self, chunk: NDArray[Any]) -> memoryview:
        """Return the bytes of a decoded chunk, for `for_decoded_chunks`."""
        values = chunk if self.back is None else chunk.transpose(np.argsort(self.back))
        return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data

    def __call__(self, data: Data, out: NDArray[Any] | None = None, fetch: Fetch | None = None) -> NDArray[Any]:
        """Decode one chunk; see `decode`."""
        if self.records is not None or self.dtype.hasobject:
            values = self._decode_objects(data, fetch)
            if out is None:
                return values
            out[...] = values
            return out
        if out is not None:
            if out.dtype == self.dtype and self.back is None and out.flags.c_contiguous and out.shape == self.stored:
                self._decode_into(data, out.reshape(-1).view(np.uint8))
            else:
                self.place(data, (slice(None),) * len(self.stored), out)
            return out
        if not self.steps:
            values = self._check_size(data).view(self.dtype).reshape(self.stored)
        else:
            values = allocate_chunk(self.stored, self.dtype)
            self._decode_into(data, values.reshape(-1).view(np.uint8))
        return values if self.back is None else values.transpose(self.back)

    def place(self, data: Data, box: tuple[slice, ...], out: NDArray[Any], fetch: Fetch | None = None) -> None:
        """Decode one chunk and copy a part of it, in as few passes as possible: `out[...] = decode(...)[box]`.

        `box` has one slice an axis, within the chunk; `out` may have any strides.
        """
        if self.records is not None or self.dtype.hasobject:
            np.copyto(out, self._decode_objects(data, fetch)[box])
            return
        if self.back is None and out.dtype == self.dtype and self.steps and self.nbytes:
            indices = [part.indices(length) for part, length in zip(box, self.stored, strict=True)]
            # Lists, not generators: this runs once a chunk, and chunks may be small.
            if [step for _, _, step in indices] == [1] * len(indices):
                extents = tuple([max(stop - start, 0) for start, stop, _ in indices])
                if out.shape != extents:
                    raise ValueError(f"a box of {extents} does not go into an array of {out.shape}")
                if extents == self.stored and out.flags.c_contiguous:
                    self._decode_into(data, out.reshape(-1).view(np.uint8))
                    return
                last = self.steps[-1][0]
                if last.box is not None:
                    planes = self._run(data, len(self.steps) - 1, None)
                    last.box(planes, self.stored, tuple([start for start, _, _ in indices]), out)
                    return
        if self.steps:
            room = get_buffer(CHUNK_SLOT, self.nbytes)
            self._decode_into(data, room)
        else:
            room = self._check_size(data)
        values = room.view(self.dtype).reshape(self.stored)
        if self.back is not None:
            values = values.transpose(self.back)
        part = values[box]
        if part.shape != out.shape:
            raise ValueError(f"a box of {part.shape} does not go into an array of {out.shape}")
        np.copyto(out, part, casting="equiv")

    def scatter(
        self,
        data: Sequence[Data],
        start: tuple[int, ...],
        extent: tuple[int, ...],
        out: NDArray[Any],
        at: Sequence[tuple[int, ...]] | NDArray[np.int64],
        fetch: Fetch | None = None,
    ) -> None:
        """Decode many chunks and copy the same box of each to its own place; cheaper than many
        calls of `place`.

        Parameters
        ----------
        data
            The chunks as stored; fastest as a `ChunkBatch`.
        start, extent
            The box within each chunk.
        out
            The array that they go to.
        at
            For each chunk where in `out`: a tuple for each, or an array of a row for each.
        fetch
            As for `decode`.

        Raises
        ------
        CodecError
            As `decode` does; `place["number"]` of the error is the position of the chunk in `data`.
        """
        number = 0
        last = self.steps[-1][0] if self.steps else None
        writes_directly = self.back is None and self.records is None and out.dtype == self.dtype
        try:
            if writes_directly and (self.batch_codec is not None or self._can_copy_batch(data)):
                self._scatter_batch(data, start, extent, out, at)
                return
            if isinstance(at, np.ndarray):
                at = list(map(tuple, at.tolist()))
            if writes_directly and last is not None and last.box is not None and self.nbytes:
                box, stored, count = last.box, self.stored, len(self.steps) - 1
                for number, (chunk, place) in enumerate(zip(data, at, strict=True)):  # noqa: B007 (for the error)
                    box(self._run(chunk, count, None), stored, start, out, place, extent)
                return
            box_slices = tuple([slice(s, s + n) for s, n in zip(start, extent, strict=True)])
            for number, (chunk, place) in enumerate(zip(data, at, strict=True)):  # noqa: B007 (for the error)
                outside: tuple[Any, ...] = (..., *[slice(b, b + n) for b, n in zip(place, extent, strict=True)])
                self.place(chunk, box_slices, out[outside], fetch)
        except CodecError as error:
            error.with_context(number=number)
            raise

    def _scatter_batch(
        self,
        data: Sequence[Data],
        start: tuple[int, ...],
        extent: tuple[int, ...],
        out: NDArray[Any],
        at: Sequence[tuple[int, ...]] | NDArray[np.int64],
    ) -> None:
        decode = get_decode_boxes()
        size = self.dtype.itemsize
        # The kernel wants elements of any kind, as long as they have the right size.
        target = out if out.dtype.kind in "iuf" and out.dtype.isnative else out.view(f"V{size}")
        number = 0
        chunks: Any = data if isinstance(data, ChunkBatch) else list(data)
        if isinstance(data, ChunkBatch):
            places: Any = np.ascontiguousarray(at, np.int64)
        else:
            places = list(map(tuple, at.tolist())) if isinstance(at, np.ndarray) else list(at)
        box_slices = tuple([slice(s, s + n) for s, n in zip(start, extent, strict=True)])
        room = get_buffer(0, self.nbytes)
        while number < len(chunks):
            settings = size, len(self.steps) == 2, self.stored, start, extent, target
            rest = chunks[number:]
            rest = rest.columns if isinstance(rest, ChunkBatch) else rest
            number += decode(self.batch_codec, rest, *settings, places[number:], room)
            if number < len(chunks):  # the chain gives the error message, or decodes what the library refused
                outside: tuple[Any, ...] = (
                    ...,
                    *[slice(int(b), int(b) + n) for b, n in zip(places[number], extent, strict=True)],
                )
                try:
                    self.place(chunks[number], box_slices, out[outside])
                except CodecError as error:
                    raise error.with_context(number=number) from error.__cause__
                number += 1

    def _can_copy_batch(self, data: Sequence[Data]) -> bool:
        """Return whether chunks that are not encoded at all can be copied in one call."""
        return (
            not self.steps
            and isinstance(data, ChunkBatch)
            and self.nbytes > 0
            and not self.dtype.hasobject
            and find_placing_kernel() is not None
        )

    def planes(self, data: Data) -> Data | None:
        """Return the byte planes of a shuffled chunk, for callers that join them themselves.

        None if it is not shuffled.
        """
        last = self.steps[-1][0] if self.steps else None
        if last is None or last.name != "shuffle" or last.box is None or not self.nbytes:
            return None
        return self._run(data, len(self.steps) - 1, None) if len(self.steps) > 1 else self._check_size(data)

    def measure(
        self, data: Sequence[Data], span: tuple[int, int], missing: tuple[float, ...], statistics: int
    ) -> list[tuple[float, int, float, float, float]]:
        """Return statistics of the same run of floating-point elements of each chunk, as the kernel
        `measure` does; they are decompressed and measured in one call without the GIL.

        Fewer than all if the chain does more than decompress and unshuffle, if no library for it
        was linked, or if a chunk does not decode: the caller decodes the rest by itself.
        """
        if self.batch_codec is None or self.records is not None:
            return []
        size = self.dtype.itemsize
        settings = self.nbytes // size, get_buffer(0, self.nbytes), size, len(self.steps) == 2
        found: list[tuple[float, int, float, float, float]] = get_measure_chunks()(
            self.batch_codec, list(data), *settings, *span, missing, statistics
        )
        return found

    def fill(self, data: Data, target: Octets) -> None:
        """Decode into a buffer of the chunk's size: the elements in the order in which they are
        stored.
        """
        self._decode_into(data, target)

    def references(self, data: Data) -> NDArray[Any]:
        """Return the references of a chunk of HDF5's values of varying length.

        They are resolved for many chunks at once.
        """
        if self.records is None:
            raise CodecError("the chunk holds its values itself, not references to them")
        room = allocate_chunk(self.stored, self.dtype)
        self._decode_into(data, room.reshape(-1).view(np.uint8))
        return room if self.back is None else room.transpose(self.back)

    def _decode_objects(self, data: Data, fetch: Fetch | None) -> NDArray[Any]:
        if self.records is not None:
            if fetch is None:
                raise CodecError("the values lie outside of the chunk: the file is needed to decode them")
            return self.records.resolve(self.references(data), fetch)
        values = self._run(data, len(self.steps), None)
        if not isinstance(values, np.ndarray) or not values.dtype.hasobject or values.size != math.prod(self.stored):
            raise CodecError(
                f"the data does not hold the {math.prod(self.stored)} values of the chunk", codec=self.steps[-1][0].name
            )
        values = values.reshape(self.stored)
        return values if self.back is None else values.transpose(self.back)

    def _decode_into(self, data: Data, target: Octets) -> None:
        """Decode into a buffer of the chunk's size."""
        if not self.nbytes:
            return
        result = self._run(data, len(self.steps), target) if self.steps else self._check_size(data)
        if result is not target:
            target[:] = as_octets(result)

    def _run(self, data: Data, count: int, target: Octets | None) -> Data:
        """Run the first `count` decoding steps; the last of them writes into `target` if it can."""
        final = count - 1
        slot = 0
        step = None
        if self.chunk_bytes >= 0 and (found := _count_bytes(data)) != self.chunk_bytes:
            raise CodecError(f"the chunk has {found} bytes, but {self.chunk_bytes} bytes are declared")
        try:
            for position in range(count):
                step, nbytes = self.steps[position]
                if not step.fills:
                    data = step.run(data, None)
                elif position == final and target is not None:
                    data = step.run(data, target)
                else:
                    data = step.run(data, get_buffer(slot, nbytes))
                    slot ^= 1
                if nbytes >= 0 and (found := _count_bytes(data)) != nbytes:
                    raise CodecError(
                        f"the data decodes to {found} bytes, but {nbytes} bytes are declared", codec=step.name
                    )
        except MemoryError:
            raise
        except InsituError as error:
            if step is not None:
                error.with_context(codec=step.name)
            raise
        except Exception as error:
            if step is None or not step.uses_library:
                raise  # a defect of ours
            raise CodecError(f"{step.name} cannot decode the data: {error}", codec=step.name) from error
        return data

    def _check_size(self, data: Data) -> Octets:
        whole = as_octets(data)
        if whole.size != self.nbytes:
            raise CodecError(f"the chunk has {whole.size} bytes, but {self.nbytes} bytes are declared")
        return whole


def _find_batch_codec(steps: list[tuple[DecodeStep, int]], nbytes: int) -> str | None:
    """Return the codec that the kernels decompress themselves; None if the chain does more than
    decompress and unshuffle, or no library for it was linked.
    """
    if not steps or not nbytes or any(size != nbytes for _, size in steps):
        return None
    if len(steps) > 2 or (len(steps) == 2 and (steps[1][0].name != "shuffle" or steps[1][0].box is None)):
        return None
    name = steps[0][0].name
    return name if name in linked_libraries() else None


def _count_bytes(data: Data) -> int:
    return data.nbytes if isinstance(data, (np.ndarray, memoryview)) else len(data)
