"""What every test stands on: hypothesis profiles, markers, and where real files by other people may
lie.
"""

from __future__ import annotations

import os
from pathlib import Path

import hdf5plugin  # noqa: F401  (before netCDF4: loaded after it, its filters fail when h5py writes)
import pyproj  # noqa: F401  (before ecCodes, which xarray loads with its engines: after it, PROJ finds no database and crashes)
import pytest
from hypothesis import HealthCheck, settings

from plain_xarray import leave_libraries_out
from real_files import CORPUS

pytest_plugins = ["plugins.markers", "plugins.quick", "plugins.absent", "plugins.garbage"]

settings.register_profile("default", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.register_profile("few", parent=settings.get_profile("default"), max_examples=10)
settings.load_profile("ci" if os.environ.get("CI") else "default")
leave_libraries_out()
os.environ.setdefault("INSITU_SCAN_CACHE", "off")  # tests of the cache name a folder of their own


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real files; tests that want it are skipped where it is absent."""
    if not CORPUS.is_dir():
        pytest.skip("no corpus of real files beside this checkout")
    return CORPUS


@pytest.fixture
def without_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: what others write to it at the same time would be waited for, too."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    if hasattr(os, "sync"):
        monkeypatch.setattr(os, "sync", lambda: None)
