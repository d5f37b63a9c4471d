"""Zarr stores and references in a bucket of SeaweedFS: few requests, nothing listed, one writer
wins.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
import zarr
from obstore.store import S3Store

import insitu
from insitu.errors import SourceError, StaleSourceError
from insitu.maintenance import append_tree as append
from insitu.maintenance import check, convert, refresh
from insitu.model import VirtualGroup, concatenate
from insitu.references import open_references, save, with_renamed_sources
from insitu.references.store import store_writer
from insitu.sources import trace

pytestmark = [pytest.mark.xdist_group("remote"), pytest.mark.filterwarnings("ignore:.*zarr.*", "ignore:Consolidated")]

VALUES = np.random.default_rng(2).integers(0, 99, (12, 30)).astype("i4")


def upload(folder: Path, bucket: S3Store, prefix: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            obstore.put(bucket, f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def make(path: Path, zarr_format: int, **layout: Any) -> Path:
    group = zarr.create_group(path, zarr_format=zarr_format)
    array = group.create_array("g/t", shape=VALUES.shape, dtype="i4", fill_value=-1, chunks=(3, 5), **layout)
    array[:9] = VALUES[:9]  # the last row of chunks was never written
    if layout.pop("consolidated", True):
        zarr.consolidate_metadata(path)
    return path


EXPECTED = np.where(np.arange(12)[:, None] < 9, VALUES, -1)


@pytest.mark.parametrize(("zarr_format", "layout"), [(2, {}), (3, {}), (3, {"shards": (6, 10)})], ids=str)
def test_a_store_in_a_bucket(
    tmp_path: Path, bucket: S3Store, options: dict[str, Any], zarr_format: int, layout: dict[str, Any]
) -> None:
    name = f"zarr-{zarr_format}-{len(layout)}"
    upload(make(tmp_path / "s", zarr_format, **layout), bucket, f"{name}.zarr")
    with trace() as cost:
        group = insitu.scan(f"s3://private/{name}.zarr", storage_options=options, decode=False)
    assert cost.requests == (1 if zarr_format == 3 else 2)  # zarr.json is asked for first
    with trace() as cost:
        assert np.array_equal(insitu.read(group, "g/t", storage_options=options, decode=False), EXPECTED)
    # A request for each chunk, also for those that were never written; a shard's index, and its
    # chunks in one go.
    assert cost.requests <= (6 + 6 if layout else 24)
    with trace() as cost:
        assert int(insitu.read(group, "g/t", (7, 7), storage_options=options, decode=False)) == EXPECTED[7, 7]
    assert cost.requests == 1


def test_a_store_without_consolidated_metadata(tmp_path: Path, bucket: S3Store, options: dict[str, Any]) -> None:
    path = make(tmp_path / "s", 2)
    (path / ".zmetadata").unlink()
    upload(path, bucket, "listed.zarr")
    group = insitu.scan("s3://private/listed.zarr", storage_options=options, decode=False)
    assert np.array_equal(insitu.read(group, "g/t", storage_options=options, decode=False), EXPECTED)


def test_a_zip_in_a_bucket(tmp_path: Path, bucket: S3Store, options: dict[str, Any]) -> None:
    path = make(tmp_path / "s", 3)
    with zipfile.ZipFile(tmp_path / "s.zip", "w", zipfile.ZIP_STORED) as file:
        for member in path.rglob("*"):
            if member.is_file():
                file.write(member, member.relative_to(path))
    obstore.put(bucket, "s.zarr.zip", (tmp_path / "s.zip").read_bytes())
    group = insitu.scan("s3://private/s.zarr.zip", storage_options=options, decode=False)
    assert np.array_equal(insitu.read(group, "g/t", storage_options=options, decode=False), EXPECTED)


@pytest.mark.parametrize("name", ["k.json", "k.json.zst", "k.parq", "k.parquet", "k.insitu"])
def test_references_in_a_bucket(options: dict[str, Any], name: str) -> None:
    group = insitu.scan("s3://private/archive.h5", storage_options=options, decode=False)
    target = f"s3://private/refs/{name}"
    save(group, target, relative=True, storage_options=options)
    back = insitu.scan(target, verify="open", storage_options=options, decode=False)
    assert np.array_equal(
        insitu.read(back, "t", np.s_[7], storage_options=options, decode=False),
        insitu.read(group, "t", np.s_[7], storage_options=options, decode=False),
    )
    assert back.array("t").tiles[0].chunks[0, 0, 0].source.url == "s3://private/archive.h5"
    with pytest.raises(Exception, match="already"):
        save(group, target, mode="x", storage_options=options)
    with trace() as cost:
        insitu.scan(target, storage_options=options, decode=False)
    assert cost.requests <= 4
    convert(target, f"s3://private/again/{name}", rename={"s3://private": "s3://other"}, storage_options=options)
    moved = open_references(f"s3://private/again/{name}", storage_options=options)
    assert moved is not None
    assert moved.array("t").tiles[0].chunks[0, 0, 0].source.url == "s3://other/archive.h5"


def part(options: dict[str, Any], number: int) -> VirtualGroup:
    array = insitu.scan("s3://private/archive.h5", storage_options=options, decode=False).array("t")
    return VirtualGroup({"t": replace(array, dims=("time", "y", "x"))[10 * number : 10 * number + 10]})


def test_append_and_two_writers(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    target = "s3://private/grown.insitu"
    save(part(options, 0), target, storage_options=options)
    append(part(options, 1), target, "time", storage_options=options)
    original = store_writer._StoreWriter._document

    def slow(self: Any, *given: VirtualGroup) -> dict[str, Any]:
        document = original(self, *given)
        monkeypatch.setattr(store_writer._StoreWriter, "_document", original)
        append(part(options, 2), target, "time", storage_options=options)  # the other writer is faster
        return document

    monkeypatch.setattr(store_writer._StoreWriter, "_document", slow)
    with pytest.raises(SourceError, match="another writer"):
        append(part(options, 3), target, "time", storage_options=options)
    saved = insitu.scan(target, storage_options=options, decode=False).array("t")
    expected = concatenate([part(options, n).array("t") for n in range(3)], "time")
    assert saved.shape == (30, 40, 40)
    assert np.array_equal(
        insitu.read(saved, selection=np.s_[:, 3], storage_options=options, decode=False),
        insitu.read(expected, selection=np.s_[:, 3], storage_options=options, decode=False),
    )


def test_two_writers_of_a_new_store(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    target = "s3://private/new.insitu"
    original = store_writer._StoreWriter._document

    def slow(self: Any, *given: VirtualGroup) -> dict[str, Any]:
        document = original(self, *given)
        monkeypatch.setattr(store_writer._StoreWriter, "_document", original)
        save(part(options, 1), target, storage_options=options)
        return document

    monkeypatch.setattr(store_writer._StoreWriter, "_document", slow)
    with pytest.raises(SourceError, match="another writer"):
        save(part(options, 0), target, storage_options=options)
    assert insitu.scan(target, storage_options=options, decode=False).array("t").shape == (10, 40, 40)


def test_changed_objects(tmp_path: Path, archive: Path, bucket: S3Store, options: dict[str, Any]) -> None:
    import h5py

    data = archive.read_bytes()
    for name in ("one", "two"):
        obstore.put(bucket, f"stale/{name}.h5", data)
    arrays = [
        insitu.scan(f"s3://private/stale/{n}.h5", storage_options=options, decode=False).array("t")
        for n in ("one", "two")
    ]
    save(VirtualGroup({"t": concatenate(arrays, 0)}), "s3://private/stale.insitu", storage_options=options)
    assert check("s3://private/stale.insitu", storage_options=options).ok
    (tmp_path / "new.h5").write_bytes(data)
    with h5py.File(tmp_path / "new.h5", "a") as file:
        file["t"][:2] = 7
    os.utime(tmp_path / "new.h5")
    opened = insitu.scan("s3://private/stale.insitu", storage_options=options, decode=False)
    unasked = insitu.scan("s3://private/stale.insitu", verify="never", storage_options=options, decode=False)
    obstore.put(bucket, "stale/two.h5", (tmp_path / "new.h5").read_bytes())
    (finding,) = check("s3://private/stale.insitu", storage_options=options).stale
    assert finding.source.url == "s3://private/stale/two.h5"
    with pytest.raises(StaleSourceError, match=r"two\.h5"):
        insitu.scan("s3://private/stale.insitu", verify="open", storage_options=options, decode=False)
    with pytest.raises(StaleSourceError, match=r"two\.h5"):
        insitu.read(opened, "t", storage_options=options, decode=False)
    assert insitu.read(opened, "t", np.s_[:60], storage_options=options, decode=False).shape == (60, 40, 40)
    assert insitu.read(unasked, "t", np.s_[70], storage_options=options, decode=False).shape == (40, 40)
    refresh("s3://private/stale.insitu", storage_options=options)
    assert (
        insitu.read("s3://private/stale.insitu", "t", np.s_[60:62], storage_options=options, decode=False) == 7
    ).all()
    gone = with_renamed_sources(opened, {"s3://private/stale/two.h5": "s3://private/stale/none.h5"})
    assert [finding.status for finding in check(gone, storage_options=options).stale] == ["missing"]
