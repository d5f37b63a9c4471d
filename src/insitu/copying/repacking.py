"""Packing of values while they are copied: anew, if their files are packed differently, or as a target is packed.

A new packing has one scale and offset that reach all values. The range is what the packings of all files can express,
so nothing has to be read to find it. What is appended to a target gets the packing that is there, and has to fit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from insitu.errors import UnsupportedError
from insitu.model import VirtualArray
from insitu.scanning.stored_view import used_rows

__all__ = ["FixedPacking", "Packer", "Repacking", "choose_repacking"]


class Packer(Protocol):
    """Makes stored values of meant ones."""

    def pack(self, values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], float]:
        """Return stored values, and by how much one of them differs from what was given at most."""


@dataclass(frozen=True, slots=True)
class Repacking:
    """One scale and offset for an array."""

    dtype: np.dtype[Any]
    scale: float
    offset: float
    fill: int
    """The stored value that means missing."""
    largest_error: float
    """What a value changes by at most."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes that decode the values."""
        return {"scale_factor": self.scale, "add_offset": self.offset, "_FillValue": self.dtype.type(self.fill)}

    def pack(self, values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], float]:
        """Return stored values, and by how much one of them differs from what was given at most."""
        wide = values.astype(np.float64)
        missing = np.isnan(wide)
        steps = np.rint((np.where(missing, self.offset, wide) - self.offset) / self.scale)
        limits = np.iinfo(self.dtype)
        lowest = limits.min + (self.fill == limits.min)
        stored = np.clip(steps, lowest, limits.max).astype(self.dtype)
        stored[missing] = self.fill
        error = np.abs(np.where(missing, 0, stored * self.scale + self.offset - wide))
        return stored, float(error.max(initial=0.0))


@dataclass(frozen=True, slots=True)
class FixedPacking:
    """The packing that a target has: values that do not fit are an error."""

    dtype: np.dtype[Any]
    scale: float | None = None
    offset: float | None = None
    fill: Any = None
    """The stored value that means missing; None: there is none."""

    @property
    def is_scaled(self) -> bool:
        """Whether stored values are not the meant ones."""
        return self.scale is not None or self.offset is not None

    def pack(self, values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], float]:
        """Return stored values, and by how much one of them differs from what was given at most.

        Raises
        ------
        UnsupportedError
            If a value cannot be stored so: the error names it.
        """
        if values.dtype.kind in "iub" and not self.is_scaled:
            stored = values.astype(self.dtype)
            self._check(values, stored == values, f"does not fit {self.dtype}, the target's type")
            self._check_fill(values, stored, np.zeros(values.shape, bool))
            return stored, 0.0
        scale, offset = self.scale or 1.0, self.offset or 0.0
        missing = np.isnan(values)
        wide = np.where(missing, 0, values).astype(np.complex128 if values.dtype.kind == "c" else np.float64)
        steps = (wide - offset) / scale
        if self.dtype.kind in "iu":
            stored, steps = self._to_integers(values, steps, missing)
        else:
            with np.errstate(over="ignore"):
                stored = steps.astype(self.dtype)
            self._check(
                values,
                missing | (np.isfinite(stored) == np.isfinite(wide)),
                f"is out of the range of {self.dtype}, the target's type",
            )
        back = stored * scale + offset if self.is_scaled else stored
        with np.errstate(invalid="ignore"):
            error = np.where(missing | ~np.isfinite(wide), 0, np.abs(back - wide))
        self._check_fill(values, stored, missing)
        if missing.any():
            stored[missing] = self.fill if self.fill is not None else np.nan
        return stored, float(error.max(initial=0.0))

    def _to_integers(
        self, values: npt.NDArray[Any], steps: npt.NDArray[Any], missing: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return whole numbers of the target's type, and the same as floats."""
        if self.fill is None:
            self._check(values, ~missing, "is missing, and the target has no value that means that")
        whole = np.rint(steps)
        if not self.is_scaled:
            self._check(
                values, missing | (whole == steps), f"is no whole number, and the target's type is {self.dtype}"
            )
        limits = np.iinfo(self.dtype)
        # The largest integers of 64 bits have no float: what is as large as the next power of two is out of range.
        inside = (whole >= float(limits.min)) & (whole < float(limits.max) + (self.dtype.itemsize < 8))
        lowest, highest = self._range(limits)
        what = f"is out of the range of the target's packing, {lowest:g} to {highest:g}"
        self._check(values, missing | inside, what)
        return np.where(missing, 0, whole).astype(self.dtype), whole

    def _range(self, limits: Any) -> tuple[float, float]:
        ends = [int(limit) * (self.scale or 1.0) + (self.offset or 0.0) for limit in (limits.min, limits.max)]
        return min(ends), max(ends)

    def _check_fill(self, values: npt.NDArray[Any], stored: npt.NDArray[Any], missing: npt.NDArray[Any]) -> None:
        if self.fill is not None and self.fill == self.fill:
            what = f"would be stored as {self.fill}, which means missing in the target"
            self._check(values, missing | (stored != self.dtype.type(self.fill)), what)

    @staticmethod
    def _check(values: npt.NDArray[Any], fits: npt.NDArray[np.bool_], what: str) -> None:
        if not fits.all():
            value = values[~fits].reshape(-1)[0]
            raise UnsupportedError(
                f"the value {value} {what}",
                hint="Leave the variable out, or copy everything to a new target",
            )


def choose_repacking(array: VirtualArray) -> Repacking | None:
    """Return a packing for all values of an array; None if they are not all packed integers.

    Where all files have one packing, and only the types of scales differ or cannot be kept, it stays: values change by
    no more than their rounding.
    """
    lows, highs, dtypes = [], [], []
    packings: set[tuple[Any, ...]] = set()
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
        for row in used_rows(tile):
            packing = table[row]
            packings.add((float(scale[row]), float(offset[row]), *packing.missing, *packing.kind.missing))
        ends = np.stack([limits.min * scale + offset, limits.max * scale + offset])
        lows.append(ends.min())
        highs.append(ends.max())
    if not dtypes or array.dtype.kind != "f":
        return None
    widest = max(dtypes, key=lambda dtype: dtype.itemsize)
    if widest.itemsize > 4:
        return None
    (first, *others) = packings or [()]
    if not others and len(first) == 3 and len({dtype.newbyteorder("=") for dtype in dtypes}) == 1:
        size, begin, fill = first
        rounding = float(np.abs([*lows, *highs]).max()) * float(np.finfo(np.float32).eps)
        return Repacking(widest.newbyteorder("<"), size, begin, int(fill), rounding)
    dtype = np.dtype(f"<i{widest.itemsize}")
    steps = 2.0 ** (8 * dtype.itemsize) - 2
    lowest, highest = float(min(lows)), float(max(highs))
    step = (highest - lowest) / steps or 1.0
    return Repacking(dtype, step, (lowest + highest) / 2, int(np.iinfo(dtype).min), step / 2)
