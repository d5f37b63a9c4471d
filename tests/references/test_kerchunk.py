"""kerchunk JSON, kerchunk Parquet and flat tables: round trips, and errors that name what is wrong.

Modules: maintenance/saving.py, references/open_and_save.py, references/url_pool.py, references/zarr_blocks.py
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import insitu
from insitu.errors import AccessError, FormatError, InsituError, UnsupportedError
from insitu.maintenance import convert
from insitu.model import Inline, Source, Stored, Unwritten, VirtualArray, VirtualGroup, concatenate
from insitu.reading import read_array
from insitu.references import open_references, save, with_renamed_sources
from mosaics import Case, evaluate, mosaics

FORMS: dict[str, dict[str, Any]] = {
    "x.json": {}, "x3.json": {"zarr_format": 3}, "x.json.zst": {}, "x.json.gz": {},
    "inline.json": {"inline_threshold": 200}, "x.parq": {"record_size": 7}, "whole.parq": {},
    "inline.parq": {"inline_threshold": 200}, "x.parquet": {}, "relative.json": {"relative": True}, "x.insitu": {},
}  # fmt: skip


def open_saved(path: Path | str, **options: Any) -> VirtualGroup:
    group = open_references(str(path), **options)
    assert group is not None
    return group


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with compressed, plain, scalar, sparse, big-endian and text variables, and a group."""
    path = tmp_path_factory.mktemp("archive") / "a.h5"
    random = np.random.default_rng(3)
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "t"
        a = file.create_dataset(
            "a", data=random.random((20, 7, 9)).astype("f4"), chunks=(3, 4, 9), compression=4, shuffle=True
        )
        a.attrs["units"] = "K"
        a.attrs["range"] = np.array([1, 2], "i2")
        file.create_dataset("b", data=random.integers(0, 9, (11, 5)).astype(">i4"))
        file.create_dataset("c", data=np.int16(7))
        sparse = file.create_dataset("d", (40, 4), "i4", chunks=(2, 2), fillvalue=-5, compression=1)
        sparse[3:5, 1] = 8
        masked = file.create_dataset("e", (6,), "f8", chunks=(2,), fillvalue=1e20)
        masked[:2] = [1, 2]
        masked.attrs["_FillValue"] = 1e20
        file.create_dataset("names", data=["x", "yé", ""], dtype=h5py.string_dtype())
        file.create_dataset("g/h/f", data=np.arange(6).reshape(2, 3), chunks=(1, 2), fletcher32=True)
    return path


def assert_same_tree(actual: VirtualGroup, wanted: VirtualGroup) -> None:
    assert [path for path, _ in actual.all_arrays()] == [path for path, _ in wanted.all_arrays()]
    assert {k: np.asarray(v).tolist() for k, v in actual.attributes.items()} == {
        k: np.asarray(v).tolist() for k, v in wanted.attributes.items()
    }
    for path, array in wanted.all_arrays():
        found = actual.array(path)
        assert found.shape == array.shape
        one, other = read_array(found), read_array(array)
        texts = {one.dtype.kind, other.dtype.kind} <= set(
            "OU"
        )  # xarray shows texts of HDF5 as U, and those of Zarr as objects
        assert texts or one.dtype.newbyteorder("=") == other.dtype.newbyteorder("=")
        assert repr(one.tolist()) == repr(other.tolist()), path
        for name, value in array.attributes.items():
            assert np.asarray(found.attributes[name]).tolist() == np.asarray(value).tolist()


@pytest.mark.parametrize("name", FORMS)
def test_round_trip(archive: Path, tmp_path: Path, name: str) -> None:
    group = insitu.scan(archive, decode=False)
    target = tmp_path / name
    save(group, target, **FORMS[name])
    assert_same_tree(open_saved(target), group)
    decoded = group if target.suffix == ".insitu" else insitu.scan(archive)
    # … and from there into every other form.
    for other in ("y.json", "y.parq", "y.insitu", "y.parquet"):
        convert(str(target), str(tmp_path / other))
        # A store of ours holds values as they are meant; the others hold stored ones, and
        # attributes that say how they are meant.
        assert_same_tree(open_saved(tmp_path / other), decoded if other == "y.insitu" else group)


def test_states_and_tables(archive: Path, tmp_path: Path) -> None:
    group = insitu.scan(archive, decode=False)
    save(group, tmp_path / "x.json")
    save(group, tmp_path / "x.parq", record_size=3)
    for target in ("x.json", "x.parq"):
        back = open_saved(tmp_path / target)
        for path in ("a", "b", "c", "g/h/f"):
            actual, reference = back.array(path).tiles[0].chunks, group.array(path).tiles[0].chunks
            for cell in np.ndindex(*reference.shape):
                one, other = actual[cell], reference[cell]
                assert isinstance(one, Stored)
                assert isinstance(other, Stored)
                assert (one.source.url, one.offset, one.length) == (other.source.url, other.offset, other.length)
        assert back.array("e").tiles[0].chunks[1] == Unwritten()


def test_portable_archives(archive: Path, tmp_path: Path) -> None:
    home = tmp_path / "one" / "data"
    home.mkdir(parents=True)
    (home / "a.h5").write_bytes(archive.read_bytes())
    group = insitu.scan(home / "a.h5", decode=False)
    for name in ("x.json", "x.parq", "x.insitu", "x.parquet"):
        save(group, tmp_path / "one" / name, relative=True)
    (tmp_path / "one").rename(tmp_path / "two")
    expected = insitu.scan(tmp_path / "two" / "data" / "a.h5", decode=False)
    for name in ("x.json", "x.parq", "x.insitu", "x.parquet"):
        assert_same_tree(open_saved(tmp_path / "two" / name), expected)


@settings(max_examples=30)
@given(case=mosaics())
def test_a_mosaic_is_said_right_or_refused(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    group = with_renamed_sources(VirtualGroup({"a": case.array}), lambda url: f"s3://{url}")
    disk = {f"s3://{url}": data for url, data in case.disk.items()}
    folder = tmp_path_factory.mktemp("m")
    for name, options in (("x.json", {}), ("x.parq", {"record_size": 5}), ("y.json", {"zarr_format": 3})):
        try:
            save(group, folder / name, **options)
        except UnsupportedError as problem:
            refused = str(problem)
        else:
            refused = ""
        if refused:
            assert "a: " in refused
            assert ".insitu" in refused
            assert not (folder / name).exists()
            continue
        back = open_saved(folder / name).arrays["a"]
        np.testing.assert_array_equal(evaluate(back, disk), case.values)


def test_refusals_name_variables_files_and_a_way_out(tmp_path: Path) -> None:
    files = []
    for number, options in enumerate([{"compression": 1}, {"compression": 9}, {"compression": "lzf"}]):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("t", data=np.arange(20).reshape(10, 2) + number, chunks=(5, 2), **options)
        files.append(insitu.scan(tmp_path / f"{number}.h5", decode=False).array("t"))
    # Another level of compression decodes the same, so Zarr can say it.
    fine = concatenate(files[:2], 0)
    save(VirtualGroup({"t": fine}), tmp_path / "x.json")
    assert read_array(open_saved(tmp_path / "x.json").arrays["t"]).tolist() == read_array(fine).tolist()
    with pytest.raises(UnsupportedError) as caught:
        save(VirtualGroup({"t": concatenate(files, 0), "ok": fine}), tmp_path / "y.json")
    message = str(caught.value)
    assert "t: " in message
    assert "ok: " not in message
    assert str(tmp_path / "2.h5") in message
    assert "lzf" in message
    assert "*.insitu" in message
    assert not (tmp_path / "y.json").exists()
    with pytest.raises(UnsupportedError, match="cuts through chunks"):
        save(VirtualGroup({"t": fine[3:]}), tmp_path / "y.parq")
    with pytest.raises(UnsupportedError, match="not the last"):
        save(VirtualGroup({"t": concatenate([fine[:4], fine[5:]], 0)}), tmp_path / "y.parq")


def reference(**keys: Any) -> dict[str, Any]:
    array = {
        "zarr_format": 2,
        "shape": [4],
        "chunks": [2],
        "dtype": "<i2",
        "fill_value": -1,
        "order": "C",
        "filters": None,
        "compressor": None,
    }
    return {
        ".zgroup": '{"zarr_format": 2}',
        "a/.zarray": json.dumps(array),
        "a/.zattrs": {"_ARRAY_DIMENSIONS": ["x"]},
        **keys,
    }


def write_json(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "refs.json"
    path.write_text(json.dumps(document))
    return path


def test_every_way_to_write_a_reference(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(np.array([9, 1, 2], "<i2").tobytes())
    (tmp_path / "whole.bin").write_bytes(np.array([3, 4], "<i2").tobytes())
    text = np.array([0x4142, 0x4344], "<i2").tobytes()
    for first, second, expected in (
        (["data.bin", 2, 4], ["whole.bin"], [1, 2, 3, 4]),
        (text.decode(), "base64:" + base64.b64encode(b"\5\0\6\0").decode(), [0x4142, 0x4344, 5, 6]),
        (["data.bin", 2, 4], None, [1, 2, -1, -1]),
    ):
        refs = reference(**{"a/0": first, "a/1": second})
        for document in (refs, {"version": 1, "refs": refs}):
            group = open_saved(write_json(tmp_path, document))
            assert read_array(group.arrays["a"]).tolist() == expected
    templated = {
        "version": 1,
        "templates": {"u": "data.bin", "f": "{{n}}.bin"},
        "refs": reference(**{"a/0": ["{{u}}", 2, 4], "a/1": ["{{f(n='whole')}}"]}),
    }
    assert read_array(open_saved(write_json(tmp_path, templated)).arrays["a"]).tolist() == [1, 2, 3, 4]
    gen = {"key": "a/{{i}}", "url": "{{u}}", "offset": "{{i * 2}}", "length": "4", "dimensions": {"i": {"stop": 2}}}
    generated = {"version": 1, "templates": {"u": "data.bin"}, "gen": [gen], "refs": reference()}
    assert read_array(open_saved(write_json(tmp_path, generated)).arrays["a"]).tolist() == [9, 1, 1, 2]
    unnamed = reference(**{"a/0": [None, 2, 4]})
    group = open_saved(write_json(tmp_path, unnamed), target=str(tmp_path / "data.bin"))
    assert read_array(group.arrays["a"]).tolist() == [1, 2, -1, -1]
    (tmp_path / "refs.json").write_bytes(gzip.compress(json.dumps(reference(**{"a/1": ["whole.bin"]})).encode()))
    assert read_array(open_saved(tmp_path / "refs.json").arrays["a"]).tolist() == [-1, -1, 3, 4]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "negative offset": ({"a/1": ["x", -1, 4]}, "a/1"),
    "negative length": ({"a/0": ["x", 1, 2], "a/1": ["x", 1, -4]}, "a/1"),
    "a number too large": ({"a/1": ["x", 2**64, 4]}, "a/1"),
    "text for a number": ({"a/1": ["x", "1", 4]}, "a/1"),
    "a fraction": ({"a/1": ["x", 1.5, 4]}, "a/1"),
    "true for a number": ({"a/1": ["x", True, 4]}, "a/1"),
    "two items": ({"a/1": ["x", 1]}, "a/1"),
    "an empty list": ({"a/1": []}, "a/1"),
    "a number": ({"a/1": 7}, "a/1"),
    "no URL": ({"a/1": [None, 1, 2]}, "a/1"),
    "URL of another type": ({"a/1": [[], 1, 2]}, "a/1"),
    "empty URL": ({"a/1": ["", 1, 2]}, "a/1"),
    "outside of the grid": ({"a/2": ["x", 1, 2]}, "a/2"),
    "of another rank": ({"a/0.0": ["x", 1, 2]}, "a/0.0"),
    "no key": ({"a/x": ["x", 1, 2]}, "a/x"),
    "bad base64": ({"a/1": "base64:%%"}, "a/1"),
    "base64 that is not ASCII": ({"a/1": "base64:é"}, "a/1"),
    "text that is not Unicode": ({"a/1": "\ud800"}, "a/1"),
    "bad template": ({"a/1": ["{{nope}}", 1, 2]}, "a/1"),
    "bad metadata": ({"a/.zarray": "{"}, "a/.zarray"),
    "metadata elsewhere": ({"a/.zarray": ["x", 1, 2]}, "a/.zarray"),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_references(tmp_path: Path, case: str) -> None:
    keys, named = BAD[case]
    with pytest.raises(FormatError) as caught:
        open_saved(write_json(tmp_path, {"version": 1, "refs": reference(**keys)}))
    assert named in str(caught.value)
    assert "refs.json" in str(caught.value)


def test_what_is_no_set_of_references(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(FormatError, match="JSON"):
        open_references(str(tmp_path / "x.json"))
    (tmp_path / "x.json").write_text('{"some": "thing"}')
    assert open_references(str(tmp_path / "x.json")) is None
    assert open_references(str(tmp_path / "nowhere.nc")) is None
    (tmp_path / "x.json").write_text('{"version": 7, "refs": {}}')
    with pytest.raises(UnsupportedError, match="version"):
        open_references(str(tmp_path / "x.json"))
    with pytest.raises(UnsupportedError, match="cannot tell the format"):
        save(VirtualGroup({}), tmp_path / "x.nc")


def test_a_range_past_the_end_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"12")
    group = open_saved(write_json(tmp_path, reference(**{"a/0": ["data.bin", 0, 4]})))
    with pytest.raises(InsituError, match=r"data\.bin"):
        read_array(group.arrays["a"])


def test_zarr_v3_in_references_with_a_shard(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(tmp_path / "s", shape=(8,), chunks=(2,), shards=(4,), dtype="i4", fill_value=7)
    array[:2] = [1, 2]
    refs = {
        "zarr.json": {"zarr_format": 3, "node_type": "group"},
        "a/zarr.json": (tmp_path / "s" / "zarr.json").read_text(),
        "a/c/0": ["s/c/0"],
    }
    group = open_saved(write_json(tmp_path, refs))
    assert read_array(group.arrays["a"]).tolist() == [1, 2, 7, 7, 7, 7, 7, 7]


# Parquet directories


def directory(tmp_path: Path, tables: dict[str, Any], record_size: int = 3, shape: int = 8) -> Path:
    root = tmp_path / "x.parq"
    (root / "g" / "a").mkdir(parents=True)
    array = {
        "zarr_format": 2,
        "shape": [shape],
        "chunks": [2],
        "dtype": "<i2",
        "fill_value": -1,
        "order": "C",
        "filters": None,
        "compressor": None,
    }
    documents = {
        ".zgroup": {"zarr_format": 2},
        "g/.zgroup": {"zarr_format": 2},
        "g/a/.zarray": array,
        "g/a/.zattrs": {},
    }
    (root / ".zmetadata").write_text(json.dumps({"metadata": documents, "record_size": record_size}))
    for name, table in tables.items():
        pq.write_table(pa.table(table), root / "g" / "a" / name)
    (tmp_path / "data.bin").write_bytes(np.arange(8, dtype="<i2").tobytes())
    return root


def test_parquet_as_it_is_met(tmp_path: Path) -> None:
    url = str(tmp_path / "data.bin")
    root = directory(
        tmp_path,
        {
            # All columns; a dictionary; a missing row; an inline one.
            "refs.0.parq": {
                "path": pa.array([url, None, None]).dictionary_encode(), "offset": [0, 0, 0], "size": [4, 0, 0],
                "raw": pa.array([None, None, b"\7\0\10\0"], pa.binary()),
            },
            # No inline data at all: three columns; the whole file.
            "refs.1.parq": {"path": [url, None, None], "offset": [12, 0, 0], "size": [4, 0, 0]},
        },
    )  # fmt: skip
    array = open_saved(root).array("g/a")
    assert read_array(array).tolist() == [0, 1, -1, -1, 7, 8, 6, 7]
    assert isinstance(array.tiles[0].chunks[2], Inline)
    assert read_array(array, np.s_[5]) == 8


def test_parquet_of_inline_data_only_and_floats_for_nothing(tmp_path: Path) -> None:
    nothing = pa.array([float("nan")] * 3)
    root = directory(
        tmp_path,
        {
            "refs.0.parq": {"raw": [b"\1\0\2\0", b"\3\0\4\0", b"\5\0\6\0"]},
            "refs.1.parq": {"path": nothing, "offset": [0, 0, 0], "size": [0, 0, 0], "raw": nothing},
        },
    )
    assert read_array(open_saved(root).array("g/a")).tolist() == [1, 2, 3, 4, 5, 6, -1, -1]


def test_parquet_rows_are_read_when_needed(tmp_path: Path) -> None:
    root = directory(tmp_path, {"refs.0.parq": {"raw": [b"\1\0\2\0", b"\3\0\4\0", b"\5\0\6\0"]}})
    array = open_saved(root).array("g/a")
    assert read_array(array, np.s_[:6]).tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(FormatError, match=r"refs\.1\.parq"):
        read_array(array)
    assert read_array(open_saved(root, missing="unwritten").array("g/a")).tolist() == [1, 2, 3, 4, 5, 6, -1, -1]


@pytest.mark.parametrize(
    "table",
    [
        {"path": ["x"] * 3, "offset": [-1, 0, 0], "size": [4, 4, 4]},
        {"path": ["x"] * 3, "offset": [1, 0, 0], "size": [-4, 4, 4]},
        {"path": ["x"] * 3, "offset": ["a", "b", "c"], "size": [1, 1, 1]},
        {"path": [1, 2, 3], "offset": [0, 0, 0], "size": [1, 1, 1]},
        {"path": ["x"], "offset": [0], "size": [1]},
        {"raw": [1, 2, 3]},
        # Places without a file: no column of paths, none that is not null, one row of several.
        {"offset": [0, 4, 8], "size": [4, 4, 4]},
        {"offset": [0, 0, 0], "size": [0, 0, 0]},
        {"offset": [0, 4, 8], "size": [4, 4, 4], "raw": pa.array([None, None, b"ab"], pa.binary())},
        {"path": pa.nulls(3, pa.string()), "offset": [0, 4, 8], "size": [4, 4, 4]},
        {"path": pa.array([float("nan")] * 3), "offset": [0, 4, 8], "size": [4, 4, 4]},
        {"path": pa.array([1.5] * 3), "offset": [0, 0, 0], "size": [0, 0, 0]},
        {"path": ["", "", ""], "offset": [0, 4, 8], "size": [4, 4, 4]},
        {"path": ["x", None, "x"], "offset": [0, 4, 8], "size": [4, 4, 4]},
    ],
)
def test_malformed_rows(tmp_path: Path, table: dict[str, Any]) -> None:
    root = directory(tmp_path, {"refs.0.parq": table})
    with pytest.raises(FormatError, match=r"refs\.0\.parq"):
        read_array(open_saved(root).array("g/a"), np.s_[:6])


def test_malformed_directories(tmp_path: Path) -> None:
    root = directory(tmp_path, {})
    (root / "g" / "a" / "refs.0.parq").write_bytes(b"PAR1 no")
    with pytest.raises(FormatError, match=r"refs\.0\.parq"):
        read_array(open_saved(root).array("g/a"), np.s_[:2])
    for text in (
        "{",
        '{"record_size": 0, "metadata": {}}',
        '{"record_size": 10, "metadata": []}',
        '{"record_size": "x", "metadata": {}}',
        '{"record_size": 10, "metadata": {}}',
    ):
        (root / ".zmetadata").write_text(text)
        with pytest.raises(FormatError):
            open_references(str(root))


def test_flat_tables_with_other_names(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(np.arange(8, dtype="<i2").tobytes())
    refs = reference(**{"a/0": ["data.bin", 4, 4]})
    for names in (
        ("key", "url", "offset", "length"),
        ("path", "file", "start", "byte_length"),
        ("Name", "URI", "byte_offset", "Size"),
    ):
        rows: dict[str, list[Any]] = {name: [] for name in (*names, "value")}
        for key, value in refs.items():
            inline = None if isinstance(value, list) else value if isinstance(value, str) else json.dumps(value)
            for name, item in zip(
                (*names, "value"), [key, *(value if isinstance(value, list) else [None] * 3), inline], strict=True
            ):
                rows[name].append(item)
        pq.write_table(pa.table(rows), tmp_path / "flat.parquet")
        for url in (tmp_path / "flat.parquet", f"reference+parquet://{tmp_path / 'flat.parquet'}"):
            assert read_array(open_saved(url).arrays["a"]).tolist() == [2, 3, -1, -1]
    pq.write_table(pa.table({"x": [1]}), tmp_path / "flat.parquet")
    with pytest.raises(FormatError, match="does not hold kerchunk references"):
        open_references(str(tmp_path / "flat.parquet"))


@pytest.mark.parametrize(
    "table",
    [
        {"name": ["Alice", "Bob"], "value": [3, 4]},  # somebody's table, with columns of these names
        {"key": pa.array([], pa.string()), "url": pa.array([], pa.string())},
        {"key": ["a/0"], "url": ["data.bin"]},
    ],
)
def test_tables_that_hold_no_references(tmp_path: Path, table: dict[str, Any]) -> None:
    pq.write_table(pa.table(table), tmp_path / "flat.parquet")
    with pytest.raises(FormatError, match=r"no references.*flat\.parquet"):
        open_references(str(tmp_path / "flat.parquet"))


def test_json_that_holds_no_references(tmp_path: Path) -> None:
    for refs in ({}, {"a/0": ["data.bin"]}):
        (tmp_path / "x.json").write_text(json.dumps({"version": 1, "refs": refs}))
        with pytest.raises(FormatError, match=r"no references.*x\.json"):
            open_references(str(tmp_path / "x.json"))


def test_flat_rows_without_a_url(tmp_path: Path) -> None:
    refs = reference()
    rows = {"key": [*refs, "a/0"], "url": [None] * (len(refs) + 1), "offset": [None] * len(refs) + [4]}
    rows |= {"length": [None] * len(refs) + [4]}
    rows["raw"] = [value if isinstance(value, str) else json.dumps(value) for value in refs.values()] + [None]
    pq.write_table(pa.table(rows), tmp_path / "flat.parquet")
    with pytest.raises(FormatError, match=r"a/0.*no URL"):
        open_references(str(tmp_path / "flat.parquet"))


def test_zaro_names(archive: Path, tmp_path: Path) -> None:
    group = insitu.scan(archive, decode=False)
    save(group, tmp_path / "x.json")
    save(group, tmp_path / "x.parq")
    assert_same_tree(open_saved(f"reference+json://{tmp_path}/x.json"), group)
    assert_same_tree(open_saved(f"virtualizarr://{tmp_path}/x.parq"), group)


def test_remote_references_do_not_open_local_files(tmp_path: Path) -> None:
    from insitu.references.kerchunk.json import read_json
    from insitu.references.urls import UrlResolver

    refs = reference(**{"a/0": ["file:///etc/passwd", 0, 4]})
    with pytest.raises(AccessError, match="allow_local"):
        read_json(refs, UrlResolver("https://example.org/x.json"))
    assert isinstance(
        read_json(refs, UrlResolver("https://example.org/x.json", allow_local=True)).arrays["a"], VirtualArray
    )


def test_sources_know_only_what_they_are(tmp_path: Path) -> None:
    group = open_saved(write_json(tmp_path, reference(**{"a/0": ["data.bin", 0, 4]})))
    assert group.sources == (Source(str(tmp_path / "data.bin")),)
