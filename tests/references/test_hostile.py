"""Hostile references: whatever is changed in them, they read right or raise an error of ours that
says where.
"""

from __future__ import annotations

import copy
import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import insitu
from insitu.errors import FormatError, InsituError
from insitu.formats.scan_request import ScanRequest
from insitu.formats.zarr import open_zarr
from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray, VirtualGroup
from insitu.references import open_references, save

MODEST = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# What a stranger may put in the place of anything.
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**30, 1e308, 0.5]),
    st.text(max_size=5), st.sampled_from(["base64:", "{{a}}", "../x", "c", "<i2", "|O", "int8", "NaN", "0xff", "\x00"]),
    st.lists(st.integers(-2, 3), max_size=3),
    st.dictionaries(st.sampled_from(["name", "id", "a"]), st.integers(0, 1), max_size=2),
)  # fmt: skip


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a document."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def change_document(draw: Any, document: Any) -> Any:
    """The document with something else somewhere, or with something missing."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        every = list(places(document))
        if not every:
            break
        *above, last = draw(st.sampled_from(every))
        node = document
        for key in above:
            node = node[key]
        if draw(st.integers(0, 4)) == 0:
            del node[last]
        else:
            node[last] = draw(ODD)
    return document


def read_everything(group: VirtualGroup | None) -> None:
    """Locate every chunk of a tree and read its arrays."""
    if group is None:
        return
    for path, array in group.all_arrays():
        for tile in array.tiles:
            shape = tile.chunks.shape
            if 0 < int(np.prod(shape, dtype=object)) < 10_000:
                tile.chunks.locate(list(np.unravel_index(np.arange(int(np.prod(shape))), shape)) if shape else [])
        if array.nbytes < 1 << 20:
            insitu.read(group, path, decode=False)


def find_error(act: Any) -> InsituError | None:
    """Return the `InsituError` that a call raises; None if it raises nothing. Others propagate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            act()
        except InsituError as problem:
            return problem
    return None


def assert_readable_or_located_error(act: Any, message: str) -> None:
    """Check that an error, if there is one, names the file and the place in it, or the variable."""
    problem = find_error(act)
    if problem is not None:
        assert message in str(problem) or "variable" in problem.place, str(problem)
        assert {"structure", "variable", "offset"} & set(problem.place), str(problem)


V2 = {
    ".zgroup": {"zarr_format": 2},
    ".zattrs": {"title": "x"},
    "a/.zarray": {
        "zarr_format": 2, "shape": [5, 3], "chunks": [2, 3], "dtype": "<i2", "fill_value": -1, "order": "C",
        "filters": [{"id": "shuffle", "elementsize": 2}], "compressor": {"id": "zlib", "level": 1},
        "dimension_separator": ".",
    },
    "a/.zattrs": {"_ARRAY_DIMENSIONS": ["y", "x"]},
    "a/0.0": ["data.bin", 2, 4],
    "a/1.0": ["data.bin"],
    "a/2.0": "base64:AAAA",
}  # fmt: skip
V3 = {
    "zarr.json": {"zarr_format": 3, "node_type": "group", "attributes": {}},
    "a/zarr.json": {
        "zarr_format": 3, "node_type": "array", "shape": [5, 3], "data_type": "int16", "fill_value": -1,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "zstd", "configuration": {"level": 1, "checksum": False}},
        ],
        "dimension_names": ["y", "x"], "attributes": {},
    },
    "a/c/0/0": ["data.bin", 2, 4],
}  # fmt: skip
V1 = {
    "version": 1,
    "templates": {"u": "data.bin", "f": "{{c}}.bin"},
    "gen": [
        {
            "key": "a/{{i}}.0", "url": "{{f(c='data')}}", "offset": "{{i * 4}}", "length": "4",
            "dimensions": {"i": {"stop": 3}},
        }
    ],
    "refs": V2,
}  # fmt: skip


@MODEST
@given(data=st.data(), which=st.sampled_from(["v0", "v1", "v3"]))
def test_json(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, which: str) -> None:
    folder = tmp_path_factory.mktemp("s")
    (folder / "data.bin").write_bytes(bytes(40))
    (folder / "x.json").write_text(json.dumps(change_document(data.draw, {"v0": V2, "v1": V1, "v3": V3}[which])))
    assert_readable_or_located_error(lambda: read_everything(open_references(str(folder / "x.json"))), str(folder))


@MODEST
@given(text=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode), st.just(b"[" * 10_000)))
def test_what_is_not_even_json(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    folder = tmp_path_factory.mktemp("s")
    for name in ("x.json", "x.parquet"):
        (folder / name).write_bytes(text)
        assert_readable_or_located_error(
            lambda name=name: read_everything(open_references(str(folder / name))), str(folder)
        )


@MODEST
@given(data=st.data())
def test_zarr_documents(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("s") / "x.zarr"
    kind = data.draw(st.sampled_from(["v2", "v3", "sharded", "consolidated"]))
    given_ = {"shards": (4, 3)} if kind == "sharded" else {}
    group = zarr.create_group(folder, zarr_format=2 if kind == "v2" else 3)
    group.create_array("a", shape=(5, 3), chunks=(2, 3), dtype="i2", fill_value=-1, **given_)[:3] = 7
    if kind == "consolidated":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(folder)
    documents = [path for path in folder.rglob("*") if path.name in ("zarr.json", ".zarray", ".zgroup", ".zattrs")]
    path = data.draw(st.sampled_from(sorted(documents)))
    path.write_text(json.dumps(change_document(data.draw, json.loads(path.read_text()))))
    assert_readable_or_located_error(lambda: read_everything(open_zarr(str(folder), ScanRequest())), str(folder))


@pytest.fixture(scope="module")
def saved_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One tree in the forms that are folders or tables."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "data.bin").write_bytes(np.arange(30, dtype="<i2").tobytes())
    offset = np.arange(10).reshape(5, 2) * 6
    table = Columns((5, 2), (Source(str(folder / "data.bin"), 60),), np.asarray(0), offset, np.asarray(6))
    axes = (Axis.irregular([1, 2, 2, 2, 2], 0, 1, 3), Axis.regular(2, 1))
    mosaic = VirtualArray.of(Tile(axes, (Encoding(np.dtype("<i2")),), table), dims=("y", "x"))
    regular = VirtualArray.of(
        Tile((Axis.regular(15, 3), Axis.regular(2, 1)), (Encoding(np.dtype("<i2")),), table), dims=("z", "x")
    )
    save(VirtualGroup({"a": mosaic, "b": regular}), folder / "x.insitu")
    save(VirtualGroup({"b": regular}, attributes={"t": 1}), folder / "x.parq", record_size=4)
    save(VirtualGroup({"b": regular}), folder / "x.parquet")
    read_everything(open_references(str(folder / "x.insitu")))
    return folder


@MODEST
@given(data=st.data())
def test_roots_of_stores(saved_folder: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("s") / "x.insitu"
    shutil.copytree(saved_folder / "x.insitu", folder)
    root = folder / "root.json"
    root.write_text(json.dumps(change_document(data.draw, json.loads(root.read_text()))))
    assert_readable_or_located_error(lambda: read_everything(open_references(str(folder))), str(folder.parent))


@MODEST
@given(data=st.data(), form=st.sampled_from(["x.insitu", "x.parq", "x.parquet"]))
def test_damaged_files(
    saved_folder: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, form: str
) -> None:
    target = tmp_path_factory.mktemp("s") / form
    (shutil.copytree if (saved_folder / form).is_dir() else shutil.copy)(saved_folder / form, target)
    files = sorted(path for path in [target, *target.rglob("*")] if path.is_file())
    path = data.draw(st.sampled_from(files))
    content = bytearray(path.read_bytes())
    how = data.draw(st.sampled_from(["cut", "flip", "empty", "gone"]))
    if how == "gone" and form != "x.parquet":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    elif how == "flip" and content:
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
    else:
        path.write_bytes(b"")
    assert_readable_or_located_error(lambda: read_everything(open_references(str(target))), str(target.parent))


@MODEST
@given(data=st.data())
def test_rows_of_parquet_directories(
    saved_folder: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    target = tmp_path_factory.mktemp("s") / "x.parq"
    shutil.copytree(saved_folder / "x.parq", target)
    path = target / "b" / "refs.0.parq"
    table = pq.read_table(path).to_pydict()
    name = data.draw(st.sampled_from(sorted(table)))
    kinds = [
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4, max_size=4),
        st.lists(st.floats(), min_size=4, max_size=4),
        st.lists(st.text(max_size=3), min_size=4, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4),
        st.lists(st.binary(max_size=3), min_size=4, max_size=4), st.just([None] * 4),
    ]  # fmt: skip
    table[name] = data.draw(st.one_of(kinds))
    if data.draw(st.booleans()):
        del table[data.draw(st.sampled_from(sorted(table)))]
    pq.write_table(pa.table(table), path)
    assert_readable_or_located_error(lambda: read_everything(open_references(str(target))), "")


def test_a_missing_file_of_rows_is_named(saved_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(saved_folder / "x.parq", tmp_path / "x.parq")
    (tmp_path / "x.parq" / "b" / "refs.1.parq").unlink()
    with pytest.raises(InsituError, match=r"b/refs\.1\.parq"):
        read_everything(open_references(str(tmp_path / "x.parq")))
    shutil.copytree(saved_folder / "x.insitu", tmp_path / "x.insitu")
    part = next((tmp_path / "x.insitu").glob("chunks-*"))
    part.unlink()
    with pytest.raises(InsituError, match=part.name):
        read_everything(open_references(str(tmp_path / "x.insitu")))


def test_a_folder_of_secrets_is_not_to_be_had_by_dots(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"1234")
    (tmp_path / "refs").mkdir()
    document = {"a/.zarray": {**V2["a/.zarray"], "filters": None, "compressor": None}, ".zgroup": V2[".zgroup"]}  # type: ignore[dict-item]
    (tmp_path / "refs" / "x.json").write_text(json.dumps({**document, "a/../../secret": ["x", 0, 1]}))
    with pytest.raises(FormatError, match=r"a/\.\./\.\./secret|not a chunk key"):
        open_references(str(tmp_path / "refs" / "x.json"))
