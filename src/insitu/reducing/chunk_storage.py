"""What does storage do that decodes next to the data? It loads one chunk's bytes, undoes its encoding, and keeps only the wanted parts.

The founding contract: `(offset, size, encoding, [(first, many) …])`, spans of elements of the decoded chunk. A chunk is an array of one cell
here, so it is read and reduced by the same code as any other, in this process or on a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs import registry
from insitu.codecs.buffer_spec import Data, Form, octets
from insitu.errors import CodecError, ModelError, SelectionError
from insitu.model import Axis, Codec, Columns, Encoding, Selection, Source, Tile, VirtualArray

__all__ = ["chunk_array", "encoding_of", "inflated", "spans_selection"]

Spans = Sequence[tuple[int, int]]


def encoding_of(encoding: Encoding | Mapping[str, Any] | npt.DTypeLike) -> Encoding:
    """An encoding from an `Encoding`, from `{"dtype": …, "codecs": [{"id" or "name": …, …}]}` in the order of writing, or from a bare type.

    Examples
    --------
    >>> encoding_of({"dtype": "<f4", "codecs": [{"id": "shuffle", "elementsize": 4}, {"id": "zlib"}]}).codecs[1].name
    'zlib'
    """
    if isinstance(encoding, Encoding):
        return encoding
    if not isinstance(encoding, Mapping):
        return Encoding(np.dtype(encoding))
    said: Mapping[str, Any] = encoding
    unknown = set(said) - {"dtype", "codecs", "order", "fill"}
    if unknown or "dtype" not in said:
        raise ModelError(
            f"an encoding has dtype, codecs, order and fill, not {', '.join(sorted(unknown)) or 'no dtype'}"
        )
    codecs = []
    for codec in said.get("codecs") or ():
        rest = dict(codec)
        name = rest.pop("id", None) or rest.pop("name", None)
        if not isinstance(name, str):
            raise ModelError("a codec needs an id")
        codecs.append(Codec(name, rest.pop("configuration", rest)))
    order = said.get("order")
    return Encoding(np.dtype(said["dtype"]), tuple(codecs), None if order is None else tuple(order), said.get("fill"))


def chunk_array(
    url: str, offset: int, size: int | None, encoding: Encoding, shape: Sequence[int] | None
) -> VirtualArray:
    """The array that one chunk makes.

    Parameters
    ----------
    url, offset, size
        Where its bytes lie; without a size, up to the end of the object.
    encoding
        How they were encoded.
    shape
        Of the chunk; not needed where the size says how many elements there are.
    """
    itemsize = encoding.dtype.itemsize
    if shape is None:
        if encoding.codecs or size is None or size % itemsize:
            raise ModelError(
                "nobody knows how many elements the chunk holds", url=url, offset=offset, hint="Give the chunk's shape"
            )
        shape = (size // itemsize,)
    if offset < 0 or (size is not None and size < 0) or any(length < 0 for length in shape):
        raise ModelError(f"no chunk lies at offset {offset}, size {size}, shape {tuple(shape)}", url=url)
    axes = tuple(Axis.regular(length, max(length, 1)) for length in shape)
    columns = Columns(
        (1,) * len(axes), (Source(url),), np.asarray(0), np.asarray(offset), np.asarray(-1 if size is None else size)
    )
    grid = tuple(axis.count for axis in axes)
    if 0 in grid:
        columns = Columns.unwritten(grid)
    dims = tuple(f"dim_{i}" for i in range(len(axes)))
    return VirtualArray.of(Tile(axes, (encoding,), columns), dims=dims)


def spans_selection(spans: Spans, size: int) -> Selection:
    """The elements of spans, one behind the other, of a flat chunk of so many elements."""
    parts = []
    for first, many in spans:
        if first < 0 or many < 0 or first + many > size:
            raise SelectionError(f"the span of {many} elements from {first} leaves a chunk of {size}")
        parts.append(np.arange(first, first + many, dtype=np.int64))
    return Selection.of((np.concatenate(parts) if parts else np.zeros(0, np.int64),), (size,))


def inflated(data: Data, codecs: Sequence[Codec], limit: int) -> npt.NDArray[np.uint8]:
    """The decoded bytes of a chunk whose decoded size nobody knows.

    Parameters
    ----------
    data
        As stored.
    codecs
        In the order of writing; those that need to know a shape cannot be undone here.
    limit
        Bytes that may come out: more is an attack on memory.
    """
    form = Form(limit, False)
    steps = []
    for codec in codecs:
        made = registry.step(codec, form)
        steps.append(made)
        form = made.encoded
    for made in reversed(steps):
        try:
            data = made.run(data, None)
        except CodecError:
            raise
        except Exception as problem:
            # Every library has errors of its own (zlib.error, isal's, imagecodecs'), and all mean the same here.
            raise CodecError(f"{made.name}: {problem}", codec=made.name) from problem
    whole = octets(data)
    if whole.size > limit:
        raise CodecError(f"the data holds more than the {limit} bytes that are allowed")
    return whole
