"""Elements of texts and bytes that were never written, as zarr-python shows them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import insitu

zarr = pytest.importorskip("zarr", minversion="3")


def write_v2(path: Path, dtype: str, fill: Any, filters: list[dict[str, Any]] | None) -> None:
    (path / "v").mkdir(parents=True)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    document = {"zarr_format": 2, "shape": [3], "chunks": [2], "dtype": dtype, "compressor": None, "fill_value": fill}
    (path / "v" / ".zarray").write_text(json.dumps({**document, "order": "C", "filters": filters}))


def write_v3(path: Path, data_type: Any, fill: Any, codecs: list[dict[str, Any]]) -> None:
    (path / "v").mkdir(parents=True)
    (path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    grid = {"name": "regular", "configuration": {"chunk_shape": [2]}}
    keys = {"name": "default", "configuration": {"separator": "/"}}
    document = {"zarr_format": 3, "node_type": "array", "shape": [3], "data_type": data_type, "chunk_grid": grid}
    document |= {"chunk_key_encoding": keys, "fill_value": fill, "codecs": codecs, "attributes": {}}
    (path / "v" / "zarr.json").write_text(json.dumps(document))


def assert_same_as_zarr(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # types without a specification
        expected = np.asarray(zarr.open_array(path / "v", mode="r")[:]).tolist()
    actual = insitu.read(path, "v", decode=False).tolist()
    assert actual == expected
    assert [type(value) for value in actual] == [type(value) for value in expected]


@pytest.mark.parametrize("fill", [0, 1, -1, 1.5, True, False, "", "0", "abc", "é", "NaN", None])
def test_texts_of_varying_length(tmp_path: Path, fill: Any) -> None:
    write_v2(tmp_path / "a.zarr", "|O", fill, [{"id": "vlen-utf8"}])
    assert_same_as_zarr(tmp_path / "a.zarr")


@pytest.mark.parametrize("fill", ["", "AA==", "YWJj", None])
def test_bytes_of_varying_length(tmp_path: Path, fill: Any) -> None:
    write_v2(tmp_path / "a.zarr", "|O", fill, [{"id": "vlen-bytes"}])
    assert_same_as_zarr(tmp_path / "a.zarr")


@pytest.mark.parametrize(("dtype", "fill"), [("|S4", ""), ("|S4", "YWJj"), ("|S4", None), ("<U4", "abc"), (">U4", "é"),
    ("<U4", ""), ("<U4", None)])  # fmt: skip
def test_texts_of_one_length(tmp_path: Path, dtype: str, fill: Any) -> None:
    write_v2(tmp_path / "a.zarr", dtype, fill, None)
    assert_same_as_zarr(tmp_path / "a.zarr")


@pytest.mark.parametrize("fill", ["", "0", "abc", "é", 0, 1.5])
def test_strings_of_v3(tmp_path: Path, fill: Any) -> None:
    write_v3(tmp_path / "a.zarr", "string", fill, [{"name": "vlen-utf8"}])
    assert_same_as_zarr(tmp_path / "a.zarr")


@pytest.mark.parametrize("fill", ["", "YWJj"])
def test_bytes_of_v3(tmp_path: Path, fill: Any) -> None:
    write_v3(tmp_path / "a.zarr", "variable_length_bytes", fill, [{"name": "vlen-bytes"}])
    assert_same_as_zarr(tmp_path / "a.zarr")


@pytest.mark.parametrize(("name", "configuration", "fill"), [("null_terminated_bytes", {"length_bytes": 4}, "YWJj"),
    ("null_terminated_bytes", {"length_bytes": 4}, ""), ("fixed_length_utf32", {"length_bytes": 16}, "abc"),
    ("fixed_length_utf32", {"length_bytes": 16}, ""), ("raw_bytes", {"length_bytes": 3}, "YWJj")])  # fmt: skip
def test_fixed_lengths_of_v3(tmp_path: Path, name: str, configuration: dict[str, int], fill: str) -> None:
    kind = {"name": name, "configuration": configuration}
    write_v3(tmp_path / "a.zarr", kind, fill, [{"name": "bytes", "configuration": {"endian": "little"}}])
    assert_same_as_zarr(tmp_path / "a.zarr")
