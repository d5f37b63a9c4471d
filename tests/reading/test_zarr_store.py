"""Any archive as a Zarr store: by zarr-python's own rules for stores, beside a store in memory with
the same keys, and by value.

Modules: reading/fetch_and_decode.py, reading/read_context.py, verbs.py
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import insitu
from insitu.errors import InsituError, TruncatedError, UnsupportedError
from insitu.model import (
    ArrayDetails,
    Axis,
    Codec,
    Columns,
    Encoding,
    Source,
    Tile,
    VirtualArray,
    VirtualGroup,
    concatenate,
)
from insitu.reading import SourcePool
from insitu.reading.zarr_store import ZarrTree
from insitu.reading.zarr_store.encoded_chunks import MAX_CHUNK_BYTES, EncodedChunks, regular_chunks
from insitu.reading.zarr_store.stored_chunks import StoredChunks
from insitu.sources import MemorySource
from mosaics import Case, mosaics

zarr = pytest.importorskip("zarr")

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest  # noqa: E402
from zarr.core.buffer import default_buffer_prototype  # noqa: E402
from zarr.core.sync import _collect_aiterator, sync  # noqa: E402
from zarr.storage import MemoryStore  # noqa: E402

from insitu.reading.zarr_store.store import InsituStore  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:Numcodecs codecs are not in the Zarr", "ignore:.*Zarr V3 specification", "ignore:Consolidated metadata"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.nc"
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as made:
        made.attrs["title"] = "a test"
        made.create_dataset(
            "packed", data=random.integers(0, 9, (25, 14)), chunks=(10, 6), compression="gzip", shuffle=True
        )
        made.create_dataset("plain", data=random.random((7, 5)), chunks=(4, 5))
        sparse = made.create_dataset("g/sparse", (30, 30), "f4", chunks=(8, 8), fillvalue=-2, compression="lzf")
        sparse[10:20, 3] = 5
        made.create_dataset("g/h/one", data=1.5)
        made.create_dataset("big", data=np.arange(6, dtype=">i4"))
        made.create_dataset("names", data=np.array(["a", "bc", "Ä"], object), dtype=h5py.string_dtype())
        made.create_dataset("none", shape=(0, 3), dtype="i2", chunks=(1, 3), maxshape=(None, 3))
        made["plain"].attrs["valid"] = np.nan
    return path


ARRAYS = ("packed", "plain", "g/sparse", "g/h/one", "big", "none")


def memory(store: InsituStore) -> Any:
    """A store in memory with the same keys."""
    make = default_buffer_prototype().buffer.from_bytes
    keys = sync(_collect_aiterator(store.list()))
    return MemoryStore({key: make(store.get_sync(key).to_bytes()) for key in keys})


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_values(file: Path, zarr_format: int, portable: bool) -> None:
    store = insitu.zarr_store(file, zarr_format=zarr_format, portable=portable, compression="gzip")
    group = zarr.open_group(store, mode="r")
    assert group.attrs["title"] == "a test"
    for name in ARRAYS:
        expected = insitu.read(file, name, decode=False)
        np.testing.assert_array_equal(group[name][...], expected)
        assert group[name].dtype == expected.dtype.newbyteorder("=" if group[name].dtype.isnative else ">")
    assert group["names"][:].tolist() == ["a", "bc", "Ä"]
    assert sorted(group.array_keys()) == ["big", "names", "none", "packed", "plain"]


def test_bytes_are_passed_on_where_zarr_can_say_them(file: Path) -> None:
    store = insitu.zarr_store(file)
    kinds = {name: type(view) for name, view in store.tree.views.items()}
    assert {name for name, kind in kinds.items() if kind is StoredChunks} == {
        "packed",
        "plain",
        "big",
        "g/h/one",
        "none",
    }
    place = insitu.scan(file, decode=False).array("packed").tiles[0].chunks[1, 2]
    with open(file, "rb") as raw:
        raw.seek(place.offset)
        assert store.get_sync("packed/c/1/2").to_bytes() == raw.read(place.length)
    portable = insitu.zarr_store(file, portable=True)
    assert {name for name, view in portable.tree.views.items() if isinstance(view, EncodedChunks)} >= {
        "packed",
        "g/sparse",
    }


def test_xarray_reads_the_same(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    path = tmp_path / "x.nc"
    made = xr.Dataset(
        {
            "t": (("time", "x"), np.linspace(260, 300, 30).reshape(10, 3), {"units": "K"}),
            "flag": (("x",), np.array([1, 2, 3], "i1"), {"flag_values": np.array([1, 2, 3], "i1")}),
        },
        {"time": np.arange("2000-01-01", "2000-01-11", dtype="M8[D]").astype("M8[ns]"), "x": [1.0, 2.0, 3.0]},
        {"title": "x"},
    )
    packing = {
        "dtype": "i2",
        "scale_factor": 0.01,
        "add_offset": 280.0,
        "_FillValue": -9,
        "zlib": True,
        "chunksizes": (4, 3),
    }
    made.to_netcdf(path, engine="netcdf4", encoding={"t": packing})
    with xr.open_dataset(path, engine="netcdf4") as expected:
        for zarr_format in (2, 3):
            store = insitu.zarr_store(path, zarr_format=zarr_format)
            with xr.open_zarr(store, consolidated=True) as shown:
                xr.testing.assert_equal(shown.load(), expected.load())
                assert shown.t.attrs == expected.t.attrs
            with xr.open_zarr(store, consolidated=False) as shown:
                xr.testing.assert_equal(shown.load(), expected.load())


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_trees_are_opened_by_zarr(tmp_path: Path, zarr_format: int) -> None:
    """Also with groups between whose arrays others lie: what one group holds stands together."""
    xr = pytest.importorskip("xarray")
    path = tmp_path / "tree.h5"
    with h5py.File(path, "w") as made:
        for number, name in enumerate(("b/a", "b/c/deep/values", "a/c/values", "b/values", "c", "b-c/values", "a/z")):
            made[name] = np.arange(5) + number
        made.create_group("a/empty/emptier").attrs["word"] = "x"
    tree = insitu.open_datatree(path)
    for consolidated in (True, False):
        store = insitu.zarr_store(path, zarr_format=zarr_format)
        with xr.open_datatree(store, engine="zarr", consolidated=consolidated) as shown:
            xr.testing.assert_identical(shown.load(), tree.load())
    shown = zarr.open_group(insitu.zarr_store(path, zarr_format=zarr_format), mode="r", use_consolidated=True)
    assert {name for name, _ in shown.members(max_depth=None)} == {
        *("a", "a/c", "a/c/values", "a/empty", "a/empty/emptier", "a/z", "b", "b/a", "b/c", "b/c/deep"),
        *("b/c/deep/values", "b/values", "b-c", "b-c/values", "c"),
    }


def test_a_mosaic_with_packings_times_and_text(tmp_path: Path) -> None:
    """Files that differ, combined and saved: meant values, whatever the client."""
    xr = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    for number, (begin, days, scale) in enumerate([("2000-01-01", 31, 0.5), ("2000-02-01", 29, 0.25)]):
        time = np.arange(days) + np.datetime64(begin)
        made = xr.Dataset(
            {
                "t": (("time", "x"), np.arange(days * 4.0).reshape(days, 4) * 0.5),
                "s": (("time",), [f"d{i}" for i in range(days)]),
            },
            {"time": time.astype("M8[ns]")},
        )
        packing = {"dtype": "i2", "scale_factor": scale, "_FillValue": -9, "chunksizes": (10, 2 + 2 * number)}
        made.to_netcdf(tmp_path / f"{number}.nc", engine="netcdf4", encoding={"t": packing})
    files = sorted(tmp_path.glob("*.nc"))
    combined = insitu.open_mfdataset(files)
    combined.insitu.save(tmp_path / "all.insitu")
    for zarr_format in (2, 3):
        store = insitu.zarr_store(tmp_path / "all.insitu", zarr_format=zarr_format)
        assert isinstance(store.tree.views["t"], EncodedChunks)
        with xr.open_zarr(store, consolidated=True) as shown:
            xr.testing.assert_equal(shown.load(), combined.load())
            assert shown.time.dtype == combined.time.dtype


def cftime_group() -> VirtualGroup:
    from insitu.model import Packing, PackingKind, Packings

    kind = PackingKind(dtype="|O", unit="days", calendar="360_day", epoch="days since 2000-01-01")
    packings = Packings.of([Packing(kind=kind)])
    tile = Tile(
        (Axis.regular(3, 3),),
        (Encoding(np.dtype("<i4")),),
        Columns.of_inline((1,), np.arange(3, dtype="<i4").tobytes()),
        packings,
    )
    array = VirtualArray((3,), np.dtype(object), ("time",), (tile,), np.zeros((1, 1), np.int64))
    return VirtualGroup({"time": array})


def test_times_of_other_calendars() -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("cftime")
    group = cftime_group()
    expected = insitu.read(group, "time")
    with xr.open_zarr(insitu.zarr_store(group), consolidated=True) as shown:
        assert shown.time.dt.calendar == "360_day"
        assert shown.time.values.tolist() == expected.tolist()


@settings(max_examples=20, deadline=None)
@given(mosaics(), st.sampled_from([2, 3]), st.data())
def test_any_mosaic(case: Case, zarr_format: int, data: Any) -> None:
    """A mosaic through the view is what NumPy says it is, and every key is what a store in memory
    gives.
    """
    tree = ZarrTree(VirtualGroup({"v": case.array}), zarr_format)
    tree._opened = SourcePool(opener=lambda source: MemorySource(case.disk[source.url]))
    store = InsituStore(tree)
    array = zarr.open_array(store, path="v", mode="r")
    np.testing.assert_array_equal(array[...], case.values)
    plain = memory(store)
    np.testing.assert_array_equal(zarr.open_array(plain, path="v", mode="r")[...], case.values)
    keys = sorted(sync(_collect_aiterator(store.list())))
    assert keys == sorted(sync(_collect_aiterator(plain.list())))
    prototype = default_buffer_prototype()
    for _ in range(4):
        key = data.draw(st.sampled_from([*keys, "v/c/99/99", "v", "w/zarr.json", "v/9.9", ""]))
        wanted = data.draw(
            st.sampled_from(
                [None, RangeByteRequest(1, 5), OffsetByteRequest(3), SuffixByteRequest(4), RangeByteRequest(0, 0)]
            )
        )
        found, there = (sync(s.get(key, prototype, wanted)) for s in (store, plain))
        assert (found is None) == (there is None)
        if found is not None and there is not None:
            assert found.to_bytes() == there.to_bytes()
        assert sync(store.exists(key)) == sync(plain.exists(key))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_beside_a_store_in_memory(file: Path, zarr_format: int) -> None:
    store = insitu.zarr_store(file, zarr_format=zarr_format)
    plain = memory(store)
    for prefix in ("", "g", "g/h", "packed", "packed/c/1", "g/sparse", "nothing"):
        actual, expected = (sorted(sync(_collect_aiterator(s.list_dir(prefix)))) for s in (store, plain))
        assert actual == expected, prefix
        at = f"{prefix}/" if prefix else ""
        actual, expected = (sorted(sync(_collect_aiterator(s.list_prefix(at)))) for s in (store, plain))
        assert actual == expected, prefix
        assert sync(store.is_empty(prefix)) == sync(plain.is_empty(prefix))
    for key in sync(_collect_aiterator(plain.list())):
        assert sync(store.getsize(key)) == sync(plain.getsize(key))
    random = np.random.default_rng(1)
    actual, expected = (zarr.open_group(s, mode="r") for s in (store, plain))
    for name in ("packed", "g/sparse"):
        for _ in range(20):
            key = tuple(
                slice(*sorted(random.integers(0, n + 1, 2).tolist()), int(random.integers(1, 4)))
                for n in actual[name].shape
            )
            np.testing.assert_array_equal(actual[name][key], expected[name][key])


def test_pickled_it_reads_the_same(file: Path) -> None:
    store = insitu.zarr_store(file)
    first = zarr.open_group(store, mode="r")["packed"][:]
    other = pickle.loads(pickle.dumps(store))
    assert other == store
    assert other != insitu.zarr_store(VirtualGroup({}))
    np.testing.assert_array_equal(zarr.open_group(other, mode="r")["packed"][:], first)
    store.close()
    np.testing.assert_array_equal(zarr.open_group(store, mode="r")["packed"][:], first)


def test_documents_are_json_for_everybody(file: Path) -> None:
    store = insitu.zarr_store(file)
    for key, data in store.tree.documents.items():
        json.loads(data, parse_constant=lambda name, key=key: pytest.fail(f"bare {name} in {key}"))
    metadata = json.loads(store.tree.documents["zarr.json"])["consolidated_metadata"]["metadata"]
    assert set(metadata) == {"packed", "plain", "g", "g/sparse", "g/h", "g/h/one", "big", "names", "none"}


def test_a_failure_is_never_a_fill_value(tmp_path: Path, file: Path) -> None:
    group = insitu.scan(file, decode=False)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    store = insitu.zarr_store(group)
    late = max(("packed", "plain"), key=lambda name: group.array(name).tiles[0].chunks[0, 0].offset)
    with pytest.raises(InsituError):
        zarr.open_group(store, mode="r")[late][...]
    short = Columns((1,), (Source(str(tmp_path / "x")),), np.asarray(0), np.asarray(0), np.asarray(8))
    (tmp_path / "x").write_bytes(b"1234")
    tile = Tile((Axis.regular(1, 1),), (Encoding(np.dtype("<i8")),), short)
    view = insitu.zarr_store(VirtualGroup({"v": VirtualArray.of(tile, dims=["x"])}))
    with pytest.raises(TruncatedError, match=r"variable v, chunk \(0,\)"):
        view.get_sync("v/c/0")


def test_what_has_no_form_is_left_out() -> None:
    tile = Tile(
        (Axis.regular(1, 1),), (Encoding(np.dtype(object), (Codec("vlen-array"),)),), Columns.of_unwritten((1,))
    )
    array = VirtualArray.of(tile, dims=["x"], details=ArrayDetails(varying="sequence"))
    store = insitu.zarr_store(VirtualGroup({"v": array}))
    assert list(store.tree.views) == []
    assert "sequences" in store.tree.problems["v"]
    with pytest.raises(UnsupportedError, match="2 or 3"):
        ZarrTree(VirtualGroup({}), 4)
    with pytest.raises(TypeError, match="Unexpected byte_range"):
        store.get_sync("zarr.json", byte_range="all")  # type: ignore[arg-type]


def test_chunk_shapes() -> None:
    def array(shape: tuple[int, ...], chunks: tuple[int, ...]) -> VirtualArray:
        axes = tuple(Axis.regular(n, c) for n, c in zip(shape, chunks, strict=True))
        return VirtualArray.of(
            Tile(axes, (Encoding(np.dtype("<f4")),), Columns.of_unwritten([axis.count for axis in axes])),
            dims="abc"[: len(shape)],
        )

    assert regular_chunks(array((365, 180, 360), (30, 90, 180)), 4) == (30, 90, 180)
    assert np.prod(regular_chunks(array((36500, 1800, 3600), (365, 1800, 3600)), 4)) * 4 <= MAX_CHUNK_BYTES
    assert regular_chunks(array((1000, 10, 10), (1, 10, 10)), 4) == (655, 10, 10)
    joined = concatenate([array((5, 4), (5, 4)), array((50, 4), (25, 2))])
    assert regular_chunks(joined, 1 << 16) == (25, 2)
    assert regular_chunks(array((), ()), 4) == ()
