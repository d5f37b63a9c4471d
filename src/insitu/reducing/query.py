"""`ReductionQuery`: which statistics of which part of an array, as one object.

It is built once, where a user's keywords arrive, and is passed on unchanged to the threads of this
machine or to a server. How values are read is another object, `insitu.reading.ReadContext`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from insitu.reducing.reductions import ReductionRules
from insitu.reducing.sketches import check_edges

__all__ = ["ReductionQuery"]

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
