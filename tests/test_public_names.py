"""The public names, pinned: adding one is a decision."""

from __future__ import annotations

import subprocess
import sys

import pytest

import insitu

NAMES = [
    "Archive",
    "ChunkCache",
    "check",
    "errors",
    "open_dataset",
    "open_datatree",
    "open_forecasts",
    "open_mfdataset",
    "open_mfdatatree",
    "options",
    "read",
    "reduce",
    "refresh",
    "scan",
    "trace",
    "zarr_store",
]


def test_public_names() -> None:
    assert insitu.__all__ == NAMES
    for name in NAMES:
        assert getattr(insitu, name) is not None
        assert name in dir(insitu)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = insitu.nothing_like_it


def test_a_scan_imports_nothing_heavy() -> None:
    code = (
        "import insitu, sys; print([m for m in ('xarray', 'pyarrow', 'zarr', 'obstore', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
