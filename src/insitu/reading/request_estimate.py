"""Estimate of the requests that a read takes, from the byte ranges of its chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from insitu.model import Source
from insitu.model.axis import Indices
from insitu.reading.fetch import BATCH_CHUNK_BYTES, MERGED_GAP_BYTES
from insitu.reading.request_cost import is_far, request_bytes
from insitu.reading.task_batches import BATCH_BYTES
from insitu.sources.coalesce import frugal_gap

__all__ = ["estimate_requests"]


def estimate_requests(sources: Sequence[Source], source: Indices, offset: Indices, length: Indices) -> int:
    """Return about how many requests fetch some ranges; those of a local file are reads of it.

    Neighbours are fetched together, up to the bytes of a task.

    Parameters
    ----------
    sources
        What the column `source` refers to.
    source, offset, length
        Different ranges, sorted by source and offset; the length -1 is up to the end of the object.
    """
    if not len(offset):
        return 0
    known = np.maximum(length, 0)
    if is_far(sources):
        gap = frugal_gap(known, request_bytes(sources))
    else:
        gap = MERGED_GAP_BYTES if known.mean() <= BATCH_CHUNK_BYTES else 0
    begins = np.ones(len(offset), bool)
    begins[1:] = (np.diff(source) != 0) | (offset[1:] > offset[:-1] + known[:-1] + gap) | (length[:-1] < 0)
    firsts = np.flatnonzero(begins)
    nbytes = np.add.reduceat(known, firsts)
    chunks = np.diff(firsts, append=len(offset))
    return int(np.minimum(np.maximum(-(-nbytes // BATCH_BYTES), 1), chunks).sum())
