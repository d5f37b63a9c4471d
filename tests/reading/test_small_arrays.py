"""Whole small arrays of uncompressed files are read without a plan, with the same values and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import StaleSourceError
from insitu.reading import ReadStatistics, read_arrays, small_arrays
from insitu.sources import MemorySource


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """NetCDF-3: records of several variables beside each other, packed ones and times too."""
    rng = np.random.default_rng(1)
    ds = xr.Dataset(
        {
            "a": ("time", rng.normal(size=50).astype("f4")),
            "b": (("time", "x"), rng.normal(size=(50, 3))),
            "c": (
                ("time", "x"),
                rng.integers(0, 99, (50, 3)).astype("i2"),
                {"scale_factor": 0.5, "_FillValue": np.int16(7)},
            ),
            "d": ("x", np.array([1, 2, 3], "i4")),
            "e": ("time", np.arange(50.0), {"units": "days since 2001-01-01", "calendar": "noleap"}),
            "f": ((), 4.5),
        }
    )
    path = tmp_path / "records.nc"
    ds.to_netcdf(path, format="NETCDF3_CLASSIC", unlimited_dims=["time"], engine="netcdf4")
    return path


def test_records_are_those_of_xarray(records: Path) -> None:
    with xr.open_dataset(records, engine="scipy") as expected, insitu.open_dataset(records) as found:
        xr.testing.assert_identical(found.load(), expected.load())


def test_they_take_one_request(records: Path) -> None:
    group = insitu.scan(records)
    arrays = [group.arrays[name] for name in ("a", "b", "c", "d", "f")]
    tally = ReadStatistics()
    values = read_arrays([(array, ...) for array in arrays], tally=tally)
    assert tally.requests == 1
    for array, found in zip(arrays, values, strict=True):
        np.testing.assert_array_equal(found, insitu.reading.read_array(array))


def test_many_contiguous_variables(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    kinds = ["<f8", ">f4", "<i2", "?", "<c8", [("x", "<i2"), ("y", ">f8")]]
    rng = np.random.default_rng(2)
    with h5py.File(path, "w") as file:
        for number, kind in enumerate(kinds):
            raw = np.zeros((4, 5), kind)
            if raw.dtype.names is None:
                raw[...] = rng.integers(0, 2, (4, 5))
            file[f"v{number}"] = raw
        expected = {name: dataset[...] for name, dataset in file.items()}
    group = insitu.scan(path)
    found = read_arrays([(group.arrays[name], ...) for name in expected])
    for name, values in zip(expected, found, strict=True):
        assert values.dtype == group.arrays[name].dtype
        np.testing.assert_array_equal(values, expected[name].astype(values.dtype))
        assert values.flags.writeable


def test_an_error_names_the_variable(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["first"] = np.arange(10.0)
    group = insitu.scan(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(StaleSourceError) as problem:
        read_arrays([(group.arrays["first"], ...)], names=["first"])
    assert problem.value.place["variable"] == "first"


def test_large_arrays_are_left_to_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["v"] = np.arange(100.0)
    array = insitu.scan(path).arrays["v"]
    assert small_arrays._locate(array) is not None
    monkeypatch.setattr(small_arrays, "SMALL_BYTES", 799)
    assert small_arrays._locate(array) is None


def test_adjacent_chunks_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source = MemorySource(bytes(range(100)))
    requested: list[Any] = []
    read = source.read_many
    monkeypatch.setattr(MemorySource, "read_many", lambda self, ranges: requested.extend(ranges) or read(ranges))
    ranges = [(10, 2), (12, 3), (15, 0), (40, 5), (45, 1), (20, 4), (12, 2)]
    blocks, requests, fetched = small_arrays._fetch_ranges(source, *np.array(ranges, np.int64).T)
    assert blocks == [bytes(range(at, at + length)) for at, length in ranges]
    assert requested == [(10, 5), (20, 4), (40, 6)]
    assert (requests, fetched) == (3, 15)
