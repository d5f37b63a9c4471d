"""A program checked: run by insitu in several ways, each compared with the oracle or with the first.

The first run is compared with the oracle, step by step where a step is not exact: from there on the
oracle goes on with insitu's own values, so that the steps after it are compared exactly. Every
other way (again, from a pickle, in small blocks, from a saved store, beside a server) has to give
the bits of the first.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import xarray as xr

import insitu
from insitu.lazy_array import LazyArray
from random_programs.archives import Archive
from random_programs.compare import Failure, difference, settle
from random_programs.programs import NAMES, PLAIN, Oracle, Program, quiet, run

__all__ = ["WAYS", "Opened", "check"]


@dataclass
class Opened:
    """An archive, and what is made of it once for all of its programs."""

    archive: Archive
    folder: Path
    server: str | None = None
    shared: xr.Dataset = field(init=False)
    _pickle: bytes = field(init=False, repr=False)
    _saved: str | None = None

    def __post_init__(self) -> None:
        self.shared = self.archive.open()
        options = {} if self.server is None else {"active": self.server}
        self._pickle = pickle.dumps(self.archive.open(**options))

    def fresh(self) -> xr.Dataset:
        """Return a dataset of which nothing was used yet; from a pickle, which takes a fifth of the time of opening."""
        return pickle.loads(self._pickle)

    def saved(self) -> xr.Dataset:
        """Open the store that the archive was saved to."""
        if self._saved is None:
            target = str(self.folder / f"saved_{self.archive.seed}.insitu")
            self.archive.open().insitu.save(target)
            self._saved = target
        return insitu.open_dataset(self._saved)


def _pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def _in_small_blocks(opened: Opened, program: Program) -> Any:
    with insitu.options(block_bytes=200):
        return run(program, opened.fresh())


def _loaded(opened: Opened, program: Program) -> Any:
    return run(program, opened.fresh().load())


WAYS: dict[str, Callable[[Opened, Program], Any]] = {
    "opened anew": lambda opened, program: run(program, opened.archive.open()),
    "with its result pickled": lambda opened, program: run(program, opened.fresh(), lambda x: settle(_pickled(x))),
    "in small blocks": _in_small_blocks,
    "without a cache": lambda opened, program: run(program, opened.archive.open(cache=False)),
    "from a saved store": lambda opened, program: run(program, opened.saved()),
    "with a dataset that other programs use": lambda opened, program: run(program, opened.shared),
    "with a loaded dataset": _loaded,
}
"""Ways to run a program beside the first one."""


def check(opened: Opened, program: Program, expected: list[Any], dice: Random) -> str:
    """Say how insitu differs from the oracle, or one way from the other; "" if it does not."""
    ds = opened.fresh()
    problem, first = _compare_first(program, expected, opened.archive.loaded, ds)
    if problem:
        return problem
    if isinstance(first, Failure):
        first = expected[-1]
    rule = "exact" if program.is_bitwise else "elementary"
    ways = {"the second time": lambda: run(program, ds), "the third time": lambda: run(program, ds)}
    if opened.server is not None:
        # `ds` was beside the server; the same here.
        ways = {"here": lambda: run(program, opened.shared)}
    else:
        name = dice.choice(list(WAYS))
        if name != "with a loaded dataset" or all(step.rule == "exact" for step in program.steps):
            ways |= {name: lambda: WAYS[name](opened, program)}
    for name, act in ways.items():
        if problem := difference(act(), first, rule):
            return f"{name}: {problem}"
    return ""


def _compare_first(program: Program, expected: list[Any], loaded: xr.Dataset, ds: xr.Dataset) -> tuple[str, Any]:
    """Compare the first run with the oracle; return the difference and the result."""
    names, oracle, is_synced = {**NAMES, "ds": ds}, Oracle({"ds": loaded}), False
    had_elementary = False
    for number, step in enumerate(program.steps):
        is_last = number == len(program.steps) - 1
        if step.rule == "reduction" and number and not _is_virtual(names["x"]):
            step, is_synced = replace(step, rule="composed"), True  # values in memory: NumPy's own arithmetic
        rounding = oracle.rounding(step)
        wanted = oracle.apply(step) if is_synced else expected[number]
        oracle.names[step.target] = wanted
        with quiet(), xr.set_options(**PLAIN):
            try:
                exec(step.text, names)
                if step.rule == "exact" and not is_last:
                    continue
                found = settle(names[step.target] if is_last else _pickled(names[step.target]))
            except Exception as error:
                found = Failure(error)
        if isinstance(found, Failure) and not is_last:
            wanted, is_last = expected[-1], True  # what xarray refuses later, insitu may refuse as soon as it knows
        had_elementary |= step.rule == "elementary"
        rule = "elementary" if had_elementary else step.rule
        problem = difference(found, settle(wanted), rule, rounding)
        if problem or is_last:
            return (f"{step.text}: {problem}" if problem else ""), found
        oracle.names[step.target] = found
        is_synced = True
    raise AssertionError("a program has steps")


def _is_virtual(value: Any) -> bool:
    """Return whether an array, or all floats of a dataset, are virtual."""
    if isinstance(value, xr.Dataset):
        return all(_is_virtual(v) for v in value.data_vars.values() if v.dtype.kind in "fc")
    return isinstance(value.variable._data if isinstance(value, xr.DataArray) else value, LazyArray)
