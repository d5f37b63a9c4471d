"""A grammar of programs: productions, each of which makes a next step for what `x` is by now."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import xarray as xr

from random_programs.programs import Step

__all__ = ["Grammar", "Production"]

Production = Callable[[Random, Any, dict[str, Any]], "Step | None"]
"""Random choices, `x`, and all names; None where it has nothing to do."""
TRIALS = 50


class Grammar:
    """Productions with weights."""

    def __init__(self, begin: Callable[[Random, xr.Dataset], Step], *types: type) -> None:
        self.begin = begin
        self.types = types
        """What `x` can be; a program ends with anything else."""
        self.productions: list[Production] = []
        self.weights: list[int] = []

    def production(self, weight: int = 2) -> Callable[[Production], Production]:
        """Register the decorated function."""

        def register(function: Production) -> Production:
            self.productions.append(function)
            self.weights.append(weight)
            return function

        return register

    def then(self, dice: Random, x: Any, names: dict[str, Any]) -> Step | None:
        """Return a next step; None where the program has to end."""
        if "next" in names:  # what a production announced
            return names.pop("next")
        if not isinstance(x, self.types) or names.get("is_elementary"):
            return None
        for _ in range(TRIALS):
            step = dice.choices(self.productions, self.weights)[0](dice, x, names)
            if step is not None:
                names["is_elementary"] = step.rule == "elementary"  # no sums of what may differ by 2 ulp
                return step
        return None
