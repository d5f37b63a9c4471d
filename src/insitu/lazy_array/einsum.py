"""Products of a virtual array and weights (`numpy.einsum`), computed next to the data."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.grouped import Weights
from insitu.active.weighted import weigh_array
from insitu.forking import fork_safe_lock
from insitu.lazy_array.array import LazyArray
from insitu.lazy_array.steps import FillNull, IsNull, Not
from insitu.model import VirtualArray

__all__ = ["product"]

KEPT, SECONDS = 4, 60.0
"""Answers that wait for their second question, and how long."""


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
