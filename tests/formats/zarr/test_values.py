"""Do Zarr stores read as zarr-python reads them? V2 and V3, every dtype, codec, key style, order,
separator and shard.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    VLenUTF8Codec,
    ZstdCodec,
)

import insitu
from insitu.errors import ChecksumError, CodecError, FormatError, InsituError, VariableError
from insitu.formats.scan_request import ScanRequest
from insitu.formats.zarr import matches, open_zarr
from insitu.model import Unwritten, VirtualArray, VirtualGroup
from insitu.reading import ReadContext, read_array
from insitu.references import save

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore:.*")

DTYPES = ["bool", "i1", "u1", "<i2", ">i2", "<i4", "<u4", ">i8", "<u8", "<f2", "<f4", ">f4", "<f8", "<c8", "<c16",
    "S3", "<U4", ">U4",
          "<M8[ns]", "<m8[10us]"]  # fmt: skip


def opened(path: Path | str, **options: Any) -> VirtualGroup:
    group = open_zarr(str(path), ScanRequest(**options))
    assert group is not None
    return group


def only(path: Path | str, **options: Any) -> VirtualArray:
    (array,) = opened(path, **options).arrays.values()
    return array


def values(dtype: str, shape: tuple[int, ...], seed: int = 1) -> npt.NDArray[Any]:
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind in "SU":
        return random.integers(0, 999, shape).astype("U3").astype(kind)
    if kind.kind in "mM":
        return random.integers(0, 10**9, shape).astype("i8").view(kind.newbyteorder("<")).astype(kind)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    return random.integers(0, 120, shape).astype(kind)


def same(actual: npt.NDArray[Any], expected: Any) -> None:
    expected = np.asarray(expected)
    assert actual.shape == expected.shape
    if expected.dtype.kind in "TO":
        assert [str(v) for v in actual.reshape(-1)] == [str(v) for v in expected.reshape(-1)]
        return
    assert actual.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
    assert actual.astype(expected.dtype).tobytes() == expected.tobytes()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(tmp_path: Path, dtype: str, zarr_format: int) -> None:
    data = values(dtype, (7, 5))
    array = zarr.create_array(
        tmp_path / "a", shape=data.shape, chunks=(3, 2),
        dtype=data.dtype if zarr_format == 2 else data.dtype.newbyteorder("<"),
        zarr_format=zarr_format, fill_value=None if zarr_format == 2 else 0 if data.dtype.kind not in "SUmM" else None,
    )  # fmt: skip
    array[:4, :] = data[:4]  # the last row of chunks is not written
    found = only(tmp_path / "a")
    same(read_array(found), array[...])
    same(read_array(found, np.s_[1:6:2, ::-1]), array[...][1:6:2, ::-1])


CHAINS: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "gzip": {"compressors": GzipCodec(level=1)},
    "zstd, checked": {"compressors": [ZstdCodec(level=3, checksum=True)]},
    "blosc": {"compressors": BloscCodec(cname="lz4", shuffle="bitshuffle", typesize=4)},
    "crc32c": {"compressors": [Crc32cCodec()]},
    "two": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "big-endian": {"serializer": BytesCodec(endian="big"), "compressors": None},
    "transposed": {"filters": [TransposeCodec(order=(2, 0, 1))]},
    "transposed twice": {"filters": [TransposeCodec(order=(2, 0, 1)), TransposeCodec(order=(1, 2, 0))]},
    "sharded": {"shards": (4, 6, 4), "compressors": ZstdCodec()},
    "sharded, index first": {
        "serializer": ShardingCodec(chunk_shape=(1, 3, 2), codecs=[BytesCodec(), GzipCodec()], index_location="start"),
        "chunks": (2, 6, 4), "compressors": None,
    },
    "sharded, no checksum": {
        "serializer": ShardingCodec(chunk_shape=(2, 3, 2), codecs=[BytesCodec(endian="big")],
        index_codecs=[BytesCodec(endian="big")]),
        "chunks": (4, 6, 4), "compressors": None,
    },
    "sharded twice": {
        "serializer": ShardingCodec(chunk_shape=(2, 6, 4), codecs=[
            ShardingCodec(chunk_shape=(1, 3, 2), codecs=[BytesCodec(), ZstdCodec()], index_location="start")]),
        "chunks": (4, 6, 8), "compressors": None,
    },
    "sharded, inner transposed": {
        "serializer": ShardingCodec(chunk_shape=(2, 3, 2), codecs=[TransposeCodec(order=(2, 1, 0)), BytesCodec()]),
        "chunks": (4, 6, 4), "compressors": None,
    },
    "shard compressed": {
        "serializer": ShardingCodec(chunk_shape=(2, 3, 2), codecs=[BytesCodec()]), "chunks": (4, 6, 4),
        "compressors": GzipCodec(),
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [None, {"name": "v2", "separator": "."}, {"name": "v2", "separator": "/"}, {"name": "default", "separator": "."}],
)
@pytest.mark.parametrize("chain", CHAINS)
def test_v3_chains(tmp_path: Path, chain: str, keys: Any) -> None:
    data = values("<i4", (9, 11, 7))
    options = {"chunks": (2, 3, 2), "fill_value": -1, "chunk_key_encoding": keys, **CHAINS[chain]}
    array = zarr.create_array(tmp_path / "a", shape=data.shape, dtype="int32", zarr_format=3, **options)
    array[:5] = data[:5]
    found = only(tmp_path / "a")
    same(read_array(found), array[...])
    for selection in (np.s_[3], np.s_[1:8:3, 4, ::-2], np.s_[-1, -1, -1]):
        same(np.asarray(read_array(found, selection)), array[...][selection])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("fill", [None, 0, -7])
def test_v2_layouts(tmp_path: Path, order: str, separator: str, fill: int | None) -> None:
    import numcodecs

    data = values("<i4", (5, 8, 3))
    array = zarr.create_array(
        tmp_path / "a", shape=data.shape, chunks=(2, 3, 3), dtype="<i4", zarr_format=2, order=order, fill_value=fill,
        chunk_key_encoding={"name": "v2", "separator": separator}, compressors=numcodecs.Zlib(1),
        filters=[numcodecs.Delta("<i4")],
    )  # fmt: skip
    array[1:3] = data[1:3]
    found = only(tmp_path / "a")
    same(read_array(found), array[...])
    assert found.attributes.get("_FillValue") == fill


def test_scalars_empty_and_text(tmp_path: Path) -> None:
    root = zarr.create_group(tmp_path / "g", zarr_format=3)
    root.create_array("scalar", shape=(), dtype="f8")[...] = 3.5
    root.create_array("empty", shape=(0, 4), chunks=(1, 4), dtype="i2")
    text = root.create_array("text", shape=(4,), chunks=(3,), dtype="str", serializer=VLenUTF8Codec(), fill_value="?")
    text[:3] = np.array(["a", "bé", ""], object)
    inner = root.create_group("in/side", attributes={"k": [1, 2]})
    inner.create_array("x", shape=(2,), dtype="u1", dimension_names=["x"])[:] = [1, 2]
    group = opened(tmp_path / "g")
    assert read_array(group.array("scalar"))[()] == 3.5
    assert read_array(group.array("empty")).shape == (0, 4)
    assert read_array(group.array("text")).tolist() == ["a", "bé", "", "?"]
    assert group.groups["in"].groups["side"].attributes == {"k": [1, 2]}
    assert group.array("in/side/x").dims == ("x",)
    assert read_array(group.array("in/side/x")).tolist() == [1, 2]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_structures(tmp_path: Path, zarr_format: int) -> None:
    kind = np.dtype([("a", "<i4"), ("b", "S3"), ("c", "<f8")])
    data = np.array([(1, b"x", 2.5), (2, b"yz", np.nan)], kind)
    array = zarr.create_array(tmp_path / "a", shape=(3,), chunks=(2,), dtype=kind, zarr_format=zarr_format)
    array[:2] = data
    read = read_array(only(tmp_path / "a"))
    assert read.dtype == kind
    assert read.tobytes() == np.asarray(array[:]).tobytes()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("zipped", [None, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_hierarchy_and_zip(tmp_path: Path, zarr_format: int, consolidated: bool, zipped: int | None) -> None:
    path = tmp_path / "g.zarr"
    root = zarr.create_group(path, zarr_format=zarr_format, attributes={"title": "t"})
    dims = {"dimension_names": ["y", "x"]} if zarr_format == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["y", "x"]}}
    data = values("<f4", (6, 5))
    root.create_array("a/b/t", shape=(6, 5), chunks=(4, 2), dtype="f4", fill_value=np.nan, **dims)[:4] = data[:4]
    root.create_array("a/b/x", shape=(5,), dtype="i8", **_dims(zarr_format, ["x"]))[:] = np.arange(5)
    if consolidated:
        zarr.consolidate_metadata(path, zarr_format=zarr_format)
    if zipped is not None:
        target = tmp_path / "g.zarr.zip"
        with zipfile.ZipFile(target, "w", zipped) as archive:
            for file in sorted(path.rglob("*")):
                if file.is_file():
                    archive.write(file, file.relative_to(path).as_posix())
        path = target
    assert matches(str(path))
    group = opened(path)
    assert group.attributes == {"title": "t"}
    assert group.array("a/b/t").dims == ("y", "x")
    expected = data.copy()
    expected[4:] = np.nan
    same(read_array(group.array("a/b/t")), expected)
    assert isinstance(group.array("a/b/t").tiles[0].chunks[1, 0], Unwritten) or zipped is None
    part = opened(path, group="a/b", variables=["t"])
    assert set(part.arrays) == {"t", "x"}
    same(read_array(part.array("t")), expected)
    with pytest.raises(VariableError):
        opened(path, group="nowhere")


def _dims(zarr_format: int, names: list[str]) -> dict[str, Any]:
    return {"dimension_names": names} if zarr_format == 3 else {"attributes": {"_ARRAY_DIMENSIONS": names}}


def test_sharded_in_zip(tmp_path: Path) -> None:
    data = values("<i4", (8, 8))
    with zarr.storage.ZipStore(tmp_path / "s.zip", mode="w") as store:
        array = zarr.create_array(store, name="s", shape=(8, 8), chunks=(2, 2), shards=(4, 4), dtype="i4", fill_value=5)
        array[:4] = data[:4]
    found = opened(tmp_path / "s.zip").array("s")
    expected = data.copy()
    expected[4:] = 5
    same(read_array(found), expected)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        ("NaN", "float32", np.nan), ("Infinity", "float64", np.inf), ("-Infinity", "float16", -np.inf),
        ("0x7fc00001", "float32", np.nan),
        ([1.5, "NaN"], "complex64", complex(1.5, np.nan)), (-5, "int8", -5), (True, "bool", True),
        (1e20, "float32", np.float32(1e20)),
    ],
)  # fmt: skip
def test_v3_fill_values(tmp_path: Path, value: Any, dtype: str, expected: Any) -> None:
    zarr.create_array(tmp_path / "a", shape=(3,), chunks=(2,), dtype=dtype, zarr_format=3)
    path = tmp_path / "a" / "zarr.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "fill_value": value}))
    read = read_array(only(tmp_path / "a"))
    np.testing.assert_array_equal(read, np.full(3, expected, dtype))


def test_python_flavoured_json(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    document = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<f4", "fill_value": float("nan"), "order": "C",
                "filters": None, "compressor": None}  # fmt: skip
    (folder / ".zarray").write_text(json.dumps(document))
    (folder / ".zattrs").write_text('{"range": [NaN, -Infinity, Infinity, 1]}')
    found = only(folder)
    assert np.isnan(read_array(found)).all()
    assert np.isinf(found.attributes["range"][2])


def test_rectilinear_grid(tmp_path: Path) -> None:
    sizes = [[[3, 2], 4], [5, 1, 4]]
    data = values("<i4", (9, 10))
    folder = tmp_path / "a"
    starts = [0, 3, 6, 10], [0, 5, 6, 10]
    (folder / "c").mkdir(parents=True)
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [9, 10], "data_type": "int32",
        "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": sizes}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": ["bytes"],
    }  # fmt: skip
    (folder / "zarr.json").write_text(json.dumps(document))
    padded = np.zeros((10, 10), "<i4")
    padded[:9] = data
    for i in range(3):
        (folder / "c" / str(i)).mkdir()
        for j in range(3):
            chunk = padded[starts[0][i] : starts[0][i + 1], starts[1][j] : starts[1][j + 1]]
            (folder / "c" / str(i) / str(j)).write_bytes(chunk.tobytes())
    same(read_array(only(folder)), data)


@pytest.mark.parametrize(
    "layout",
    [
        {"chunks": ((3, 3, 4), (10, 20, 30))}, {"chunks": ((1,) * 9, (25, 35)), "shape": (9, 60)},
        {"shards": ((4, 6), (60,)), "chunks": (2, 10)}, {"chunks": ((4, 4, 2), (60,)), "compressors": None},
    ],
    ids=str,
)  # fmt: skip
def test_rectilinear_grids_of_zarr_python(tmp_path: Path, layout: dict[str, Any]) -> None:
    pytest.importorskip("zarr", minversion="3.2", reason="rectilinear grids came with zarr 3.2")
    options = {"shape": (10, 60), "dtype": "i4", "fill_value": -1, **layout}
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.create_array(tmp_path / "a", **options)
        data = values("<i4", array.shape)
        array[2:7] = data[2:7]
        array[:, 12:14] = data[:, 12:14]
        expected = np.asarray(array[...])
    found = only(tmp_path / "a")
    same(read_array(found), expected)
    for selection in (np.s_[3], np.s_[1:8:3, ::-7], np.s_[-1, -1], np.s_[6:9, 11:30]):
        same(np.asarray(read_array(found, selection)), expected[selection])
    save(VirtualGroup({"a": found}), tmp_path / "x.insitu")
    same(insitu.read(tmp_path / "x.insitu", "a", decode=False), expected)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_bytes_of_varying_length(tmp_path: Path, zarr_format: int) -> None:
    from zarr.dtype import VariableLengthBytes

    array = zarr.create_array(
        tmp_path / "a",
        shape=(5,),
        chunks=(2,),
        dtype=VariableLengthBytes(),
        zarr_format=zarr_format,
        fill_value=b"\xff",
    )
    array[:3] = np.array([b"a", b"", b"\x00\xfe"], object)
    assert read_array(only(tmp_path / "a")).tolist() == [b"a", b"", b"\x00\xfe", b"\xff", b"\xff"]


@pytest.mark.parametrize(
    ("dtype", "fill", "expected"),
    [
        (
            {"name": "numpy.datetime64", "configuration": {"unit": "h", "scale_factor": 6}},
            "NaT",
            np.datetime64("NaT", "h"),
        ),
        ({"name": "numpy.timedelta64", "configuration": {"unit": "s", "scale_factor": 1}}, 90, np.timedelta64(90, "s")),
        ({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}, "é", "é"),
        ({"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}, "YWI=", b"ab"),
        ({"name": "raw_bytes", "configuration": {"length_bytes": 2}}, "AQI=", np.void(b"\x01\x02")),
        ("r16", [1, 2], np.void(b"\x01\x02")),
        ({"name": "struct", "configuration": {"fields": [["a", "int32"], ["b", "float32"]]}}, "AQAAAAAAgD8=", (1, 1.0)),
    ],
    ids=str,
)
def test_types_of_extensions(tmp_path: Path, dtype: Any, fill: Any, expected: Any) -> None:
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [2], "data_type": dtype, "fill_value": fill,
        "codecs": ["bytes"],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"},
    }  # fmt: skip
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    found = read_array(only(tmp_path))
    assert found.shape == (2,)
    if isinstance(expected, np.datetime64):
        assert np.isnat(found).all()
        assert found.dtype == "M8[6h]"
    else:
        assert found[0].item() == np.asarray(expected, found.dtype).item()


V2 = '{"zarr_format": 2, "order": "C", "fill_value": 0, '
BAD = {
    "no JSON": "{", "no shape": V2 + '"chunks": [1], "dtype": "<i4"}',
    "negative": V2 + '"shape": [-1], "chunks": [1], "dtype": "<i4"}',
    "other ranks": V2 + '"shape": [1], "chunks": [1, 1], "dtype": "<i4"}',
    "no type": V2 + '"shape": [1], "chunks": [1], "dtype": "<z9"}',
    "object": V2 + '"shape": [1], "chunks": [1], "dtype": "|O"}',
    "fill": V2 + '"shape": [1], "chunks": [1], "dtype": "<i4", "fill_value": "x"}',
    "huge": V2 + '"shape": [9e18, 9e18], "chunks": [1, 1], "dtype": "<i4"}',
    "separator": V2 + '"shape": [1], "chunks": [1], "dtype": "<i4", "dimension_separator": "../"}',
    "deep": '{"zarr_format": 2, "a":' + "[" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_malformed_documents(tmp_path: Path, case: str) -> None:
    (tmp_path / ".zarray").write_text(BAD[case])
    with pytest.raises(InsituError) as caught:
        open_zarr(str(tmp_path), ScanRequest())
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("zarr_format", "field"), [(2, "fill_value"), (2, "order"), (3, "fill_value"), (3, "chunk_key_encoding")]
)
def test_fields_that_must_be_there(tmp_path: Path, zarr_format: Any, field: str) -> None:
    """Without them values would be guessed: zarr-python refuses the array, too."""
    zarr.create_array(tmp_path / "a", shape=(2,), dtype="i4", fill_value=3, zarr_format=zarr_format)
    path = tmp_path / "a" / (".zarray" if zarr_format == 2 else "zarr.json")
    document = json.loads(path.read_text())
    del document[field]
    path.write_text(json.dumps(document))
    with pytest.raises((TypeError, KeyError)):
        zarr.open_array(tmp_path / "a", mode="r")
    with pytest.raises(FormatError, match=f"field '{field}' is missing"):
        open_zarr(str(tmp_path / "a"), ScanRequest())


def test_errors_warn_keeps_the_rest(tmp_path: Path) -> None:
    root = zarr.create_group(tmp_path / "g", zarr_format=3)
    root.create_array("good", shape=(2,), dtype="i4")[:] = [1, 2]
    root.create_array("bad", shape=(2,), dtype="i4")
    path = tmp_path / "g" / "bad" / "zarr.json"
    path.write_text(path.read_text().replace('"int32"', '"int33"'))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = opened(tmp_path / "g", errors="warn")
    assert set(group.arrays) == {"good"}
    assert "int33" in group.problems["bad"]
    with pytest.raises(InsituError, match="int33"):
        open_zarr(str(tmp_path / "g"), ScanRequest())


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("shape", [(6,), (7,)])
def test_chunks_that_are_longer_than_declared(tmp_path: Path, zarr_format: Any, shape: tuple[int, ...]) -> None:
    """Also where the last chunk of the array holds less than it could."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=zarr_format)
    group.create_array("b", shape=shape, dtype="<f8", chunks=(3,), compressors=None)[:] = np.arange(shape[0])
    chunk = tmp_path / "a.zarr" / ("b/1" if zarr_format == 2 else "b/c/1")
    chunk.write_bytes(chunk.read_bytes() + bytes(8))
    with pytest.raises(ValueError, match="reshape"):
        zarr.open_group(tmp_path / "a.zarr", mode="r")["b"][...]
    for _ in range(2):
        with pytest.raises(CodecError, match="32 bytes, but 24"):
            insitu.read(tmp_path / "a.zarr", "b", decode=False)


def test_damaged_shards(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a", shape=(8,), chunks=(2,), shards=(8,), dtype="i4")
    array[:] = np.arange(8)
    shard = tmp_path / "a" / "c" / "0"
    good = shard.read_bytes()
    shard.write_bytes(good[:-30] + b"\x01" + good[-29:])
    with pytest.raises(ChecksumError):
        read_array(only(tmp_path / "a"))
    shard.write_bytes(good[:20])
    with pytest.raises(InsituError, match="index"):
        read_array(only(tmp_path / "a"))


def test_only_the_wanted_inner_chunks_are_fetched(tmp_path: Path) -> None:
    from insitu.reading import ReadStatistics

    array = zarr.create_array(
        tmp_path / "a", shape=(64, 64), chunks=(8, 8), shards=(64, 64), dtype="i4", compressors=None
    )
    array[:] = values("<i4", (64, 64))
    tally = ReadStatistics()
    read_array(only(tmp_path / "a"), np.s_[:8, :8], ReadContext(tally=tally))
    assert tally.bytes_fetched == 8 * 8 * 4


def test_not_a_store(tmp_path: Path) -> None:
    assert open_zarr(str(tmp_path), ScanRequest()) is None
    (tmp_path / "x.zip").write_bytes(b"PK\5\6" + bytes(18))
    assert open_zarr(str(tmp_path / "x.zip"), ScanRequest()) is None
    (tmp_path / "y.zip").write_bytes(b"PK\3\4 and nothing else")
    with pytest.raises(FormatError, match="zip"):
        open_zarr(str(tmp_path / "y.zip"), ScanRequest())


@settings(max_examples=20)
@given(data=st.data())
def test_any_selection_of_any_shards(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    inner = tuple(data.draw(st.integers(1, 3)) for _ in range(ndim))
    shards = tuple(n * data.draw(st.integers(1, 3)) for n in inner)
    shape = tuple(data.draw(st.integers(1, 12)) for _ in range(ndim))
    array = zarr.create_array(
        zarr.storage.LocalStore(folder := tmp_path_factory.mktemp("s")),
        shape=shape,
        chunks=inner,
        shards=shards,
        dtype="i4",
        fill_value=9,
    )
    stop = tuple(data.draw(st.integers(0, n)) for n in shape)
    box = tuple(slice(0, n) for n in stop)
    expected = np.full(shape, 9, "i4")
    expected[box] = values("<i4", stop)
    if all(stop):
        array[box] = expected[box]
    selection = tuple(
        data.draw(st.slices(n)) if data.draw(st.booleans()) else data.draw(st.integers(0, n - 1)) for n in shape
    )
    same(np.asarray(read_array(only(folder), selection)), expected[selection])
