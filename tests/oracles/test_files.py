"""Do the files of `tests/files` whose formats have no module of their own here agree with their
readers, and is each of them accounted for?

Modules: formats/zarr/sharded.py, formats/zarr/zip_store.py
"""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr
from equality import different_values

import insitu
from real_files import FILES, list_files

MOST_BYTES = 3_000_000


def _manifest() -> list[dict[str, str]]:
    with (FILES / "MANIFEST.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_file_is_in_the_manifest() -> None:
    listed = {row["file"] for row in _manifest()}
    found = {path.relative_to(FILES) for path in list_files(FILES) if path.parent not in (FILES, FILES / "LICENSES")}
    unlisted = [path.as_posix() for path in found if not {path.as_posix(), "/".join(path.parts[:2])} & listed]
    assert not unlisted
    assert not [name for name in listed if not (FILES / name).exists()]
    assert sum(path.stat().st_size for path in list_files(FILES)) <= MOST_BYTES


def test_every_copy_has_its_licence() -> None:
    for row in _manifest():
        package = row["writer"].partition(" ")[0]
        assert row["licence"] == "Apache-2.0" or (FILES / "LICENSES" / f"{package}.txt").stat().st_size, row["file"]


@pytest.mark.parametrize("path", list_files(FILES / "hdf4"), ids=lambda path: path.name)
def test_pyhdf_agrees(path: Path) -> None:
    sd = pytest.importorskip("pyhdf.SD", reason="no pyhdf here (python scripts/hdf4.py install)")
    file = sd.SD(str(path))
    group = insitu.scan(path, decode=False)
    assert group.arrays.keys() >= file.datasets().keys()
    for name in file.datasets():
        expected = file.select(name)
        assert not different_values(insitu.read(group, name, decode=False), expected[:])
        assert {"units": group.arrays[name].attributes.get("units")} == {"units": expected.attributes().get("units")}
    file.end()


@pytest.mark.parametrize("path", sorted((FILES / "zarr").glob("*.zip")), ids=lambda path: path.name)
def test_zarr_python_agrees(path: Path) -> None:
    group = insitu.scan(path, decode=False)
    compared = 0
    with zarr.storage.ZipStore(path, mode="r", compression=zipfile.ZIP_STORED) as store:
        expected = zarr.open_group(store, mode="r")
        for name, _ in group.all_arrays():
            values: Any = expected[name][...]  # type: ignore[index]
            assert not different_values(insitu.read(group, name, decode=False), np.asarray(values))
            compared += 1
    assert compared >= 6


@pytest.mark.parametrize("path", sorted((FILES / "zarr").glob("*.zarr")), ids=lambda path: path.name)
def test_xarray_agrees_on_zarr(path: Path) -> None:
    with xarray.open_zarr(path, consolidated=path.name == "xarray_v2.zarr") as expected:
        xarray.testing.assert_identical(insitu.open_dataset(path).load(), expected.load())


def test_references_of_kerchunk() -> None:
    """They point at a file of ours; the values must be those of that file."""
    path = FILES / "references" / "kerchunk_hdf5.json"
    with xarray.open_dataset(FILES / "hdf5" / "xarray_netcdf4.nc", engine="netcdf4") as expected:
        actual = insitu.open_dataset(path).load()
        assert actual.variables.keys() == expected.variables.keys()
        for name in expected.variables:
            np.testing.assert_array_equal(actual[name], expected[name])


def test_repository_of_icechunk() -> None:
    icechunk = pytest.importorskip("icechunk")
    path = FILES / "references" / "icechunk"
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))
    store = repository.readonly_session("main").store
    with xarray.open_zarr(store, zarr_format=3, consolidated=False) as expected:
        xarray.testing.assert_identical(insitu.open_dataset(path).load(), expected.load())
