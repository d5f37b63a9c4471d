"""Programs as data: a list of Python statements, each with the rule by which its result is compared.

A program computes `x` from `ds`. It prints as Python code, so that a failing one can be shortened
by hand. `Oracle` runs it on values in memory as DESIGN demands it of us: reductions of floats in
float64, cast to the type that xarray gives.
"""

from __future__ import annotations

import itertools
import operator
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import xarray as xr

from random_programs.compare import Failure, largest, settle

__all__ = ["Oracle", "Program", "Step", "draw_program", "parse", "quiet", "run"]

EPS = float(np.finfo("f8").eps)
PLAIN = {"use_bottleneck": False, "use_numbagg": False, "use_flox": False}


@dataclass(frozen=True)
class Step:
    """One statement; `power`: how a rounding error grows with the values (2: with their squares)."""

    text: str
    rule: str = "exact"
    power: int = 1

    @property
    def target(self) -> str:
        """The name that it binds."""
        return self.text.split(" ", 1)[0]


@dataclass(frozen=True)
class Program:
    """Statements that compute `x` from `ds`."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join(step.text for step in self.steps)

    @property
    def is_bitwise(self) -> bool:
        """Whether its result has the same bits each time; transcendental functions may differ by stride."""
        return all(step.rule != "elementary" for step in self.steps)


def parse(text: str) -> Program:
    """Return the program of these lines, each compared exactly."""
    return Program(tuple(Step(line) for line in text.splitlines()))


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings, which are not compared."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def write_netcdf(x: Any, **options: Any) -> xr.Dataset:
    """Write a dataset (of a DataArray: its own) to netCDF and load it again; the last word of a program."""
    return _rewrite(x, lambda ds, path: ds.to_netcdf(f"{path}/x.nc", engine="netcdf4", **options), "x.nc", "netcdf4")


def write_zarr(x: Any, **options: Any) -> xr.Dataset:
    """Write a dataset (of a DataArray: its own) to Zarr and load it again."""
    return _rewrite(x, lambda ds, path: ds.to_zarr(f"{path}/x.zarr", consolidated=False, **options), "x.zarr", "zarr")


def _rewrite(x: Any, write: Callable[[xr.Dataset, str], Any], name: str, engine: Any) -> xr.Dataset:
    ds = x.to_dataset(name="x") if isinstance(x, xr.DataArray) else x
    with tempfile.TemporaryDirectory() as folder:
        write(ds, folder)
        more = {"consolidated": False} if engine == "zarr" else {}
        return xr.load_dataset(Path(folder) / name, engine=engine, **more)[list(ds.data_vars)]  # a folder has no order


NAMES = {"np": np, "xr": xr, "operator": operator, "write_netcdf": write_netcdf, "write_zarr": write_zarr}
"""What programs can use beside `ds`."""


def run(program: Program, ds: xr.Dataset, finish: Callable[[Any], Any] = settle) -> Any:
    """Return what a program makes of a dataset, in memory, or its error."""
    names = {**NAMES, "ds": ds}
    with quiet(), xr.set_options(**PLAIN):
        try:
            for step in program.steps:
                exec(step.text, names)
            return finish(names["x"])
        except Exception as error:
            return Failure(error)


class Oracle:
    """Runs programs, step by step, on values in memory."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = {**NAMES, **names}

    def apply(self, step: Step) -> Any:
        """Do one step; return what it binds, or its error."""
        wide = {name: _widen(value) for name, value in self.names.items()} if step.rule == "reduction" else None
        with quiet(), xr.set_options(**PLAIN):
            try:
                exec(step.text, self.names)
                made = self.names[step.target]
                if wide is not None and any(
                    wide[name] is not self.names.get(name) for name in ("x", "y", "ds") if name in wide
                ):
                    made = self._in_float64(step, wide, made)
                    self.names[step.target] = made
            except Exception as error:
                return Failure(error)
        return made

    @staticmethod
    def _in_float64(step: Step, wide: dict[str, Any], plain: Any) -> Any:
        """Return the result of a reduction in float64, in the types of the plain one."""
        exec(step.text, wide)
        return _cast_like(wide[step.target], plain)

    def rounding(self, step: Step) -> float:
        """Return the rounding error that the sums of a step may have with the values at hand."""
        if step.rule not in ("reduction", "composed"):
            return 0.0
        values = [self.names[name] for name in ("x", "y") if name in self.names] or [self.names["ds"]]
        size, count = (max(each) for each in zip(*map(largest, values), strict=True))
        precision = 1.2e-7 if step.rule == "composed" and any(map(_is_narrow, [*values, self.names["ds"]])) else EPS
        return 16 * max(count, 64) * precision * size**step.power


def _is_narrow(value: Any) -> bool:
    """Return whether there are floats of less than 8 bytes."""
    arrays = value.variables.values() if isinstance(value, xr.Dataset) else [value]
    return any(np.dtype(getattr(array, "dtype", "i8")).str[1:] in ("f2", "f4", "c8") for array in arrays)


def _widen(value: Any) -> Any:
    """Return floats in float64; the same object where nothing changes."""
    if isinstance(value, xr.Dataset):
        narrow = {name: _widen(v) for name, v in value.data_vars.items() if _widen(v) is not v}
        return value.assign(narrow) if narrow else value
    if isinstance(value, xr.DataArray | np.ndarray | np.generic) and value.dtype.kind in "fc":
        to = np.dtype("c16" if value.dtype.kind == "c" else "f8")
        return value if value.dtype == to else value.astype(to)
    return value


def _cast_like(wide: Any, plain: Any) -> Any:
    if isinstance(plain, xr.Dataset):
        return wide.assign({name: _cast_like(wide[name], v) for name, v in plain.data_vars.items()})
    if isinstance(plain, tuple | list):
        return [_cast_like(a, b) for a, b in zip(wide, plain, strict=True)]
    return wide.astype(plain.dtype) if hasattr(plain, "dtype") and wide.dtype != plain.dtype else wide


def draw_program(
    dice: Random,
    loaded: xr.Dataset,
    begin: Callable[[Random, xr.Dataset], Step],
    then: Callable[[Random, Any, Any], Step | None],
) -> tuple[Program, list[Any]]:
    """Return a random program and what each step binds; it ends with its first error."""
    oracle = Oracle({"ds": loaded})
    steps: list[Step] = []
    values: list[Any] = []
    length = dice.choice((1, 1, 2, 2, 3, 4, 5))
    for number in itertools.count():
        step = begin(dice, loaded) if not number else then(dice, oracle.names["x"], oracle.names)
        if step is None:
            break
        steps.append(step)
        made = oracle.apply(step)
        # xarray's arithmetic of groups changes the coordinates of its operand.
        values.append(made.copy(deep=False) if isinstance(made, xr.DataArray | xr.Dataset) else made)
        if isinstance(values[-1], Failure) or (number >= length and step.target == "x"):
            break
    return Program(tuple(steps)), values
