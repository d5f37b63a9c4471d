"""A statistic that insitu does not have, declared as all others are: the root mean square."""

from __future__ import annotations

import numpy as np

from insitu.reducing.block_facts import Array, ValueBlock
from insitu.reducing.partial_fields import Partial, sum_field
from insitu.reducing.statistic import FIELDS, Statistic, WeightedForm, like_mean
from insitu.reducing.statistics import STATISTICS

__all__ = ["declare", "remove"]


def _measure_power(block: ValueBlock) -> Array:
    return block.reduce(np.add, np.square(block.fill_skipped(0), dtype=np.float64))


def _weighted(state: Partial) -> Array:
    return np.sqrt((state["squares"] + state["sums"] ** 2 / state["weights"]) / state["weights"])


def declare() -> None:
    FIELDS["power"] = sum_field("power", _measure_power, lambda dtype, skipna: np.float64(0))
    STATISTICS.add(
        Statistic(
            name="rms",
            kinds="biuf",
            fields=("count", "power"),
            finalise=lambda reduction, partial, size: np.sqrt(partial["power"] / partial["count"]),
            dtype=like_mean,
            groups=True,
            weighted=WeightedForm(_weighted, needs_squares=True),
            options=("skipna",),
        )
    )


def remove() -> None:
    del STATISTICS["rms"], FIELDS["power"]
