"""Small files of a store are merged by appends and by `compact`; the dataset stays the same, also
for readers that have the store open.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import insitu
from insitu.cli import app
from insitu.errors import StaleSourceError, UnsupportedError
from insitu.maintenance import append_tree, compact
from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray, VirtualGroup, scatter
from insitu.references import open_references, save
from insitu.references.store import NAME, file_merging, open_store, store_writer
from insitu.references.update_references import open_for_update

DAY = 86_400


def write_step(path: Path, number: int) -> str:
    """A file of one step, of which only some chunks are written."""
    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"time": 1, "x": 6}
        file.create_variable("time", ("time",), "f8", data=np.array([float(number)])).attrs["units"] = (
            "days since 2000-1-1"
        )
        file.create_variable("tas", ("time", "x"), "f4", data=np.arange(6.0)[None] + number, chunks=(1, 3))
        file.create_variable("x", ("x",), "i4", data=np.arange(6))
    return str(path)


def root_of(target: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((target / NAME).read_text())
    return document


def test_many_appends_leave_few_files(tmp_path: Path) -> None:
    """… and every dataset that was opened on the way reads what it read before."""
    files = [write_step(tmp_path / f"{n:03d}.nc", n) for n in range(40)]
    target = tmp_path / "x.insitu"
    insitu.open_mfdataset(files[:1]).insitu.save(target)
    opened = [insitu.open_dataset(target)]
    for file in files[1:]:
        insitu.Archive.open(target).append(file)
        opened.append(insitu.open_dataset(target))
        document = root_of(target)
        assert len(document["chunks"]) <= file_merging.MERGED_AT_ONCE
        assert len(document["sources"]) <= file_merging.MERGED_AT_ONCE
        assert len(document["tree"]["arrays"]["tas"]["tiles"]) == 1
    with xr.open_mfdataset(files, engine="h5netcdf") as right:
        right.load()
        for steps, dataset in enumerate(opened, 1):
            xr.testing.assert_identical(dataset.load(), right.isel(time=slice(0, steps)))
    assert [source.url for source in open_store(str(target)).sources] == files
    assert insitu.check(target).ok


def test_merged_files_are_removed_a_day_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_merging, "MERGED_AT_ONCE", 2)
    files = [write_step(tmp_path / f"{n}.nc", n) for n in range(5)]
    target = tmp_path / "x.insitu"
    insitu.open_mfdataset(files[:1]).insitu.save(target)
    archive = insitu.Archive.open(target)
    archive.append(files[1])
    early = insitu.open_dataset(target)
    archive.append(files[2])
    merged = set(root_of(target)["retired"])
    assert len(merged) == 4  # rows and sources of two saves
    archive.append(files[3])
    assert merged <= {path.name for path in target.iterdir()}
    assert early.tas.values[:, 0].tolist() == [0, 1]
    early = insitu.open_dataset(target)
    now = time.time()
    monkeypatch.setattr(store_writer.time, "time", lambda: now + DAY + 1)
    archive.append(files[4])
    document = root_of(target)
    there = {path.name for path in target.iterdir()}
    assert not merged & there
    named = {part["file"] for part in (*document["chunks"], *document["sources"])}
    assert named | set(document["retired"]) <= there
    assert early.tas.values[:, 0].tolist() == [0, 1, 2, 3]  # the state before: a rollback may want it
    archive.rollback()
    assert insitu.open_dataset(target).sizes["time"] == 4


def test_only_files_of_stores_are_ever_removed(tmp_path: Path) -> None:
    """A root that somebody edited names a file to remove that no save makes."""
    files = [write_step(tmp_path / f"{n}.nc", n) for n in range(4)]
    target = tmp_path / "x.insitu"
    insitu.open_mfdataset(files[:1]).insitu.save(target)
    insitu.Archive.open(target).append(files[1])
    strangers = {"../0.nc": 1.0, "notes.txt": 1.0, ".lock": 1.0, "chunks-0.parquet/../../0.nc": 1.0, "root.json": 1.0}
    (target / "notes.txt").write_text("x")
    document = {**root_of(target), "retired": strangers}
    del document["checksum"]
    (target / NAME).write_text(json.dumps(document))
    for file in files[2:]:
        insitu.Archive.open(target).append(file)
    assert (target / "notes.txt").exists()
    assert Path(files[0]).exists()
    assert "retired" not in root_of(target)
    assert insitu.open_dataset(target).sizes["time"] == 4


def mixed_tree() -> VirtualGroup:
    """A tree with a sparse table, values in memory, cells that were never written, and a nested group."""
    cells = np.array([[5, 7], [0, 3], [39, 0]])
    table = scatter((40, 10**9), (Source("/data/a.nc", 5),), cells, [10, 20, 30], [1, 2, 3])
    axes = (Axis.regular(40, 1), Axis.regular(10**9, 1))
    sparse = VirtualArray.of(Tile(axes, (Encoding(np.dtype("u1")),), table), dims=("a", "b"))
    encodings = (Encoding(np.dtype("u1")),)
    inline = VirtualArray.of(Tile((Axis.regular(2, 2),), encodings, Columns.of_inline((1,), b"ab")), dims=("c",))
    empty = VirtualArray.of(Tile((Axis.regular(4, 2),), encodings, Columns.of_unwritten((2,))), dims=("d",))
    return VirtualGroup(
        {"sparse": sparse, "grid": piece(0)}, {"deep": VirtualGroup({"inline": inline, "empty": empty})}
    )


def piece(number: int, axis: int = 1) -> VirtualArray:
    """A grid that grows along its second dimension."""
    shape = (3, 2)
    offset = 100 * number + np.arange(6).reshape(shape)
    table = Columns(shape, (Source(f"/data/{number}.nc", 9),), np.asarray(0), offset, np.asarray(7))
    axes = (Axis.regular(3, 1), Axis.regular(2, 1))
    return VirtualArray.of(Tile(axes, (Encoding(np.dtype("f4")),), table), dims=("y", "time"))


def offsets(target: Path) -> list[list[int]]:
    group = open_references(str(target))
    assert group is not None
    (tile,) = group.array("grid").tiles
    found = tile.chunks.locate(list(np.ix_(*map(np.arange, tile.chunks.shape))))
    urls = [tile.chunks.sources[int(n)].url for n in found.source]
    assert urls == [f"/data/{n // 100}.nc" for n in found.offset.tolist()]
    rows: list[list[int]] = found.offset.reshape(tile.chunks.shape).tolist()
    return rows


def test_growth_along_an_inner_dimension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of tables that are joined along another axis than the first are put in between."""
    monkeypatch.setattr(file_merging, "MERGED_AT_ONCE", 3)
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"grid": piece(0)}), target)
    for number in range(1, 9):
        append_tree(VirtualGroup({"grid": piece(number)}), target, "time")
        right = np.concatenate([100 * n + np.arange(6).reshape(3, 2) for n in range(number + 1)], axis=1)
        assert offsets(target) == right.tolist()
    assert len(root_of(target)["chunks"]) <= 3


def test_compact(tmp_path: Path) -> None:
    target = tmp_path / "x.insitu"
    save(mixed_tree(), target)
    for number in range(1, 6):
        append_tree(VirtualGroup({"grid": piece(number)}), target, "time")
    right = offsets(target)
    before = open_references(str(target))
    assert before is not None
    result = CliRunner().invoke(app, ["compact", str(target)])
    assert result.exit_code == 0, result.output
    assert "12 files" in " ".join(result.stderr.split())
    document = root_of(target)
    assert (len(document["chunks"]), len(document["sources"])) == (1, 1)
    assert offsets(target) == right
    (table,) = document["tree"]["arrays"]["grid"]["tiles"]
    assert table["chunks"]["kind"] == "rows"
    assert document["tree"]["arrays"]["sparse"]["tiles"][0]["chunks"]["kind"] == "sparse"
    after = open_references(str(target))
    assert after is not None
    for old, new in (
        (before.array("sparse"), after.array("sparse")),
        (before.array("deep/inline"), after.array("deep/inline")),
    ):
        for cell in ((0, 3), (5, 7), (39, 0), (39, 1)) if old.ndim == 2 else ((0,),):
            assert old.tiles[0].chunks[cell] == new.tiles[0].chunks[cell]
    insitu.Archive.open(target).rollback()
    assert offsets(target) == right
    assert len(root_of(target)["chunks"]) == 6


def test_compact_leaves_out_what_was_dropped(tmp_path: Path) -> None:
    files = [write_step(tmp_path / f"{n}.nc", n) for n in range(4)]
    target = tmp_path / "x.insitu"
    insitu.open_mfdataset(files).insitu.save(target, relative=True)
    archive = insitu.Archive.open(target)
    archive.drop([files[1]])
    report = archive.compact()
    assert report.files_after == 2
    assert report.bytes_after < report.bytes_before
    store = open_store(str(target))
    assert sorted(source.url for source in store.sources) == [files[0], *files[2:]]
    assert store.sources.is_relative()
    assert insitu.open_dataset(target).tas.values[:, 0].tolist() == [0, 2, 3]
    archive.append(write_step(tmp_path / "4.nc", 4))
    assert insitu.open_dataset(target).sizes["time"] == 4


def test_compact_and_other_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that comes in between is kept."""
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"grid": piece(0)}), target)
    original = store_writer.StoreUpdate.compact
    calls = []

    def compact_late(self: Any, named: Any = None) -> bool:
        calls.append(1)
        if len(calls) == 1:
            append_tree(VirtualGroup({"grid": piece(1)}), target, "time")
        return original(self, named)

    monkeypatch.setattr(store_writer.StoreUpdate, "compact", compact_late)
    compact(str(target))
    assert len(calls) == 2
    assert [len(row) for row in offsets(target)] == [4, 4, 4]


def test_compact_of_other_references(tmp_path: Path) -> None:
    save(VirtualGroup({"grid": piece(0)}), tmp_path / "x.json")
    with pytest.raises(UnsupportedError, match="insitu convert"):
        compact(str(tmp_path / "x.json"))


def test_a_reader_without_its_files_is_told(tmp_path: Path) -> None:
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"grid": piece(0)}), target)
    group = open_references(str(target))
    assert group is not None
    for path in target.glob("chunks-*"):
        path.unlink()
    with pytest.raises(StaleSourceError, match="Open the store again"):
        group.array("grid").tiles[0].chunks[0, 0]


def test_large_files_are_left_alone() -> None:
    million = 1_500_000
    assert file_merging.files_to_merge([million] * 100) == set()
    assert file_merging.files_to_merge([million, *[100_000] * 8, million]) == set(range(1, 9))
    assert file_merging.files_to_merge([million, *[100_000] * 5, *[5] * 2]) == set()
    assert file_merging.files_to_merge([million, *[100_000] * 5, *[5] * 3]) == set(range(1, 9))
    assert file_merging.trailing_files_to_merge([*[5] * 8, million]) == 9


def test_a_store_that_is_open_for_a_change_says_its_sizes(tmp_path: Path) -> None:
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"grid": piece(0)}), target)
    sizes = open_for_update(str(target)).store.file_sizes()
    assert sorted(sizes) == sorted(path.stat().st_size for path in target.glob("*.parquet"))
