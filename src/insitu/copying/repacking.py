"""Packing anew of values whose files are packed differently: one scale and offset that reach all of them.

The range is what the packings of all files can express, so nothing has to be read to find it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import VirtualArray

__all__ = ["Repacking", "choose_repacking"]


@dataclass(frozen=True, slots=True)
class Repacking:
    """One scale and offset for an array."""

    dtype: np.dtype[Any]
    scale: float
    offset: float
    fill: int
    """The stored value that means missing: the lowest of the type."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes that decode the values."""
        return {"scale_factor": self.scale, "add_offset": self.offset, "_FillValue": self.dtype.type(self.fill)}

    @property
    def largest_error(self) -> float:
        """What a value changes by at most: half a step."""
        return self.scale / 2

    def pack(self, values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], float]:
        """Return stored values, and by how much one of them differs from what was given at most."""
        wide = values.astype(np.float64)
        missing = np.isnan(wide)
        steps = np.rint((np.where(missing, self.offset, wide) - self.offset) / self.scale)
        limits = np.iinfo(self.dtype)
        stored = np.clip(steps, limits.min + 1, limits.max).astype(self.dtype)
        stored[missing] = self.fill
        error = np.abs(np.where(missing, 0, stored * self.scale + self.offset - wide))
        return stored, float(error.max(initial=0.0))


def choose_repacking(array: VirtualArray) -> Repacking | None:
    """Return a packing for all values of an array; None if they are not all packed integers."""
    lows, highs, dtypes = [], [], []
    for tile in array.tiles:
        for encoding in tile.encodings:
            if encoding.dtype.kind not in "iu":
                return None
            dtypes.append(encoding.dtype)
        limits = np.iinfo(max((encoding.dtype for encoding in tile.encodings), key=lambda dtype: dtype.itemsize))
        table = tile.packings
        if any(kind.unsigned is not None for kind in table.kinds):
            return None
        scale = np.where(np.isnan(table.scale), 1.0, table.scale)
        offset = np.where(np.isnan(table.offset), 0.0, table.offset)
        ends = np.stack([limits.min * scale + offset, limits.max * scale + offset])
        lows.append(ends.min())
        highs.append(ends.max())
    if not dtypes or array.dtype.kind != "f":
        return None
    widest = max(dtypes, key=lambda dtype: dtype.itemsize)
    if widest.itemsize > 4:
        return None
    dtype = np.dtype(f"<i{widest.itemsize}")
    steps = 2.0 ** (8 * dtype.itemsize) - 2
    lowest, highest = float(min(lows)), float(max(highs))
    step = (highest - lowest) / steps or 1.0
    return Repacking(dtype, step, (lowest + highest) / 2, int(np.iinfo(dtype).min))
