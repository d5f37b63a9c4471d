"""Keywords of xarray's netCDF engines: taken where they change nothing, refused by name where they
would.
"""

from __future__ import annotations

import gc
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu
from forked_commands import run_command
from insitu.errors import GroupError, UnsupportedError

FUNCTIONS: dict[str, Callable[..., xr.Dataset]] = {
    "virtual": insitu.open_dataset,
    "engine": lambda place, **how: xr.open_dataset(place, engine="insitu", **how),
    "many": lambda place, **how: insitu.open_mfdataset([place], **how),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = xr.Dataset({"v": ("x", np.arange(3.0)), "z": ("x", np.arange(3) + 1j)}, {"x": [5, 6, 7]})
    made.to_netcdf(tmp_path / "a.nc", engine="netcdf4", auto_complex=True)
    return tmp_path / "a.nc"


@pytest.mark.parametrize("way", FUNCTIONS)
@pytest.mark.parametrize(
    "how",
    [
        {"auto_complex": True},
        {"mode": "r", "format": "NETCDF4", "clobber": True, "diskless": False, "persist": False, "lock": None},
        {"autoclose": False, "invalid_netcdf": None, "decode_vlen_strings": True, "driver": None, "driver_kwds": None},
        {"mmap": None, "phony_dims": None},
    ],
    ids=lambda how: next(iter(how)),
)
def test_taken(path: Path, way: str, how: dict[str, Any]) -> None:
    found = FUNCTIONS[way](path, **how).load()
    with xr.open_dataset(path, engine="netcdf4", auto_complex=True) as expected:
        xr.testing.assert_identical(found, expected.load())


@pytest.mark.parametrize("way", FUNCTIONS)
@pytest.mark.parametrize(
    "how", [{"mode": "w"}, {"phony_dims": "access"}, {"decode_vlen_strings": False}, {"driver": "ros3"}], ids=str
)
def test_refused(path: Path, way: str, how: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=f"{next(iter(how))}=.*Leave"):
        FUNCTIONS[way](path, **how)


@pytest.mark.parametrize("way", ["virtual", "engine"])
def test_unknown_keywords_are_errors(path: Path, way: str) -> None:
    with pytest.raises(TypeError, match="bogus"):
        FUNCTIONS[way](path, bogus=1)


@pytest.mark.parametrize("way", FUNCTIONS)
def test_complex_numbers_along_a_dimension_are_refused(tmp_path: Path, way: str) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("y", 3)
        file.createDimension("ri", 2)
        file.createVariable("v", "f4", ("y", "ri"))[:] = 1
    assert FUNCTIONS[way](tmp_path / "a.nc").v.shape == (3, 2)
    with pytest.raises(UnsupportedError, match=r"along dimension 'ri'.*isel"):
        FUNCTIONS[way](tmp_path / "a.nc", auto_complex=True)


@pytest.mark.parametrize("way", ["virtual", "engine"])
def test_indexes_can_be_left_out(path: Path, way: str) -> None:
    assert list(FUNCTIONS[way](path).xindexes) == ["x"]
    bare = FUNCTIONS[way](path, create_default_indexes=False)
    assert not bare.xindexes
    assert bare.x.values.tolist() == [5, 6, 7]
    assert list(bare.coords) == ["x"]


@pytest.mark.parametrize("way", ["virtual", "engine"])
def test_groups(path: Path, way: str) -> None:
    with pytest.raises(GroupError, match="no group 'bar'"):
        FUNCTIONS[way](path, group="bar")
    with pytest.raises(OSError, match="bar"):
        FUNCTIONS[way](path, group="bar")
    with pytest.raises(KeyError):
        FUNCTIONS[way](path, group="bar")
    with pytest.raises(ValueError, match="must be a string"):
        FUNCTIONS[way](path, group=(1, 2))


OBJECTS: dict[str, Callable[[bytes, Path], Any]] = {
    "bytes": lambda data, path: data,
    "memoryview": lambda data, path: memoryview(data),
    "bytearray": lambda data, path: bytearray(data),
    "BytesIO": lambda data, path: io.BytesIO(data),
    "fsspec": lambda data, path: fsspec.open(str(path), "rb").open(),
}


@pytest.mark.parametrize("way", ["virtual", "engine"])
@pytest.mark.parametrize("kind", OBJECTS)
def test_datasets_on_objects_of_this_process_travel(path: Path, kind: str, way: str) -> None:
    place = OBJECTS[kind](path.read_bytes(), path)
    dataset = FUNCTIONS[way](place)
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.v.values.tolist() == [0, 1, 2]
    del copy
    gc.collect()
    assert dataset.v.values.tolist() == [0, 1, 2]  # what it is read from is still found
    if hasattr(place, "close"):
        place.close()


def test_datasets_on_objects_travel_to_another_process(path: Path, tmp_path: Path) -> None:
    """There the same names must not lead to objects that lie there."""
    places = [OBJECTS[kind](path.read_bytes(), path) for kind in OBJECTS]
    datasets = [FUNCTIONS[way](place) for place in places for way in ("virtual", "engine")]
    for number, dataset in enumerate(datasets):
        (tmp_path / f"{number}.pickle").write_bytes(pickle.dumps(dataset))
    xr.Dataset({"v": ("x", np.ones(3))}).to_netcdf(tmp_path / "other.nc", engine="netcdf4")
    code = (
        "import io, pickle, insitu, pathlib\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "other = (folder / 'other.nc').read_bytes()\n"
        "own = [insitu.open_dataset(make(other)) for make in (bytes, bytearray, memoryview, io.BytesIO)]\n"
        f"for number in range({len(datasets)}):\n"
        "    came = pickle.loads((folder / f'{number}.pickle').read_bytes())\n"
        "    assert came.v.values.tolist() == [0, 1, 2], number\n"
        "assert [one.v.values.tolist() for one in own] == [[1, 1, 1]] * 4\n"
    )
    done = run_command([], code=code)
    assert done.returncode == 0, done.stderr
    for place in places:
        if hasattr(place, "close"):
            place.close()
