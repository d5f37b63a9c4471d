"""Are the views of forecasts what xarray's pointwise selection gives, and do they read only their chunks?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import SelectionError, UnsupportedError, VariableError
from insitu.lazy_array.duck_array import LazyArray

RUNS, LEADS = 12, 5


@pytest.fixture
def written() -> np.ndarray:
    """Which lead times each run has: the newest runs are incomplete."""
    has = np.random.default_rng(5).random((RUNS, LEADS)) < 0.8
    has[3] = True
    has[:, 0] |= ~has.any(axis=1)
    has[-1] = [True, True, False, False, False]
    return has


@pytest.fixture
def collection(tmp_path: Path, written: np.ndarray) -> Path:
    """Runs every three hours, of lead times every three hours; rain is missing at lead time 0."""
    path = tmp_path / "runs.nc"
    random = np.random.default_rng(3)
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", RUNS), ("step", LEADS), ("lat", 3), ("lon", 4)):
            file.createDimension(name, size)
        time = file.createVariable("time", "i8", ("time",))
        time.setncatts({"units": "hours since 2024-03-01", "standard_name": "forecast_reference_time"})
        time[:] = 3 * np.arange(RUNS)
        step = file.createVariable("step", "i8", ("step",))
        step.setncatts({"units": "hours", "standard_name": "forecast_period", "dtype": "timedelta64[ns]"})
        step[:] = 3 * np.arange(LEADS)
        file.createVariable("lat", "f4", ("lat",))[:] = [1, 2, 3]
        for name, first in (("tas", 0), ("rain", 1)):
            variable = file.createVariable(
                name, "f4", ("time", "step", "lat", "lon"), chunksizes=(1, 1, 3, 4), fill_value=np.nan
            )
            for run, lead in np.argwhere(written):
                if lead >= first:
                    variable[run, lead] = random.random((3, 4))
        file.createVariable("lsm", "f4", ("lat", "lon"))[:] = 1
    return path


def by_hand(loaded: xr.Dataset, has: np.ndarray) -> dict[Any, tuple[int, int]]:
    """The newest run and its lead of each valid time, with rain if some run has rain then."""
    best: dict[Any, tuple[Any, ...]] = {}
    for run, lead in np.argwhere(has):
        valid = loaded.time.values[run] + loaded.step.values[lead]
        best[valid] = max(best.get(valid, (False, -1, -1)), (bool(lead >= 1), int(run), int(lead)))
    return {valid: best[valid][1:] for valid in sorted(best)}


def select(loaded: xr.Dataset, chosen: dict[Any, tuple[int, int]]) -> xr.Dataset:
    points = {
        name: xr.Variable("valid_time", [place[at] for place in chosen.values()])
        for at, name in enumerate(("time", "step"))
    }
    valid = xr.Variable("valid_time", np.array(list(chosen)), {"standard_name": "time", "long_name": "time"})
    return loaded.isel(points).assign_coords(valid_time=valid)


@pytest.mark.parametrize("as_of", [None, "2024-03-01T14", "2024-03-01T00"])
def test_best_is_the_newest_run_of_each_valid_time(collection: Path, written: np.ndarray, as_of: str | None) -> None:
    with insitu.open_dataset(collection) as ds:
        loaded = xr.open_dataset(collection, engine="netcdf4", decode_timedelta=True).load()
        known = written.copy()
        if as_of is not None:
            known[loaded.time.values > np.datetime64(as_of) + np.timedelta64(59, "m")] = False
        found = ds.insitu.best(as_of)
        assert isinstance(found.tas.variable._data, LazyArray)
        expected = select(loaded, by_hand(loaded, known))
        xr.testing.assert_identical(found.load(), expected)
        xr.testing.assert_identical(ds.insitu.best(as_of).load(), expected)


def test_best_after_saving_and_of_a_formula(collection: Path, written: np.ndarray, tmp_path: Path) -> None:
    with insitu.open_dataset(collection) as ds:
        ds.insitu.save(tmp_path / "a.insitu")
        loaded = ds.compute()
        chosen = by_hand(loaded, written)
        xr.testing.assert_identical(
            (ds[["rain"]] * 2).insitu.best().rain.load(),
            select((loaded[["rain"]] * 2), {v: p for v, p in chosen.items() if p[1] >= 1}).rain,
        )
    with insitu.open_dataset(tmp_path / "a.insitu") as saved:
        xr.testing.assert_identical(saved.insitu.best().load(), select(loaded, chosen))


def test_only_the_chunks_of_the_view_are_read(collection: Path, written: np.ndarray) -> None:
    with insitu.open_dataset(collection, cache=False) as ds:
        view = ds[["tas"]].insitu.best().tas.isel(lat=0, lon=0)
        where = view.insitu.references()
        assert len(where["offset"]) == view.sizes["valid_time"] < written.sum()
        all_chunks = set(ds.insitu.references("tas")["tas"]["offset"].tolist())
        assert set(where["offset"].tolist()) < all_chunks


def test_one_lead_time_one_run_one_valid_time(collection: Path, written: np.ndarray) -> None:
    with insitu.open_dataset(collection) as ds:
        loaded = xr.open_dataset(collection, engine="netcdf4", decode_timedelta=True).load()
        valid = loaded.time.values[:, None] + loaded.step.values[None, :]
        for lead in (6, "6h", np.timedelta64(6, "h")):
            runs = np.flatnonzero(written[:, 2])
            found = ds.insitu.constant_lead(lead).load()
            np.testing.assert_array_equal(found.tas, loaded.tas.isel(time=runs, step=2))
            np.testing.assert_array_equal(found.valid_time, valid[runs, 2])
            np.testing.assert_array_equal(found.time, loaded.time[runs])
            assert found.tas.dims == ("valid_time", "lat", "lon")
            assert found.step == np.timedelta64(6, "h")
        for run, number in ((None, -1), ("2024-03-01T09", 3)):
            leads = np.flatnonzero(written[number])
            found = ds.insitu.run(run).load()
            np.testing.assert_array_equal(found.rain, loaded.rain.isel(time=number, step=leads))
            np.testing.assert_array_equal(found.valid_time, valid[number, leads])
        moment = valid[3, 2]
        places = np.argwhere(written & (valid == moment))
        found = ds.insitu.at_valid_time(moment).load()
        np.testing.assert_array_equal(found.tas, [loaded.tas.values[run, lead] for run, lead in places])
        np.testing.assert_array_equal(found.step, loaded.step.values[places[:, 1]])
        assert found.valid_time == moment


def test_dates_of_other_calendars(collection: Path, written: np.ndarray) -> None:
    usual = insitu.open_dataset(collection).insitu.best("2024-03-01T14").load()
    ds = insitu.open_dataset(collection, decode_times=xr.coders.CFDatetimeCoder(use_cftime=True))
    found = ds.insitu.best("2024-03-01T14").load()
    np.testing.assert_array_equal(found.tas, usual.tas)
    assert str(found.valid_time.values[3]) == str(usual.valid_time.values[3])[:19].replace("T", " ")


def test_what_is_not_there(collection: Path) -> None:
    ds = insitu.open_dataset(collection)
    with pytest.raises(SelectionError, match="no lead time 0 days 07:00"):
        ds.insitu.constant_lead(7)
    with pytest.raises(SelectionError, match="no run 2023"):
        ds.insitu.run("2023-01-01")
    with pytest.raises(SelectionError, match="no run has the valid time"):
        ds.insitu.at_valid_time("2023-01-01T01")
    with pytest.raises(SelectionError, match="no run is known as of"):
        ds.insitu.best("2023-01-01")
    with pytest.raises(VariableError, match=r"forecast_reference_time.*none"):
        ds[["lsm"]].insitu.best()
    with pytest.raises(UnsupportedError, match="Dask"):
        insitu.open_dataset(collection, chunks={}).insitu.best()


def test_a_single_run_is_a_collection(collection: Path) -> None:
    ds = insitu.open_dataset(collection)
    best, run = ds.isel(time=3).insitu.best().load(), ds.insitu.run("2024-03-01T09").load()
    xr.testing.assert_identical(best.drop_vars("time"), run.drop_vars("time"))
    assert (best.time == run.time).all()
    one = ds.isel(time=3, step=2).insitu.best().load()
    np.testing.assert_array_equal(one.tas[0], run.tas[2])
