"""Reductions as entries of a job."""

from __future__ import annotations

from typing import Any

import numpy as np

from insitu.active.wire import values_to_wire
from insitu.reducing.fold_portions import Folding
from insitu.reducing.grouped_statistics import GroupedFolding
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reductions import ReductionRules
from insitu.reducing.weighted_statistics import WeightedFolding

__all__ = ["folding_to_wire", "query_to_wire", "rules_to_wire"]


def folding_to_wire(folding: Folding) -> dict[str, Any]:
    """Return what a job says about a reduction."""
    match folding:
        case GroupedFolding(_, query, groups):
            labels = {"axis": groups.axis, "codes": values_to_wire(groups.codes), "count": groups.count}
            return {**query_to_wire(query), "groups": labels}
        case WeightedFolding(_, query, weights):
            factors = {
                ",".join(map(str, [key] if isinstance(key, int) else key)): values_to_wire(np.asarray(numbers, "f8"))
                for key, numbers in weights.items()
            }
            return {**query_to_wire(query), "weights": factors}
    return query_to_wire(folding.query)


def query_to_wire(query: ReductionQuery) -> dict[str, Any]:
    """Return what a job says about plain statistics; the selection of the query does not count."""
    return {
        "methods": list(query.methods),
        "axes": None if query.axes is None else np.atleast_1d(query.axes).tolist(),
        "keepdims": query.keepdims,
        **rules_to_wire(query.rules),
    }


def rules_to_wire(rules: ReductionRules) -> dict[str, Any]:
    """Return rules as entries of a job."""
    entries: dict[str, Any] = {"skipna": rules.skipna, "ddof": rules.ddof, "min_count": rules.min_count}
    if rules.q is not None:
        entries["q"] = values_to_wire(np.asarray(rules.q, np.float64)) if np.ndim(rules.q) else float(rules.q)
    if rules.edges is not None:
        entries["edges"] = values_to_wire(np.array(rules.edges))
    return entries
