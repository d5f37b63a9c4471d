"""A box of a few compressed chunks is planned in plain numbers: the values are those of h5py.

Modules: reading/plan.py, reading/read.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import insitu
from insitu.errors import InsituError
from insitu.lru import LruCache
from insitu.model import Selection
from insitu.reading import ReadStatistics, read, thread_pools
from insitu.reading.cache import PartialChunkCache
from insitu.reading.plan import plan_few

SHAPE = (10, 21, 17)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("boxes") / "a.h5"
    values = np.random.default_rng(1).normal(size=SHAPE).astype("f4")
    with h5py.File(path, "w") as made:
        made.create_dataset("zlib", data=values, chunks=(4, 8, 5), compression="gzip", shuffle=True)
        made.create_dataset("plain", data=values, chunks=(4, 8, 5))
        sparse = made.create_dataset("sparse", SHAPE, "f4", chunks=(4, 8, 5), compression="gzip", fillvalue=7)
        sparse[:4] = values[:4]
        made.create_dataset("large", data=np.arange(1 << 19).reshape(4, -1), chunks=(1, 1 << 16), compression="gzip")
    return path


def _refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("this box needs no plan in columns")


@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_are_those_of_h5py(file: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["zlib", "plain", "sparse"]))
    key: list[Any] = []
    for length in SHAPE:
        start = data.draw(st.integers(0, length - 1))
        stop = data.draw(st.integers(start, length))
        key.append(data.draw(st.sampled_from([start, slice(start, stop)])))
    with h5py.File(file) as expected:
        found = insitu.read(insitu.scan(file), name, tuple(key))
        np.testing.assert_array_equal(found, expected[name][tuple(key)])
        assert found.shape == expected[name][tuple(key)].shape


def test_a_box_of_few_chunks_needs_no_plan_in_columns(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "plan_read", _refuse)
    group, tally = insitu.scan(file), ReadStatistics()
    found = insitu.read(group, "zlib", np.s_[3:6, 20, 4:11], tally=tally)
    assert (tally.chunks, tally.requests) == (6, 6)
    assert tally.bytes_decoded == 6 * 4 * 8 * 5 * 4
    assert min(tally.fetch_seconds, tally.decode_seconds) > 0
    with h5py.File(file) as expected:
        np.testing.assert_array_equal(found, expected["zlib"][3:6, 20, 4:11])


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("zlib", np.s_[:, :, :]),  # many chunks
        ("zlib", np.s_[::2, 0, 0]),
        ("zlib", np.s_[[1, 3], 0, 0]),
        ("zlib", np.s_[2:2, 0, 0]),
        ("plain", np.s_[0, 0, 0]),  # of which only the wanted bytes are fetched
        ("sparse", np.s_[3:5, 0, 0]),  # a chunk was never written
    ],
)
def test_the_rest_is_planned_in_columns(file: Path, name: str, key: Any) -> None:
    array = insitu.scan(file).arrays[name]
    chosen = Selection.of(key, array.shape)
    assert plan_few(array, chosen, np.empty(chosen.result_shape, "f4")) is None


def test_large_chunks_are_shared_among_threads(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "plan_read", _refuse)
    monkeypatch.setattr(thread_pools, "count_cores", lambda: 3)
    group = insitu.scan(file)
    with h5py.File(file) as expected:
        for _ in range(5):
            found = insitu.read(group, "large", np.s_[:, 65530:65550])
            np.testing.assert_array_equal(found, expected["large"][:, 65530:65550])


def test_packed_values_are_those_of_xarray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "packed.nc"
    with netCDF4.Dataset(path, "w") as made:
        made.createDimension("x", 20)
        for name, units in (("v", "K"), ("day", "days since 2000-01-01"), ("noleap", "days since 2000-01-01")):
            one = made.createVariable(name, "i2", ("x",), chunksizes=(6,), zlib=True, fill_value=5)
            one.setncatts({"units": units} | ({"scale_factor": 0.1} if name == "v" else {"calendar": "standard"}))
            one.set_auto_maskandscale(False)
            if name == "noleap":
                one.calendar = "noleap"
            one[:] = np.arange(20) + (name != "v") * 10
    group = insitu.scan(path)
    monkeypatch.setattr(read, "plan_read", _refuse)
    with xr.open_dataset(path, engine="netcdf4") as expected:
        for name in ("v", "day", "noleap"):
            np.testing.assert_array_equal(insitu.read(group, name, np.s_[3:14]), expected[name][3:14].values)


def test_an_output_of_another_type(file: Path) -> None:
    out = np.zeros((2, 3), "f8")
    insitu.read(insitu.scan(file), "zlib", np.s_[0, 3:5, 4:7], out=out)
    with h5py.File(file) as expected:
        np.testing.assert_array_equal(out, expected["zlib"][0, 3:5, 4:7])


def test_a_damaged_chunk_is_named(file: Path, tmp_path: Path) -> None:
    place = insitu.scan(file).arrays["zlib"].tiles[0].chunks[(1, 2, 0)]
    data = bytearray(file.read_bytes())
    data[place.offset : place.offset + place.length] = b"\xff" * place.length
    damaged = tmp_path / "damaged.h5"
    damaged.write_bytes(data)
    with pytest.raises(InsituError) as caught:
        insitu.read(insitu.scan(damaged), "zlib", np.s_[3:5, 15:17, 0])
    assert caught.value.place["chunk"] == (1, 2, 0)


def test_a_whole_array_takes_the_chunks_that_were_kept_of_parts(file: Path) -> None:
    array = insitu.scan(file).arrays["large"]  # eight chunks of 512 KiB
    cache = PartialChunkCache(LruCache(8 << 20, lambda chunk: chunk.nbytes), 8 << 20)
    part, whole = ReadStatistics(), ReadStatistics()
    read.read_arrays([(array, (slice(0, 2), slice(0, 10)))], tally=part, cache=cache)
    (values,) = read.read_arrays([(array, (slice(None), slice(None)))], tally=whole, cache=cache)
    assert (part.requests, whole.requests, whole.chunks) == (2, 6, 8)
    with h5py.File(file) as expected:
        np.testing.assert_array_equal(values, expected["large"][:])
