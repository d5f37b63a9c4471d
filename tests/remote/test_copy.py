"""Copies into a bucket: nobody sees them before they are whole, and an interrupted one goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import obstore
import pytest
import xarray as xr
from obstore.store import S3Store

import insitu
import insitu.xarray_bridge.accessor  # registers itself
from insitu.copying.object_writers import PrefixWriter
from insitu.errors import UnsupportedError

pytestmark = [pytest.mark.xdist_group("remote"), pytest.mark.filterwarnings("ignore:.*zarr.*", "ignore:Consolidated")]

KEY, SECRET = "AKINSITU", "hush-hush-never-shown"


@pytest.fixture
def options(seaweed: Any) -> dict[str, Any]:
    return {"key": KEY, "secret": SECRET, "endpoint_url": seaweed.url}


@pytest.fixture
def bucket(seaweed: Any) -> S3Store:
    return S3Store("private", config=seaweed.config, client_options={"allow_http": True})


def dataset() -> xr.Dataset:
    values = np.random.default_rng(0).random((12, 8, 6)).astype("f4")
    return xr.Dataset({"x": (("t", "y", "z"), values)}, {"t": np.arange(12)}, {"title": "small"})


def keys(bucket: S3Store, prefix: str) -> set[str]:
    return {item["path"] for part in obstore.list(bucket, prefix=prefix) for item in part}


@pytest.mark.parametrize("zarr_format", [3, 2])
def test_a_store_in_a_bucket(options: dict[str, Any], bucket: S3Store, zarr_format: int) -> None:
    url = f"s3://private/copies/v{zarr_format}.zarr"
    how = {"chunks": {"t": 5, "y": 3}, "zarr_format": zarr_format, "storage_options": options}
    report = dataset().insitu.copy(url, verify=True, **how)
    assert report.verified == report.objects
    found = insitu.open_dataset(url, storage_options=options).load()
    xr.testing.assert_identical(found, dataset())
    with pytest.raises(UnsupportedError, match="there is something already"):
        dataset().insitu.copy(url, **how)
    before = keys(bucket, f"copies/v{zarr_format}.zarr")
    dataset().isel(t=slice(0, 4)).insitu.copy(url, overwrite=True, **how)
    assert insitu.open_dataset(url, storage_options=options).sizes["t"] == 4
    assert keys(bucket, f"copies/v{zarr_format}.zarr") < before


def test_an_interrupted_copy_goes_on(options: dict[str, Any], bucket: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    put, written = PrefixWriter.put, []

    def put_some(self: PrefixWriter, key: str, data: bytes) -> None:
        if len(written) == 7:
            raise Killed
        written.append(key)
        put(self, key, data)

    url, how = "s3://private/copies/killed.zarr", {"chunks": {"t": 1}, "storage_options": options}
    with monkeypatch.context() as patch:
        patch.setattr(PrefixWriter, "put", put_some)
        with pytest.raises(Killed):
            dataset().insitu.copy(url, **how)
    assert not any(key.endswith("zarr.json") for key in keys(bucket, "copies/killed.zarr"))
    assert dataset().insitu.copy(url, **how).continued > 0
    xr.testing.assert_identical(insitu.open_dataset(url, storage_options=options).load(), dataset())


def test_a_repository_in_a_bucket(options: dict[str, Any]) -> None:
    pytest.importorskip("icechunk")
    url = "s3://private/copies/r.icechunk"
    dataset().insitu.copy(url, chunks={"t": 5}, storage_options=options)
    xr.testing.assert_identical(insitu.open_dataset(url, storage_options=options).load(), dataset())
