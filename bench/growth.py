"""How does a cost grow with the size of a problem? The exponent of the power that fits best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["exponent"]


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the exponent of growth: 1 is linear, 2 quadratic; by least squares of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])
