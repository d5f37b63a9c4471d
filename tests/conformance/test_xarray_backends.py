"""xarray's own tests of its netCDF backends: files written by xarray's engines, read back by
insitu.
"""

from __future__ import annotations

import warnings

import pytest

from conformance.subclasses import WARNINGS, subclasses

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    test_backends = pytest.importorskip("xarray.tests.test_backends")

pytestmark = [pytest.mark.filterwarnings(warning) for warning in WARNINGS]

globals().update(
    subclasses(
        test_backends,
        {
            "TestNetCDF4Data": None,
            "TestH5NetCDFData": None,
            "TestH5NetCDFFileObject": "TestH5NetCDFData",
            "TestScipyFilePath": None,
            "TestScipyInMemoryData": "TestScipyFilePath",
            "TestNetCDF4InMemory": None,
            "TestH5NetCDFInMemoryData": None,
        },
    )
)
