"""Subclasses of xarray's test classes that read in one of the ways that insitu offers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest
import xarray as xr

from conformance.open_functions import WAYS_TO_OPEN, OpenFunctions
from insitu.lazy_array import LazyArray

__all__ = ["WARNINGS", "subclasses"]

WARNINGS = (
    "ignore:deallocating CachingFileManager",
    "ignore:sys.meta_path is empty:ImportWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
"""Warnings of xarray's own tests: files that they leave open, imports that they forbid."""


class Reading:
    """What makes a class of xarray's tests open files in one of these ways."""

    open_functions: OpenFunctions
    parent: str
    module: ModuleType

    @pytest.fixture(autouse=True)
    def _use_open_functions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open_functions.install(monkeypatch, self.module)

    def validate_array_type(self, ds: Any) -> None:
        """Look into the variables: a virtual array stands there as it is, not within xarray's own wrappers."""
        others = {name: v for name, v in ds.variables.items() if not isinstance(v._data, LazyArray)}
        assert self.open_functions.name == "virtual" or len(others) == len(ds.variables)
        super().validate_array_type(xr.Dataset(others))  # type: ignore[misc]

    @contextlib.contextmanager
    def open(self, path: Any, **how: Any) -> Iterator[Any]:
        with self.open_functions.functions["open_dataset"](path, **how) as dataset:
            yield dataset


def subclasses(module: ModuleType, classes: Mapping[str, str | None]) -> dict[str, type]:
    """Return a subclass for each way to open a file and each class that the module has.

    Parameters
    ----------
    module
        Of xarray's tests.
    classes
        Names of classes. With each, the name of another class whose tests are not run a second
        time, or None.
    """
    made = {}
    for functions in WAYS_TO_OPEN:
        for name, other in classes.items():
            parent = getattr(module, name, None)
            if parent is None:
                continue
            members: dict[str, Any] = {"open_functions": functions, "parent": name, "module": module}
            seen = getattr(module, other, None) if other is not None else None
            for test in dir(parent):
                if test.startswith("test_") and hasattr(seen, test) and test not in AGAIN:
                    members[test] = None
            title = f"{name}{functions.name.title()}"
            made[title] = type(title, (Reading, parent), members)
    return made


AGAIN = ("test_pickle", "test_pickle_dataarray", "test_roundtrip_test_data")
"""Tests that say something else where the bytes lie elsewhere."""
