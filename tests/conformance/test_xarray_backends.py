"""xarray's own tests of its netCDF backends: files written by xarray's engines, read back by insitu."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.doors import DOORS, Door

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    test_backends = pytest.importorskip("xarray.tests.test_backends")

CLASSES = (
    "TestNetCDF4Data",
    "TestNetCDF4ViaDaskData",
    "TestH5NetCDFData",
    "TestH5NetCDFFileObject",
    "TestScipyFilePath",
    "TestScipyFileObject",
    "TestScipyInMemoryData",
    "TestNetCDF3ViaNetCDF4Data",
    "TestNetCDF4ClassicViaNetCDF4Data",
    "TestNetCDF4ClassicViaH5NetCDFData",
    "TestNetCDF4InMemory",
    "TestH5NetCDFInMemoryData",
)


class Reading:
    """What makes a class of xarray's tests read through a door."""

    door: Door
    parent: str

    @pytest.fixture(autouse=True)
    def _through_the_door(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.door.install(monkeypatch, test_backends)

    @contextlib.contextmanager
    def open(self, path: Any, **how: Any) -> Iterator[Any]:
        with self.door.functions["open_dataset"](path, **how) as dataset:
            yield dataset


for door in DOORS:
    for name in CLASSES:
        if parent := getattr(test_backends, name, None):
            made = type(f"{name}{door.name.title()}", (Reading, parent), {"door": door, "parent": name})
            globals()[made.__name__] = made
del made, parent
