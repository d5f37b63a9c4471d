"""xarray's own tests of trees of groups: files written by xarray's engines, read back by insitu."""

from __future__ import annotations

import warnings

import pytest

from conformance.subclasses import WARNINGS, subclasses

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    test_backends_datatree = pytest.importorskip("xarray.tests.test_backends_datatree")

pytestmark = [pytest.mark.filterwarnings(warning) for warning in WARNINGS]

if hasattr(test_backends_datatree, "unaligned_datatree_nc"):
    unaligned_datatree_nc = test_backends_datatree.unaligned_datatree_nc  # a fixture

globals().update(
    subclasses(
        test_backends_datatree,
        {"TestNetCDF4DatatreeIO": None, "TestH5NetCDFDatatreeIO": None, "TestGenericNetCDFIO": "TestNetCDF4DatatreeIO"},
    )
)
