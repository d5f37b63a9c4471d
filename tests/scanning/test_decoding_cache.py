"""Files that are scanned one after the other are decoded like each other, and share nothing else.

Modules: scanning/decode_member.py
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray

import insitu
from insitu.model import IDENTITY, ArrayDetails
from insitu.scanning import decode_member, decoding_cache
from insitu.scanning.decoding_cache import DecodingCache, RememberedVariable, cache_of_thread


@pytest.fixture(autouse=True)
def _forget() -> None:
    decoding_cache._caches.by_names.clear()


def _write(path: Path, start: int = 0, units: str = "days since 2000-01-01", **attributes: Any) -> str:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", 3)
        time = file.createVariable("time", "i4", ("time",))
        time.units = units
        time[:] = np.arange(start, start + 3)
        data = file.createVariable("tas", "i2", ("time",), chunksizes=(2,), zlib=True, fill_value=-1)
        data.setncatts({"scale_factor": 0.5, "levels": np.arange(3.0), "names": ["a", "b"], **attributes})
        data.set_auto_maskandscale(False)
        data[:] = np.arange(3)
    return str(path)


def _scan_alone(path: str) -> insitu.VirtualGroup:
    with ThreadPoolExecutor(1) as pool:  # a new thread remembers nothing
        return pool.submit(insitu.scan, path).result()


def _describe(group: insitu.VirtualGroup) -> Any:
    return [
        (name, array.dims, array.dtype, repr(array.attributes), repr(array.encoding), insitu.read(array).tolist())
        for name, array in group.arrays.items()
    ]


def test_second_file_is_not_decided_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _write(tmp_path / "a.nc", levels=1.0)
    second = _write(tmp_path / "b.nc", 3, levels=1.0)
    insitu.scan(first)

    def fail(*given: Any, **how: Any) -> Any:
        raise AssertionError("decided anew")

    alone = _describe(_scan_alone(second))
    monkeypatch.setattr(decode_member, "decode_variable", fail)
    assert _describe(insitu.scan(second)) == alone


@pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")
@pytest.mark.parametrize(
    "other",
    [{"units": "hours since 2000-01-01"}, {"scale_factor": 0.25}, {"_Unsigned": "true"}, {"start": 10**6}, {}],
)
def test_other_files_are_decoded_as_if_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    insitu.scan(_write(tmp_path / "a.nc"))
    path = _write(tmp_path / "b.nc", **other)
    assert _describe(insitu.scan(path)) == _describe(_scan_alone(path))


def test_results_share_nothing_that_can_change(tmp_path: Path) -> None:
    first, second = _write(tmp_path / "a.nc", levels=np.arange(1.0)), _write(tmp_path / "b.nc", levels=np.arange(1.0))
    alone = _describe(_scan_alone(second))
    for _ in range(3):
        tas = insitu.scan(first).arrays["tas"]
        tas.attributes["names"].append("c")
        tas.attributes["levels"] = 5
        tas.encoding["preferred_chunks"]["time"] = 99
        tas.encoding.clear()
        insitu.scan(first).attributes["new"] = 1
        assert _describe(insitu.scan(second)) == alone


def test_every_scan_warns(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.nc", missing_value=np.int16(-2))
    for _ in range(2):
        with pytest.warns(xarray.SerializationWarning):
            insitu.scan(path)


def test_many_files_warn_as_before(tmp_path: Path) -> None:
    how = {"levels": 1.0, "missing_value": np.int16(-2)}
    paths = [_write(tmp_path / f"{number}.nc", number * 3, **how) for number in range(4)]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        insitu.open_mfdataset(paths, parallel=False)
    assert sum(issubclass(one.category, xarray.SerializationWarning) for one in found) == 1


def test_memory_is_bounded() -> None:
    for number in range(20):
        cache_of_thread([f"v{number}"])
    assert len(decoding_cache._caches.by_names) == decoding_cache.GROUPS_PER_THREAD
    assert cache_of_thread(["v19"]) is cache_of_thread(["v19"])
    memory = DecodingCache(max_bytes=100)
    for name, size in (("a", 60), ("b", 60), ("c", 40), ("a", 10)):
        memory.remember(name, _remembered(size))
    assert sorted(memory.variables) == ["a", "c"]
    assert sum(one.weight for one in memory.variables.values()) == 50


def _remembered(size: int) -> RememberedVariable:
    dtype = np.dtype("f4")
    packing = IDENTITY[0]
    return RememberedVariable(
        {}, (1,), dtype, ("x",), (), ArrayDetails(), (bytes(size),), dtype, {}, {}, IDENTITY, packing, False, False
    )


def test_what_a_user_changes_stays_with_the_dataset(tmp_path: Path) -> None:
    """The names of an enumeration are a dictionary inside of a type."""
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("t", 3)
        kind = file.createEnumType("u1", "cloud", {"clear": 0, "cloudy": 1, "missing": 255})
        file.createVariable("clouds", kind, "t", fill_value=255)[:] = 1
    for _ in range(3):
        with insitu.open_dataset(tmp_path / "x.nc") as ds:
            names = ds.clouds.encoding["dtype"].metadata["enum"]
            assert names == {"clear": 0, "cloudy": 1, "missing": 255}
            names["foggy"] = 2
