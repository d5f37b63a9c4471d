"""Random steps at xarray's level that reduce, group, move windows, join or write."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import xarray as xr

from random_programs.dice import chance, number_text, subset
from random_programs.programs import Step
from random_programs.xarray_grammar import _dims, _keywords, _kind, _statistic, production

__all__: list[str] = []

GROUPED = ("mean", "sum", "min", "max", "std", "var", "count", "first", "last", "median")
WINDOWED = ("mean", "sum", "min", "max", "std", "var", "count", "median")


@production(9)
def _reduce(dice: Random, x: Any, names: Any) -> Step | None:
    method, rule, power = _statistic(dice, x)
    return Step(f"x = x.{method}({_dims(dice, x)}{_keywords(dice, method, _kind(x))})", rule, power)


@production(3)
def _position(dice: Random, x: Any, names: Any) -> Step | None:
    if not x.dims:
        return None
    dim = dice.choice(list(map(str, x.dims)))
    method = dice.choice(("argmin", "argmax", "idxmin", "idxmax", "argmax"))
    if not np.all([x.sizes.get(dim, 0) for dim in x.dims]):
        return None
    return Step(f"x = x.{method}({dim!r}{dice.choice(('', '', ', skipna=False'))})")


@production(2)
def _quantile(dice: Random, x: Any, names: Any) -> Step | None:
    if _kind(x) not in ("f", "i", "u") or "quantile" in x.dims or "quantile" in x.coords:
        return None
    q = dice.choice(("0.5", "[0.1, 0.9]", "0.25", "1.5", "[0.0, 1.0]"))
    method = dice.choice(("", "", ", method='nearest'", ", skipna=False", ", method='lower'"))
    return Step(f"x = x.quantile({q}, {_dims(dice, x)}{method})", "selected")


def _group(dice: Random, x: Any) -> str | None:
    """Return what to group by, as code."""
    choices = []
    if "time" in x.dims and "time" in x.coords:
        choices += ["'time.month'", "'time.day'", "'time.year'", "'time.season'", "'time.dayofyear'"]
    if "zone" in x.coords and x.zone.dims:
        choices += ["'zone'", "x.zone", "x.zone > 0"]
    if "y" in x.coords and x.y.dims:
        choices += ["'y'", "x.y > 0"]
    if "x" in x.dims and "y" in x.dims:
        choices += ["ds.area > 0.5"]
    return dice.choice(choices) if choices else None


@production(5)
def _grouped(dice: Random, x: Any, names: Any) -> Step | None:
    group = _group(dice, x)
    if group is None or not np.all(list(x.sizes.values())):
        return None
    method, rule, power = _statistic(dice, x, GROUPED)
    if "area" in group and method == "median":
        method = "mean"
    dims = dice.choice(("", "", "", f"{_dims(dice, x)}", "..."))
    if method in ("first", "last"):
        dims = ""
    return Step(f"x = x.groupby({group}).{method}({dims})", _rule_of_groups(rule, group), power)


def _rule_of_groups(rule: str, group: str) -> str:
    """Return the rule for groups: xarray stacks what is grouped by two dimensions, which takes its values to memory."""
    return "composed" if rule == "reduction" and "area" in group else rule


@production(2)
def _group_arithmetic(dice: Random, x: Any, names: Any) -> Step | None:
    group = _group(dice, x)
    if group is None or "area" in group or _kind(x) not in ("f", "i"):
        return None
    dims = "'y'" if group in ("'y'", "x.y > 0") else "'time'"
    names["next"] = Step(f"x = x.groupby({group}) {dice.choice('-+*')} y")
    return Step(f"y = x.groupby({group}).mean({dims})", "reduction")


@production(2)
def _bins(dice: Random, x: Any, names: Any) -> Step | None:
    choices = [name for name in ("y", "x", "zone", "area") if name in x.coords and x[name].ndim]
    if not choices or not np.all(list(x.sizes.values())):
        return None
    method, rule, power = _statistic(dice, x, ("mean", "sum", "max", "count"))
    name = dice.choice(choices)
    bins = {"y": "[-50, 0, 20, 60]", "x": "[-1, 5, 15]", "zone": "[-1, 0, 1, 2]", "area": "[0, 0.5, 1]"}[name]
    labels = dice.choice(("", "", ", right=False", f", labels=list('abcd')[:{bins.count(',')}]"))
    return Step(f"x = x.groupby_bins({name!r}, {bins}{labels}).{method}()", _rule_of_groups(rule, name), power)


@production(4)
def _resample(dice: Random, x: Any, names: Any) -> Step | None:
    if "time" not in x.dims or "time" not in x.coords or not np.all(list(x.sizes.values())):
        return None
    method, rule, power = _statistic(dice, x, GROUPED)
    every = dice.choice(("2D", "3D", "MS", "YS", "12h", "QS-DEC", "5D"))
    more = dice.choice(("", "", ", closed='right'", ", label='right'"))
    return Step(f"x = x.resample(time={every!r}{more}).{method}()", rule, power)


@production(4)
def _rolling(dice: Random, x: Any, names: Any) -> Step | None:
    if not x.dims or _kind(x) not in ("f", "i", "u", "b"):
        return None
    method, rule, power = _statistic(dice, x, WINDOWED)
    windows = ", ".join(f"{dim}={dice.randint(1, 4)}" for dim in subset(dice, x.dims, 1)[:2])
    more = dice.choice(("", "", ", min_periods=1", ", center=True", ", min_periods=2, center=True"))
    if chance(dice, 0.15) and "w" not in x.dims:
        dim = dice.choice(list(map(str, x.dims)))
        how = dice.choice(("", ", stride=2", ", fill_value=0"))
        return Step(f"x = x.rolling({dim}={dice.randint(1, 4)}{more}).construct('w'{how})")
    # Means of whole numbers are of floats, too.
    rule = "reduction" if method not in ("min", "max", "count") else rule
    return Step(f"x = x.rolling({windows}{more}).{method}()", rule, power)


@production(3)
def _coarsen(dice: Random, x: Any, names: Any) -> Step | None:
    if not x.dims or _kind(x) not in ("f", "i", "u", "b"):
        return None
    method, rule, power = _statistic(dice, x, WINDOWED)
    windows = ", ".join(f"{dim}={dice.randint(1, 3)}" for dim in subset(dice, x.dims, 1)[:2])
    boundary = dice.choice(("trim", "trim", "pad", "exact"))
    return Step(f"x = x.coarsen({windows}, boundary={boundary!r}).{method}()", rule, power)


@production(3)
def _weighted(dice: Random, x: Any, names: Any) -> Step | None:
    if _kind(x) not in ("f", "i"):
        return None
    weights = dice.choice(
        ("ds.area", "np.cos(np.deg2rad(ds.y))", "abs(ds['a']).fillna(0)", "ds.area.isel(y=0)", "ds.zone.astype('f8')")
    )
    method = dice.choice(("mean", "sum", "std", "var", "sum_of_weights", "mean", "sum_of_squares"))
    dims = _dims(dice, x)
    return Step(
        f"x = x.weighted({weights}).{method}({dims})",
        "composed",
        3 if method in ("std", "var", "sum_of_squares") else 2,
    )


@production(3)
def _labels(dice: Random, x: Any, names: Any) -> Step | None:
    choices = []
    if "y" in x.dims and "y" in x.coords:
        choices += [
            "x.reindex(y=[-40, 0, 50])",
            "x.reindex(y=x.y[::-1])",
            "x.reindex(y=[0, 7, 60], method='nearest')",
            f"x.reindex(y=[-40, 1], fill_value={number_text(dice, _kind(x) or 'f')})",
            "x.reindex_like(ds.isel(y=slice(1, None)))",
            "xr.align(x, ds['area'].isel(y=[0]), join='outer')[0]",
            "x.interp(y=[0.0, 10.0])",
            "x.reindex(y=[])",
        ]
    if "time" in x.dims and "time" in x.coords:
        choices += [
            "x.reindex(time=x.time[::2])",
            "x.reindex(time=ds.time, method='ffill')",
            "x.broadcast_like(ds['a'])",
            "x.interp(time=ds.time[1:3])",
            "x.convert_calendar('noleap', align_on='date')",
        ]
    return Step(f"x = {dice.choice(choices)}") if choices else None


@production(5)
def _move(dice: Random, x: Any, names: Any) -> Step | None:
    if not x.dims:
        return None
    dim, by = dice.choice(list(map(str, x.dims))), dice.randint(-4, 4)
    kind = _kind(x) or "f"
    choices = [
        f"x.shift({dim}={by})",
        f"x.roll({dim}={by})",
        f"x.roll({dim}={by}, roll_coords=True)",
        f"x.shift({dim}=20)",
        f"x.diff({dim!r})",
        f"x.diff({dim!r}, n=2, label='lower')",
        f"x.cumsum({dim!r})",
        f"x.cumprod({dim!r})",
        "x.cumsum()",
        f"x.shift({dim}={by}, fill_value={number_text(dice, kind)})",
    ]
    padding = f"{dim}=({dice.randint(0, 3)}, {dice.randint(0, 3)})"
    choices += [
        f"x.pad({padding})",
        f"x.pad({padding}, mode={dice.choice(('edge', 'wrap', 'reflect', 'symmetric', 'linear_ramp'))!r})",
        f"x.pad({padding}, constant_values={number_text(dice, kind)})",
        f"x.pad({padding}, mode='reflect', reflect_type='odd')",
    ]
    if kind == "f" and dim in x.coords and x[dim].dtype.kind == "f":
        choices += [f"x.differentiate({dim!r})", f"x.integrate({dim!r})"]
    return Step(f"x = {dice.choice(choices)}")


@production(1)
def _cumulative(dice: Random, x: Any, names: Any) -> Step | None:
    if not x.dims or _kind(x) not in ("f", "i"):
        return None
    method, rule, power = _statistic(dice, x, ("sum", "mean", "max", "min"))
    return Step(
        f"x = x.cumulative({dice.choice(list(map(str, x.dims)))!r}).{method}()",
        "reduction" if method in ("sum", "mean") else rule,
        power,
    )


@production(4)
def _join(dice: Random, x: Any, names: Any) -> Step | None:
    dims = list(map(str, x.dims))
    choices = (
        ["xr.concat([x, x], 'joined')", "xr.concat([x, x + x], 'joined', coords='minimal', compat='override')"]
        if "joined" not in dims
        else []
    )
    if dims:
        dim = dice.choice(dims)
        choices += [
            f"xr.concat([x, x.isel({dim}=slice(0, 2))], {dim!r})",
            f"xr.concat([x.isel({dim}=slice(2)), x.isel({dim}=slice(2, None))], {dim!r})",
            f"xr.concat([x.isel({dim}=[0]), x.isel({dim}=slice(None, None, -2))], {dim!r})",
        ]
    if isinstance(x, xr.Dataset):
        choices += ["x.merge(ds[['a']], compat='override')", "x.to_dataarray()", "x.assign(new=ds['a'] * 2)"]
    else:
        choices += ["x.to_dataset(name='v')", "xr.merge([x.rename('v'), ds[['a']]], compat='override')"]
    return Step(f"x = {dice.choice(choices)}") if choices else None


@production(2)
def _products(dice: Random, x: Any, names: Any) -> Step | None:
    if not isinstance(x, xr.DataArray) or x.dtype.kind != "f" or not x.size:
        return None
    other = dice.choice(("ds['area']", "ds['a']", "x"))
    dims = _dims(dice, x)
    if dims == "None" or "nothing" in dims:
        dims = repr(dice.choice(list(map(str, x.dims)))) if x.ndim else "None"
    text = dice.choice((f"xr.dot(x, {other}, dim={dims})", f"xr.cov(x, {other}, dim={dims})", f"x.dot({other})"))
    return Step(f"x = {text}", "composed" if "cov" in text else "reduction", 2)


@production(1)
def _write(dice: Random, x: Any, names: Any) -> Step | None:
    if isinstance(x, xr.Dataset) and not x.data_vars:
        return None
    form = dice.choice(("write_netcdf", "write_zarr"))
    text = dice.choice(("x.drop_encoding()", "x.drop_encoding()", "x"))
    more = ""
    if isinstance(x, xr.DataArray) and x.ndim and chance(dice, 0.4):
        sizes = tuple(dice.randint(1, max(size, 1)) for size in x.shape)
        more = f", encoding={{'x': {{{'chunksizes' if form == 'write_netcdf' else 'chunks'!r}: {sizes}}}}}"
        text = "x.drop_encoding()"
    return Step(f"x = {form}({text}{more})")
