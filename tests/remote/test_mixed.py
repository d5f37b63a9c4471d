"""Is an archive of several formats in an S3 store one dataset?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import obstore
import pytest
import xarray
from obstore.store import S3Store

import insitu
from formats.mixed import GRIB_ONLY, NAMES, five_years, part

pytest.importorskip("eccodes")
pytest.importorskip("cfgrib")
pytestmark = pytest.mark.xdist_group("remote")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_five_years_in_four_formats(seaweed: Any, tmp_path: Path) -> None:
    paths = five_years(tmp_path)
    store = S3Store("private", config=seaweed.config, client_options={"allow_http": True})
    for path in paths:
        for file in [path] if path.is_file() else (file for file in path.rglob("*") if file.is_file()):
            obstore.put(store, f"mixed/{file.relative_to(tmp_path)}", file.read_bytes())
    options = {"key": "AKINSITU", "secret": "hush-hush-never-shown", "endpoint_url": seaweed.url}
    how: dict[str, Any] = {"drop_variables": GRIB_ONLY, "combine_attrs": "override", "storage_options": options}
    actual = insitu.open_mfdataset([f"s3://private/mixed/{name}" for name in NAMES], **how)
    expected = xarray.combine_by_coords([part(path).load() for path in paths], combine_attrs="override")
    xarray.testing.assert_identical(actual.load(), expected)
    actual.insitu.save(tmp_path / "kept.insitu")
    again = insitu.open_dataset(tmp_path / "kept.insitu", storage_options=options)
    xarray.testing.assert_identical(again.load(), expected)
