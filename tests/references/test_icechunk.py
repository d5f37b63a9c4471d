"""Icechunk: what the library wrote is read, and what is written the library reads.

Modules: references/plan_append.py
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from insitu.errors import (
    FormatError,
    InsituError,
    NotFoundError,
    SourceError,
    StaleSourceError,
    UnsupportedError,
    VariableError,
)
from insitu.maintenance import append_tree as append
from insitu.model import Axis, Inline, Stored, Unwritten
from insitu.reading import read_array
from insitu.references import open_references, save
from insitu.references.icechunk import append_icechunk, repository_reader, repository_writer
from insitu.references.icechunk.manifest import open_manifest
from insitu.references.icechunk.repository import RepositoryVersion, container_prefix
from insitu.references.icechunk.repository_reader import to_insitu_error
from insitu.references.icechunk.repository_writer import can_write_rectilinear, split_sizes

icechunk = pytest.importorskip("icechunk")
zarr = pytest.importorskip("zarr")
xr = pytest.importorskip("xarray")

# zarr-python warns of every codec of numcodecs' that it meets in V3.
pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr", "ignore:.*Zarr V3 specification")


def repository(path: Path) -> Any:
    """A repository as a stranger opens it: every container of its configuration allowed."""
    place = icechunk.local_filesystem_storage(str(path))
    config = icechunk.Repository.fetch_config(place)
    free = getattr(icechunk.credentials, "LocalFileSystemAccess", None)
    access = dict.fromkeys(config.virtual_chunk_containers or {}, free) if config is not None else {}
    return icechunk.Repository.open(place, authorize_virtual_chunk_access=access)


def open_with_icechunk(path: Path, branch: str = "main") -> Any:
    return zarr.open_group(repository(path).readonly_session(branch).store, mode="r")


def make(path: Path, begin: int, count: int, *, chunk: int = 5, scale: float = 0.5, level: int = 4) -> Path:
    with h5py.File(path, "w") as file:
        time = file.create_dataset(
            "time", data=np.arange(begin, begin + count, dtype="f8"), chunks=(chunk,), maxshape=(None,)
        )
        time.make_scale("time")
        time.attrs["units"] = "days since 2000-01-01"
        values = np.random.default_rng(begin).integers(-99, 99, (count, 12)).astype("i2")
        data = file.create_dataset(
            "v", data=values, chunks=(chunk, 6), maxshape=(None, 12), compression=level, shuffle=True, fillvalue=-1
        )
        data.dims[0].attach_scale(time)
        data.attrs["scale_factor"] = scale
        file.create_dataset("names", data=np.array([f"n{i}" for i in range(12)], object), dtype=h5py.string_dtype())
        file.attrs["title"] = "a test"
    return path


def raw(*paths: Path) -> np.ndarray:
    parts = []
    for path in paths:
        with h5py.File(path) as file:
            parts.append(file["v"][:])
    return np.concatenate(parts)


@pytest.fixture
def native(tmp_path: Path) -> Path:
    """What the library writes itself: chunks of its own, inline ones, a virtual one, and some never
    written.
    """
    (tmp_path / "data.bin").write_bytes(np.arange(100, dtype="<i4").tobytes())
    prefix = f"file://{tmp_path}/"
    config = icechunk.RepositoryConfig.default()
    container = icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(f"{tmp_path}/"))
    config.set_virtual_chunk_container(container)
    path = tmp_path / "native.icechunk"
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)), config)
    repo.save_config()
    session = repo.writable_session("main")
    group = zarr.create_group(session.store, attributes={"title": "native"})
    mixed = group.create_array(
        "g/mixed", shape=(100,), chunks=(25,), dtype="i4", compressors=None, fill_value=-5, dimension_names=["x"]
    )
    mixed[:25] = 7
    session.store.set_virtual_ref("g/mixed/c/1", f"{prefix}data.bin", offset=100, length=100)
    large = group.create_array("large", shape=(70, 50), chunks=(32, 50), dtype="f8", fill_value=np.nan)
    large[:] = np.arange(3500.0).reshape(70, 50)
    group.create_array("scalar", shape=(), dtype="i8")[...] = 42
    session.commit("one")
    repo.create_tag("v1", repo.lookup_branch("main"))
    session = repo.writable_session("main")
    zarr.open_group(session.store)["scalar"][...] = 43
    session.commit("two")
    repo.create_branch("dev", repo.lookup_branch("main"))
    return path


def test_native_inline_and_virtual_chunks(native: Path) -> None:
    found = insitu.scan(native, decode=False)
    assert found.attributes["title"] == "native"
    table = found.array("g/mixed").tiles[0].chunks
    assert isinstance(table[0], Inline)
    assert isinstance(table[1], Stored)
    assert table[1].source.url.endswith("data.bin")
    assert isinstance(table[2], Unwritten)
    expected = np.full(100, -5)
    expected[:25], expected[25:50] = 7, np.arange(25, 50)
    np.testing.assert_array_equal(insitu.read(found, "g/mixed", decode=False), expected)
    np.testing.assert_array_equal(
        insitu.read(found, "large", np.s_[60:, ::7], decode=False), open_with_icechunk(native)["large"][60:, ::7]
    )
    assert insitu.read(found, "scalar", decode=False) == 43


def test_versions(native: Path) -> None:
    assert insitu.read(f"{native}?tag=v1", "scalar", decode=False) == 42
    assert insitu.read(f"{native}?branch=dev", "scalar", decode=False) == 43
    snapshot = insitu.scan(f"{native}?tag=v1", decode=False).details.notes["snapshot"]
    assert insitu.read(f"{native}?snapshot={snapshot}", "scalar", decode=False) == 42
    with pytest.raises(VariableError, match="no tag 'v2'"):
        insitu.scan(f"{native}?tag=v2", decode=False)
    with pytest.raises(SourceError, match=r"Use \?branch=NAME"):
        insitu.scan(f"{native}?version=1", decode=False)


def test_found_by_what_lies_there(native: Path, tmp_path: Path) -> None:
    plain = tmp_path / "a directory"
    shutil.copytree(native, plain)
    assert insitu.read(plain, "scalar", decode=False) == 43
    with pytest.raises(NotFoundError, match="no Icechunk repository"):
        insitu.scan(tmp_path / "missing.icechunk", decode=False)


def test_pickles(native: Path) -> None:
    copy = pickle.loads(pickle.dumps(insitu.scan(native, decode=False)))
    np.testing.assert_array_equal(insitu.read(copy, "large", decode=False), open_with_icechunk(native)["large"][:])


@pytest.mark.filterwarnings("ignore:The codec `vlen-utf8`")
def test_what_is_written_the_library_reads(tmp_path: Path) -> None:
    source = make(tmp_path / "a b#1.nc", 0, 10)
    target = tmp_path / "x.icechunk"
    save(insitu.scan(source, decode=False), target, message="the first")
    group = open_with_icechunk(target)
    np.testing.assert_array_equal(group["v"][:], raw(source))
    assert group.attrs["title"] == "a test"
    assert group["v"].metadata.dimension_names == ("time", "phony_dim_1")
    assert group["names"][:].tolist() == [f"n{i}" for i in range(12)]
    with xr.open_zarr(repository(target).readonly_session("main").store, consolidated=False) as shown:
        np.testing.assert_array_equal(shown.v.values, raw(source) * 0.5)
    again = insitu.scan(target, decode=False)
    np.testing.assert_array_equal(insitu.read(again, "v", decode=False), raw(source))
    assert isinstance(again.array("v").tiles[0].chunks[0, 0], Stored)
    history = [entry.message for entry in repository(target).ancestry(branch="main")]
    assert history[0] == "the first"


def test_saving_again_adds_a_version(tmp_path: Path) -> None:
    one, two = make(tmp_path / "1.nc", 0, 10), make(tmp_path / "2.nc", 50, 5)
    target = tmp_path / "x.icechunk"
    save(insitu.scan(one, decode=False), target)
    before = insitu.scan(target, decode=False).details.notes["snapshot"]
    save(insitu.scan(two, decode=False), target)
    np.testing.assert_array_equal(insitu.read(target, "v", decode=False), raw(two))
    np.testing.assert_array_equal(insitu.read(f"{target}?snapshot={before}", "v", decode=False), raw(one))
    save(insitu.scan(one, decode=False), f"{target}?branch=dev")
    np.testing.assert_array_equal(open_with_icechunk(target, "dev")["v"][:], raw(one))
    np.testing.assert_array_equal(insitu.read(target, "v", decode=False), raw(two))
    with pytest.raises(UnsupportedError, match="a repository already"):
        save(insitu.scan(one, decode=False), target, mode="x")
    with pytest.raises(UnsupportedError, match="a tag cannot be written to"):
        save(insitu.scan(one, decode=False), f"{target}?tag=v1")
    (tmp_path / "other.icechunk").mkdir()
    (tmp_path / "other.icechunk" / "file").write_text("mine")
    with pytest.raises(UnsupportedError, match="something else"):
        save(insitu.scan(one, decode=False), tmp_path / "other.icechunk")


def test_inline_threshold_and_other_forms(tmp_path: Path) -> None:
    source = make(tmp_path / "1.nc", 0, 10)
    target = tmp_path / "x.icechunk"
    save(insitu.scan(source, decode=False), target, inline_threshold=200)
    assert isinstance(insitu.scan(target, decode=False).array("time").tiles[0].chunks[0], Inline)
    source.rename(tmp_path / "moved.nc")
    np.testing.assert_array_equal(insitu.read(target, "time", decode=False), np.arange(10.0))
    (tmp_path / "moved.nc").rename(source)
    save(insitu.scan(target, decode=False), tmp_path / "x.json")
    np.testing.assert_array_equal(insitu.read(tmp_path / "x.json", "v", decode=False), raw(source))
    save(insitu.scan(tmp_path / "x.json", decode=False), tmp_path / "y.icechunk")
    np.testing.assert_array_equal(open_with_icechunk(tmp_path / "y.icechunk")["v"][:], raw(source))


def test_sparse_and_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never-written chunks stay so, and manifests are split."""
    path = tmp_path / "sparse.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("v", (400, 300), "i2", chunks=(10, 10), fillvalue=-3)
        data[35:141, 100:260] = np.arange(106 * 160).reshape(106, 160)
        expected = data[:]
    monkeypatch.setattr(repository_writer, "REFERENCES_PER_MANIFEST", 100)
    monkeypatch.setattr(repository_writer, "_REFERENCES_PER_CALL", 64)
    target = tmp_path / "x.icechunk"
    save(insitu.scan(path, decode=False), target)
    np.testing.assert_array_equal(open_with_icechunk(target)["v"][:], expected)
    np.testing.assert_array_equal(insitu.read(target, "v", decode=False), expected)
    assert isinstance(insitu.scan(target, decode=False).array("v").tiles[0].chunks[0, 0], Unwritten)
    manifests = repository(target).config.manifest
    assert manifests is not None
    assert manifests.splitting is not None
    assert len(os.listdir(target / "manifests")) > 1


def test_manifests_are_loaded_when_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, target = tmp_path / "sparse.h5", tmp_path / "x.icechunk"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("v", (400, 300), "i2", chunks=(10, 10), fillvalue=-3)
        data[35:341, 100:260] = np.arange(306 * 160).reshape(306, 160)
    monkeypatch.setattr(repository_writer, "REFERENCES_PER_MANIFEST", 100)
    save(insitu.scan(path, decode=False), target)
    expected = open_with_icechunk(target)["v"][:]
    count = len(os.listdir(target / "manifests"))
    assert count > 4
    loaded: list[bytes] = []
    original = repository_reader.open_manifest

    def open_counted(data: bytes, *arguments: Any) -> Any:
        loaded.append(data)
        return original(data, *arguments)

    monkeypatch.setattr(repository_reader, "open_manifest", open_counted)
    array = insitu.scan(target, decode=False).array("v")
    np.testing.assert_array_equal(read_array(array[335:345, 250:270]), expected[335:345, 250:270])
    # That of the first source, which tells how far away they are, and that of the cells.
    assert 0 < len(loaded) <= 2
    np.testing.assert_array_equal(read_array(array), expected)
    assert len(loaded) == len(set(loaded)) == count
    assert [source.url for source in array.sources] == [str(path)]
    dice = np.random.default_rng(2)
    cells = [dice.integers(0, length, 200) for length in array.tiles[0].chunks.shape]
    table: Any = array.tiles[0].chunks
    found, right = table.locate(cells), table.explicit().locate(cells)
    for name in ("source", "offset", "length"):
        assert getattr(found, name).tolist() == getattr(right, name).tolist()
    copy = pickle.loads(pickle.dumps(array))
    np.testing.assert_array_equal(read_array(copy[100:150]), expected[100:150])


def test_split_sizes() -> None:
    assert split_sizes((10, 20), 1000) == [10, 20]
    assert split_sizes((10, 20), 100) == [5, 20]
    assert split_sizes((10, 20, 30), 20) == [1, 1, 20]


def test_append_on_a_border(tmp_path: Path) -> None:
    one, two = make(tmp_path / "1.nc", 0, 10), make(tmp_path / "2.nc", 10, 7)
    target = tmp_path / "x.icechunk"
    save(insitu.scan(one, decode=False), target)
    append(insitu.scan(two, decode=False), target, "time")
    group = open_with_icechunk(target)
    np.testing.assert_array_equal(group["v"][:], raw(one, two))
    np.testing.assert_array_equal(group["time"][:], np.arange(17))
    found = insitu.scan(target, decode=False)
    np.testing.assert_array_equal(insitu.read(found, "v", decode=False), raw(one, two))
    states = [found.array("v").tiles[0].chunks[row, 0] for row in range(4)]
    assert [state.source.url for state in states if isinstance(state, Stored)] == [str(one)] * 2 + [str(two)] * 2


def test_append_within_a_chunk_never_corrupts(tmp_path: Path) -> None:
    one, two = make(tmp_path / "1.nc", 0, 7), make(tmp_path / "2.nc", 7, 10)
    target = tmp_path / "x.icechunk"
    save(insitu.scan(one, decode=False), target)
    before = insitu.scan(target, decode=False).details.notes["snapshot"]
    with pytest.raises(UnsupportedError, match=r"ends within a chunk along 'time' \(7 elements in chunks of 5\)"):
        append_icechunk(insitu.scan(two, decode=False), str(target), "time", rewrite=0)
    assert insitu.scan(target, decode=False).details.notes["snapshot"] == before
    append(insitu.scan(two, decode=False), target, "time")
    np.testing.assert_array_equal(open_with_icechunk(target)["v"][:], raw(one, two))
    np.testing.assert_array_equal(insitu.read(target, "v", decode=False), raw(one, two))
    np.testing.assert_array_equal(insitu.read(target, "time", decode=False), np.arange(17))
    append(
        insitu.scan(make(tmp_path / "3.nc", 17, 4), decode=False), target, "time"
    )  # and once more, onto native chunks
    np.testing.assert_array_equal(insitu.read(target, "v", decode=False), raw(one, two, tmp_path / "3.nc"))


@pytest.mark.parametrize(
    ("other", "message"),
    [({"scale": 0.25}, "attribute scale_factor is 0.5"), ({"level": 0}, "codecs is"), ({"chunk": 3}, "another shape")],
)
def test_append_of_what_differs_is_refused(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    one, two = make(tmp_path / "1.nc", 0, 10), make(tmp_path / "2.nc", 10, 10, **other)
    target = tmp_path / "x.icechunk"
    save(insitu.scan(one, decode=False), target)
    with pytest.raises(UnsupportedError, match=message):
        append_icechunk(insitu.scan(two, decode=False), str(target), "time", rewrite=0)
    np.testing.assert_array_equal(insitu.read(target, "v", decode=False), raw(one))
    with pytest.raises(InsituError, match="no array has a dimension 'nothing'"):
        append(insitu.scan(two, decode=False), target, "nothing")


def test_a_mosaic_is_refused_by_name(tmp_path: Path) -> None:
    from insitu.model import VirtualGroup, concatenate

    one, two = make(tmp_path / "1.nc", 0, 7), make(tmp_path / "2.nc", 7, 10)
    arrays = [insitu.scan(path, decode=False).array("v") for path in (one, two)]
    with pytest.raises(UnsupportedError, match=r"v: along 'time' a chunk of 5 shows only 2 elements.*\*\.insitu"):
        save(VirtualGroup({"v": concatenate(arrays)}), tmp_path / "x.icechunk")
    assert not (tmp_path / "x.icechunk").exists()


def test_chunks_of_different_lengths(tmp_path: Path) -> None:
    """A rectilinear grid, where the installed libraries know it."""
    from insitu.model import VirtualGroup, concatenate

    parts = []
    for number, rows in enumerate((4, 3, 3, 5)):
        path = tmp_path / f"{number}.h5"
        with h5py.File(path, "w") as file:
            file["v"] = np.arange(rows * 6, dtype="f4").reshape(rows, 6) + 100 * number
        parts.append(insitu.scan(path, decode=False).array("v"))
    joined = VirtualGroup({"v": concatenate(parts)})
    target = tmp_path / "x.icechunk"
    if not can_write_rectilinear():
        with pytest.raises(UnsupportedError, match="chunks have different lengths"):
            save(joined, target)
        pytest.skip("the installed zarr and icechunk do not know rectilinear grids")
    save(joined, target)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        np.testing.assert_array_equal(open_with_icechunk(target)["v"][:], insitu.read(joined, "v", decode=False))
    found = insitu.scan(target, decode=False)
    np.testing.assert_array_equal(insitu.read(found, "v", decode=False), insitu.read(joined, "v", decode=False))
    assert found.array("v").tiles[0].axes[0] == Axis.irregular([4, 3, 3, 5], 0, 1, [4, 3, 3, 5])


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    source = make(tmp_path / "1.nc", 0, 10)
    target = tmp_path / "x.icechunk"
    save(insitu.scan(source, decode=False), target)
    late = source.stat().st_mtime + 10
    os.utime(source, (late, late))
    with pytest.raises(StaleSourceError, match="changed since"):
        insitu.read(target, "v", decode=False)


def test_a_remote_repository_may_not_name_local_files(tmp_path: Path, site: Any) -> None:
    if not hasattr(icechunk, "http_storage"):
        pytest.skip("icechunk 1 reads no repositories from the web")
    source = make(tmp_path / "1.nc", 0, 10)
    save(insitu.scan(source, decode=False), tmp_path / "x.icechunk")
    found = insitu.scan(f"{site.url}/x.icechunk", decode=False)
    with pytest.raises(InsituError, match="names a local file"):
        insitu.read(found, "v", decode=False)
    allowed = open_references(f"{site.url}/x.icechunk", allow_local=True)
    assert allowed is not None
    np.testing.assert_array_equal(insitu.read(allowed, "v", decode=False), raw(source))


def manifests(tmp_path: Path) -> tuple[bytes, str, str]:
    """A manifest of version 1, its id, and that of its array."""
    import json

    modern = hasattr(icechunk.IcechunkStore, "array_chunk_iterator")
    path = tmp_path / "one.icechunk"
    place = icechunk.local_filesystem_storage(str(path))
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(f"file://{tmp_path}/", icechunk.local_filesystem_store(f"{tmp_path}/"))
    )
    repo = icechunk.Repository.create(place, config, **({"spec_version": 1} if modern else {}))
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(40,), chunks=(10,), dtype="i4", compressors=None)[:10] = 3
    session.store.set_virtual_ref("a/c/2", f"file://{tmp_path}/x.bin", offset=8, length=40)
    session.commit("one")
    answer = repo.inspect_snapshot(repo.lookup_branch("main"))
    about = json.loads(answer) if isinstance(answer, str) else answer
    node = next(node for node in about["nodes"] if node["path"] == "/a")
    name = node["manifest_refs"][0]["id"]
    return (path / "manifests" / name).read_bytes(), name, node["id"]


def test_manifests_of_version_1(tmp_path: Path) -> None:
    data, name, node = manifests(tmp_path)
    rows = open_manifest(data, name, node, 2).rows()
    assert rows.index.tolist() == [[0], [2]]
    assert rows.inline[0] == np.full(10, 3, "<i4").tobytes()
    assert rows.path == ["", f"file://{tmp_path}/x.bin"]
    assert (rows.offset[1], rows.length[1]) == (8, 40)
    with pytest.raises(FormatError, match="does not list this array"):
        open_manifest(data, name, "0000000000000", 2)
    with pytest.raises(FormatError, match="holds 2 references, but the snapshot says 3"):
        open_manifest(data, name, node, 3)


def make_referring(tmp_path: Path, location: str, **reference: Any) -> Path:
    """A repository with a container (named, where it can be), and twenty references to one file."""
    (tmp_path / "data.bin").write_bytes(np.arange(1000, dtype="<i4").tobytes())
    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(f"{tmp_path}/")
    named = {"name": "here"} if hasattr(icechunk.IcechunkStore, "array_chunk_iterator") else {}
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"file://{tmp_path}/", store, **named))
    path = tmp_path / "referring.icechunk"
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)), config)
    repo.save_config()
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(1000,), chunks=(50,), dtype="i4", compressors=None)
    for number in range(20):
        session.store.set_virtual_ref(f"a/c/{number}", location, offset=200 * number, length=200, **reference)
    session.commit("one")
    return path


modern = pytest.mark.skipif(
    not hasattr(icechunk.IcechunkStore, "array_chunk_iterator"), reason="icechunk 1 has no named containers"
)


@modern
@pytest.mark.parametrize("lazy", [True, False])
def test_urls_relative_to_a_container(tmp_path: Path, lazy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_referring(tmp_path, "vcc://here/data.bin")
    monkeypatch.setattr(repository_reader, "can_decompress_texts", lambda: lazy)
    array = insitu.scan(path, decode=False).array("a")
    np.testing.assert_array_equal(read_array(array), open_with_icechunk(path)["a"][:])
    assert [source.url for source in array.sources] == [str(tmp_path / "data.bin")]


@modern
def test_compressed_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many URLs that the library trains a dictionary; without the kernels it lists them itself."""
    source, target = tmp_path / "many.h5", tmp_path / "x.icechunk"
    with h5py.File(source, "w") as file:
        file.create_dataset("v", data=np.arange(4000, dtype="i4"), chunks=(2,))
    save(insitu.scan(source, decode=False), target)
    repo = repository(target)
    (node,) = [n for n in repo.inspect_snapshot(repo.lookup_branch("main"))["nodes"] if n["path"] == "/v"]
    assert repo.inspect_manifest(node["manifest_refs"][0]["id"])["compression"]["num_compressed_refs"] == 2000
    tables = []
    for lazy in (True, False):
        monkeypatch.setattr(repository_reader, "can_decompress_texts", lambda lazy=lazy: lazy)
        array = insitu.scan(target, decode=False).array("v")
        np.testing.assert_array_equal(read_array(array), np.arange(4000))
        tables.append(array.tiles[0].chunks.locate([np.arange(2000)]))
    for name in ("source", "offset", "length"):
        np.testing.assert_array_equal(getattr(tables[0], name), getattr(tables[1], name))
    name = node["manifest_refs"][0]["id"]
    count_damage((target / "manifests" / name).read_bytes(), name, node["id"], 2000)


def test_a_file_with_another_etag_is_noticed(tmp_path: Path) -> None:
    path = make_referring(tmp_path, f"file://{tmp_path}/data.bin", checksum="something else")
    with pytest.raises(Exception, match=r"checksum|changed since") as failed:
        open_with_icechunk(path)["a"][:]
    assert failed
    with pytest.raises(StaleSourceError, match="changed since"):
        insitu.read(path, "a", decode=False)


def test_damaged_manifests_are_errors(tmp_path: Path) -> None:
    data, name, node = manifests(tmp_path)
    with pytest.raises(FormatError, match="not a manifest"):
        open_manifest(b"x" + data, name, node, 2)
    assert count_damage(data, name, node, 2) > 100


def count_damage(data: bytes, name: str, node: str, count: int) -> int:
    """Return how many of 300 damaged copies of a manifest are refused; another error fails."""
    random = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for at in random.integers(0, len(data), 3):
            damaged[at] = random.integers(0, 256)
        try:
            open_manifest(bytes(damaged[: random.integers(1, len(data) + 1)]), name, node, count).rows()
        except FormatError:
            refused += 1
    return refused


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icechunk", None)
    with pytest.raises(UnsupportedError, match=re.escape("pip install 'insitu[icechunk]'")):
        insitu.scan(tmp_path / "x.icechunk", decode=False)


def test_places_without_a_container() -> None:
    assert container_prefix("s3://bucket/a/b.nc") == "s3://bucket/"
    assert container_prefix("file:///data/x/b.nc") == "file:///data/x/"
    with pytest.raises(UnsupportedError, match="no container"):
        container_prefix("memory:x")
    assert "icechunk failed" in str(to_insitu_error(ValueError("\n  x something odd\n"), RepositoryVersion("/r")))


def test_virtualizarr_reads_the_same(tmp_path: Path) -> None:
    """What a peer wrote of the same file reads the same."""
    pytest.importorskip("virtualizarr")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    source = make(tmp_path / "1.nc", 0, 10)
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(f"file://{tmp_path}/", icechunk.local_filesystem_store(f"{tmp_path}/"))
    )
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "vz.icechunk")), config)
    repo.save_config()
    session = repo.writable_session("main")
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        virtual = open_virtual_dataset(
            f"file://{source}", registry=registry, parser=HDFParser(drop_variables=["names"]), loadable_variables=[]
        )
        virtual.vz.to_icechunk(session.store)
    session.commit("open_with_icechunk")
    np.testing.assert_array_equal(insitu.read(tmp_path / "vz.icechunk", "v", decode=False), raw(source))


def test_datasets_are_saved_and_appended(tmp_path: Path) -> None:
    """By way of xarray: times of every file are counted as those of the repository."""
    pytest.importorskip("netCDF4")
    for number, (begin, days) in enumerate([("2020-01-01", 31), ("2020-02-01", 29)]):
        time = (np.arange(days) + np.datetime64(begin)).astype("M8[ns]")
        made = xr.Dataset({"t": (("time", "x"), np.arange(days * 3.0).reshape(days, 3) + number)}, {"time": time})
        encoding = {"t": {"chunksizes": (1, 3), "zlib": True}, "time": {"units": f"days since {begin}"}}
        made.to_netcdf(tmp_path / f"{number}.nc", engine="netcdf4", encoding=encoding)
    target = tmp_path / "x.icechunk"
    insitu.open_dataset(tmp_path / "0.nc").insitu.save(target, message="January")
    insitu.open_dataset(tmp_path / "1.nc").insitu.append(target, "time")
    expected = insitu.open_mfdataset(sorted(tmp_path.glob("*.nc"))).compute()
    xr.testing.assert_equal(insitu.open_dataset(target).compute(), expected)
    with xr.open_zarr(repository(target).readonly_session("main").store, consolidated=False) as shown:
        xr.testing.assert_equal(shown.compute(), expected)


def test_behind_a_gate_links_out_of_a_repository_are_refused(tmp_path):
    """The library opens files by itself, so every link in the folder is asked for before it is let
    in.
    """
    icechunk = pytest.importorskip("icechunk")
    zarr = pytest.importorskip("zarr")
    from insitu.errors import AccessError
    from insitu.server.roots import Roots
    from insitu.sources.access_policy import access_policy_scope

    path = tmp_path / "in" / "x.icechunk"
    session = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path))).writable_session("main")
    zarr.create_group(session.store).create_array("t", data=np.arange(4000, dtype="i4"))
    session.commit("one")
    (tmp_path / "out").mkdir()
    with access_policy_scope(Roots([str(tmp_path / "in")])):
        assert insitu.read(str(path), "t", np.s_[5:7], decode=False).tolist() == [5, 6]
        moved = next((path / "chunks").iterdir())
        moved.rename(tmp_path / "out" / moved.name)
        moved.symlink_to(tmp_path / "out" / moved.name)
        with pytest.raises(AccessError, match="read from th"):
            insitu.scan(str(path), decode=False)
        for url in ("https://example.invalid/x.icechunk", "gs://box/x.icechunk", "s3://box/x.icechunk"):
            with pytest.raises(AccessError, match="read from th"):
                insitu.scan(url, storage_options={"anon": True}, decode=False)
