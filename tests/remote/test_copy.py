"""Copies into a bucket: nobody sees them before they are whole, and an interrupted one goes on."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
import xarray as xr
from obstore.store import S3Store

import insitu
import insitu.xarray_bridge.accessor  # registers itself
from copying.killing import Killed, die_at_request
from insitu.errors import UnsupportedError
from insitu.maintenance import compact
from remote.faults import FaultProxy

pytestmark = [pytest.mark.xdist_group("remote"), pytest.mark.filterwarnings("ignore:.*zarr.*", "ignore:Consolidated")]


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


@pytest.mark.parametrize("steps", [0, 8])
def test_killed_at_any_request(options: dict[str, Any], bucket: S3Store, steps: int) -> None:
    """The store is as it was, or whole, and the same command goes on: a new one, and one that is appended to."""
    how = {"chunks": {"t": 5}, "storage_options": options, "append": bool(steps)}
    old, deaths = dataset().isel(t=slice(0, steps)), 0
    for number in range(1, 99):
        url = f"s3://private/copies/killed{steps}-{number}.zarr"
        if steps:
            old.insitu.copy(url, chunks={"t": 5}, storage_options=options)
        with die_at_request(number) as has_died:
            try:
                dataset().insitu.copy(url, **how)
            except Killed:
                assert has_died()
        prefix = url.removeprefix("s3://private/")
        is_there = f"{prefix}/zarr.json" in keys(bucket, prefix)
        seen = insitu.open_dataset(url, storage_options=options).load() if is_there else None
        assert (seen is None and not steps) or (seen is not None and any(map(seen.identical, (old, dataset()))))
        if not has_died():
            break
        deaths += 1
        with suppress(UnsupportedError):  # it was complete
            dataset().insitu.copy(url, **how)
        xr.testing.assert_identical(insitu.open_dataset(url, storage_options=options).load(), dataset())
        if steps:
            assert "nothing is new" in str(dataset().insitu.copy(url, **how))
    assert 6 < deaths < 98


def test_a_bucket_that_is_busy_for_a_while(options: dict[str, Any], seaweed: Any) -> None:
    """503 means: later. The copy pauses, and goes on."""
    with FaultProxy(seaweed.address) as proxy:
        how = {"chunks": {"t": 2}, "storage_options": {**options, "endpoint_url": proxy.url}}
        url = "s3://private/copies/busy.zarr"
        proxy.order("", *["503"] * 6, "", "503", "503", "", "503")
        dataset().insitu.copy(url, **how)
        assert proxy.happened["503"] == 9
        proxy.order(*["503"] * 3, "", "", "503")
        later = dataset().assign_coords(t=dataset().t + 12)
        later.insitu.copy(url, append=True, **how)
        assert proxy.happened["503"] == 13
    found = insitu.open_dataset(url, storage_options=options).load()
    xr.testing.assert_identical(found, xr.concat([dataset(), later], "t"))


def test_a_repository_in_a_bucket(options: dict[str, Any]) -> None:
    pytest.importorskip("icechunk")
    url, how = "s3://private/copies/r.icechunk", {"storage_options": options}
    dataset().isel(t=slice(0, 8)).insitu.copy(url, chunks={"t": 5}, **how)
    xr.testing.assert_identical(insitu.open_dataset(url, **how).load(), dataset().isel(t=slice(0, 8)))
    report = dataset().insitu.copy(url, append=True, verify=True, **how)
    assert report.verified == report.objects > 0
    xr.testing.assert_identical(insitu.open_dataset(url, **how).load(), dataset())
    assert "nothing is new" in str(dataset().insitu.copy(url, append=True, **how))


def test_pinned_parts_in_a_bucket(
    options: dict[str, Any], bucket: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store in a bucket, of a file there: pinned, appended to, saved elsewhere, unpinned, compacted."""
    how, url = {"storage_options": options}, "s3://private/pins/x.insitu"
    for number in range(2):
        part = dataset().isel(t=slice(6 * number, 6 * number + 6))
        part.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"x": {"chunksizes": (2, 4, 6)}})
        obstore.put(bucket, f"pins/{number}.nc", (tmp_path / "a.nc").read_bytes())
    insitu.open_mfdataset(["s3://private/pins/0.nc"], **how).insitu.save(url, **how)
    insitu.Archive.open(url, **how).pin("x", isel={"t": slice(1, 5)}, chunks={"t": 2}, shards={"t": 4})
    assert len(keys(bucket, "pins/x.insitu/native")) == 2
    insitu.Archive.open(url, **how).append(["s3://private/pins/1.nc"], "t")
    found = insitu.open_dataset(url, **how)
    xr.testing.assert_identical(found.load(), dataset())
    assert insitu.check(url, **how).ok
    insitu.open_dataset(url, **how).insitu.save("s3://private/pins/y.insitu", **how)
    insitu.open_dataset(url, **how).insitu.save(tmp_path / "z.insitu", **how)
    insitu.Archive.open(url, **how).unpin()
    assert insitu.Archive.open(url, **how).pinned_parts() == ()
    for _ in range(2):  # the state before is kept once
        compact(url, storage_options=options)
    assert len(keys(bucket, "pins/x.insitu/native")) == 2  # another machine may be about to name them
    monkeypatch.setattr("insitu.maintenance.unused_chunks.DAY", -60)
    compact(url, storage_options=options)
    assert not keys(bucket, "pins/x.insitu/native")
    for place in (url, "s3://private/pins/y.insitu", tmp_path / "z.insitu"):
        xr.testing.assert_identical(insitu.open_dataset(place, **how).load(), dataset())
