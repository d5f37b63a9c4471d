"""Compression by gathering, expanded: what scattering the values by hand gives."""

from __future__ import annotations

from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu
from fixtures.ragged import write_gathered
from insitu.errors import FormatError, SelectionError
from real_files import corpus_files


def scatter(ds: xr.Dataset, name: str, sizes: dict[str, int]) -> xr.Dataset:
    """Return a dataset with a gathered dimension expanded, by NumPy."""
    places, dims, made = ds[name].values, ds[name].attrs["compress"].split(), {}
    for key, variable in ds.drop_vars(name).variables.items():
        if name in variable.dims:
            axis = variable.dims.index(name)
            values = np.moveaxis(variable.values, axis, 0)
            dtype = xr.DataArray(np.zeros(1, values.dtype), {"x": [0]}, "x").reindex(x=[0, 1]).dtype
            whole = np.full((int(np.prod(list(sizes.values()))), *values.shape[1:]), np.nan, dtype)
            whole[places] = values
            rest = [dim for dim in variable.dims if dim != name]
            found = xr.Variable([*dims, *rest], whole.reshape(*sizes.values(), *values.shape[1:]), variable.attrs)
            made[key] = found.transpose(*variable.dims[:axis], *dims, *variable.dims[axis + 1 :])
    return ds.drop_vars([name, *made]).assign(made)


@pytest.mark.parametrize("seed", range(4))
def test_fields_of_some_places(tmp_path: Path, seed: int) -> None:
    write_gathered(tmp_path / "a.nc", seed)
    with xr.open_dataset(tmp_path / "a.nc", engine="netcdf4") as ds:
        sizes = {dim: ds.sizes[dim] for dim in ds.land.attrs["compress"].split()}
        expected = scatter(ds.load(), "land", sizes)
    found = insitu.open_dataset(tmp_path / "a.nc").insitu.expand_gathered()
    assert {"pr", "soil"} <= set(found.insitu.virtual)
    assert found.soil.dtype == expected.soil.dtype
    part = {"lat": slice(1, None, 2), "time": 1, "lon": [3, 0]}
    xr.testing.assert_identical(found.isel(part).load(), expected.isel(part))
    xr.testing.assert_allclose(found.pr.mean("lon"), expected.pr.mean("lon"))
    found.insitu.save(tmp_path / "expanded.insitu")
    for ds in (found, found, insitu.open_dataset(tmp_path / "expanded.insitu")):
        xr.testing.assert_identical(ds.copy().load(), expected)
    assert list(found.data_vars) == ["pr", "soil", "mask", "area"]
    assert set(found.coords) == {*sizes}


def test_formulas_and_values_in_memory(tmp_path: Path) -> None:
    write_gathered(tmp_path / "a.nc")
    ds = insitu.open_dataset(tmp_path / "a.nc")
    ds = ds.assign(double=ds.pr * 2)
    loaded = ds.copy().load()
    found = ds.insitu.expand_gathered("land")
    assert "double" in found.insitu.virtual
    expected = scatter(loaded, "land", {"lat": 4, "lon": 5})
    xr.testing.assert_identical(found.load(), expected)
    xr.testing.assert_identical(loaded.insitu.expand_gathered(), expected)


def test_a_part_of_the_points(tmp_path: Path) -> None:
    write_gathered(tmp_path / "a.nc")
    ds = insitu.open_dataset(tmp_path / "a.nc")
    some = ds.isel(land=slice(2, None, 3))
    whole = ds.insitu.expand_gathered().pr.values
    found = some.insitu.expand_gathered().pr.values
    assert np.isfinite(found).sum() == 9
    np.testing.assert_array_equal(found[np.isfinite(found)], whole[np.isfinite(found)])


def test_chunks_of_other_places_are_not_read(tmp_path: Path) -> None:
    places = write_gathered(tmp_path / "a.nc")
    found = insitu.open_dataset(tmp_path / "a.nc").insitu.expand_gathered().isel(time=0)
    row, column = np.unravel_index(places[0], (4, 5))
    assert len(found.isel(lat=row, lon=column).insitu.references("pr")["pr"]["offset"]) == 1
    empty = next(place for place in range(20) if place not in places)
    row, column = np.unravel_index(empty, (4, 5))
    assert not len(found.isel(lat=row, lon=column).insitu.references("pr")["pr"]["offset"])


class TestMistakes:
    def test_nothing_is_gathered(self, tmp_path: Path) -> None:
        ds = xr.Dataset({"v": ("x", [1.0])})
        with pytest.raises(SelectionError, match="no variable has the attribute compress"):
            ds.insitu.expand_gathered()
        write_gathered(tmp_path / "a.nc")
        with pytest.raises(SelectionError, match="nothing is gathered along 'time'"):
            insitu.open_dataset(tmp_path / "a.nc").insitu.expand_gathered("time")

    def test_a_grid_that_was_cut_before(self, tmp_path: Path) -> None:
        write_gathered(tmp_path / "a.nc")
        ds = insitu.open_dataset(tmp_path / "a.nc").isel(lon=slice(3))
        with pytest.raises(SelectionError, match="'lon' was cut after opening"):
            ds.insitu.expand_gathered()

    @pytest.mark.parametrize(("value", "text"), [(20, "no places in a grid"), (-1, "no places"), (0, "a place twice")])
    def test_lists_that_are_wrong(self, tmp_path: Path, value: int, text: str) -> None:
        places = write_gathered(tmp_path / "a.nc")
        with netCDF4.Dataset(tmp_path / "a.nc", "a") as file:
            file["land"][-1] = value if value else places[0]
        with pytest.raises(FormatError, match=text):
            insitu.open_dataset(tmp_path / "a.nc").insitu.expand_gathered()


@pytest.mark.parametrize(
    ("name", "dim", "sizes"),
    [("gathered.nc", "landpoint", {"lat": 4, "lon": 5}), ("P_gathered.nc", "list", {"dim_1": 2, "dim_2": 3})],
)
def test_files_of_other_projects(corpus: Path, name: str, dim: str, sizes: dict[str, int]) -> None:
    path = next(path for path in corpus_files("netcdf3", "hdf5") if path.name == name)
    ds = insitu.open_dataset(path)
    with xr.open_dataset(path, engine="netcdf4") as whole:
        expected = scatter(whole.load(), dim, sizes)
    if "lat" not in ds.sizes:
        with pytest.raises(SelectionError, match="no variable says"):
            ds.insitu.expand_gathered()
    xr.testing.assert_identical(ds.insitu.expand_gathered(sizes=sizes).load(), expected)
