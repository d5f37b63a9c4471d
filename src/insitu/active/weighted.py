"""Weighted and grouped statistics of an array, computed here or by a server next to the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.client import Active, rules_to_wire
from insitu.active.grouped import Groups, Weights, grouped_statistics, weighted_statistics
from insitu.active.wire import values_to_wire
from insitu.active.wire_array import array_to_wire
from insitu.model import Selection, VirtualArray
from insitu.reading import SourcePool
from insitu.reducing.reductions import ReductionRules

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
    rules = ReductionRules(skipna)
    chosen = Selection.of(selection, array.shape)

    def here() -> Answers:
        with SourcePool(storage_options) as opened:
            return weighted_statistics(
                array, methods, weights, opened, axes=axes, selection=chosen, rules=rules, name=name
            )

    if active is None:
        return here()

    def job() -> dict[str, Any]:
        factors = {
            ",".join(map(str, [key] if isinstance(key, int) else key)): values_to_wire(np.asarray(numbers, np.float64))
            for key, numbers in weights.items()
        }
        return {**_job_to_wire(array, chosen, methods, axes, rules), "weights": factors}

    return active.run_job(job, here, array[chosen], name, storage_options)


def group_array(
    array: VirtualArray,
    methods: Sequence[str],
    groups: Groups,
    *,
    axes: Sequence[int] | None = None,
    selection: Any = ...,
    rules: ReductionRules | None = None,
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
    how = rules or ReductionRules()
    chosen = Selection.of(selection, array.shape)

    def here() -> Answers:
        with SourcePool(storage_options) as opened:
            return grouped_statistics(array, methods, groups, opened, axes=axes, selection=chosen, rules=how, name=name)

    if active is None:
        return here()

    def job() -> dict[str, Any]:
        labels = {"axis": groups.axis, "codes": values_to_wire(groups.codes), "count": groups.count}
        return {**_job_to_wire(array, chosen, methods, axes, how), "groups": labels}

    return active.run_job(job, here, array[chosen], name, storage_options)


def _job_to_wire(
    array: VirtualArray, chosen: Selection, methods: Sequence[str], axes: Sequence[int] | None, rules: ReductionRules
) -> dict[str, Any]:
    along = None if axes is None else [int(axis) for axis in axes]
    return {"array": array_to_wire(array[chosen]), "methods": list(methods), "axes": along, **rules_to_wire(rules)}
