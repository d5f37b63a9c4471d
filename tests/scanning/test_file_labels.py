"""Do attributes and single values of files label new dimensions, everywhere that names of files do?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import CombineError


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two models in two members; names say nothing."""
    paths = []
    for number, (model, member) in enumerate((("b", 2), ("a", 1), ("b", 1), ("a", 2))):
        paths.append(str(tmp_path / f"{'qwer'[number]}.nc"))
        data = xr.Dataset({"tas": ("x", [number, 1.0]), "realization": member}, {"x": [0, 1]}, {"source_id": model})
        data.attrs["issued"] = f"2024-01-0{number + 1}T06"
        data.to_netcdf(paths[-1])
    return paths


def by_hand(files: list[str]) -> xr.Dataset:
    rows = [
        xr.concat([open_one(files[number]) for number in row], xr.Variable("realization", [2, 1]), data_vars="all")
        for row in ((0, 2), (3, 1))
    ]
    return xr.concat(rows, xr.Variable("model", ["b", "a"]), data_vars="all")


def open_one(path: str) -> xr.Dataset:
    return xr.open_dataset(path).drop_vars("realization").load()


def test_a_grid_by_attribute_and_variable(files: list[str], tmp_path: Path) -> None:
    rules = {"realization": "var:realization", "model": "attr:source_id"}
    with insitu.open_mfdataset(files, concat_dim=rules, data_vars="all") as ds:
        found = ds.transpose("model", "realization", "x").load()
        np.testing.assert_array_equal(found.tas, by_hand(files).tas)
        assert found.model.values.tolist() == ["b", "a"]
        assert found.realization.values.tolist() == [2, 1]
        ds.insitu.save(tmp_path / "a.insitu")
    xr.testing.assert_identical(insitu.open_dataset(tmp_path / "a.insitu").load().tas, ds.load().tas)


def test_dates_and_functions_and_workers(files: list[str]) -> None:
    rules = {"time": "attr:issued"}
    with (
        insitu.open_mfdataset(files, concat_dim=rules) as ds,
        insitu.open_mfdataset(files, concat_dim=rules, parallel=2, resume=True) as other,
    ):
        assert ds.time.values[1] == np.datetime64("2024-01-02T06")
        xr.testing.assert_identical(ds.load(), other.load())


def test_computed_variables_are_labelled_too(files: list[str]) -> None:
    found = insitu.open_mfdataset(
        files, concat_dim={"time": "attr:issued"}, preprocess=lambda ds: ds.assign(tas=ds.tas.cumsum("x"))
    )
    plain = insitu.open_mfdataset(files, concat_dim={"time": "attr:issued"})
    np.testing.assert_array_equal(found.tas, plain.tas.load().cumsum("x"))


def test_appended_files_are_labelled_by_the_recipe(files: list[str], tmp_path: Path) -> None:
    target = tmp_path / "a.insitu"
    insitu.open_mfdataset(files[:3], concat_dim={"time": "attr:issued"}).insitu.save(target)
    insitu.Archive.open(str(target)).append(files, "time")
    every = insitu.open_mfdataset(files, concat_dim={"time": "attr:issued"})
    xr.testing.assert_identical(insitu.open_dataset(target).load(), every.load())


@pytest.mark.parametrize("first", [2, 3])
def test_appended_labels_come_last_in_any_order(files: list[str], tmp_path: Path, first: int) -> None:
    """Such files are in the order of the list, also where labels have another one."""
    target, rules = tmp_path / "a.insitu", {"time": "attr:issued"}
    order = [files[number] for number in (1, 3, 0, 2)]
    insitu.open_mfdataset(order[:first], concat_dim=rules).insitu.save(target)
    insitu.Archive.open(str(target)).append(order[first:], "time")
    every = insitu.open_mfdataset(order, concat_dim=rules)
    xr.testing.assert_identical(insitu.open_dataset(target).load(), every.load())


def test_a_file_without_the_label(files: list[str], tmp_path: Path) -> None:
    other = str(tmp_path / "z.nc")
    xr.Dataset({"tas": ("x", [8.0, 1.0])}, {"x": [0, 1]}, {"sourceid": "c"}).to_netcdf(other)
    with pytest.raises(CombineError, match=r"no attribute 'source_id'.*z\.nc.*'sourceid'"):
        insitu.open_mfdataset([*files, other], concat_dim={"model": "attr:source_id"})
    with pytest.raises(CombineError, match="no variable 'realization'"):
        insitu.open_mfdataset([*files, other], concat_dim={"run": "var:realization"})
    with pytest.raises(CombineError, match=r"'tas', which labels the dimension 'run', has the shape \(2,\)"):
        insitu.open_mfdataset(files, concat_dim={"run": "var:tas"})
    with insitu.open_mfdataset([*files, other], concat_dim={"day": "attr:issued"}, errors="skip") as ds:
        assert ds.sizes["day"] == 4
        assert list(ds.insitu.report().left_out) == [other]
