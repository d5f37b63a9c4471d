"""Damaged references: files deleted, cut, emptied, swapped, or with flipped bits, beside the reference reader.

What is read is what the reference reader reads, or what was there before the damage: never fill
values, or fewer arrays, where the reference reader says that something is wrong.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import insitu
from damaged_bytes import count_refused, flip_each, flip_one
from insitu.errors import FormatError, InsituError, InsituWarning, NotFoundError, SourceError
from insitu.references import save
from insitu.references.icechunk import manifest as manifests
from insitu.references.icechunk import repository_reader
from waiting import LONG

zarr = pytest.importorskip("zarr")
pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr", "ignore:.*Zarr V3 specification")

READER = Path(__file__).parent / "damage" / "reference_reader.py"
Change = Callable[[Path], None]


def make_repository(folder: Path) -> Path:
    """A repository with chunks of its own, inline ones, a virtual one, and some never written."""
    icechunk = pytest.importorskip("icechunk")
    (folder / "data.bin").write_bytes(np.arange(100, dtype="<i4").tobytes())
    prefix = f"file://{folder}/"
    config = icechunk.RepositoryConfig.default()
    container = icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(f"{folder}/"))
    config.set_virtual_chunk_container(container)
    path = folder / "x.icechunk"
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)), config)
    repo.save_config()
    session = repo.writable_session("main")
    group = zarr.create_group(session.store)
    mixed = group.create_array("g/mixed", shape=(100,), chunks=(25,), dtype="i4", compressors=None, fill_value=-5)
    mixed[:25] = 7
    session.store.set_virtual_ref("g/mixed/c/1", f"{prefix}data.bin", offset=100, length=100)
    own = group.create_array("own", shape=(70, 50), chunks=(32, 50), dtype="f8", fill_value=-1)
    own[:] = np.arange(3500.0).reshape(70, 50)
    group.create_array("unwritten", shape=(4,), chunks=(2,), dtype="i4", fill_value=3)
    group.create_array("scalar", shape=(), dtype="i8")[...] = 42
    session.commit("one")
    session = repo.writable_session("main")
    zarr.open_group(session.store)["scalar"][...] = 43
    session.commit("two")
    return path


def make_kerchunk(folder: Path, suffix: str) -> Path:
    """References to a file with chunks of several forms, some of them never written."""
    source, path = folder / "a.h5", folder / f"x{suffix}"
    with h5py.File(source, "w") as file:
        data = file.create_dataset("packed", (40, 12), "i2", chunks=(5, 12), compression=4, fillvalue=-1)
        data[:20] = np.arange(240).reshape(20, 12)
        file.create_dataset("plain", data=np.arange(30.0).reshape(10, 3), chunks=(2, 3))
        file.create_dataset("small", data=np.arange(4, dtype="i4"))
    save(insitu.scan(source, decode=False), path, **({"record_size": 3} if suffix == ".parq" else {}))
    return path


FORMS: dict[str, Callable[[Path], Path]] = {
    "icechunk": make_repository,
    "json": lambda folder: make_kerchunk(folder, ".json"),
    "parquet": lambda folder: make_kerchunk(folder, ".parq"),
}


def list_files(path: Path) -> list[Path]:
    """The files of references, relative to them."""
    return sorted(file.relative_to(path) for file in [path, *path.rglob("*")] if file.is_file())


def changes(path: Path, seed: int, flips: int) -> Iterator[tuple[str, Change]]:
    """Each way to damage references, with a name that says which."""
    dice = random.Random(seed)
    files = list_files(path)

    def write(name: Path, data: bytes) -> Change:
        return lambda target: (target / name).write_bytes(data) and None

    def remove(name: Path) -> Change:
        return lambda target: (target / name).unlink()

    def swap(one: Path, other: Path) -> Change:
        def exchange(target: Path) -> None:
            first, second = (target / one).read_bytes(), (target / other).read_bytes()
            (target / one).write_bytes(second)
            (target / other).write_bytes(first)

        return exchange

    for name in files:
        data = (path / name).read_bytes()
        if path.is_dir():
            yield f"{name} deleted", remove(name)
        for length in (0, len(data) // 2, len(data) - 2):
            yield f"{name} cut at {length}", write(name, data[:length])
        for _ in range(flips):
            place, bit = dice.randrange(len(data)), 1 << dice.randrange(8)
            yield f"{name} with bit {bit} of byte {place} flipped", write(name, flip_one(data, place, bit))
    pairs = [pair for pair in combinations(files, 2) if pair[0].suffix == pair[1].suffix]
    for one, other in dice.sample(pairs, min(len(pairs), 12)):
        yield f"{one} and {other} swapped", swap(one, other)


def read_with_reference_reader(form: str, paths: list[Path], result: Path) -> list[dict[str, Any] | None]:
    lines = "".join(f"{path}\n" for path in paths)
    command = [sys.executable, READER, form, result]
    # What icechunk logs, and what it prints of its panics, is not of interest.
    quiet = {**os.environ, "ICECHUNK_LOG": "off"}
    subprocess.run(command, input=lines, text=True, check=True, timeout=LONG, env=quiet, stderr=subprocess.DEVNULL)
    answers: list[dict[str, Any] | None] = pickle.loads(result.read_bytes())
    return answers


def read_ours(path: Path) -> dict[str, Any] | None:
    """The values of every array by path; None: it is refused. Another error than ours is raised."""
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsituWarning)
        try:
            arrays = list(insitu.scan(path, decode=False).all_arrays())
        except InsituError:
            return None
        for name, array in arrays:
            try:
                found[name] = insitu.read(array, decode=False) if array.nbytes < 1 << 24 else None
            except InsituError:
                found[name] = None
    return found


def is_same(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.parametrize(("form", "seed", "flips"), [("icechunk", 1, 2), ("json", 2, 60), ("parquet", 3, 2)])
def test_mutants_beside_the_reference_reader(tmp_path: Path, form: str, seed: int, flips: int) -> None:
    path = FORMS[form](tmp_path)
    whole = read_ours(path)
    assert whole is not None
    names, mutants = [], []
    for number, (name, change) in enumerate(changes(path, seed, flips)):
        mutant = tmp_path / str(number) / path.name
        mutant.parent.mkdir()
        (shutil.copytree if path.is_dir() else shutil.copy)(path, mutant)
        change(mutant)
        names.append(name)
        mutants.append(mutant)
    first, *expected = read_with_reference_reader(form, [path, *mutants], tmp_path / "result")
    assert first is not None
    assert all(is_same(first[name], values) for name, values in whole.items())
    refused = 0
    for name, mutant, reference in zip(names, mutants, expected, strict=True):
        actual = read_ours(mutant)
        if actual is None:
            refused += 1
            continue
        assert actual.keys() in (whole.keys(), (reference or {}).keys()), f"{name}: {sorted(actual)}"
        for array, values in actual.items():
            known = (whole.get(array), (reference or {}).get(array))
            assert values is None or any(is_same(values, other) for other in known), f"{name}: {array}"
    assert 0 < refused < len(mutants)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path)


def snapshots(repository: Path) -> tuple[Path, Path]:
    """The snapshot of the tip, and the one before it."""
    icechunk = pytest.importorskip("icechunk")
    repo = icechunk.Repository.open(icechunk.local_filesystem_storage(str(repository)))
    tip, before, *_ = (version.id for version in repo.ancestry(branch="main"))
    return repository / "snapshots" / tip, repository / "snapshots" / before


def test_a_snapshot_that_is_lost(repository: Path) -> None:
    snapshots(repository)[0].unlink()
    with pytest.raises(SourceError, match="cannot read the snapshot"):
        insitu.scan(repository, decode=False)


def test_a_snapshot_that_is_cut(repository: Path) -> None:
    tip, before = snapshots(repository)
    tip.write_bytes(tip.read_bytes()[:-2])
    for errors in ("raise", "warn"):
        with pytest.raises(SourceError, match="cannot read the snapshot"):
            insitu.scan(repository, decode=False, errors=errors)
    assert insitu.read(f"{repository}?snapshot={before.name}", "scalar", decode=False) == 42


def test_a_snapshot_in_the_place_of_another(repository: Path) -> None:
    tip, before = snapshots(repository)
    shutil.copy(before, tip)
    with pytest.raises(FormatError, match=f"kept as the snapshot {tip.name} is {before.name}"):
        insitu.scan(repository, decode=False)


def test_metadata_that_is_no_text(repository: Path) -> None:
    tip, _ = snapshots(repository)
    data = tip.read_bytes()
    body = manifests._decompress(data[39:])
    for wrong in (b'"node_typ\x01', b'"node_typ\xff'):
        damaged = body.replace(b'"node_type', wrong)
        assert damaged != body
        tip.write_bytes(data[:39] + pa.compress(damaged, "zstd", asbytes=True))
        with pytest.raises(FormatError, match="not valid JSON"):
            insitu.scan(repository, decode=False)
        found = insitu.scan(repository, decode=False, errors="warn")
        assert not list(found.all_arrays())
        assert {"own", "g/mixed", "scalar", "unwritten"} <= found.problems.keys()


def test_nothing_was_committed(tmp_path: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "x.icechunk")))
    with pytest.raises(NotFoundError, match="nothing was committed yet"):
        insitu.scan(tmp_path / "x.icechunk", decode=False)


@pytest.mark.parametrize("kernels", [True, False])
def test_manifests_in_the_place_of_others(repository: Path, monkeypatch: pytest.MonkeyPatch, kernels: bool) -> None:
    monkeypatch.setattr(repository_reader, "can_decompress_texts", lambda: kernels)
    arrays = {name: array for name, array in insitu.scan(repository, decode=False).all_arrays() if name != "unwritten"}
    whole = {name: insitu.read(array, decode=False) for name, array in arrays.items()}
    folder = repository / "manifests"
    contents = {file.name: file.read_bytes() for file in folder.iterdir()}
    refused = 0
    for name, (one, other) in [(name, pair) for name in whole for pair in combinations(contents, 2)]:
        (folder / one).write_bytes(contents[other])
        (folder / other).write_bytes(contents[one])
        try:
            assert is_same(insitu.read(repository, name, decode=False), whole[name])
        except FormatError as problem:
            refused += Path(str(problem.url)).name in (one, other)
        (folder / one).write_bytes(contents[one])
        (folder / other).write_bytes(contents[other])
    assert refused == 3 * len(whole)  # the one that the array has, exchanged with each of the others


def test_each_bit_of_a_decompressed_manifest(repository: Path) -> None:
    """A manifest whose bits are flipped after it was decompressed: rows, or an error of ours."""
    snapshot = insitu.scan(repository, decode=False).array("g/mixed").tiles[0].chunks.snapshot
    node = snapshot.listing().nodes["g/mixed"]
    name = node["manifest_refs"][0]["id"]
    data = (repository / "manifests" / name).read_bytes()
    body = manifests._decompress(data[39:])

    def read(body: bytes) -> list[str]:
        found = manifests.open_manifest(data[:38] + b"\0" + body, name, node["id"], 2).rows()
        assert all(path or row in found.inline for row, path in enumerate(found.path))
        return found.path

    assert len(read(body)) == 2
    assert count_refused(flip_each(body, range(0, len(body), 3), (1, 16)), read) > len(body) // 8


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the size of the address space")
def test_manifests_reserve_no_address_space(repository: Path) -> None:
    import resource

    whole = read_ours(repository)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + (2 << 30), hard))
    try:
        found = read_ours(repository)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert whole is not None
    assert found is not None
    assert all(is_same(found[name], values) for name, values in whole.items())


@pytest.mark.parametrize("column", ["path", "offset", "size", "raw"])
def test_a_column_with_another_name(tmp_path: Path, column: str) -> None:
    path = make_kerchunk(tmp_path, ".parq")
    file = path / "plain" / "refs.0.parq"
    file.write_bytes(file.read_bytes().replace(column.encode(), column.title().encode()))
    with pytest.raises(FormatError, match=f"no column '{column}'"):
        insitu.read(path, "plain", decode=False)


def test_a_column_that_is_missing(tmp_path: Path) -> None:
    path = make_kerchunk(tmp_path, ".parq")
    expected = insitu.read(path, "plain", decode=False)
    for file in path.glob("plain/*.parq"):
        table = pq.read_table(file)
        pq.write_table(table.drop(["raw"]), file)
    np.testing.assert_array_equal(insitu.read(path, "plain", decode=False), expected)
    pq.write_table(table.drop(["offset"]), file)
    with pytest.raises(FormatError, match="no column 'offset'"):
        insitu.read(path, "plain", decode=False)
    flat = make_kerchunk(tmp_path, ".parquet")
    pq.write_table(pq.read_table(flat).drop(["offset"]), flat)
    with pytest.raises(FormatError, match="lengths, but no offsets"):
        insitu.scan(flat, decode=False)


@pytest.mark.parametrize("suffix", [".json", ".parq"])
def test_metadata_under_another_name(tmp_path: Path, suffix: str) -> None:
    path = make_kerchunk(tmp_path, suffix)
    file = path / ".zmetadata" if path.is_dir() else path
    text = file.read_text()
    file.write_text(text.replace('"plain/.zarray"', '"plain/.zbrray"'))
    assert file.read_text() != text
    with pytest.raises(FormatError, match=r"attributes of an array here, but no \.zarray.*plain"):
        insitu.scan(path, decode=False)
    found = insitu.scan(path, decode=False, errors="warn")
    assert (sorted(found.arrays), list(found.problems)) == (["packed", "small"], ["plain"])
