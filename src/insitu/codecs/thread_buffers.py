"""Reusable buffers of each thread for the bytes between two codecs.

A fresh 4 MiB buffer costs its page faults anew for every chunk, about a quarter of the time that
inflating into it takes.
"""

from __future__ import annotations

import threading

import numpy as np

from insitu.codecs.aligned_memory import allocate_chunk
from insitu.codecs.buffer_spec import Octets

__all__ = ["MAX_KEPT_BYTES", "get_buffer"]

MAX_KEPT_BYTES = 64 * 2**20
"""Size of the largest buffer that a thread keeps; larger ones are allocated for each use."""


class _ThreadBuffers(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[int, Octets] = {}


_slots = _ThreadBuffers()


def get_buffer(slot: int, nbytes: int) -> Octets:
    """Return this thread's buffer number `slot`, with `nbytes` bytes; its content is undefined.

    Parameters
    ----------
    slot
        Number of the buffer: a step must not write into the buffer that it reads from.
    nbytes
        Its length.
    """
    buffer = _slots.buffers.get(slot)
    if buffer is None or buffer.size < nbytes:
        buffer = allocate_chunk((nbytes,), np.uint8)
        if nbytes <= MAX_KEPT_BYTES:
            _slots.buffers[slot] = buffer
    return buffer[:nbytes]
