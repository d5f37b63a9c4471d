"""The two ways to open a file with insitu, under the names and signatures that xarray's tests call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import xarray as xr

import insitu

__all__ = ["WAYS_TO_OPEN", "OpenFunctions"]

Opener = Callable[..., Any]


@dataclass(frozen=True)
class OpenFunctions:
    """One way to open files: replacements for xarray's functions that open files."""

    name: str
    functions: dict[str, Opener]

    def install(self, patch: pytest.MonkeyPatch, module: Any) -> None:
        """Let a module of xarray's tests open files with these functions."""
        for name, function in self.functions.items():
            if hasattr(module, name):
                patch.setattr(module, name, function)


def _insitu(function: Opener) -> Opener:
    def open_it(path: Any, engine: Any = None, **how: Any) -> Any:
        return function(path, **how)

    return open_it


def _engine(function: Opener) -> Opener:
    def open_it(path: Any, engine: Any = None, **how: Any) -> Any:
        return function(path, engine="insitu", **how)

    return open_it


def _load(function: Opener) -> Opener:
    def load_it(path: Any, engine: Any = None, **how: Any) -> Any:
        return function(path, **how).load()

    return load_it


WAYS_TO_OPEN = (
    OpenFunctions(
        "virtual",
        {
            "open_dataset": _insitu(insitu.open_dataset),
            "load_dataset": _load(insitu.open_dataset),
            "open_datatree": _insitu(insitu.open_datatree),
            "load_datatree": _load(insitu.open_datatree),
            "open_groups": _insitu(insitu.xarray_bridge.open_groups),
        },
    ),
    OpenFunctions(
        "engine",
        {
            name: _engine(getattr(xr, name))
            for name in ("open_dataset", "load_dataset", "open_datatree", "load_datatree", "open_groups")
        },
    ),
)
