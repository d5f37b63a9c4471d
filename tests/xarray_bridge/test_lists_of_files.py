"""Functions that open one archive refuse several files by name; a list of one is that one.

Modules: archive/archive.py, archive/readable_archive.py, xarray_bridge/open_functions.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.archive import Archive
from insitu.errors import VariableError
from insitu.maintenance import convert
from insitu.xarray_bridge.open_functions import open_groups


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("files")
    paths = [folder / "one.nc", folder / "two.nc"]
    for number, path in enumerate(paths):
        steps = np.arange(3) + 3 * number
        xr.Dataset({"v": ("time", steps * 10.0), "w": ("time", steps * 2.0)}, {"time": steps}).to_netcdf(path)
        xr.Dataset({"inner": ("x", np.arange(2.0))}).to_netcdf(path, mode="a", group="g")
    return paths


OPENERS: dict[str, Callable[[Any], Any]] = {
    "open_dataset": lambda url: insitu.open_dataset(url).v.values.tolist(),
    "open_datatree": lambda url: list(insitu.open_datatree(url).groups),
    "open_groups": lambda url: list(open_groups(url)),
    "engine": lambda url: xr.open_dataset(url, engine="insitu").v.values.tolist(),
    "engine, tree": lambda url: list(xr.open_datatree(url, engine="insitu").groups),
    "engine, groups": lambda url: list(xr.open_groups(url, engine="insitu")),
    "scan, stored": lambda url: insitu.scan(url, decode=False).arrays["v"].shape,
    "Archive": lambda url: list(Archive.open(url, many=False).tree.groups),
}


@pytest.mark.parametrize("name", OPENERS)
@pytest.mark.parametrize("kind", [list, tuple])
def test_opening_several_files_as_one(files: list[Path], name: str, kind: type) -> None:
    opened = OPENERS[name]
    with pytest.raises(TypeError, match="open_mfdataset"):
        opened(kind(files))
    assert opened(kind(files[:1])) == opened(files[0])
    with pytest.raises(OSError, match="the list is empty"):
        opened(kind([]))


@pytest.mark.parametrize("name", ["open_dataset", "open_datatree", "engine", "scan, stored"])
@pytest.mark.parametrize("kind", [set, iter, lambda paths: np.array([str(path) for path in paths])])
def test_other_collections_of_files(files: list[Path], name: str, kind: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="open_mfdataset"):
        OPENERS[name](kind(files))


def test_maintaining_several_archives_as_one(files: list[Path], tmp_path: Path) -> None:
    stores = [str(tmp_path / "one.insitu"), str(tmp_path / "two.insitu")]
    for path, store in zip(files, stores, strict=True):
        insitu.open_dataset(path).insitu.save(store)
    target = str(tmp_path / "converted.json")
    for function in (insitu.check, insitu.refresh, lambda url: convert(url, target)):
        with pytest.raises(TypeError, match="open_mfdataset"):
            function(stores)
    assert str(insitu.check(stores[:1])) == str(insitu.check(stores[0]))
    assert str(insitu.refresh(stores[:1])) == str(insitu.refresh(stores[0]))
    convert(stores[:1], target)
    assert insitu.open_dataset(target).v.shape == (3,)


def test_functions_that_combine_files(files: list[Path]) -> None:
    """They take a list of one as that file, with its groups, and join several."""
    both = [0.0, 10, 20, 30, 40, 50]
    assert insitu.read(files, "v").tolist() == both
    assert insitu.reduce(files, "v", "sum") == sum(both)
    assert set(insitu.scan(files, variables=["v"]).arrays) == {"v", "time"}
    assert insitu.scan(files, variables="v").arrays["v"].shape == (6,)
    with pytest.raises(VariableError, match="no variable 'g/inner'"):
        insitu.scan(files, variables=["g/inner"])
    assert list(insitu.scan(files[:1]).groups) == ["g"]
    assert insitu.scan(files[:1], variables=["g/inner"]).array("g/inner").shape == (2,)
    assert Archive.open(files[:1]).read("g/inner").tolist() == [0, 1]
    assert str(insitu.zarr_store(files[:1])) == str(insitu.zarr_store(files[0]))


def test_one_file_that_is_joined_along_a_new_dimension(files: list[Path]) -> None:
    assert Archive.open(files[:1], concat_dim={"run": r"(one|two)"}).member().sizes["run"] == 1
    assert Archive.open(files[:1], combine="nested", concat_dim="run").member().sizes["run"] == 1
