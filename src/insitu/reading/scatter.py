"""Copies the wanted elements of a chunk to the output, axis by axis, by slices or index arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.casting import needs_date_objects, to_date_objects
from insitu.reading.select_cells import Picker

__all__ = ["pick", "put"]


def pick(chunk: npt.NDArray[Any], inside: tuple[Picker, ...]) -> npt.NDArray[Any]:
    """Return the wanted elements of a chunk."""
    if sum(isinstance(picker, np.ndarray) for picker in inside) <= 1:
        return chunk[(*inside, ...)]  # the Ellipsis: an array of one object stays an array
    for axis, picker in enumerate(inside):
        chunk = chunk[(slice(None),) * axis + (picker,)]
    return chunk


def put(window: npt.NDArray[Any], outside: tuple[Picker, ...], values: Any) -> None:
    """Copy values into the output; dates stay dates where the output holds objects."""
    if needs_date_objects(values, window.dtype):
        values = to_date_objects(values)
    if sum(isinstance(picker, np.ndarray) for picker in outside) <= 1:
        window[(*outside, ...)] = values  # the Ellipsis: an array of one object is not copied as the object
        return
    # NumPy pairs several index arrays, unless each has an axis of its own.
    grids = [p if isinstance(p, np.ndarray) else np.arange(p.start, p.stop) for p in outside]
    window[np.ix_(*grids)] = values
