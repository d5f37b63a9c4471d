"""Random arguments of programs, as Python code: indices, slices, axes, numbers."""

from __future__ import annotations

from random import Random
from typing import Any

__all__ = ["axis_text", "chance", "index_text", "number_text", "slice_text", "subset"]


def chance(dice: Random, probability: float) -> bool:
    """Return True as often as that."""
    return dice.random() < probability


def subset(dice: Random, items: Any, least: int = 0) -> list[Any]:
    """Return some of the items, in any order."""
    items = list(items)
    return dice.sample(items, dice.randint(min(least, len(items)), len(items)))


def slice_text(dice: Random, length: int) -> str:
    """Return a slice as it is written in a call; sometimes empty, backwards or beyond the end."""
    if chance(dice, 0.02):
        return dice.choice(("slice(None, None, 0)", "slice(0.5, None)"))
    begin = dice.choice((None, None, dice.randint(-length - 1, length + 1)))
    end = dice.choice((None, None, dice.randint(-length - 1, length + 1)))
    step = dice.choice((None, None, 1, 2, 3, -1, -2))
    return f"slice({begin}, {end}, {step})" if step is not None else f"slice({begin}, {end})"


def index_text(dice: Random, length: int) -> str:
    """Return what selects along one axis: a number, a slice, a list, a mask."""
    kind = dice.choice(("slice", "slice", "number", "list", "mask", "array"))
    beyond = 1 if chance(dice, 0.04) else 0
    if kind == "slice" or not length:
        return slice_text(dice, length)
    if kind == "number":
        return str(dice.randint(-length - beyond, length - 1 + beyond))
    if kind == "mask":
        return str([chance(dice, 0.5) for _ in range(length)])
    numbers = [dice.randint(-length - beyond, length - 1 + beyond) for _ in range(dice.choice((1, 2, 3, length + 1)))]
    if kind == "array":
        return (
            f"np.array({numbers}, {dice.choice(('int', 'np.int32', 'np.uint8' if min(numbers) >= 0 else 'np.int16'))})"
        )
    return str(numbers)


def axis_text(dice: Random, ndim: int, *, several: bool = True) -> str:
    """Return an axis, some of them, or none; sometimes one that does not exist or one twice."""
    if chance(dice, 0.05):
        return str(dice.choice((ndim, -ndim - 1, (0, 0), ())) if several else dice.choice((ndim, -ndim - 1)))
    if several and chance(dice, 0.25):
        return "None"
    axes = subset(dice, range(ndim), 1)
    axes = [axis - ndim if chance(dice, 0.3) else axis for axis in axes]
    return str(tuple(axes)) if several and len(axes) > 1 else str(axes[0] if axes else 0)


def number_text(dice: Random, kind: str = "f") -> str:
    """Return a number: of Python (weak) or of NumPy."""
    whole = ("1", "2", "-3", "7", "np.int16(5)", "np.int64(2)", "np.uint8(3)")
    real = ("0.5", "-1.25", "273.15", "1e3", "np.float32(0.1)", "np.float64(2.5)", "2", "-1", "np.nan", "np.int32(4)")
    return dice.choice(whole if kind in "iub" and chance(dice, 0.7) else real)
