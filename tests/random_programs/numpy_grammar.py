"""Random steps at NumPy's level: functions, methods, operators and indexing of a bare virtual array."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import xarray as xr

from random_programs.dice import axis_text, chance, index_text, number_text
from random_programs.grammar import Grammar
from random_programs.programs import Step

__all__ = ["GRAMMAR", "other_operand"]

SUMS = ("sum", "mean", "std", "var", "nansum", "nanmean", "nanstd", "nanvar", "average")
EXTREMES = ("min", "max", "nanmin", "nanmax", "any", "all", "ptp", "count_nonzero", "amin", "amax")
POSITIONS = ("argmin", "argmax", "nanargmin", "nanargmax")


def begin(dice: Random, ds: xr.Dataset) -> Step:
    """Return the first step: which array."""
    names = [name for name, v in ds.variables.items() if name not in ds.xindexes]
    return Step(f"x = ds[{dice.choice(('a', *names))!r}].data")


GRAMMAR = Grammar(begin, np.ndarray)
production = GRAMMAR.production


def other_operand(dice: Random, x: Any, ds: xr.Dataset) -> str:
    """Return another operand."""
    numbers = [name for name, v in ds.data_vars.items() if v.dtype.kind in "fiub"]
    choices = [
        "x",
        f"ds[{dice.choice(numbers)!r}].data",
        number_text(dice, x.dtype.kind),
        number_text(dice, x.dtype.kind),
    ]
    if x.ndim and x.shape[0]:
        choices += [
            "x[0]",
            "x[:1]",
            "x[::-1]",
            "np.asarray(x)",
            f"np.arange({x.shape[-1]})",
            f"np.ones({(x.shape[-1], 1)}, 'f4')",
        ]
    return dice.choice(choices)


@production(10)
def _index(dice: Random, x: Any, names: Any) -> Step | None:
    keys = []
    for length in x.shape[: dice.randint(0, x.ndim)]:
        if chance(dice, 0.1):
            keys.append("None")
        key = index_text(dice, length)
        if length and chance(dice, 0.05):
            key = f"np.array([[0, -1], [{dice.randrange(length)}, 0]])"
        keys.append(key)
    if chance(dice, 0.15):
        keys.insert(dice.randint(0, len(keys)), "...")
    if chance(dice, 0.04):
        keys.insert(
            dice.randint(0, len(keys)), dice.choice(("True", "False", "...", "0", "1.5", "np.array(1)", "'a'", "[]"))
        )
    if chance(dice, 0.04) and x.dtype.kind in "fiu":
        return Step("x = x[x > 1]")
    if not keys:
        return Step(f"x = x[{dice.choice(('...', '()', 'None', '..., None'))}]")
    return Step(f"x = x[{', '.join(keys)}{',' if len(keys) == 1 and chance(dice, 0.2) else ''}]")


@production(8)
def _sums(dice: Random, x: Any, names: Any) -> Step | None:
    name = dice.choice(SUMS)
    more = ", keepdims=True" if chance(dice, 0.2) and name != "average" else ""
    if name.endswith(("std", "var")) and chance(dice, 0.3):
        more += ", ddof=1"
    if chance(dice, 0.1) and name in ("sum", "mean", "nansum", "nanmean"):
        more += f", dtype={dice.choice(('f8', 'f4', 'i4'))!r}"
    if chance(dice, 0.05) and name in ("sum", "mean", "nansum") and x.ndim:
        more += f", where=np.arange({x.shape[-1]}) > 0"
    if chance(dice, 0.05) and name == "sum":
        more += ", initial=5"
    axis = axis_text(dice, x.ndim)
    call = (
        f"x.{name}(axis={axis}{more})" if chance(dice, 0.3) and hasattr(x, name) else f"np.{name}(x, axis={axis}{more})"
    )
    rule = "reduction" if x.dtype.kind in "fc" or not name.endswith("sum") else "exact"
    if "dtype" in more or "where" in more:  # the sum is formed in that type; NumPy forms it of values in memory
        rule = "composed"
    return Step(f"x = {call}", rule, 2 if name.endswith("var") else 1)


@production(6)
def _extremes(dice: Random, x: Any, names: Any) -> Step | None:
    name = dice.choice((*EXTREMES, *POSITIONS))
    axis = axis_text(dice, x.ndim, several=name not in POSITIONS)
    if name in POSITIONS and chance(dice, 0.2):
        axis = "None"
    more = ", keepdims=True" if chance(dice, 0.2) else ""
    call = (
        f"x.{name}(axis={axis}{more})" if chance(dice, 0.3) and hasattr(x, name) else f"np.{name}(x, axis={axis}{more})"
    )
    return Step(f"x = {call}")


@production(2)
def _ufunc_methods(dice: Random, x: Any, names: Any) -> Step | None:
    axis = axis_text(dice, x.ndim, several=False)
    text = dice.choice(
        (
            f"np.maximum.reduce(x, axis={axis})",
            f"np.logical_or.reduce(x, axis={axis})",
            f"np.minimum.accumulate(x, axis={axis})",
            "np.subtract.outer(x.ravel()[:3], x.ravel()[:2])",
            f"np.add.reduce(x, axis={axis})",
            f"np.add.accumulate(x, axis={axis})",
            f"np.maximum.reduceat(x, [0, 1], axis={axis})",
        )
    )
    return Step(f"x = {text}", "reduction" if "add.reduce(" in text and x.dtype.kind in "fc" else "exact")


@production(5)
def _order(dice: Random, x: Any, names: Any) -> Step | None:
    one, two = (axis_text(dice, x.ndim, several=False) for _ in range(2))
    axes = dice.sample(range(x.ndim), x.ndim)
    choices = [
        f"np.transpose(x, {tuple(axes)})",
        "x.T",
        f"np.moveaxis(x, {one}, {two})",
        f"np.swapaxes(x, {one}, {two})",
        f"np.flip(x, {axis_text(dice, x.ndim)})",
        "np.squeeze(x)",
        f"np.squeeze(x, {one})",
        f"np.expand_dims(x, {one})",
        f"np.expand_dims(x, {(0, 2)})",
        f"np.rollaxis(x, {one})",
        "np.atleast_3d(x)",
        "np.atleast_2d(x)",
        "np.flipud(x)",
        "np.fliplr(x)",
        "np.rot90(x)",
        "x.transpose()",
        f"x.transpose({', '.join(map(str, axes))})",
        "x.squeeze()",
        "np.ravel(x)",
        "x.reshape(-1)",
        f"np.reshape(x, {(*x.shape, 1)})",
        "np.reshape(x, (7, 11))",
        "x.flatten()",
        "x.copy()",
        f"np.broadcast_to(x, {(2, *x.shape)})",
        "np.permute_dims(x)",
        "np.matrix_transpose(x)",
        "np.ravel(x, order='F')",
    ]
    return Step(f"x = {dice.choice(choices)}")
