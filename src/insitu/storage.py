"""Read or reduce elements of one chunk by offset, size and encoding: the contract of active
storage.

`read` and `reduce` load and decode the chunk here, or next to the data on a server that `insitu
serve` runs (`active=`). They know no files and formats, only an offset, a size, an encoding, and
spans of the decoded elements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy.typing as npt

from insitu.active.answer import answer_array
from insitu.active.client import Active
from insitu.reading import ReadContext, read_array
from insitu.reducing.chunk_storage import Spans, StoredChunk
from insitu.reducing.query import ReductionQuery

__all__ = ["StoredChunk", "read", "reduce"]


def read(
    chunk: StoredChunk,
    spans: Spans | None = None,
    *,
    context: ReadContext | None = None,
    active: Active | None = None,
) -> npt.NDArray[Any]:
    """Return elements of one chunk.

    Parameters
    ----------
    chunk
        Where the chunk's bytes lie, and how they are encoded.
    spans
        `(first, count)` of elements of the decoded chunk, in C order, as `Selection.spans()` gives
        them; if not given, the whole chunk in its shape.
    context
        How to read: storage options, counters.
    active
        A server that reads next to the data.

    Examples
    --------
    >>> import numpy, tempfile, zlib
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(zlib.compress(numpy.arange(12, dtype="<i4").tobytes())), file.flush()
    ...     chunk = StoredChunk(file.name, 0, None, {"dtype": "<i4", "codecs": [{"id": "zlib"}]}, shape=(3, 4))
    ...     read(chunk, [(2, 3), (9, 1)])
    array([2, 3, 4, 9], dtype=int32)
    """
    array, selection = chunk.select(spans)
    return (read_array if active is None else active.read)(array, selection, context)


def reduce(
    chunk: StoredChunk,
    query: ReductionQuery,
    spans: Spans | None = None,
    *,
    context: ReadContext | None = None,
    active: Active | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return statistics of elements of one chunk by name, computed in one pass.

    Parameters
    ----------
    chunk, spans, context, active
        As for `read`.
    query
        Which statistics; its axes are those of the chunk, without spans. Its selection does not
        count.

    Examples
    --------
    >>> import numpy, tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(numpy.arange(12, dtype="<i4").tobytes()), file.flush()
    ...     int(reduce(StoredChunk(file.name, 8, 40, "<i4"), ReductionQuery.of("max"), [(0, 2), (9, 1)])["max"])
    11
    """
    array, selection = chunk.select(spans)
    return answer_array(array, replace(query, selection=selection), context, active)
