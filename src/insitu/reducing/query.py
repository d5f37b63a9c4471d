"""`ReductionQuery`: which statistics of which part of an array, as one object.

It is built once, where a user's keywords arrive, and is passed on unchanged to the threads of this
machine or to a server. How values are read is another object, `insitu.reading.ReadContext`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from insitu.errors import SelectionError
from insitu.model import Selection, normalise_axes
from insitu.reducing.reductions import ReductionRules
from insitu.reducing.sketches import check_edges
from insitu.reducing.statistics import STATISTICS

__all__ = ["ReductionQuery", "axes_of_dims", "squeeze_axes"]

_RULES = frozenset(rule.name for rule in fields(ReductionRules))


@dataclass(frozen=True, slots=True)
class ReductionQuery:
    """Statistics of a selection along some axes."""

    methods: tuple[str, ...]
    """Names of `insitu.reducing.STATISTICS`. Several are computed in one pass, except those that need
    all values of an element of the result at once (`median`, `quantile`).
    """
    axes: int | Sequence[int] | None = None
    """Axes of the selection's shape; None: all. The result of argmin and argmax is a position in
    these axes, the last one fastest.
    """
    selection: Any = ...
    """Integers, slices of any step, Ellipsis, 1-D index or boolean arrays (orthogonal), or a
    `Selection`.
    """
    rules: ReductionRules = field(default_factory=ReductionRules)
    """Options of the statistics."""
    keepdims: bool = False
    """Whether reduced axes stay, with length 1."""

    @classmethod
    def of(
        cls,
        methods: str | Sequence[str],
        axes: int | Sequence[int] | None = None,
        selection: Any = ...,
        *,
        keepdims: bool = False,
        **rules: Any,
    ) -> Self:
        """Return the query of these keywords.

        Parameters
        ----------
        methods
            One name or several.
        axes, selection, keepdims
            As the fields.
        rules
            `skipna`, `ddof`, `min_count`, `q`, `edges`: see `ReductionRules`.

        Examples
        --------
        >>> ReductionQuery.of("quantile", axes=0, q=0.5).rules.q
        0.5
        """
        unknown = set(rules) - _RULES
        if unknown:
            raise TypeError(f"not an option of statistics: {', '.join(sorted(unknown))}")
        if rules.get("edges") is not None:
            rules["edges"] = check_edges(rules["edges"])
        names = (methods,) if isinstance(methods, str) else tuple(methods)
        return cls(names, axes, selection, ReductionRules(**rules), keepdims)

    def unchanged_statistics(self, ndim: int) -> list[str]:
        """Return those that leave the values as they are, as no axis is reduced."""
        if self.axes is None or normalise_axes(self.axes, ndim):
            return []
        return [name for name in self.methods if name in STATISTICS and STATISTICS[name].keeps_values_without_axes]

    def drop_axes(self, results: Mapping[str, npt.NDArray[Any]], ndim: int) -> dict[str, npt.NDArray[Any]]:
        """Return results in their order without the axes that were reduced, unless these stay."""
        if self.keepdims:
            return {method: results[method] for method in self.methods}
        along = normalise_axes(self.axes, ndim)
        return {method: squeeze_axes(results[method], along, ndim) for method in self.methods}


def squeeze_axes(values: npt.NDArray[Any], axes: tuple[int, ...], ndim: int) -> npt.NDArray[Any]:
    """Return an array without its reduced axes, counted from behind:
    there may be other axes in front.
    """
    return values.squeeze(tuple(values.ndim - ndim + axis for axis in axes)) if axes else values


def axes_of_dims(
    dims: Sequence[str],
    shape: Sequence[int],
    selection: Any,
    dim: str | Sequence[str] | None,
    axes: int | Sequence[int] | None,
) -> int | Sequence[int] | None:
    """Return the axes of a selection's shape for dimensions by name."""
    if dim is None:
        return axes
    if axes is not None:
        raise SelectionError("give either dim or axes, not both")
    chosen = Selection.of(selection, shape) if not isinstance(selection, Selection) else selection
    left = [name for name, one in zip(dims, chosen.selectors, strict=True) if not isinstance(one, (int, np.integer))]
    names = [dim] if isinstance(dim, str) else list(dim)
    unknown = [name for name in names if name not in left]
    if unknown:
        raise SelectionError(
            f"no dimension {', '.join(map(repr, unknown))}", hint=f"There are: {', '.join(left) or 'none'}"
        )
    return [left.index(name) for name in names]
