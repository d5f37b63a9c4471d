"""Subclasses of xarray's test classes that read through one of insitu's doors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest
import xarray as xr

from conformance.doors import DOORS, Door
from insitu.lazy_array import LazyArray

__all__ = ["WARNINGS", "subclasses"]

WARNINGS = (
    "ignore:deallocating CachingFileManager",
    "ignore:sys.meta_path is empty:ImportWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
"""Warnings of xarray's own tests: files that they leave open, imports that they forbid."""


class Reading:
    """What makes a class of xarray's tests read through a door."""

    door: Door
    parent: str
    module: ModuleType

    @pytest.fixture(autouse=True)
    def _through_the_door(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.door.install(monkeypatch, self.module)

    def validate_array_type(self, ds: Any) -> None:
        """Look into the variables: a virtual array stands there as it is, not within xarray's own wrappers."""
        others = {name: v for name, v in ds.variables.items() if not isinstance(v._data, LazyArray)}
        assert self.door.name == "virtual" or len(others) == len(ds.variables)
        super().validate_array_type(xr.Dataset(others))  # type: ignore[misc]

    @contextlib.contextmanager
    def open(self, path: Any, **how: Any) -> Iterator[Any]:
        with self.door.functions["open_dataset"](path, **how) as dataset:
            yield dataset


def subclasses(module: ModuleType, classes: Mapping[str, str | None]) -> dict[str, type]:
    """Return a subclass for each door and each class that the module has.

    Parameters
    ----------
    module
        Of xarray's tests.
    classes
        Names of classes. With each, the name of another class whose tests are not run a second
        time, or None.
    """
    made = {}
    for door in DOORS:
        for name, other in classes.items():
            parent = getattr(module, name, None)
            if parent is None:
                continue
            members: dict[str, Any] = {"door": door, "parent": name, "module": module}
            seen = getattr(module, other, None) if other is not None else None
            for test in dir(parent):
                if test.startswith("test_") and hasattr(seen, test) and test not in AGAIN:
                    members[test] = None
            title = f"{name}{door.name.title()}"
            made[title] = type(title, (Reading, parent), members)
    return made


AGAIN = ("test_pickle", "test_pickle_dataarray", "test_roundtrip_test_data")
"""Tests that say something else where the bytes lie elsewhere."""
