"""Random steps at xarray's level: selections, arithmetic, reductions, groups, windows, joins, writes.

Each production looks at what `x` is (its dimensions, type, labels) and returns a step, or None where
it has nothing to do. Most steps are possible; some are errors, which have to be the same errors.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import xarray as xr

from random_programs.dice import chance, index_text, number_text, slice_text, subset
from random_programs.grammar import Grammar
from random_programs.programs import Step

__all__ = ["GRAMMAR"]

EXACT = ("min", "max", "count", "any", "all", "argmin", "argmax", "first", "last")
STATISTICS = ("mean", "sum", "min", "max", "std", "var", "count", "any", "all", "median", "prod")
TEXTS = ("x == 'a'", "x + 'b'", "x.str.len()", "x.str.upper()", "x != 'a'", "x.astype(str)")
OF_KIND = {
    "M": ("x - x.min()", "x + np.timedelta64(36, 'h')", "x.dt.month", "x.dt.floor('D')", "x > np.datetime64('2001')"),
    "m": (
        "x * 2",
        "x / 2",
        "x + np.timedelta64(1, 'h')",
        "abs(x)",
        "-x",
        "x.dt.days",
        "x // 3",
        "x / np.timedelta64(1, 'h')",
    ),
    "O": TEXTS,
    "U": TEXTS,
}
"""What can be done with dates, durations and texts."""
INDEXERS = ("ds.zone.clip(0, 1).isel(time=[0, 1])", "ds.zone == 1", "ds.zone.clip(0, 0)")
ELEMENTARY = ("np.exp", "np.sin", "np.log1p", "np.arctan", "np.cbrt", "np.tanh", "np.log10")
ROUNDED = (
    "np.sqrt",
    "np.floor",
    "np.ceil",
    "np.trunc",
    "np.sign",
    "np.abs",
    "np.square",
    "np.negative",
    "np.isfinite",
    "np.isnan",
    "np.logical_not",
    "np.rint",
    "np.conjugate",
    "np.real",
    "np.signbit",
)


def begin(dice: Random, ds: xr.Dataset) -> Step:
    """Return the first step: which variables."""
    names = list(ds.data_vars)
    if chance(dice, 0.12):
        return Step(f"x = ds[{sorted(subset(dice, names, 1))}]")
    if chance(dice, 0.05):
        return Step(f"x = ds[{dice.choice(list(ds.coords))!r}]")
    return Step(f"x = ds[{dice.choice(('a', dice.choice(names)))!r}]")


GRAMMAR = Grammar(begin, xr.DataArray, xr.Dataset)
production = GRAMMAR.production


def _kind(x: Any) -> str:
    """Return the kind of type; of datasets the one that all have, or "" ."""
    if isinstance(x, xr.DataArray):
        return str(x.dtype.kind)
    kinds = {str(v.dtype.kind) for v in x.data_vars.values()}
    return kinds.pop() if len(kinds) == 1 else ""


def _dims(dice: Random, x: Any, least: int = 1) -> str:
    """Return dimensions to reduce along, as code."""
    if chance(dice, 0.03):
        return repr(dice.choice(("nothing", ("time", "nothing"))))
    dims = subset(dice, map(str, x.dims), least)
    if not dims or chance(dice, 0.15):
        return "None"
    return repr(dims[0]) if len(dims) == 1 else repr(tuple(dims))


def _statistic(dice: Random, x: Any, among: tuple[str, ...] = STATISTICS) -> tuple[str, str, int]:
    """Return a method, its rule, and the power of its rounding."""
    method = dice.choice(among)
    if method == "prod" and not _has_safe_product(x):
        method = "sum"
    floats = _kind(x) not in ("i", "u", "b", "M", "m", "O", "U") or method in ("mean", "std", "var", "median")
    return method, "reduction" if floats and method not in EXACT else "exact", 2 if method == "var" else 1


def _has_safe_product(x: Any) -> bool:
    """Return whether no product overflows or underflows on the way, whatever its order; and has few factors."""
    if isinstance(x, xr.Dataset) or x.dtype.kind not in "f" or not x.size:
        return bool(isinstance(x, xr.DataArray) and x.dtype.kind in "iub")
    sizes = np.abs(x.values.astype("f8"))
    sizes = sizes[np.isfinite(sizes)]
    logs = np.abs(np.log2(sizes[sizes > 0]))
    return not (sizes == 0).any() and bool(np.isfinite(x.values[~np.isnan(x.values)]).all()) and float(logs.sum()) < 60


def _keywords(dice: Random, method: str, kind: str = "f") -> str:
    """Return more arguments of a reduction."""
    more = ""
    if method not in ("count", "any", "all", "first", "last") and chance(dice, 0.3):
        more += f", skipna={dice.choice((True, False))}"
    if method in ("sum", "prod") and chance(dice, 0.2) and kind == "f":
        more += f", min_count={dice.randint(1, 4)}"
    if method in ("std", "var") and chance(dice, 0.3):
        more += ", ddof=1"
    if chance(dice, 0.15):
        more += f", keep_attrs={dice.choice((True, False))}"
    return more


# Selections.


@production(6)
def _isel(dice: Random, x: Any, names: Any) -> Step | None:
    if not x.dims:
        return None
    chosen = subset(dice, x.sizes, 1)
    if chance(dice, 0.02):
        chosen.append("nothing")
    keys = {dim: index_text(dice, x.sizes.get(dim, 3)) for dim in chosen}
    return Step("x = x.isel(" + ", ".join(f"{dim}={key}" for dim, key in keys.items()) + ")")


@production(3)
def _points(dice: Random, x: Any, names: Any) -> Step | None:
    dims = subset(dice, x.sizes, 1)
    if not dims or any(not x.sizes[dim] for dim in dims) or "p" in x.dims:
        return None
    count = dice.randint(1, 4)
    keys = [
        f"{dim}=xr.DataArray({[dice.randint(-x.sizes[dim], x.sizes[dim] - 1) for _ in range(count)]}, dims='p')"
        for dim in dims
    ]
    return Step(f"x = x.isel({', '.join(keys)})")


@production(3)
def _sel(dice: Random, x: Any, names: Any) -> Step | None:
    choices = [
        "x.sel(y=slice(0, 50))",
        "x.sel(y=slice(50, 0))",
        "x.sel(y=7, method='nearest')",
        "x.sel(y=1.5)",
        "x.sel(time='2001-02')",
        "x.sel(time=slice('2001-01-29', '2001-02-03'))",
        "x.sel(time='2050')",
        "x.sel(x=[0, 20], method='nearest')",
        "x.sel(x=10)",
        "x.loc[dict(y=x.y[0])]",
        "x.sel(y=x.y[::-1])",
        "x.sel(time=x.time[1:4])",
        "x.sel(time=x['time.month'] == 2)",
        "x.sel(level=3)",
        "x.sel(y=[-40, 50], method='nearest', tolerance=1)",
    ]
    return Step(f"x = {dice.choice(choices)}") if x.dims else None


@production(3)
def _shape(dice: Random, x: Any, names: Any) -> Step | None:
    dims = [str(dim) for dim in x.dims]
    choices = ["x.squeeze()", "x.expand_dims('new')", "x.expand_dims(new=[5, 6])", "x.T" if hasattr(x, "T") else "x"]
    if "new" in dims:
        choices = ["x.squeeze()", "x.isel(new=0)"]
    if dims:
        choices += [
            f"x.transpose({', '.join(map(repr, dice.sample(dims, len(dims))))})",
            f"x.head({dice.choice(dims)}=2)",
            f"x.tail({dice.choice(dims)}=3)",
            f"x.thin({dice.choice(dims)}=2)",
            f"x.rename({dice.choice(dims)}='renamed')",
            f"x.drop_isel({dice.choice(dims)}=[0])",
            f"x.sortby({dice.choice([*dims, 'zone'])!r}, ascending={dice.choice((True, False))})",
            f"x.isel({dice.choice(dims)}=slice(0))",
            "x.copy()",
            f"x.swap_dims({dims[0]}='other')",
            f"x.drop_vars({dice.choice(['y', 'area', 'zone', 'none'])!r})",
            "x.compute()",
            "x.reset_coords(drop=True)",
        ]
    if len(dims) >= 2 and "s" not in dims:
        one, two = dice.sample(dims, 2)
        choices += [f"x.stack(s=({one!r}, {two!r}))", f"x.stack(s=({one!r}, {two!r})).unstack('s')"]
    return Step(f"x = {dice.choice(choices)}")


@production(2)
def _where_drop(dice: Random, x: Any, names: Any) -> Step | None:
    condition = dice.choice(("x.y > 0", "x['time.month'] == 2", "x.zone == 1", "ds.area > 0.5", "x.area > 0.5"))
    drop = dice.choice(("", "", ", drop=True"))
    return Step(f"x = x.where({condition}{drop})") if x.dims else None


@production(1)
def _virtual_indexer(dice: Random, x: Any, names: Any) -> Step | None:
    if "time" not in x.dims or not x.sizes["time"]:
        return None
    return Step(f"x = x.isel(time={dice.choice(INDEXERS)})")


# Arithmetic.


@production(8)
def _with_number(dice: Random, x: Any, names: Any) -> Step | None:
    kind = _kind(x)
    if kind in OF_KIND:
        return Step(f"x = {dice.choice(OF_KIND[kind])}")
    sign = dice.choice(("+", "-", "*", "/", "//", "%", ">", "<=", "==", "!=", "&" if kind in "bi" else "<"))
    if kind == "b" and sign in "-%//":
        sign = "|"
    number = number_text(dice, kind or "f")
    if sign in "&|":
        number = dice.choice(("True", "3"))
    return Step(f"x = {number} {sign} x" if chance(dice, 0.3) else f"x = x {sign} {number}")


@production(5)
def _with_variable(dice: Random, x: Any, names: Any) -> Step | None:
    if _kind(x) not in ("f", "i", "u", "b", "c"):
        return None
    ds = names["ds"]
    numbers = [name for name, v in ds.variables.items() if v.dtype.kind in "fiub" and name not in ("level",)]
    other = f"ds[{dice.choice(numbers)!r}]"
    if chance(dice, 0.3) and isinstance(x, xr.DataArray) and x.ndim:
        key = dice.choice(("0", "slice(None, None, -1)", "slice(1, None)"))
        other = f"x.isel({dice.choice(list(map(str, x.dims)))}={key})"
    sign = dice.choice(("+", "-", "*", "/", ">", "<", "==", "//", "%"))
    text = dice.choice(
        (
            f"x {sign} {other}",
            f"x {sign} {other}",
            f"{other} {sign} x",
            f"np.maximum(x, {other})",
            f"x.where({other} > 0)",
            f"x.where({other} > 0, {other})",
            f"xr.where(x > 1, x, {other})",
            f"x.fillna({other})",
            f"np.copysign(x, {other})",
            f"x.combine_first({other})",
            f"np.fmin({other}, x)",
        )
    )
    return Step(f"x = {text}")


@production(5)
def _each_value(dice: Random, x: Any, names: Any) -> Step | None:
    kind = _kind(x)
    general = ["x.isnull()", "x.notnull()", "x.fillna(0)", "x.dropna('y')" if "y" in x.dims else "x.isnull()"]
    if kind in ("f", "i", "u", "b"):
        general += [
            f"{dice.choice(ROUNDED)}(x)",
            f"x.clip({number_text(dice)}, 300)",
            f"x.clip(max={number_text(dice, kind)})",
            f"x.round({dice.choice(('', '1', '-1'))})",
            f"x.astype({dice.choice(('f4', 'f8', 'i4', 'bool', 'i8', 'c8', '>f4', 'u1', 'f2'))!r})",
            f"x.isin([1, 2.5, {number_text(dice)}])",
            "abs(x)",
            "-x",
            f"x.where(x > {number_text(dice)}, {number_text(dice)})",
            "x.where(x != 1, other=0)",
            "x.real",
            "x.imag",
            "np.nan_to_num(x.data) + 0 * x if hasattr(x, 'data') else x",
            "+x",
            "~x",
        ]
        if kind != "b" and "int" not in str(getattr(x, "dtype", "")):
            return Step(f"x = {dice.choice(general)}")
        general = [text for text in general if "astype" not in text or chance(dice, 0.5)]
    return Step(f"x = {dice.choice(general)}")


@production(2)
def _elementary(dice: Random, x: Any, names: Any) -> Step | None:
    if _kind(x) != "f":
        return None
    text = dice.choice(
        (
            f"{dice.choice(ELEMENTARY)}(x)",
            "np.hypot(x, ds['area'])",
            "x ** 2.5",
            "np.arctan2(x, 3)",
            "x ** 3",
            "2.0 ** (x / 100)",
        )
    )
    return Step(f"x = {text}", "elementary")


@production(1)
def _squared(dice: Random, x: Any, names: Any) -> Step | None:
    return Step(dice.choice(("x = x ** 2", "x = x ** 0.5", "x = x ** 1"))) if _kind(x) == "f" else None


@production(2)
def _in_place(dice: Random, x: Any, names: Any) -> Step | None:
    if not isinstance(x, xr.DataArray) or x.dtype.kind not in "fiu":
        return None
    sign = dice.choice(("+=", "*=", "-=", "/="))
    choices = [
        f"x {sign} {number_text(dice, x.dtype.kind)}",
        f"x {sign} ds['area']",
        "x[...] = 3",
        "x[x > 1] = 0" if x.ndim == 1 else "x[...] = x + 1",
    ]
    if x.ndim:
        dim = dice.choice(list(map(str, x.dims)))
        choices += [
            f"x[dict({dim}={slice_text(dice, x.sizes[dim])})] = 9",
            f"x.loc[dict({dim}=x[{dim!r}][:2])] = 4",
            f"x[dict({dim}=0)] = x.isel({dim}=-1)",
            "x[0] = 1.5",
        ]
    return Step(f"x = x.copy(); {dice.choice(choices)}")
