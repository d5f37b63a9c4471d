"""Values that were read stay for the next use, are never changed by a user, and are released.

Modules: lazy_array/at_once.py
"""

from __future__ import annotations

import gc
import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from asking import same_bits, with_numpy_only
from insitu.errors import InsituError
from insitu.lazy_array import LazyArray, at_once, duck_array, numpy_operations, windowing
from insitu.model import VirtualArray
from insitu.reading import cache as reading_cache
from insitu.reading import value_cache
from insitu.reading.value_cache import ValueCache, default_value_cache, memory_limit
from insitu.reducing import reduce_expression


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> ValueCache:
    """Make a cache of the process for one test."""
    made = ValueCache(1 << 20)
    monkeypatch.setattr(value_cache, "_default", made)
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    values = rng.normal(280, 5, (40, 6, 7)).astype("f4")
    values[rng.random(values.shape) < 0.1] = np.nan
    ds = xr.Dataset(
        {"tas": (("time", "y", "x"), values), "n": (("time",), np.arange(40))},
        {"time": np.datetime64("2001-01-01", "ns") + np.arange(40) * np.timedelta64(1, "D")},
    )
    ds.to_netcdf(tmp_path / "a.nc", encoding={"tas": {"chunksizes": (1, 6, 7), "zlib": True}})
    return tmp_path / "a.nc"


def _requests(act: Callable[[], Any]) -> int:
    with insitu.trace() as cost:
        act()
    return cost.requests


def test_the_second_use_reads_nothing(cache: ValueCache, path: Path) -> None:
    ds = insitu.open_dataset(path)
    assert _requests(lambda: (ds.tas + 1).values) > 0
    assert cache.nbytes >= ds.tas.nbytes
    assert _requests(lambda: (ds.tas * 2).values) == 0
    assert _requests(lambda: ds["tas"].isel(time=3).values) == 0
    assert _requests(lambda: ds.tas.transpose().astype("f8").fillna(0).values) == 0
    assert _requests(lambda: ds.tas.mean("time").values) == 0
    assert _requests(lambda: ds.load()) > 0  # of the other variables


OPERATIONS: dict[str, Callable[[xr.DataArray], Any]] = {
    "arithmetic": lambda a: (a - 273.15) ** 2,
    "compare": lambda a: a > 280,
    "select": lambda a: a.isel(time=slice(3, 30, 4), x=[0, 3, 3]) + 1,
    "backwards": lambda a: a.isel(time=slice(None, None, -1)) + 1,
    "points": lambda a: a.isel(time=xr.DataArray([1, 5], dims="p"), x=xr.DataArray([0, 2], dims="p")) + 1,
    "transpose": lambda a: a.transpose("x", ...) + 1,
    "cast": lambda a: a.astype("f8") + 1,
    "where": lambda a: a.where(a > 280),
    "fill": lambda a: a.fillna(0.0),
    "shift": lambda a: a.shift(time=2) + 1,
    "roll": lambda a: a.roll(time=3) + 1,
    "pad": lambda a: a.pad(time=(2, 1)) + 1,
    "reindex": lambda a: a.reindex(time=a.time[::2]) + 1,
    "rolling": lambda a: a.rolling(time=5, center=True).mean(),
    "diff": lambda a: a.diff("time"),
    "cumsum": lambda a: a.cumsum("time"),
    "sort": lambda a: a.sortby("time", ascending=False) + 1,
    "resample": lambda a: a.resample(time="5D").max(),
    "groupby": lambda a: a.groupby("time.month").mean(),
    "concat": lambda a: xr.concat([a, a + 1], "time"),
    "broadcast": lambda a: a.expand_dims(m=3).copy() + 1,
    "real": lambda a: np.real(a),
    "max": lambda a: a.max("time"),
    "round": lambda a: a.round(1),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("first", ["arithmetic", "select", "none"])
def test_kept_values_give_the_same(cache: ValueCache, path: Path, name: str, first: str) -> None:
    with xr.open_dataset(path) as expected, insitu.open_dataset(path) as found:
        wanted = OPERATIONS[name](expected.tas.load())
        if first != "none":
            OPERATIONS[first](found.tas)
        for _ in range(2):
            got = OPERATIONS[name](found.tas)
            check = xr.testing.assert_allclose if name in ("groupby", "rolling") else xr.testing.assert_identical
            check(got.load(), wanted)
        xr.testing.assert_identical(found.tas.load(), expected.tas)


AT_ONCE = (
    *("arithmetic", "compare", "select", "backwards", "points", "transpose", "cast", "where", "fill", "shift", "pad"),
    *("rolling", "diff", "concat", "round"),
)
"""Operations whose values are computed at once where those of their operands are at hand."""


@pytest.mark.parametrize("name", AT_ONCE)
def test_what_is_at_hand_is_computed_at_once(
    cache: ValueCache, path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without nodes; those that are made later, for a text or a server, have the same values."""
    with xr.open_dataset(path) as expected, insitu.open_dataset(path) as ds, with_numpy_only():
        wanted = OPERATIONS[name](expected.tas.load())
        (ds.tas + 1).values  # noqa: B018
        made: list[Any] = []
        with monkeypatch.context() as patch:
            for place, function in (
                (numpy_operations, "_combine_nodes"),
                (duck_array, "cast"),
                (windowing, "WindowsOf"),
            ):
                original = getattr(place, function)
                patch.setattr(place, function, lambda *what, original=original: (made.append(what), original(*what))[1])
            found = OPERATIONS[name](ds.tas)
            values = found.values
        assert not made
        check = xr.testing.assert_allclose if name == "rolling" else xr.testing.assert_identical
        check(found.copy(data=values), wanted)
        assert isinstance(found.variable._data, LazyArray)
        later = found.copy(data=LazyArray(found.variable._data.node)).load()
        xr.testing.assert_identical(later, found.load())


def test_what_is_computed_at_once_follows_no_array_in_memory(cache: ValueCache, path: Path) -> None:
    ds = insitu.open_dataset(path)
    before, added = ds.tas.values, np.ones(7, "f4")
    total = ds.tas + xr.DataArray(added, dims="x")
    added[:] = 100
    np.testing.assert_array_equal(total.values, before + 1)
    np.testing.assert_array_equal(LazyArray(total.variable._data.node).read(), before + 1)
    total.values[...] = 0
    np.testing.assert_array_equal(total.values, before + 1)
    with pytest.raises(ValueError, match="read-only"):
        total.transpose()[0, 0] = 5


def test_what_is_at_hand_is_bounded(cache: ValueCache, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large operands, and results that are larger than their operands, are computed when they are needed."""
    ds = insitu.open_dataset(path)
    (ds.tas + 1).values  # noqa: B018
    assert (ds.tas * 2).variable._data.repeated_value is None
    assert (ds.tas * 2).variable._data.find_at_hand() is not None
    wide = ds.tas.expand_dims(m=10_000).transpose("time", "y", "x", "m")
    assert (ds.tas * wide).variable._data.find_at_hand() is None
    monkeypatch.setattr(at_once, "AT_ONCE_BYTES", ds.tas.nbytes - 1)
    assert (ds.tas * 2).variable._data.find_at_hand() is None


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("method", ["mean", "sum", "std", "min", "argmax", "count", "prod"])
@pytest.mark.parametrize("packed", [False, True])
def test_one_known_chunk_is_reduced_without_a_plan(
    tmp_path: Path, packed: bool, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bits of chunks that are decoded, and so is a box of it, which is not cut out for that."""
    values = np.random.default_rng(2).normal(280, 30, (20, 6, 7)).astype("f4")
    values[3, 2:, :4] = np.nan
    how = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -1} if packed else {}
    xr.Dataset({"t": (("time", "y", "x"), values)}).to_netcdf(tmp_path / "x.nc", encoding={"t": {"zlib": True, **how}})
    with insitu.open_dataset(tmp_path / "x.nc") as ds, insitu.open_dataset(tmp_path / "x.nc", cache=False) as streamed:
        assert ds.t.values.size
        boxes: list[dict[str, Any]] = [
            {},
            {"time": slice(5, 12)},
            {"time": slice(2, 19), "x": slice(1, 5)},
            {"time": [4, 5, 6], "y": [5]},
        ]
        dims: list[Any] = ["time"] if method == "argmax" else ["time", ("y", "x"), ("x", "time"), None]
        for box, dim in itertools.product(boxes, dims):
            wanted = getattr(streamed.t.isel(box), method)(dim).values
            with monkeypatch.context() as patch:
                patch.setattr(reduce_expression, "fold_in_portions", None)
                patch.setattr(VirtualArray, "__getitem__", None)
                found = getattr(ds.t.isel(box), method)(dim).values
            assert same_bits(found, wanted), (box, dim)


def test_what_a_user_does_to_values_changes_nothing_else(cache: ValueCache, path: Path) -> None:
    ds = insitu.open_dataset(path)
    before = ds.tas.values.copy()
    for values in (ds.tas.values, np.asarray(ds.tas), ds.tas.isel(time=0).values, ds.tas.transpose().values):
        values[...] = -1
    for made in (np.real(ds.tas.data).copy(), ds.tas.copy().values, ds.tas.compute().values):
        made[...] = -1
    np.testing.assert_array_equal(ds.tas.values, before)
    copied = ds.copy(deep=True)
    copied["tas"][0] = 5.0
    np.testing.assert_array_equal(ds.tas.values, before)
    assert (copied.tas.values[0] == 5).all()
    np.testing.assert_array_equal(copied.tas.values[1:], before[1:])


def test_writing_does_not_reach_what_was_derived_before(cache: ValueCache, path: Path) -> None:
    ds = insitu.open_dataset(path)
    before = ds.tas.values.copy()
    copied, first, double = ds.tas.copy(), ds.tas.isel(time=0), ds.tas.astype("f8")
    ds["tas"][...] = 5.0
    ds.tas + 1  # what was written is kept now
    np.testing.assert_array_equal(copied.values, before)
    np.testing.assert_array_equal(first.values, before[0])
    np.testing.assert_array_equal(double.values, before.astype("f8"))
    assert (ds.tas.isel(time=0).values == 5).all()


def test_functions_of_users_may_write_to_what_they_get(cache: ValueCache, path: Path) -> None:
    ds = insitu.open_dataset(path)
    before = ds.tas.values.copy()

    def spoil(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        values[...] = 0
        return values

    xr.apply_ufunc(spoil, ds.tas, dask="parallelized", output_dtypes=["f4"])
    np.testing.assert_array_equal(ds.tas.values, before)


def test_released_when_closed_and_when_gone(cache: ValueCache, path: Path) -> None:
    ds = insitu.open_dataset(path)
    other = insitu.open_dataset(path)
    np.asarray(ds.tas.data)
    np.asarray(other.tas.data)
    assert cache.nbytes == 2 * ds.tas.nbytes
    ds.close()
    assert cache.nbytes == other.tas.nbytes
    assert float(ds.tas[0, 0, 0]) == float(other.tas[0, 0, 0])  # it reads again
    del other
    gc.collect()
    assert cache.nbytes <= ds.tas.nbytes


def test_it_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ValueCache(20_000)
    monkeypatch.setattr(value_cache, "_default", small)
    ds = insitu.open_dataset(path)
    for step in range(0, 40, 4):
        (ds.tas.isel(time=slice(step, step + 4)) + 1).values  # noqa: B018
    assert ds.tas.nbytes > small.max_bytes / value_cache.SHARE_OF_CACHE
    assert 0 <= small.nbytes <= 20_000
    ds.tas + 1
    assert small.nbytes <= 20_000


def test_nothing_is_kept_unless_asked_for(cache: ValueCache, path: Path) -> None:
    ds = insitu.open_dataset(path, cache=False)
    ds.tas + 1
    assert insitu.open_dataset(path).load().tas.mean() > 0
    insitu.open_dataset(path).tas.mean("time").load()  # streams
    insitu.open_dataset(path, chunks={}).tas.sum().compute()
    insitu.open_dataset(path, cache=1 << 20).tas + 1
    assert cache.nbytes == 0


def test_a_pickled_array_travels_without_values(cache: ValueCache, path: Path) -> None:
    ds = insitu.open_dataset(path)
    ds.tas + 1
    assert len(pickle.dumps(ds.tas.data)) < ds.tas.nbytes
    xr.testing.assert_identical(pickle.loads(pickle.dumps(ds)).load(), ds.load())


def test_the_limit_is_a_part_of_the_memory() -> None:
    assert 0 < default_value_cache().max_bytes <= min(1 << 30, memory_limit() // 10)


def test_an_array_may_be_collected_while_the_cache_is_in_use(path: Path) -> None:
    """The garbage collector runs in any thread at any time: also in one that holds the lock of the cache."""

    cache = ValueCache(1 << 20)
    key = cache.new_key()
    cache.keep(key, np.zeros(100), None)
    assert cache.nbytes == 800
    with cache._values._lock:
        del key
    assert cache.nbytes == 0


def test_a_small_array_that_is_used_in_parts_is_read_whole(cache: ValueCache, path: Path) -> None:
    """Once a quarter of it was used, step by step, the rest costs one read."""
    ds = insitu.open_dataset(path)
    with xr.open_dataset(path, engine="h5netcdf") as expected:
        for step in range(11):
            np.testing.assert_array_equal(ds.tas.isel(time=step).values, expected.tas.values[step])
        for step in range(11, 40):
            found: list[Any] = []
            assert _requests(lambda: found.append(ds.tas.isel(time=step).values)) == 0  # noqa: B023
            np.testing.assert_array_equal(found[0], expected.tas.values[step])


def test_a_small_array_of_which_groups_are_reduced_is_read_whole(cache: ValueCache, path: Path) -> None:
    """The first group streams, the others are of what was read: with the same bits."""
    with insitu.open_dataset(path) as ds, insitu.open_dataset(path, cache=False) as streamed:
        for read in (True, False):
            with insitu.trace() as cost:
                found = ds.tas.resample(time="5D").mean()
            assert bool(cost.requests) is read
            assert same_bits(found.values, streamed.tas.resample(time="5D").mean().values)


def test_a_damaged_chunk_does_not_fail_what_reads_others(cache: ValueCache, path: Path) -> None:
    expected = xr.open_dataset(path).tas.load()
    (tile,) = insitu.scan(path).arrays["tas"].tiles
    chunk = tile.chunks[5, 0, 0]
    data = bytearray(path.read_bytes())
    data[chunk.offset : chunk.offset + chunk.length] = bytes(chunk.length)
    path.write_bytes(data)
    ds = insitu.open_dataset(path)
    for _ in range(2):  # three quarters of a small array: it would be read whole
        np.testing.assert_array_equal((ds.tas.isel(time=slice(10, None)) * 1).values, expected[10:])
        with pytest.raises(InsituError, match=r"chunk \(5, 0, 0\)"):
            (ds.tas.isel(time=slice(0, 30)) * 1).load()


@pytest.fixture
def steps_path(tmp_path: Path) -> Path:
    """A file with chunks of many steps, too large to be kept whole."""
    rng = np.random.default_rng(5)
    ds = xr.Dataset({"tas": (("time", "y", "x"), rng.normal(280, 5, (60, 40, 50)).astype("f4"))})
    ds.to_netcdf(tmp_path / "steps.nc", encoding={"tas": {"chunksizes": (20, 40, 50), "zlib": True}})
    return tmp_path / "steps.nc"


@pytest.fixture
def chunk_cache(monkeypatch: pytest.MonkeyPatch) -> ValueCache:
    """Make a cache of the process that holds four of these chunks for one test."""
    made = ValueCache(20 * 40 * 50 * 4 * 4)
    monkeypatch.setattr(value_cache, "_default", made)
    return made


def test_a_chunk_that_is_read_in_steps_is_decoded_once(chunk_cache: ValueCache, steps_path: Path) -> None:
    ds = insitu.open_dataset(steps_path)
    assert _requests(lambda: ds.tas.isel(time=3, x=slice(5, 9)).load()) > 0
    assert _requests(lambda: ds.tas.isel(time=slice(0, 19), y=2).load()) == 0
    assert _requests(lambda: ds.tas.isel(time=20).load()) > 0  # the next chunk


def test_a_step_is_not_cut_out_of_the_array_to_be_read(
    chunk_cache: ValueCache, steps_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = insitu.open_dataset(steps_path)
    cut: list[Any] = []
    original = VirtualArray.__getitem__
    monkeypatch.setattr(VirtualArray, "__getitem__", lambda array, key: (cut.append(key), original(array, key))[1])
    step = ds.tas.isel(time=3, x=slice(5, 9))
    assert (step.shape, step.dtype, step.size, step.nbytes) == ((40, 4), np.dtype("f4"), 160, 640)
    assert step.values.shape == (40, 4)
    assert not cut
    assert ds.tas.isel(time=3).isel(x=5).values.shape == (40,)
    assert cut


def test_texts_that_opening_has_read_are_not_read_again(cache: ValueCache, tmp_path: Path) -> None:
    names = np.array(["a", "longer", "ä"], object)
    xr.Dataset({"name": ("x", names)}).to_netcdf(tmp_path / "x.nc")
    ds = insitu.open_dataset(tmp_path / "x.nc")
    found: list[Any] = []
    assert _requests(lambda: found.append(ds.name.values)) == 0
    assert found[0].tolist() == names.tolist()
    assert ds.name.dtype == ds.name.isel(x=0).load().dtype == "U6"


def test_of_many_chunks_each_is_decoded_twice_at_most(
    chunk_cache: ValueCache, steps_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_cache, "KEPT_AT_ONCE_BYTES", 1000)
    ds = insitu.open_dataset(steps_path)
    with xr.open_dataset(steps_path, engine="h5netcdf") as expected:
        assert _requests(lambda: ds.tas.isel(time=0).load()) > 0
        assert _requests(lambda: ds.tas.isel(time=1).load()) > 0  # kept from here on
        for step in range(2, 20):
            found: list[Any] = []
            assert _requests(lambda: found.append(ds.tas.isel(time=step).values)) == 0  # noqa: B023
            np.testing.assert_array_equal(found[0], expected.tas.values[step])
        assert _requests(lambda: ds.tas.isel(time=20).load()) > 0  # the next chunk


def test_partial_chunks_are_within_the_limit_and_go_with_their_dataset(
    chunk_cache: ValueCache, steps_path: Path
) -> None:
    chunk = 20 * 40 * 50 * 4
    ds, other = insitu.open_dataset(steps_path), insitu.open_dataset(steps_path)
    for dataset in (ds, other):
        for step in range(60):
            dataset.tas.isel(time=step).load()
    assert chunk_cache.nbytes == 4 * chunk  # of six
    ds.close()
    assert chunk_cache.nbytes == 3 * chunk
    del dataset, other
    gc.collect()
    assert chunk_cache.nbytes == 0


def test_a_pass_over_an_array_leaves_partial_chunks_alone(chunk_cache: ValueCache, steps_path: Path) -> None:
    ds = insitu.open_dataset(steps_path)
    for step in (0, 1):
        ds.tas.isel(time=step).load()
    before = chunk_cache.nbytes
    assert before == 20 * 40 * 50 * 4
    ds.tas.mean("time").load()
    ds.load()
    assert chunk_cache.nbytes == before
    assert _requests(lambda: insitu.open_dataset(steps_path, cache=False).tas.isel(time=2).load()) > 0


def test_dask_and_other_processes_keep_no_chunks(chunk_cache: ValueCache, steps_path: Path) -> None:
    ds = insitu.open_dataset(steps_path)
    blocks = insitu.open_dataset(steps_path, chunks={"time": 5})
    assert blocks.tas.sum().compute(scheduler="threads") > 0
    assert chunk_cache.nbytes == 0
    assert pickle.loads(pickle.dumps(ds.tas.data)).context.cache is None


def test_a_changed_file_is_not_answered_from_chunks(chunk_cache: ValueCache, steps_path: Path) -> None:
    ds = insitu.open_dataset(steps_path)
    for step in (0, 1, 2):
        ds.tas.isel(time=step).load()
    data = bytearray(steps_path.read_bytes())
    steps_path.write_bytes(bytes(data) + b"\0")
    with pytest.raises(insitu.errors.InsituError, match="changed"):
        ds.tas.isel(time=3).load()


def test_finalizers_take_no_lock(chunk_cache: ValueCache, steps_path: Path) -> None:
    """The garbage collector may run one while its thread holds the lock of the cache."""
    ds = insitu.open_dataset(steps_path)
    part = ds.tas.isel(time=slice(2))
    assert part.values.size
    assert chunk_cache.nbytes > 0
    with chunk_cache._values._lock:
        del ds, part
        gc.collect()
    assert chunk_cache.nbytes == 0


def test_weights_of_a_part_of_what_is_kept(cache: ValueCache, path: Path) -> None:
    ds = insitu.open_dataset(path)
    with xr.open_dataset(path, engine="h5netcdf") as expected:
        np.testing.assert_array_equal(ds.tas.values, expected.tas.values)
        dim = expected.tas.dims[-1]
        weights = xr.DataArray(np.arange(1.0, expected.sizes[dim] + 1), dims=dim)
        found: list[Any] = []
        part = {"time": slice(3, 20)}
        assert _requests(lambda: found.append(ds.tas.isel(part).weighted(weights).mean(("time", dim)).values)) == 0
        wanted = expected.tas.isel(part).astype("f8").weighted(weights).mean(("time", dim))
        np.testing.assert_allclose(found[0], wanted, rtol=1e-6)
