"""One station, profile or trajectory of ragged arrays: what selecting its samples by hand gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from fixtures.ragged import write_argo, write_nested, write_stations
from insitu.errors import FormatError, SelectionError
from real_files import corpus_files


def open_with_xarray(path: Path) -> xr.Dataset:
    with xr.open_dataset(path, engine="netcdf4") as ds:
        return ds.load()


@pytest.fixture(params=["file", "store"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that opens a file, or what was saved of it."""

    def of(path: Path) -> xr.Dataset:
        if request.param == "file":
            return insitu.open_dataset(path)
        store = tmp_path / "saved.insitu"
        insitu.open_dataset(path).insitu.save(store)
        return insitu.open_dataset(store)

    return of


@pytest.mark.parametrize("kind", ["contiguous", "indexed"])
@pytest.mark.parametrize("seed", range(3))
def test_stations(tmp_path: Path, opened: Any, kind: str, seed: int) -> None:
    owners = write_stations(tmp_path / "a.nc", kind, seed)
    ds, whole = opened(tmp_path / "a.nc"), open_with_xarray(tmp_path / "a.nc")
    relation = "row_size" if kind == "contiguous" else "station_index"
    for number in range(4):
        expected = whole.isel(station=number, obs=np.flatnonzero(owners == number)).drop_vars(relation)
        one = ds.insitu.instance(number)
        assert "temp" in one.insitu.virtual or not one.temp.size
        for _ in range(2):
            xr.testing.assert_identical(one.copy().load(), expected)
        for other in ({"instance": number - 4}, {"instance": f"s{number}"}, {"label": f"s{number}".encode()}):
            xr.testing.assert_identical(ds.insitu.instance(**other).load(), expected)


def test_an_instance_is_saved_as_references(tmp_path: Path) -> None:
    write_stations(tmp_path / "a.nc", "contiguous")
    one = insitu.open_dataset(tmp_path / "a.nc").insitu.instance("s2")
    one.insitu.save(tmp_path / "one.insitu")
    xr.testing.assert_identical(insitu.open_dataset(tmp_path / "one.insitu").load(), one.load())


def test_chunks_of_other_instances_are_not_read(tmp_path: Path) -> None:
    write_stations(tmp_path / "a.nc", "contiguous", counts=(40, 40))
    one = insitu.open_dataset(tmp_path / "a.nc").insitu.instance(1)
    assert len(one.insitu.references("temp")["temp"]["offset"]) == 1


@pytest.mark.parametrize("seed", range(4))
def test_profiles_of_stations(tmp_path: Path, opened: Any, seed: int) -> None:
    stations, counts = write_nested(tmp_path / "a.nc", seed)
    ds, whole = opened(tmp_path / "a.nc"), open_with_xarray(tmp_path / "a.nc")
    owners = np.repeat(np.arange(7), counts)
    for number, label in enumerate([71001, 71002, 13857]):
        profiles = np.flatnonzero(stations == number)
        expected = whole.isel(station=number, profile=profiles, obs=np.flatnonzero(np.isin(owners, profiles)))
        one = ds.insitu.instance(label=label)
        xr.testing.assert_identical(one.load(), expected.drop_vars("station_index"))
        for at, profile in enumerate(profiles):  # what is left is a ragged array again
            inner = one.insitu.instance(at, dim="profile")
            np.testing.assert_array_equal(inner.z, whole.z[owners == profile])
            xr.testing.assert_identical(ds.insitu.instance(int(profile), dim="profile").z.load(), inner.z.load())


def test_instances_within_indexed_ones_are_counted_anew(tmp_path: Path) -> None:
    ds = xr.Dataset(
        {
            "row_size": ("cruise", [1, 2], {"sample_dimension": "cast"}),
            "cast_index": ("obs", [0, 2, 1, 2, 1], {"instance_dimension": "cast"}),
            "day": ("cast", [5, 6, 7]),
            "t": ("obs", np.arange(5.0)),
        }
    )
    ds.to_netcdf(tmp_path / "a.nc")
    one = insitu.open_dataset(tmp_path / "a.nc").insitu.instance(1)
    assert one.cast_index.values.tolist() == [1, 0, 1, 0]
    assert one.t.values.tolist() == [1, 2, 3, 4]
    assert one.insitu.instance(1).t.values.tolist() == [1, 3]


def test_arrays_of_one_length_for_each_instance(tmp_path: Path) -> None:
    ds = xr.Dataset(
        {"t": (("trajectory", "obs"), np.arange(6.0).reshape(2, 3))},
        {"id": ("trajectory", ["a", "b"], {"cf_role": "trajectory_id"})},
    )
    ds.to_netcdf(tmp_path / "a.nc")
    found = insitu.open_dataset(tmp_path / "a.nc").insitu.instance("b")
    xr.testing.assert_identical(found.load(), open_with_xarray(tmp_path / "a.nc").isel(trajectory=1))


def test_floats_of_argo_side_by_side(tmp_path: Path) -> None:
    paths = []
    for number, levels in enumerate((5, 2, 7)):
        paths.append(tmp_path / f"R69007{number:02d}_001.nc")
        write_argo(paths[-1], levels, number)
    found = insitu.open_mfdataset(paths, combine="nested", concat_dim="N_PROF", pad=True)
    parts = [open_with_xarray(path) for path in paths]
    expected = xr.concat(
        [part.pad(N_LEVELS=(0, 7 - part.sizes["N_LEVELS"])) for part in parts], "N_PROF", combine_attrs="override"
    )
    xr.testing.assert_identical(found.load(), expected)
    one = found.insitu.instance(1, dim="N_PROF").isel(N_LEVELS=slice(2))
    np.testing.assert_array_equal(one.TEMP, parts[1].TEMP[0])


def test_one_station_of_several_files(tmp_path: Path) -> None:
    paths, expected = [tmp_path / "a.nc", tmp_path / "b.nc"], []
    for seed, path in enumerate(paths):
        owners = write_stations(path, "contiguous", seed, counts=(3, 2 + seed, 1, 4))
        expected.append(open_with_xarray(path).temp.values[owners == 1])
    found = insitu.open_mfdataset(
        paths, combine="nested", concat_dim="obs", preprocess=lambda ds: ds.insitu.instance("s1")
    )
    assert "temp" in found.insitu.virtual
    np.testing.assert_array_equal(found.temp, np.concatenate(expected))


class TestMistakes:
    def test_selections(self, tmp_path: Path) -> None:
        write_stations(tmp_path / "a.nc", "contiguous")
        ds = insitu.open_dataset(tmp_path / "a.nc")
        for how, text in (
            ({"instance": 4}, "no instance 4 along 'station': there are 4"),
            ({"instance": "s9"}, "no instances have the label 's9' in 'station_name'"),
            ({"instance": 1.5}, r"1\.5 is no number of an instance"),
            ({}, "give the number"),
            ({"instance": 1, "label": "s1"}, "give the number"),
            ({"instance": 1, "dim": "profile"}, "no dimension 'profile'"),
        ):
            with pytest.raises(SelectionError, match=text):
                ds.insitu.instance(**how)
        with pytest.raises(SelectionError, match="does not say what its instances are"):
            ds[["temp"]].reset_coords(drop=True).insitu.instance(1)

    def test_labels_that_are_not_unique(self, tmp_path: Path) -> None:
        ds = xr.Dataset({"id": ("p", ["a", "a"], {"cf_role": "profile_id"}), "t": (("p", "z"), np.ones((2, 3)))})
        with pytest.raises(SelectionError, match="2 instances have the label 'a'"):
            ds.insitu.instance("a")

    @pytest.mark.parametrize(
        ("relation", "text"),
        [
            (("station", [2, 2], {"sample_dimension": "obs"}), "counts 4 samples, and 'obs' has 5"),
            (("station", [6, -1], {"sample_dimension": "obs"}), "counts 5 samples|counts"),
            (("station", [2.5, 2.5], {"sample_dimension": "obs"}), "no integers"),
            (("obs", [0, 1, 2, 0, 0], {"instance_dimension": "station"}), "names instance 2, and 'station' has 2"),
            (("obs", [0, -1, 1, 0, 0], {"instance_dimension": "station"}), "names instance -1"),
            (("station", [2, 3], {"sample_dimension": "row"}), "no such dimension"),
        ],
    )
    def test_files_that_contradict_themselves(self, tmp_path: Path, relation: Any, text: str) -> None:
        ds = xr.Dataset({"lat": ("station", [1.0, 2.0]), "t": ("obs", np.arange(5.0)), "relation": relation})
        ds.to_netcdf(tmp_path / "a.nc")
        with pytest.raises(FormatError, match=text):
            insitu.open_dataset(tmp_path / "a.nc").insitu.instance(0)

    def test_cut_before(self, tmp_path: Path) -> None:
        write_stations(tmp_path / "a.nc", "contiguous")
        ds = insitu.open_dataset(tmp_path / "a.nc")
        for cut in ({"obs": slice(3)}, {"station": slice(1, 3)}):
            with pytest.raises(FormatError, match="choose the instance first"):
                ds.isel(cut).insitu.instance(0)


@pytest.mark.parametrize("name", ["contiguous.nc", "T_contiguous.nc"])
def test_files_of_other_projects(corpus: Path, name: str) -> None:
    path = next(path for path in corpus_files("netcdf3", "hdf5") if path.name == name)
    ds, whole = insitu.open_dataset(path), open_with_xarray(path)
    (relation,) = [key for key, variable in whole.variables.items() if "sample_dimension" in variable.attrs]
    begin, (dim,) = 0, whole[relation].dims
    for number, count in enumerate(whole[relation].values.tolist()):
        samples = {whole[relation].attrs["sample_dimension"]: slice(begin, begin + count), dim: number}
        xr.testing.assert_identical(ds.insitu.instance(number).load(), whole.isel(samples).drop_vars(relation))
        begin += count
