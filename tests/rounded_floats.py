"""Comparison of floats that FITS keeps as rounded integers with what astropy's C code makes of
them.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

__all__ = ["assert_same_floats"]


def assert_same_floats(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    """Compare to the bit; where astropy's C code multiplies and adds in one rounding, as on ARM, to
    the last bit of the numbers that it adds.

    The zero of a tile is up to some 1e9 with the second method of dithering.
    """
    if actual.dtype.kind == "f" and platform.machine() not in ("x86_64", "AMD64"):
        last = float(np.spacing(np.nanmax(np.abs(expected)).astype(actual.dtype)))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=max(last, np.spacing(1e9)), equal_nan=True)
    else:
        np.testing.assert_array_equal(actual, expected)
