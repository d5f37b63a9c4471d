"""Single chunks as arrays: byte range, encoding and spans of elements, for storage that decodes.

The contract of such storage is `(offset, size, encoding, [(first, count) …])`: load the bytes of
one chunk, decode them, and keep only these spans of elements. A chunk is represented as an array
with one cell, so the same code reads and reduces it as any other array, here or on a server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs import registry
from insitu.codecs.buffer_spec import BufferSpec, Data, as_octets
from insitu.errors import CodecError, ModelError, SelectionError
from insitu.model import Axis, Codec, Columns, Encoding, Selection, Source, Tile, VirtualArray

__all__ = ["Spans", "StoredChunk", "chunk_array", "decode_unknown_size", "parse_encoding", "spans_selection"]

Spans = Sequence[tuple[int, int]]
"""`(first, count)` of elements."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """One chunk: where its bytes lie, and how they are encoded."""

    url: str
    offset: int = 0
    size: int | None = None
    """Stored bytes; None: up to the end of the file."""
    encoding: Encoding | Mapping[str, Any] | npt.DTypeLike = "u1"
    """An `Encoding`; or `{"dtype": "<f4", "codecs": [{"id": "shuffle", "elementsize": 4},
    {"id": "zlib"}]}`, in the order of writing; or just a type.
    """
    shape: Sequence[int] | None = None
    """Shape of the decoded chunk; may be left out if nothing is compressed."""

    def select(self, spans: Spans | None) -> tuple[VirtualArray, Any]:
        """Return the chunk as an array, and the selection of some spans of its elements in C order.

        With spans the array is flat; None: all elements, in the chunk's shape.
        """
        encoding = parse_encoding(self.encoding)
        if spans is None:
            return chunk_array(self.url, self.offset, self.size, encoding, self.shape), ...
        flat = None if self.shape is None else (math.prod(self.shape),)
        array = chunk_array(self.url, self.offset, self.size, encoding, flat)
        return array, spans_selection(spans, array.size)


def parse_encoding(encoding: Encoding | Mapping[str, Any] | npt.DTypeLike) -> Encoding:
    """Return an encoding, from an `Encoding`, a mapping, or a bare type.

    The mapping is `{"dtype": …, "codecs": [{"id" or "name": …, …}]}`, codecs in the order of
    encoding.

    Examples
    --------
    >>> parse_encoding({"dtype": "<f4", "codecs": [{"id": "shuffle", "elementsize": 4}, {"id": "zlib"}]}).codecs[1].name
    'zlib'
    """
    if isinstance(encoding, Encoding):
        return encoding
    if not isinstance(encoding, Mapping):
        return Encoding(np.dtype(encoding))
    entries: Mapping[str, Any] = encoding
    unknown = set(entries) - {"dtype", "codecs", "order", "fill"}
    if unknown or "dtype" not in entries:
        wrong = f"unknown: {', '.join(sorted(unknown))}" if unknown else "dtype is missing"
        raise ModelError(f"an encoding needs dtype and may have codecs, order and fill; {wrong}")
    codecs = []
    for codec in entries.get("codecs") or ():
        rest = dict(codec)
        name = rest.pop("id", None) or rest.pop("name", None)
        if not isinstance(name, str):
            raise ModelError("every codec of an encoding needs an id")
        codecs.append(Codec(name, rest.pop("configuration", rest)))
    order = entries.get("order")
    return Encoding(
        np.dtype(entries["dtype"]), tuple(codecs), None if order is None else tuple(order), entries.get("fill")
    )


def chunk_array(
    url: str, offset: int, size: int | None, encoding: Encoding, shape: Sequence[int] | None
) -> VirtualArray:
    """Return one chunk as an array.

    Parameters
    ----------
    url, offset, size
        Its byte range; without a size, up to the end of the object.
    encoding
        How its values are encoded.
    shape
        Shape of the chunk; not needed if it has no codecs and the size is known.
    """
    itemsize = encoding.dtype.itemsize
    if shape is None:
        if encoding.codecs or size is None or size % itemsize:
            raise ModelError(
                "cannot tell how many elements the chunk has", url=url, offset=offset, hint="Give its shape"
            )
        shape = (size // itemsize,)
    if offset < 0 or (size is not None and size < 0) or any(length < 0 for length in shape):
        raise ModelError(
            f"offset, size and shape of a chunk must not be negative: {offset}, {size}, {tuple(shape)}", url=url
        )
    axes = tuple(Axis.regular(length, max(length, 1)) for length in shape)
    columns = Columns(
        (1,) * len(axes), (Source(url),), np.asarray(0), np.asarray(offset), np.asarray(-1 if size is None else size)
    )
    grid = tuple(axis.count for axis in axes)
    if 0 in grid:
        columns = Columns.of_unwritten(grid)
    dims = tuple(f"dim_{i}" for i in range(len(axes)))
    return VirtualArray.of(Tile(axes, (encoding,), columns), dims=dims)


def spans_selection(spans: Spans, size: int) -> Selection:
    """Return the selection of some spans, one after the other, of a flat chunk of so many
    elements.
    """
    parts = []
    for first, many in spans:
        if first < 0 or many < 0 or first + many > size:
            raise SelectionError(f"the span of {many} elements from {first} lies outside of a chunk of {size} elements")
        parts.append(np.arange(first, first + many, dtype=np.int64))
    return Selection.of((np.concatenate(parts) if parts else np.zeros(0, np.int64),), (size,))


def decode_unknown_size(data: Data, codecs: Sequence[Codec], limit: int) -> npt.NDArray[np.uint8]:
    """Return the decoded bytes of a chunk whose decoded size is unknown.

    Parameters
    ----------
    data
        The stored bytes.
    codecs
        Its codecs, in the order of encoding; codecs that need a shape are not possible.
    limit
        Largest decoded size; more is an error, because it may be an attack on memory.
    """
    form = BufferSpec(limit, False)
    steps = []
    for codec in codecs:
        made = registry.make_step(codec, form)
        steps.append(made)
        form = made.encoded
    for made in reversed(steps):
        try:
            data = made.run(data, None)
        except CodecError:
            raise
        except Exception as problem:
            # Each library has its own exceptions (zlib.error, isal, imagecodecs);
            # all mean damaged data here.
            raise CodecError(f"{made.name}: {problem}", codec=made.name) from problem
    whole = as_octets(data)
    if whole.size > limit:
        raise CodecError(f"the chunk decodes to more than the limit of {limit} bytes")
    return whole
