"""Where do the bytes between two codecs live?

In buffers that each thread keeps: a fresh 4 MiB buffer costs its page faults anew for every chunk, about a quarter of the time
that inflating into it takes.
"""

from __future__ import annotations

import threading

import numpy as np

from insitu.codecs.buffer_spec import Octets
from insitu.errors import CodecError

__all__ = ["KEPT", "borrow"]

KEPT = 64 * 2**20
"""Largest buffer that a thread keeps; larger ones are made anew."""


class _Slots(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[int, Octets] = {}


_slots = _Slots()


def borrow(slot: int, nbytes: int) -> Octets:
    """Return this thread's buffer number `slot`, `nbytes` long; what it held before is lost.

    Parameters
    ----------
    slot
        Which of the thread's buffers: a step must not write where it reads from.
    nbytes
        Its length.
    """
    kept = _slots.buffers.get(slot)
    if kept is None or kept.size < nbytes:
        try:
            kept = np.empty(nbytes, np.uint8)
        except MemoryError:
            # As a rule the file claims what it does not hold.
            raise CodecError(f"there is no memory for a chunk of {nbytes} bytes") from None
        if nbytes <= KEPT:
            _slots.buffers[slot] = kept
    return kept[:nbytes]
