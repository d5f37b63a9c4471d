"""The methods of `numpy.ndarray` on a virtual array.

Most are NumPy's functions under another name: what `numpy_functions` keeps virtual stays virtual,
the rest reads the values. Attributes of memory (`strides`, `data`, sorting in place, ...) do not
exist here; the error says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Never

import numpy as np

__all__ = ["MEMORY_ONLY", "Methods"]

MEMORY_ONLY = frozenset(
    {
        *("base", "ctypes", "data", "flags", "flat", "strides", "setflags", "getfield", "setfield", "view"),
        *("fill", "partition", "put", "resize", "sort", "dump", "dumps", "tofile", "device", "to_device"),
    }
)
"""Attributes of `numpy.ndarray` that concern an array in memory."""


def _function(name: str) -> Callable[..., Any]:
    """Return the method that calls NumPy's function of that name."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(np, name)(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, f"As `numpy.{name}`."
    return method


class Methods:
    """Methods of `numpy.ndarray` that NumPy's functions implement."""

    __slots__ = ()

    sum = _function("sum")
    mean = _function("mean")
    min = _function("min")
    max = _function("max")
    any = _function("any")
    all = _function("all")
    prod = _function("prod")
    std = _function("std")
    var = _function("var")
    argmin = _function("argmin")
    argmax = _function("argmax")
    cumsum = _function("cumsum")
    cumprod = _function("cumprod")
    clip = _function("clip")
    repeat = _function("repeat")
    squeeze = _function("squeeze")
    swapaxes = _function("swapaxes")
    take = _function("take")
    ravel = _function("ravel")
    diagonal = _function("diagonal")
    trace = _function("trace")
    dot = _function("dot")
    nonzero = _function("nonzero")
    searchsorted = _function("searchsorted")
    choose = _function("choose")
    argpartition = _function("argpartition")

    def __getattr__(self, name: str) -> Never:
        if name.startswith("__"):  # asked for by protocols, often
            raise AttributeError(name)
        why = "it belongs to an array in memory. Load the values first: np.asarray(array), or .load() in xarray"
        reason = f": {why}" if name in MEMORY_ONLY else ""
        raise AttributeError(f"a virtual array has no attribute {name!r}{reason}", name=name, obj=self)

    def __iter__(self) -> Iterator[Any]:
        array: Any = self
        if not array.ndim:
            raise TypeError("iteration over a 0-d array")
        # Rows stay virtual; single values are read at once, not one by one.
        return iter(array.read()) if array.ndim == 1 else (array[number] for number in range(len(array)))

    def __contains__(self, value: Any) -> bool:
        return value in np.asarray(self)

    def __complex__(self) -> complex:
        return complex(np.asarray(self).item())

    def __index__(self) -> int:
        return np.asarray(self).__index__()

    @property
    def mT(self) -> Any:  # noqa: N802
        """The last two dimensions exchanged."""
        array: Any = self
        if array.ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return array.swapaxes(-1, -2)

    @property
    def real(self) -> Any:
        """The real parts."""
        array: Any = self
        return np.real(array)

    @property
    def imag(self) -> Any:
        """The imaginary parts."""
        array: Any = self
        return np.imag(array)  # must not read: runtime protocols look whether it is there

    def round(self, decimals: int = 0, out: Any = None) -> Any:
        """Return the values rounded to some decimals."""
        rounded: Any = np.round
        return rounded(self, decimals, out=out)

    def conj(self) -> Any:
        """Return the conjugate numbers."""
        array: Any = self
        return np.conjugate(array) if array.dtype.kind == "c" else self

    conjugate = conj

    def argsort(self, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None) -> Any:
        """Return the order in which the values ascend; reads them."""
        return np.argsort(np.asarray(self), axis, kind, order, stable=stable)

    def compress(self, condition: Any, axis: int | None = None, out: Any = None) -> Any:
        """Return the slices along an axis for which a condition holds."""
        return np.compress(condition, np.asarray(self), axis, out)

    def item(self, *at: Any) -> Any:
        """Return one element, as a number of Python."""
        return np.asarray(self).item(*at)

    def flatten(self, order: Any = "C") -> Any:
        """Return the values in one dimension, as a copy."""
        return np.asarray(self).flatten(order)

    def byteswap(self) -> Any:
        """Return the values with the bytes of each in reverse order."""
        return np.asarray(self).byteswap()

    def tobytes(self, order: Any = "C") -> bytes:
        """Return the bytes of the values."""
        return np.asarray(self).tobytes(order)

    def tolist(self) -> Any:
        """Return the values as nested lists."""
        return np.asarray(self).tolist()
