"""Read or reduce elements of one chunk by offset, size and encoding: the contract of active
storage.

`read` and `reduce` load and decode the chunk here, or next to the data on a server that `insitu
serve` runs (`active=`). They know no files and formats, only an offset, a size, an encoding, and
spans of the decoded elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.client import Active
from insitu.model import Encoding, VirtualArray
from insitu.reading import read_array
from insitu.reducing.chunk_storage import Spans, chunk_array, parse_encoding, spans_selection
from insitu.reducing.reduce import statistics

__all__ = ["read", "reduce"]


def read(
    url: str,
    offset: int = 0,
    size: int | None = None,
    encoding: Encoding | Mapping[str, Any] | npt.DTypeLike = "u1",
    spans: Spans | None = None,
    *,
    shape: Sequence[int] | None = None,
    active: str | None = None,
    active_required: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> npt.NDArray[Any]:
    """Return elements of one chunk.

    Parameters
    ----------
    url, offset, size
        Where the chunk's bytes lie; without a size, up to the end of the file.
    encoding
        An `Encoding`; or `{"dtype": "<f4", "codecs": [{"id": "shuffle", "elementsize": 4},
        {"id": "zlib"}]}`, in the order of writing; or just a type.
    spans
        `(first, count)` of elements of the decoded chunk, in C order, as `Selection.spans()` gives
        them; if not given, the whole chunk in its shape.
    shape
        The shape of the chunk; may be left out if nothing is compressed.
    active, active_required
        Address of a server that reads next to the data, and whether it is an error if it cannot.
    storage_options
        See `insitu.scan`.

    Examples
    --------
    >>> import numpy, tempfile, zlib
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(zlib.compress(numpy.arange(12, dtype="<i4").tobytes())), file.flush()
    ...     read(file.name, 0, None, {"dtype": "<i4", "codecs": [{"id": "zlib"}]}, [(2, 3), (9, 1)], shape=(3, 4))
    array([2, 3, 4, 9], dtype=int32)
    """
    array, selection = _array_and_selection(url, offset, size, encoding, spans, shape)
    if active is not None:
        return Active(active, active_required).read(array, selection, storage_options=storage_options)
    return read_array(array, selection, storage_options=storage_options)


def reduce(
    url: str,
    offset: int = 0,
    size: int | None = None,
    encoding: Encoding | Mapping[str, Any] | npt.DTypeLike = "u1",
    spans: Spans | None = None,
    method: str | Sequence[str] = "sum",
    *,
    shape: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    skipna: bool | None = None,
    q: Any = None,
    edges: Any = None,
    active: str | None = None,
    active_required: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Return a statistic of elements of one chunk.

    Parameters
    ----------
    url, offset, size, encoding, spans, shape, active, active_required, storage_options
        As for `read`.
    method
        A statistic of `insitu.reduce`; or several, which are computed in one pass and returned by
        name.
    axes
        The axes of the chunk to reduce, without spans; all if not given.
    skipna
        Whether to skip NaN; by default yes for floating-point values.
    q, edges
        As for `insitu.reduce`.

    Examples
    --------
    >>> import numpy, tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(numpy.arange(12, dtype="<i4").tobytes()), file.flush()
    ...     int(reduce(file.name, 8, 40, "<i4", [(0, 2), (9, 1)], "max"))
    11
    """
    array, selection = _array_and_selection(url, offset, size, encoding, spans, shape)
    methods = [method] if isinstance(method, str) else list(method)
    take = statistics if active is None else Active(active, active_required).statistics
    found = take(
        array, methods, axes=axes, selection=selection, skipna=skipna, q=q, edges=edges, storage_options=storage_options
    )
    return found[method] if isinstance(method, str) else found


def _array_and_selection(
    url: str,
    offset: int,
    size: int | None,
    encoding: Encoding | Mapping[str, Any] | npt.DTypeLike,
    spans: Spans | None,
    shape: Sequence[int] | None,
) -> tuple[VirtualArray, Any]:
    chain = parse_encoding(encoding)
    if spans is None:
        return chunk_array(url, offset, size, chain, shape), ...
    flat = None if shape is None else (int(np.prod(shape, dtype=np.int64)),)
    array = chunk_array(url, offset, size, chain, flat)
    return array, spans_selection(spans, array.size)
