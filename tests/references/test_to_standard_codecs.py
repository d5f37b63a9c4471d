"""Codecs that only insitu decodes are converted for other readers, or refused if the data is large.

Modules: references/file_systems.py
"""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import h5py
import numpy as np
import pytest
import zarr

import insitu
from insitu.errors import UnsupportedError
from insitu.model import Axis, Codec, Columns, Encoding, Source, Tile, VirtualArray, VirtualGroup
from insitu.references import open_references, save
from insitu.references.store.json_values import pack, unpack

pytestmark = pytest.mark.filterwarnings("ignore:.*")


def lzf(path: Path, rows: int) -> VirtualGroup:
    """A file with a codec that no other reader of Zarr has."""
    with h5py.File(path, "w") as file:
        data = np.repeat(np.arange(rows // 5), 20).reshape(rows, 4).astype("i4")
        made = file.create_dataset("a", shape=(rows + 3, 4), dtype="i4", chunks=(10, 4), compression="lzf", fillvalue=0)
        made[:rows] = data
    return insitu.scan(path, decode=False)


@pytest.mark.parametrize("name", ["x.json", "x.parq"])
def test_small_arrays_are_decoded(tmp_path: Path, name: str) -> None:
    group = lzf(tmp_path / "a.h5", 35)
    save(group, tmp_path / name)
    back = open_references(str(tmp_path / name))
    assert back is not None
    assert np.array_equal(insitu.read(back, "a", decode=False), insitu.read(group, "a", decode=False))
    files = fsspec.filesystem("reference", fo=str(tmp_path / name), remote_protocol="file")
    assert np.array_equal(
        zarr.open_group(files.get_mapper(""), mode="r")["a"][...], insitu.read(group, "a", decode=False)
    )


def test_large_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"a: no other reader of Zarr decodes its codec 'lzf'"):
        save(lzf(tmp_path / "a.h5", 20_000), tmp_path / "x.json")
    save(insitu.scan(tmp_path / "a.h5", decode=False), tmp_path / "x.insitu")


def test_a_codec_that_cannot_encode_makes_no_fill_chunks(tmp_path: Path) -> None:
    """kerchunk's codec for GRIB passes on what it is given to encode: that would be no message."""
    table = Columns((2,), (Source("/a.grib"),), np.array([0, -2]), np.asarray(0), np.asarray(5))
    encoding = Encoding(np.dtype("<f4"), (Codec("grib", {"var": "t", "dtype": "<f4"}),), None, np.float32(7).tobytes())
    array = VirtualArray.of(Tile((Axis.regular(6, 3),), (encoding,), table), dims=("x",))
    with pytest.raises(UnsupportedError, match="never written hold"):
        save(VirtualGroup({"t": array}), tmp_path / "x.json", zarr_format=2)


def test_what_nobody_wrote_may_be_nan_without_a_word(tmp_path: Path) -> None:
    table = Columns((2,), (Source("/a"),), np.array([0, -2]), np.asarray(0), np.asarray(12))
    encoding = Encoding(np.dtype("<f4"), (), None, np.float32(np.nan).tobytes())
    array = VirtualArray.of(Tile((Axis.regular(6, 3),), (encoding,), table), dims=("x",))
    save(VirtualGroup({"t": array}), tmp_path / "x.json")
    document = json.loads((tmp_path / "x.json").read_text())["refs"]
    assert json.loads(document["t/.zarray"])["fill_value"] == "NaN"
    assert "t/1" not in document


RECORD = np.dtype([("a", "O"), ("b", "<i4"), ("c", "O", (2,)), ("d", "S3")])


def test_records_with_texts_in_them() -> None:
    records = np.zeros((2, 1), RECORD)
    records["a"][:, 0] = ["é", ""]
    records["c"] = "z"
    records["b"] = 7
    for value in (records, records[:0], records[0, 0]):
        back = unpack(json.loads(json.dumps(pack(value))))
        assert back.dtype == RECORD
        assert type(back) is type(value)
        assert repr(back) == repr(value)
