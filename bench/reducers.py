"""How does each library take statistics of a variable in a file?

One function for each contestant of `reduce_local.py`. It imports what it needs, warms up on a small
file, and gives a function that opens the archive and takes the statistics it is asked for. Who
cannot take several in one pass does them one after another.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["check"]

Answers = dict[str, Any]
Take = Callable[[str, list[str], tuple[int, ...] | None], Answers]


def check(values: Answers) -> str:
    """What all contestants must agree on: five digits of the mean of each answer (peers sum float32
    in float32).
    """
    return " ".join(f"{name} {np.mean(values[name], dtype='f8'):.5g}" for name in sorted(values))


def _work(
    take: Take, path: str, warm: str, methods: list[str], axes: list[int] | None, **_: Any
) -> Callable[[], Answers]:
    along = None if axes is None else tuple(axes)
    take(warm, methods, along)
    return lambda: take(path, methods, along)


def insitu(**asked: Any) -> Callable[[], Answers]:
    """Our own: scan, then one pass over the chunks."""
    import insitu as ours
    from insitu.reducing import ReductionQuery, compute_statistics

    def take(path: str, methods: list[str], axes: tuple[int, ...] | None) -> Answers:
        return compute_statistics(ours.scan(path).arrays["t"], ReductionQuery.of(methods, axes))

    return _work(take, **asked)


def insitu_read(**asked: Any) -> Callable[[], Answers]:
    """Not a peer, but a bound: the same values read into an array. The answer is taken of it after
    the clock has stopped.
    """
    import insitu as ours

    def take(path: str, methods: list[str], axes: tuple[int, ...] | None) -> Answers:
        values = ours.read(ours.scan(path), "t")
        return dict.fromkeys(methods, values)

    return _work(take, **asked)


def numpy_netcdf4(**asked: Any) -> Callable[[], Answers]:
    """NumPy, over all values as netCDF4 reads them."""
    import netCDF4

    def take(path: str, methods: list[str], axes: tuple[int, ...] | None) -> Answers:
        with netCDF4.Dataset(path) as file:
            file.set_auto_maskandscale(False)
            values = file["t"][...]
        return {method: getattr(values, method)(axis=axes) for method in methods}

    return _work(take, **asked)


def numpy_h5py(**asked: Any) -> Callable[[], Answers]:
    """NumPy, over all values as h5py reads them."""
    import h5py

    def take(path: str, methods: list[str], axes: tuple[int, ...] | None) -> Answers:
        with h5py.File(path) as file:
            values = file["t"][...]
        return {method: getattr(values, method)(axis=axes) for method in methods}

    return _work(take, **asked)


def dask_xarray(**asked: Any) -> Callable[[], Answers]:
    """Dask over xarray, with the file's chunks; several statistics in one computation."""
    import dask
    import xarray

    def take(path: str, methods: list[str], axes: tuple[int, ...] | None) -> Answers:
        with xarray.open_dataset(path, chunks={}, cache=False) as dataset:
            array = dataset["t"]
            dims = None if axes is None else [array.dims[axis] for axis in axes]
            found = dask.compute({method: getattr(array, method)(dims) for method in methods})[0]
            return {method: value.values for method, value in found.items()}

    return _work(take, **asked)


def active_storage(**asked: Any) -> Callable[[], Answers]:
    """PyActiveStorage on a local file: its chunk reductions, in this process, with its own number
    of threads.
    """
    from activestorage.active import Active

    def take(path: str, methods: list[str], axes: tuple[int, ...] | None) -> Answers:
        found = {}
        for method in methods:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints a line for every chunk
                active = Active(path, "t", axis=axes)
                active._version = 1
                active._method = method
                found[method] = active[...]
        return found

    return _work(take, **asked)
