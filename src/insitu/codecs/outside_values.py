"""Protocol of codecs whose chunks refer to values elsewhere in the file (HDF5, FITS heaps)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Fetch", "OutsideValues"]

Fetch = Callable[[Sequence[tuple[int, int]]], list[bytes]]
"""Reads (offset, length) ranges of a file; fewer bytes are returned only where the file ends."""


class OutsideValues(Protocol):
    """Turns references into the values that they refer to."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of one reference."""

    def resolve(self, references: NDArray[Any], fetch: Fetch) -> NDArray[Any]:
        """Return the values that references refer to."""
