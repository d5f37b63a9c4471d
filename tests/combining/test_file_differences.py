"""Files that cannot be ordered: the error says what tells them apart, and prints a call that joins them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pandas
import pytest
import xarray as xr

import insitu
from insitu.errors import InsituError


def fields(folder: Path) -> list[str]:
    """A field of one time in each file, as GRIB messages are shown."""
    paths = []
    for day in range(3):
        time = np.datetime64("2020-01-01", "ns") + np.timedelta64(day, "D")
        coords = {"time": time, "step": 0, "valid_time": time, "x": [0, 1]}
        paths.append(str(folder / f"{day}.nc"))
        xr.Dataset({"t": ("x", [day, 1.0])}, coords).to_netcdf(paths[-1])
    return paths


def fields_in_disorder(folder: Path) -> list[str]:
    return fields(folder)[::-1]


def forecasts(folder: Path) -> list[str]:
    """A field of one run and one lead in each file."""
    paths = []
    for run, step in ((0, 0), (0, 6), (1, 0), (1, 6)):
        coords = {"time": run, "step": step, "valid_time": 24 * run + step, "x": [0, 1]}
        paths.append(str(folder / f"{run}{step}.nc"))
        xr.Dataset({"t": ("x", [run, float(step)])}, coords).to_netcdf(paths[-1])
    return paths


def swaths(folder: Path) -> list[str]:
    """Orbits of different lengths, without labels."""
    paths = []
    for number, lines in enumerate((4, 5, 4)):
        paths.append(str(folder / f"{number}.nc"))
        values = np.full((lines, 3), float(number))
        xr.Dataset({"bt": (("line", "pixel"), values), "lat": (("line", "pixel"), values)}).to_netcdf(paths[-1])
    return paths


def profiles(folder: Path, levels: tuple[int, ...] = (4, 4, 4)) -> list[str]:
    """As Argo writes them: a profile in each file, its dimension without labels."""
    paths = []
    for number, length in enumerate(levels):
        paths.append(str(folder / f"R690_{number}.nc"))
        values = {"TEMP": (("N_PROF", "N_LEVELS"), np.full((1, length), float(number))), "JULD": ("N_PROF", [number])}
        xr.Dataset(values, attrs={"title": "Argo"}).to_netcdf(paths[-1])
    return paths


def uneven_profiles(folder: Path) -> list[str]:
    return profiles(folder, (4, 2, 3))


def casts(folder: Path) -> list[str]:
    """Two instruments, each with a length of its own in each file."""
    paths = []
    for number in range(3):
        paths.append(str(folder / f"{number}.nc"))
        values = {"t": ("a", np.full(2 + number, float(number))), "s": ("b", np.full(5 - number, 1.0))}
        xr.Dataset(values).to_netcdf(paths[-1])
    return paths


def images(folder: Path) -> list[str]:
    """A series of TIFF files, their dates in their names."""
    tifffile = pytest.importorskip("tifffile")
    paths = []
    for day in ("20200101", "20200111", "20200121"):
        paths.append(str(folder / f"ndvi.v2_{day}_h18.tif"))
        tifffile.imwrite(paths[-1], np.full((4, 6), int(day) % 251, "u1"))
    return paths


def stations(folder: Path) -> list[str]:
    """Only an attribute tells files apart."""
    paths = []
    for name in ("alpha", "beta-2", "c"):
        paths.append(str(folder / f"{name}.nc"))
        attributes = {"source": "lab", "station name": name}
        xr.Dataset({"v": ("x", [1.0, len(name)])}, {"x": [0, 1]}, attributes).to_netcdf(paths[-1])
    return paths


CASES: dict[str, tuple[Callable[[Path], list[str]], str, dict[str, int]]] = {
    "one single value": (fields, r"in the single value 'time' \(2020-01-01.*, 2020-01-02", {"time": 3}),
    "in disorder": (fields_in_disorder, r"in the single value 'time' \(2020-01-03.*, 2020-01-02", {"time": 3}),
    "two single values": (forecasts, "in the single values 'time' and 'step'", {"time": 2, "step": 2}),
    "lengths": (swaths, r"in the length of 'line' \(4, 5, …\)", {"line": 13}),
    "lengths of profiles": (uneven_profiles, "length of 'N_LEVELS'", {"N_PROF": 3, "N_LEVELS": 4}),
    "several lengths": (casts, r"length of 'a' \(2, 3, …\) and of 'b' \(5, 4, …\)", {"granule": 3, "a": 4, "b": 5}),
    "no labels": (profiles, "dimension 'N_PROF' has no labels", {"N_PROF": 3}),
    "names": (images, r"in a part of their names \(20200101, 20200111, …\)", {"time": 3}),
    "attributes": (stations, r"in the attribute 'station name' \(alpha, beta-2, …\)", {"station_name": 3}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_printed_call_joins_the_files(tmp_path: Path, case: str) -> None:
    make, difference, sizes = CASES[case]
    paths = make(tmp_path)
    with pytest.raises(InsituError, match=difference) as caught:
        insitu.open_mfdataset(paths)
    assert caught.value.hint is not None
    call = re.search(r"insitu\.open_mfdataset\(.*\)", caught.value.hint)
    assert call is not None
    found = eval(call.group(), {"insitu": insitu, "paths": paths})
    assert {dim: found.sizes[dim] for dim in sizes} == sizes
    assert found.indexes.get("time", pandas.Index([0])).is_monotonic_increasing
    parts = [insitu.open_dataset(path).load() for path in paths]
    name = next(iter(parts[0].data_vars))
    each = np.concatenate([part[name].values.reshape(-1) for part in parts])
    values = found[name].values.reshape(-1)
    assert sorted(values[~np.isnan(values)].tolist()) == sorted(each.tolist())  # what is padded is missing


def test_files_that_nothing_tells_apart(tmp_path: Path) -> None:
    paths = [str(tmp_path / "a1.nc"), str(tmp_path / "b.nc")]
    for path in paths:
        xr.Dataset({"v": ("x", [1.0, 2.0])}, {"x": [0, 1]}).to_netcdf(path)
    with pytest.raises(InsituError, match=r"Could not find any dimension coordinates.*nothing but their values"):
        insitu.open_mfdataset(paths)


@pytest.mark.parametrize(
    "files",
    [("standard", "noleap"), ("noleap", "360_day"), ("standard", "proleptic_gregorian"), ("standard", "standard 3000")],
    ids=" and ".join,
)
@pytest.mark.parametrize("options", [{}, {"use_cftime": True}], ids=["defaults", "use_cftime"])
def test_hints_about_calendars_lead_out(tmp_path: Path, files: tuple[str, ...], options: dict[str, Any]) -> None:
    paths = []
    for number, (calendar, _, first) in enumerate(name.partition(" ") for name in files):
        paths.append(str(tmp_path / f"{number}.nc"))
        with netCDF4.Dataset(paths[-1], "w") as file:
            file.createDimension("time", 3)
            time = file.createVariable("time", "f8", ("time",))
            time.units, time.calendar = f"days since {first or 2000 + number}-01-01", calendar
            time[:] = np.arange(3)
            file.createVariable("v", "f4", ("time",))[:] = np.arange(3) + 3 * number
    for _ in range(3):
        found = _opened(paths, **options)
        if isinstance(found, xr.Dataset):
            assert found.v.values.tolist() == list(range(6))
            return
        assert found.hint is not None
        call = re.search(r"(preprocess|decode_times)=(.*?)( gives all files.*)?$", found.hint)
        assert call is not None, found.hint
        options = {call.group(1): eval(call.group(2), {"xr": xr})}
    pytest.fail(f"the hints go in circles: {options}")


def _opened(paths: list[str], **options: Any) -> xr.Dataset | InsituError:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xr.SerializationWarning)
        try:
            return insitu.open_mfdataset(paths, **options)
        except InsituError as problem:
            return problem
