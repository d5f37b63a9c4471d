"""References and Zarr stores are opened from the web in few requests, and safely."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import insitu
from insitu.errors import AccessError, FormatError
from insitu.formats.scan_request import ScanRequest
from insitu.formats.zarr import open_zarr
from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray, VirtualGroup
from insitu.reading import read_array
from insitu.references import check, open_references, save

pytestmark = pytest.mark.filterwarnings("ignore:.*zarr.*", "ignore:Consolidated", "ignore:Object at")


def archive(tmp_path: Path) -> VirtualGroup:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=np.arange(60).reshape(10, 6), chunks=(3, 4), compression=1)
    return insitu.scan(tmp_path / "a.h5", decode=False)


@pytest.mark.parametrize("name", ["x.json", "x.json.gz", "x.parq", "x.insitu", "x.parquet"])
def test_portable_references_on_the_web(tmp_path: Path, site: Any, name: str) -> None:
    save(archive(tmp_path), tmp_path / name, relative=True)
    site.requests.clear()
    group = open_references(f"{site.url}/{name}")
    assert group is not None
    assert len(site.requests) == 1
    assert read_array(group.array("t")).tolist() == np.arange(60).reshape(10, 6).tolist()
    assert group.array("t").tiles[0].chunks[0, 0].source.url == f"{site.url}/a.h5"
    assert check(group).ok


@pytest.mark.parametrize("name", ["x.json", "x.parq", "x.insitu", "x.parquet"])
def test_remote_references_to_local_files_need_a_word(tmp_path: Path, site: Any, name: str) -> None:
    save(archive(tmp_path), tmp_path / name)
    url = f"{site.url}/{name}"
    with pytest.raises(AccessError, match="allow_local"):
        read_array(open_references(url).array("t"))  # type: ignore[union-attr]
    group = open_references(url, allow_local=True)
    assert group is not None
    assert read_array(group.array("t")).tolist() == np.arange(60).reshape(10, 6).tolist()


def test_a_large_store_opens_in_few_requests(tmp_path: Path, site: Any) -> None:
    grid = (3000, 100)
    dice = np.random.default_rng(0)
    sources = tuple(Source(f"s3://b/{n}.nc", 1, "e") for n in range(3000))
    table = Columns(
        grid, sources, np.arange(3000)[:, None], dice.integers(0, 10**9, grid), dice.integers(1, 10**6, grid)
    )
    axis = Axis.irregular(np.arange(3000) % 3 + 8, 0, 1, 10)
    array = VirtualArray.of(Tile((axis, Axis.regular(100, 1)), (Encoding(np.dtype("f4")),), table), dims=("t", "x"))
    save(VirtualGroup({"a": array}), tmp_path / "x.insitu")
    group = open_references(f"{site.url}/x.insitu")
    assert group is not None
    assert len(site.requests) == 2, site.requests  # the root and the axes
    before = len(site.requests)
    assert group.array("a").tiles[0].chunks[2999, 99] == table[2999, 99]
    # The footer, one group of rows, the sources.
    assert len(site.requests) - before <= 4, site.requests


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("shards", [None, (4, 6)])
def test_zarr_stores_on_the_web(tmp_path: Path, site: Any, zarr_format: int, consolidated: bool, shards: Any) -> None:
    if zarr_format == 2 and shards:
        pytest.skip("V2 has no shards")
    root = zarr.create_group(tmp_path / "s.zarr", zarr_format=zarr_format)
    names = {"dimension_names": ["y", "x"]} if zarr_format == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["y", "x"]}}
    array = root.create_array("g/a", shape=(8, 6), chunks=(2, 3), shards=shards, dtype="i4", fill_value=-3, **names)
    array[:3] = np.arange(18).reshape(3, 6)
    if consolidated:
        zarr.consolidate_metadata(tmp_path / "s.zarr", zarr_format=zarr_format)
    url = f"{site.url}/s.zarr"
    if not consolidated:
        with pytest.raises(FormatError, match="variables="):
            open_zarr(url, ScanRequest())
    site.requests.clear()
    group = open_zarr(url, ScanRequest(variables=None if consolidated else ["g/a"]))
    assert group is not None
    if consolidated:
        assert len(site.requests) == (1 if zarr_format == 3 else 2)
    found = group.array("g/a")
    assert found.dims == ("y", "x")
    site.requests.clear()
    assert read_array(found).tolist() == np.asarray(array[...]).tolist()
    # One for each chunk that was written, and for each that was not; of a shard its index and its
    # chunks, if it is there.
    assert len(site.requests) == (3 if shards else 8)
    site.requests.clear()
    read_array(found, np.s_[0, 0])
    assert len(site.requests) == 1
    # As references: no list to be had on the web, so every object is asked for.
    if consolidated:
        save(group, tmp_path / "x.insitu")
        back = open_references(str(tmp_path / "x.insitu"))
        assert back is not None
        assert read_array(back.array("g/a")).tolist() == np.asarray(array[...]).tolist()


def test_a_zip_on_the_web(tmp_path: Path, site: Any) -> None:
    with zarr.storage.ZipStore(tmp_path / "s.zip", mode="w") as store:
        zarr.create_array(store, name="a", shape=(8, 6), chunks=(2, 3), dtype="i4")[:3] = np.arange(18).reshape(3, 6)
    group = open_zarr(f"{site.url}/s.zip", ScanRequest())
    assert group is not None
    assert read_array(group.array("a"))[:3].tolist() == np.arange(18).reshape(3, 6).tolist()
