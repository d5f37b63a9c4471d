"""Whole archives far away: globs, prefixes, lists and signed addresses become one dataset, equal to
what xarray makes of the same files here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
import xarray as xr
from obstore.store import S3Store

import insitu
from insitu.errors import StaleSourceError
from insitu.sources import trace

pytestmark = pytest.mark.xdist_group("remote")

MONTHS = 6


def month(number: int) -> xr.Dataset:
    values = np.random.default_rng(number).normal(280, 5, (4, 20, 30)).astype("f4")
    return xr.Dataset(
        {"tas": (("time", "y", "x"), values, {"units": "K"})},
        {"time": np.arange(4) + np.datetime64(f"2001-{number + 1:02d}-01", "ns"), "y": np.arange(20.0)},
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Six files, cut, packed and compressed each in its own way."""
    folder = tmp_path_factory.mktemp("months")
    for number in range(MONTHS):
        packed = {"dtype": "i2", "scale_factor": 0.01 + number / 1000, "add_offset": 280.0, "_FillValue": -1}
        shape = {"chunksizes": (1 + number % 3, 20 - number, 10), "zlib": number % 2 == 0}
        month(number).to_netcdf(folder / f"tas_{number}.nc", encoding={"tas": packed | shape})
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def expected(files: list[Path]) -> Iterator[xr.Dataset]:
    with xr.open_mfdataset(files) as dataset:
        yield dataset.load()


@pytest.fixture(scope="module")
def store(seaweed: Any, files: list[Path]) -> S3Store:
    store = S3Store("private", config=seaweed.config, client_options={"allow_http": True})
    for file in files:
        obstore.put(store, f"months/{file.name}", file.read_bytes())
    return store


@pytest.fixture
def options(seaweed: Any) -> dict[str, Any]:
    return {
        "key": seaweed.config["access_key_id"],
        "secret": seaweed.config["secret_access_key"],
        "endpoint_url": seaweed.url,
    }


@pytest.mark.parametrize("paths", ["s3://private/months/*.nc", "s3://private/months/", "s3://private/lists/months.txt"])
def test_a_bucket_is_one_dataset(
    store: S3Store, options: dict[str, Any], expected: xr.Dataset, files: list[Path], paths: str
) -> None:
    listed = "".join(f"s3://private/months/{file.name}\n" for file in files)
    obstore.put(store, "lists/months.txt", listed.encode())
    with trace() as cost:
        dataset = insitu.open_mfdataset(paths, storage_options=options)
    assert cost.requests <= 4 * MONTHS + 3
    xr.testing.assert_identical(dataset.load(), expected)


def test_a_list_of_urls_and_an_iterator(
    store: S3Store, options: dict[str, Any], expected: xr.Dataset, files: list[Path]
) -> None:
    urls = [f"s3://private/months/{file.name}" for file in files]
    for paths in (urls, iter(urls)):
        xr.testing.assert_identical(insitu.open_mfdataset(paths, storage_options=options).load(), expected)


def test_a_web_server_is_one_dataset(nginx: Any, files: list[Path], expected: xr.Dataset) -> None:
    folder = nginx.folder / "files" / "months"
    folder.mkdir(exist_ok=True)
    for file in files:
        (folder / file.name).write_bytes(file.read_bytes())
    dataset = insitu.open_mfdataset(f"{nginx.url}/months/*.nc")
    part = {"time": slice(2, 20, 3), "x": [3, 1, 29]}
    xr.testing.assert_identical(dataset.isel(part).load(), expected.isel(part))
    xr.testing.assert_allclose(dataset.mean("time").load(), expected.mean("time"))


def test_references_hold_no_secret_and_need_none_to_be_opened(
    store: S3Store, options: dict[str, Any], expected: xr.Dataset, tmp_path: Path
) -> None:
    dataset = insitu.open_mfdataset("s3://private/months/*.nc", storage_options=options)
    assert options["secret"] not in repr(dataset) + dataset._repr_html_() + repr(dataset.tas.variable._data)
    target = tmp_path / "months.insitu"
    dataset.insitu.save(target)
    contents = b"".join(path.read_bytes() for path in target.rglob("*") if path.is_file())
    assert options["secret"].encode() not in contents
    assert options["key"].encode() not in contents
    xr.testing.assert_identical(insitu.open_dataset(target, storage_options=options).load(), expected)


def test_signed_addresses_make_a_dataset_and_are_not_kept(
    store: S3Store, files: list[Path], expected: xr.Dataset, tmp_path: Path
) -> None:
    urls = [obstore.sign(store, "GET", f"months/{file.name}", timedelta(minutes=5)) for file in files]
    dataset = insitu.open_mfdataset(urls)
    xr.testing.assert_identical(dataset.load(), expected)
    dataset = insitu.open_mfdataset(urls)
    target = tmp_path / "signed.insitu"
    dataset.insitu.save(target)
    contents = b"".join(path.read_bytes() for path in target.rglob("*") if path.is_file())
    assert b"X-Amz-Signature" not in contents
    assert b"Signature" not in repr(dataset).encode()


def test_an_object_that_changed_is_not_read(store: S3Store, options: dict[str, Any], files: list[Path]) -> None:
    obstore.put(store, "changing/a.nc", files[0].read_bytes())
    dataset = insitu.open_dataset("s3://private/changing/a.nc", storage_options=options)
    obstore.put(store, "changing/a.nc", files[1].read_bytes())
    with pytest.raises(StaleSourceError, match="changing"):
        dataset.tas.load()
