"""Weighted and grouped statistics of an array, computed here or by a server next to the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.client import Active, said
from insitu.active.grouped import Groups, Weights, grouped, weighted
from insitu.active.wire import values_to
from insitu.active.wire_array import array_to
from insitu.model import Selection, VirtualArray
from insitu.reading import Opened
from insitu.reducing.reductions import Rules

__all__ = ["group_array", "weigh_array"]

Answers = dict[str, npt.NDArray[Any]]


def weigh_array(
    array: VirtualArray,
    methods: Sequence[str],
    weights: Weights,
    *,
    axes: Sequence[int] | None = None,
    selection: Any = ...,
    skipna: bool | None = None,
    active: Active | None = None,
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Answers:
    """Return weighted statistics, in float64.

    Parameters
    ----------
    array, axes, selection, skipna, name, storage_options
        As for `insitu.reducing.reduce_array`.
    methods
        `sum`, `mean`, `var`, `std`, `sum_of_weights`, `count`.
    weights
        By reduced axis, one number per element; by a tuple of axes for several axes together.
    active
        The server next to the data. Without, or if it cannot, this machine computes.
    """
    rules = Rules(skipna)
    chosen = Selection.of(selection, array.shape)

    def here() -> Answers:
        with Opened(storage_options) as opened:
            return weighted(array, methods, weights, opened, axes=axes, selection=chosen, rules=rules, name=name)

    if active is None:
        return here()

    def job() -> dict[str, Any]:
        factors = {
            ",".join(map(str, [key] if isinstance(key, int) else key)): values_to(np.asarray(numbers, np.float64))
            for key, numbers in weights.items()
        }
        return {**_job(array, chosen, methods, axes, rules), "weights": factors}

    return active.run_job(job, here, array[chosen], name, storage_options)


def group_array(
    array: VirtualArray,
    methods: Sequence[str],
    groups: Groups,
    *,
    axes: Sequence[int] | None = None,
    selection: Any = ...,
    rules: Rules | None = None,
    active: Active | None = None,
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Answers:
    """Return statistics of each group along an axis, which stays, with one element per group.

    Parameters
    ----------
    array, methods, selection, rules, name, storage_options
        As for `insitu.reducing.statistics`; without positions and medians.
    groups
        The groups along one axis.
    axes
        Axes to reduce in addition to the grouped one; none if not given.
    active
        The server next to the data. Without, or if it cannot, this machine computes.
    """
    how = rules or Rules()
    chosen = Selection.of(selection, array.shape)

    def here() -> Answers:
        with Opened(storage_options) as opened:
            return grouped(array, methods, groups, opened, axes=axes, selection=chosen, rules=how, name=name)

    if active is None:
        return here()

    def job() -> dict[str, Any]:
        labels = {"axis": groups.axis, "codes": values_to(groups.codes), "count": groups.count}
        return {**_job(array, chosen, methods, axes, how), "groups": labels}

    return active.run_job(job, here, array[chosen], name, storage_options)


def _job(
    array: VirtualArray, chosen: Selection, methods: Sequence[str], axes: Sequence[int] | None, rules: Rules
) -> dict[str, Any]:
    along = None if axes is None else [int(axis) for axis in axes]
    return {"array": array_to(array[chosen]), "methods": list(methods), "axes": along, **said(rules)}
