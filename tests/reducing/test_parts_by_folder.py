"""The parts of a large reduction: the files of each folder.

Modules: reducing/expression_values.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from asking import ask_twice, same_bits
from insitu.model import Stride
from insitu.reducing import parts_by_folder
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.parts_by_folder import split_by_folder

DIMS = ("time", "lat", "lon")
MONTHS = 6


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of 20 days that lie in two folders by turns, each of which has two."""
    folder: Path = tmp_path_factory.mktemp("folders")
    random = np.random.default_rng(5)
    for number in range(MONTHS):
        path = folder / ("one", "two")[number % 2] / str(number % 4 // 2) / f"{number}.nc"
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {name: (DIMS, random.normal(280, 10, (20, 12, 15))) for name in "ab"}
        chunks = {name: {"chunksizes": (6, 7, 15), "zlib": True} for name in "ab"}
        made = xr.Dataset(values, {"time": np.arange(20) + 20 * number, "lat": np.arange(12.0)})
        made.to_netcdf(path, encoding=chunks)
    return folder


def opened(folders: Path, **how: Any) -> xr.Dataset:
    return insitu.open_mfdataset(sorted(folders.rglob("*.nc"), key=lambda path: path.name), **how)


@pytest.fixture
def ds(folders: Path) -> xr.Dataset:
    return opened(folders, cache=False)


def split(array: Any) -> list[Any]:
    """The days of each part."""
    parts = split_by_folder(ExpressionValues(array.variable._data.node))
    return [np.arange(array.shape[0])[_key(part.selectors[0])] for part in parts]


def _key(selector: Any) -> Any:
    return slice(selector.start, selector.start + selector.length) if isinstance(selector, Stride) else selector


def test_small_values_are_one_part(ds: xr.Dataset) -> None:
    assert len(split(ds.a)) == 1


@pytest.mark.parametrize(("most", "parts"), [(32, 4), (3, 2), (1, 1)])
def test_the_files_of_a_folder_are_a_part(
    ds: xr.Dataset, most: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there are too many folders, those that they lie in."""
    monkeypatch.setattr(parts_by_folder, "FOLDER_BYTES", 1000)
    monkeypatch.setattr(parts_by_folder, "MOST_FOLDERS", most)
    for array in (ds.a, ds.a * 2 + ds.b, ds.a.isel(time=slice(None, None, -1))):
        found = split(array)
        assert len(found) == parts
        np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(20 * MONTHS))


OPERATIONS: dict[str, Any] = {
    "mean": lambda ds: ds.a.mean("time"),
    "kept": lambda ds: ds.a.std(("lat", "lon")),
    "position": lambda ds: ds.a.argmax("time"),
    "formula": lambda ds: (ds.a * ds.b).sum(("time", "lon")),
    "weights": lambda ds: ds.insitu.weighted(ds.time * 0.1 + 3).mean("time").a,
    "groups": lambda ds: ds.assign_coords(time=ds.time % 7).insitu.groupby("time").mean().a,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_values_are_those_of_one_part(
    folders: Path, ds: xr.Dataset, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = OPERATIONS[name]
    expected = operation(ds).values
    monkeypatch.setattr(parts_by_folder, "FOLDER_BYTES", 1000)
    np.testing.assert_allclose(operation(ds), expected, rtol=1e-12)
    assert same_bits(operation(ds).values, ask_twice(lambda: operation(opened(folders))).values)
