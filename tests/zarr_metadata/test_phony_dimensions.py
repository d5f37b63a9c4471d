"""Names of dimensions that a Zarr store does not name.

Modules: scanning/manifest_store.py, zarr_metadata/hierarchy.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr

import insitu


def test_no_name_is_given_twice(tmp_path: Path) -> None:
    """What was saved from a file without names has an array along `phony_dim_0` already."""
    group = zarr.create_group(tmp_path / "x.zarr")
    group.create_array("named", data=np.arange(6), dimension_names=["phony_dim_0"])
    group.create_array("unnamed", data=np.arange(8).reshape(4, 2))
    found = insitu.scan(tmp_path / "x.zarr", decode=False)
    assert found.arrays["named"].dims == ("phony_dim_0",)
    assert found.arrays["unnamed"].dims == ("phony_dim_1", "phony_dim_2")
