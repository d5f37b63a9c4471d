"""Which methods of NumPy's arrays does xarray call, where it could call functions? They are the functions."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Methods"]


class Methods:
    """What an array can do that NumPy's functions can do with it."""

    __slots__ = ()

    @property
    def real(self) -> Any:
        """The real parts."""
        return np.asarray(self).real if _is_complex(self) else self

    @property
    def imag(self) -> Any:
        """The imaginary parts."""
        return np.asarray(self).imag

    def round(self, decimals: int = 0, out: Any = None) -> Any:
        """Rounded to so many decimals."""
        rounded: Any = np.round
        return rounded(self, decimals, out=out)

    def conj(self) -> Any:
        """The conjugate numbers."""
        return np.asarray(self).conj() if _is_complex(self) else self

    def argsort(self, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
        """The order in which the values ascend; reads them."""
        return np.argsort(np.asarray(self), axis, kind, order)


def _is_complex(array: Any) -> bool:
    return bool(array.dtype.kind == "c")
