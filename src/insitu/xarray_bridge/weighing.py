"""How are weighted statistics taken in one pass, here or next to the data?

`ds.insitu.weighted` has all of them. Of plain xarray `weighted(…).mean()`, `sum()` and `sum_of_weights()` come as two products,
`einsum(where(isnan(a), 0, a), w)` and `einsum(~isnan(a), w)`: `product` recognises them, and a server is asked for both at once.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray

from insitu.forking import fork_safe_lock
from insitu.model import VirtualArray
from insitu.reducing.active_groups import Weights
from insitu.reducing.contractions import weigh_array
from insitu.xarray_bridge.lazy import LazyArray
from insitu.xarray_bridge.shells import filled, plainly_virtual, shell_of
from insitu.xarray_bridge.steps import FillNull, IsNull, Not

__all__ = ["Weighted", "product"]

METHODS = ("sum", "mean", "std", "var", "sum_of_weights")
KEPT, SECONDS = 4, 60.0
"""Answers that wait for their second question, and how long."""


class Weighted:
    """Weighted reductions: those of xarray's `weighted`, with its arguments and its results."""

    def __init__(self, dataset: xarray.Dataset, weights: xarray.DataArray) -> None:
        self._dataset = dataset
        self._whole = dataset.weighted(weights)  # which checks them
        self._weights = weights

    def __repr__(self) -> str:
        return f"<insitu: {self._whole!r}>"

    def sum(self, dim: Any = None, **how: Any) -> xarray.Dataset:
        """The weighted sum."""
        return self._reduced("sum", dim, how)

    def mean(self, dim: Any = None, **how: Any) -> xarray.Dataset:
        """The weighted mean."""
        return self._reduced("mean", dim, how)

    def std(self, dim: Any = None, **how: Any) -> xarray.Dataset:
        """The weighted standard deviation."""
        return self._reduced("std", dim, how)

    def var(self, dim: Any = None, **how: Any) -> xarray.Dataset:
        """The weighted variance."""
        return self._reduced("var", dim, how)

    def sum_of_weights(self, dim: Any = None, **how: Any) -> xarray.Dataset:
        """The sum of the weights of what is there."""
        return self._reduced("sum_of_weights", dim, how)

    def _reduced(self, method: str, dim: Any, how: dict[str, Any]) -> xarray.Dataset:
        dataset, weights = self._dataset, self._weights
        dims = list(dataset.dims) if dim is None or dim is ... else [dim] if isinstance(dim, str) else list(dim)
        same = all(d in dataset.dims and d in dims and _aligned(dataset, weights, d) for d in weights.dims)
        names = [
            name
            for name, variable in dataset.data_vars.items()
            if plainly_virtual(variable.variable) is not None and set(weights.dims) <= set(variable.dims)
        ]
        if not same or not names or not weights.dims or set(how) - {"skipna", "keep_attrs"}:
            found: xarray.Dataset = getattr(self._whole, method)(dim, **how)
            return found
        shell = shell_of(dataset, names)
        short = weights.isel({d: slice(0, 1) for d in weights.dims}).copy()
        short.data = np.ones(short.shape, weights.dtype)
        result = getattr(shell.weighted(short), method)(dim, **how)
        values = {}
        for name in names:
            variable = dataset.variables[name]
            lazy = plainly_virtual(variable)
            assert lazy is not None
            axes = [variable.dims.index(d) for d in dims if d in variable.dims]
            factor: Weights = {tuple(variable.dims.index(d) for d in weights.dims): weights.values}
            taken = weigh_array(
                lazy.array, [method], factor, axes=axes, skipna=how.get("skipna"), active=lazy.access.active, name=lazy.access.name,
                storage_options=lazy.access.storage_options,
            )[method]  # fmt: skip
            kept = [d for d in variable.dims if d not in dims]
            values[name] = taken.transpose([kept.index(d) for d in result[name].dims])
        made = filled(result, dataset, values)
        rest = dataset.drop_vars(names)
        if rest.data_vars:
            others = getattr(rest.weighted(weights), method)(dim, **how)
            made = made.assign({name: others[name] for name in rest.data_vars})
            made = made[list(dataset.data_vars)]
            made.attrs = dict(result.attrs)
        return made


def _aligned(dataset: xarray.Dataset, weights: xarray.DataArray, dim: Any) -> bool:
    if dim in weights.indexes and dim in dataset.indexes:
        return bool(weights.indexes[dim].equals(dataset.indexes[dim]))
    return bool(weights.sizes[dim] == dataset.sizes[dim])


class _Waiting:
    """Answers to what xarray will ask next."""

    def __init__(self) -> None:
        self.lock = fork_safe_lock()
        self.kept: OrderedDict[Any, tuple[float, VirtualArray, npt.NDArray[Any]]] = OrderedDict()

    def put(self, key: Any, array: VirtualArray, answer: npt.NDArray[Any]) -> None:
        """Keep an answer; the array too, so that no other takes its identity."""
        with self.lock:
            self.kept[key] = time.monotonic(), array, answer
            while len(self.kept) > KEPT:
                self.kept.popitem(last=False)

    def take(self, key: Any) -> npt.NDArray[Any] | None:
        """An answer, once."""
        with self.lock:
            found = self.kept.pop(key, None)
        return None if found is None or time.monotonic() - found[0] > SECONDS else found[2]


_waiting = _Waiting()


def product(array: LazyArray, mine: str, weights: npt.NDArray[Any], labels: str, kept: str) -> npt.NDArray[Any] | None:
    """`einsum` of a virtual array and weights, next to the data; None if it is not such a product, or there is no server.

    Parameters
    ----------
    array, mine
        The array and the label of each of its axes.
    weights, labels
        The same of the weights.
    kept
        The labels of the result.
    """
    active, stored = array.access.active, array.array.dtype
    gone = [label for label in mine if label not in kept]
    if (
        active is None or not array.size or stored.kind not in "biuf" or not labels or np.asarray(weights).dtype.kind not in "biuf"
        or len(set(labels)) < len(labels) or set(labels) - set(gone) or set(kept) - set(mine)
    ):  # fmt: skip
        return None
    lengths = dict(zip(mine, array.shape, strict=True))
    if tuple(lengths[label] for label in labels) != np.shape(weights) or np.isnan(weights).any():
        return None
    axes = [mine.index(label) for label in gone]
    about = hashlib.sha256(np.ascontiguousarray(weights).tobytes()).digest()
    key = (id(array.array), active, mine, labels, kept, np.asarray(weights).dtype.str, about)
    factor: Weights = {tuple(mine.index(label) for label in labels): np.asarray(weights)}

    def ask(methods: list[str], skipna: bool) -> dict[str, npt.NDArray[Any]]:
        return weigh_array(
            array.array, methods, factor, axes=axes, skipna=skipna, active=active, name=array.access.name,
            storage_options=array.access.storage_options,
        )  # fmt: skip

    if array.steps == (FillNull(0, stored),):
        both = ask(["sum", "sum_of_weights"], True)
        _waiting.put(key, array.array, both["sum_of_weights"])
        found = both["sum"]
    elif array.steps == (IsNull(), Not()):
        waiting = _waiting.take(key)
        found = ask(["sum_of_weights"], True)["sum_of_weights"] if waiting is None else waiting
        found = np.where(np.isnan(found), 0, found)  # xarray itself says that there is none where it is 0
    elif not array.steps:
        found = ask(["sum"], False)["sum"]
    else:
        return None
    rest = [label for label in mine if label in kept]
    turned: npt.NDArray[Any] = found.transpose([rest.index(label) for label in kept])
    return turned.astype(np.result_type(array.dtype, weights), copy=False)
