"""How does each library compute a formula over a variable in a file?

One function for each contestant of `expressions.py`. It imports what it needs, warms up on a small
file, and gives a function that opens the archive and computes. The formulas are given by name: each
is what a scientist would write with that library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["check"]

FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "convert": lambda t, normal: t * 1.8 - 459.67,
    "days": lambda t, normal: (t * 10.0 > 2810.0).sum(axis=0),
    "rmse": lambda t, normal: (((t - normal) ** 2).mean(axis=0)) ** 0.5,
    "hypot": lambda t, normal: np.hypot(t, t - normal).mean(),
}
"""A virtual array, a Dask array or a plain one; and a map of the same rows and columns."""
FAST: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "convert": ("t * 1.8 - 459.67", lambda values: values),
    "days": ("t * 10.0 > 2810.0", lambda values: values.sum(axis=0)),
    "rmse": ("(t - normal) ** 2", lambda values: values.mean(axis=0) ** 0.5),
    "hypot": ("sqrt(t * t + (t - normal) * (t - normal))", lambda values: values.mean()),
}
"""The same for numexpr: what it computes, and what NumPy does with that."""


def check(values: Any) -> str:
    """What all contestants must agree on: four digits (peers sum float32 in float32)."""
    return f"{np.mean(values, dtype='f8'):.4g}"


def _normal(rows: int, columns: int) -> Any:
    return np.linspace(270, 290, rows * columns, dtype="f4").reshape(rows, columns)


def _work(compute: Callable[[str], Any], path: str, warm: str) -> Callable[[], Any]:
    compute(warm)
    return lambda: compute(path)


def insitu(path: str, warm: str, formula: str) -> Callable[[], Any]:
    """Ours: the formula of the virtual array, evaluated block by block."""
    import insitu as ours

    def compute(url: str) -> Any:
        with ours.open_dataset(url) as ds:
            data = ds["t"].variable.data
            return np.asarray(FORMULAS[formula](data, _normal(*data.shape[1:])))

    return _work(compute, path, warm)


def insitu_then_numpy(path: str, warm: str, formula: str) -> Callable[[], Any]:
    """Ours for reading, NumPy for the formula: what lazy evaluation must not be slower than."""
    import insitu as ours

    def compute(url: str) -> Any:
        values = ours.read(url, "t")
        return FORMULAS[formula](values, _normal(*values.shape[1:]))

    return _work(compute, path, warm)


def numpy_h5py(path: str, warm: str, formula: str) -> Callable[[], Any]:
    """NumPy, over all values as h5py reads them."""
    import h5py

    def compute(url: str) -> Any:
        with h5py.File(url) as file:
            values = file["t"][...]
        return FORMULAS[formula](values, _normal(*values.shape[1:]))

    return _work(compute, path, warm)


def numexpr_h5py(path: str, warm: str, formula: str) -> Callable[[], Any]:
    """numexpr on all cores, over all values as h5py reads them."""
    import h5py
    import numexpr

    code, finish = FAST[formula]

    def compute(url: str) -> Any:
        with h5py.File(url) as file:
            values = file["t"][...]
        found = numexpr.evaluate(code, {"t": values, "normal": _normal(*values.shape[1:])})
        return finish(found)

    return _work(compute, path, warm)


def dask_xarray(path: str, warm: str, formula: str) -> Callable[[], Any]:
    """Dask over xarray, with the file's chunks."""
    import xarray

    def compute(url: str) -> Any:
        with xarray.open_dataset(url, engine="h5netcdf", chunks={}, phony_dims="sort") as ds:
            data = ds["t"].data
            return FORMULAS[formula](data, _normal(*data.shape[1:])).compute()

    return _work(compute, path, warm)


def insitu_far(url: str, formula: str, server: str | None = None) -> Callable[[], Any]:
    """Ours, of a file on a web server; at the server beside it, if there is one."""
    import insitu as ours

    how: dict[str, Any] = {"active": server, "active_required": True} if server else {}
    ours.open_dataset(url, **how).close()

    def compute() -> Any:
        with ours.open_dataset(url, **how) as ds:
            data = ds["t"].variable.data
            return np.asarray(FORMULAS[formula](data, _normal(*data.shape[1:])))

    return compute
