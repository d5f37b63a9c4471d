"""xarray's own tests of trees of groups: files written by xarray's engines, read back by insitu."""

from __future__ import annotations

import warnings

import pytest

from conformance.doors import DOORS, Door

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    test_backends_datatree = pytest.importorskip("xarray.tests.test_backends_datatree")

CLASSES = ("TestNetCDF4DatatreeIO", "TestH5NetCDFDatatreeIO", "TestGenericNetCDFIO")

unaligned_datatree_nc = test_backends_datatree.unaligned_datatree_nc


class Reading:
    """What makes a class of xarray's tests read through a door."""

    door: Door
    parent: str

    @pytest.fixture(autouse=True)
    def _through_the_door(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.door.install(monkeypatch, test_backends_datatree)


for door in DOORS:
    for name in CLASSES:
        if parent := getattr(test_backends_datatree, name, None):
            made = type(f"{name}{door.name.title()}", (Reading, parent), {"door": door, "parent": name})
            globals()[made.__name__] = made
del made, parent
