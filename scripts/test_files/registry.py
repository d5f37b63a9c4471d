"""The table of test files: what each is called, which package writes it, and how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hdf5plugin  # noqa: F401  (before netCDF4, which no module of this folder imports at its top: after it, h5py cannot write blosc)
import numpy as np

OURS = "Apache-2.0"
Write = Callable[[Path], None]


class Made(NamedTuple):
    """How a file or store comes about: `write(path)` writes it, with the packages that `writer`
    names.
    """

    file: str
    writer: tuple[str, ...]
    write: Write
    licence: str = OURS


FILES: list[Made] = []


def by(file: str, *packages: str, licence: str = OURS) -> Callable[[Write], Write]:
    """Register a function that writes `file` with these packages."""

    def register(write: Write) -> Write:
        FILES.append(Made(file, packages, write, licence))
        return write

    return register


def field(*shape: int, seed: int = 0, dtype: str = "f4") -> np.ndarray[Any, Any]:
    """Return smooth values with noise, as measurements have."""
    values = 280 + np.random.default_rng(seed).normal(0, 0.5, shape)
    for axis, length in enumerate(shape):
        wave = 20 * np.sin(np.linspace(0, 3 + axis, length))
        values = values + wave.reshape([-1 if other == axis else 1 for other in range(len(shape))])
    return np.asarray(values).astype(dtype)
