"""NetCDF-4 files that are put together of encoded chunks: what the field's readers see.

Modules: copying/netcdf_attributes.py, copying/decode_object.py
"""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu
import insitu.xarray_bridge.accessor  # registers itself
from copying.archives import JOIN, archive_of
from copying.killing import Killed
from insitu.copying.netcdf_target import NetCDFFile
from insitu.errors import UnsupportedError
from served_folder import ServedFolder


@pytest.mark.parametrize(
    "way",
    [
        {},
        {"chunks": "series"},
        {"chunks": {"time": 40, "lat": 4}, "codec": "none"},
        {"chunks": {"time": 7}, "codec": "zlib:9"},
    ],
    ids=str,
)
def test_every_reader_shows_the_same(files: str, tmp_path: Path, way: dict[str, Any]) -> None:
    report = archive_of(files).copy(tmp_path / "t.nc", verify=True, **way)
    assert report.verified == report.objects
    want = xr.open_mfdataset(sorted(glob.glob(files)), **JOIN).load()
    for engine in ("netcdf4", "h5netcdf", "insitu"):
        with xr.open_dataset(tmp_path / "t.nc", engine=engine) as found:
            xr.testing.assert_identical(found.load(), want)
    assert sorted(os.listdir(tmp_path)) == ["archive", "t.nc"]


def test_filters_and_chunks_are_those_asked_for(files: str, tmp_path: Path) -> None:
    archive_of(files).copy(tmp_path / "t.nc", chunks={"time": 40, "lat": 4}, codec="zlib:5")
    with netCDF4.Dataset(tmp_path / "t.nc") as file:
        assert file["tas"].chunking() == [40, 4, 12]
        assert (file["tas"].filters()["complevel"], file["tas"].filters()["shuffle"]) == (5, True)
        assert file["pr"].dtype == np.dtype("i2")
        assert file["lat"].chunking() == "contiguous"


def test_chunks_pass_through_unchanged(files: str, tmp_path: Path) -> None:
    plan = archive_of(files).copy(tmp_path / "t.nc", dry_run=True)
    assert plan.as_dict()["variables"]["tas"]["passes_through"]
    archive_of(files).copy(tmp_path / "t.nc")
    with h5py.File(sorted(glob.glob(files))[1]) as old, h5py.File(tmp_path / "t.nc") as new:
        assert new["tas"].id.read_direct_chunk((30, 0, 0)) == old["tas"].id.read_direct_chunk((0, 0, 0))


def test_metadata_lie_in_front(files: str, tmp_path: Path) -> None:
    """All chunks lie behind one block that has headers and indexes."""
    archive_of(files).copy(tmp_path / "t.nc", chunks={"time": 1, "lat": 1})
    with h5py.File(tmp_path / "t.nc") as file:
        dataset = file["tas"].id
        first = min(dataset.get_chunk_info(number).byte_offset for number in range(dataset.get_num_chunks()))
    scanned = insitu.scan(tmp_path / "t.nc")
    assert scanned.arrays["tas"].tiles[0].chunks.shape == (90, 9, 1)
    assert first > 64 << 10
    with insitu.trace() as cost:
        insitu.scan(tmp_path / "t.nc", variables=["tas"])
    assert cost.waves <= 5


@pytest.mark.parametrize(("chunks", "most"), [({"time": 10, "lat": 20, "lon": 20}, 3), ({"time": 1, "lat": 5}, 4)])
def test_it_opens_remotely_in_few_requests(tmp_path: Path, chunks: dict[str, int], most: int) -> None:
    """One for metadata and indexes, one for the labels behind them, one for a chunk; more indexes take another one."""
    values = np.random.default_rng(0).random((100, 40, 40)).astype("f4")
    labels = {"time": xr.date_range("2000-01-01", periods=100), "lat": np.arange(40.0), "lon": np.arange(40.0)}
    xr.Dataset({"tas": (("time", "lat", "lon"), values)}, labels).insitu.copy(tmp_path / "t.nc", chunks=chunks)
    with ServedFolder(tmp_path) as web:
        web.versions = lambda path: {"ETag": '"one"'}
        with insitu.open_dataset(f"{web.url}/t.nc") as ds:
            np.testing.assert_array_equal(ds.tas[57, 3, 30], values[57, 3, 30])
            assert str(ds.time.values[-1]).startswith("2000-04-09")
        assert len(web.ranges) <= most, web.ranges


def test_texts_characters_groups_and_scalars(tmp_path: Path) -> None:
    ds = xr.Dataset(
        {
            "word": ("t", np.array(["a", "übung", ""], object)),
            "code": ("t", np.array([b"abc", b"de", b"f"])),
            "flag": ("t", np.array([True, False, True])),
            "one": ((), 3.5),
        },
        attrs={"names": ["x", "y"], "number": np.float32(1.5)},
    )
    ds.insitu.copy(tmp_path / "t.nc", verify=True)
    with xr.open_dataset(tmp_path / "t.nc", engine="netcdf4") as found:
        xr.testing.assert_identical(found.load(), ds)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_group("one/two").create_dataset("x", data=np.arange(6.0))
    insitu.Archive.open(tmp_path / "a.h5").copy(tmp_path / "g.nc")
    with xr.open_dataset(tmp_path / "g.nc", group="one/two") as found:
        np.testing.assert_array_equal(found.x, np.arange(6.0))


@pytest.mark.parametrize(
    ("ds", "way", "reason"),
    [
        (xr.Dataset({"z": ("t", np.array([1j, 2]))}), {}, "no type complex128"),
        (xr.Dataset({"h": ("t", np.arange(3, dtype="f2"))}), {}, "no type float16"),
        (xr.Dataset({"x": ("t", np.arange(3.0), {"how": {"a": 1}})}), {}, "no type for the attribute 'how'"),
        (xr.Dataset({"x": ("t", np.arange(3.0), {"CLASS": "a"})}), {}, "no|cannot have an attribute"),
        (xr.Dataset({"x": ("t", np.arange(3.0))}), {"codec": "blosc:lz4"}, "no Blosc"),
        (xr.Dataset({"x": ("t", np.arange(3.0))}), {"shards": {"t": 3}}, "only Zarr V3 has shards"),
        (xr.Dataset({"x": ("t", np.arange(3.0))}), {"commit_every": 3}, "only Icechunk has commits"),
    ],
)
def test_what_netcdf_cannot_hold(tmp_path: Path, ds: xr.Dataset, way: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        ds.insitu.copy(tmp_path / "t.nc", **way)
    assert os.listdir(tmp_path) == []


def test_no_file_in_a_bucket() -> None:
    with pytest.raises(UnsupportedError, match="cannot be written to an object store"):
        xr.Dataset({"x": ("t", np.zeros(3))}).insitu.copy("s3://bucket/t.nc")


def test_killed_while_the_file_is_put_together(files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(NetCDFFile, "_write_values", die)
        with pytest.raises(Killed):
            archive_of(files).copy(tmp_path / "t.nc", chunks={"time": 20})
    assert not (tmp_path / "t.nc").exists()
    report = archive_of(files).copy(tmp_path / "t.nc", chunks={"time": 20})
    assert report.continued == report.objects
