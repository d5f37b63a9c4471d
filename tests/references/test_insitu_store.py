"""The insitu store holds everything the model has, and survives crashes, second writers and damage.

Modules: maintenance/conflicts.py, maintenance/rebuild.py, model/format_details.py, references/list_objects.py,
references/rename.py, references/store/previous_root.py, references/store/stored_sources.py
"""

from __future__ import annotations

import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from insitu.errors import FormatError, InsituError, ModelError, SourceError, StaleSourceError, UnsupportedError
from insitu.maintenance import append_tree as append
from insitu.model import (
    ABSENT,
    INLINE,
    Absent,
    Axis,
    ChunkLocations,
    Codec,
    Columns,
    Encoding,
    GroupDetails,
    Packing,
    PackingKind,
    Packings,
    Source,
    Tile,
    Unwritten,
    VirtualArray,
    VirtualGroup,
    concatenate,
    scatter,
)
from insitu.references import open_references, save, with_renamed_sources
from insitu.references.store import NAME, open_store, pools, previous_root, store_writer
from mosaics import Case, evaluate, mosaics


def open_saved(path: Path) -> VirtualGroup:
    group = open_references(str(path))
    assert group is not None
    return group


def make_month(number: int, days: int = 31) -> VirtualArray:
    """Daily maps in chunks of ten days: a partial last chunk, and a packing of its own."""
    axes = (Axis.regular(days, 10), Axis.regular(4, 2))
    grid = tuple(axis.count for axis in axes)
    offset = 4096 + 100 * np.arange(grid[0] * grid[1]).reshape(grid)
    table = Columns(
        grid, (Source(f"s3://b/{number:04}.nc", 10**6, f"e{number}", 1.5),), np.asarray(0), offset, offset % 7 + 50
    )
    kind = PackingKind(dtype="float32", scale_dtype="float64")
    packings = Packings.of([Packing(scale=0.5 + number, missing=(np.int16(-number), np.int16(3)), kind=kind)])
    encoding = Encoding(
        np.dtype("<i2"), (Codec("shuffle", {"elementsize": 2}), Codec("zlib", {"level": number % 9})), None, b"\1\0"
    )
    tile = Tile(axes, (encoding,), table, packings)
    return VirtualArray.of(
        tile, dims=("time", "lat"), attributes={"units": "K", "n": np.float32(1.5)}, fill_value=np.nan
    )


def columns(array: VirtualArray) -> list[tuple[Any, ...]]:
    """Everything that a table says, for comparison."""
    rows = []
    for tile in array.tiles:
        table = tile.chunks
        total = int(np.prod(table.shape))
        found = table.locate(list(np.unravel_index(np.arange(total), table.shape)))
        for i in range(total):
            source = int(found.source[i])
            where = table.sources[source] if source >= 0 else source
            span = (int(found.offset[i]), int(found.length[i]))
            data = found.inline[span[0] : sum(span)] if source == INLINE else span if source >= 0 else None
            rows.append((where, data, int(found.filter_mask[i]), tile.encodings[int(found.encoding[i])],
                         tile.packings[int(found.packing[i])]))  # fmt: skip
    return rows


def assert_same_chunks(one: VirtualArray, other: VirtualArray) -> None:
    assert (one.shape, one.dtype, one.dims) == (other.shape, other.dtype, other.dims)
    assert dict(one.attributes) == dict(other.attributes)
    assert len(one.tiles) == len(other.tiles)
    assert np.array_equal(one.origins, other.origins)
    for a, b in zip(one.tiles, other.tiles, strict=True):
        assert a.axes == b.axes
        assert a.dimensions == b.dimensions
    assert columns(one) == columns(other)


@settings(max_examples=30)
@given(mosaics())
def test_every_mosaic_comes_back(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    target = tmp_path_factory.mktemp("s") / "x.insitu"
    save(with_renamed_sources(VirtualGroup({"a": case.array}), lambda url: f"s3://{url}"), target)
    disk = {f"s3://{url}": data for url, data in case.disk.items()}
    back = open_saved(target).arrays["a"]
    np.testing.assert_array_equal(evaluate(back, disk), case.values)
    assert back.dims == case.array.dims
    again = pickle.loads(pickle.dumps(back))
    np.testing.assert_array_equal(evaluate(again, disk), case.values)


def test_everything_else_comes_back(tmp_path: Path) -> None:
    whole = concatenate([make_month(n, days) for n, days in enumerate((31, 28, 31, 30))], "time")
    assert len(whole.tiles) == 1
    attributes = {"a": np.arange(3, dtype=">i2"), "b": b"\xff", "c": float("nan"), "d": ["x", 1], "$": {"$e": (1, 2)}}
    details = GroupDetails(dims={"time": 31})
    sub = VirtualGroup({"x": make_month(9)}, attributes={"deep": True}, details=details, problems={"y": "no"})
    save(VirtualGroup({"tas": whole}, {"sub": sub}, attributes, GroupDetails(format="hdf5")), tmp_path / "x.insitu")
    back = open_saved(tmp_path / "x.insitu")
    assert_same_chunks(back.arrays["tas"], whole)
    assert_same_chunks(back.groups["sub"].arrays["x"], make_month(9))
    assert back.groups["sub"].problems == {"y": "no"}
    assert back.groups["sub"].details == GroupDetails(dims={"time": 31})
    assert repr(dict(back.attributes)) == repr(attributes)
    assert back.details == GroupDetails(format="hdf5")


@pytest.mark.parametrize("dtype", ["S1", "S3", "<f4", ">i2", "M8[ns]", "?", [("a", "<i4"), ("b", "S2")]])
def test_fill_values_come_back(tmp_path: Path, dtype: Any) -> None:
    tile = Tile((Axis.regular(4, 2),), (Encoding(np.dtype(dtype)),), Columns.of_unwritten((2,)))
    fill = np.zeros((), dtype)[()]
    save(
        VirtualGroup({"a": VirtualArray.of(tile, dims=("x",), attributes={"f": fill}, fill_value=fill)}),
        tmp_path / "x.insitu",
    )
    back = open_saved(tmp_path / "x.insitu").array("a")
    assert back.fill_value == fill
    assert back.attributes["f"] == fill
    assert type(back.fill_value) is type(fill)


def test_a_sparse_grid_stays_sparse(tmp_path: Path) -> None:
    shape = (10**6, 10**6)
    index = np.array([[5, 7], [0, 3], [999_999, 0]])
    table = scatter(shape, (Source("/a.nc"),), index, [10, 20, 30], [1, 2, 3], [0, 1, 0])
    array = VirtualArray.of(Tile((Axis.regular(10**6, 1),) * 2, (Encoding(np.dtype("u1")),), table), dims=("y", "x"))
    save(VirtualGroup({"a": array, "b": make_month(1), "c": array}), tmp_path / "x.insitu")
    for name in "ac":
        back = open_saved(tmp_path / "x.insitu").arrays[name].tiles[0].chunks
        assert back[5, 7] == table[5, 7]
        assert back[999_999, 0] == table[999_999, 0]
        assert back[0, 3].filter_mask == 1
        assert back[1, 1] == Unwritten()


def named_files(target: Path) -> set[str]:
    """The files that the root and the one before it name."""
    roots = [target / NAME, *target.glob("previous-*.json")]
    assert len(roots) <= 2
    return set().union(*(store_writer._file_names(json.loads(path.read_text())) for path in roots))


def test_append_adds_parts_and_reads_nothing_old(tmp_path: Path) -> None:
    target = tmp_path / "x.insitu"
    months = [make_month(n, 28 + n % 4) for n in range(12)]
    save(VirtualGroup({"tas": concatenate(months[:3], "time"), "map": make_month(99)[0]}), target)
    chunks = {path.name: path.read_bytes() for path in target.glob("chunks-*")}
    for n in range(3, 9):  # later ones merge small files: tests/maintenance/test_compacting.py
        append(VirtualGroup({"tas": months[n]}), target, "time")
    assert_same_chunks(open_saved(target).arrays["tas"], concatenate(months[:9], "time"))
    assert_same_chunks(open_saved(target).arrays["map"], make_month(99)[0])
    for name, data in chunks.items():
        assert (target / name).read_bytes() == data
    tables = json.loads((target / NAME).read_text())["tree"]["arrays"]["tas"]["tiles"][0]["chunks"]
    assert [table["kind"] for table in tables["tables"]] == ["rows"] * 7
    assert {path.name for path in target.glob("*.parquet")} == named_files(target)


def test_append_is_what_combining_gives(tmp_path: Path) -> None:
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"tas": make_month(0)}), target)
    append(VirtualGroup({"tas": make_month(1).transpose(1, 0)}), target, "time")
    assert_same_chunks(open_saved(target).arrays["tas"], concatenate([make_month(0), make_month(1)], "time"))
    append(VirtualGroup({"pr": make_month(2)}), target, "time")
    assert {name: array.shape for name, array in open_saved(target).arrays.items()} == {"tas": (93, 4), "pr": (93, 4)}
    assert isinstance(open_saved(target).arrays["pr"].tiles[0].chunks[0, 0], Absent)


def test_append_refuses_what_does_not_fit(tmp_path: Path) -> None:
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"tas": make_month(0)}), target)
    before = (target / NAME).read_bytes()
    with pytest.raises(ModelError, match="no dimension 'time'"):
        append(VirtualGroup({"tas": make_month(1)[0]}), target, "time")
    with pytest.raises(UnsupportedError, match="insitu store"):
        append(VirtualGroup({"tas": make_month(1)}), tmp_path / "x.json", "time")
    assert (target / NAME).read_bytes() == before


def test_two_writers_one_wins_the_other_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"tas": make_month(0)}), target)
    original = store_writer._StoreWriter._document

    def slow(self: Any, *given: Any) -> dict[str, Any]:
        document = original(self, *given)
        monkeypatch.setattr(store_writer._StoreWriter, "_document", original)
        append(VirtualGroup({"tas": make_month(1)}), target, "time")  # the other writer is faster
        return document

    monkeypatch.setattr(store_writer._StoreWriter, "_document", slow)
    with pytest.raises(SourceError, match="another writer"):
        append(VirtualGroup({"tas": make_month(2)}), target, "time")
    assert_same_chunks(open_saved(target).arrays["tas"], concatenate([make_month(0), make_month(1)], "time"))
    assert {path.name for path in target.glob("*.parquet")} == named_files(target)


def test_a_crash_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"tas": make_month(0)}), target)
    for step in ("packing_document", "source_columns", "axis_columns", "axis", "source"):
        with monkeypatch.context() as patch:
            patch.setattr(pools.Pools, step, _die)
            with pytest.raises(KeyboardInterrupt):
                save(VirtualGroup({"tas": concatenate([make_month(1), make_month(2)], "time")}), target)
        assert_same_chunks(open_saved(target).arrays["tas"], make_month(0))
    assert not list(target.glob("*.tmp"))


def _die(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_a_reader_of_a_replaced_store_is_told(tmp_path: Path) -> None:
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"tas": make_month(0)}), target)
    old, other = open_saved(target), open_saved(target)
    save(VirtualGroup({"tas": make_month(1)}), target)
    columns(other.arrays["tas"])  # the previous state is kept
    save(VirtualGroup({"tas": make_month(2)}), target)
    with pytest.raises(StaleSourceError, match="written anew"):
        columns(old.arrays["tas"])
    with pytest.raises(InsituError, match="already"):
        save(VirtualGroup({"tas": make_month(1)}), target, mode="x")


class Computed:
    """A table of any size that takes no memory."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.sources = tuple(Source(f"https://data.example.org/archive/v1/file-{n:05}.nc", 1, "e") for n in range(1000))

    def locate(self, cells: Any) -> ChunkLocations:
        number = np.ravel_multi_index(tuple(np.broadcast_arrays(*cells)), self.shape).reshape(-1)
        per = -(-int(np.prod(self.shape)) // 1000)
        rest = number % per
        noise = (number.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        noise = (noise ^ (noise >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        noise = ((noise ^ (noise >> np.uint64(32))) % np.uint64(2**31)).astype(np.int64)
        zero = np.zeros(len(number), np.int64)
        return ChunkLocations(
            number // per, 8192 + rest * 700_000 + noise % 50_000, 600_000 + noise % 90_000, zero, zero, zero, b""
        )


def test_a_million_chunks_take_six_bytes_each(tmp_path: Path) -> None:
    axes = (Axis.regular(10_000, 1), Axis.regular(100, 1))
    array = VirtualArray.of(Tile(axes, (Encoding(np.dtype("f4")),), Computed((10_000, 100))), dims=("t", "x"))
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"a": array}), target)
    size = sum(path.stat().st_size for path in target.iterdir())
    assert size / 1_000_000 <= 6
    back = open_saved(target).arrays["a"].tiles[0].chunks
    state = back[9_999, 99]
    assert state.source.url.endswith("file-00999.nc")
    cell = [np.array([7777]), np.array([13])]
    assert back.locate(cell).offset == array.tiles[0].chunks.locate(cell).offset
    # One chunk loads one group of rows.
    store = open_store(str(target))
    store.group().arrays["a"].tiles[0].chunks[5000, 50]
    assert len(store.pages) == 1
    # And anybody can query it.
    table = pq.read_table(next(target.glob("chunks-*")), filters=[("cell", "==", 777_713)])
    assert table.to_pylist()[0]["offset"] == int(back.locate(cell).offset[0])


def test_a_store_is_written_in_bounded_memory(tmp_path: Path) -> None:
    """Ten times as many chunks take no more memory: rows go out group by group."""
    peaks = []
    for rows in (300, 3000):
        axes = (Axis.regular(rows, 1), Axis.regular(1000, 1))
        array = VirtualArray.of(Tile(axes, (Encoding(np.dtype("f4")),), Computed((rows, 1000))), dims=("t", "x"))
        pool = pa.system_memory_pool()
        before = pa.default_memory_pool()
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            save(VirtualGroup({"a": array}), tmp_path / f"{rows}.insitu")
            peaks.append((tracemalloc.get_traced_memory()[1], pa.total_allocated_bytes()))
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(before)
    assert peaks[1][0] < 1.5 * peaks[0][0] + (4 << 20)
    assert peaks[1][0] < 64 << 20  # the columns alone would be twice that
    assert peaks[1][1] < 16 << 20


DAMAGE = {
    "no JSON": lambda d: "{",
    "another format": lambda d: json.dumps({**d, "format": "x"}),
    "no tree": lambda d: json.dumps({k: v for k, v in d.items() if k != "tree"}),
    "part outside": lambda d: json.dumps({**d, "chunks": [{**d["chunks"][0], "file": "../../etc/passwd"}]}),
    "rows missing": lambda d: json.dumps({**d, "chunks": [{**d["chunks"][0], "rows": 1}]}),
    "no parts": lambda d: json.dumps({**d, "chunks": []}),
    "negative": lambda d: json.dumps({**d, "chunks": [{**d["chunks"][0], "bytes": -5}]}),
    "encodings": lambda d: json.dumps({**d, "encodings": []}),
    "types": lambda d: json.dumps({**d, "encodings": [{**d["encodings"][0], "dtype": "nope"}]}),
    "tiles": lambda d: json.dumps({**d, "tree": {"arrays": {"tas": {**d["tree"]["arrays"]["tas"], "tiles": [1]}}}}),
    "a list": lambda d: "[]",
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_roots(tmp_path: Path, case: str) -> None:
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"tas": make_month(0)}), target)
    path = target / NAME
    path.write_text(DAMAGE[case](json.loads(path.read_text())))
    with pytest.raises(FormatError) as caught:
        open_saved(target)
    assert str(target) in str(caught.value)


def test_newer_versions_and_damaged_parts(tmp_path: Path) -> None:
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"tas": make_month(0)}), target)
    part = next(target.glob("chunks-*"))
    good = part.read_bytes()
    right = columns(make_month(0))
    refused = 0
    for at in range(4, len(good), 7):
        part.write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
        try:
            assert columns(open_saved(target).arrays["tas"]) == right
        except InsituError:
            refused += 1
    assert refused > 10
    part.write_bytes(good[:-20])
    with pytest.raises(InsituError, match="cut short"):
        columns(open_saved(target).arrays["tas"])
    root = json.loads((target / NAME).read_text())
    (target / NAME).write_text(json.dumps({**root, "version": 99}))
    with pytest.raises(UnsupportedError, match="version"):
        open_saved(target)


def test_renamed_sources(tmp_path: Path) -> None:
    group = VirtualGroup({"tas": concatenate([make_month(0), make_month(1)], "time")})
    save(group, tmp_path / "x.insitu")
    stored = open_saved(tmp_path / "x.insitu")
    for tree in (group, stored):
        for how in (
            {"s3://b/": "/data/", "s3://": "x"},
            (r"^s3://b/(\d+)", r"/data/\1"),
            lambda url: url.replace("s3://b", "/data"),
        ):
            found = with_renamed_sources(tree, how).arrays["tas"]
            urls = {row[0].url for row in columns(found)}
            assert urls == {"/data/0000.nc", "/data/0001.nc"}
    with pytest.raises(ModelError):
        with_renamed_sources(group, lambda url: "")
    save(with_renamed_sources(stored, {"s3://b/": "/data/"}), tmp_path / "y.insitu")
    assert {row[0].url for row in columns(open_saved(tmp_path / "y.insitu").arrays["tas"])} == {
        "/data/0000.nc",
        "/data/0001.nc",
    }


def test_absent_and_a_selection_of_a_store(tmp_path: Path) -> None:
    save(VirtualGroup({"tas": concatenate([make_month(0), make_month(1)], "time")}), tmp_path / "x.insitu")
    lazy = open_saved(tmp_path / "x.insitu").arrays["tas"]
    eager = concatenate([make_month(0), make_month(1)], "time")
    for pick in (lambda a: a.take(0, [40, -1, 3, 5]), lambda a: a[35:3:-2], lambda a: a[7].expand_dims(1, "k")):
        save(VirtualGroup({"tas": pick(lazy)}), tmp_path / "y.insitu")
        back = open_saved(tmp_path / "y.insitu").arrays["tas"]
        assert columns(back) == columns(pick(eager))
    assert any(row[0] == ABSENT for row in columns(open_saved(tmp_path / "x.insitu").arrays["tas"].take(0, [-1, 2])))


def test_rollback_of_a_store_of_earlier_writers(tmp_path: Path) -> None:
    target = tmp_path / "x.insitu"
    save(VirtualGroup({"tas": make_month(0)}), target)
    append(VirtualGroup({"tas": make_month(1)}), target, "time")
    (previous,) = target.glob("previous-*.json")
    earlier = previous.rename(target / "previous-root.json")
    previous_root.restore_previous(str(target))
    assert_same_chunks(open_saved(target).arrays["tas"], make_month(0))
    assert not earlier.exists()
    previous_root.restore_previous(str(target))
    assert_same_chunks(open_saved(target).arrays["tas"], concatenate([make_month(0), make_month(1)], "time"))
    (previous,) = target.glob("previous-*.json")
    previous.unlink()
    earlier.write_bytes((target / NAME).read_bytes())  # what a killed rollback left
    with pytest.raises(UnsupportedError, match="cannot roll back"):
        previous_root.restore_previous(str(target))
